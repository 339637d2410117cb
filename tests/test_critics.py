"""What a critic's output means: each score becomes its log-ratio, or one line says why it cannot."""

import numpy as np
import pytest

import obrs
from obrs.critics import (
    KINDS,
    WITHOUT_RATIO,
    at_time,
    from_class_logits,
    from_critic,
    from_log_likelihoods,
    from_logit,
    from_probability,
    from_reward,
    to_log_ratio,
    wrap_critic,
)
from obrs.errors import DivergenceError, InputError, InputTypeError, ObrsError, RatioError

# Each kind against the densities of two Gaussians, P = N(1, 1) and Q = N(0, 2²)

X = np.linspace(-5, 6, 45)
LOG_P, LOG_Q = -((X - 1) ** 2) / 2, -(X**2) / 8 - np.log(2)
TRUTH = LOG_P - LOG_Q
LABELS = np.asarray([0, 2, 1, 2])


def test_a_classifier_on_unequal_numbers_has_the_prior_taken_out():
    posterior = 3000 * np.exp(LOG_P) / (3000 * np.exp(LOG_P) + 500 * np.exp(LOG_Q))  # Bayes
    logit = np.log(posterior) - np.log1p(-posterior)
    np.testing.assert_allclose(from_logit(logit, n_real=3000, n_fake=500), TRUTH, rtol=1e-9)
    np.testing.assert_allclose(from_probability(posterior, n_real=3000, n_fake=500), TRUTH, rtol=1e-9)
    with pytest.raises(InputError, match="n_fake must be a finite number above 0, got None"):
        from_logit(logit, n_real=3000)


@pytest.mark.parametrize("name", [name for name in obrs.divergences.DIVERGENCES if name != "tv"])
def test_the_critic_of_each_divergence_gives_its_ratio_back(name, xp):
    optimum = obrs.divergences.DIVERGENCES[name].critic(xp.asarray(TRUTH))
    np.testing.assert_allclose(np.asarray(from_critic(optimum, name)), TRUTH, rtol=1e-7, atol=1e-9)


def test_a_critic_that_only_tells_sides_has_no_ratio():
    for divergence in ("tv", obrs.divergences.pr(2)):
        with pytest.raises(DivergenceError, match=r"has no log_ratio: .*obrs\.refit\(.*FineTune\(critic\)\)$"):
            from_critic([0.5], divergence)


def test_two_likelihoods_are_subtracted_and_a_sample_of_the_model_has_some_likelihood():
    np.testing.assert_array_equal(from_log_likelihoods(LOG_P, LOG_Q), TRUTH)
    np.testing.assert_array_equal(from_log_likelihoods([-np.inf, 1.0], [0.0, 0.0]), [-np.inf, 1])
    with pytest.raises(RatioError, match="log_q has 1 of 3 values that are not finite"):
        from_log_likelihoods([0.0, -1.0, 0.0], [-np.inf, 0.0, 0.0])
    with pytest.raises(InputError, match=r"must have one shape, got \(2,\) and \(2, 1\)"):
        from_log_likelihoods([0.0, 1.0], [[0.0], [1.0]])


def test_a_reward_is_divided_by_its_temperature():
    np.testing.assert_allclose(from_reward([1.0, -np.inf, 3.0], 0.5), [2, -np.inf, 6])
    for beta in (0, np.nan, "x", None):
        with pytest.raises(InputError, match="beta must be a finite number above 0, got"):
            from_reward([1.0], beta)


def joint_model(rng, classes=3):
    """Log-densities of p(x, y) and q(x, y) on ten values of x."""
    p, q = rng.dirichlet(np.ones(10 * classes)), rng.dirichlet(np.ones(10 * classes))
    return np.log(p.reshape(10, classes)), np.log(q.reshape(10, classes))


def test_classifiers_with_classes_give_the_ratio_of_each_class():
    rng = np.random.default_rng(0)
    log_p, log_q = (joint - np.log(np.exp(joint).sum(axis=0)) for joint in joint_model(rng))  # within each class
    x, y = rng.integers(0, 10, 50), rng.integers(0, 3, 50)
    truth = (log_p - log_q)[x, y]
    np.testing.assert_allclose(from_class_logits((log_p - log_q)[x], y), truth, atol=1e-12)


def test_a_probability_of_one_has_lost_its_ratio_and_one_of_zero_is_r_zero():
    with pytest.raises(RatioError, match="1 of 2 probabilities are 1: the sigmoid has saturated"):
        from_probability([0.5, 1.0])
    torch = pytest.importorskip("torch")
    p = torch.tensor([0.0, 0.5], requires_grad=True)
    out = from_probability(p)
    assert out[0] == -np.inf
    out[1].backward()
    np.testing.assert_allclose(p.grad, [0, 4])


# Every library

CALLS = {
    "from_logit": lambda x: from_logit(x, n_real=3, n_fake=1),
    "from_probability": lambda x: from_probability(x / 10),
    "from_critic": lambda x: from_critic(-x, "rkl"),
    "from_reward": lambda x: from_reward(x, 0.3),
    "from_log_likelihoods": lambda x: from_log_likelihoods(x, 2 * x),
    "from_class_logits": lambda x: from_class_logits(x, LABELS),
}
NUMBERS = np.asarray([[0.5, 1.0, 1.5], [2.0, 2.5, 3.0], [3.5, 4.0, 4.5], [5.0, 5.5, 6.0]])


@pytest.mark.parametrize("name", CALLS)
def test_library_and_dtype_are_kept(name, xp):
    expected = CALLS[name](NUMBERS)
    for dtype, tolerance in ((xp.float32, 1e-5), (xp.float64, 1e-12)):
        x = xp.asarray(NUMBERS, dtype=dtype)
        result = CALLS[name](x)
        assert (type(result), result.dtype) == (type(x), dtype)
        np.testing.assert_allclose(np.asarray(result), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CALLS)
def test_gradients_pass_and_formulas_run_inside_jit(name):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    assert torch.autograd.gradcheck(CALLS[name], torch.tensor(NUMBERS, requires_grad=True))
    np.testing.assert_allclose(jax.jit(CALLS[name])(NUMBERS), CALLS[name](NUMBERS), rtol=1e-5)


# From a critic to log_ratio(x)

OPTIONS = {"reward": {"beta": 0.5}, "f_critic": {"divergence": "kl"}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_critic_and_its_kind_make_a_log_ratio(kind, xp):
    x = xp.asarray(np.linspace(0.1, 0.9, 6))
    expected = to_log_ratio(x, kind, **OPTIONS.get(kind, {}))
    for critic in (lambda x: x, lambda x: xp.reshape(x, (-1, 1)), lambda x: xp.reshape(x, (-1, 1, 1, 1))):
        result = wrap_critic(critic, kind, **OPTIONS.get(kind, {}))(x)
        assert tuple(result.shape) == (6,)
        np.testing.assert_array_equal(np.asarray(result), np.asarray(expected))


REFIT = r"is no log-ratio: .*; make it one with obrs\.refit\(.*FineTune\(critic\)\)$"


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        *((kind, {}, REFIT) for kind in WITHOUT_RATIO),
        ("f_critic", {"divergence": "tv"}, "tv has no log_ratio"),
    ],
)
def test_a_wrong_kind_is_refused_before_sampling(kind, options, message):
    for call in (lambda: to_log_ratio([0.5], kind, **options), lambda: wrap_critic(abs, kind, **options)):
        with pytest.raises(ObrsError, match=message):
            call()


def test_a_discriminator_with_time_is_asked_at_one_time(xp):
    seen = []

    def discriminator(x, times):
        seen.append(times)
        return xp.reshape(x[:, 0] * 700.0 + times, (-1, 1))

    x = xp.asarray(np.asarray([[-1.0, 0.0], [1.0, 0.0]]), dtype=xp.float32)
    result = at_time(discriminator, 1e-5)(x)
    assert type(result) is type(x)
    assert (seen[0].dtype, tuple(seen[0].shape)) == (x.dtype, (2,))
    np.testing.assert_allclose(np.asarray(result), [-700, 700], rtol=1e-6, err_msg="nothing is clipped")
    with pytest.raises(InputTypeError, match="and one time, got"):
        at_time(discriminator, "now")
