"""Train a generator and its critic for a budget: one stage, in one process or many."""

import atexit
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch import nn

from .._checks import check_at_least, check_budget, check_count, check_seed
from .._progress import bar
from .._text import lookup, one_line
from ..errors import InputError, InputTypeError
from ..fitting.seeds import derive, own_noise
from .data import Data, Draws, as_data
from .losses import CRITIC_LOSSES, GENERATOR_LOSSES, critic_loss, first_output, generator_loss
from .step import critic_step, generator_step
from .trained import Run, Trained

__all__ = ["train"]

Rate = float | Callable[[float], float]


def train(
    generator: nn.Module,
    critic: nn.Module,
    data: Any,
    *,
    loss: Any = None,
    budget: float,
    steps: int,
    batch_size: int = 256,
    critic_steps: int = 1,
    warm_up: int = 0,
    lr: Rate | tuple[Rate, Rate] = (2e-4, 4e-4),
    betas: tuple[float, float] = (0.5, 0.999),
    ema: float | Callable[[int], float] = 0.999,
    r1: float = 0.0,
    gradient_penalty: float = 0.0,
    constant_every: int = 1,
    precision: str = "no",
    latent: int | None = None,
    start_from: Trained | str | Path | None = None,
    new_critic: bool = False,
    seed: int = 0,
    out: str | Path | None = None,
    log_every: int = 100,
    save_every: int = 1000,
    keep: int = 2,
    progress: bool | None = None,
) -> Trained:
    """Train a generator and a critic in place, on the CPU, on a GPU, or in the processes of torchrun or accelerate.

    Rows, latents and labels are functions of the seed and the step: a run that was killed and is called again with the
    same `out` ends with the same weights, on the CPU bit for bit. One call is one stage; a further stage is another
    call with `start_from`, whose steps and data go on where the first one ended.

    Args:
        generator: From latents `(n, latent)`, and labels, to samples.
        critic: From samples, and labels, to outputs of shape `(n,)`, or `(n, 2)`: the second is then a log-ratio.
        data: An array or tensor of samples, a tuple with labels, a Dataset or a DataLoader.
        loss: A key of `GENERATOR_LOSSES`, or a pair `(critic_loss(...), generator_loss(...))`. It has no default:
            'exact' won on points, none on images.
        budget: K, proposals per kept sample.
        steps, critic_steps: Steps of the generator, and steps of the critic for each of them.
        batch_size: Samples of a step, in all processes together.
        warm_up: Steps of the critic alone before those of the generator.
        lr, betas: Of Adam; `lr` may be a pair `(generator, critic)`, and each a function of the share of steps done.
        ema: Decay of the generator's moving average, lower at first; 0 or False for none; or a function of the step.
        r1, gradient_penalty: See `critic_step`.
        constant_every: Steps between two solutions for c.
        precision: "no" for float32, or "bf16".
        latent: Length of the latent; by default `generator.latent`, or what its first linear layer takes.
        start_from, new_critic: A run, or its folder, to go on from; with a new critic both Adams start anew.
        seed: Decides order of the data, latents and dropout; initial weights are the networks'.
        out: A folder for checkpoints and `log.jsonl`; a run that is there goes on. A second one at the same time is
            refused, but not where files have no locks, as on Windows or NFS.
        log_every, save_every, keep: Steps between rows of the log, and between checkpoints; how many of them to keep.
        progress: Show a bar; None shows one on a terminal.

    Raises:
        NotFiniteError: A loss or a weight is no longer finite; `.partial` is the last good state.
        Interrupted: Ctrl-C; says from which step the run goes on. Without `out`, `.partial` is a run to `start_from`.

    Example:
        >>> generator, critic = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
        >>> run = train(generator, critic, torch.randn(100, 2), loss="exact", budget=2, steps=3, batch_size=16)
        >>> run.log[-1]["step"], run.sample(5, budget=2).x.shape
        (3, torch.Size([5, 2]))
    """
    # What is asked for
    of_critic, of_generator = _choose_losses(loss)
    counts = {"steps": steps, "batch_size": batch_size, "critic_steps": critic_steps, "constant_every": constant_every}
    counts |= {"log_every": log_every, "save_every": save_every, "keep": keep}
    checked = (check_count(count, name) for name, count in counts.items())
    steps, batch_size, critic_steps, constant_every, log_every, save_every, keep = checked
    warm_up = check_count(warm_up, "warm_up", least=0)
    rates = lr if isinstance(lr, tuple) else (lr, lr)
    if len(rates) != 2 or not isinstance(betas, tuple | list) or len(betas) != 2:
        raise InputError(f"lr is one or a pair, betas are a pair, got {lr!r:.60} and {betas!r:.60}")
    limits = [("lr", rates[0], inf), ("lr", rates[1], inf), ("ema", ema or 0.0, 1.0), ("r1", r1, inf)]
    limits += [("gradient_penalty", gradient_penalty, inf), ("betas", betas[0], 1.0), ("betas", betas[1], 1.0)]
    for name, value, below in limits:
        if name not in ("lr", "ema") or not callable(value):
            check_at_least(value, name, below=below)
    lookup({"no": None, "bf16": None}, precision, "precision")
    settings = {"loss": [of_critic.name, of_generator.name], "budget": check_budget(budget), "seed": check_seed(seed)}
    samples = as_data(data)
    settings |= {"batch_size": batch_size, "critic_steps": critic_steps, "warm_up": warm_up, "data": samples.digest}
    place = _join_processes(batch_size)
    latent = _check_networks(generator, critic, samples, latent, place.device)

    # From which step on
    facts = {"settings": settings, "shape": samples.shape[1:], "latent": latent, "of_ratio": of_critic.of_ratio}
    facts["counts"] = [] if samples.labels is None else samples.labels.bincount().tolist()
    run = Run({"generator": generator, "critic": critic}, facts, out, averaged=bool(ema), betas=betas)
    start = run.find_start(start_from, new_critic)
    begin, end = run.first + warm_up, run.first + warm_up + steps
    if run.step > end:
        raise InputError(f"{out} has done {run.step - begin} steps already, got steps={steps}; ask for more")
    draws = Draws(seed, batch_size, place.process_index, place.num_processes, place.device)
    reals = samples.batches(draws.rows(samples.shape[0], run.seen))
    group = torch.distributed.group.WORLD if place.num_processes > 1 else None
    of_critic_step: Any = {"loss": of_critic, "r1": r1, "gradient_penalty": gradient_penalty, "process_group": group}
    of_generator_step: Any = {"loss": of_generator, "budget": budget, "process_group": group}

    # Algorithm 2
    with (
        run.open(start, place, keep),
        bar("training", end, progress if place.is_main_process else False) as update,
        own_noise(place.device) as reseed,
        torch.autocast(place.device.type, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False),
    ):
        generator.train(), critic.train()
        for step in range(run.step, end):
            reseed(derive(seed, "noise", step, place.process_index))
            share = max(step - begin, 0) / steps
            for adam, rate in zip(run.adams.values(), rates, strict=True):
                adam.param_groups[0]["lr"] = rate(share) if callable(rate) else rate
            for turn in range(critic_steps if step >= begin else 1):
                x, *y = (part.to(place.device, non_blocking=True) for part in next(reals))
                z, *labels = draws.latents(latent, samples.labels, step, turn)
                with torch.no_grad():
                    fake = generator(z, *labels)
                mix = draws.draw(torch.rand, "mix", step, turn) if gradient_penalty else None
                run.seen += batch_size
                losses = critic_step(critic, run.adams["critic"], (x, *y), (fake, *labels), mix=mix, **of_critic_step)
            if step >= begin:
                cut = run.cut if step % constant_every else None
                adam, z = run.adams["generator"], draws.latents(latent, samples.labels, step, -1)
                losses["generator"], run.cut = generator_step(generator, critic, adam, z, cut=cut, **of_generator_step)
                if ema:
                    run.average(ema(step) if callable(ema) else min(ema, (1 + step) / (10 + step)))
            saves = (step + 1) % save_every == 0 or step + 1 == end
            logs = saves or (step + 1) % log_every == 0 or step + 1 == begin
            if row := run.end_step(losses, logs=logs, saves=saves):
                update(step + 1, row)
    return run.result(run.good)


def _choose_losses(loss: Any) -> tuple[Any, Any]:
    """Return the losses of critic and generator."""
    if loss is None:
        which = "'exact' for points, after a plain GAN; 'paper_raw', the paper's, for images, where none was ahead"
        raise InputError(f"name a loss=: {which}; there are: {', '.join(GENERATOR_LOSSES)}")
    if isinstance(loss, str):
        return critic_loss(loss if loss in CRITIC_LOSSES else "gan"), generator_loss(loss)
    pair: Any = loss if isinstance(loss, tuple | list) and len(loss) == 2 else (None, None)
    of_critic, of_generator = pair
    if not hasattr(of_critic, "of_ratio") or not hasattr(of_generator, "rejects"):
        raise InputTypeError(f"loss must be a name or (critic_loss(...), generator_loss(...)), got {loss!r:.60}")
    if of_generator.rejects and not of_critic.of_ratio:
        raise InputError(f"{of_generator.name!r} needs a critic that returns a log-ratio, {of_critic.name!r} has none")
    return of_critic, of_generator


def _check_networks(generator: Any, critic: Any, data: Data, latent: int | None, device: Any) -> int:
    """Move both networks to a device and pass two latents through them; return the length of a latent."""
    for name, network in (("generator", generator), ("critic", critic)):
        if not isinstance(network, nn.Module):
            raise InputTypeError(f"{name} must be a torch.nn.Module, got {network!r:.60}")
        network.to(device)
    latent = None if latent is None else check_count(latent, "latent")
    linear = (layer.in_features for layer in generator.modules() if isinstance(layer, nn.Linear))
    if not (latent := latent or getattr(generator, "latent", None) or next(linear, None)):
        raise InputError("the generator does not tell the length of its latent; give latent=")
    z = [torch.zeros(2, latent, device=device), *([] if data.labels is None else [data.labels[:2].to(device)])]
    try:
        with torch.no_grad():
            made = generator.eval()(*z)
            outputs = critic.eval()(made, *z[1:])
    except RuntimeError as error:
        why = f"generator and critic do not fit latents of length {latent}, or each other"
        raise InputError(f"{why}: {one_line(error)}") from error
    if made.shape[1:] != data.shape[1:]:
        raise InputError(f"the generator makes samples of {tuple(made.shape[1:])}, the data are {data.shape[1:]}")
    first_output(outputs, "the critic")
    return latent


def _join_processes(batch_size: int) -> Any:
    """Join the processes that torchrun or accelerate started, or be one alone."""
    gpu = torch.cuda.is_available() or torch.backends.mps.is_available()
    is_joined = torch.distributed.is_available() and torch.distributed.is_initialized()
    place = PartialState(cpu=not gpu)  # without a GPU many processes must be told to share
    if place.num_processes > 1 and not is_joined:  # else the script ends its own group
        # while Python is whole, since gloo's threads hold tensors; a script may have ended the group itself
        atexit.register(lambda: torch.distributed.is_initialized() and torch.distributed.destroy_process_group())
    if batch_size % place.num_processes:
        raise InputError(f"batch_size must be a multiple of the {place.num_processes} processes, got {batch_size}")
    return place
