"""The record of a sampling run: what was kept, what it cost, and what it says about the target."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from errno import EINVAL
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from .._arrays import host_view
from .._checks import is_number
from .._files import replacing
from .._text import html_table
from ..errors import InputError, InputTypeError, ObrsError
from ..rules import RULES, from_json, to_json
from .averages import Run, average, merged
from .packing import pack, unpack
from .proposals import Batch, concatenate, leaves, move, take

__all__ = ["Calls", "Samples", "first", "join", "stopped", "unjudged"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Calls:
    """How often the networks were evaluated, in items: forward, and with a gradient on top.

    Example:
        >>> Calls(generator=10, critic=10) + Calls(critic=5, critic_gradient=5)
        Calls(generator=10, critic=15, generator_gradient=0, critic_gradient=5)
    """

    generator: int = 0
    critic: int = 0
    generator_gradient: int = 0
    critic_gradient: int = 0

    def __add__(self, other: "Calls") -> "Calls":
        return Calls(**{key: value + getattr(other, key) for key, value in asdict(self).items()})


@dataclass(frozen=True, repr=False)
class Samples:
    """What was kept: samples with their ids, ratios and weights, and what they cost.

    Args:
        x: The samples, an array or a tuple or dict of arrays.
        ids: The proposal each came from, NumPy int64.
        log_ratio: Their log-ratios, NumPy float64; NaN where a method does not score its output.
        log_weight: log(r/a), the importance weight that is left, NumPy float64; 0 where a method has none.
        proposed: Proposals up to the last one kept.
        executed: Proposals made, including the rest of the last batch.
        calls: Evaluations up to the last one kept.
        executed_calls: Evaluations made.
        seconds: Wall time.
        next_id: Where to resume.
        runs: How the run stopped, or the runs that it was joined from, in the order of the samples; empty if that is
            not known.
        rule: The rule that judged all of them, with which to resume; None if there was none, or more than one.

    Example:
        >>> weight = np.log([1.0, 3.0])
        >>> kept = Samples(np.zeros((2, 3)), np.array([0, 5]), np.zeros(2), weight, proposed=8, executed=8)
        >>> len(kept), kept.rate, round(kept.ess, 3), float(kept.mean(lambda x: x[:, 0] + 1.0))
        (2, 0.25, 1.6, 1.0)
    """

    x: Batch
    ids: Floats
    log_ratio: Floats
    log_weight: Floats
    proposed: int
    executed: int
    calls: Calls = field(default_factory=Calls)
    executed_calls: Calls = field(default_factory=Calls)
    seconds: float = 0.0
    next_id: int = 0
    runs: tuple[Run, ...] = ()
    rule: Any = None

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        shapes = [tuple(leaf.shape) for leaf in leaves(self.x)]
        shape = shapes[0] if len(shapes) == 1 else shapes
        return f"Samples({len(self)} of {self.proposed} proposals, x of shape {shape}, next_id={self.next_id})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how much was kept, what it cost, and what the weights are worth."""
        scored = self.log_ratio[np.isfinite(self.log_ratio)]
        facts = {
            "kept": f"{len(self):,} of {self.proposed:,} proposals, 1 in {self.proposed / max(len(self), 1):.4g}",
            "x": ", ".join(str(tuple(leaf.shape)) for leaf in leaves(self.x)),
            "log r": f"{scored.min():.3g} to {scored.max():.3g}" if scored.size else "unknown",
            "effective sample size": f"{self.ess:.4g}, with the weights that are left",
            "calls": f"{self.calls.generator:,} of the generator, {self.calls.critic:,} of the critic",
            "seconds": f"{self.seconds:.3g}",
            "next id": self.next_id,
        }
        return html_table(["Samples", ""], facts.items())

    @property
    def rate(self) -> float:
        """Share of the proposals that was kept."""
        return len(self) / self.proposed if self.proposed else float("nan")

    @property
    def ess(self) -> float:
        """Effective sample size (sum w)^2 / sum w^2: as many samples without weights would be worth as much."""
        if not len(self):
            return 0.0
        with np.errstate(over="ignore"):  # a difference of two finite numbers may be infinite
            weight = np.exp(self.log_weight - np.max(self.log_weight))
        return float(np.sum(weight) ** 2 / np.sum(weight**2))

    def __add__(self, other: "Samples") -> "Samples":
        """Join two runs on different proposals: samples one after the other, costs added."""
        if not isinstance(other, Samples):
            return NotImplemented
        twice = np.intersect1d(self.ids, other.ids)
        if twice.size:
            remedy = f"start the second run at start={max(self.next_id, other.next_id)}"
            raise InputError(f"{twice.size} ids are in both runs, {twice[0]} first; {remedy}, or with ids of its own")
        if _form(self.x) != _form(other.x):
            raise InputError(f"cannot join samples of another kind: {_form(self.x)} and {_form(other.x)}")
        return join([self, other])

    def mean(
        self, g: Callable[[Batch], Any], estimator: str = "self_normalised", confidence: float | None = None
    ) -> Any:
        """Estimate the target's mean of g from the kept samples and their weights w = r/a.

        Args:
            g: Maps `x` to numbers, one row per sample.
            estimator: "self_normalised", sum(w g)/sum(w): consistent, whatever the scale of r. "unbiased",
                sum(w g)/proposed, for E_Q[r] = 1; of a run that stopped at its n-th kept sample, n >= 2, the last one
                is left out and the sum divided by proposed - 1. Unbiased for a fixed rule; with one fitted on the first
                proposals the bias is of order 1/n. "plain", the average of g, which ignores the weights.
            confidence: Return an `Estimate` whose interval has the mean with this probability, for many samples.

        Example:
            >>> from obrs import normals, sample
            >>> kept = sample(lambda ids: normals(ids, 1, seed=1)[:, 0], lambda x: x - 0.5, 1000, budget=2)
            >>> print(kept.mean(lambda x: x, confidence=0.95))  # of the target, N(1, 1)
            1.064 (0.9513 to 1.176)

        References:
            | Monte Carlo Theory, Methods and Examples (Owen, 2013), Ch. 9
        """
        if not len(self):
            raise InputError("there is nothing to average: no sample was kept")
        if not callable(g):
            raise InputTypeError(f"g must be a function of the samples, such as lambda x: x, got {type(g).__name__}")
        result = g(self.x)
        values: Any = host_view(result) if is_array_api_obj(result) else np.asarray(result)
        if not np.ndim(values) or len(values) != len(self):
            got = len(values) if np.ndim(values) else "one number"
            raise InputError(f"g must return one row per sample, {len(self)}, got {got}")
        if values.dtype.kind in "cOSUMm":
            raise InputTypeError(f"g must return real numbers, got dtype {values.dtype}")
        if confidence is not None and len(np.unique(self.ids)) < len(self):
            raise InputError("samples that occur twice are not independent: their average has no interval")
        values = values.astype(np.float64)
        return average(values, self.log_weight, self.log_ratio, self.runs, estimator, confidence)

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Write the samples to a .npz file, whole or not at all.

        The array library, the keys of a dict and the rule survive, unless the rule is one of your own.
        """
        if Path(path).suffix.lower() != ".npz":
            raise InputError(f"Samples.save writes .npz files, got {os.fspath(path)!r}; name it {Path(path).stem}.npz")
        parts, facts = pack(self.x)
        facts |= {key: getattr(self, key) for key in _FACTS}
        facts |= {"calls": asdict(self.calls), "executed_calls": asdict(self.executed_calls)}
        facts["runs"] = [asdict(run) for run in self.runs]
        facts["rule"] = to_json(self.rule) if type(self.rule) in RULES.values() else None
        arrays = {f"x{i}": value for i, value in enumerate(parts)}
        arrays |= {"ids": self.ids, "log_ratio": self.log_ratio, "log_weight": self.log_weight}
        with replacing(path) as file:
            np.savez(file, facts=np.array(json.dumps(facts)), **arrays)

    @classmethod
    def load(cls, path: "str | os.PathLike[str]", *, to: Any = None) -> "Samples":
        """Read what `save` wrote.

        Args:
            path: The file.
            to: Where the samples go: "numpy", or a device of torch; None for the library they came from, on the CPU.
        """
        arrays = _read(path)
        try:
            facts = json.loads(str(arrays["facts"]))
            parts = [arrays[name] for name in sorted(filter(_is_part, arrays), key=lambda name: int(name[1:]))]
            x = unpack(parts, facts, plain=to == "numpy")
            rest: dict[str, Any] = {key: facts[key] for key in _FACTS}
            rest |= {key: Calls(**facts[key]) for key in ("calls", "executed_calls")}
            rest["runs"] = tuple(Run(**run) for run in facts.get("runs", ()))  # earlier versions did not say
            rest["rule"] = from_json(facts["rule"]) if facts.get("rule") else None
        except ObrsError:  # a library that is missing, or a rule that says what is wrong with it
            raise
        except (ValueError, LookupError, TypeError, AttributeError, SyntaxError, RecursionError) as error:
            raise _stranger(path) from error
        return cls(move(x, to), arrays["ids"], arrays["log_ratio"], arrays["log_weight"], **rest)


_FACTS = ("proposed", "executed", "seconds", "next_id")


def _read(path: "str | os.PathLike[str]") -> dict[str, Floats]:
    """Return the arrays in a file that `Samples.save` wrote, or raise; the file is closed in either case."""
    with open(path, "rb") as file:
        try:
            with np.load(file, allow_pickle=False) as found:
                arrays = {name: found[name] for name in found}
        except MemoryError:
            raise
        except Exception as error:  # of zipfile, zlib, struct, pickle or the header: each has its own
            if isinstance(error, OSError) and error.errno != EINVAL:  # which is a zip that points before its beginning
                raise
            raise _stranger(path) from error
    if not {"facts", "ids", "log_ratio", "log_weight"} <= arrays.keys():
        raise _stranger(path)
    return arrays


def _stranger(path: "str | os.PathLike[str]") -> InputError:
    return InputError(f"{path} was not written by Samples.save")


def _is_part(name: str) -> bool:
    return name.startswith("x") and name[1:].isdigit()


def _form(x: Batch) -> str:
    """Return what must agree for samples to be joined, as text."""
    keys = list(x) if isinstance(x, dict) else range(len(x)) if isinstance(x, tuple) else [""]
    pairs = zip(keys, leaves(x), strict=True)
    each = [f"{key} {type(leaf).__module__.split('.')[0]} {tuple(leaf.shape[1:])}".strip() for key, leaf in pairs]
    return f"{type(x).__name__} of {', '.join(each)}" if isinstance(x, dict | tuple) else each[0]


def unjudged(x: Batch, ids: Floats, *, calls: Calls, seconds: float) -> Samples:
    """Return the samples of a method that neither scores nor rejects: all proposals are kept, none has a weight."""
    return Samples(
        x=x,
        ids=ids,
        log_ratio=np.full(len(ids), np.nan),
        log_weight=np.zeros(len(ids)),
        proposed=len(ids),
        executed=len(ids),
        calls=calls,
        executed_calls=calls,
        seconds=seconds,
        next_id=int(ids[-1]) + 1,
    )


def join(parts: Sequence[Samples]) -> Samples:
    """Put runs one after the other; costs add up."""
    filled = [part for part in parts if len(part)] or list(parts[:1])
    return Samples(
        x=concatenate([part.x for part in filled]),
        ids=np.concatenate([part.ids for part in filled]),
        log_ratio=np.concatenate([part.log_ratio for part in filled]),
        log_weight=np.concatenate([part.log_weight for part in filled]),
        proposed=sum(part.proposed for part in parts),
        executed=sum(part.executed for part in parts),
        calls=sum((part.calls for part in parts), Calls()),
        executed_calls=sum((part.executed_calls for part in parts), Calls()),
        seconds=sum(part.seconds for part in parts),
        next_id=max(part.next_id for part in parts),
        runs=merged([run for part in parts for run in part.runs]) if all(part.runs for part in parts) else (),
        rule=_one_of([part.rule for part in parts]),
    )


def _one_of(rules: Sequence[Any]) -> Any:
    """Return the rule if it is the same everywhere."""
    return rules[0] if all(rule is rules[0] or _alike(rule, rules[0]) for rule in rules) else None


def _rate_of(rule: Any) -> float:
    """Return the rate that a rule was fitted for, 1 if it does not say."""
    rate: Any = getattr(rule, "rate", None)
    if is_number(rate) and 0 < float(rate) <= 1:
        return float(rate)
    budget: Any = getattr(rule, "budget", None)
    return 1 / float(budget) if is_number(budget) and float(budget) >= 1 else 1.0


def _alike(one: Any, other: Any) -> bool:
    return type(one) is type(other) and type(one) in RULES.values() and one == other


def stopped(samples: Samples, how: str) -> Samples:
    """Return the samples of one run, with how it stopped."""
    rate = _rate_of(samples.rule)
    return replace(samples, runs=(Run(how, len(samples), samples.proposed, rate),))


def first(samples: Samples, n: int) -> Samples:
    """Return the first n samples of one batch of contiguous ids, with the cost up to the n-th.

    A batch with fewer samples is returned as it is. The cost of what was rejected after the n-th is left out.
    """
    if len(samples) < n:
        return samples
    start = samples.next_id - samples.proposed
    used = int(samples.ids[n - 1]) - start + 1 if n else 0
    part = replace(
        samples,
        x=take(samples.x, np.arange(n)),
        ids=samples.ids[:n],
        log_ratio=samples.log_ratio[:n],
        log_weight=samples.log_weight[:n],
        proposed=used,
        calls=Calls(generator=used, critic=used),
        next_id=start + used,
    )
    return stopped(part, "kept") if part.runs else part
