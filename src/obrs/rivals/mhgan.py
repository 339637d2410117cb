"""Metropolis–Hastings over the proposals of a model, with the ratio as its target.

All chains of a block advance together. A block asks for the proposals of a few steps at a time, each proposal once, and
holds one sample per chain. Decisions need only the scores.
"""

from dataclasses import dataclass
from functools import partial
from math import ceil, inf
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from .._checks import check_budget, check_count
from .._progress import bar
from .._text import unknown_name
from ..draws import Purpose, uniform_columns
from ..errors import ExhaustedError, InputError
from ..sampling.proposals import Batch, concatenate, length, propose_batch, score_batch, take, warn_of_train_mode
from ..sampling.samples import Calls, Samples, join
from .model import Model, check_model

__all__ = ["MHGAN"]

Numbers = np.ndarray[Any, Any]

STARTS = ("real", "fake")
_RESTART, _START = 1, 2  # columns: decisions of a chain's restart, its real sample; column 0 has its own decisions
_MOST_CHAINS = 1000  # per output; then an error says that chains do not move


class _Ends(NamedTuple):
    """Where chains ended: samples, the ids and scores of their proposals, and which chains accepted any."""

    x: Batch
    ids: Numbers
    log_ratio: Numbers
    moved: Numbers


@dataclass(frozen=True)
class MHGAN:
    """Metropolis–Hastings on the samples of a model, one chain for each output.

    A chain is at x, gets a proposal x' from the model and moves to it with probability `min(1, r(x') / r(x))`. The
    output is where it is after `steps` proposals. Its stationary distribution is the target of the log-ratio, so that
    must be calibrated: the authors calibrate their critic on held-out data first, and `obrs.ratios.calibration` does so
    for the `log_ratio` of the model.

    A chain that starts at a real sample and never leaves it would return training data. As in the authors' code, it is
    then run again on its own proposals, with the first of them as the start and new decisions. So an output is always a
    sample of the model, and `steps=1` is the model itself. At r = 0 any proposal is accepted.

    Args:
        steps: Proposals per chain. The authors take 640.
        start: "real", a random one of the model's real samples, or "fake", the first proposal.
        discard_unmoved: Throw away chains that accepted nothing and run others, instead of a second run.
        batch_size: Proposals at a time, and chains at most; the result does not depend on it.

    Example:
        >>> real = np.random.default_rng(0).normal(1, 1, 500)
        >>> model = Model(lambda z: z[:, 0], lambda x: x - 0.5, dim=1, real=real)  # from N(0, 1) to N(1, 1)
        >>> samples = MHGAN(steps=20)(model, 400)
        >>> bool(abs(samples.x.mean() - 1) < 0.15)
        True
        >>> samples.calls
        Calls(generator=8000, critic=8400, generator_gradient=0, critic_gradient=0)

    References:
        | Metropolis-Hastings Generative Adversarial Networks (Turner et al., 2019)
        | Monte Carlo Sampling Methods Using Markov Chains and Their Applications (Hastings, 1970)
    """

    steps: int = 640
    start: str = "real"
    discard_unmoved: bool = False
    batch_size: int = 4096

    def __post_init__(self) -> None:
        check_count(self.steps, "steps")
        check_count(self.batch_size, "batch_size")
        if self.start not in STARTS:
            raise unknown_name(self.start, STARTS, "start")
        if self.discard_unmoved and self.start == "fake" and self.steps == 1:
            raise InputError("a chain of 1 step that starts at its only proposal never moves; raise steps")

    @classmethod
    def at_budget(cls, budget: float) -> "MHGAN":
        """Return the sampler with about `budget` generator calls per output: as many steps, to the nearest."""
        return cls(steps=round(check_budget(budget)))

    def __call__(self, model: Model, n: int, *, seed: int = 0, progress: bool | None = None) -> Samples:
        """Run chains until there are `n` outputs.

        Chain i owns the proposals `i * steps` to `(i + 1) * steps - 1`; `ids` says which of them is the output.

        Raises:
            ExhaustedError: Chains do not move, so that discarding leaves too few; `.partial` has the others.
        """
        n = check_count(n, "n")
        if self.start == "real" and (check_model(model).real is None or not length(model.real)):
            raise InputError("MHGAN with start='real' needs real samples; give Model(..., real=...)")
        warn_of_train_mode(model.generate, model.log_ratio)
        parts: list[Samples] = []
        chains = kept = 0
        with bar("sampling", n, progress) as update:
            while kept < n:
                if chains >= _MOST_CHAINS * n:
                    message = f"only {kept} of {chains} chains moved in {self.steps} steps, {n} are wanted"
                    raise ExhaustedError(f"{message}; raise steps, or leave out discard_unmoved", join(parts))
                left = n - kept
                some = ceil(left * (chains + 1) / (kept + 1)) if self.discard_unmoved else left
                block = np.arange(chains, chains + min(some, self.batch_size))
                parts.append(self._block(model, block, left, seed))
                chains, kept = chains + len(block), kept + len(parts[-1])
                update(kept)
        return join(parts)

    def _block(self, model: Model, chains: Numbers, most: int, seed: int) -> Samples:
        """Run a block of chains, keep at most `most` outputs and count the cost to the last of these."""
        begun = perf_counter()
        ends = self._run(model, chains, seed)
        index = np.flatnonzero(ends.moved) if self.discard_unmoved else np.arange(len(chains))
        used = len(chains) if len(index) <= most else int(index[most - 1]) + 1
        index = index[:most]
        return Samples(
            x=take(ends.x, index),
            ids=ends.ids[index],
            log_ratio=ends.log_ratio[index],
            log_weight=np.zeros(len(index)),
            proposed=used * self.steps,
            executed=len(chains) * self.steps,
            calls=self._cost(used),
            executed_calls=self._cost(len(chains)),
            seconds=perf_counter() - begun,
            next_id=(int(chains[0]) + used) * self.steps,
        )

    def _cost(self, chains: int) -> Calls:
        """Return the calls of chains: each proposal is made and scored once, a real start is scored."""
        return Calls(generator=chains * self.steps, critic=chains * (self.steps + (self.start == "real")))

    def _start_scores(self, model: Model, chains: Numbers, seed: int) -> Numbers:
        """Return the scores of the real samples at which chains start."""
        columns = range(_START, _START + 1)
        uniform = uniform_columns(chains * self.steps, columns, seed=seed, purpose=Purpose.CHAIN)[:, 0]
        size = length(model.real)
        index = np.minimum((uniform * size).astype(np.int64), size - 1)  # the product may round up to size
        return score_batch(model.score, take(model.real, index), len(index))

    def _run(self, model: Model, chains: Numbers, seed: int) -> _Ends:
        """Run chains from real samples, or from their first proposals.

        For a chain that has not left its real sample, the state of its second run is held. Before the first step that
        state has r = 0, so the first proposal is always taken.
        """
        anchor = self._start_scores(model, chains, seed) if self.start == "real" else None
        count, wide = len(chains), max(1, self.batch_size // len(chains))
        rows = np.arange(count)
        score, moved = np.full(count, -inf), np.zeros(count, bool)
        ids, x = np.full(count, -1), None
        for at in range(0, self.steps, wide):
            block = chains[:, None] * self.steps + np.arange(at, min(at + wide, self.steps))
            batch = propose_batch(partial(model.propose, seed=seed), block.reshape(-1))
            proposed = score_batch(model.score, batch, block.size).reshape(block.shape)
            uniform = uniform_columns(block, range(_RESTART + 1), seed=seed, purpose=Purpose.CHAIN)
            column = np.full(count, -1)  # of this block, where the chain is now
            for k in range(block.shape[1]):
                new, (leave, restart) = proposed[:, k], uniform[:, k].T
                if anchor is None:
                    goes = _accepts(leave, new, score)
                    moved |= goes & (at + k > 0)
                else:
                    leaves = _accepts(leave, new, np.where(moved, score, anchor))
                    goes = leaves | (~moved & _accepts(restart, new, score))
                    moved |= leaves
                score, column = np.where(goes, new, score), np.where(goes, k, column)
            here = column >= 0
            ids[here] = block[here, column[here]]
            position = rows * block.shape[1] + column
            if x is None:
                x = take(batch, position)
            elif here.any():
                x = take(concatenate([x, batch]), np.where(here, count + position, rows))
        return _Ends(x, ids, score, moved)


def _accepts(uniform: Numbers, new: Numbers, current: Numbers) -> Numbers:
    """Accept with probability min(1, r'/r), and always where r = 0."""
    with np.errstate(invalid="ignore"):  # -inf minus -inf, which does not count
        accepted: Numbers = (current == -inf) | (uniform < np.exp(np.minimum(new - current, 0.0)))
    return accepted
