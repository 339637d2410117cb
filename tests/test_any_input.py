"""Whatever is thrown at a public function: the right answer or an ObrsError, never a crash, hang or silent NaN."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import obrs
from obrs.errors import ObrsError
from obrs.rules import RULES, from_json, to_json

pytestmark = pytest.mark.filterwarnings("error")
relaxed = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
brief = settings(relaxed, max_examples=60)

DTYPES = [np.float16, np.float32, np.float64, np.longdouble, np.int8, np.int64, np.uint8, np.bool_, np.complex64]
EXTREME = [0.0, -0.0, 1e-320, 700.0, -750.0, 5000.0, -5000.0, 1e308, -1e308, np.inf, -np.inf, np.nan]


@st.composite
def numbers(draw):
    """An array of any dtype and shape, with extreme values, perhaps strided or read-only."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6))
    values = draw(hnp.arrays(np.float64, shape, elements=st.sampled_from(EXTREME) | st.floats(-30, 30)))
    dtype = draw(st.sampled_from(DTYPES) | st.just(np.float64))
    with np.errstate(all="ignore"):
        x = np.asarray(
            np.nan_to_num(values, posinf=9, neginf=-9).astype(dtype)
            if np.dtype(dtype).kind in "iu"
            else values.astype(dtype)
        )
    if draw(st.booleans()) and x.ndim:
        x = x[::-1]
    if draw(st.booleans()) and x.ndim > 1:
        x = x.T
    if draw(st.booleans()) and x.ndim:
        x.flags.writeable = False
    return x


@st.composite
def things(draw):
    """Arrays of every library, and what is no array at all."""
    x = draw(numbers())
    kind = draw(st.sampled_from(["numpy", "numpy", "list", "torch", "bfloat16", "jax", "other"]))
    if kind == "list":
        return x.tolist()
    if kind == "other":
        return draw(st.sampled_from([None, "text", b"bytes", {}, object(), [[1], [1, 2]], range(3), 3.5, [None]]))
    if kind in ("torch", "bfloat16") and x.dtype not in (np.longdouble,):
        torch = pytest.importorskip("torch")
        tensor = torch.from_numpy(x.copy())
        return tensor.to(torch.bfloat16) if kind == "bfloat16" and not tensor.is_complex() else tensor
    if kind == "jax" and x.dtype != np.longdouble:
        jnp = pytest.importorskip("jax.numpy")
        with np.errstate(all="ignore"):
            return jnp.asarray(x)
    return x


budgets = st.sampled_from([1, 1.0000001, 2, 2.6, 1e6, 1e300, 0.25, 0, -1, np.nan, np.inf, "4", None]) | st.floats(1, 50)
WEIGHTS = st.none() | st.sampled_from([1.0, [1.0], 0.0, -1.0, np.nan, "w"]) | things()


def answers(function, *arguments, **options):
    """Call it; return its answer, or None if it refused in one line."""
    try:
        return function(*arguments, **options)
    except ObrsError as error:
        assert str(error)
        assert "\n" not in str(error)
        return None


def values(x):
    return np.asarray(x.detach().double().numpy() if hasattr(x, "detach") else x, dtype=np.float64)


@relaxed
@given(things(), budgets, WEIGHTS, st.sampled_from([None, None, 0, 1, -1, 7, "a"]))
def test_solve_log_c(log_ratio, budget, weights, axis):
    log_c = answers(obrs.solve_log_c, log_ratio, budget, weights=weights, axis=axis)
    assert log_c is None or not np.any(np.isnan(values(log_c)))


@relaxed
@given(things(), budgets, things() | hnp.arrays(np.int64, st.integers(0, 6), elements=st.integers(-1, 3)))
def test_solve_log_c_by_groups(log_ratio, budget, groups):
    log_c = answers(obrs.solve_log_c, log_ratio, budget, groups=groups)
    assert log_c is None or not np.any(np.isnan(values(log_c)))


@relaxed
@given(things(), budgets)
def test_unchecked_solver(log_ratio, budget):
    log_c = answers(obrs.solve_log_c, log_ratio, budget, check=False)
    assert log_c is None or not np.any(np.isnan(values(log_c)))


@relaxed
@given(st.sampled_from(sorted(RULES)), things(), budgets, things())
def test_rules(name, log_ratio, budget, fresh):
    arguments = {"unbudgeted": [], "grouped": [budget, np.zeros(np.shape(values_or_none(log_ratio)), int)]}
    rule = answers(RULES[name].fit, log_ratio, *arguments.get(name, [budget]))
    if rule is None:
        return
    assert from_json(to_json(rule)) == rule
    labels = np.zeros(np.shape(values_or_none(fresh)), int)
    log_a = answers(rule, fresh, labels)
    if log_a is not None:
        assert np.all(values(log_a) <= 0)
        assert not np.any(np.isnan(values(rule.log_weight(fresh, labels))))


PER_GROUP = (
    st.sampled_from([None, [1, 1], [0, 3], {0: 1, 1: 2}, {"a": 1}, {0: "x"}, "equal", 0.5, [np.nan, 1]]) | things()
)
LABELS = (
    things()
    | hnp.arrays(np.int64, st.integers(0, 6), elements=st.integers(-1, 3))
    | st.lists(st.sampled_from(["a", "b", 1, 0, None, 1.5, np.nan, True, (1,), "", {}]), max_size=6)
    | st.lists(st.sampled_from(["a", "bb", ""]), max_size=6)
)


@brief
@given(things(), budgets | PER_GROUP, LABELS, PER_GROUP, st.sampled_from([None, 0.9, 2, "x"]))
def test_groups_of_any_kind(log_ratio, budget, groups, shares, confidence):
    rule = answers(obrs.Grouped.fit, log_ratio, budget, groups, shares=shares, confidence=confidence)
    if rule is None:
        return
    assert len(rule.groups) == len(rule.labels)
    assert from_json(to_json(rule)) == rule
    log_a = rule(log_ratio, groups) if not isinstance(groups, tuple | dict) else None
    if log_a is not None:
        assert np.all(values(log_a) <= 0)
    answers(lambda: obrs.Profile(log_ratio).plan([budget], groups=groups, shares=shares))


@brief
@given(things(), st.integers(-1, 4) | PER_GROUP, LABELS, PER_GROUP)
def test_selection_by_groups_of_any_kind(log_ratio, n, groups, shares):
    chosen = answers(obrs.select, log_ratio, n, groups=groups, shares=shares)
    if chosen is not None:
        pi = values(obrs.selection.inclusion_probability(log_ratio, n, groups=groups, shares=shares))
        assert len(chosen) == pytest.approx(pi.sum(), rel=1e-5)


def values_or_none(x):
    try:
        return values(x)
    except Exception:
        return np.zeros(())


@relaxed
@given(st.sampled_from(sorted(obrs.divergences.DIVERGENCES)), things())
def test_divergences(name, log_u):
    divergence = obrs.divergences.DIVERGENCES[name]
    for function in (
        divergence.f,
        divergence.conjugate,
        divergence.critic,
        divergence.f_star_of_f_prime,
        divergence.log_ratio,
    ):
        result = answers(function, log_u)
        if result is not None:
            nan_in = np.isnan(values(log_u))
            np.testing.assert_array_equal(np.isnan(values(result)), nan_in)


@relaxed
@given(
    things(),
    st.sampled_from([0, 1, 2**64 - 1, 2**64, -1, 1.5, "s", None, True]),
    st.sampled_from([0, 1, 3, -1, 1.5, None]),
)
def test_draws(ids, seed, dim):
    u = answers(obrs.uniforms, ids, seed=seed)
    assert u is None or np.all((values(u) >= 0) & (values(u) < 1))
    z = answers(obrs.normals, ids, dim, seed=seed)
    assert z is None or np.all(np.isfinite(values(z)))


@relaxed
@given(things(), WEIGHTS, budgets, st.sampled_from([0.9, 1.0, 0.0, "r", None]))
def test_profiles(log_ratio, weights, budget, recall):
    profile = answers(obrs.Profile, log_ratio, weights)
    if profile is None:
        return
    plan = answers(profile.plan, [budget], recall=recall)
    for value in plan[0].values() if plan else ():
        assert not (isinstance(value, float) and np.isnan(value))
    for name in ("kl", "tv", "gan", "neyman"):
        left = answers(profile.divergence, name, budget)
        assert left is None or left >= 0
        answers(profile.bound, name, budget)


@relaxed
@given(things(), budgets, st.sampled_from([0.5, 0.999, 0, 1, "c", np.nan]))
def test_confidence(log_ratio, budget, confidence):
    rule = answers(obrs.Budgeted.fit, log_ratio, budget, confidence=confidence)
    assert rule is None or 1 <= rule.budget <= budget


@relaxed
@given(
    st.text(max_size=40) | st.sampled_from(['{"rule": "drs"}', '{"rule": "grouped", "labels": [[1]], "log_c": [0]}'])
)
def test_saved_rules(text):
    answers(from_json, text)


@relaxed
@given(st.sampled_from([0, 0.5, 4, np.inf, -1, np.nan, "x", None, [1.0]]))
def test_parameters(value):
    answers(obrs.divergences.pr, value)
