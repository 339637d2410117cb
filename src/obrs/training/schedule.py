"""The schedule of a run in stages: which steps are whose, and what noise and learning rates they have at a step.

The steps of a run are counted through all stages. Those of the critic alone, the warm-up, count too: so a checkpoint
can be anywhere. Everything here is a function of the configuration and the step, so a run that was stopped goes on as
if nothing had happened.
"""

from dataclasses import dataclass

from .config import TrainConfig

__all__ = ["Stage", "current", "plan"]


@dataclass(frozen=True)
class Stage:
    """A stage among the others of its run.

    Args:
        config: Of this stage, without stages.
        number: Which one it is, from 1 on.
        first: Steps of the run before it.
        seen: Real samples that the critic has seen before it.

    Example:
        >>> fields = {"warm_up": 5, "steps": 10, "noise": 0.4, "noise_until": 0.5, "generator_decay_from": 0.6}
        >>> stage = Stage(TrainConfig(generator_loss="dual", **fields))
        >>> stage.last, stage.warming(4), stage.warming(5)
        (15, True, False)
        >>> [round(stage.noise(step), 2) for step in (0, 5, 6, 9, 10, 14)]
        [0.4, 0.4, 0.32, 0.08, 0.0, 0.0]
        >>> [round(stage.generator_lr(step) / 1e-3, 3) for step in (0, 11, 12, 15)]
        [1.0, 1.0, 0.755, 0.02]
    """

    config: TrainConfig
    number: int = 1
    first: int = 0
    seen: int = 0

    @property
    def begin(self) -> int:
        """Steps of the run before the first one of its generator."""
        return self.first + self.config.warm_up

    @property
    def last(self) -> int:
        """Steps of the run when it is done."""
        return self.begin + self.config.steps

    def warming(self, step: int) -> bool:
        """Whether the step is one of the critic alone."""
        return step < self.begin

    def critic_turns(self, step: int) -> int:
        """Return how many steps the critic takes at this one."""
        return 1 if self.warming(step) else self.config.critic_steps

    def seen_before(self, step: int) -> int:
        """Return how many real samples the critic has seen before a step, those of earlier stages included."""
        trained = max(step - self.begin, 0)
        turns = step - self.first - trained + trained * self.config.critic_steps
        return self.seen + turns * self.config.batch_size

    def noise(self, step: int) -> float:
        """Return the standard deviation of the noise at a step."""
        until = self.config.noise_until
        return self.config.noise * (max(1 - self._share(step) / until, 0.0) if until else 1.0)

    def generator_lr(self, step: int) -> float:
        """Return the learning rate of the generator at a step."""
        return self.config.generator_lr * self._decay(step, self.config.generator_decay_from)

    def critic_lr(self, step: int) -> float:
        """Return the learning rate of the critic at a step."""
        return self.config.critic_lr * self._decay(step, self.config.critic_decay_from)

    def _decay(self, step: int, start: float) -> float:
        beyond = self._share(step) - start
        return 1.0 if beyond <= 0 or start == 1 else 1 - (1 - self.config.decay_to) * beyond / (1 - start)

    def _share(self, step: int) -> float:
        """Return which share of the generator's steps is done before a step."""
        return max(step - self.begin, 0) / self.config.steps


def plan(config: TrainConfig) -> tuple[Stage, ...]:
    """Return the stages of a run in time.

    Example:
        >>> tables = [{}, {"warm_up": 5, "new_critic": True}, {"warm_up": 0}]
        >>> stages = plan(TrainConfig(generator_loss="dual", steps=10, stage=tables))
        >>> [(s.number, s.first, s.last) for s in stages]
        [(1, 0, 10), (2, 10, 25), (3, 25, 35)]
    """
    found: list[Stage] = []
    for number, each in enumerate(config.stages, 1):
        before = found[-1] if found else None
        first, seen = (0, 0) if before is None else (before.last, before.seen_before(before.last))
        found.append(Stage(each, number, first, seen))
    return tuple(found)


def current(stages: tuple[Stage, ...], done: int) -> Stage:
    """Return the stage that a run with so many steps done is in; at a border, the one before it.

    Example:
        >>> stages = plan(TrainConfig(generator_loss="dual", steps=10, stage=[{}, {}]))
        >>> [current(stages, done).number for done in (0, 10, 11, 20)]
        [1, 1, 2, 2]
    """
    return next((stage for stage in stages if done <= stage.last), stages[-1])
