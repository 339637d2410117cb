"""Small runs that differ in their seed alone, trained at once: networks in stacks, layers as batched products.

Half of a step of a small network is overhead, which a fleet pays once. The steps are those of `training.step`, and
every run draws what `train` would draw for it alone; a test compares the two. The networks are perceptrons of points,
with or without waves, and c is solved on every batch. There is no log and no checkpoint.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from obrs.budget import Cut, solve_cut
from obrs.errors import InputError
from obrs.models.fourier import FourierCritic
from obrs.models.mlp import ACTIVATIONS
from obrs.training.averaging import average
from obrs.training.batches import Batches, load_data
from obrs.training.config import TrainConfig
from obrs.training.loop import play
from obrs.training.networks import build_stages
from obrs.training.schedule import plan
from obrs.training.step import Game, Objective, Player, objective
from obrs.training.trained import Trained

__all__ = ["Stack", "train_fleet"]


class Stack(nn.Module):  # type: ignore[misc]
    """Networks of one shape, each run on its own samples, all at once.

    Args:
        networks: Plain perceptrons, or critics of waves.

    Example:
        >>> from obrs.models.mlp import mlp_critic
        >>> pair, x = [mlp_critic(2), mlp_critic(2)], torch.randn(2, 5, 2)
        >>> alone = torch.stack([pair[0](x[0]), pair[1](x[1])])
        >>> torch.allclose(Stack(pair)(x), alone, atol=1e-6)
        True
    """

    def __init__(self, networks: Sequence[Any]) -> None:
        super().__init__()
        self.networks = tuple(networks)  # their weights are not those of the stack
        self.between = ACTIVATIONS[networks[0].spec["activation"]]()
        waves = [network.waves for network in networks if isinstance(network, FourierCritic)]
        self.register_buffer("waves", torch.stack(waves) if waves else None)
        layers = [*zip(*map(_linear, networks), strict=True)]
        self.weights = nn.ParameterList(torch.stack([one.weight.detach().T for one in layer]) for layer in layers)
        self.biases = nn.ParameterList(torch.stack([one.bias.detach()[None] for one in layer]) for layer in layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the networks make of samples `(runs, n, dim)`; a single number of each has no axis of its own.

        Several such batches may come one after the other, `(k * runs, n, dim)`.
        """
        runs, (rows, n, _) = len(self.networks), x.shape
        x = x.unflatten(0, (-1, runs)).transpose(0, 1).flatten(1, 2)  # (runs, k * n, dim)
        if self.waves is not None:
            phase = x @ self.waves
            x = torch.cat([x, phase.sin(), phase.cos()], dim=2)
        for at, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, self.between(x) if at else x, weight)
        x = x.unflatten(1, (rows // runs, n)).transpose(0, 1).flatten(0, 1)
        return x[:, :, 0] if x.shape[2] == 1 else x

    def unstacked(self) -> tuple[Any, ...]:
        """Return the networks with the weights of the stack."""
        with torch.no_grad():
            for run, network in enumerate(self.networks):
                for layer, weight, bias in zip(_linear(network), self.weights, self.biases, strict=True):
                    layer.weight.copy_(weight[run].T)
                    layer.bias.copy_(bias[run, 0])
        return self.networks


def _linear(network: nn.Module) -> list[nn.Linear]:
    return [part for part in network.modules() if type(part) is nn.Linear]


@dataclass(frozen=True)
class _Goals(Objective):
    """The sum of the losses of all runs; a network of one run has the gradient that it would have alone."""

    runs: int = 1

    def critic(self, real: Tensor, fake: Tensor, cut: Cut | None) -> Tensor:
        return self.runs * super().critic(real.flatten(), fake.flatten(), cut)

    def generator(self, fake: Tensor, cut: Cut | None) -> Tensor:
        return self.runs * super().generator(fake.flatten(), cut)


class _Windows:
    """One constant for each run, solved on its batch, as one `Cut` of all samples."""

    process_group = None

    def __init__(self, budget: float) -> None:
        self.budget = budget

    def update(self, log_ratio: Tensor) -> Cut:
        cuts = [solve_cut(x, self.budget, check=False) for x in log_ratio]
        spread = partial(torch.repeat_interleave, repeats=log_ratio.shape[1])
        log_c, log_rate = (torch.stack([getattr(cut, name) for cut in cuts]) for name in ("log_c", "log_rate"))
        return Cut(spread(log_c), spread(log_rate))


class _Batches:
    """The batches of all runs, in one more axis."""

    def __init__(self, batches: Sequence[Batches]) -> None:
        self.batches = batches

    def real(self, *when: int) -> tuple[Tensor, None]:
        return torch.stack([one.real(*when)[0] for one in self.batches]), None

    def latent(self, *when: int) -> tuple[Tensor, None]:
        return torch.stack([one.latent(*when)[0] for one in self.batches]), None

    def noise(self, *when: int, real: bool = False) -> Tensor:
        return torch.stack([one.noise(*when, real=real) for one in self.batches])


def train_fleet(configs: Sequence[TrainConfig]) -> list[Trained]:
    """Train runs whose configurations differ in their seed alone.

    A run that diverges has weights that are not finite; the others do not notice.

    Args:
        configs: At least one, for perceptrons of points by name.

    Returns:
        What `train` would return for each, but for rounding, without a log.

    Example:
        >>> import paper.named  # data by name
        >>> small = TrainConfig(data="grid25", generator_loss="exact", steps=3, batch_size=16, data_size=100)
        >>> [run.propose(range(5)).shape for run in train_fleet([small, replace(small, seed=1)])]
        [torch.Size([5, 2]), torch.Size([5, 2])]
    """
    if not configs:
        raise InputError("a fleet has at least one run, got none")
    configs = [config.spelled_out() for config in configs]
    plans = [plan(config) for config in configs]
    stages, first = plans[0], configs[0]
    if any(replace(config, seed=first.seed) != first for config in configs):
        raise InputError("the runs of a fleet differ in their seed alone")
    for stage in stages:
        used = stage.config
        if used.network != "mlp" or used.spectral_norm or used.constant_every > 1 or used.parts > 1:
            raise InputError("a fleet has plain perceptrons, whole batches, and a constant for every batch")
        if used.gradient_penalty or used.r1 or objective(used).outputs > 1 or used.precision != "no":
            raise InputError("a fleet has critics with one output, in float32, without penalties")
        if used.start_from:
            raise InputError("a fleet has runs that start anew; leave out start_from")
    data = [load_data(config) for config in configs]
    shape = data[0].x.shape[1:]
    built = [build_stages(each, [1] * len(each), shape, 0) for each in plans]
    generator = Stack([network for network, _ in built])
    ema = copy.deepcopy(generator).requires_grad_(False) if first.ema_decay else None
    for stage in stages:
        config, goal = stage.config, objective(stage.config)
        if stage is stages[0] or config.new_critic:
            critic = Stack([critics[stage.number - 1] for _, critics in built])
            makes = _player(generator, config.generator_lr, config.generator_betas)
            judges = _player(critic, config.critic_lr, config.critic_betas)
        for player, betas in ((makes, config.generator_betas), (judges, config.critic_betas)):
            for group in player.optimiser.param_groups:
                group["betas"] = betas
        mine = [each[stage.number - 1] for each in plans]
        own = [Batches(samples, one.config, stage=one) for samples, one in zip(data, mine, strict=True)]
        game = Game(
            goal=_Goals(goal.of_critic, goal.of_generator, runs=len(configs)),
            generator=makes,
            critic=judges,
            batches=_Batches(own),  # type: ignore[arg-type]
            window=_Windows(config.budget),  # type: ignore[arg-type]
            noise=stage.noise,
        )
        for step in range(stage.first, stage.last):
            _, of_generator = play(game, stage, step)
            if ema is not None and of_generator is not None:
                average(ema, generator, first.ema_decay if step >= first.ema_start else 0.0)
    averages = [None] * len(configs) if ema is None else ema.unstacked()
    networks = zip(generator.unstacked(), critic.unstacked(), averages, configs, strict=True)
    return [Trained(one, other, mean, config, []) for one, other, mean, config in networks]


def _player(stack: Stack, lr: float, betas: tuple[float, float]) -> Player:
    return Player(stack, torch.optim.Adam(stack.parameters(), lr, betas, fused=True))
