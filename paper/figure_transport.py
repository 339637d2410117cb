"""Why transport cost may rise while divergence falls: a WGAN-GP on 25 Gaussians, kept with one constant or by shares.

The paper has no such figure. The generator is `wgan25`; its samples surround their modes, so most are of low quality,
but every mode has about its share of them. What is kept is compared with the target by the exact cost of optimal
transport: n samples against n points of the target, matched one to one. The cost is split by where a pair begins and
ends: at the same mode, or at another.

- "OBRS": n of `budget * n` proposals with one constant, by a refitted ratio.
- "OBRS, exact ratio": the same, by the exact ratio from a fine histogram, so that no error of a ratio is to blame.
- "OBRS within modes": each mode keeps its share of the target, and OBRS chooses among the samples of the mode. The
  numbers by mode are drawn as those of a target sample are, so this row has no advantage from even numbers.
"""

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any

import numpy as np

from obrs._checks import check_budget, check_count
from obrs.errors import InputError

from .record import Record, numbers
from .style import LOOKS, PALETTE, canvas, caption, tidy

__all__ = ["METHODS", "PAPER", "PRESETS", "Config", "figure", "label", "match", "quotas", "run", "table"]

Floats = np.ndarray[Any, Any]

PAPER = {"figure": "none"}
METHODS = {"obrs": "OBRS", "exact": "OBRS, exact ratio", "shares": "OBRS within modes"}
"""Ways to keep n of a pool, and what they are called."""

_LOOKS = {"obrs": LOOKS["obrs"], "exact": LOOKS["obrs_refit"], "shares": LOOKS["drs"]}
_SHORT = {"obrs": "OBRS", "exact": "exact\nratio", "shares": "within\nmodes"}
_COLUMNS = ("cost", "between", "within", "moved", "precision", "kl")
_TARGET, _REAL, _PROPOSED = 10_000, 20_000, 30_000  # added to the seed: points to match, to fit on, proposals


@dataclass(frozen=True)
class Config:
    """What to draw.

    Args:
        n: Samples in a draw, of every method and of the target.
        draws: Draws; errors are from their spread.
        budgets: Proposals per sample that is kept.
        shown: The budget whose shares by mode are drawn.
        real: Points of the target that the ratio is fitted on.
        refit_steps: Steps of its fit.
        exact_samples: Samples in the histogram of the exact ratio.
        seed: Seed of points, ratio and proposals.
    """

    n: int = 1000
    draws: int = 16
    budgets: tuple[float, ...] = (2.6, 5.0, 10.0, 20.0)
    shown: float = 2.6
    real: int = 64_000
    refit_steps: int = 1000
    exact_samples: int = 2_000_000
    seed: int = 0

    def __post_init__(self) -> None:
        for budget in self.budgets:
            check_budget(budget)
        for name in ("n", "draws", "real", "refit_steps", "exact_samples"):
            check_count(getattr(self, name), name)
        if self.shown not in self.budgets:
            raise InputError(f"shown must be one of the budgets, got {self.shown:g}")


_SMOKE = Config(n=150, draws=2, budgets=(2.6,), shown=2.6, real=3000, refit_steps=30, exact_samples=50_000)
PRESETS = {"smoke": _SMOKE, "default": Config()}


def run(config: Config, rows: Record) -> None:
    """Match the target, the model and what each method keeps with points of the target."""
    wanted: dict[str, tuple[str, float]] = {"target": ("target", 1.0), "model": ("model", 1.0)}
    wanted |= {f"{method}, K = {k:g}": (method, k) for k in config.budgets for method in METHODS}
    if all(name in rows for name in wanted):
        return
    ready = _Ready.of(config, rows.progress)
    for name, (method, budget) in rows.todo(wanted):
        drawn = [ready.draw(method, budget, number) for number in range(config.draws)]
        rows.add(name, {"method": method, "budget": budget} | _measured(config, drawn))


@dataclass(frozen=True, eq=False)
class _Ready:
    """The generator, and a ratio for each method."""

    config: Config
    generator: Any
    ratios: dict[str, Any]

    @classmethod
    def of(cls, config: Config, progress: bool | None) -> "_Ready":
        import torch

        from obrs.ratios.refit import Network, refit

        from .gan25 import TARGET, ExactRatio, one_thread
        from .wgan25 import generator

        with one_thread():
            network = generator()
            ready = cls(config, network, {})
            real = torch.tensor(TARGET.sample(config.real, seed=config.seed + _REAL), dtype=torch.float32)
            fitted = refit(
                real,
                lambda ids: ready.propose(ids, config.seed),
                Network(),
                steps=config.refit_steps,
                seed=config.seed,
                progress=progress,
            )
            exact = ExactRatio.of(network, config.exact_samples)
        return cls(config, network, {"obrs": fitted, "exact": exact, "shares": fitted})

    def propose(self, ids: Any, seed: int) -> Any:
        import torch

        from obrs.draws import normals

        with torch.no_grad():
            return self.generator(normals(ids, 2, seed=seed, like=torch.empty(0)))

    def draw(self, method: str, budget: float, number: int) -> Floats:
        """Return n samples of a method."""
        from obrs import select

        from .gan25 import TARGET, one_thread

        n, seed = self.config.n, self.config.seed + _PROPOSED + number
        if method == "target":
            return np.asarray(TARGET.sample(n, seed=seed), dtype=np.float64)
        with one_thread():
            batch = self.propose(np.arange(ceil(budget * n)), seed)
            x = _points(batch)
            if method == "model":
                return x
            log_ratio = np.asarray(self.ratios[method](batch), dtype=np.float64)
        if method != "shares":
            return x[select(log_ratio, n, seed=seed)]
        mode = _nearest(x)[0]
        wanted = quotas(np.bincount(mode, minlength=25), n, seed)
        kept = []
        for k, count in enumerate(wanted):
            here = np.flatnonzero(mode == k)
            kept.append(here[select(log_ratio[here], count, seed=seed)] if count else here[:0])
        return x[np.concatenate(kept)]


def quotas(sizes: Floats, n: int, seed: int) -> list[int]:
    """Return how many of n samples each group gives: as many as in a sample of equal shares, if it has as many.

    Args:
        sizes: Candidates in each group.
        n: Samples, at most all candidates.
        seed: Seed of the numbers.

    Example:
        >>> quotas(np.array([50, 50, 2]), 20, seed=0)
        [8, 10, 2]
    """
    random, found = np.random.default_rng(seed), np.zeros(len(sizes), dtype=np.int64)
    while missing := n - int(found.sum()):  # what a group lacks, the others give
        room = (found < sizes).astype(np.float64)
        found = np.minimum(found + random.multinomial(missing, room / room.sum()), sizes)
    return [int(count) for count in found]


def match(x: Floats, y: Floats, centres: Floats) -> dict[str, float]:
    """Match as many points as there are samples, one to one, at the least mean distance; say where it comes from.

    Args:
        x, y: Samples and points, `(n, dim)` each.
        centres: Means of the modes.

    Returns:
        `cost`, the mean distance; `between` and `within`, its parts from pairs of two modes and of one; and `moved`,
        the share of pairs of two modes.

    Example:
        >>> ends = np.array([[0.0], [10.0]])
        >>> match(np.array([[1.0], [0.0], [0.0]]), np.array([[0.0], [0.0], [10.0]]), ends)
        {'cost': 3.0, 'between': 3.0, 'within': 0.0, 'moved': 0.3333333333333333}
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    if len(x) != len(y):
        raise InputError(f"costs are compared at equal n, got {len(x)} samples and {len(y)} points")
    distance = cdist(x, y)
    rows, columns = linear_sum_assignment(distance)
    paid = distance[rows, columns]
    other = _nearest(x, centres)[0][rows] != _nearest(y, centres)[0][columns]
    between = float(paid[other].sum()) / len(x)
    cost = float(paid.mean())
    return {"cost": cost, "between": between, "within": cost - between, "moved": float(other.mean())}


def _nearest(x: Floats, centres: Floats | None = None) -> tuple[Floats, Floats]:
    from .gan25 import TARGET
    from .modes import nearest_mode

    return nearest_mode(x, TARGET.means if centres is None else centres)


def _points(x: Any) -> Floats:
    return np.asarray(x, dtype=np.float64)


def _measured(config: Config, drawn: list[Floats]) -> dict[str, Any]:
    from .gan25 import TARGET, score

    found, shares = [], np.zeros(25)
    for number, x in enumerate(drawn):
        points = TARGET.sample(config.n, seed=config.seed + _TARGET + number)  # the same for every method
        found.append(match(x, points, TARGET.means) | score(x))
        shares += np.bincount(_nearest(x)[0], minlength=25) / len(x) / len(drawn)
    means = {key: _mean_error([one[key] for one in found]) for key in _COLUMNS}
    return means | {"shares": np.round(shares, 5)}


def _mean_error(values: list[float]) -> tuple[float, float]:
    error = float(np.std(values, ddof=1)) / sqrt(len(values)) if len(values) > 1 else 0.0
    return float(np.mean(values)), error


def label(row: dict[str, Any]) -> str:
    """Return what a row is called.

    Example:
        >>> label({"method": "exact", "budget": 5.0})
        'OBRS, exact ratio, K = 5'
    """
    known = {"target": "the target itself", "model": "the model itself"}
    return known.get(row["method"]) or f"{METHODS[row['method']]}, K = {row['budget']:g}"


def table(record: Record) -> str:
    """Return the costs and their parts, and what they say."""
    lines = [f"{'':28}{'transport':>17}{'between modes':>17}{'within':>9}{'high quality %':>16}{'KL':>9}"]
    for row in record.rows:
        cost, between = (f"{row[key][0]:.3f} ± {row[key][1]:.3f}" for key in ("cost", "between"))
        lines.append(
            f"{label(row):28}{cost:>17}{between:>17}{row['within'][0]:9.3f}{100 * row['precision'][0]:16.1f}"
            f"{row['kl'][0]:9.3f}"
        )
    config = record.config
    said = f"{config['n']} samples against {config['n']} points; mean ± standard error of {config['draws']} draws."
    return "\n".join([*lines, "", said, "KL on cells depends on the number of samples, which is the same in all rows."])


def figure(record: Record) -> Any:
    """Draw the cost against the budget, its two parts, and the shares of the modes."""
    drawn = canvas(9, 4.4)
    left, middle, right = drawn.subplots(1, 3, width_ratios=(1, 1.1, 1))
    for method, look in _LOOKS.items():
        points = [record["model"], *(row for row in record.rows if row["method"] == method)]
        cost = numbers([row["cost"] for row in points])
        left.errorbar(
            [row["budget"] for row in points],
            cost[:, 0],
            yerr=cost[:, 1],
            color=look.colour,
            ls=look.line,
            marker=look.marker,
            label=METHODS[method],
        )
    floor = record["target"]["cost"][0]
    left.axhline(floor, color=LOOKS["target"].colour, lw=1.2, ls=":", label="the target itself")
    left.set(title="Transport cost", xlabel="budget K (1: the model)", xscale="log", ylim=(0, None))
    budgets = [1, *record.config["budgets"]]
    left.set_xticks(budgets, [f"{k:g}" for k in budgets])
    left.minorticks_off()
    _draw_parts(middle, record)
    _draw_shares(right, record)
    for axes in (left, middle, right):
        tidy(axes, None)
    left.legend(loc="lower left", bbox_to_anchor=(-0.02, 0.0), fontsize=8.5)
    middle.legend(loc="upper right", fontsize=8.5)
    right.legend(loc="upper left", fontsize=8.5)
    model, kept = record["model"], record[f"obrs, K = {record.config['shown']:g}"]
    config = record.config
    words = (
        f"A WGAN-GP on 25 Gaussians, {config['n']} samples against {config['n']} points of the target, "
        f"{config['draws']} draws. With K = {config['shown']:g} high-quality samples rise from "
        f"{100 * model['precision'][0]:.0f} to {100 * kept['precision'][0]:.0f} %, KL goes from {model['kl'][0]:.2f} "
        f"to {kept['kl'][0]:.2f}, and transport from {model['cost'][0]:.2f} to {kept['cost'][0]:.2f}."
    )
    caption(drawn, record.experiment, words)
    return drawn


def _draw_parts(axes: Any, record: Record) -> None:
    shown = record.config["shown"]
    bars = {"target": "target", "model": "model"}
    bars |= {f"{method}, K = {shown:g}": short for method, short in _SHORT.items()}
    within, between = (np.array([record[name][key][0] for name in bars]) for key in ("within", "between"))
    axes.bar(range(len(bars)), within, color=PALETTE["light"], label="within a mode")
    axes.bar(range(len(bars)), between, bottom=within, color=PALETTE["navy"], label="between modes")
    axes.set_xticks(range(len(bars)), list(bars.values()), fontsize=8)
    axes.set(title="Where it comes from", ylim=(0, 1.35 * float(np.max(within + between))))
    axes.set_xlabel(f"K = {shown:g}")


def _draw_shares(axes: Any, record: Record) -> None:
    shown = record.config["shown"]
    kept = numbers(record[f"obrs, K = {shown:g}"]["shares"])
    order = np.argsort(kept)
    for name, label, look in (
        ("model", "model", LOOKS["model"]),
        (f"obrs, K = {shown:g}", "OBRS", _LOOKS["obrs"]),
        (f"shares, K = {shown:g}", "OBRS within modes", _LOOKS["shares"]),
    ):
        shares = 100 * numbers(record[name]["shares"])[order]
        axes.plot(np.arange(1, 26), shares, look.marker, color=look.colour, ms=5, label=label)
    axes.axhline(4, color=LOOKS["target"].colour, lw=1.2, ls=":")
    axes.set(title="Why", ylabel="share of the samples, %", ylim=(0, 150 * float(kept.max())))
    axes.set_xlabel(f"modes, sorted; K = {shown:g}")
