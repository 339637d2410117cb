"""Small runs that differ in their seed alone, trained at once: networks in stacks, layers as batched products.

Half of a step of a small network is overhead, which a fleet pays once. The steps are those of `obrs.training.step`, and
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
from obrs.training.data import Draws, as_data
from obrs.training.step import critic_step, generator_step
from obrs.training.train import average_weights
from obrs.training.trained import State, Trained

from .named import build_networks, load_data
from .train import TrainConfig, options, seen_before

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
class _Sum:
    """The sum of the losses of all runs: a network of one run has the gradient that it would have alone.

    Args:
        loss: Of one run.
        runs: How many there are.
        budget: For which each run has a constant of its own, if the loss rejects.
    """

    loss: Any
    runs: int
    budget: float
    rejects: bool = False  # the step solves for no c

    def __call__(self, outputs: Tensor, other: Tensor | None = None) -> Tensor:
        if other is not None:
            return self.runs * self.loss(outputs.flatten(), other.flatten())
        cut = None
        if self.loss.rejects:
            cuts = [solve_cut(x.detach(), self.budget, check=False) for x in outputs]
            spread = partial(torch.repeat_interleave, repeats=outputs.shape[1])
            log_c, log_rate = (
                spread(torch.stack([getattr(cut, key) for cut in cuts])) for key in ("log_c", "log_rate")
            )
            cut = Cut(log_c, log_rate)
        return self.runs * self.loss(outputs.flatten(), cut)


def train_fleet(configs: Sequence[TrainConfig]) -> list[Trained]:
    """Train runs whose settings differ in their seed alone.

    A run that diverges has weights that are not finite; the others do not notice.

    Args:
        configs: At least one, for perceptrons of points by name.

    Returns:
        What `train` would return for each, but for rounding, without a log.

    Example:
        >>> small = TrainConfig(data="grid25", generator_loss="exact", steps=3, batch_size=16, data_size=100)
        >>> [run.propose(range(5)).shape for run in train_fleet([small, replace(small, seed=1)])]
        [torch.Size([5, 2]), torch.Size([5, 2])]
    """
    if not configs:
        raise InputError("a fleet has at least one run, got none")
    first, stages = configs[0], configs[0].stages
    if any(replace(config, seed=first.seed) != first for config in configs):
        raise InputError("the runs of a fleet differ in their seed alone")
    for used in stages:
        if used.network != "mlp" or used.spectral_norm or used.constant_every > 1 or used.parts > 1 or used.start_from:
            raise InputError("a fleet has plain perceptrons that start anew, whole batches, a constant for every batch")
        two = used.two_heads or used.generator_loss == "two_critics"
        if used.gradient_penalty or used.r1 or two or used.precision != "no":
            raise InputError("a fleet has critics with one output, in float32, without penalties")
    data = [as_data(load_data(config)) for config in configs]
    shape = data[0].shape[1:]
    built = [build_networks(config, shape, 0) for config in configs]
    generator = Stack([network for network, _ in built])
    ema = copy.deepcopy(generator).requires_grad_(False) if first.ema_decay else None
    for number, stage in enumerate(stages, 1):
        goal, (begun, seen) = options(stage), seen_before(first, number)
        if number == 1 or stage.new_critic:
            critic = Stack([critics[number - 1] for _, critics in built])
            adams = [torch.optim.Adam(stack.parameters(), fused=True) for stack in (generator, critic)]
        of_critic, of_generator = (_Sum(loss, len(configs), stage.budget) for loss in goal["loss"])
        draws = [Draws(config.seed, stage.batch_size) for config in configs]
        reals = [x.batches(own.rows(x.shape[0], seen)) for x, own in zip(data, draws, strict=True)]

        def normals(what: str, step: int, turn: int, *size: int, draws: Any = draws) -> Tensor:
            return torch.stack([own.draw(torch.randn, what, step, turn, *size) for own in draws])

        for step in range(begun, begun + stage.warm_up + stage.steps):
            alone = step - begun < stage.warm_up
            share = max(step - begun - stage.warm_up, 0) / stage.steps
            sd = goal["noise"](share) if stage.noise else 0.0
            for adam, rate in zip(adams, goal["lr"], strict=True):
                adam.param_groups[0] |= {"lr": rate(share), "betas": stage.betas}
            for turn in range(1 if alone else stage.critic_steps):
                real = torch.stack([next(own)[0] for own in reals])
                with torch.no_grad():
                    fake = generator(normals("latent", step, turn, stage.latent))
                if sd:
                    real = real + sd * normals("noise on real", step, turn, *shape)
                    fake = fake + sd * normals("noise on fake", step, turn, *shape)
                critic_step(critic, adams[1], real, fake, loss=of_critic)
            if not alone:
                z, noise = normals("latent", step, -1, stage.latent), None
                noise = sd * normals("noise on fake", step, -1, *shape) if sd else None
                generator_step(generator, critic, adams[0], z, loss=of_generator, noise=noise)
                if ema is not None:
                    average_weights(ema, generator, goal["ema"](step))
    made = generator.unstacked() if ema is None else ema.unstacked()
    facts = {"latent": first.latent, "counts": [], "of_ratio": True, "step": seen_before(first, len(stages) + 1)[0]}
    pairs = zip(made, critic.unstacked(), strict=True)
    return [Trained(one.eval(), other.eval(), [], State({}, facts)) for one, other in pairs]
