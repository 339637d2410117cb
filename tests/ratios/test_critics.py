"""What a critic's output means: each score becomes its log-ratio, or one line says why it cannot."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_any_input import answers, things

import obrs
from obrs.errors import DivergenceError, InputError, InputTypeError, ObrsError, RatioError, UnknownNameError
from obrs.ratios.critics import (
    MEANINGS,
    as_log_ratio,
    at_time,
    from_class_logits,
    from_critic,
    from_joint_logits,
    from_log_likelihoods,
    from_logit,
    from_open_logits,
    from_probability,
    from_reward,
    to_log_ratio,
)

LABELS = np.asarray([0, 2, 1, 2])


def exact_logit(p):
    """`log p - log(1 - p)` of a float, with fifty digits."""
    with localcontext() as context:
        context.prec = 50
        p = Decimal(float(p))
        return float(p.ln() - (1 - p).ln())


# Each meaning against the densities of two Gaussians, P = N(1, 1) and Q = N(0, 2²)

X = np.linspace(-5, 6, 45)
LOG_P, LOG_Q = -((X - 1) ** 2) / 2, -(X**2) / 8 - np.log(2)
TRUTH = LOG_P - LOG_Q


def test_a_classifier_on_unequal_numbers_has_the_prior_taken_out():
    posterior = 3000 * np.exp(LOG_P) / (3000 * np.exp(LOG_P) + 500 * np.exp(LOG_Q))  # Bayes
    logit = np.log(posterior) - np.log1p(-posterior)
    np.testing.assert_allclose(from_logit(logit, n_real=3000, n_fake=500), TRUTH, rtol=1e-9)
    np.testing.assert_allclose(from_probability(posterior, n_real=3000, n_fake=500), TRUTH, rtol=1e-9)
    np.testing.assert_allclose(from_logit(logit, n_real=6, n_fake=1), TRUTH, rtol=1e-9, err_msg="only the share counts")


@pytest.mark.parametrize("name", [name for name in obrs.DIVERGENCES if name != "tv"])
def test_the_critic_of_each_divergence_gives_its_ratio_back(name, xp):
    optimum = obrs.DIVERGENCES[name].critic(xp.asarray(TRUTH))
    np.testing.assert_allclose(np.asarray(from_critic(optimum, name)), TRUTH, rtol=1e-7, atol=1e-9)


def test_the_critic_of_gan_is_the_log_of_its_sigmoid():
    logit = np.linspace(-30, 30, 13)
    np.testing.assert_allclose(from_critic(-np.logaddexp(0, -logit), "gan"), logit, rtol=1e-3)


def test_a_critic_that_only_tells_sides_has_no_ratio():
    for divergence in ("tv", obrs.pr(2)):
        with pytest.raises(DivergenceError, match=r"has no log_ratio: .*obrs\.refit\(.*FineTune\(critic\)\)$"):
            from_critic([0.5], divergence)
    with pytest.raises(UnknownNameError, match="unknown divergence 'kld'"):
        from_critic([0.5], "kld")


def test_a_critic_beyond_its_range_is_counted(xp):
    t = xp.asarray(np.asarray([-1.0, -1e-30, 0.0, 0.5]), dtype=xp.float32)  # log D, rounded to 0 where D is 1
    with pytest.warns(UserWarning, match="2 of 4 outputs lie at or beyond the end of what a gan critic can say"):
        log_ratio = np.asarray(from_critic(t, "gan"))
    np.testing.assert_array_equal(np.isinf(log_ratio), [False, False, True, True])
    as_log_ratio(lambda x: x, "f_critic", divergence="gan")  # no warning before there is a sample


def test_two_likelihoods_are_subtracted_and_a_sample_of_the_model_has_some_likelihood():
    np.testing.assert_array_equal(from_log_likelihoods(LOG_P, LOG_Q), TRUTH)
    np.testing.assert_array_equal(from_log_likelihoods([-np.inf, 1.0], [0.0, 0.0]), [-np.inf, 1])
    with pytest.raises(RatioError, match="log_q has 2 of 3 values that are not finite"):
        from_log_likelihoods([0.0, -np.inf, 0.0], [-np.inf, -np.inf, 0.0])
    with pytest.raises(InputError, match=r"must have one shape, got \(2,\) and \(2, 1\)"):
        from_log_likelihoods([0.0, 1.0], [[0.0], [1.0]])


def test_a_reward_is_divided_by_its_temperature():
    np.testing.assert_allclose(from_reward([1.0, -np.inf, 3.0], 0.5), [2, -np.inf, 6])
    np.testing.assert_array_equal(from_reward([1e308, -1e308], 1e-9, baseline=1e308), [0, -np.inf])
    for beta in (0, -1, np.nan, np.inf, "x", None, [1.0]):
        with pytest.raises(InputError, match="beta must be above 0 and finite, got"):
            from_reward([1.0], beta)
    with pytest.raises(InputError, match="beta 1e-300 is too small for float32"):
        from_reward(np.zeros(2, np.float32), 1e-300)
    with pytest.raises(InputError, match="baseline must be a finite number"):
        from_reward([1.0], 1, baseline=np.inf)


def joint_model(rng, classes=3):
    """Log-densities of p(x, y) and q(x, y) on ten values of x."""
    p, q = rng.dirichlet(np.ones(10 * classes)), rng.dirichlet(np.ones(10 * classes))
    return np.log(p.reshape(10, classes)), np.log(q.reshape(10, classes))


def test_classifiers_with_classes_give_the_ratio_of_each_class():
    rng = np.random.default_rng(0)
    log_p, log_q = joint_model(rng)
    within_p, within_q = (joint - np.log(np.exp(joint).sum(axis=0)) for joint in (log_p, log_q))
    x, y = rng.integers(0, 10, 50), rng.integers(0, 3, 50)
    truth = (within_p - within_q)[x, y]
    n_real, n_fake = 700 * np.exp(log_p).sum(axis=0), 300 * np.exp(log_q).sum(axis=0)  # per class, expected
    optimum = log_p - log_q + np.log(700 / 300)  # of a logit per class, and of softmax over six columns
    np.testing.assert_allclose(from_class_logits(optimum[x], y, n_real=n_real, n_fake=n_fake), truth, atol=1e-12)
    columns = np.concatenate([log_p + np.log(700), log_q + np.log(300)], axis=1) + rng.normal(size=(10, 1))
    np.testing.assert_allclose(from_joint_logits(columns[x], y, n_real=n_real, n_fake=n_fake), truth, atol=1e-12)
    balanced = within_p - within_q  # every class as often real as fake
    np.testing.assert_allclose(from_class_logits(balanced[x], y), truth, atol=1e-12)


def test_a_classifier_with_one_class_for_fakes_gives_the_ratio_of_all():
    rng = np.random.default_rng(1)
    log_p, log_q = joint_model(rng)
    marginal_p, marginal_q = (np.log(np.exp(joint).sum(axis=1)) for joint in (log_p, log_q))
    columns = np.concatenate([log_p + np.log(700), marginal_q[:, None] + np.log(300)], axis=1)
    shifted = columns + 700 * rng.normal(size=(10, 1))
    truth = marginal_p - marginal_q
    np.testing.assert_allclose(from_open_logits(shifted, n_real=700, n_fake=300), truth, atol=1e-11)


def test_classes_that_do_not_fit_are_refused():
    logits = np.zeros((4, 3))
    for call, message in [
        (lambda: from_class_logits(np.zeros(4), LABELS), r"logits must have shape \(n, classes\), got \(4,\)"),
        (lambda: from_class_logits(logits, [0, 1, 2]), r"labels must have shape \(4,\), one per row of logits"),
        (lambda: from_class_logits(logits, [0, 1, 2, 3]), "labels must be from 0 to 2, got 0 to 3"),
        (lambda: from_class_logits(logits, [0.0, 1.0, 2.0, 0.0]), "labels must be integer labels"),
        (lambda: from_class_logits(logits, LABELS, n_real=[1, 2], n_fake=[1, 1]), "one number per class, got 2 for 3"),
        (lambda: from_class_logits(logits, LABELS, n_real=[1, 2], n_fake=[1]), "of as many classes, got 2 and 1"),
        (lambda: from_joint_logits(logits, LABELS), r"must have shape \(n, 2 \* classes\), got \(4, 3\)"),
        (lambda: from_open_logits(np.zeros((4, 1))), r"must have shape \(n, classes \+ 1\), got \(4, 1\)"),
    ]:
        with pytest.raises(ObrsError, match=message):
            call()


# Saturated outputs


@pytest.mark.parametrize(("dtype", "largest"), [(np.float32, 700.0), (np.float64, 700.0), (np.float64, 1e300)])
def test_logits_are_kept_to_the_last_bit_however_large(dtype, largest):
    logit = np.asarray([-largest, -1.0, 0.0, 1e-7, 1.0, largest], dtype)
    np.testing.assert_array_equal(from_logit(logit), logit)
    twice = from_joint_logits(np.stack([logit / 2, -logit / 2], axis=1), np.zeros(6, int))
    np.testing.assert_array_equal(twice, logit)
    np.testing.assert_allclose(from_open_logits(np.stack([logit, 0 * logit], axis=1)), logit, rtol=1e-6)
    shifted = from_logit(logit, n_real=2, n_fake=1)
    assert shifted.dtype == dtype
    np.testing.assert_allclose(shifted, logit.astype(np.longdouble) - np.log(np.longdouble(2)), rtol=3e-7)


def test_probabilities_keep_all_the_digits_they_have():
    p = np.asarray([5e-324, 1e-300, 1e-20, 0.1, 0.5, 0.9, 1 - 1e-9, 1 - 1e-13])
    np.testing.assert_allclose(from_probability(p), [exact_logit(v) for v in p], rtol=1e-14)
    p = np.asarray([1e-45, 1e-30, 0.25, 0.75, 1 - 1e-5], np.float32)
    np.testing.assert_allclose(from_probability(p), [exact_logit(v) for v in p], rtol=3e-7)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_probabilities_that_have_lost_their_digits_are_told(dtype):
    eps = np.finfo(dtype).eps
    good, bad = dtype(1 - 20 * eps), dtype(1 - 10 * eps)
    from_probability(np.asarray([0.5, good], dtype))
    with pytest.warns(UserWarning, match="1 of 2 probabilities are so near 1 that rounding changes"):
        from_probability(np.asarray([0.5, bad], dtype))
    error = eps / 4 / (20 * eps)  # of rounding to nearest below 1, relative to 1 - p
    assert error < 0.02, "what is not warned about is right within two per cent"
    with pytest.raises(RatioError, match="1 of 2 probabilities are 1: the sigmoid has saturated"):
        from_probability(np.asarray([0.5, 1.0], dtype))


def test_bfloat16_probabilities_are_judged_by_their_own_rounding():
    torch = pytest.importorskip("torch")
    with pytest.warns(UserWarning, match="1 of 2 probabilities"):
        assert from_probability(torch.tensor([0.5, 0.95], dtype=torch.bfloat16)).dtype == torch.float32


@pytest.mark.parametrize("p", [[-0.1, 0.5], [0.5, 1.1], [0.5, np.nan]])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(InputError, match="p must be between 0 and 1, 1 of 2 are not"):
        from_probability(p)


# Every library


CALLS = {
    "from_logit": lambda x: from_logit(x, n_real=3, n_fake=1),
    "from_probability": lambda x: from_probability(x / 10),
    "from_critic": lambda x: from_critic(-x, "rkl"),
    "from_reward": lambda x: from_reward(x, 0.3, baseline=1.0),
    "from_log_likelihoods": lambda x: from_log_likelihoods(x, 2 * x),
    "from_class_logits": lambda x: from_class_logits(x, LABELS, n_real=[1, 2, 3], n_fake=[1, 1, 1]),
    "from_joint_logits": lambda x: from_joint_logits(x[:, :2], LABELS % 1),
    "from_open_logits": from_open_logits,
}
NUMBERS = np.asarray([[0.5, 1.0, 1.5], [2.0, 2.5, 3.0], [3.5, 4.0, 4.5], [5.0, 5.5, 6.0]])


@pytest.mark.parametrize("name", CALLS)
def test_library_and_dtype_are_kept(name, xp):
    expected = CALLS[name](NUMBERS)
    for dtype, tolerance in ((xp.float32, 1e-5), (xp.float64, 1e-12)):
        x = xp.asarray(NUMBERS, dtype=dtype)
        result = CALLS[name](x)
        assert type(result) is type(x)
        assert result.dtype == dtype
        np.testing.assert_allclose(np.asarray(result), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CALLS)
def test_gradients_pass_and_are_those_of_finite_differences(name):
    torch = pytest.importorskip("torch")
    x = torch.tensor(NUMBERS, requires_grad=True)
    assert torch.autograd.gradcheck(CALLS[name], x)


def test_a_probability_of_zero_does_not_poison_the_gradient():
    torch = pytest.importorskip("torch")
    p = torch.tensor([0.0, 0.5], requires_grad=True)
    out = from_probability(p)
    assert out[0] == -np.inf
    out[1].backward()
    np.testing.assert_allclose(p.grad, [0, 4])


def test_formulas_run_inside_jit():
    jax = pytest.importorskip("jax")
    for name, call in CALLS.items():
        np.testing.assert_allclose(jax.jit(call)(NUMBERS), call(NUMBERS), rtol=1e-5, err_msg=name)


counts = st.none() | st.sampled_from([1, 0, 2.5, np.nan, [1, 2], "a", 1e308])


@pytest.mark.filterwarnings("ignore:.*probabilities are so near 1", "ignore:.*at or beyond the end")
@settings(deadline=None, max_examples=40)
@given(
    things(), things(), counts, counts, st.sampled_from([1, 0, "b", 1e-300]), st.sampled_from(["kl", "gan", "tv", 3])
)
def test_whatever_is_thrown_at_a_formula_is_answered_or_refused_in_one_line(x, y, n_real, n_fake, beta, divergence):
    for formula in (from_logit, from_probability, from_open_logits):
        answers(formula, x, n_real=n_real, n_fake=n_fake)
    for formula in (from_class_logits, from_joint_logits):
        answers(formula, x, y, n_real=n_real, n_fake=n_fake)
    answers(from_log_likelihoods, x, y)
    answers(from_reward, x, beta)
    answers(from_critic, x, divergence)


# From a critic to log_ratio(x)

OPTIONS = {"reward": {"beta": 0.5}, "f_critic": {"divergence": "kl"}}
USABLE = [name for name in MEANINGS if name not in ("hinge", "wgan", "lsgan")]


@pytest.mark.parametrize("name", USABLE)
def test_a_critic_and_its_meaning_make_a_log_ratio(name, xp):
    x = xp.asarray(np.linspace(0.1, 0.9, 6))
    expected = to_log_ratio(x, name, **OPTIONS.get(name, {}))
    for critic in (lambda x: x, lambda x: xp.reshape(x, (-1, 1)), lambda x: xp.reshape(x, (-1, 1, 1, 1))):
        result = as_log_ratio(critic, name, **OPTIONS.get(name, {}))(x)
        assert tuple(result.shape) == (6,)
        np.testing.assert_array_equal(np.asarray(result), np.asarray(expected))


@pytest.mark.parametrize("name", ["hinge", "wgan", "lsgan"])
def test_scores_that_are_no_ratio_name_the_refit(name):
    for call in (lambda: to_log_ratio([1.0], name), lambda: as_log_ratio(lambda x: x, name)):
        with pytest.raises(
            InputError, match=r"no log-ratio: .*; make it one with obrs\.refit\(.*FineTune\(critic\)\)$"
        ):
            call()


@pytest.mark.parametrize(
    ("meaning", "options", "message"),
    [
        ("logits", {}, "unknown meaning of scores 'logits'; did you mean 'logit'?"),
        (3, {}, "unknown meaning of scores 3; there are: log_ratio, "),
        ("reward", {}, "scores that are a reward need beta"),
        ("f_critic", {}, "scores that are a f_critic need divergence"),
        ("logit", {"beta": 1}, "beta is for scores that are a reward, not a logit"),
        ("reward", {"beta": 1, "n_real": 1}, "n_real is for scores that are a logit or probability, not a reward"),
        ("logit", {"n_real": 1}, "n_real and n_fake are given together, or not at all"),
        ("logit", {"n_real": 0, "n_fake": 1}, "n_real must be above 0 and finite, got 0.0"),
        ("logit", {"n_real": [[1]], "n_fake": 1}, "n_real must be one number, got shape (1, 1)"),
        ("f_critic", {"divergence": "tv"}, "tv has no log_ratio"),
    ],
)
def test_a_wrong_meaning_is_told_before_sampling(meaning, options, message):
    for call in (lambda: to_log_ratio([0.5], meaning, **options), lambda: as_log_ratio(abs, meaning, **options)):
        with pytest.raises(ObrsError) as caught:
            call()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_what_a_critic_returns_is_checked():
    with pytest.raises(InputError, match=r"shape \(n,\) or \(n, 1\), got \(4, 10\); if it has one per class, see"):
        as_log_ratio(lambda x: np.zeros((4, 10)))(None)
    with pytest.raises(InputError, match=r"got \(\)"):
        as_log_ratio(lambda x: np.asarray(1.0))(None)
    with pytest.raises(InputTypeError, match="must return an array, got list"):
        as_log_ratio(lambda x: [1.0])(None)
    with pytest.raises(InputTypeError, match="critic must be a callable on batches, got ndarray; see to_log_ratio"):
        as_log_ratio(np.zeros(3))


def test_a_wrapped_torch_critic_samples_and_train_mode_is_seen_through_the_wrapper():
    torch = pytest.importorskip("torch")
    critic = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Dropout())
    log_ratio = as_log_ratio(critic)

    def propose(ids):
        return obrs.normals(ids, 2, seed=0, like=torch.zeros(1))

    with pytest.warns(UserWarning, match="train mode"):
        obrs.sample(propose, log_ratio, 10, budget=2)
    critic.eval()
    assert len(obrs.sample(propose, log_ratio, 10, budget=2)) == 10


def test_a_discriminator_with_time_is_asked_at_one_time(xp):
    seen = []

    def discriminator(x, times):
        seen.append(times)
        return xp.reshape(x[:, 0] * 700.0 + times, (-1, 1))

    x = xp.asarray(np.asarray([[-1.0, 0.0], [1.0, 0.0]]), dtype=xp.float32)
    result = at_time(discriminator, 1e-5)(x)
    assert type(result) is type(x)
    assert seen[0].dtype == x.dtype
    assert tuple(seen[0].shape) == (2,)
    np.testing.assert_allclose(np.asarray(result), [-700, 700], rtol=1e-6, err_msg="nothing is clipped")
    with pytest.raises(InputError, match="t must be one finite time, got 'now'"):
        at_time(discriminator, "now")
    with pytest.raises(InputTypeError, match="must be a callable of"):
        at_time(x, 0.0)
