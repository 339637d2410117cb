"""Training a generator and its critic, with or without the rejection inside, stage by stage: one loop for all."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._progress import bar
from ..divergences import DIVERGENCES
from ..fitting.seeds import derived, own_noise
from .averaging import average
from .batches import Batches, load_data
from .checkpoints import new_state, starting_point, steps_done
from .config import GIVEN, TrainConfig, check_recipe
from .interrupt import interruptible
from .journal import Journal, Row, at_budget, note
from .networks import as_found, build_stages, try_networks
from .pace import Pace
from .processes import join_processes
from .recipe import recipe_of_images
from .schedule import Stage, current, plan
from .step import Game, GeneratorTurn, Player, critic_step, generator_step, objective
from .trained import Trained
from .watch import Losses

__all__ = ["train"]

_ASK_EVERY = 10  # steps after which many processes ask each other whether Ctrl-C was pressed


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
    say: Callable[[str], None] | None = None,
) -> Trained:
    """Train a generator and a critic, in the stages that the configuration has.

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
        say: Is told what the run will take, after its first three steps, if that is more than ten minutes.

    Returns:
        The networks, in evaluation mode, with their log.

    Raises:
        NotFiniteError: A loss or a weight is no longer finite; `.checkpoint` is the last good one.
        Interrupted: Ctrl-C; says which checkpoint is kept. The run finishes its step and saves first, in many
            processes up to ten steps; press again not to wait.

    Example:
        >>> config = TrainConfig(steps=3, batch_size=16, generator_loss="exact")
        >>> run = train(config, data=torch.randn(100, 2))
        >>> run.log[-1]["step"], run.propose(range(5)).shape
        (3, torch.Size([5, 2]))

    References:
        | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Algorithm 2 and Appendix E
    """
    # What is trained, on what, and where
    config = config if data is None else _of_given(config, data)
    check_recipe(config)
    config = config.spelled_out()
    stages = plan(config)
    goals = [objective(stage.config) for stage in stages]
    folder = None if out is None else Path(out)
    found = starting_point(config, folder, resume)
    samples = load_data(config, data, labels)
    facts: dict[str, Any] = {"shape": list(samples.x.shape[1:]), "counts": samples.counts}
    facts["data"] = None if folder is None else samples.fingerprint()
    about = [goal.outputs for goal in goals], facts["shape"], samples.classes
    generator, critics = build_stages(stages, *about, generator=generator, critic=critic)
    for each, goal in zip(critics, goals, strict=True):
        few = samples.take(np.arange(min(2, len(samples.x))))
        try_networks(generator, each, config.latent, few, samples.labels, goal.outputs)
    processes = join_processes()
    if processes.first:
        _warn(stages, len(samples.x))
    here: Any = {"rank": processes.rank, "world": processes.count, "device": processes.device}
    batches = [Batches(samples, stage.config, **here, stage=stage) for stage in stages]
    now = current(stages, steps_done(found) if resume else 0)
    state = new_state(now.config, generator, critics[now.number - 1], processes)
    start = state.start(found, resume, facts, new_critic=now.config.new_critic)
    if folder is not None and processes.first:
        folder.mkdir(parents=True, exist_ok=True)
        config.save(folder / "config.json")
    journal = Journal(folder if processes.first else None, upto=start, tensorboard=config.tensorboard)
    if folder is not None and not resume:
        state.save(folder, 0, facts, config.keep)
    losses = Losses(processes.mean, step=start, folder=folder)
    total, shown = stages[-1].last, ""
    pace = Pace(stages, start, say if processes.first else None)

    with (
        interruptible(lambda: losses.step, folder, alone=processes.count == 1) as pressed,
        closing(journal),
        bar("training", total, progress if processes.first else False) as tell,
        own_noise(processes.device) as reseed,
        as_found(generator, *critics),
    ):
        players = {"generator": Player(generator, state.generator_optimiser, processes, config.precision)}
        for stage in stages[now.number - 1 :]:
            goal, own = goals[stage.number - 1], critics[stage.number - 1]
            if stage is not now:
                state = state.enter(stage, own)
            if "critic" not in players or players["critic"].optimiser is not state.critic_optimiser:
                players["critic"] = Player(own, state.critic_optimiser, processes, config.precision)
            generator.train()
            own.train()
            game = Game(
                goal=goal,
                **players,
                batches=batches[stage.number - 1],
                window=state.window,
                parts=stage.config.parts,
                penalty=stage.config.gradient_penalty,
                r1=stage.config.r1,
                noise=stage.noise,
            )
            for step in range(max(start, stage.first), stage.last):
                reseed(derived(config.seed, "noise", step, processes.rank))
                of_step, of_generator = play(game, stage, step)
                if state.ema is not None and of_generator is not None:
                    average(state.ema, generator, config.ema_decay if step >= config.ema_start else 0.0)

                # The log and the checkpoint
                done = step + 1
                asks = processes.count == 1 or done % _ASK_EVERY == 0 or done == stage.last
                stopped = asks and processes.any(pressed())
                losses.add(done, **of_step)
                pace.step(done, of_step["critic"])
                last = done == stage.last or stopped
                save = folder is not None and (last or done % config.save_every == 0)
                if save or last or done == stage.begin or done % config.log_every == 0:
                    row: Row = {"step": done, "seconds": journal.seconds()}
                    row |= {"stage": stage.number} if len(stages) > 1 else {}
                    row |= losses.look((generator, own) if save or last else ())
                    if of_generator is not None and of_generator.log_ratio:
                        log_ratio = processes.gather(torch.cat(of_generator.log_ratio))
                        cut = None if goal.logistic_head else of_generator.cut
                        row |= at_budget(log_ratio, stage.config.budget, cut)
                    if processes.first:
                        journal.add(row)
                    shown = note(row)
                tell(done, shown)
                if save and folder is not None:
                    state.save(folder, done, facts, config.keep)
                if stopped and done < total:
                    raise KeyboardInterrupt
    for network in state.modules().values():
        network.eval()
    return Trained(generator, state.critic, state.ema, config, journal.rows, folder, tuple(facts["counts"]))


def _of_given(config: TrainConfig, data: Any) -> TrainConfig:
    """Return the configuration of data that are given: no name of theirs tells the recipe that they are images."""
    config = replace(config, data=GIVEN)
    images = len(getattr(data, "shape", None) or np.shape(data)) > 2
    if config.network == "mlp" and images and not (config.stage or config.generator_loss):
        return replace(config, stage=recipe_of_images(config))
    return config


def _warn(stages: Sequence[Stage], samples: int) -> None:
    """Say what is allowed, and seldom meant."""
    for stage in stages:
        config, of = stage.config, f" in stage {stage.number}" if len(stages) > 1 else ""
        if config.batch_size > samples:
            warnings.warn(
                f"batch_size {config.batch_size}{of} is larger than the data, {samples} samples: a batch has some of "
                "them more than once",
                stacklevel=3,
            )
        if config.critic_loss in DIVERGENCES and config.critic_loss != config.divergence:
            warnings.warn(
                f"critic_loss {config.critic_loss!r}{of} is of another divergence than the generator's, "
                f"{config.divergence!r}; leave it out unless you mean it",
                stacklevel=3,
            )


def play(game: Game, stage: Stage, step: int) -> tuple[dict[str, Tensor], GeneratorTurn | None]:
    """Take a step of a stage; return its losses, and the generator's turn unless it is one of the critic alone."""
    for player, lr in ((game.critic, stage.critic_lr(step)), (game.generator, stage.generator_lr(step))):
        for group in player.optimiser.param_groups:
            group["lr"] = lr
    for turn in range(stage.critic_turns(step)):
        losses = critic_step(game, step, turn)
    if stage.warming(step):
        return losses, None
    of_generator = generator_step(game, step)
    return losses | {"generator": of_generator.loss}, of_generator
