"""The experiments in which everything is known: what their records must say, by routes of our own."""

import numpy as np
import pytest
from exact import normal

from paper import figure_1d, figure_optimal_g, figure_pr, figure_smooth
from paper.record import numbers


def density(parts, x):
    return sum(w * normal(x, m, s) for w, m, s in parts) / sum(w for w, _, _ in parts)


def reject(p, q, step, budget):
    """What rejection leaves of q, the constant found by bisection."""
    r, low, high = p / q, -30.0, 30.0
    for _ in range(80):
        middle = (low + high) / 2
        rate = np.sum(q * np.minimum(np.exp(middle) * r, 1)) * step
        low, high = (low, middle) if rate >= 1 / budget else (middle, high)
    kept = q * np.minimum(max(np.exp(high), 1 / r.max()) * r, 1)
    return kept / (kept.sum() * step)


def gan(p, q, step):
    """Twice the Jensen-Shannon divergence, written with logarithms of mixtures."""
    middle = (p + q) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log(p / middle), 0) + np.where(q > 0, q * np.log(q / middle), 0)
    return np.sum(terms) * step


# --- Figure 2 ---------------------------------------------------------------------------------------------------------


def test_figure_1d_keeps_half_and_obrs_is_closer_than_drs_in_every_divergence(record_of):
    record = record_of("figure-1d")
    assert record["obrs"]["rate"] == pytest.approx(0.5, abs=1e-9)
    assert record["drs"]["rate"] == pytest.approx(0.5, abs=1e-9)
    assert record["exact"]["rate"] == pytest.approx(1 / 3.87, abs=1e-3)
    for name in figure_1d.DIVERGENCES:
        assert record["exact"][name] < 1e-12
        assert record["obrs"][name] < record["drs"][name] < record["model"][name]
    x = np.linspace(-8, 8, 4001)
    p, q, step = density(figure_1d.TARGET, x), density(figure_1d.MODEL, x), x[1] - x[0]
    assert record["model"]["gan"] == pytest.approx(gan(p, q, step), rel=1e-5)
    assert record["obrs"]["gan"] == pytest.approx(gan(p, reject(p, q, step, 2.0), step), rel=1e-3)


def test_figure_1d_curve_is_scaled_by_the_budget_and_meets_1_on_the_line(record_of):
    record = record_of("figure-1d")
    curves = {}
    for name in ("model", "obrs"):
        recall, precision = numbers(record[name]["recall"]), numbers(record[name]["precision"])
        order = np.argsort(recall)
        curves[name] = lambda at, r=recall[order], a=precision[order]: np.interp(at, r, a)
    at = np.linspace(0.05, 0.99, 60)
    np.testing.assert_allclose(curves["obrs"](at), np.minimum(2 * curves["model"](at), 1), atol=2e-3)
    slope = record["model"]["slope"]
    assert curves["obrs"](1 / slope - 0.01) > 0.999
    assert curves["obrs"](1 / slope + 0.01) < 0.99


# --- Figure 3 ---------------------------------------------------------------------------------------------------------


def gaussians(width, variance):
    return [(1, width * (place - 4.5), np.sqrt(variance)) for place in range(10)]


def test_figure_smooth_counts_of_the_default_are_those_of_the_documentation(committed_record):
    record = committed_record("figure-smooth")
    assert record["separation 2.5"]["count"] == [6, 5, 5, 3]
    assert record["separation 2"]["count"] == [2, 2, 2, 2]
    assert record["separation 3"]["count"] == [7, 6, 7, 5], "the exception: no theorem says it cannot be"


def test_figure_smooth_loss_is_that_of_a_plain_sum(smoke):
    row, x = smoke("figure-smooth")["separation 2.5"], np.linspace(-42, 42, 12_001)
    for budget, at in ((0, 30), (2, 70), (3, 100)):
        p, q = density(gaussians(2.5, 0.3), x), density(gaussians(row["theta"][at], 0.4), x) + 1e-300
        kept = reject(p, q, x[1] - x[0], figure_smooth.Config().budgets[budget])
        assert row["loss"][budget][at] == pytest.approx(gan(p, kept, x[1] - x[0]), abs=2e-4)


@pytest.mark.parametrize(
    ("loss", "minima"),
    [
        ([3, 1, 2, 0, 0, 5, 4], [(1, 1), (3, 4)]),  # a plateau counts as one, an end does not count
        ([0, 1, 2], []),
        ([2, 1, 1, 1, 0, 3], [(4, 4)]),  # a step on the way down is not a minimum
        ([1, 1, 1], []),
        ([2, 1, 1 + 1e-9, 2], [(1, 2)]),
    ],
)
def test_minima_are_counted_as_the_paper_would_by_eye(loss, minima):
    places = figure_smooth.minima(np.arange(float(len(loss))), np.asarray(loss, dtype=float))
    assert [(place["low"], place["high"]) for place in places] == minima


# --- Figure 4 ---------------------------------------------------------------------------------------------------------


def test_figure_optimal_g_best_model_before_sits_on_one_mode_and_the_one_after_covers_both(record_of):
    record = record_of("figure-optimal-g")
    before, after = (record[f"minima {name}"]["minima"] for name in ("before", "after"))
    assert (before[0]["mean"], before[0]["sd"]) == pytest.approx((2.0, 0.5), abs=0.01)
    assert (len(before), len(after)) == (3, 1)
    assert after[0]["sd"] > 1.9
    assert after[0]["left"] < before[0]["left"] / 5


def test_figure_optimal_g_minimum_is_one_by_another_route(committed_record):
    best = committed_record("figure-optimal-g")["minima after"]["minima"][0]
    x = np.linspace(-24, 24, 8001)
    p, step = density(figure_optimal_g.TARGET, x), x[1] - x[0]

    def divergence(mean, sd):
        return gan(p, reject(p, normal(x, mean, sd) + 1e-300, step, 2.0), step)

    there = divergence(best["mean"], best["sd"])
    assert there == pytest.approx(best["loss"], abs=1e-5)
    for mean, sd in ((0.05, 0), (-0.05, 0), (0, 0.05), (0, -0.05)):
        assert divergence(best["mean"] + mean, best["sd"] + sd) > there


def test_figure_optimal_g_exact_loss_reaches_the_minimum_and_the_printed_one_stops_elsewhere(record_of):
    record = record_of("figure-optimal-g")
    of = {mode: [row for row in record.rows if row.get("mode") == mode] for mode in figure_optimal_g.MODES}
    assert len(of["exact"]) == record.config["starts"]
    for row in of["exact"]:
        assert figure_optimal_g._reaches_best(record, row) == (row["start"] != [2.0, 0.6])
    blind = record["exact from 2, 0.6"]
    assert blind["end"] == pytest.approx(blind["start"]), "no sample sees the other mode, so nothing moves"
    best = record["minima after"]["minima"][0]
    for row in of["paper_raw"]:
        assert not row["escaped"]
        assert row["left"] > best["loss"] + 1e-4
    assert record["paper_raw from 1.5, 0.8"]["end"] == pytest.approx([2.0, 0.5], abs=0.02), "on one mode for good"
    assert all(row["escaped"] for row in of["paper"])


# --- Appendix A -------------------------------------------------------------------------------------------------------


def test_figure_pr_areas_are_points_of_the_curve(record_of):
    record = record_of("figure-pr")
    x = np.linspace(-6, 10, 20_001)
    step, p = x[1] - x[0], density(figure_pr.TARGET, x)
    for name, parts in figure_pr.MODELS.items():
        row, q = record[name], density(parts, x)
        recall, precision = numbers(row["curve"]["recall"]), numbers(row["curve"]["precision"])
        angle = np.arctan2(precision, recall)  # rises along the curve, whose slopes λ these are
        order = np.argsort(angle)
        for lam, alpha, beta in zip(row["lam"], row["precision"], row["recall"], strict=True):
            assert alpha == pytest.approx(np.sum(np.minimum(lam * p, q)) * step, abs=1e-5)
            assert beta == pytest.approx(alpha / lam, rel=1e-9)
            assert np.interp(np.arctan(lam), angle[order], precision[order]) == pytest.approx(alpha, abs=2e-3)
    high_recall, high_precision = record["high recall"], record["high precision"]
    assert max(high_recall["recall"]) > 0.95 > 0.6 > max(high_recall["precision"])
    assert max(high_precision["precision"]) > 0.95 > 0.7 > max(high_precision["recall"])
