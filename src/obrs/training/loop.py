"""Training a generator and its critic, with or without the rejection inside: one function, from top to bottom."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .._progress import bar
from ..fitting.averaging import average
from ..fitting.seeds import derived, own_noise
from .batches import Batches, load_data
from .checkpoints import new_state, starting_point
from .config import GIVEN, TrainConfig
from .interrupt import interruptible
from .journal import Journal, Row, at_budget, note
from .networks import as_found, build_networks, try_networks
from .processes import join_processes
from .step import Game, Player, critic_step, generator_step, objective
from .trained import Trained
from .watch import Losses

__all__ = ["train"]


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
    found = starting_point(config, folder, resume)
    samples = load_data(config, data, labels)
    facts: dict[str, Any] = {"shape": list(samples.x.shape[1:]), "counts": samples.counts}
    facts["data"] = None if folder is None else samples.fingerprint()
    about = facts["shape"], samples.classes, goal.outputs
    generator, critic = build_networks(config, *about, generator=generator, critic=critic)
    try_networks(generator, critic, config.latent, samples.x, samples.labels, goal.outputs)
    processes = join_processes()
    batches = Batches(samples, config, rank=processes.rank, world=processes.count, device=processes.device)
    state = new_state(config, generator, critic, processes)
    start = state.start(found, resume, facts)
    if folder is not None and processes.first:
        folder.mkdir(parents=True, exist_ok=True)
        config.save(folder / "config.json")
    journal = Journal(folder if processes.first else None, upto=start, tensorboard=config.tensorboard)
    if folder is not None and not resume:
        state.save(folder, 0, facts, config.keep)
    losses = Losses(processes.mean, step=start, folder=folder)
    shown = ""

    with (
        interruptible(lambda: losses.step, folder, alone=processes.count == 1) as pressed,
        closing(journal),
        bar("training", config.steps, progress if processes.first else False) as tell,
        own_noise(processes.device) as reseed,
        as_found(generator, critic),
    ):
        generator.train()
        critic.train()
        game = Game(
            goal=goal,
            generator=Player(generator, state.generator_optimiser, processes, config.precision),
            critic=Player(critic, state.critic_optimiser, processes, config.precision),
            batches=batches,
            window=state.window,
            gather=processes.gather,
            parts=config.parts,
            penalty=config.gradient_penalty,
        )
        for step in range(start, config.steps):
            reseed(derived(config.seed, "noise", step, processes.rank))
            for turn in range(config.critic_steps):
                of_critic = critic_step(game, step, turn)
            of_generator = generator_step(game, step)
            if state.ema is not None:
                average(state.ema, generator, config.ema_decay if step >= config.ema_start else 0.0)

            # The log and the checkpoint
            done, stopped = step + 1, pressed()
            losses.add(done, **of_critic, generator=of_generator.loss)
            last = done == config.steps or stopped
            save = folder is not None and (last or done % config.save_every == 0)
            if save or last or done % config.log_every == 0:
                row: Row = {"step": done, "seconds": journal.seconds()}
                row |= losses.look((generator, critic) if save or last else ())
                if of_generator.log_ratio:
                    log_ratio = processes.gather(torch.cat(of_generator.log_ratio))
                    row |= at_budget(log_ratio, config.budget, None if goal.logistic_head else of_generator.cut)
                if processes.first:
                    journal.add(row)
                shown = note(row)
            tell(done, shown)
            if save and folder is not None:
                state.save(folder, done, facts, config.keep)
            if stopped and done < config.steps:
                raise KeyboardInterrupt
    for network in state.modules().values():
        network.eval()
    return Trained(generator, critic, state.ema, config, journal.rows, folder, tuple(facts["counts"]))
