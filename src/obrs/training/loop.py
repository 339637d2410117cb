"""Training a generator and its critic, with or without the rejection inside: one loop, from top to bottom."""

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from math import exp, isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._progress import bar
from ..budget import acceptance_rate, solve_cut, solve_log_c
from ..errors import InputError, MissingLibraryError
from . import checkpoints
from .batches import GIVEN, Batches, Data, load_data, seed_noise
from .config import TrainConfig, read_config
from .losses import gradient_penalty
from .networks import as_found, complete_networks, frozen, try_networks
from .objective import Objective, objective
from .state import State, all_finite, average
from .trained import Trained
from .watch import Journal, Losses, NotFiniteError, Row, interruptible
from .window import BudgetWindow

__all__ = ["train"]

_FREE = ("steps", "log_every", "save_every", "keep", "tensorboard")  # may change when a run is resumed


@contextmanager
def _own_accelerators() -> Iterator[None]:
    """Leave the state that all accelerators of a process share, their precision above all, as it was found."""
    try:
        from accelerate.state import AcceleratorState
    except ImportError:  # `_accelerator` says so
        yield
        return
    others, AcceleratorState._shared_state = AcceleratorState._shared_state, {}
    try:
        yield
    finally:
        AcceleratorState._shared_state = others


@_own_accelerators()
def train(
    config: TrainConfig,
    *,
    data: Any = None,
    labels: Any = None,
    generator: nn.Module | None = None,
    critic: nn.Module | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
) -> Trained:
    """Train a generator and a critic.

    Runs on the CPU, on one GPU, or in many processes started by `torchrun` or `accelerate launch`; a step has
    `config.batch_size` samples however many processes share it. On the CPU a run that was stopped and resumed ends
    with the same bits as one that was not.

    Args:
        config: All that decides the run.
        data: Samples to train on instead of those that the configuration names, shape `(n, dim)`, or
            `(n, channels, height, width)` with values in [-1, 1].
        labels: Their classes, integers of shape `(n,)`.
        generator: A module of your own, `generator(z)` or `generator(z, labels)`; trained in place.
        critic: A module of your own, `critic(x)` or `critic(x, labels)`, that returns shape `(n,)`, or `(n, 2)` where
            the loss needs two outputs; trained in place.
        out: Folder for configuration, log and checkpoints; None keeps nothing on the disk.
        resume: Go on from the latest checkpoint in `out`.
        progress: Show a bar; None shows one on a terminal.

    Returns:
        The networks, in evaluation mode, with their log.

    Raises:
        NotFiniteError: A loss or a weight is no longer finite; `.checkpoint` is the last good one.
        Interrupted: Ctrl-C; says which checkpoint is kept. One process finishes its step and saves first; press
            again not to wait.

    Example:
        >>> run = train(TrainConfig(steps=3, batch_size=16, data_size=100, generator_loss="exact"))
        >>> run.log[-1]["step"], run.propose(range(5)).shape
        (3, torch.Size([5, 2]))

    References:
        | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Algorithm 2 and Appendix E
    """
    # What is trained, on what, and where
    goal = objective(config)
    config = config if data is None else replace(config, data=GIVEN)
    folder = None if out is None else Path(out)
    found = _starting_point(config, folder, resume)
    samples = load_data(config, data, labels)
    facts: dict[str, Any] = {"shape": list(samples.x.shape[1:]), "counts": _counts(samples)}
    if folder is not None:
        facts["data"] = samples.fingerprint()
    if found is not None and resume and checkpoints.read_facts(found).get("data", facts["data"]) != facts["data"]:
        raise InputError(f"{folder} was trained on other data; give train the same data=")
    generator, critic = complete_networks(
        config, facts["shape"], samples.classes, goal.outputs, generator=generator, critic=critic
    )
    try_networks(generator, critic, config.latent, samples.x, samples.labels, goal.outputs)
    accelerator = _accelerator(config.precision)
    here, first = accelerator.device, accelerator.is_main_process
    rank, world = accelerator.process_index, accelerator.num_processes
    for network in (generator, critic):
        network.to(here)
    ema = copy.deepcopy(generator).requires_grad_(False) if config.ema_decay else None
    generator_adam = torch.optim.Adam(generator.parameters(), config.generator_lr, config.generator_betas)
    critic_adam = torch.optim.Adam(critic.parameters(), config.critic_lr, config.critic_betas)
    learning = [weight for weight in critic.parameters() if weight.requires_grad]
    window = BudgetWindow(config.budget, size=config.window or None, every=config.constant_every)
    batches = Batches(samples, config, rank=rank, world=world, device=here)
    gather: Callable[[Tensor], Tensor] = accelerator.gather if world > 1 else _itself

    # Where it starts: afresh, from another run's networks, or where this run stopped
    state = State(generator, critic, ema, generator_adam, critic_adam, window, accelerator)
    start = 0
    if found is not None and resume:
        start = state.resume(found)
    elif found is not None:
        state.take_networks(checkpoints.load(found)[0], found)
    accelerator.wait_for_everyone()  # all have read before the first one writes
    if folder is not None and first:
        folder.mkdir(parents=True, exist_ok=True)
        config.save(folder / "config.json")
    journal = Journal(folder if first else None, upto=start, tensorboard=config.tensorboard)
    if folder is not None and not resume:
        state.save(folder, 0, facts, config.keep)

    # The loop
    losses = Losses(lambda x: accelerator.reduce(x, "mean"), step=start)
    rejection = None
    parts, note = config.parts, ""
    began = time.perf_counter() - (journal.rows[-1]["seconds"] if journal.rows else 0.0)

    def ahead(step: int, turn: int) -> Tensor:
        """Return the first output on the fakes of all parts and processes: all parts share one constant."""
        with torch.no_grad():
            drawn = [batches.latent(step, turn, part) for part in range(parts)]
            scores = [bare_c(bare_g(z, *_given(y)), *_given(y)) for z, y in drawn]
        return torch.cat([gather(goal.first(part)) for part in scores])

    own_noise = torch.random.fork_rng(devices=[here] if here.type == "cuda" else [])
    with (
        interruptible(losses, folder, alone=world == 1) as stop,
        closing(journal),
        bar("training", config.steps, progress if first else False) as tell,
        own_noise,
        as_found(generator, critic),
        _prepared(accelerator, generator, critic) as (g, c),
    ):
        bare_g, bare_c = accelerator.unwrap_model(g), accelerator.unwrap_model(c)  # where no gradient is to be shared
        g.train()
        c.train()
        for step in range(start, config.steps):
            seed_noise(here, config.seed, step, rank)

            # The critic: real against fake
            for turn in range(config.critic_steps):
                critic_adam.zero_grad(set_to_none=True)
                critic_loss, penalty = torch.zeros((), device=here), torch.zeros((), device=here)
                if goal.of_generator.second_critic and parts > 1:
                    rejection = solve_cut(ahead(step, turn), config.budget, check=False)
                for part in range(parts):
                    real, real_labels = batches.real(step, turn, part)
                    z, fake_labels = batches.latent(step, turn, part)
                    with torch.no_grad():
                        fake = bare_g(z, *_given(fake_labels))
                    with _shared(accelerator, c, part == parts - 1):
                        # in one pass, as many processes share the gradients of one pass
                        scores = c(torch.cat([real, fake]), *_given(real_labels, fake_labels))
                        of_real, of_fake = scores[: len(real)], scores[len(real) :]
                        if goal.of_generator.second_critic and parts == 1:
                            rejection = solve_cut(gather(of_fake[:, 0].detach()), config.budget, check=False)
                        loss = goal.critic(of_real, of_fake, rejection)
                        critic_loss += loss.detach() / parts
                        if config.gradient_penalty:
                            slope_of = partial(_first_output, goal, bare_c, real_labels)
                            mix = batches.mix(step, turn, part)
                            slopes = gradient_penalty(slope_of, real, fake, mix)
                            penalty += slopes.detach() / parts
                            loss = loss + config.gradient_penalty * slopes
                        (loss / parts).backward()
                critic_adam.step()

            # The generator: against the critic as it is now, and what rejection will make of it
            generator_adam.zero_grad(set_to_none=True)
            generator_loss = torch.zeros((), device=here)
            log_ratios: list[Tensor] = []
            if goal.of_generator.rejects and parts > 1:
                rejection = window.update(ahead(step, -1)) if window.due else window.pass_over()
            with frozen(learning):
                for part in range(parts):
                    z, fake_labels = batches.latent(step, -1, part)
                    with _shared(accelerator, g, part == parts - 1):
                        scores = bare_c(g(z, *_given(fake_labels)), *_given(fake_labels))
                        if (log_ratio := goal.log_ratio(scores.detach())) is not None:
                            log_ratios.append(log_ratio)
                        if goal.of_generator.rejects and parts == 1:
                            rejection = window.update(gather(goal.first(scores).detach()))
                        loss = goal.generator(scores, rejection)
                        generator_loss += loss.detach() / parts
                        (loss / parts).backward()
            generator_adam.step()
            if ema is not None:
                average(ema, generator, config.ema_decay if step >= config.ema_start else 0.0)

            # What is said of it, and what is kept of it
            done = step + 1
            also = {"penalty": penalty} if config.gradient_penalty else {}
            losses.add(done, critic=critic_loss, **also, generator=generator_loss)
            stopped = stop()
            last = done == config.steps or stopped
            save = folder is not None and (last or done % config.save_every == 0)
            if save or last or done % config.log_every == 0:
                means, wrong = losses.look()
                if wrong is None and (save or last) and not all_finite(generator, critic):
                    wrong = f"a weight is not finite after step {done}"
                if wrong is not None:
                    raise NotFiniteError(wrong, checkpoints.last(folder))
                row: Row = {"step": done, "seconds": round(time.perf_counter() - began, 3), **means}
                if log_ratios:
                    own_c = None if goal.logistic_head else rejection
                    row |= _at_budget(gather(torch.cat(log_ratios)), config.budget, own_c)
                if first:
                    journal.add(row)
                note = _note(row)
            tell(done, note)
            if save and folder is not None:
                state.save(folder, done, facts, config.keep)
            if stopped and done < config.steps:
                raise KeyboardInterrupt
    for network in (generator, critic, *(() if ema is None else (ema,))):
        network.eval()
    return Trained(generator, critic, ema, config, journal.rows, folder, tuple(facts["counts"]))


def _counts(data: Data) -> list[int]:
    """Return how many samples there are of each class; none without labels."""
    return [] if data.labels is None else [int(n) for n in data.labels.bincount()]


def _given(*labels: Tensor | None) -> tuple[Tensor, ...]:
    """Return the labels as what follows the samples in a call: nothing without classes."""
    found = [y for y in labels if y is not None]
    return () if not found else (found[0] if len(found) == 1 else torch.cat(found),)


def _first_output(goal: Objective, critic: nn.Module, labels: Tensor | None, x: Tensor) -> Tensor:
    return goal.first(critic(x, *_given(labels)))


def _itself(of_one: Tensor) -> Tensor:
    return of_one


def _shared(accelerator: Any, network: nn.Module, last: bool) -> AbstractContextManager[Any]:
    """Share gradients between processes only with the last part of a batch."""
    return nullcontext() if last else accelerator.no_sync(network)


def _at_budget(log_ratio: Tensor, budget: float, rejection: Any) -> dict[str, float | None]:
    """Return log c, the rate that it gives on these log-ratios, and M = max r / mean r; None where not finite."""
    x = log_ratio.float().cpu()
    log_c = solve_log_c(x, budget, check=False) if rejection is None else rejection.log_c.float().cpu()
    log_mean = float(torch.logsumexp(x.double(), 0)) - float(torch.tensor(float(len(x))).log())
    values = {
        "log_c": float(log_c),
        "rate": float(acceptance_rate(x, log_c, check=False)),
        "m": exp(min(float(x.max()) - log_mean, 700.0)),
    }
    return {name: value if isfinite(value) else None for name, value in values.items()}


def _note(row: Row) -> str:
    said = {"critic": row["critic"], "generator": row["generator"]}
    if row.get("log_c") is not None:
        said |= {"rate": row["rate"], "c": exp(min(row["log_c"], 700.0)), "M": row["m"]}
    return "  ".join(f"{name} {value:.3g}" for name, value in said.items() if value is not None)


def _accelerator(precision: str) -> Any:
    try:
        from accelerate import Accelerator
    except ImportError as error:
        raise MissingLibraryError("training needs accelerate: pip install 'obrs[training]'") from error
    gpu = torch.cuda.is_available() or torch.backends.mps.is_available()
    accelerator = Accelerator(
        mixed_precision=precision, cpu=not gpu
    )  # without a GPU many processes must be told to share
    kind = accelerator.distributed_type.value
    if kind in ("DEEPSPEED", "FSDP", "MEGATRON_LM"):
        raise InputError(f"networks are copied to every process, not split; set up accelerate without {kind}")
    return accelerator


@contextmanager
def _prepared(accelerator: Any, *networks: nn.Module) -> Iterator[tuple[nn.Module, ...]]:
    """Let networks share gradients and compute in the precision of the run, and undo it however the block ends.

    Only the networks: neither precision scales its gradients, and accelerate's wrappers of backward and of the
    optimisers look for installed libraries on the disk at every step, a tenth of a step of small perceptrons.
    """
    own = [vars(network).get("forward") for network in networks]
    try:
        yield tuple(accelerator.prepare(*networks))
    finally:
        for network, forward in zip(networks, own, strict=True):
            for name in ("forward", "_original_forward"):
                vars(network).pop(name, None)
            if forward is not None:
                network.forward = forward


def _starting_point(config: TrainConfig, folder: Path | None, resume: bool) -> Path | None:
    """Return the checkpoint to start from, if any; refuse to write over another run."""
    if folder is None and config.tensorboard:
        raise InputError("tensorboard=true needs out, a folder for the run")
    if not resume:
        if folder is not None and checkpoints.checkpoints(folder / "checkpoints"):
            raise InputError(
                f"{folder} holds a run already; resume it (--resume, or resume=True), or choose another folder"
            )
        return checkpoints.latest(config.start_from) if config.start_from else None
    if folder is None:
        raise InputError("resume needs out, the folder of the run")
    path = checkpoints.latest(folder)
    done = checkpoints.read_facts(path)["step"]
    if done > config.steps:
        raise InputError(f"{folder} has done {done} steps already, got steps={config.steps}; ask for more")
    saved = asdict(read_config(folder / "config.json"))
    for key, value in asdict(config).items():
        if key not in _FREE and saved[key] != value:
            if saved[key] == GIVEN:
                raise InputError(f"{folder} was trained on data that were given to train; give the same data= again")
            raise InputError(
                f"{folder} was made with {key}={saved[key]!r}, got {value!r}; resume with that, or start a run in "
                "another folder"
            )
    return path
