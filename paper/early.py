"""Split a budget between two stages of rejection, by what the ratios alone say."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from obrs._checks import check_budget
from obrs.divergences import DIVERGENCES
from obrs.errors import InputError
from obrs.groups import groups_of
from obrs.rules import Stages

__all__ = ["divergence_left", "plan_stages"]

_CHOICES = 25  # budgets of the early stage that are tried


def divergence_left(stages: Stages, log_ratios: Sequence[Any], groups: Any = None) -> float:
    """Return the KL of the target from what is kept, as far as the last ratio knows.

    The log-ratios are of proposals from the model, for each stage. With groups, labels for which the stages have
    constants of their own, it is the mean over them, each with a ratio of mean 1: their shares are as proposed.

    Example:
        >>> final = np.log([3.0, 0.6, 0.3, 0.1])
        >>> round(divergence_left(Stages.fit([final], [1.0]), [final]), 3)
        0.599
    """
    x, a = np.asarray(log_ratios[-1], np.float64), np.exp(np.asarray(stages(log_ratios, groups), np.float64))
    code = np.zeros(len(x), np.intp) if groups is None else groups_of(groups, x.shape).code
    top = x.max()
    size = np.bincount(code)
    mean_ratio, rate = (np.bincount(code, w) / size for w in (np.exp(x - top), a))
    kept = a > 0
    log_u = x[kept] - np.log(a[kept]) - top + (np.log(rate) - np.log(mean_ratio))[code[kept]]
    mass = a[kept] / rate[code[kept]] / len(x)
    return float(mass @ np.asarray(DIVERGENCES["kl"].f(log_u)))


def plan_stages(
    log_ratios: Sequence[Any], share: float, cost: float, *, groups: Any = None, slack: float = 0.0
) -> Stages:
    """Split a budget between two stages: of the ways to spend `cost` per kept sample, the one with least KL left.

    No early rejection is one of these ways. So the result is never worse than OBRS at the end alone, in KL and on these
    proposals. That takes the ratios at their word. An early one is often less sure than it says, and the best split
    hardly better than some that reject less early: `slack` prefers those.

    Args:
        log_ratios: The log-ratios of the same proposals, early and at the end.
        share: The part of a sample's cost that is spent when the early stage decides.
        cost: What a kept sample may cost, in whole samples, at least 1.
        groups: Labels, for one constant per label.
        slack: In [0, 1): of all splits that gain at least `1 - slack` of what the best one gains over the end alone,
            the one whose early stage keeps most.

    Example:
        >>> from obrs import normals
        >>> z = normals(range(4000), 2, seed=0)
        >>> early, final = 0.8 * z[:, 0], 0.8 * z[:, 0] + 0.2 * z[:, 1]
        >>> stages = plan_stages([early, final], 0.5, cost=2)
        >>> stages.budgets[0] > 1, round(stages.cost([0.5]), 6)
        (True, 2.0)
    """
    cost = check_budget(cost)
    if len(log_ratios) != 2 or not 0 <= slack < 1:
        raise InputError("a budget is split between 2 stages, with a slack in [0, 1)")
    most = max((cost - (1 - share)) / share, 1.0)  # the last stage keeps all
    early = np.geomspace(1.0, most, _CHOICES) if most > 1 else np.ones(1)
    rate = 1 / early
    last = np.maximum(rate * cost / (share + rate * (1 - share)), 1.0)  # spends what is left
    tried = [Stages.fit(log_ratios, each, groups=groups) for each in zip(early.tolist(), last.tolist(), strict=True)]
    left = [divergence_left(stages, log_ratios, groups) for stages in tried]
    alone = left[0]  # nothing is rejected early
    enough = [i for i, value in enumerate(left) if alone - value >= (1 - slack) * (alone - min(left))]
    return tried[min(enough, key=lambda i: (-tried[i].rates[-2], left[i]))]
