"""The page of the theory: what was tried as a table, and its six pictures."""

from math import log
from typing import Any

import numpy as np

from .record import Record, numbers
from .style import caption, figure, look, tidy

__all__ = ["plot", "render"]

_BOUND_NAMES = {
    "general": "general bound, (K-1)/M",
    "sharper": "general bound, (K-1)/(M-1)",
    "printed": "KL bound as printed",
    "corrected": "KL bound, corrected",
}


def _starting(record: Record, word: str) -> list[dict[str, Any]]:
    return [row for row in record.rows if row["row"].startswith(word)]


def _totals(record: Record, key: str) -> tuple[int, int]:
    found = _starting(record, "bounds")
    return sum(row["checked"][key] for row in found), sum(row["violated"][key] for row in found)


def render(record: Record) -> str:
    """Return how often each claim was tried, and how often it failed or by how much it is off."""
    lines = [f"{'claim':44}{'tried':>8}{'violated':>10}{'off by':>10}"]
    for key, label in _BOUND_NAMES.items():
        checked, violated = _totals(record, key)
        lines.append(f"{label:44}{checked:8d}{violated:10d}")
    curves = _starting(record, "curves")
    checked = sum(row["checked"] for row in curves)
    for key, label in (("precision", "precision times K at the same recall"), ("frontier", "frontier moved by log K")):
        lines.append(f"{label:44}{checked:8d}{'':10}{max(row[key] for row in curves):10.0e}")
    ball = record["ball"]
    wrong = ball["outside"] + ball["no_probability"]
    lines.append(
        f"{'reachable at 1/K: max of the ratio ≤ K':44}{ball['checked']:8d}{wrong:10d}{ball['rate_off']:10.0e}"
    )
    for row in _starting(record, "optimality"):
        name = row["row"].removeprefix("optimality, ")
        gap = float(np.max(np.asarray(row["obrs"]) - row["solver"])) if row["obrs"] else 0.0
        beaten = int(np.sum(np.asarray(row["obrs"]) > np.asarray(row["closest_rival"]) + 1e-9))
        lines.append(f"{f'nothing is closer in {name}':44}{len(row['obrs']):8d}{beaten:10d}{max(gap, 0.0):10.0e}")
    return "\n".join(lines)


def plot(record: Record) -> Any:
    """Draw a page: bounds, curves, frontier, lemma and optimality."""
    drawn = figure(9, 10.8)
    general, kl, curve, frontier, ball, optimality = drawn.subplots(3, 2).flat
    _draw_bounds(general, record, {"sharper": ("#0072B2", "o")}, "General bound on KL, (K-1)/(M-1)")
    _draw_bounds(kl, record, {"corrected": ("#0072B2", "o"), "printed": ("#D55E00", "x")}, "The bound for KL alone")
    _draw_example(curve, frontier, record["example"])
    _draw_ball(ball, record["ball"])
    _draw_optimality(optimality, record)
    checked, violated = _totals(record, "printed")
    caption(
        drawn,
        record.experiment,
        f"Random pairs of distributions on {', '.join(map(str, record.config['sizes']))} points. The printed KL bound "
        f"fails on {100 * violated / checked:.0f} % of {checked:,} pairs; nothing else fails. Dashed: equality.",
    )
    return drawn


def _draw_bounds(axes: Any, record: Record, shown: dict[str, tuple[str, str]], title: str) -> None:
    found = [row["kl"] for row in _starting(record, "bounds")]
    left = np.concatenate([numbers(row["left"]) for row in found])
    for key, (colour, marker) in shown.items():
        bound = np.concatenate([numbers(row[key]) for row in found])
        _, violated = _totals(record, key)
        label = f"{key}, {violated:,} violated" if violated else f"{key}, none violated"
        axes.plot(bound, left, marker, color=colour, ms=3, alpha=0.5, label=label)
    ends = [1e-4, 10.0]
    axes.plot(ends, ends, color="black", ls="--", lw=1)
    axes.fill_between(ends, ends, ends[1], color="#D55E00", alpha=0.07, lw=0)
    axes.text(2e-4, 1.2, "violated", color="#B24A00", fontsize=9.5)
    axes.set(title=title, xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="bound", ylabel="KL left")
    tidy(axes, None)
    axes.legend(loc="lower right", markerscale=2)


def _draw_example(curve: Any, frontier: Any, row: dict[str, Any]) -> None:
    for name in ("model", "obrs"):
        style = look(name)
        curve.plot(row["recall"][name], row["precision"][name], color=style.colour, label=style.label)
        frontier.plot(row["rho"], row["pi"][name], color=style.colour, label=style.label)
    k = row["budget"]
    predicted = np.minimum(k * numbers(row["precision"]["model"]), 1)
    recall = numbers(row["recall"]["model"])
    curve.plot(recall[::8], predicted[::8], "o", mfc="none", color="black", ms=4, label="min(1, K α)")
    moved = np.maximum(numbers(row["pi"]["model"]) - log(k), 0)
    frontier.plot(row["rho"][::4], moved[::4], "o", mfc="none", color="black", ms=4, label="max(0, π - log K)")
    curve.set(title=f"Theorem 3.3: an example, K = {k:g}", xlabel="recall β", ylabel="precision α")
    curve.set(xlim=(0, 1.03), ylim=(0, 1.05))
    frontier.set(title="Divergence frontier, same pair", xlabel="ρ = log max R/P", ylabel="π = log max R/Q")
    frontier.set(xlim=(0, 3), ylim=(-0.05, None))
    tidy(curve, "lower left")
    tidy(frontier, "upper right")


def _draw_ball(axes: Any, row: dict[str, Any]) -> None:
    ends = [1.0, 100.0]
    axes.plot(ends, ends, color="black", ls="--", lw=1)
    axes.plot(row["cost"], row["height"], "o", color=look("obrs").colour, ms=3, alpha=0.5, label="random acceptance")
    reached = row["reachable"]
    axes.plot(reached, reached, "D", mfc="none", color="#D55E00", ms=4, label="random density, accepting p̃/(K q)")
    axes.set(title="What rejection can reach", xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set(xlabel="K, proposals per kept sample", ylabel="max of kept density / model")
    tidy(axes, None)
    axes.legend(loc="upper left", markerscale=1.5)


def _draw_optimality(axes: Any, record: Record) -> None:
    ends = [1e-3, 10.0]
    axes.plot(ends, ends, color="black", ls="--", lw=1)
    solved = _starting(record, "optimality")
    ours = np.concatenate([numbers(row["obrs"]) for row in solved])
    for key, marker, colour, label in (
        ("closest_rival", "x", "0.55", "best of the random rivals"),
        ("solver", "o", look("obrs").colour, "solver"),
    ):
        theirs = np.concatenate([numbers(row[key]) for row in solved])
        axes.plot(ours, theirs, marker, mfc="none", color=colour, ms=5, label=label)
    axes.set(title="Nothing is closer than OBRS", xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set(xlabel="divergence left by OBRS", ylabel="divergence of others, same budget")
    tidy(axes, "upper left")
