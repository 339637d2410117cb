"""One step of the critic and one of the generator: Algorithm 2 of the paper, for a loop of your own.

    Algorithm 2                                         here
    update T by ascending E_P[T] - E_Q[f*(T)]           critic_step(critic, adam, real, fake, loss=critic_loss("gan"))
    update c_K such that E_Q[a] <= 1/K                  generator_step(..., budget=K), or cut=solve_cut(log_ratio, K)
    update G by descending E_Q[K a f(r / (K a))]        generator_step(generator, critic, adam, z, loss=..., budget=K)

Algorithm 1, the f-GAN, is the same with a loss that does not reject. A batch is a tensor of samples or latents, or with
classes a tuple `(x, labels)`; then both networks are called with the labels as second argument.

References:
    | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Algorithms 1 and 2
    | Improved Training of Wasserstein GANs (Gulrajani et al., 2017), the gradient penalty
    | Which Training Methods for GANs do actually Converge? (Mescheder et al., 2018), R1
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .._checks import check_at_least, check_callable, check_count
from ..budget import Cut, solve_cut
from ..errors import InputError, InputTypeError
from ..fitting.penalty import gradient_penalty as slope_penalty
from .losses import critic_loss, first_output, generator_loss

__all__ = ["GeneratorStep", "critic_step", "generator_step"]

Batch = Any  # a tensor, or a tuple of a tensor and its labels


def critic_step(
    critic: nn.Module,
    optimiser: torch.optim.Optimizer,
    real: Batch,
    fake: Batch,
    *,
    loss: str | Callable[[Tensor, Tensor], Tensor],
    r1: float = 0.0,
    gradient_penalty: float = 0.0,
    mix: Tensor | None = None,
    parts: int = 1,
    process_group: Any = None,
) -> dict[str, Tensor]:
    """Update the critic T by ascending E_P[T] - E_Q[f*(T)].

    Args:
        critic: From samples, and labels, to outputs of shape `(n,)` or `(n, 2)`.
        optimiser: Of its weights.
        real, fake: As many samples of each; no gradient goes to the generator.
        loss: From `critic_loss`, or its name.
        r1: Weight of R1, half the mean squared slope at real samples.
        gradient_penalty: Weight of the mean of (slope - 1)² between real and fake samples.
        mix: Where between: the share of the real sample in each point, shape `(n,)`; uniform by default.
        parts: Split the batch into so many parts, and add up their gradients.
        process_group: Of torch.distributed: each process gives its own samples, and gradients are averaged.

    Returns:
        The loss as "critic", and penalties without their weights as "penalty" and "r1".
    """
    loss = critic_loss(loss) if isinstance(loss, str) else loss
    parts = _check_step(optimiser, parts, loss, critic=critic)
    check_at_least(r1, "r1"), check_at_least(gradient_penalty, "gradient_penalty")
    mixes = [None] * parts if mix is None else mix.chunk(parts)
    weights = {"critic": 1.0, "penalty": gradient_penalty, "r1": r1 / 2}
    seen = []
    optimiser.zero_grad(set_to_none=True)
    for (x, *y), (made, *z), share in zip(_split(real, parts, "real"), _split(fake, parts, "fake"), mixes, strict=True):
        if x.shape != made.shape:
            raise InputError(f"real and fake must have one shape, got {tuple(x.shape)} and {tuple(made.shape)}")
        made = made.detach()
        outputs = critic(*(torch.cat(pair) for pair in zip((x, *y), (made, *z), strict=True)))
        terms = {"critic": loss(outputs[: len(x)], outputs[len(x) :])}

        def score(at: Tensor, y: Any = y) -> Tensor:
            return first_output(critic(at, *y))

        if gradient_penalty:
            between = torch.rand(len(x), device=x.device) if share is None else share
            terms["penalty"] = slope_penalty(score, x, made, between)
        if r1:
            terms["r1"] = slope_penalty(score, x, made, x.new_ones(len(x)), centre=0.0)
        (sum(weights[name] * value for name, value in terms.items()) / parts).backward()
        seen.append({name: value.detach() for name, value in terms.items()})
    _average_gradients(optimiser, process_group)
    optimiser.step()
    return {name: torch.stack([part[name] for part in seen]).mean() for name in seen[0]}


class GeneratorStep(NamedTuple):
    """Loss of a generator's step, and c and Z that it used; the next steps may use them again."""

    loss: Tensor
    cut: Cut | None


def generator_step(
    generator: nn.Module,
    critic: nn.Module,
    optimiser: torch.optim.Optimizer,
    z: Batch,
    *,
    loss: Any,
    budget: Any = None,
    cut: Cut | None = None,
    parts: int = 1,
    process_group: Any = None,
) -> GeneratorStep:
    """Update c_K, then the generator G by descending its loss, in Algorithm 2 E_Q[K a f(r / (K a))].

    c is a constant of the step: no gradient goes through it. None stays in the critic's weights.

    Args:
        generator: From latents, and labels, to samples; the optimiser is of its weights.
        critic: As for `critic_step`.
        z: Latents.
        loss: From `generator_loss`, or its name.
        budget: K, if the loss rejects: c is solved on the log-ratios of the whole batch, of all processes.
        cut: c of an earlier step, instead of solving for it.
        parts, process_group: As for `critic_step`. c is one for all parts: their log-ratios are computed ahead.

    Example:
        >>> from obrs.training.losses import generator_loss
        >>> generator, critic = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
        >>> adam = torch.optim.Adam(generator.parameters())
        >>> step = generator_step(generator, critic, adam, torch.randn(8, 2), loss=generator_loss("exact"), budget=2)
        >>> step.loss.shape, step.cut.log_c.shape
        (torch.Size([]), torch.Size([]))
    """
    loss = generator_loss(loss) if isinstance(loss, str) else loss
    parts = _check_step(optimiser, parts, loss, generator=generator, critic=critic)
    batches = _split(z, parts, "z")

    def score(latent: Tensor, *labels: Tensor) -> Tensor:
        return critic(generator(latent, *labels), *labels)

    def solve(outputs: Tensor) -> Cut:  # a NaN shows in the loss
        return solve_cut(first_output(outputs).detach(), budget, check=False, process_group=process_group)

    if loss.rejects and cut is None and parts > 1:
        with torch.no_grad():
            cut = solve(torch.cat([score(*batch) for batch in batches]))
    weights = [weight for group in optimiser.param_groups for weight in group["params"] if weight.requires_grad]
    losses = []
    optimiser.zero_grad(set_to_none=True)
    for batch in batches:
        outputs = score(*batch)
        cut = solve(outputs) if loss.rejects and cut is None else cut
        value = loss(outputs, cut)
        (value / parts).backward(inputs=weights)  # and no gradient in the critic's weights
        losses.append(value.detach())
    _average_gradients(optimiser, process_group)
    optimiser.step()
    return GeneratorStep(torch.stack(losses).mean(), cut if loss.rejects else None)


def _check_step(optimiser: Any, parts: int, loss: Any, **networks: Any) -> int:
    for name, network in networks.items():
        check_callable(network, name, "a torch.nn.Module")
    if not callable(loss) or ("generator" in networks and not hasattr(loss, "rejects")):
        raise InputTypeError(f"loss must be critic_loss(...) or generator_loss(...), or its name, got {loss!r:.60}")
    if not hasattr(optimiser, "param_groups"):  # some that wrap one of torch are none themselves
        raise InputTypeError(f"optimiser must be one of torch.optim, got {optimiser!r:.60}")
    return check_count(parts, "parts")


def _split(batch: Batch, parts: int, name: str) -> list[tuple[Tensor, ...]]:
    tensors = batch if isinstance(batch, tuple) else (batch,)
    if not all(isinstance(x, Tensor) and x.ndim and len(x) for x in tensors) or not tensors:
        raise InputTypeError(f"{name} must be a tensor of samples, or a tuple of them, got {batch!r:.60}")
    if len(tensors[0]) % parts:
        raise InputError(f"a batch of {len(tensors[0])} cannot be split into {parts} equal parts")
    return [tensors] if parts == 1 else [*zip(*(x.chunk(parts) for x in tensors), strict=True)]


def _average_gradients(optimiser: torch.optim.Optimizer, process_group: Any) -> None:
    """Average the gradients over the processes."""
    if process_group is None:
        return
    for gradient in (p.grad for group in optimiser.param_groups for p in group["params"] if p.grad is not None):
        torch.distributed.all_reduce(gradient, group=process_group)
        gradient /= torch.distributed.get_world_size(process_group)
