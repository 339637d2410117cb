"""One root: by the formula, by sorting, by climbing and on a device it is the same, also where floats make it hard."""

from math import inf

import exact
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from obrs import acceptance_rate, root, solve_log_c
from obrs.budget import Cut, solve_cut
from obrs.errors import BudgetError

EPS = np.finfo(np.float64).eps
BATCHES = st.lists(st.floats(-280, 280), min_size=1, max_size=40)
WIDE = st.lists(st.floats(-5000, 5000), min_size=1, max_size=40)
TIES = st.lists(st.sampled_from([-3.0, -0.5, 0.0, 0.25, 2.0, 900.0]), min_size=1, max_size=40)
BUDGETS = st.floats(1, 50) | st.sampled_from([1.0, 2.0, 4.0, 8 / 7])


def assert_is_the_root(x, log_c, share, weights=None, rounding=EPS):
    """The rate is the share, up to the rounding of log c and of sums."""
    tolerance = 2 * rounding * max(1.0, abs(float(log_c))) + 100 * rounding
    assert exact.rate(x, log_c, weights) == pytest.approx(share, rel=tolerance)


# --- the formula ------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=20), st.floats(1, 20))
def test_the_largest_quotient_is_the_root(values, budget):
    ratio = np.exp(np.sort(values))
    n = len(ratio)
    c = root.largest(np.cumsum(ratio), np.arange(n - 1, -1, -1.0), n / budget)
    assert np.minimum(c * ratio, 1).sum() == pytest.approx(n / budget, rel=1e-12)


@given(BATCHES | WIDE | TIES, BUDGETS)
def test_rows_groups_and_devices_agree(values, budget):
    x, share = np.array(values), np.array([1 / budget])
    found = root.of_rows(x[None], None, share).log_c[0]
    assert_is_the_root(x, found, share[0])
    for other in (
        root.of_groups(x, None, np.zeros(len(x), int), share).log_c[0],
        root.on_device(x[None], None, 1 / budget).log_c[0],
        root.of_rows(x[None], np.full((1, len(x)), 0.3), share).log_c[0],
    ):
        assert_is_the_root(x, other, share[0])


@given(st.lists(st.tuples(st.floats(-1000, 1000), st.floats(1e-12, 1e12)), min_size=1, max_size=30), BUDGETS)
def test_weighted_rows_groups_and_devices_meet_the_share(pairs, budget):
    x, w = map(np.array, zip(*pairs, strict=True))
    for log_c in (
        root.of_rows(x[None], w[None], np.array([1 / budget])).log_c[0],
        root.of_groups(x, w, np.zeros(len(x), int), np.array([1 / budget])).log_c[0],
        root.on_device(x[None], w[None], 1 / budget).log_c[0],
    ):
        assert_is_the_root(x, log_c, 1 / budget, w)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sd", [0.1, 1.0, 30.0, 1000.0])
def test_groups_of_every_size_meet_the_share(sd, weighted):
    """Small ones climb, and where ratios span more than a float does, they are sorted."""
    rng = np.random.default_rng(0)
    sizes = np.array([1, 2, 3, 17, 300, 5000, 40_000])
    group = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    x, w = rng.normal(size=len(group)) * sd, rng.exponential(size=len(group)) if weighted else None
    found = root.of_groups(x, w, group, np.full(len(sizes), 1 / 2.6))
    for k in range(len(sizes)):
        here = group == k
        assert_is_the_root(x[here], found.log_c[k], 1 / 2.6, None if w is None else w[here], 4 * EPS)
        assert found.top[k] == x[here].max()


def test_shares_may_differ_by_row_and_by_group():
    x, shares = np.random.default_rng(1).normal(size=(4, 200)), np.array([0.1, 0.3, 0.6, 0.9])
    by_group = root.of_groups(x.ravel(), None, np.repeat(np.arange(4), 200), shares).log_c
    for row, log_c, other, share in zip(x, root.of_rows(x, None, shares).log_c, by_group, shares, strict=True):
        assert_is_the_root(row, log_c, share)
        assert_is_the_root(row, other, share)


# --- flat stretches: the saturated meet the target, and what is left lies far below --------------------------------


def solvers(x, weights, budget):
    """log c of one problem by every route to it."""
    two = np.stack([x, x]), np.stack([weights, weights])
    return [
        float(solve_log_c(x, budget, weights=weights)),
        float(solve_log_c(two[0], budget, weights=two[1], axis=1)[1]),
        float(solve_log_c(np.tile(x, 2), budget, weights=np.tile(weights, 2), groups=np.repeat([0, 1], len(x)))[1]),
    ]


def test_an_ulp_of_the_target_is_not_made_up_by_ratios_far_below():
    x, weights = np.r_[np.full(8, 1000.0), 0.0], np.full(9, 0.7)
    for log_c in solvers(x, weights, np.nextafter(9 / 8, 1)):
        assert exact.rate(x, log_c, weights) == pytest.approx(8 / 9, rel=1e-12)


def test_random_masses_at_the_top_of_a_wide_gap_are_met():
    rng = np.random.default_rng(2)
    for _ in range(300):
        n = int(rng.integers(2, 40))
        top = int(rng.integers(1, n))
        x = np.where(np.arange(n) < top, rng.normal(size=n) + 800, rng.normal(size=n))
        weights = rng.random(n)
        share = weights[:top].sum() / weights.sum()
        for log_c in solvers(x, weights, 1 / share):
            assert exact.rate(x, log_c, weights) == pytest.approx(share, rel=1e-11)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [20_000, 70_000])
def test_two_clusters_far_apart_in_a_long_row_share_the_target(n, weighted):
    """What lies below the interval of the subsample must not vanish beside what lies inside it."""
    x = np.where(np.arange(n) * 0.6180339887 % 1 < 0.57, 0.0, -1000.0)
    w = np.random.default_rng(n).random(n) if weighted else None
    assert_is_the_root(x, solve_log_c(x, 1 / 0.6, weights=w), 0.6, w)


@pytest.mark.parametrize("budget", [1.0, 1.5])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_long_row_out_of_reach_is_refused(budget, weighted):
    x = np.r_[np.zeros(10_000), np.full(10_000, -inf)]
    with pytest.raises(BudgetError, match=r"only 50 % .* smallest feasible budget is 2$"):
        solve_log_c(x, budget, weights=np.full(20_000, 0.1) if weighted else None)


@pytest.mark.parametrize("n", [1000, 16_384, 16_385, 100_000])
def test_weights_that_just_reach_the_budget_meet_it(n):
    assert float(solve_log_c(np.zeros(n), 1, weights=np.full(n, 0.1))) == inf
    rng = np.random.default_rng(n)
    for _ in range(10):
        w, x = rng.random(n) ** 4, np.where(rng.random(n) < 0.1, -inf, rng.normal(size=n))
        budget = w.sum() / w[x > -inf].sum()
        assert_is_the_root(x, solve_log_c(x, budget, weights=w), 1 / budget, w, rounding=n**0.5 * EPS)


@pytest.mark.parametrize("budget", [1e4, 1e6, 1e8])
def test_weighted_groups_keep_their_digits_at_large_budgets(budget):
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=12) * 20, 10 ** rng.uniform(-12, 0, size=12)
    log_c = root.of_groups(x, w, np.zeros(12, int), np.array([1 / budget])).log_c[0]
    assert_is_the_root(x, log_c, 1 / budget, w)


def test_groups_with_large_weights_see_ratios_at_the_end_of_the_range():
    x, w = np.array([0.0, -740.0]), np.array([1e35, 1e35])
    log_c = root.of_groups(x, w, np.zeros(2, int), np.array([1 / 1.5])).log_c[0]
    assert_is_the_root(x, log_c, 1 / 1.5, w)


def test_a_budget_out_of_reach_has_the_rate_of_what_is_possible():
    x = np.array([0.0, -inf, -inf, -inf])
    for budget in (1.0, 2.0):
        assert np.exp(solve_cut(x, budget, check=False).log_rate) == pytest.approx(0.25)
    assert solve_cut(np.full(3, -inf), 2.0, check=False).log_rate == -inf


def test_single_precision_weights_warn_of_nothing():
    x = np.zeros(3, np.float32)
    assert float(acceptance_rate(x, 0.0, weights=np.ones(3, np.float32))) == 1.0


# --- on a device ----------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-700, 700, width=32), min_size=1, max_size=40), BUDGETS)
def test_a_device_without_float64_is_as_exact_as_float32(values, budget):
    x = np.array(values, np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(root, "widest", lambda xp: np.float32)
        log_c = root.on_device(x[None], None, 1 / budget).log_c[0]
    assert log_c.dtype == np.float32
    assert_is_the_root(x, log_c, 1 / budget, rounding=4 * float(np.finfo(np.float32).eps))


def test_a_device_is_asked_little_and_never_looked_at():
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode

    class Operations(TorchDispatchMode):
        names: list[str] = []  # noqa: RUF012

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    x = torch.randn(256, dtype=torch.float64)
    with Operations() as seen:
        root.on_device(x[None], None, 0.5)
    views = ("unsqueeze", "slice", "select", "detach", "view", "expand", "alias", "squeeze", "scalar_tensor")
    kernels = [name for name in seen.names if not any(view in name for view in views)]
    assert len(kernels) <= 64
    assert not [name for name in seen.names if "_local_scalar_dense" in name or "nonzero" in name]


# --- the cut --------------------------------------------------------------------------------------------------------


@given(BATCHES | TIES, BUDGETS)
def test_a_cut_knows_its_constant_and_its_rate(values, budget):
    x = np.array(values)
    cut = solve_cut(x, budget)
    assert float(cut.log_c) == float(solve_log_c(x, budget))
    assert np.exp(cut.log_rate) == pytest.approx(float(acceptance_rate(x, cut.log_c)), rel=1e-9)


@pytest.mark.parametrize("budget", [1.0, 1.3, 2.0, 8.0, 1e4])
def test_a_cut_of_tensors_has_tensors_without_gradient(budget):
    torch = pytest.importorskip("torch")
    x = torch.randn(256, generator=torch.Generator().manual_seed(0), requires_grad=True)
    cut = solve_cut(x, budget, check=False)
    assert not cut.log_c.requires_grad
    torch.testing.assert_close(cut.log_c, solve_log_c(x.detach(), budget))
    torch.testing.assert_close(cut.log_rate.exp(), acceptance_rate(x.detach(), cut.log_c))
    elsewhere = solve_cut(torch.empty(8, device="meta"), 2.0, check=False)  # has no values to look at
    assert elsewhere.log_c.device.type == elsewhere.log_rate.device.type == "meta"


def test_the_parts_of_a_cut_belong_together(xp):
    x = np.linspace(-5, 5, 101)
    cut = Cut(-1.0, -0.7)
    log_a, log_weight, log_u = (np.asarray(f(xp.asarray(x))) for f in (cut.log_a, cut.log_weight, cut.log_u))
    np.testing.assert_allclose(log_a + log_weight, x, atol=1e-15)
    np.testing.assert_allclose(log_u, log_weight - 0.7)
    assert (log_a[x >= 1] == 0).all()
    assert (log_weight[x < 1] == 1).all()


def test_what_has_no_ratio_is_never_accepted_and_shows_in_what_is_left():
    x = np.array([-inf, np.nan, 0.0])
    for log_c in (inf, -1.0):
        kept = np.exp(Cut(log_c, 0.0).log_a(x))
        assert not (kept[:2] > 0).any()
        assert kept[2] == np.exp(min(log_c, 0.0))
        np.testing.assert_array_equal(Cut(log_c, 0.0).log_weight(x)[:2], [-inf, -inf])
        assert np.isnan(Cut(log_c, 0.0).log_u(x)[1])  # a NaN must be seen by a loss
