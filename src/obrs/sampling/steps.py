"""One step of rejection: make proposals, score them, and judge them by a rule."""

from time import perf_counter
from typing import Any

import numpy as np

from ..draws import Purpose, uniform_columns
from ..errors import InputError
from ..types import LogRatio, Proposal, Rule
from .batches import concatenate, length, take
from .callables import propose_batch, score_batch
from .progress import Report
from .samples import Calls, Samples

__all__ = ["Ahead", "deciding_uniforms", "judge", "make"]

_AHEAD = 1 << 15


def make(
    propose: Proposal, log_ratio: LogRatio, ids: Any, size: int, report: Report = lambda kept, proposed: None
) -> Samples:
    """Make and score proposals, `size` at a time; nothing is judged yet."""
    begun = perf_counter()
    made, scores = [], []
    for at in range(0, len(ids), size):
        batch = propose_batch(propose, ids[at : at + size])
        made.append(batch)
        scores.append(score_batch(log_ratio, batch, length(batch))[1])
        report(at + length(batch), at + length(batch))
    values, cost = np.concatenate(scores), Calls(generator=len(ids), critic=len(ids))
    seconds = perf_counter() - begun
    zeros = np.zeros(len(ids))
    return Samples(concatenate(made), ids, values, zeros, len(ids), len(ids), cost, cost, seconds, int(ids[-1]) + 1)


def deciding_uniforms(ids: Any, seed: int) -> Any:
    """Return the uniforms of the stream that `obrs.accept` decides by."""
    return uniform_columns(ids, range(1), seed=seed, purpose=Purpose.ACCEPT)[:, 0]


class Ahead:
    """The uniforms of consecutive ids, drawn many batches at a time: while a network waits, time is dear."""

    def __init__(self, seed: int) -> None:
        self.seed, self.start, self.drawn = seed, 0, np.empty(0)

    def __call__(self, low: int, high: int) -> Any:
        """Return the uniforms of the ids from `low` to before `high`."""
        if not self.start <= low <= high <= self.start + len(self.drawn):
            self.start, self.drawn = low, deciding_uniforms(np.arange(low, max(high, low + _AHEAD)), self.seed)
        return self.drawn[low - self.start : high - self.start]


def judge(made: Samples, rule: Rule, uniform: Any) -> Samples:
    """Keep what the rule accepts: a uniform of the id, compared in float64."""
    begun = perf_counter()
    log_a = np.asarray(rule(made.log_ratio, made.x), dtype=np.float64)
    if log_a.shape != made.log_ratio.shape:
        raise InputError(f"a rule must return one number per log-ratio, {made.log_ratio.shape}, got {log_a.shape}")
    index = np.flatnonzero(uniform < np.exp(log_a))
    kept = made.log_ratio[index]
    x = take(made.x, index)
    weight = np.asarray(rule.log_weight(kept, x), dtype=np.float64)
    return Samples(
        x,
        made.ids[index],
        kept,
        weight,
        made.proposed,
        made.executed,
        made.calls,
        made.executed_calls,
        made.seconds + perf_counter() - begun,
        made.next_id,
    )
