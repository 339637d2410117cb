"""What the paper proves, tested on random pairs of finite distributions.

* Theorem 3.2, the bounds on what is left: for any divergence with the paper's constant (K - 1)/M and with the sharper
  (K - 1)/(M - 1); for KL as printed, which is violated, and corrected (see the errata).
* Theorem 3.3: at every recall the precision is K times as high, or 1.
* Appendix B: on the information divergence frontier, π' = max(0, π - log K) at the same ρ.
* The lemma of Section 4.1: the densities that rejection can reach at a rate of 1/K are those with max q̃/q ≤ K.
* Theorem 3.1: no density within the budget is closer than that of OBRS. Sequential quadratic programming, and a linear
  programme for total variation, look for one.

Curves, frontiers and rates after rejection are summed from the kept masses themselves, not read from the formulas they
are compared with.
"""

from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np

from obrs import Profile
from obrs._text import text_table
from obrs.divergences import DIVERGENCES
from obrs.errors import InputError
from obrs.root import brent

from .record import Checked, Record, numbers
from .style import PALETTE, canvas, caption, look, tidy

__all__ = ["PAPER", "PRESETS", "Config", "figure", "printed_kl_bound", "run", "table"]

PAPER = {
    "general": "D_f(P‖P̃) ≤ (1 - min(1, (K-1)/M)) D_f(P‖Q)",
    "kl": "KL(P‖P̃) ≤ (1-γ)(KL(P‖Q) - R_γ(P‖Q)), γ = log K / log M",
    "curve": "α' = min(1, K α) at the same β",
    "frontier": "π' = max(0, π - log K) at the same ρ",
    "ball": "P̃ is reachable at a rate of at least 1/K if and only if max p̃/q ≤ K",
}
BOUNDED = ("kl", "rkl", "gan", "tv", "chi2", "hellinger")
SOLVED = ("kl", "rkl", "gan", "chi2", "hellinger", "tv")
Numbers = np.ndarray[Any, Any]
_SLACK = 1e-9  # relative to 1 + D: what rounding may add
_BOUND_NAMES = {
    "general": "general bound, (K-1)/M",
    "sharper": "general bound, (K-1)/(M-1)",
    "printed": "KL bound as printed",
    "corrected": "KL bound, corrected",
}


@dataclass(frozen=True)
class Config(Checked):
    """What to try.

    Args:
        sizes: Numbers of points of the distributions.
        pairs: Random pairs of each size.
        problems: Problems for the solvers, for each divergence.
        rivals: Random acceptance functions, for the lemma and as rivals of OBRS.
        seed: Decides all randomness.
    """

    sizes: tuple[int, ...] = (2, 3, 6, 20)
    pairs: int = 1000
    problems: int = 12
    rivals: int = 400
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.sizes) < 2:
            raise InputError(f"distributions need at least 2 points, got sizes {self.sizes}")


PRESETS = {
    "smoke": Config(sizes=(2, 6), pairs=60, problems=2, rivals=60),
    "default": Config(),
}


@dataclass(frozen=True)
class _Case:
    """A pair of distributions and a budget between 1 and M."""

    p: Numbers
    q: Numbers
    budget: float

    @property
    def profile(self) -> Profile:
        return Profile(np.log(self.p / self.q), self.q)

    @property
    def kept(self) -> Numbers:
        mass = np.minimum(exp(self.profile.log_c(self.budget)) * self.p, self.q)
        return np.asarray(mass / mass.sum())


def _cases(config: Config, size: int, count: int) -> list[_Case]:
    rng = np.random.default_rng([config.seed, size])
    p, q = rng.dirichlet(np.ones(size), count), rng.dirichlet(np.ones(size), count)
    return [_Case(a, b, float(np.max(a / b) ** u)) for a, b, u in zip(p, q, rng.random(count), strict=True)]


def run(config: Config, rows: Record) -> None:
    """Try every claim on every size."""
    for name, size in rows.todo({f"bounds, {size} points": size for size in config.sizes}):
        rows.add(name, _bounds(_cases(config, size, config.pairs)))
    for name, size in rows.todo({f"curves, {size} points": size for size in config.sizes}):
        rows.add(name, _curves(_cases(config, size, config.pairs)))
    if "ball" not in rows:
        rows.add("ball", _ball(_cases(config, 6, 50)[1], config.rivals, config.seed))
    for name, divergence in rows.todo({f"optimality, {divergence}": divergence for divergence in SOLVED}):
        rows.add(name, _optimality(_cases(config, 6, config.problems), divergence, config))


# --- Theorem 3.2 ---------------------------------------------------------------------------------------------------


def printed_kl_bound(log_ratio: Numbers, mass: Numbers, budget: float) -> float:
    """Return the KL bound as the paper prints it, with b = log K / log M. It is not a bound.

    b is too large: p_b exceeds K q somewhere whenever 1 < K < M. See the errata.

    Example:
        The smallest counterexample: 0.2263 is left.

        >>> round(printed_kl_bound(np.log([1.8, 0.2]), np.array([0.5, 0.5]), budget=1.2), 4)
        0.1524
    """
    top = float(np.max(log_ratio))
    return _geometric_bound(log_ratio, mass, min(log(budget) / top, 1.0) if top > 0 else 1.0)


def _corrected_kl_bound(log_ratio: Numbers, mass: Numbers, budget: float) -> float:
    """Return the KL bound with the largest b for which p_b stays below K q."""
    top = float(np.max(log_ratio))
    if log(budget) >= top:
        return 0.0
    b = brent(lambda b: b * top - _log_moment(log_ratio, mass, b) - log(budget), 0.0, 1.0)
    return max(_geometric_bound(log_ratio, mass, b), 0.0)


def _geometric_bound(log_ratio: Numbers, mass: Numbers, b: float) -> float:
    """Return KL(P‖P_b), p_b = p^b q^(1-b) / E_Q[r^b]: (1 - b) (KL - R_b), R_b the Rényi divergence of order b."""
    return (1 - b) * float(mass @ (np.exp(log_ratio) * log_ratio)) + _log_moment(log_ratio, mass, b)


def _log_moment(log_ratio: Numbers, mass: Numbers, b: float) -> float:
    """Return log E_Q[r^b]."""
    return log(float(mass @ np.exp(b * log_ratio)))


def _bounds(cases: list[_Case]) -> dict[str, Any]:
    violated = dict.fromkeys(("general", "sharper", "printed", "corrected"), 0)
    shown: dict[str, list[float]] = {key: [] for key in ("left", "sharper", "printed", "corrected")}
    for case in cases:
        profile, k = case.profile, case.budget
        m = profile.max_budget
        for name in BOUNDED:
            before, left = profile.divergence(name), profile.divergence(name, k)
            bounds = {"general": before * (1 - min(1.0, (k - 1) / m)), "sharper": before * (1 - (k - 1) / (m - 1))}
            if name == "kl":
                log_ratio = np.log(case.p / case.q)
                bounds["printed"] = printed_kl_bound(log_ratio, case.q, k)
                bounds["corrected"] = _corrected_kl_bound(log_ratio, case.q, k)
                for key, value in ({"left": left} | bounds).items():
                    if key in shown:
                        shown[key].append(value)
            for key, bound in bounds.items():
                violated[key] += left > bound + _SLACK * (1 + before)
    checked = {"general": len(cases) * len(BOUNDED), "sharper": len(cases) * len(BOUNDED)}
    return {
        "checked": checked | {"printed": len(cases), "corrected": len(cases)},
        "violated": violated,
        "kl": {key: np.asarray(value)[:250] for key, value in shown.items()},
    }


# --- Theorem 3.3 and the frontier -----------------------------------------------------------------------------------


def _curve(p: Numbers, q: Numbers, lam: Numbers) -> tuple[Numbers, Numbers]:
    """Return precision and recall at each slope, by summing the smaller mass."""
    return np.minimum(lam[:, None] * p, q).sum(1), np.minimum(p, q / lam[:, None]).sum(1)


def _frontier(p: Numbers, q: Numbers, rho: Numbers) -> Numbers:
    """Return the least π = log max R/q of a distribution R with max R/p = e^ρ: fill up to both ceilings, bisect."""
    low, high = np.full(len(rho), -60.0), np.full(len(rho), 60.0)
    for _ in range(100):
        middle = (low + high) / 2
        enough = np.minimum(np.exp(rho)[:, None] * p, np.exp(middle)[:, None] * q).sum(1) >= 1
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def _curves(cases: list[_Case]) -> dict[str, Any]:
    precision_off, frontier_off = [], []
    for case in cases:
        k, kept = case.budget, case.kept
        lam = np.geomspace(1e-2, 1e2, 41) * exp(case.profile.log_c(k))
        alpha, beta = _curve(case.p, case.q, lam)
        after, same = _curve(case.p, kept, np.where(k * alpha < 1, k * lam, 1 / beta))
        precision_off.append(max(np.abs(after - np.minimum(k * alpha, 1)).max(), np.abs(same - beta).max()))
        rho = np.linspace(0.02, 4.0, 15)
        moved = np.maximum(_frontier(case.p, case.q, rho) - log(k), 0)
        frontier_off.append(np.abs(_frontier(case.p, kept, rho) - moved).max())
    return {"checked": len(cases), "precision": max(precision_off), "frontier": max(frontier_off)}


# --- Section 4.1 ----------------------------------------------------------------------------------------------------


def _acceptances(case: _Case, count: int, rng: np.random.Generator) -> Numbers:
    """Return random acceptance functions, some with many zeros or ones, all scales of rate among them."""
    return np.asarray(rng.random((count, len(case.q))) ** rng.exponential(1.0, (count, 1)) * rng.random((count, 1)))


def _ball(case: _Case, count: int, seed: int) -> dict[str, Any]:
    """Try both directions of the lemma: from an acceptance function to its density, and back."""
    rng = np.random.default_rng([seed, 41])
    accept = _acceptances(case, count, rng)
    rate = accept @ case.q
    density = accept * case.q / rate[:, None]
    height = (density / case.q).max(1)
    other = rng.dirichlet(np.ones(len(case.q)), count)
    budget = (other / case.q).max(1)  # the smallest K whose ball holds it
    back = other / case.q / budget[:, None]
    return {
        "checked": 2 * count,
        "cost": 1 / rate,
        "height": height,
        "reachable": budget[:100],
        "outside": int(np.sum(height > (1 + _SLACK) / rate)),
        "no_probability": int(np.sum((back > 1 + _SLACK) | (back < 0))),
        "rate_off": float(np.abs(back @ case.q - 1 / budget).max()),
    }


# --- Theorem 3.1 ----------------------------------------------------------------------------------------------------


def _optimality(cases: list[_Case], name: str, config: Config) -> dict[str, Any]:
    """Let a solver, and random rivals at the same budget, look for something closer than OBRS."""
    rng = np.random.default_rng([config.seed, 31])
    f = DIVERGENCES[name].f
    ours, best, closest = [], [], []
    for case in cases:
        if case.budget < 1.05:  # there is hardly anything to choose
            continue
        ours.append(float(np.sum(case.kept * f(np.log(case.p / case.kept)))))
        best.append(_linear(case) if name == "tv" else _quadratic(case, name))
        accept = _acceptances(case, config.rivals, rng)
        lack = np.maximum(1 / case.budget - accept @ case.q, 0) / ((1 - accept) @ case.q)
        accept = accept + lack[:, None] * (1 - accept)  # raised until the budget is kept
        rivals = accept * case.q / (accept @ case.q)[:, None]
        closest.append(float(np.min(np.sum(rivals * f(np.log(case.p / rivals)), axis=1))))
    return {"obrs": ours, "solver": best, "closest_rival": closest}


def _quadratic(case: _Case, name: str) -> float:
    """Minimise a smooth divergence over all densities below K q."""
    from scipy.optimize import minimize

    record = DIVERGENCES[name]
    found = minimize(
        lambda kept: float(np.sum(kept * record.f(np.log(case.p / kept)))),
        case.q,
        jac=lambda kept: -record.f_star_of_f_prime(np.log(case.p / kept)),
        method="SLSQP",
        bounds=[(1e-9, case.budget * mass) for mass in case.q],
        constraints={"type": "eq", "fun": lambda kept: kept.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return float(found.fun)


def _linear(case: _Case) -> float:
    """Minimise total variation, ½ Σ s with s ≥ |p - kept|."""
    from scipy.optimize import linprog

    n, eye = len(case.p), np.eye(len(case.p))
    found = linprog(
        np.r_[np.zeros(n), np.full(n, 0.5)],
        A_ub=np.block([[eye, -eye], [-eye, -eye]]),
        b_ub=np.r_[case.p, -case.p],
        A_eq=[np.r_[np.ones(n), np.zeros(n)]],
        b_eq=[1.0],
        bounds=[(0, case.budget * mass) for mass in case.q] + [(0, None)] * n,
    )
    return float(found.fun)


# --- The page -------------------------------------------------------------------------------------------------------


def _starting(record: Record, word: str) -> list[dict[str, Any]]:
    return [row for row in record.rows if row["row"].startswith(word)]


def _totals(record: Record, key: str) -> tuple[int, int]:
    found = _starting(record, "bounds")
    return sum(row["checked"][key] for row in found), sum(row["violated"][key] for row in found)


def table(record: Record) -> str:
    """Return how often each claim was tried, and how often it failed or by how much it is off."""
    lines: list[list[Any]] = [[label, *_totals(record, key), ""] for key, label in _BOUND_NAMES.items()]
    curves, ball = _starting(record, "curves"), record["ball"]
    checked = sum(row["checked"] for row in curves)
    for key, label in (("precision", "precision times K at the same recall"), ("frontier", "frontier moved by log K")):
        lines.append([label, checked, "", f"{max(row[key] for row in curves):.0e}"])
    wrong = ball["outside"] + ball["no_probability"]
    lines.append(["reachable at 1/K: max of the ratio ≤ K", ball["checked"], wrong, f"{ball['rate_off']:.0e}"])
    for row in _starting(record, "optimality"):
        name, ours = row["row"].removeprefix("optimality, "), numbers(row["obrs"])
        gap = max(float(np.max(ours - numbers(row["solver"]), initial=0.0)), 0.0)
        beaten = int(np.sum(ours > numbers(row["closest_rival"]) + 1e-9))
        lines.append([f"nothing is closer in {name}", len(ours), beaten, f"{gap:.0e}"])
    return text_table(["claim", "tried", "violated", "off by"], lines)


def figure(record: Record) -> Any:
    """Draw the bounds, the lemma and the optimality; Theorem 3.3 is drawn in Figure 2."""
    drawn = canvas(9, 7.6)
    general, kl, ball, optimality = drawn.subplots(2, 2).flat
    _draw_bounds(general, record, {"sharper": (PALETTE["blue"], "o")}, "General bound on KL, (K-1)/(M-1)")
    of_kl = {"corrected": (PALETTE["blue"], "o"), "printed": (PALETTE["red"], "x")}
    _draw_bounds(kl, record, of_kl, "The bound for KL alone")
    row, reached = record["ball"], record["ball"]["reachable"]
    _on_diagonal(ball, (1.0, 100.0), "What rejection can reach")
    ball.plot(row["cost"], row["height"], "o", color=look("obrs").colour, ms=3, alpha=0.5, label="random acceptance")
    ball.plot(reached, reached, "D", mfc="none", color=PALETTE["red"], ms=4, label="random density, accepting p̃/(K q)")
    ball.set(xlabel="K, proposals per kept sample", ylabel="max of kept density / model")
    ball.legend(loc="upper left", markerscale=1.5)
    _on_diagonal(optimality, (1e-3, 10.0), "Nothing is closer than OBRS")
    solved = _starting(record, "optimality")
    ours, rival, solver = (
        np.concatenate([numbers(row[key]) for row in solved]) for key in ("obrs", "closest_rival", "solver")
    )
    optimality.plot(ours, rival, "x", color="0.55", ms=5, label="best of the random rivals")
    optimality.plot(ours, solver, "o", mfc="none", color=look("obrs").colour, ms=5, label="solver")
    optimality.set(xlabel="divergence left by OBRS", ylabel="divergence of others, same budget")
    optimality.legend(loc="upper left")
    checked, violated = _totals(record, "printed")
    caption(
        drawn,
        record.experiment,
        f"Random pairs of distributions on {', '.join(map(str, record.config['sizes']))} points. The printed KL bound "
        f"fails on {100 * violated / checked:.0f} % of {checked:,} pairs; nothing else fails. Dashed: equality.",
    )
    return drawn


def _on_diagonal(axes: Any, ends: tuple[float, float], title: str) -> None:
    axes.plot(ends, ends, color="black", ls="--", lw=1)
    axes.set(title=title, xscale="log", yscale="log", xlim=ends, ylim=ends)
    tidy(axes, None)


def _draw_bounds(axes: Any, record: Record, shown: dict[str, tuple[str, str]], title: str) -> None:
    found, ends = [row["kl"] for row in _starting(record, "bounds")], (1e-4, 10.0)
    left = np.concatenate([numbers(row["left"]) for row in found])
    _on_diagonal(axes, ends, title)
    for key, (colour, marker) in shown.items():
        bound = np.concatenate([numbers(row[key]) for row in found])
        label = f"{key}, {_totals(record, key)[1] or 'none'} violated"
        axes.plot(bound, left, marker, color=colour, ms=3, alpha=0.5, label=label)
    axes.fill_between(ends, ends, ends[1], color=PALETTE["red"], alpha=0.07, lw=0)
    axes.text(2e-4, 1.2, "violated", color=PALETTE["rust"], fontsize=9.5)
    axes.set(xlabel="bound", ylabel="KL left")
    axes.legend(loc="lower right", markerscale=2)
