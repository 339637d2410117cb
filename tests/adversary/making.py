"""Arguments by chance: arrays of any library, dtype, layout and value, and what is no array at all."""

import inspect
import random
import signal
import tempfile
import warnings
import zlib
from collections import Counter

import numpy as np
import torch

from obrs.errors import ObrsError

try:
    import jax
except ImportError:
    jax = None

FLOATS = ("float64", "float64", "float64", "float32", "float16", "longdouble")
INTEGERS = ("int64", "int64", "int32", "int8", "uint8", "uint64")
LIMIT = 1e6  # how far from 0 a log-ratio may be
EXTREME = (0.0, -0.0, 1e-320, 5e-324, 700.0, -750.0, 5000.0, -5000.0, 1e30, -1e30, 1e308, -1e308)
NO_NUMBERS = (np.nan, np.inf, -np.inf)
SEEDS = (0, 1, 7, 2**63, 2**64 - 1)
NO_SEEDS = (-1, 2**64, 1.5, "s", None, True, np.nan)
NO_ARRAYS = (None, "text", b"bytes", {}, (), [], 3.5, True, [[1], [1, 2]], [None], range(3), np.ma.masked_array([1.0]))

# What no verb may take for a parameter of this name; a case may name others
NO_SIZES = (-1, 1.5, np.nan, np.inf, "3", True, 10**30, [2], np.array([1, 2]), {"a": 1.5}, b"3", 2j)
NO_COUNTS = (0, *NO_SIZES)
NO_FLOATS = (-1.0, np.nan, np.inf, "0.1", True, [0.1], 1j, {}, b"1")
NO_SHARES = (-0.1, 1.5, np.nan, "x", None, [0.5], True)
NO_NAMES = ("no", "", 3, True, ["kl"], b"kl", np.nan, {})
NO_FUNCTIONS = ("text", 3, [1], {}, True, np.nan, b"x")
NO_PATHS = (3, True, np.nan, {}, b"\0", "\0", object())
NO_VALUES = ("text", b"bytes", {}, (), [], True, [[1], [1, 2]], [None], np.ma.masked_array([1.0]), 2j, object())
NO_LABELS = ("text", 3, True, [[1], [1, 2]], {})
WRONG = {
    "budget": (0, 0.25, -1, np.nan, np.inf, "4", None, True, 1e400, 1j, b"4", []),
    "budgets": (0.5, "b", None, [np.nan], [0.5], ["2"], [None], [True], [np.inf], {}, [], (), True),
    "lam": (-1.0, np.nan, "x", None, [-1, 2], {}, 1j, [[1], [1, 2]]),
    "axis": (7, "a", 1.5, True, [0], np.nan),
    "seed": (*NO_SEEDS, [1], np.array([1, 2]), 1j, b"1"),
    "start": (-1, 1.5, "s", 2**63, np.nan, [1], True),
    "shard": ((1, 1), (0, 0), (-1, 1), 3, None, "ab", (0, 1, 2), ("a", "b"), (0.5, 2), (True, 2), (np.nan, 2)),
    "keep": (0, -1, 1.5, np.nan, "3", True, [2], None),
    "confidence": (0, 1, -1, np.nan, "c", [0.5], True, 1j),
    "held_out": (0, 1, -1, np.nan, "x", [0.1], True),
    "points": (1, *NO_COUNTS),
    "shares": ("equal", 0.5, {"no such": 1}, {0: "x"}, [np.nan, 1], [], [-1, 2], [0, 0], {}, True),
    "sign": ("s", [np.nan], 2, {}, True),
    "ids": ("a", [0.5], [None], {}, np.array(["a"]), np.array([np.nan]), 1j),
    "split": ("no", 3, [], {}, "", np.nan),
    "rule": ("no", 3, True, [], {}, object(), np.nan),
    "rules": ((), ("no",), "no", 3, None, [3], {}, True),
    "text": ("", "[1]", "{}", "null", "3", '{"rule": "no"}', "{", 3, None, b"{}", [], '{"rule": "budgeted"}'),
    "cut": ("no/such", 3, None, {}, [], {"kind": "no"}, True),
    "key_or_record": ("no", "", 3, None, True, ["kl"]),
    "features": (3, True, [], {}, np.nan, b"x", "no"),
    "pixels": ((1, 0), (0, 0), "p", (0, np.nan), (1, 2, 3), 3, (), True, ("0", "1")),
    "columns": ("image", 3, True, ["a"], ("no", "label")),
    "method": ("no", 3, True, [], {}, object, np.nan),
    "loss": (None, "no", 3, ("kl",), (None, None), True, [], "x"),
    "data": (None, "x", 3, [], {}, True, np.zeros(0), object(), np.full((40, 2), np.nan), np.full((40, 2), "a")),
    "betas": (3, None, "b", (0.5,), (1.0, 2.0), (-1, 0.5), (np.nan, 0.5), (0.5, 0.9, 0.9), ("a", "b"), True),
    "lr": (-1.0, np.nan, np.inf, "x", None, True, [], (1e-3,), ("a", "b"), ()),
    "ema": (-0.1, 1.5, np.nan, "x", True, [0.5], 1.0),
    "start_from": (3, "no/such", [], True),
    "parts": (None, 3, "x", [1], [(1, 2)], [("f", 1.0)], [(None, 1.0)], {}),
    "model": (None, 3, "x", abs, {}),
    "metrics": ("no", 3, [], {"a": 3}, True),
    "samplers": (("no",), 3, (3,), "no", (None,), True),
    "extra": (3, "x", {"a": 3}, {3: 3}, True, {"a": None}),
    "pretrained": (3, ("no",), "no", (3,), True),
    "judge": (3, "no", [], True, {}),
    "sizes": (3, [], [2], [2, 0], [2, -1], [2, 1.5], "ab", None, [2, "3"], [True, 2]),
    "where": (*NO_PATHS, "no/such/file", [3], None, []),
    "title": (3, True, [], b"x", object()),
    "samples": (3, "text", set(), {"a": 1}, True, object(), ["a"] * 7000, [], (x for x in ())),
    "compare": (3, "text", [1.0], [np.nan], {}, True),
}
for names, values in {
    "n proposed pilot max_proposed steps batch_size draws k size epochs critic_steps constant_every repeats": NO_COUNTS,
    "fits latent log_every save_every width layers heads burn_in": NO_COUNTS,
    "warm_up waves stop": NO_SIZES,
    "kl r1 gradient_penalty penalty noise max_seconds": NO_FLOATS,
    "beta step n_real n_fake": (0, *NO_FLOATS),
    "design level normalise ratio kind precision activation output divergence f": NO_NAMES,
    "log_ratios weights weight reward real fake source logp_train logp_rollout mask": NO_VALUES,
    "log_ratio propose generate critic generator pipe fn groups_of": (*NO_FUNCTIONS, None),
    "column id group layer": ("no", 3, True, ["x"], ""),
    "out path": (*NO_PATHS, []),
    "groups labels": NO_LABELS,
}.items():
    WRONG |= dict.fromkeys(names.split(), values)
RANDOM = (
    lambda: np.random.get_state()[1].tobytes(),  # noqa: NPY002  (that of the program, which stays as it is)
    lambda: torch.get_rng_state().numpy().tobytes(),
    random.getstate,
)


class Maker:
    """What a case is made of; `Maker(verb, number)` makes the same case again."""

    def __init__(self, verb, number):
        self.rng = np.random.default_rng([zlib.crc32(verb.encode()), number])
        self.wild = self.rng.random() < 0.4  # arguments may be wrong
        self.extreme = self.rng.random() < 0.35  # numbers may be of any size
        self.arrays = []
        self.counts, self.calls = Counter(), Counter()
        self.folder = ""  # of this case alone

    def chance(self, p):
        return bool(self.rng.random() < p)

    def one(self, *options):
        return options[self.rng.integers(len(options))]

    def count(self, low, high):
        return int(self.rng.integers(low, high + 1))

    def size(self, most=40):
        """A number of rows: often one, seldom many."""
        return self.one(1, 1, 2, 3, self.count(4, most), self.count(4, most), self.count(4, most), 4 * most)

    def array(self, good, p=0.1):
        """This array in any guise, or in a wild case perhaps something else."""
        return self.one(*NO_ARRAYS, *self.spoil(good)) if self.wild and self.chance(p) else self.guise(good)

    def spoil(self, x):
        """The array with another shape or dtype."""
        with np.errstate(all="ignore"):
            return x[:0], x[None], x[..., None], x[:-1], x.astype(object), x.astype("complex64"), x[0]

    def guise(self, x):
        """The array with the same values, read-only, strided, of another library, or as a list."""
        kind = self.one("plain", "plain", "read-only", "reversed", "strided", "list", "torch", "jax")
        if x.dtype.kind not in "fiub":
            return x.tolist() if kind == "list" else x
        if kind == "read-only":
            x = x.copy()
            x.flags.writeable = False
        elif kind == "reversed":
            x = np.ascontiguousarray(x[::-1])[::-1]
        elif kind == "strided":
            wide = np.empty((*x.shape, 2), x.dtype)
            wide[..., 0], wide[..., 1] = x, x
            x = wide[..., 0]
        elif kind == "list" and x.size < 50:
            return x.tolist()
        elif kind == "torch" and x.dtype not in (np.longdouble, np.uint64):
            return torch.from_numpy(x.copy())
        elif kind == "jax" and jax is not None and x.size < 8 and x.dtype in (np.float32, np.int32):
            return jax.numpy.asarray(x)
        self.arrays.append((x, x.tobytes()))
        return x

    def floats(self, *shape, spread=2.0):
        """Numbers about 0, in an extreme case with some of any size."""
        x = self.rng.normal(scale=self.one(0.0, 0.1, spread, spread, 10 * spread), size=shape)
        if self.extreme:
            x = np.where(self.rng.random(shape) < 0.2, self.rng.choice(EXTREME, shape), x)
        if self.chance(0.3):  # ties
            x = np.round(x)
        with np.errstate(all="ignore"):
            x = x.astype(self.one(*FLOATS))
            return np.where(np.isfinite(x), x, x.dtype.type(0)) if x.dtype.itemsize < 8 else x

    def integers(self, n):
        """Small integers, in an extreme case with some at the ends of their dtype."""
        ends = np.iinfo(self.one(*INTEGERS))
        x = self.rng.integers(max(ends.min, -6), 7, n).astype(ends.dtype)
        if self.extreme:
            x = np.where(self.rng.random(n) < 0.2, self.rng.choice(np.array([ends.min, ends.max], ends.dtype), n), x)
        return x

    def scores(self, n):
        """Scores, which some users have as integers."""
        return self.integers(n) if self.chance(0.15) else self.floats(n)

    def log_ratio(self, n):
        """Log-ratios up to the border of what is one, with r = 0; in a wild case beyond it, or NaN; or integers."""
        x = self.scores(n)
        if x.dtype.kind != "f":
            return x
        if not self.wild and x.dtype.itemsize > 2:
            x = np.clip(x, x.dtype.type(-LIMIT), x.dtype.type(LIMIT))
        if self.chance(0.3):
            x = np.where(self.rng.random(n) < self.one(0.1, 0.6), x.dtype.type(-np.inf), x)
        if self.wild and self.chance(0.1):
            x = np.where(self.rng.random(n) < 0.2, self.rng.choice(NO_NUMBERS, n).astype(x.dtype), x)
        return x

    def weights(self, n):
        """Numbers of at least 0, some of them 0."""
        with np.errstate(all="ignore"):
            x = np.minimum(np.abs(self.floats(n)), np.float64(1e308))
        return np.where(self.rng.random(n) < self.one(0.0, 0.3), 0, x).astype(x.dtype)

    def labels(self, n):
        """Labels of one kind, in a wild case of several."""
        few = self.one(1, 2, 3, n)
        code = self.rng.integers(0, few, n)
        kind = self.one("int", "text", "negative", "float", "bool", "large")
        if self.wild and self.chance(0.1):
            return self.one([None] * n, [1, "a"] * n, [{}] * n, code[:-1], code[None], np.full(n, np.nan), "a" * n)
        if kind == "text":
            return np.array(["", "b", "é", "cat"])[code % 4]
        if kind == "bool":
            return code % 2 == 0
        if kind == "large":
            return code * 2**40
        return code - 2 if kind == "negative" else code / 2 if kind == "float" else code

    def ids(self, n):
        """Ids: positions, or any integers, perhaps with repeats."""
        kind = self.one("positions", "any", "any", "repeated", "one")
        if self.wild and self.chance(0.1):
            return self.one(np.arange(n) / 2, ["a"] * n, np.arange(n + 1), None, np.zeros((n, 1), int), [True] * n)
        if kind == "positions":
            return np.arange(n)
        if kind == "any":
            return self.rng.choice(np.array([2**62, -(2**63), 0, -1, 12345]), 1) + self.rng.permutation(n)
        return self.rng.integers(0, max(n // 2, 1), n) if kind == "repeated" else np.zeros(n, np.int64)

    def budget(self):
        return self.one(1, 1.0000001, 1.5, 2, 2.6, 4, 10.0, 1e6, 1e300, 1 + self.rng.random())

    def seed(self):
        return self.one(*SEEDS, self.count(0, 99))

    def answer(self, function, *arguments, wrong=None, **options):
        """Call it; return its answer, or None if it refused in one line.

        A wild case may first put something plainly wrong, of `WRONG` or of those given, in the place of one argument:
        that must be refused.
        """
        given = inspect.signature(function).bind(*arguments, **options)
        given.arguments |= given.arguments.pop("options", {})
        known = {name: values for name, values in (WRONG | (wrong or {})).items() if name in given.arguments and values}
        if "log_ratio" in known and not callable(given.arguments["log_ratio"]) and "log_ratio" not in (wrong or {}):
            known["log_ratio"] = NO_VALUES
        spoilt = self.one(*known) if self.wild and known and self.chance(0.6) else None
        if spoilt:
            given.arguments[spoilt] = self.one(*known[spoilt])
        self.calls[getattr(function, "func", function).__qualname__.split(".<locals>.")[-1]] += 1
        before = [state() for state in RANDOM]
        try:
            result = function(**given.arguments)
        except (ObrsError, OSError) as error:
            assert str(error), "an error without a word"
            assert "\n" not in str(error), f"an error of several lines: {error}"
            self.counts["refused"] += 1
            return None
        assert before == [state() for state in RANDOM], "random numbers of the program were drawn"
        assert not spoilt, f"{spoilt}={given.arguments[spoilt]!r:.60} was taken"
        self.counts["answered"] += 1
        return result

    def check_untouched(self):
        """Raise if a call has written into its arguments."""
        for x, before in self.arrays:
            assert x.tobytes() == before, "an argument was changed"


def host(x):
    """The values in float64."""
    if hasattr(x, "detach"):
        x = x.detach().cpu().double().numpy()
    with np.errstate(all="ignore"):
        return np.asarray(x, dtype=np.float64)


def finite(*numbers):
    """Whether all of these are finite numbers."""
    return all(np.all(np.isfinite(host(x))) for x in numbers)


def close(a, b, rtol=1e-9, atol=1e-12):
    """Whether two are the same but for rounding; infinities must be the same."""
    return np.allclose(host(a), host(b), rtol=min(rtol, 1.0), atol=atol)


class Hung(BaseException):
    """A case took too long; no `except Exception` may hide that."""


def run_case(verb, function, number, seconds=20.0):
    """Make the case of this number and run it, with warnings as errors; return what came of its calls."""
    maker = Maker(verb, number)

    def stop(*_):
        raise Hung(f"case {number} of {verb}: no answer in {seconds:g} seconds of computing")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        random_numbers = torch.random.fork_rng()
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as maker.folder, random_numbers:
            warnings.simplefilter("error")
            torch.manual_seed(number)
            function(maker)
        maker.check_untouched()
    except Exception as error:
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(f"case {number} of {verb}")
        raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return maker
