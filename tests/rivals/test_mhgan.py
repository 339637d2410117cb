"""Metropolis–Hastings chains: their exact law after k steps, what they hand out, and what they cost."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from obrs.errors import ExhaustedError, InputError, UnknownNameError
from obrs.rivals import MHGAN, Model
from obrs.sampling.samples import Calls

# --- a model with few states, whose chains can be computed -------------------------------------------------------

EDGES = np.array([-0.8, 0.1, 1.8])
Q = np.diff(stats.norm.cdf([-np.inf, *EDGES, np.inf]))
RATIO = np.array([0.2, 1.0, 0.6, 6.0])
STARTS = np.array([1, 1, 2, 16])  # real samples in each state: most are where few chains leave


def few_states(ratio=RATIO):
    log_ratio = np.log(ratio, where=ratio > 0, out=np.full(len(ratio), -np.inf))
    real = np.repeat(np.arange(4), STARTS)
    return Model(
        generate=lambda z: np.searchsorted(EDGES, z[:, 0]),
        log_ratio=lambda x: log_ratio[x],
        dim=1,
        real=real,
    )


def acceptance(ratio):
    """Probability to go from one state (row) to a proposed one (column)."""
    accept = np.ones((4, 4))
    for x in range(4):
        if ratio[x] > 0:
            accept[x] = np.minimum(1, ratio / ratio[x])
    return accept


def one_step(law, accept):
    """The law after one transition: proposed from Q and accepted, or stayed."""
    stay = 1 - accept @ Q
    return law @ (Q * accept) + law * stay


def exact_law(ratio, steps, start, discard=False):
    """The law of the output, from the joint law of a chain and of its second run on the same proposals."""
    accept = acceptance(ratio)
    if start == "fake":
        law = Q
        for _ in range(steps - 1):
            law = one_step(law, accept)
        if discard:
            law = law - Q * (1 - accept @ Q) ** (steps - 1)
        return law / law.sum()
    real = STARTS / STARTS.sum()
    moved = real @ (Q * accept)
    tied = real[:, None] * Q * (1 - accept)  # by real sample and by state of the second run
    for _ in range(steps - 1):
        moved = one_step(moved, accept) + tied.sum(axis=1) @ (Q * accept)
        rejected = Q * (1 - accept)
        goes = np.einsum("sy,sj,yj->sj", tied, rejected, accept)
        stays = np.einsum("sy,sj,yj->sy", tied, rejected, 1 - accept)
        tied = goes + stays
    law = moved if discard else moved + tied.sum(axis=0)
    return law / law.sum()


def agrees(states, law):
    counts = np.bincount(states, minlength=4)
    possible = law > 1e-12
    assert counts[~possible].sum() == 0
    return stats.chisquare(counts[possible], law[possible] * len(states)).pvalue > 1e-3


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
@pytest.mark.parametrize("start", ["real", "fake"])
def test_law_after_k_steps_is_that_of_the_transition_matrix(steps, start):
    samples = MHGAN(steps=steps, start=start)(few_states(), 40_000, seed=steps)
    assert agrees(samples.x, exact_law(RATIO, steps, start))


@pytest.mark.parametrize(("steps", "start"), [(1, "real"), (2, "real"), (5, "real"), (2, "fake"), (4, "fake")])
def test_law_of_the_chains_that_moved_is_that_of_the_transition_matrix(steps, start):
    samples = MHGAN(steps=steps, start=start, discard_unmoved=True)(few_states(), 10_000)
    assert agrees(samples.x, exact_law(RATIO, steps, start, discard=True))


@pytest.mark.parametrize("start", ["real", "fake"])
def test_states_of_ratio_zero_are_left_at_once_and_never_entered(start):
    ratio = np.array([0.0, 1.0, 0.0, 6.0])
    for steps in (1, 2, 4):
        samples = MHGAN(steps=steps, start=start)(few_states(ratio), 4000)
        assert agrees(samples.x, exact_law(ratio, steps, start))
    samples = MHGAN(steps=60, start=start)(few_states(ratio), 500)
    assert set(samples.x) <= {1, 3}


def test_exact_law_of_this_file_tends_to_the_target():
    target = Q * RATIO / (Q @ RATIO)
    for start in ("real", "fake"):
        np.testing.assert_allclose(exact_law(RATIO, 200, start), target, atol=1e-9)


# --- a model in two dimensions with a known ratio ------------------------------------------------------------------

WIDTH, SPREAD = 1.5, 0.5


def plane(xp=np, dtype=None, **more):
    """From N(0, WIDTH² I) to an even mixture of N((±1, 0), SPREAD² I)."""

    def log_target(x):
        squares = [((x[:, 0] - at) ** 2 + x[:, 1] ** 2) / (2 * SPREAD**2) for at in (-1.0, 1.0)]
        return xp.log(xp.exp(-squares[0]) + xp.exp(-squares[1])) - float(np.log(4 * np.pi * SPREAD**2))

    def log_ratio(x):
        return log_target(x) + xp.sum(x * x, axis=1) / (2 * WIDTH**2) + float(np.log(2 * np.pi * WIDTH**2))

    rng = np.random.default_rng(5)
    real = SPREAD * rng.normal(size=(300, 2)) + np.stack([rng.choice([-1.0, 1.0], 300), np.zeros(300)], axis=1)
    like = xp.asarray(np.zeros(1)) if dtype is None else xp.asarray(np.zeros(1), dtype=dtype)
    real = xp.asarray(real) if dtype is None else xp.asarray(real, dtype=dtype)
    return replace(Model(lambda z: WIDTH * z, log_ratio, dim=2, real=real, like=like), **more)


def target_cdf(x):
    return (stats.norm.cdf(x, -1, SPREAD) + stats.norm.cdf(x, 1, SPREAD)) / 2


@pytest.mark.parametrize("start", ["real", "fake"])
def test_long_chains_sample_the_target(start):
    samples = MHGAN(steps=50, start=start)(plane(), 3000)
    assert stats.kstest(samples.x[:, 0], target_cdf).pvalue > 1e-3
    assert stats.kstest(samples.x[:, 1], stats.norm(0, SPREAD).cdf).pvalue > 1e-3


# --- outputs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("discard", [False, True])
def test_no_output_is_a_real_sample(discard):
    """The real samples have the largest ratio there is, so most short chains never leave them."""
    model = plane(real=np.tile([1.0, 0.0], (20, 1)))
    samples = MHGAN(steps=2, discard_unmoved=discard)(model, 300)
    assert not np.any(np.all(samples.x == [1.0, 0.0], axis=1))
    assert np.all(samples.ids >= 0)


def test_outputs_come_with_the_id_score_and_chain_they_come_from():
    model = plane()
    samples = MHGAN(steps=7)(model, 100, seed=3)
    np.testing.assert_array_equal(samples.ids // 7, np.arange(100))
    np.testing.assert_array_equal(samples.x, model.propose(samples.ids, seed=3))
    np.testing.assert_allclose(samples.log_ratio, model.log_ratio(samples.x))
    np.testing.assert_array_equal(samples.log_weight, np.zeros(100))


# --- reproducible ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", [MHGAN(6), MHGAN(6, start="fake"), MHGAN(2, discard_unmoved=True)])
@pytest.mark.parametrize("batch_size", [1, 7, 45, 100_000])
def test_result_does_not_depend_on_the_batch_size(sampler, batch_size):
    model = plane()
    expected = sampler(model, 80, seed=1)
    samples = replace(sampler, batch_size=batch_size)(model, 80, seed=1)
    np.testing.assert_array_equal(samples.ids, expected.ids)
    np.testing.assert_array_equal(samples.x, expected.x)
    assert (samples.calls, samples.proposed, samples.next_id) == (
        expected.calls,
        expected.proposed,
        expected.next_id,
    )


# --- cost ------------------------------------------------------------------------------------------------------------


def counting(model):
    """The model, and a record of how many items its callables saw at a time."""
    seen = {"generator": [], "critic": []}

    def generate(z):
        seen["generator"].append(len(z))
        return model.generate(z)

    def log_ratio(x):
        seen["critic"].append(len(x))
        return model.log_ratio(x)

    return replace(model, generate=generate, log_ratio=log_ratio), seen


@pytest.mark.parametrize(("start", "critic"), [("real", 11), ("fake", 10)])
def test_each_proposal_is_made_and_scored_once(start, critic):
    model, seen = counting(plane())
    samples = MHGAN(steps=10, start=start, batch_size=64)(model, 90)
    assert samples.calls == samples.executed_calls == Calls(generator=900, critic=90 * critic)
    assert (sum(seen["generator"]), sum(seen["critic"])) == (900, 90 * critic)
    assert (samples.proposed, samples.executed, samples.next_id) == (900, 900, 900)
    assert samples.seconds > 0


def test_discarded_chains_are_counted():
    model, seen = counting(plane(real=np.tile([1.0, 0.0], (20, 1))))
    samples = MHGAN(steps=2, discard_unmoved=True)(model, 300)
    chains = samples.ids[-1] // 2 + 1
    assert len(samples) == 300 < chains
    assert samples.calls == Calls(generator=2 * chains, critic=3 * chains)
    assert samples.executed_calls == Calls(generator=sum(seen["generator"]), critic=sum(seen["critic"]))
    assert samples.executed >= samples.proposed == samples.next_id == 2 * chains


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_bad_input_is_one_line():
    for make, error, message in [
        (lambda: MHGAN(steps=2.5), InputError, "steps must be a whole number of at least 1, got 2.5"),
        (lambda: MHGAN(2)(plane(), 0), InputError, "n must be a whole number"),
        (lambda: MHGAN(start="reel"), UnknownNameError, "unknown start 'reel'; did you mean 'real'"),
        (lambda: MHGAN(1, start="fake", discard_unmoved=True), InputError, "never moves; raise steps"),
        (lambda: MHGAN(2)(plane(real=None), 5), InputError, "MHGAN with start='real' needs real samples"),
        (lambda: MHGAN(2)(plane(real=np.zeros((0, 2))), 5), InputError, "needs real samples"),
    ]:
        with pytest.raises(error, match=message):
            make()
    assert len(MHGAN(2, start="fake")(plane(real=None), 5)) == 5


def test_chains_that_never_move_end_with_one_line():
    """The real samples have a ratio beyond that of any proposal."""
    model = Model(lambda z: z[:, 0], lambda x: np.where(x == 9.0, 800.0, 0.0), dim=1, real=np.array([9.0]))
    with pytest.raises(ExhaustedError, match=r"^only 0 of \d+ chains moved in 2 steps, 3 are wanted; raise steps"):
        MHGAN(2, discard_unmoved=True)(model, 3)
    assert len(MHGAN(2)(model, 3)) == 3
