"""One step of each player: Algorithm 1 of the paper, and Algorithm 2 where the loss of the generator rejects.

    Algorithm 2                                           here
    update T by ascending E_P[T] - E_Q[f*(T)]             `critic_step`
    update c_K such that E_Q[a] <= 1/K                    `critic_cut` and `generator_cut`: when, and on which fakes
    update G by descending E_Q[K a f(r / (K a))]          `generator_step`

Algorithm 1 is the same without its second line, and with the loss -E_Q[f*(T)]. What T and G descend, and what the
outputs of the critic mean, is the `Objective`. A batch may come in parts, whose gradients add up to those of the whole.

References:
    | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Algorithms 1 and 2
    | Which Training Methods for GANs do actually Converge? (Mescheder et al., 2018), R1
    | Amortised MAP Inference for Image Super-resolution (Sønderby et al., 2017), noise on what the critic sees
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..budget import Cut, solve_cut
from ..errors import InputError
from .batches import GENERATOR, Batches
from .config import TrainConfig
from .losses import CRITIC_LOSSES, CriticLoss, GeneratorLoss, critic_loss, generator_loss, gradient_penalty
from .processes import Processes
from .window import BudgetWindow

__all__ = ["Game", "GeneratorTurn", "Objective", "Player", "critic_cut", "critic_step", "generator_cut"]
__all__ += ["generator_step", "objective"]

Solve = Callable[[Tensor], Cut | None]


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

    def critic(self, real: Tensor, fake: Tensor, cut: Cut | None) -> Tensor:
        """Return the loss of the critic, the sum of those of its outputs."""
        loss = self.of_critic(self.first(real), self.first(fake))
        if self.second is None:
            return loss
        log_weight = None
        if self.of_generator.second_critic and cut is not None:  # fakes of Q count as fakes of Q~
            log_weight = cut.log_a(fake[:, 0].detach()) - cut.log_rate
        return loss + self.second(real[:, 1], fake[:, 1], log_weight)

    def generator(self, fake: Tensor, cut: Cut | None) -> Tensor:
        """Return the loss of the generator."""
        second = fake[:, 1] if self.of_generator.second_critic else None
        return self.of_generator(self.first(fake), cut, second)


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
    usual = config.divergence if generator.of_ratio else config.generator_loss
    critic = critic_loss(config.critic_loss or usual, max_log_ratio=limit)
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


class Player:
    """A network with its optimiser, as a step uses it.

    Call it for a pass whose backward shares gradients with the other processes; call `alone` for one that is not to.
    Both compute in the precision of the run and return float32.

    Args:
        network: The network itself, on the device of the process.
        optimiser: Of its weights.
        processes: Those that share its gradients.
        precision: "no" for float32, or "bf16".

    Example:
        >>> line = nn.Linear(2, 1)
        >>> player = Player(line, torch.optim.Adam(line.parameters()))
        >>> player(torch.zeros(3, 2)).shape, len(player.learning)
        (torch.Size([3, 1]), 2)
    """

    def __init__(
        self,
        network: nn.Module,
        optimiser: torch.optim.Optimizer,
        processes: Processes | None = None,
        precision: str = "no",
    ) -> None:
        self.optimiser = optimiser
        self.learning = [weight for weight in network.parameters() if weight.requires_grad]
        self._shared = _shared(network, processes or Processes())
        self.alone = _in_precision(network, precision)
        self._pass = _in_precision(self._shared, precision)

    def __call__(self, *batch: Tensor) -> Tensor:
        return self._pass(*batch)

    def sharing(self, last: bool) -> AbstractContextManager[Any]:
        """Share gradients only with the last part of a batch."""
        many = isinstance(self._shared, nn.parallel.DistributedDataParallel)
        return self._shared.no_sync() if many and not last else nullcontext()


@dataclass(frozen=True)
class Game:
    """What the steps of a run work with.

    Args:
        goal: What the players descend.
        generator, critic: The players.
        batches: Real samples and latents by step, turn and part.
        window: The generator's last constant, and how often it is solved for.
        parts: In how many parts a batch comes.
        penalty: Weight of the gradient penalty.
        r1: Weight of the penalty on slopes at real samples.
        noise: From a step to the standard deviation of the noise on what the critic sees.
    """

    goal: Objective
    generator: Player
    critic: Player
    batches: Batches
    window: BudgetWindow
    parts: int = 1
    penalty: float = 0.0
    r1: float = 0.0
    noise: Callable[[int], float] = lambda step: 0.0

    def fakes(self, generator: Callable[..., Tensor], step: int, turn: int, part: int) -> tuple[Tensor, Tensor | None]:
        """Return what a pass of the generator makes, with the noise of the step, and the labels."""
        z, labels = self.batches.latent(step, turn, part)
        x, sd = generator(z, *_given(labels)), self.noise(step)
        return x + sd * self.batches.noise(step, turn, part) if sd else x, labels

    def reals(self, step: int, turn: int, part: int) -> tuple[Tensor, Tensor | None]:
        """Return real samples, with the noise of the step, and their labels."""
        x, labels = self.batches.real(step, turn, part)
        sd = self.noise(step)
        return x + sd * self.batches.noise(step, turn, part, real=True) if sd else x, labels

    def log_ratios(self, scores: Tensor) -> Tensor:
        """Return the first outputs of the critic on fakes of this process, without a gradient."""
        return self.goal.first(scores).detach()

    def log_ratios_ahead(self, step: int, turn: int) -> Tensor:
        """Return the same for all parts of a turn, before any of them is trained on."""
        with torch.no_grad():
            drawn = [self.fakes(self.generator.alone, step, turn, part) for part in range(self.parts)]
            scores = [self.critic.alone(x, *_given(y)) for x, y in drawn]
        return torch.cat([self.log_ratios(part) for part in scores])


def critic_cut(game: Game, step: int, turn: int) -> Solve:
    """Return how the cut of a critic's turn follows from the outputs on its fakes.

    A second critic is trained on what its own batch keeps, which is solved in each of its turns; others need no cut. A
    batch in one part is solved on the outputs that are trained on. The parts of a batch share one c, so all of them are
    scored ahead.
    """
    if not game.goal.of_generator.second_critic:
        return lambda scores: None
    window = game.window
    solve = partial(
        solve_cut, budget=window.budget, check=False, process_group=window.process_group
    )  # a NaN: in the loss
    if game.parts == 1:
        return lambda scores: solve(game.log_ratios(scores))
    cut = solve(game.log_ratios_ahead(step, turn))
    return lambda scores: cut


def generator_cut(game: Game, step: int) -> Solve:
    """Return how the cut of a generator's turn follows from the outputs on its fakes.

    c is that of the window, solved every so many steps; parts are treated as in `critic_cut`.
    """
    if not game.goal.of_generator.rejects:
        return lambda scores: None
    if game.parts == 1:
        return lambda scores: game.window.update(game.log_ratios(scores))
    due = game.window.due
    cut = game.window.update(game.log_ratios_ahead(step, GENERATOR)) if due else game.window.pass_over()
    return lambda scores: cut


def critic_step(game: Game, step: int, turn: int) -> dict[str, Tensor]:
    """Update the critic T by ascending E_P[T] - E_Q[f*(T)], real against fake.

    Args:
        game: Players and batches.
        step, turn: Which step of the generator, and which of the critic's before it.

    Returns:
        The loss, and the penalties if there are any, as the log names them, without their weights.
    """
    critic = game.critic
    losses: dict[str, list[Tensor]] = {}
    solve = critic_cut(game, step, turn)
    critic.optimiser.zero_grad(set_to_none=True)
    for part in range(game.parts):
        real, real_labels = game.reals(step, turn, part)
        with torch.no_grad():
            fake, fake_labels = game.fakes(game.generator.alone, step, turn, part)
        with critic.sharing(last=part == game.parts - 1):
            # in one pass, as many processes share the gradients of one pass
            scores = critic(torch.cat([real, fake]), *_given(real_labels, fake_labels))
            of_real, of_fake = scores[: len(real)], scores[len(real) :]
            loss = game.goal.critic(of_real, of_fake, solve(of_fake))
            losses.setdefault("critic", []).append(loss.detach())
            slope_of = partial(_first_output, game, real_labels)
            if game.penalty:
                slopes = gradient_penalty(slope_of, real, fake, game.batches.mix(step, turn, part))
                losses.setdefault("penalty", []).append(slopes.detach())
                loss = loss + game.penalty * slopes
            if game.r1:
                slopes = gradient_penalty(slope_of, real, fake, real.new_ones(len(real)), centre=0.0)
                losses.setdefault("r1", []).append(slopes.detach())
                loss = loss + game.r1 / 2 * slopes
            (loss / game.parts).backward()
    critic.optimiser.step()
    return {name: _mean(values) for name, values in losses.items()}


class GeneratorTurn(NamedTuple):
    """What a step of the generator leaves for the log.

    Attributes:
        loss: Of the batch.
        log_ratio: What the critic said of the fakes, one tensor per part; none if it says no log-ratio.
        cut: What the loss took for c and Z; None if it does not reject.
    """

    loss: Tensor
    log_ratio: list[Tensor]
    cut: Cut | None


def generator_step(game: Game, step: int) -> GeneratorTurn:
    """Update c_K, then the generator G by descending its loss, in Algorithm 2 E_Q[K a f(r / (K a))].

    The critic, as it is now, says the log-ratios; no gradient stays in its weights.

    Args:
        game: Players and batches.
        step: Which step.
    """
    critic, generator = game.critic, game.generator
    losses, log_ratios, cut = [], [], None
    solve = generator_cut(game, step)
    generator.optimiser.zero_grad(set_to_none=True)
    with _frozen(critic.learning):
        for part in range(game.parts):
            with generator.sharing(last=part == game.parts - 1):
                fake, labels = game.fakes(generator, step, GENERATOR, part)
                scores = critic.alone(fake, *_given(labels))
                cut = solve(scores)
                loss = game.goal.generator(scores, cut)
                (loss / game.parts).backward()
            losses.append(loss.detach())
            if (log_ratio := game.goal.log_ratio(scores.detach())) is not None:
                log_ratios.append(log_ratio)
    generator.optimiser.step()
    return GeneratorTurn(_mean(losses), log_ratios, cut)


@contextmanager
def _frozen(weights: Iterable[nn.Parameter]) -> Iterator[None]:
    """Let these weights gather no gradients, and let them again however the block ends."""
    held = [weight.requires_grad_(False) for weight in weights]
    try:
        yield
    finally:
        for weight in held:
            weight.requires_grad_(True)


def _mean(of_parts: list[Tensor]) -> Tensor:
    return of_parts[0] if len(of_parts) == 1 else torch.stack(of_parts).mean()


def _given(*labels: Tensor | None) -> tuple[Tensor, ...]:
    """Return the labels as what follows the samples in a call: nothing without classes."""
    found = [y for y in labels if y is not None]
    return () if not found else (found[0] if len(found) == 1 else torch.cat(found),)


def _first_output(game: Game, labels: Tensor | None, x: Tensor) -> Tensor:
    return game.goal.first(game.critic.alone(x, *_given(labels)))


def _shared(network: nn.Module, processes: Processes) -> Any:
    if processes.count == 1:
        return network
    devices = [processes.device.index] if processes.device.type == "cuda" else None
    return nn.parallel.DistributedDataParallel(network, device_ids=devices)


def _in_precision(network: Any, precision: str) -> Callable[..., Tensor]:
    if precision == "no":
        return network  # type: ignore[no-any-return]

    def narrow(*batch: Tensor) -> Tensor:
        with torch.autocast(batch[0].device.type, torch.bfloat16):
            out = network(*batch)
        return out.float() if out.dtype == torch.bfloat16 else out

    return narrow
