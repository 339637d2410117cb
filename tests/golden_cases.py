"""What is pinned by `golden.json`: small deterministic runs, each a function that returns fields by name.

A field is a pair: its kind, which sets how near to the record it must be (`NEAR`), and its value. The cases draw
their inputs with NumPy.
"""

import csv
import hashlib
import tempfile
from functools import partial
from math import inf, log
from operator import itemgetter
from pathlib import Path

import numpy as np
import planted

import obrs
from obrs import rivals
from obrs.budget import solve_cut
from obrs.divergences import DIVERGENCES
from obrs.selection import DESIGNS, inclusion_probability

CASES = {}
NEEDS = {}  # the library that a case cannot do without
NEAR = {
    "exact": 0.0,
    "ids": 0.0,
    "value": 1e-12,
    "group": 1e-10,
    "root": 1e-8,  # of a search that stops at a tolerance
    "single": 3e-7,  # in float32
    "moved": 1e-6,  # by gradients
    "nats": 1e-2,
}
"""Largest error by kind, relative to the recorded number or to 0.1, whichever is larger; that of nats is absolute."""


def case(name, *options, needs=None):
    """Enter a function into `CASES`, with these arguments."""

    def enter(function):
        assert name not in CASES
        CASES[name] = partial(function, *options)
        NEEDS[name] = needs
        return function

    return enter


def each(name, options, needs=None):
    """Enter a function once for each of the options, whose keys complete the name."""

    def enter(function):
        for key, option in options.items():
            case(f"{name}, {key}", *(option if isinstance(option, tuple) else (option,)), needs=needs)(function)
        return function

    return enter


def ids(values):
    """Return ids sorted; of more than 200 the count and a hash."""
    numbers = sorted(int(i) for i in values)
    if len(numbers) > 200:
        text = ",".join(map(str, numbers))
        numbers = {"count": len(numbers), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    return "ids", numbers


def numbers(kind, values):
    if hasattr(values, "detach"):
        values = values.detach().numpy()
    return kind, np.asarray(values, np.float64).tolist()


value, group, root = (partial(numbers, kind) for kind in ("value", "group", "root"))
moved = partial(numbers, "moved")


def rng(seed=0):
    return np.random.default_rng(seed)


def scores(n, sd=1.0, seed=0):
    """Log-ratios, a twentieth of them -inf."""
    x = rng(seed).normal(-(sd**2) / 2, sd, n)
    x[rng(seed + 1).random(n) < 0.05] = -inf
    return x


# --- Random numbers -------------------------------------------------------------------------------------------------

IDS = [0, 1, 2, 3, 1000, 10**12, 2**62, 2**63 - 1, -1, -(2**63)]


SEEDS = {"seed 0": 0, "seed 7": 7, "largest seed": 2**64 - 1}


@each("accept", SEEDS)
def accept(seed):
    log_a, at = np.minimum(scores(3000), 0.0), np.arange(10**9, 10**9 + 3000)
    far = obrs.accept(np.full(len(IDS), log(0.5)), IDS, seed=seed)
    return {"ids": ids(at[obrs.accept(log_a, at, seed=seed)]), "far": ids(np.flatnonzero(far))}


@each("uniforms", SEEDS)
def uniform(seed):
    one, three = obrs.uniforms(IDS, seed=seed), obrs.uniforms(IDS, 3, seed=seed)
    return {
        "one": value(one),
        "three": value(three),
        "float32": value(obrs.uniforms(IDS, 2, seed=seed, dtype="float32")),
    }


@each("normals", SEEDS)
def normal(seed):
    one, five, single = (
        obrs.normals(IDS, dim, seed=seed, dtype=t) for dim, t in ((1, None), (5, None), (2, "float32"))
    )
    return {"one": value(one), "five": value(five), "float32": numbers("single", single)}


# --- solve_log_c ----------------------------------------------------------------------------------------------------


def _hard():
    """Inputs `(log_ratio, budget, options)` by name, 40 and the groups below."""
    two_levels = np.repeat([-1000.0, 0.0], [4, 2])
    four = np.log([4.0, 1.0, 0.5, 0.5])  # M = 8/3
    normal, weights = rng(3).normal(size=500), 10.0 ** rng(4).uniform(-12, 0, 500)
    levels = rng(5).integers(-3, 4, 300).astype(float)
    half = np.where(np.arange(200) % 2, -inf, rng(6).normal(size=200))
    wide = np.linspace(-5000.0, 5000.0, 401)
    hard = {f"Cauchy × 100, seed {s}": (100 * rng(s).standard_cauchy(1000), 64, {}) for s in range(3)}
    hard |= {f"two levels 1000 apart, K = {k}": (two_levels, k, {}) for k in (1.01, 1.5, 2.9, 3.0, 4.0)}
    at_a_tie = 1 / np.mean(np.minimum(np.exp(levels - 1), 1))  # log c is -1, and a seventh of the values are 1
    hard |= {"all tied": (np.full(7, 2.5), 3, {}), "tied at the threshold": (levels, at_a_tie, {})}
    hard |= {f"levels, K = {k}": (levels, k, {}) for k in (1.2, 3.0)}
    hard |= {f"half with r = 0, K = {k}": (half, k, {}) for k in (2.0, 2.5, 50.0)}
    hard |= {f"a span of 1e4, K = {k}": (wide, k, {}) for k in (1.5, 4.0, 100.0)}
    hard["a span of 1e4 around 1e5"] = (1e5 + 2000 * normal, 3, {})
    hard |= {f"weights over 12 decades, K = {k}": (normal, k, {"weights": weights}) for k in (1.2, 3.0, 20.0)}
    hard["weights over 12 decades, wide ratios"] = (50 * normal, 5, {"weights": weights})
    hard["weights that fall with r"] = (20 * normal, 2.6, {"weights": np.exp(-10 * normal)})
    hard["weights of 0"] = (normal, 2, {"weights": np.arange(500) % 3})
    hard |= {f"float32, K = {k}": ((5 * normal).astype(np.float32), k, {}) for k in (1.1, 2.6)}
    hard |= {f"one value, K = {k}": (np.array([-3.2]), k, {}) for k in (1, 1.5)}
    hard["one value far up"] = (np.array([700.0]), 5, {})
    hard |= {f"K = 1 + {more}": (normal, 1 + more, {}) for more in (0, 1e-12, 1e-4)}
    hard |= {f"K = M + {more}": (four, 8 / 3 + more, {}) for more in (-1e-9, 1e-9, 5.0)}
    hard |= {"K > M, heavy": (8 * normal, 1e6, {}), "log-sd of 8": (8 * normal, 64, {})}
    hard["300 000 values"] = (3 * rng(7).normal(size=300_000), 2.6, {})
    hard["rows"] = (np.linspace(0.1, 30, 6)[:, None] * rng(8).normal(size=(6, 90)), 3, {"axis": 1})
    return hard


@each("solve_log_c", _hard())
def solve(log_ratio, budget, options):
    kind = "single" if log_ratio.dtype == np.float32 else "value"
    return {"log c": numbers(kind, obrs.solve_log_c(log_ratio, budget, **options))}


@each("solve_log_c, 1000 groups", {"one budget": False, "a budget for each": True})
def solve_groups(by_group):
    """From 1 to 400 values, levels from -300 to 300, spreads from 0.01 to 100."""
    draw = rng(9)
    size = np.floor(400.0 ** draw.random(1000)).astype(int)
    level, spread = draw.uniform(-300, 300, 1000), 10.0 ** draw.uniform(-2, 2, 1000)
    code = draw.permutation(np.repeat(np.arange(1000), size))
    log_ratio = level[code] + spread[code] * draw.normal(size=len(code))
    budget = 1 + 20 * draw.random(1000) if by_group else 2.6
    return {"log c": group(obrs.solve_log_c(log_ratio, budget, groups=code))}


# --- select, unweight, tilt -----------------------------------------------------------------------------------------

POOL = scores(600, 1.5, seed=20)
LABELS = np.array(["ant", "bee", "cat", "dog"])[rng(21).choice(4, 600, p=[0.5, 0.3, 0.15, 0.05])]
SIGN = np.where(rng(22).random(600) < 0.3, -1, 1)
COST = rng(23).integers(1, 40, 600)
REWARD = rng(24).normal(size=96)
SHARES = {"ant": 1, "bee": 1, "cat": 2, "dog": 0}
OF_LABEL = {"groups": LABELS}
SELECTED = {
    "one": (1, {}),
    "few": (30, {}),
    "many": (450, {"seed": 3}),
    "of each group": (9, OF_LABEL),
    "by label": ({"ant": 50, "bee": 0, "cat": 20, "dog": 5}, OF_LABEL),
    "shares": (120, OF_LABEL | {"shares": SHARES}),
    "sign": (150, {"sign": SIGN, "seed": 5}),
    "sign, groups": (20, OF_LABEL | {"sign": SIGN}),
}
BY_PRIORITY = {
    "ids": (100, {"ids": 10**6 + 3 * np.arange(600)}),
    "cost": (2000, {"cost": COST}),
    "cost, groups": (300, OF_LABEL | {"cost": COST, "seed": 2}),
    "cost, shares": (1500, OF_LABEL | {"cost": COST, "shares": SHARES}),
    "cost, sign": (2000, {"cost": COST, "sign": SIGN}),
}


@each("select, priority", {key: ("priority", *how) for key, how in BY_PRIORITY.items()})
@each("select", {f"{design}, {key}": (design, *how) for design in DESIGNS for key, how in SELECTED.items()})
def select(design, n, options):
    return {"ids": ids(obrs.select(POOL, n, design=design, **options))}


INCLUDED = {"few": ("value", 30, {}), "many": ("value", 450, {}), "cost": ("value", 2000, {"cost": COST})}
INCLUDED |= {"of each group": ("group", 9, OF_LABEL), "shares": ("group", 120, OF_LABEL | {"shares": SHARES})}


@each("inclusion_probability", INCLUDED)
def include(kind, n, options):
    pi = np.asarray(inclusion_probability(POOL, n, **options))
    return {"every fifth": numbers(kind, pi[::5]), "sure": ids(np.flatnonzero(pi == 1))}


@each("unweight", {f"{design}, {n}": (design, n) for design in ("pivotal", "systematic") for n in (40, 200)})
def unweight(design, n):
    kept = obrs.unweight(SIGN * np.exp(POOL), n, seed=1, design=design)
    columns = ("weight", "probability", "max_weight", "truncated")
    return {"ids": ids(kept.index)} | {name: value(getattr(kept, name)) for name in columns}


PROMPTS = {"groups": np.arange(96) % 12, "keep": 2}
TILTED = {"by beta": ("group", PROMPTS | {"beta": 0.4}), "by KL": ("root", PROMPTS | {"kl": 0.5, "seed": 4})}


@each("tilt", TILTED | {"one prompt": ("root", {"keep": 8, "kl": 0.3})})
def tilt(kind, options):
    kept = obrs.tilt(REWARD, **options)
    metrics = {name: numbers(kind, x) for name, x in sorted(kept.metrics.items())}
    return {"ids": ids(kept.index), "weight": numbers(kind, kept.weight)} | metrics


@case("tilt, by more KL than there is")
def tilt_to_the_end():
    """The best three of each prompt; the beta at which a search ends is not pinned."""
    kept = obrs.tilt(REWARD, keep=3, kl=9.0, groups=np.arange(96) % 12)
    return {"ids": ids(kept.index)} | {name: root(kept.metrics[name]) for name in ("kl", "reward")}


# --- sample ---------------------------------------------------------------------------------------------------------


def propose(ids):
    """Pairs of a number and a label, every twentieth with r = 0."""
    ids = np.asarray(ids)
    return {"x": obrs.normals(ids, 1, seed=11)[:, 0], "y": np.array(["a", "b", "c"])[ids * ids % 7 % 3], "id": ids}


def log_ratio(batch):
    return np.where(batch["id"] % 20 == 3, -inf, 1.5 * batch["x"] - 0.5 * (batch["y"] == "b"))


Y = {"groups": itemgetter("y")}
BY_LABEL = {"a": 1.5, "b": 3.0, "c": 8.0}
ONLY = {"a": 1, "b": 2, "c": 1}
SAMPLED = {
    "pool": {"n": 60, "pool": 200},
    "pool by n and budget": {"n": 300, "budget": 2.6, "seed": 5},
    "pool from id 1000": {"n": 60, "pool": 200, "start": 1000},
    "pool, groups": {"n": 60, "pool": 1500, **Y},
    "pool, shares": {"n": 60, "pool": 1500, **Y, "shares": ONLY},
    "stream": {"n": 2500, "budget": 2.6},
    "stream, pilot": {"n": 90, "budget": 4, "pilot": 500, "seed": 3},
    "stream, K > M": {"n": 30, "budget": 1e4, "pilot": 300},
    "stream, groups": {"n": 2500, "budget": 2.6, **Y},
    "stream, groups, budgets": {"n": 200, "budget": BY_LABEL, **Y, "pilot": 1500},
    "stream, shares": {"n": 200, "budget": 4, **Y, "shares": ONLY, "pilot": 1500},
    "proposed": {"proposed": 1500, "budget": 3},
    "proposed, shares": {"proposed": 1500, "budget": 4, **Y, "shares": ONLY},
}


def _summary(samples, near):
    order = np.argsort(samples.ids, kind="stable")[:60]
    left = {"log weight": near(np.asarray(samples.log_weight)[order]), "next id": ("exact", int(samples.next_id))}
    constants = {} if samples.rule is None else {"log c": near(samples.rule.log_c)}
    return {"ids": ids(samples.ids), **left, **constants}


@each("sample", SAMPLED)
def sample(options):
    return _summary(obrs.sample(propose, log_ratio, **options), group if "groups" in options else value)


@each("sample, resumed", {key: SAMPLED[key] for key in ("stream, pilot", "stream, shares", "proposed")})
def resume(options):
    """A second run goes on with the rule of the first, at its next id."""
    first, seed = obrs.sample(propose, log_ratio, **options), options.get("seed", 0)
    again = obrs.sample(propose, log_ratio, 70, rule=first.rule, start=first.next_id, seed=seed)
    return _summary(again, group if "groups" in options else value)


@case("sample, stream of a given rule")
def stream():
    batches = obrs.stream(propose, log_ratio, obrs.Budgeted(-1.25), batch_size=64, seed=9)
    return _summary(obrs.collect(batches, 150), value)


# --- files.select ---------------------------------------------------------------------------------------------------

FOLDER = {
    "n": (300, {}),
    "n, another seed": (300, {"seed": 8}),
    "nearly all": (2700, {}),
    "budget": (None, {"budget": 4.5}),
    "of each group": (40, {"group": "label"}),
    "budget, groups": (None, {"budget": 3, "group": "label"}),
    "shares": (200, {"group": "label", "shares": SHARES}),
    "equal shares": (100, {"group": "label", "shares": "equal"}),
    "cost": (4000, {"cost": "cost"}),
    "ids that are text": (300, {"id": "name"}),
    "ids by file and row": (300, {"id": None}),
    "logits": (300, {"column": "logit", "kind": "logit"}),
    "probabilities": (300, {"column": "probability", "kind": "probability"}),
}


@each("files.select", {key: ("csv", *how) for key, how in FOLDER.items()}, needs="pyarrow")
@case("files.select, parquet", "parquet", 300, {}, needs="pyarrow")
@case("files.select, parquet, budget", "parquet", None, {"budget": 4.5}, needs="pyarrow")
def select_files(ending, n, options):
    """3000 rows in three files."""
    with tempfile.TemporaryDirectory() as folder:
        (where := Path(folder, "in")).mkdir()
        for number, rows in enumerate(np.array_split(np.arange(3000), [700, 900])):
            _write(where / f"part-{number}.{ending}", rows)
        obrs.files.select(where, n, out=(out := Path(folder, "out")), **{"id": "row"} | options)
        return {"ids": ids(row for path in sorted(out.iterdir()) for row in _read(path))}


def _read(path):
    """The column `row` of a file that was written."""
    if path.suffix == ".csv":
        with path.open(newline="") as opened:
            return [int(row["row"]) for row in csv.DictReader(opened)]
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path)["row"].to_pylist()
    return []


def _write(path, rows):
    log_ratio = np.concatenate([POOL, scores(2400, 1.5, seed=30)])[rows]
    columns = {
        "row": 1000 + 5 * rows,
        "log_ratio": log_ratio,
        "logit": np.maximum(log_ratio, -30.0),
        "probability": 1 / (1 + np.exp(-np.maximum(log_ratio, -30.0))),
        "label": np.resize(LABELS, 3000)[rows],
        "cost": np.resize(COST, 3000)[rows],
        "name": np.array([f"row {i}" for i in rows]),
    }
    if path.suffix == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table(columns), path)
        return
    with path.open("w", newline="") as opened:
        csv.writer(opened).writerows([columns, *zip(*(x.tolist() for x in columns.values()), strict=True)])


# --- Profile --------------------------------------------------------------------------------------------------------

WEIGHTED = 10.0 ** rng(41).uniform(-6, 0, 500)
PROFILES = {
    "normal": (rng(40).normal(-0.5, 1, 2000), None),
    "heavy": (3 * rng(42).standard_t(4, 1000), None),
    "weighted": (rng(43).normal(-0.5, 1, 500), WEIGHTED),
    "with r = 0": (POOL, None),
    "ties": (np.log(np.repeat([0.4, 0.8, 1.2, 1.6], 10)), None),
}
BUDGETS = (1.0, 1.2, 2.0, 4.0, 16.0, 1000.0)
SLOPES = [0.0, 1e-3, 0.1, 0.5, 1.0, 2.0, 10.0, 1e3, inf]


@each("Profile", PROFILES)
def profile(log_ratio, weights):
    """At slopes, at budgets, and along a curve of 9 points at K = 2."""
    p = obrs.Profile(log_ratio, weights)
    budgets = [k for k in BUDGETS if k == 1 or k > 1 / p.possible]
    curve, frontier = p.curve(2.0, points=9), p.frontier(2.0, points=9)
    fields = {
        "alpha": p.alpha(SLOPES),
        "beta": p.beta(SLOPES),
        "M": p.max_budget,
        "log c": [p.log_c(k) for k in budgets],
        "rate": [p.rate(k) for k in budgets],
        "ess": [p.ess(k) for k in budgets],
        "precision": curve.precision,
        "recall": curve.recall,
        "from model": frontier.from_model,
        "from target": frontier.from_target,
        **{f"{name} left": [p.divergence(name, k) for k in budgets] for name in DIVERGENCES},
        **{f"{name} bound": [p.bound(name, k) for k in budgets] for name in ("kl", "tv", "js")},
    }
    return {name: value(x) for name, x in fields.items()}


@each("Profile, plan", PROFILES)
def plan(log_ratio, weights):
    """The intervals, which a change of their method may move, apart from the rest."""
    rows = obrs.Profile(log_ratio, weights).plan([1.2, 2.0, 4.0], n=2500)
    columns = ("rate", "kl", "rkl", "tv", "js", "chi2", "ess", "precision")
    fields = {f"{c}{end}": root([row[c + end] for row in rows]) for c in columns for end in ("", "_low", "_high")}
    return fields | {"proposals": value([row["proposals"] for row in rows])}


@each("Profile, budget for", {key: PROFILES[key] for key in ("normal", "weighted", "ties")})
def goals(log_ratio, weights):
    p = obrs.Profile(log_ratio, weights)
    targets = {"kl": 0.02, "tv": 0.1, "chi2": 0.05, "ess": 0.9}
    return {name: root(p.budget_for(**{name: goal})) for name, goal in targets.items()}


# --- Rivals ---------------------------------------------------------------------------------------------------------


RIVALS = {
    "exact": (rivals.ExactRejection, {"burn_in": 300}),
    "DRS": (rivals.DiscriminatorRejection, {"budget": 3.0, "burn_in": 400}),
    "top-k": (rivals.TopK, {"budget": 4.0}),
    "SIR": (rivals.SIR, {"budget": 6.0}),
    "SIR without replacement": (rivals.SIR, {"budget": 6.0, "replace": False}),
    "MH-GAN": (rivals.MHGAN, {"steps": 20}),
    "MH-GAN from proposals": (rivals.MHGAN, {"steps": 12, "start": "fake"}),
    "MH-GAN without the unmoved": (rivals.MHGAN, {"steps": 5, "discard_unmoved": True}),
}


@each("rival", RIVALS)
def rival(sampler, constants):
    """From N(0, 1) to N(1, 1), in NumPy."""
    model = rivals.Model(lambda z: z[:, 0], lambda x: x - 0.5, 1, real=rng(50).normal(1, 1, 300))
    samples = sampler(**constants)(model, 80, seed=6)
    return {"ids": ids(samples.ids), "log weight": value(np.sort(samples.log_weight)[::4])}


def _plane():
    """A bent generator and a bent ratio, in torch at double precision."""
    import torch

    def generate(z):
        return torch.stack([z[:, 0] + 0.3 * torch.sin(z[:, 1]), 0.8 * z[:, 1]], 1)

    def log_ratio(x):
        return 0.7 * x[:, 0] - 0.4 * (x[:, 1] - 0.5) ** 2

    real = torch.as_tensor(rng(51).normal(0.5, 1, (400, 2)))
    return rivals.Model(generate, log_ratio, 2, real=real, like=torch.empty(0, dtype=torch.float64))


IN_LATENTS = {"space": "latent", "k_eff": 1.3, "project": "tangent", "clip": (-3.0, 3.0)}
MOVED = {
    "DOT": (rivals.DOT, {"steps": 10, "pairs": 20, "repeats": 3}),
    "DOT in latent space": (rivals.DOT, {"steps": 10, **IN_LATENTS}),
    "DOT by SGD": (rivals.DOT, {"steps": 10, "k_eff": 1.3, "optimiser": "sgd", "lr": 0.05}),
    "DGflow": (rivals.DGflow, {"steps": 8}),
    "DGflow, logd": (rivals.DGflow, {"steps": 8, "f": "logd", "noise": 0.0}),
    "DGflow, js": (rivals.DGflow, {"steps": 8, "f": "js", "step": 0.3}),
    "DDLS": (rivals.DDLS, {"steps": 12, "step": 0.05}),
    "DDLS with decay": (rivals.DDLS, {"steps": 12, "step": 0.05, "noise_std": 0.1, "decay": 0.5, "decay_every": 5}),
}


@each("rival", MOVED, needs="torch")
def refine(sampler, constants):
    return {"x": moved(sampler(**constants)(_plane(), 12, seed=6).x)}


@case("rival, LatentRS, given weights", needs="torch")
def given_latent_weights():
    import torch

    weights = rivals.LatentWeights(lambda z: torch.exp(-((z[:, 0] - 0.5) ** 2) - 0.1 * z[:, 1] ** 2), largest=1.0)
    samples = rivals.LatentRS(weights)(_plane(), 60, seed=6)
    return {"ids": ids(samples.ids), "x": moved(samples.x), "next id": ("exact", int(samples.next_id))}


@each("rival, LatentRS", {"fitted to the ratio": True, "fitted against a critic": False}, needs="torch")
def fit_latent_weights(to_ratio):
    how = {"steps": 60, "pool": 1024, "lr": 3e-2} if to_ratio else {"steps": 25, "lr_w": 2e-2, "lr_d": 2e-2}
    fit = rivals.fit_latent_weights_to_ratio if to_ratio else rivals.fit_latent_weights
    weights = fit(_plane(), batch=32, width=8, layers=1, seed=2, progress=False, **how)
    samples = rivals.LatentRS(weights)(_plane(), 30, seed=6)
    sizes = {"largest": moved(weights.largest), "mean": moved(weights.mean)}
    return {"ids": ids(samples.ids), "x": moved(samples.x)} | sizes


def _set_weights(network, scale=0.6):
    """Weights that depend on shapes and their order alone, at double precision."""
    import torch

    with torch.no_grad():
        for number, weight in enumerate(network.double().parameters()):
            wave = torch.sin(1.7 * torch.arange(weight.numel(), dtype=torch.float64) + number)
            weight.copy_(scale * wave.reshape(weight.shape) / max(weight.shape[-1], 1) ** 0.5)
    return network


LARS = {"resampled": ("ResampledBase", {"T": 6, "momentum": 0.2}), "budgeted": ("BudgetedBase", {"budget": 2.0})}


@each("rival, LARS", LARS, needs="torch")
def lars(kind, options):
    """Ten steps of maximum likelihood on points of a ring, then draws."""
    import torch

    from obrs.rivals import lars

    base = _set_weights(getattr(lars, kind)(2, width=8, layers=1, draws=64, **options), 2.0)
    angle = torch.linspace(0, 6, 40, dtype=torch.float64)
    ring = torch.stack([angle.cos(), angle.sin()], 1)
    optimiser = torch.optim.SGD(base.parameters(), lr=0.05)
    base.estimate_z(64)  # the first estimate was of other weights
    for _ in range(10):
        optimiser.zero_grad()
        (-base.log_prob(ring).mean()).backward()
        optimiser.step()
    rate, (x, proposed) = base.eval().estimate_z(500), base.draw(30, seed=4)
    density = moved(base.log_prob(ring[::4]))
    return {"x": moved(x), "proposed": ("exact", proposed), "Z": moved(rate), "log density": density}


# --- The doctor -----------------------------------------------------------------------------------------------------


REPAIRS = {
    "": "none",
    "obrs.ratios.calibration": "calibrate",
    "obrs.refit(real, propose, obrs.ratios.refit.FineTune": "fine-tune",
    "obrs.refit(real, propose, obrs.ratios.refit.Network": "refit",
    "obrs.diagnose(-": "turn round",
}


@each("diagnose", {name: name for name in planted.FAULTS}, needs="sklearn")
def diagnose(name):
    """KL removed on fresh samples at K = 2.6, by the scores after a calibration, or else as they are."""
    fault = planted.FAULTS[name]
    result = obrs.diagnose(*fault(2000, rng(1))[:2], 2.6)
    kind = next(REPAIRS[start] for start in sorted(REPAIRS, reverse=True) if result.repair.startswith(start))
    verdict = "fit" if result.verdict == "calibrated for what it sees" else result.verdict  # what 0.2 said of both
    repair = result.calibration or (lambda log_ratio: log_ratio)
    real, fake = fault(20_000, rng(2))[:2]
    recovered = planted.kl_removed(repair(fake), 2.6, repair(real))
    return {"verdict": ("exact", verdict), "repair": ("exact", kind), "KL": ("nats", recovered)}


# --- Training -------------------------------------------------------------------------------------------------------

OF_RATIO = [name for name in DIVERGENCES if name != "tv"]  # the critic of tv says no ratio
REAL, FAKE = rng(60).normal(0.6, 1.2, 12), np.append(rng(61).normal(-0.6, 1.2, 14), [-26.0, 24.0])


def _differentiate(loss, *outputs):
    """The value of a loss of tensors, and its gradient in each of them."""
    import torch

    leaves = [torch.tensor(x, requires_grad=True) for x in outputs]
    result = loss(*leaves)
    result.backward()
    return {"value": value(result)} | {f"gradient {i}": value(x.grad) for i, x in enumerate(leaves)}


@each("critic loss", {name: name for name in (*OF_RATIO, "hinge", "wgan")}, needs="torch")
def critic_gradient(name):
    import torch

    from obrs.training import critic_loss

    loss, log_weight = critic_loss(name), torch.as_tensor(rng(62).normal(0, 1, 16))
    weighted = _differentiate(lambda real, fake: loss(real, fake, log_weight), REAL, FAKE[:16])
    return _differentiate(loss, REAL, FAKE) | {f"weighted {key}": x for key, x in weighted.items()}


OF_DIVERGENCE = [(mode, name) for mode in ("dual", "non_saturating", "paper", "exact") for name in OF_RATIO]
LOSSES = [*OF_DIVERGENCE, ("paper_raw", "gan"), ("hinge", "gan"), ("wgan", "gan")]


def _generator_loss(mode, name):
    """The loss of the critic's outputs on fakes and, if it rejects, a budget; c has no gradient."""
    from obrs.training import generator_loss

    loss = generator_loss(mode, name)
    return lambda fake, budget: loss(fake, solve_cut(fake.detach(), budget) if loss.rejects else None)


@each("generator loss", {f"{mode}, {name}": (mode, name) for mode, name in LOSSES}, needs="torch")
def generator_gradient(mode, name):
    """With two outputs beyond the clamp at 20, and at K = 50, above M without them."""
    loss, fields = _generator_loss(mode, name), {}
    for what, fake, budget in (("clamped", FAKE, 2.0), ("K = 2", FAKE[:14], 2.0), ("K = 50", FAKE[:14], 50.0)):
        each = _differentiate(partial(loss, budget=budget), fake)
        fields |= {f"{what}, {key}": x for key, x in each.items()}
    return fields


def _players():
    from torch import nn
    from torch.optim import Adam

    generator = _set_weights(nn.Sequential(nn.Linear(2, 10), nn.Tanh(), nn.Linear(10, 2)), 1.5)
    critic = _set_weights(nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 1), nn.Flatten(0)), 3.0)
    return generator, critic, (Adam(generator.parameters(), 5e-3, (0.5, 0.999)), Adam(critic.parameters(), 2e-2))


def _batch(step, turn, part, size=24):
    """Real points and latents of a turn; -1 is the generator's."""
    import torch

    draw = rng([70, step, turn + 1, part])
    return torch.as_tensor(draw.normal([1.0, -0.5], 0.7, (size, 2))), torch.as_tensor(draw.normal(size=(size, 2)))


def _outputs(generator, critic):
    real, latent = _batch(99, 0, 0, size=6)
    return {"generator": moved(generator(latent)), "critic": moved(critic(real))}


@each("20 steps by hand", {loss: loss for loss in ("exact", "paper_raw", "paper", "non_saturating")}, needs="torch")
def train_by_hand(loss):
    """Algorithm 2 at K = 1.3 on given batches, from the losses and the constant."""
    from obrs.training import critic_loss

    generator, critic, (of_generator, of_critic) = _players()
    of_critics, descends = critic_loss("gan"), _generator_loss(loss, "gan")
    for step in range(20):
        real, latent = _batch(step, 0, 0)
        of_critic.zero_grad()
        of_critics(critic(real), critic(generator(latent).detach())).backward()
        of_critic.step()
        of_generator.zero_grad()
        descends(critic(generator(_batch(step, -1, 0)[1])), 1.3).backward()
        of_generator.step()
    return _outputs(generator, critic)


TRAINED = {
    "exact": {"loss": "exact"},
    "paper_raw, two turns": {"loss": "paper_raw", "critic_steps": 2},
    "exact, three parts": {"loss": "exact", "parts": 3},
    "exact, c every 4 steps, R1": {"loss": "exact", "every": 4, "r1": 0.5},
}


@each("20 steps of the trainer", TRAINED, needs="torch")
def train(options):
    import torch

    from obrs.training import critic_loss, critic_step, generator_loss, generator_step

    options = {"critic_steps": 1, "parts": 1, "every": 1, "r1": 0.0} | options
    generator, critic, optimisers = _players()
    cut, parts = None, options["parts"]

    def whole(step, turn):
        return [torch.cat(column) for column in zip(*(_batch(step, turn, part) for part in range(parts)), strict=True)]

    for step in range(20):
        for turn in range(options["critic_steps"]):
            real, z = whole(step, turn)
            with torch.no_grad():
                fake = generator(z)
            critic_step(critic, optimisers[1], real, fake, loss=critic_loss("gan"), r1=options["r1"], parts=parts)
        goal = {"loss": generator_loss(options["loss"], "gan"), "budget": 1.3, "parts": parts}
        cut = cut if step % options["every"] else None
        cut = generator_step(generator, critic, optimisers[0], whole(step, -1)[1], cut=cut, **goal).cut
    return _outputs(generator, critic) | {"log c": moved(float(cut.log_c))}
