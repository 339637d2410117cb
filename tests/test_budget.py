"""The solver: exact, on every backend, at every edge."""

import exact
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import obrs.budget as budget_module
from obrs import root, solve_log_c
from obrs.errors import BudgetError, InputTypeError

EPS = np.finfo(np.float64).eps


def draw(n, sd=1.0, seed=0):
    return np.random.default_rng(seed).normal(size=n) * sd


def tolerance(log_c, dtype):
    eps, constant = (EPS, 1e-12) if dtype == np.float64 else (np.finfo(np.float32).eps, 1e-6)
    return 2 * eps * max(1.0, abs(float(log_c))) + constant


# --- the rate meets the budget -----------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1.5, 2.6, 10.0])
def test_rate_meets_the_budget_on_every_backend(xp, budget):
    log_ratio = xp.asarray(draw(1000))
    log_c = solve_log_c(log_ratio, budget)
    assert type(log_c) is type(log_ratio)
    assert log_c.dtype == log_ratio.dtype
    assert exact.rate(draw(1000), log_c) == pytest.approx(1 / budget, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("sd", [0.01, 10.0])
@pytest.mark.parametrize("n", [1, 3, 1000, 100_000])
def test_rate_is_exact_for_every_size_spread_and_budget(n, sd, dtype):
    log_ratio = draw(n, sd, seed=n).astype(dtype)
    log_ratio += dtype(sd)
    largest = float(np.max(log_ratio))
    max_budget = 1 / np.mean(np.exp(log_ratio.astype(np.float64) - largest))
    for budget in [1 + 1e-9, 1.001, 1.5, 2.6, 30.0, 1e6]:
        if budget <= max_budget:
            log_c = solve_log_c(log_ratio, budget)
            assert abs(budget * exact.rate(log_ratio, log_c) - 1) <= tolerance(log_c, dtype)


# --- weights -----------------------------------------------------------------------------------------------


def test_weights_are_repetitions(xp):
    log_ratio, counts = draw(300), np.random.default_rng(1).integers(0, 5, size=300)
    weighted = solve_log_c(xp.asarray(log_ratio), 2.6, weights=xp.asarray(counts.astype(float)))
    repeated = solve_log_c(np.repeat(log_ratio, counts), 2.6)
    assert float(weighted) == pytest.approx(float(repeated), abs=1e-12)


# --- many problems at once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_axis_solves_each_row_on_its_own(xp, axis):
    log_ratio = draw((10, 12, 50), 3.0)
    log_c = solve_log_c(xp.asarray(log_ratio), 1.5, axis=axis)
    expected = np.apply_along_axis(lambda row: solve_log_c(row, 1.5), axis, log_ratio)
    np.testing.assert_allclose(np.asarray(log_c), expected, atol=1e-13)


def test_groups_solve_each_label_on_its_own(xp):
    rng = np.random.default_rng(5)
    sizes = np.concatenate([np.ones(20, int), rng.integers(1, 100, size=50), [20_000]])
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    log_ratio = rng.normal(size=len(labels)) * 5
    log_c = np.asarray(solve_log_c(xp.asarray(log_ratio), 1.7, groups=labels))
    for k in range(len(sizes)):
        x = log_ratio[labels == k]
        assert exact.rate(x, log_c[k]) == pytest.approx(1 / 1.7, rel=1e-12), "at every budget, also beyond M"
        expected = float(solve_log_c(x, 1.7))
        assert log_c[k] < expected if expected == -x.max() else log_c[k] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("layout", ["axis", "groups"])
def test_each_problem_may_have_its_own_budget(xp, layout):
    log_ratio, budgets = draw((5, 300)), np.array([1.0, 1.3, 2.0, 4.0, 30.0])
    if layout == "axis":
        log_c = solve_log_c(xp.asarray(log_ratio), xp.asarray(budgets), axis=1)
        expected = [float(solve_log_c(row, k)) for row, k in zip(log_ratio, budgets, strict=True)]
    else:
        labels = np.repeat(np.arange(5), 300)
        log_c = solve_log_c(xp.asarray(log_ratio.ravel()), budgets, groups=labels)
        expected = [float(solve_log_c(row, k, groups=[0] * 300)[0]) for row, k in zip(log_ratio, budgets, strict=True)]
    np.testing.assert_allclose(np.asarray(log_c), expected, atol=1e-12)
    assert np.isinf(expected[0])


# --- edges -------------------------------------------------------------------------------------------------


def test_budget_above_the_largest_ratio_gives_exact_rejection(xp):
    log_ratio = xp.asarray(draw(1000))
    log_c = solve_log_c(log_ratio, budget=1e6)
    assert float(log_c) == -float(xp.max(log_ratio))


def test_half_precision_and_integers_are_widened(xp):
    assert str(solve_log_c(np.zeros(3, np.float16), 2).dtype) == "float32"
    assert float(solve_log_c(np.array([0, 1, 2]), 2)) == float(solve_log_c([0.0, 1.0, 2.0], 2))
    torch = pytest.importorskip("torch")
    assert solve_log_c(torch.zeros(3, dtype=torch.bfloat16), 2).dtype == torch.float32


# --- the solver for accelerators and jit -------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_arrays_of_every_library_are_solved_where_they_live(xp, weighted):
    rng = np.random.default_rng(7)
    log_ratio = rng.normal(size=(40, 500)) * np.geomspace(0.01, 2000, 40)[:, None]
    log_ratio[rng.random((40, 500)) < 0.1] = -np.inf
    weights = rng.random((40, 500)) if weighted else None
    mass = 500.0 if weights is None else weights.sum(axis=1)
    for budget in [1.3, 2.6, 60.0]:
        here = [None if a is None else xp.asarray(a) for a in (log_ratio, weights)]
        target = mass / budget if weights is None else xp.asarray(mass / budget)
        there = np.maximum(np.asarray(root.solve_rows(*here, target)), -log_ratio.max(axis=1))
        host = solve_log_c(log_ratio, budget, axis=1, weights=weights)
        np.testing.assert_allclose(there, host, rtol=1e-13, atol=1e-11)


@pytest.fixture
def accelerator(monkeypatch):
    """Torch tensors treated as if they were on an accelerator; counts what is copied to the host."""
    copies = []
    monkeypatch.setattr(budget_module, "is_accelerated", lambda x: True)
    monkeypatch.setattr("obrs._checks.is_accelerated", lambda x: True)
    monkeypatch.setattr(budget_module, "host_view", lambda x: copies.append(tuple(x.shape)) or x.detach().numpy())
    return copies


def test_accelerators_are_asked_once_per_solve(accelerator):
    torch = pytest.importorskip("torch")
    x, w = torch.tensor(draw((4, 300))), torch.tensor(np.random.default_rng(9).random((4, 300)))
    for weights in (None, w):
        log_c = solve_log_c(x, 2.6, axis=1, weights=weights)
        assert accelerator == [(6,)]  # two counts and what each row reaches, in one synchronisation
        accelerator.clear()
        solve_log_c(x, 2.6, axis=1, weights=weights, check=False)
        assert accelerator == []
        for i in range(4):
            assert 2.6 * exact.rate(x[i], log_c[i], None if weights is None else w[i]) == pytest.approx(1, rel=1e-12)


def test_jit_and_vmap_meet_the_budget_in_single_precision(single_precision_jax):
    import jax

    for sd in [1.0, 10.0]:
        log_ratio = draw(100_000, sd).astype(np.float32)
        log_c = jax.jit(lambda x: solve_log_c(x, 2.6))(single_precision_jax.asarray(log_ratio))
        assert abs(2.6 * exact.rate(log_ratio, log_c) - 1) <= tolerance(log_c, np.float32)
    rows = draw((5, 300)).astype(np.float32)
    mapped = jax.vmap(lambda x: solve_log_c(x, 2.6))(single_precision_jax.asarray(rows))
    np.testing.assert_allclose(mapped, solve_log_c(rows, 2.6, axis=1), rtol=1e-6)
    with pytest.raises(InputTypeError, match=r"groups cannot be solved inside jax.jit"):
        jax.jit(lambda x: solve_log_c(x, 2, groups=np.zeros(5, int)))(single_precision_jax.zeros(5))


# --- gradients ---------------------------------------------------------------------------------------------


def finite_differences(function, x, step=1e-6):
    return np.array([(function(x + step * e) - function(x - step * e)) / (2 * step) for e in np.eye(len(x))])


def gradient(backend, function, x):
    if backend == "torch":
        torch = pytest.importorskip("torch")
        leaf = torch.tensor(x, requires_grad=True)
        function(leaf).backward()
        return leaf.grad.numpy()
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    transform = jax.jit(jax.grad(function)) if backend == "jit" else jax.grad(function)
    return np.asarray(transform(jax.numpy.asarray(x)))


BACKENDS = ["torch", "jax", "jit"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("budget", [1.3, 4.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_is_that_of_finite_differences(backend, budget, weighted):
    x = draw(30, 2.0)
    x[3] = -np.inf
    weights = np.random.default_rng(8).random(30) if weighted else None
    got = gradient(backend, lambda v: solve_log_c(v, budget, weights=weights), x)
    finite = np.isfinite(x)

    def value(part):
        full = np.full(30, -np.inf)
        full[finite] = part
        return float(solve_log_c(full, budget, weights=weights))

    np.testing.assert_allclose(got[finite], finite_differences(value, x[finite]), atol=1e-6)
    assert got[3] == 0
    assert got.sum() == pytest.approx(-1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradient_of_exact_rejection_is_minus_one_at_the_largest(backend):
    x = draw(50)
    np.testing.assert_allclose(
        gradient(backend, lambda v: solve_log_c(v, 1e5), x), -np.eye(50)[np.argmax(x)], atol=1e-15
    )


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_gradient_flows_through_groups_and_axes(backend):
    x, labels = draw(24), np.arange(24) % 3
    by_group = gradient(backend, lambda v: solve_log_c(v, 2, groups=labels)[1], x)
    alone = gradient(backend, lambda v: solve_log_c(v, 2), x[labels == 1])
    np.testing.assert_allclose(by_group[labels == 1], alone, atol=1e-13)
    assert np.all(by_group[labels != 1] == 0)
    by_row = gradient(backend, lambda v: solve_log_c(v.reshape(8, 3), 2, axis=0)[1], x)
    np.testing.assert_allclose(by_row, by_group, atol=1e-13)


@pytest.mark.parametrize("backend", BACKENDS)
def test_budgets_of_many_problems_work_inside_jit_and_carry_a_gradient(backend):
    """The gradient of each row is that of the row alone, also where it has budget 1 or is floored."""
    x, budgets = draw((4, 7)), np.array([1.0, 1.5, 2.0, 50.0])
    both = gradient(backend, lambda v: solve_log_c(v, budgets, axis=1)[1:].sum(), x)
    for row in range(1, 4):
        alone = gradient(backend, lambda v, row=row: solve_log_c(v, float(budgets[row])), x[row])
        np.testing.assert_allclose(both[row], alone, atol=1e-12)
    assert np.all(both[0] == 0)


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_gradient_of_a_group_beyond_its_largest_ratio_is_that_of_its_sum(backend):
    """log c = log(n/K) - log sum r, where a group is not floored."""
    x = draw(12)
    got = gradient(backend, lambda v: solve_log_c(v, 1e5, groups=[0] * 12)[0], x)
    np.testing.assert_allclose(got, -np.exp(x) / np.sum(np.exp(x)), atol=1e-13)


def test_torch_transforms_work_without_checks():
    torch = pytest.importorskip("torch")
    x = torch.tensor(draw((4, 200)))
    rows = torch.vmap(lambda row: solve_log_c(row, 2.6))(x)
    np.testing.assert_allclose(rows.numpy(), solve_log_c(x.numpy(), 2.6, axis=1), atol=1e-12)
    got = torch.func.grad(lambda row: solve_log_c(row, 2.6))(x[0])
    np.testing.assert_allclose(got.numpy(), gradient("torch", lambda v: solve_log_c(v, 2.6), x[0].numpy()), atol=1e-12)


# --- properties --------------------------------------------------------------------------------------------


@given(
    arrays(
        st.sampled_from([np.float32, np.float64]),
        st.integers(1, 60),
        elements=st.floats(-5000, 5000, width=32) | st.just(-np.inf),
    ),
    st.floats(1, 1e12),
)
def test_any_ratios_and_budget_give_the_rate_or_a_budget_error(log_ratio, budget):
    positive = np.mean(log_ratio > -np.inf)
    try:
        log_c = solve_log_c(log_ratio, budget)
    except BudgetError:
        assert positive * budget < 1 or positive == 0
        return
    got, top = exact.rate(log_ratio, log_c), float(log_ratio.max())
    if float(log_c) == -top:  # exact rejection: at least the budget
        assert budget * got >= 1 - tolerance(log_c, log_ratio.dtype)
    elif budget > 1:
        assert abs(budget * got - 1) <= tolerance(log_c, log_ratio.dtype)
