"""The one equation, by every route to it."""

import exact
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obrs import root

EPS = np.finfo(np.float64).eps
PAIRS = st.lists(st.tuples(st.floats(-1000, 1000), st.floats(1e-6, 1)), min_size=1, max_size=30)
BUDGETS = st.floats(1, 64).filter(lambda k: k > 1)


def assert_is_the_root(x, log_c, share, weights=None):
    """The rate is the share, up to the rounding of log c and of sums."""
    rounding = 2 * EPS * max(1.0, abs(float(log_c))) + 400 * EPS
    assert exact.rate(x, log_c, weights) == pytest.approx(share, rel=rounding)


def routes(x, w, share):
    """log c of one problem as a row, as a group beside another, and as a pool that is bracketed."""
    mass = float(len(x) if w is None else w.sum())
    rows = root.solve_rows(x[None], None if w is None else w[None], share * mass)
    twice = np.tile(x, 2) - np.repeat([0.0, 30.0], len(x)), None if w is None else np.tile(w, 2)
    groups = root.solve_groups(*twice, np.repeat([0, 1], len(x)), np.full(2, share * mass))
    interval = root.condense(*root._partition(x, w, -5.0, 5.0), -5.0, 5.0)
    yield rows[0]
    yield groups[0]
    yield groups[1] - 30.0
    with np.errstate(all="ignore"):
        log_c = root.solve_sorted(*interval, share * mass)[0]
    if -5.0 <= -log_c < 5.0:
        yield log_c


@given(PAIRS, BUDGETS, st.booleans())
def test_every_route_leads_to_the_root(pairs, budget, weighted):
    x, w = map(np.array, zip(*pairs, strict=True))
    w = w if weighted else None
    for log_c in routes(x, w, 1 / budget):
        assert_is_the_root(x, log_c, 1 / budget, w)


def test_ratios_far_above_the_threshold_overflow_without_harm():
    x = np.array([-1000.0] * 4 + [0.0] * 2)
    assert root.solve_rows(x[None], None, 6 / 1.5)[0] == pytest.approx(1000 + np.log(0.5), rel=1e-15)
    x = 100 * np.random.default_rng(0).standard_cauchy(1000)
    assert_is_the_root(x, root.solve_rows(x[None], None, 1000 / 64)[0], 1 / 64)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sd", [0.1, 30.0, 1000.0])
def test_groups_of_every_size_meet_the_share(sd, weighted):
    rng = np.random.default_rng(0)
    sizes = np.array([1, 2, 3, 17, 300, 5000, 40_000])
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    x, w = rng.normal(size=len(group)) * sd, rng.random(len(group)) if weighted else None
    log_c = root.solve_groups(x, w, group, np.bincount(group, w) / 2.6)
    for k in range(len(sizes)):
        here = group == k
        assert_is_the_root(x[here], log_c[k], 1 / 2.6, None if w is None else w[here])


@pytest.mark.parametrize("weighted", [False, True])
def test_luck_with_the_subsample_changes_nothing(monkeypatch, weighted):
    """The interval that the subsample gives, a wrong one on either side, and none at all lead to one answer."""
    rng = np.random.default_rng(1)
    x, w = 3 * rng.normal(size=100_000), rng.random(100_000) if weighted else None
    target = (len(x) if w is None else w.sum()) / 2.6
    expected = float(root.solve_rows(x[None], None if w is None else w[None], target)[0])
    assert root.solve_pool(x, w, target) == pytest.approx(expected, abs=1e-12)
    for bounds in [(-np.inf, np.inf), (5.0, 6.0), (-9.0, -8.0), (-np.inf, -3.0), (4.0, np.inf), (1.0, 4.0)]:
        monkeypatch.setattr(root, "_bracket", lambda *_, bounds=bounds: bounds)
        assert root.solve_pool(x, w, target) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("f", "low", "high"),
    [
        (lambda x: x**3 - x - 2, 1.0, 2.0),
        (lambda x: np.tanh(x - 0.3), -50.0, 80.0),
        (lambda x: np.exp(x) - 1e-9, -100.0, 5.0),
    ],
)
def test_brent_finds_what_scipy_finds(f, low, high):
    optimize = pytest.importorskip("scipy.optimize")
    calls = []
    at = root.brent(lambda x: calls.append(x) or f(x), low, high)
    assert at == pytest.approx(optimize.brentq(f, low, high, xtol=1e-300), abs=1e-12, rel=1e-12)
    assert len(calls) < 60
