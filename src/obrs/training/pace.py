"""What a run will take: its first steps are timed, and it is said before the others are begun."""

from collections.abc import Callable, Sequence
from time import perf_counter

from torch import Tensor

from .schedule import Stage

__all__ = ["Pace", "in_words", "work"]

_FIRST, _LAST = 1, 3  # steps between which is timed; the first one also sets up what later ones find
_LONG = 600.0  # seconds below which nothing is said


class Pace:
    """Time the second and the third step of a run, and say once how long all of it will take, if that is long.

    Args:
        stages: Of the run.
        start: Steps that are done already.
        say: Gets the line; None for nobody.

    Example:
        >>> from obrs.training.config import TrainConfig
        >>> from obrs.training.schedule import plan
        >>> import torch
        >>> said = []
        >>> clock = iter([10.0, 16.0])
        >>> pace = Pace(plan(TrainConfig(generator_loss="dual", steps=1000)), 0, said.append, clock=lambda: next(clock))
        >>> for step in (1, 2, 3, 4):
        ...     pace.step(step, torch.zeros(()))
        >>> print(said[0])
        a step takes 3 s, timed on steps 2 to 3; 1000 steps will take about 50 minutes; Ctrl-C stops it
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        start: int,
        say: Callable[[str], None] | None,
        *,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._stages, self._start, self._say, self._clock = stages, start, say, clock
        self._begun = 0.0

    def step(self, done: int, loss: Tensor) -> None:
        """Take note of a step; where time is taken its loss is waited for."""
        if self._say is None or done - self._start not in (_FIRST, _LAST):
            return
        loss.item()  # a GPU may be far behind
        now, total = self._clock(), self._stages[-1].last
        if done - self._start == _FIRST:
            self._begun = now
            return
        timed = now - self._begun
        left = timed * work(self._stages, done, total) / work(self._stages, self._start + _FIRST, done)
        if left < _LONG:
            return
        each, steps = timed / (_LAST - _FIRST), total - self._start
        self._say(
            f"a step takes {each:.3g} s, timed on steps {self._start + _FIRST + 1} to {done}; {steps} steps will take "
            f"about {in_words(left + timed)}; Ctrl-C stops it"
        )


def work(stages: Sequence[Stage], first: int, last: int) -> int:
    """Return the samples that both players see between two steps of a run: what steps cost beside each other.

    Example:
        >>> from obrs.training.config import TrainConfig
        >>> from obrs.training.schedule import plan
        >>> work(plan(TrainConfig(generator_loss="dual", steps=10, warm_up=5, batch_size=8)), 0, 15)
        200
    """
    total = 0
    for stage in stages:
        alone = _overlap(first, last, stage.first, stage.begin)
        both = _overlap(first, last, stage.begin, stage.last)
        total += stage.config.batch_size * (alone + both * (stage.config.critic_steps + 1))
    return total


def _overlap(first: int, last: int, begin: int, end: int) -> int:
    return max(min(last, end) - max(first, begin), 0)


def in_words(seconds: float) -> str:
    """Return a time as one would say it.

    Example:
        >>> in_words(750), in_words(9000), in_words(200_000)
        ('12 minutes', '2.5 hours', '2.3 days')
    """
    for name, unit in (("days", 86_400), ("hours", 3600)):
        if seconds >= 1.5 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds / 60:.0f} minutes"
