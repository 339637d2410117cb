"""From a configuration to the two losses of a run, and to which output of the critic is what."""

from dataclasses import dataclass

from torch import Tensor

from ..budget import Cut
from ..errors import InputError
from .config import TrainConfig
from .losses import CRITIC_LOSSES, CriticLoss, GeneratorLoss, critic_loss, generator_loss

__all__ = ["Objective", "objective"]


@dataclass(frozen=True)
class Objective:
    """What critic and generator descend. The critic says one number per sample, or two: shape `(n, 2)`.

    The first trains the generator, and gives the constant c of a loss that rejects: `a` in that loss is a function of
    the same output. A second one is a head that always has the logistic loss; its log-ratio is what sampling and the
    log go by. For the loss "two_critics" it is the log-ratio of the data to what rejection keeps.

    Args:
        of_critic: Loss of the first output.
        of_generator: Loss of the generator.
        second: Loss of the second output; None if there is one output.
    """

    of_critic: CriticLoss
    of_generator: GeneratorLoss
    second: CriticLoss | None = None

    @property
    def outputs(self) -> int:
        """Numbers that the critic says about a sample."""
        return 1 if self.second is None else 2

    @property
    def logistic_head(self) -> bool:
        """Whether the second output is a head with the logistic loss."""
        return self.second is not None and not self.of_generator.second_critic

    def first(self, scores: Tensor) -> Tensor:
        """Return the first output."""
        return scores if self.second is None else scores[:, 0]

    def log_ratio(self, scores: Tensor) -> Tensor | None:
        """Return the log-ratio of data to model; None if no output is one."""
        if self.logistic_head:
            return scores[:, 1]
        return self.first(scores) if self.of_critic.of_ratio else None

    def critic(self, real: Tensor, fake: Tensor, rejection: Cut | None) -> Tensor:
        """Return the loss of the critic, the sum of those of its outputs."""
        loss = self.of_critic(self.first(real), self.first(fake))
        if self.second is None:
            return loss
        log_weight = None
        if self.of_generator.second_critic and rejection is not None:  # fakes of Q count as fakes of Q~
            log_weight = rejection.log_a(fake[:, 0].detach()) - rejection.log_rate
        return loss + self.second(real[:, 1], fake[:, 1], log_weight)

    def generator(self, fake: Tensor, rejection: Cut | None) -> Tensor:
        """Return the loss of the generator."""
        second = fake[:, 1] if self.of_generator.second_critic else None
        return self.of_generator(self.first(fake), rejection, second)


def objective(config: TrainConfig) -> Objective:
    """Return the losses that a configuration names.

    Example:
        >>> objective(TrainConfig(generator_loss="hinge", two_heads=True))
        Objective(of_critic=CriticLoss(name='hinge', of_ratio=False),
            of_generator=GeneratorLoss(mode='hinge', divergence=None, of_ratio=False, rejects=False,
            second_critic=False),
            second=CriticLoss(name='gan', of_ratio=True))
    """
    limit = config.max_log_ratio
    generator = generator_loss(config.generator_loss, config.divergence, max_log_ratio=limit)
    its_critic = config.divergence if generator.of_ratio else config.generator_loss
    critic = critic_loss(config.critic_loss or its_critic, max_log_ratio=limit)
    if generator.of_ratio and not critic.of_ratio:
        raise InputError(
            f"generator_loss {generator.mode!r} needs a critic that says a log-ratio, and critic_loss {critic.name!r} "
            "does not; leave critic_loss out"
        )
    if critic.name == "wgan" and not (config.gradient_penalty or config.spectral_norm):
        raise InputError(
            "wgan needs a critic of bounded slope: set gradient_penalty (10 is usual) or spectral_norm=true"
        )
    if generator.second_critic and config.two_heads:
        raise InputError("generator_loss 'two_critics' has two outputs already; set two_heads=false")
    second = critic if generator.second_critic else CRITIC_LOSSES["gan"] if config.two_heads else None
    return Objective(critic, generator, second)
