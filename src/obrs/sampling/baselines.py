"""Simple methods that every sampler should be compared with: top-k, resampling, truncation of the latent.

Proposals are made and scored batch by batch. All scores are kept. Samples are kept only while they may still be part of
the output: at most 2n and one batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil, inf
from time import perf_counter
from typing import Any

import numpy as np

from .._arrays import host_view, like
from .._checks import check_budget, check_count, is_number, out_of_reach
from .._progress import Report, reporting
from ..draws import Purpose, uniform_columns
from ..errors import InputError
from ..types import Array
from .model import Model
from .proposals import Batch, concatenate, propose_batch, score_batch, take, warn_of_train_mode
from .samples import Calls, Samples, unjudged
from .streams import gather

__all__ = ["SIR", "TopK", "Truncation"]

Floats = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TopK:
    """Draw `n * budget` proposals and keep the n with the largest ratio.

    The output does not follow the target: only the region of largest ratio is left, and it shrinks as the budget grows.
    The samples look good and have little variety: high precision, low recall.

    Args:
        budget: Proposals per output, at least 1.
        batch_size: Proposals at a time; the result does not depend on it.

    Example:
        >>> from obrs.sampling.model import Model
        >>> samples = TopK(budget=4)(Model(lambda z: z[:, 0], lambda x: x, dim=1), 100)
        >>> len(samples), samples.proposed, bool(samples.x.min() > 0.4)
        (100, 400, True)

    References:
        | Zero-Shot Text-to-Image Generation (Ramesh et al., 2021), which keeps the best of 512
    """

    budget: float
    batch_size: int = 4096

    def __post_init__(self) -> None:
        check_budget(self.budget)
        check_count(self.batch_size, "batch_size")

    @classmethod
    def at_budget(cls, budget: float) -> "TopK":
        """Return the sampler with `budget` generator calls per output."""
        return cls(budget)

    def __call__(self, model: Model, n: int, *, seed: int = 0, progress: bool | None = None) -> Samples:
        """Return the n best proposals, in the order of their ids; ties go to the smaller id, r = 0 is never kept.

        Raises:
            BudgetError: Fewer than n proposals have r > 0.
        """
        n = check_count(n, "n")
        return _choose(self, model, _Best(n), n, seed=seed, progress=progress)


@dataclass(frozen=True)
class SIR:
    """Draw `n * budget` proposals and resample n of them with probabilities proportional to the ratio.

    Sampling–importance–resampling. With replacement an output follows the target up to a bias of order 1 / pool, at
    any budget. But outputs are not independent: proposals of large ratio occur several times. Without replacement
    nothing is repeated, but the bias stays: proposals of large ratio run out, so at a small budget the output is
    hardly better than the model.

    Args:
        budget: Proposals per output, at least 1.
        replace: Whether a proposal may occur more than once. If not, draws are made one after the other from what is
            left of the pool, and a budget of 1 returns the pool.
        batch_size: Proposals at a time; the result does not depend on it.

    Example:
        >>> from obrs.sampling.model import Model
        >>> model = Model(lambda z: z[:, 0], lambda x: x - 0.5, dim=1)  # from N(0, 1) to N(1, 1)
        >>> samples = SIR(budget=10)(model, 1000)
        >>> bool(abs(samples.x.mean() - 1) < 0.1), len(set(samples.ids)) < 1000
        (True, True)

    References:
        | Using the SIR Algorithm to Simulate Posterior Distributions (Rubin, 1988)
        | Improved Sampling-Importance Resampling and Reduced Bias Importance Sampling (Skare et al., 2003)
        | Weighted Random Sampling with a Reservoir (Efraimidis & Spirakis, 2006)
    """

    budget: float
    replace: bool = True
    batch_size: int = 4096

    def __post_init__(self) -> None:
        check_budget(self.budget)
        check_count(self.batch_size, "batch_size")

    @classmethod
    def at_budget(cls, budget: float) -> "SIR":
        """Return the sampler with `budget` generator calls per output."""
        return cls(budget)

    def __call__(self, model: Model, n: int, *, seed: int = 0, progress: bool | None = None) -> Samples:
        """Return n resampled proposals; without replacement in the order of their ids.

        Raises:
            BudgetError: No proposal has r > 0; without replacement, fewer than n have.
        """
        n = check_count(n, "n")
        chosen = _Slots(n, seed) if self.replace else _Best(n, seed)
        return _choose(self, model, chosen, n, seed=seed, progress=progress)


@dataclass(frozen=True)
class Truncation:
    """Truncate the latent: entries with |z| > threshold are drawn again until they lie inside.

    Entries inside stay as they are, so at a large threshold the output is that of the model. The critic is not used.
    What the generator makes of the outer latents is lost, good or bad. The samples concentrate around G(0): precision
    rises and recall falls, and nothing pulls them towards the target.

    Args:
        threshold: Largest |z|, above 0. The authors' figure shows 2, 1, 0.5 and 0.04.
        batch_size: Samples at a time; the result does not depend on it.

    Example:
        >>> from obrs.sampling.model import Model
        >>> samples = Truncation(threshold=0.5)(Model(lambda z: z, lambda x: x[:, 0], dim=3), 100)
        >>> bool(abs(samples.x).max() <= 0.5), samples.calls.generator, samples.calls.critic
        (True, 100, 0)

    References:
        | Large Scale GAN Training for High Fidelity Natural Image Synthesis (Brock et al., 2019), Sec. 3.1
        | Megapixel Size Image Creation Using Generative Adversarial Networks (Marchesi, 2017)
    """

    threshold: float = 1.0
    batch_size: int = 4096

    def __post_init__(self) -> None:
        if not is_number(self.threshold) or not float(self.threshold) > 0:
            raise InputError(f"threshold must be a number above 0, got {self.threshold!r}")
        check_count(self.batch_size, "batch_size")

    @classmethod
    def at_budget(cls, budget: float) -> "Truncation":
        """Return the sampler with its default threshold: it takes 1 generator call per output at any budget."""
        check_budget(budget)
        return cls()

    def __call__(self, model: Model, n: int, *, seed: int = 0, progress: bool | None = None) -> Samples:
        """Return n samples of truncated latents; `log_ratio` is NaN, as nothing is scored."""
        n = check_count(n, "n")
        warn_of_train_mode(model.generate)
        with reporting(n, progress) as report:
            return gather(self._blocks(model, n, seed, report), n)

    def _blocks(self, model: Model, n: int, seed: int, report: Report) -> Iterator[Samples]:
        for at in range(0, n, self.batch_size):
            begun, ids = perf_counter(), np.arange(at, min(at + self.batch_size, n))
            x = propose_batch(lambda ids: model.make(self._latent(model, ids, seed), model.label(ids, seed=seed)), ids)
            end = int(ids[-1]) + 1
            report(end, end)
            yield unjudged(x, ids, calls=Calls(generator=len(ids)), seconds=perf_counter() - begun)

    def _latent(self, model: Model, ids: Ints, seed: int) -> Array:
        latent = model.latent(ids, seed=seed)
        z = np.array(host_view(latent), np.float64)
        _truncate(z, ids, float(self.threshold), seed)
        return like(z, latent)


def _truncate(z: Floats, ids: Ints, threshold: float, seed: int) -> None:
    """Draw the entries of z outside the threshold again, in place, by rejection from a uniform.

    Exact, and quick at every threshold: for small ones most candidates are accepted, for large ones few entries
    are outside. Each round has its own columns, after those of the latents.
    """
    dim = z.shape[1]
    first = dim + dim % 2
    row, entry = np.nonzero(np.abs(z) > threshold)
    while row.size:
        here, back = np.unique(row, return_inverse=True)
        uniform = uniform_columns(ids[here], range(first, first + 2 * dim), seed=seed, purpose=Purpose.LATENT)
        candidate = threshold * (2 * uniform[back, entry] - 1)
        inside = uniform[back, dim + entry] < np.exp(-(candidate**2) / 2)
        z[row[inside], entry[inside]] = candidate[inside]
        row, entry, first = row[~inside], entry[~inside], first + 2 * dim


def _choose(
    sampler: TopK | SIR, model: Model, chosen: "_Best | _Slots", n: int, *, seed: int, progress: bool | None
) -> Samples:
    """Make `n * budget` proposals, and return the n that are chosen of them."""
    begun = perf_counter()
    size = max(n, ceil(n * float(sampler.budget) * (1 - 1e-12)))  # 10 times 1.1 makes 11 proposals, not 12
    warn_of_train_mode(model.generate, model.log_ratio)
    shelf, scores = _Shelf(2 * n), np.empty(size)
    with reporting(size, progress) as report:
        for at in range(0, size, sampler.batch_size):
            batch = np.arange(at, min(at + sampler.batch_size, size))
            x = propose_batch(partial(model.propose, seed=seed), batch)
            scores[batch] = score_batch(model.score, x, len(batch))[1]
            ids = chosen.add(batch, scores[batch])
            shelf.add(batch, x, np.unique(ids[ids >= 0]))
            report(int(batch[-1]) + 1, int(batch[-1]) + 1)
    if len(ids) < n or ids[0] < 0:
        raise out_of_reach(n / size, float(np.mean(scores > -inf)))
    cost, x = Calls(generator=size, critic=size), shelf.get(ids)
    return Samples(
        x=x,
        ids=ids,
        log_ratio=scores[ids],
        log_weight=np.zeros(n),
        proposed=size,
        executed=size,
        calls=cost,
        executed_calls=cost,
        seconds=perf_counter() - begun,
        next_id=size,
    )


class _Shelf:
    """Samples that may still be part of the output, by their ids; the others are thrown away now and then."""

    def __init__(self, most: int) -> None:
        self.most, self.ids = most, np.empty(0, np.int64)
        self.pieces: list[Batch] = []

    def add(self, ids: Ints, x: Batch, alive: Ints) -> None:
        """Take those of a batch that are among `alive`; both are sorted, and the ids of the batch have no gaps."""
        index = alive[np.searchsorted(alive, ids[0]) :] - ids[0]
        if index.size:
            self.pieces.append(take(x, index))
            self.ids = np.concatenate([self.ids, ids[index]])
        if len(self.ids) > self.most:
            self.pieces, self.ids = [self.get(alive)], alive

    def get(self, ids: Ints) -> Batch:
        """Return the samples with these ids."""
        return take(concatenate(self.pieces), np.searchsorted(self.ids, ids))


class _Best:
    """The n proposals of largest ratio; with a seed, of largest log-ratio plus Gumbel noise.

    The noise makes it n draws without replacement, each with probabilities proportional to the ratios that are left.
    """

    def __init__(self, n: int, seed: int | None = None) -> None:
        self.n, self.seed = n, seed
        self.ids, self.keys = np.empty(0, np.int64), np.empty(0)

    def add(self, ids: Ints, log_ratio: Floats) -> Ints:
        """Take a batch, and return the ids of the chosen so far; fewer than n while fewer have r > 0."""
        keys = log_ratio if self.seed is None else log_ratio + _gumbels(ids, self.seed)
        possible = log_ratio > -inf
        ids, keys = np.append(self.ids, ids[possible]), np.append(self.keys, keys[possible])
        if len(ids) > self.n:
            last = np.partition(keys, len(keys) - self.n)[len(keys) - self.n]
            best = keys > last
            best[np.flatnonzero(keys == last)[: self.n - np.count_nonzero(best)]] = True
            ids, keys = ids[best], keys[best]
        self.ids, self.keys = ids, keys
        return ids


def _gumbels(ids: Ints, seed: int) -> Floats:
    uniform = uniform_columns(ids, range(1), seed=seed, purpose=Purpose.SELECT)[:, 0]
    noise: Floats = -np.log(np.maximum(-np.log1p(-uniform), 2.0**-54))  # a uniform may be 0
    return noise


class _Slots:
    """n independent draws with probabilities proportional to the ratios, from a stream whose sum is not known.

    Let S be the sum of the ratios so far. A slot that took its proposal at S = s takes another one when S exceeds s / U
    for a uniform U. So at any S it still has its proposal with probability s / S, as it should, and one uniform decides
    about all proposals until then.
    """

    def __init__(self, n: int, seed: int) -> None:
        self.seed, self.log_sum = seed, -inf
        self.ids, self.turn = np.full(n, -1), np.zeros(n, np.int64)
        self.until = np.full(n, -inf)

    def add(self, ids: Ints, log_ratio: Floats) -> Ints:
        """Take a batch, and return the ids of the chosen so far, -1 where none is; an id may occur twice."""
        log_sum = np.logaddexp.accumulate(np.append(self.log_sum, log_ratio))[1:]  # bit by bit as in one batch
        self.log_sum = log_sum[-1]
        slot = np.flatnonzero(self.until < self.log_sum)
        while slot.size:
            at = np.searchsorted(log_sum, self.until[slot], side="right")
            self.ids[slot] = ids[at]
            keys = slot + len(self.ids) * self.turn[slot]
            uniform = uniform_columns(keys, range(1), seed=self.seed, purpose=Purpose.SELECT)[:, 0]
            self.until[slot] = log_sum[at] - np.log1p(-uniform)
            self.turn[slot] += 1
            slot = slot[self.until[slot] < self.log_sum]
        return self.ids
