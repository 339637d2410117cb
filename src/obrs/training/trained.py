"""A trained pair of networks, ready to be sampled from with a budget."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._text import lookup
from ..critics import FINE_TUNE
from ..draws import normals, uniforms
from ..errors import InputError
from ..fitting.tensors import fill_module, under
from ..sampling.model import Model
from . import checkpoints
from .config import TrainConfig, read_config
from .journal import Row, read_log
from .networks import build_stages
from .schedule import current, plan
from .step import objective

__all__ = ["Trained", "load_trained"]


@dataclass(frozen=True)
class Trained:
    """What training made. `obrs.sample(run.propose, run.log_ratio, 1000, budget=2)` samples from it.

    Args:
        generator, critic: The networks, in evaluation mode.
        ema: Moving average of the generator; None without.
        config: What they were trained from.
        log: Rows of the log.
        folder: Where the run is; None if it was not kept.
        counts: Samples of each class in the data; empty without labels.
        stage: Number of the stage that it came to; 0 is the last one.
    """

    generator: nn.Module
    critic: nn.Module
    ema: nn.Module | None
    config: TrainConfig
    log: list[Row]
    folder: Path | None = None
    counts: tuple[int, ...] = ()
    stage: int = 0

    def log_ratio(self, batch: Any) -> Tensor:
        """Return the critic's log-ratio of samples, or of `(samples, labels)`.

        It is that of the data to the generator, not to its moving average. Critics trained with hinge or wgan have
        none, unless they got a second head.
        """
        with torch.no_grad():
            scores = self.critic(*batch) if isinstance(batch, tuple) else self.critic(batch)
            found = objective(self._settings).log_ratio(scores)
        if found is None:
            raise InputError(
                f"a critic trained with {self._settings.generator_loss!r} says no log-ratio; train with "
                f"two_heads=true, or make one with {FINE_TUNE}, propose = run.propose and critic = run.critic"
            )
        return found

    def propose(self, ids: Any, *, seed: int = 0, network: str = "generator") -> Any:
        """Return the samples with these ids: a tensor, or with classes `(samples, labels)`.

        Args:
            ids: Integers; the same id makes the same sample.
            seed: Decides the latents.
            network: "generator", which the critic knows, or "ema".
        """
        like = next(self.generator.parameters())
        z = normals(ids, self.config.latent, seed=seed, like=like)
        with torch.no_grad():
            if not self.counts:
                return self._network(network)(z)
            edges = np.cumsum(self.counts) / sum(self.counts)
            labels = torch.from_numpy(np.searchsorted(edges, uniforms(ids, seed=seed), side="right")).to(like.device)
            return self._network(network)(z, labels), labels

    def model(self, *, real: Any = None, network: str = "generator") -> Model:
        """Return the generator with its latent and score, as the samplers of `obrs.rivals` take it.

        Args:
            real: Some real samples, for samplers that need them; with classes `(samples, labels)`.
            network: "generator" or "ema".
        """
        like = next(self.generator.parameters()).detach()
        generate, ratio = self._network(network), objective(self._settings).log_ratio
        self.log_ratio(self.propose(range(1), network=network))  # says so if there is no log-ratio
        return Model(
            generate,
            lambda *x: ratio(self.critic(*x)),
            self.config.latent,
            real=real,
            like=like,
            labels=self.counts or None,
        )

    @property
    def _settings(self) -> TrainConfig:
        """The configuration of the stage that it came to."""
        return self.config.stages[self.stage - 1]

    def _network(self, name: str) -> Any:
        found = lookup({"generator": self.generator, "ema": self.ema}, name, "network")
        if found is None:
            raise InputError("this run kept no moving average; train with ema_decay above 0")
        return found


def load_trained(folder: str | Path, *, generator: nn.Module | None = None, critic: nn.Module | None = None) -> Trained:
    """Load a run from its folder, as of its latest checkpoint.

    Args:
        folder: Where `train` was told to keep it.
        generator, critic: Networks to fill, if the run trained the user's own.

    Example:
        >>> load_trained("nowhere")
        Traceback (most recent call last):
        obrs.errors.InputError: nowhere has no checkpoint; give the folder of a run, or train one with out='nowhere'
    """
    folder = Path(folder)
    path = checkpoints.latest(folder)
    tensors, facts = checkpoints.load(path)
    folder = path.parents[1]
    config = read_config(folder / "config.json")
    stages = plan(config)
    stage = current(stages, facts["step"])
    about = [objective(one.config).outputs for one in stages], facts["shape"], len(facts["counts"])
    averaged = under(tensors, "ema")
    name = ""  # of the network that does not fit
    try:
        makes, critics = build_stages(stages, *about, generator=generator, critic=critic)
        networks = [makes, critics[stage.number - 1]]
        if averaged:
            networks.append(copy.deepcopy(networks[0]))
        for name, network in zip(("generator", "critic", "ema"), networks, strict=False):
            fill_module(network, under(tensors, name), name, path)
            network.eval().requires_grad_(False)
    except InputError as error:
        if {"generator": generator, "critic": critic, "ema": generator}.get(name) is not None:
            raise
        raise InputError(f"{error}; if train was given networks, pass them: generator=..., critic=...") from error
    rows = [row for row in read_log(folder / "log.jsonl") if row["step"] <= facts["step"]]
    ema = networks[2] if averaged else None
    counts = tuple(facts["counts"])
    return Trained(networks[0], networks[1], ema, config, rows, folder, counts, stage.number)
