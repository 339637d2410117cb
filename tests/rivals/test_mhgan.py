"""Metropolis–Hastings chains: their exact law after k steps, what they hand out, and what they cost."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from obrs.rivals import MHGAN, Model

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


# --- outputs ---------------------------------------------------------------------------------------------------------


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


# --- what goes wrong -------------------------------------------------------------------------------------------------
