"""A trained generator with its critic, ready to be sampled at a budget; and the checkpoints of a run."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .._files import as_path
from ..critics import FINE_TUNE
from ..errors import InputError
from ..fitting.tensors import fill_module, read_tensors, subset, write_tensors
from ..rivals.model import Model
from ..sampling.rejection import sample
from ..sampling.samples import Samples

__all__ = ["State", "Trained", "checkpoints", "load_trained", "read_log", "read_state", "write_state"]


class State(NamedTuple):
    """All that a run goes on from: tensors by name, such as `generator/0.weight`, and plain facts beside them."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]


@dataclass(frozen=True, repr=False)
class Trained:
    """A trained generator, averaged over steps, with the ratio of its critic.

    Args:
        generator: The moving average of the generator, in evaluation mode; the generator itself without an average.
        critic: The critic, in evaluation mode; it was trained against the generator, not against its average.
        log: Rows of the log.
        state: What a further run starts from.
        folder: Where the run is; None if it was not kept.
    """

    generator: nn.Module
    critic: nn.Module
    log: list[dict[str, Any]]
    state: State
    folder: Path | None = None

    def __repr__(self) -> str:
        last = ", ".join(f"{name} {value:.4g}" for name, value in (self.log or [{}])[-1].items() if value is not None)
        return f"Trained({last})"

    def sample(self, n: int, budget: float, *, seed: int = 0) -> Samples:
        """Keep n samples of the generator, at `budget` proposals each."""
        return sample(lambda ids: self.propose(ids, seed=seed), self.log_ratio, n, budget=budget, seed=seed)

    def propose(self, ids: Any, *, seed: int = 0) -> Any:
        """Return the samples with these ids: a tensor, or with classes `(samples, labels)`."""
        facts, like = self.state.facts, next(self.generator.parameters()).detach()
        model = Model(self.generator, self.critic, facts["latent"], like=like, labels=facts["counts"] or None)
        with torch.no_grad():
            return model.propose(ids, seed=seed)

    def log_ratio(self, x: Any) -> Tensor:
        """Return the critic's log-ratio of samples, or of `(samples, labels)`."""
        with torch.no_grad():
            outputs = self.critic(*x) if isinstance(x, tuple) else self.critic(x)
        if outputs.ndim == 1 and not self.state.facts["of_ratio"]:
            raise InputError(
                "a critic trained with hinge or wgan says no log-ratio; give it a second output, shape (n, 2), or make "
                f"one with {FINE_TUNE}, propose = run.propose and critic = run.critic"
            )
        return outputs if outputs.ndim == 1 else outputs[:, 1]


def load_trained(folder: str | Path, generator: nn.Module, critic: nn.Module) -> Trained:
    """Load a run, as of its latest checkpoint.

    Args:
        folder: The `out` of `train`, or one of its checkpoints.
        generator, critic: Networks of the same architecture, to fill.
    """
    state, home = read_state(folder), Path(folder).parents[1] if Path(folder).is_file() else Path(folder)
    weights = subset(state.tensors, "ema") or subset(state.tensors, "generator")
    fill_module(generator, weights, "generator", folder)
    fill_module(critic, subset(state.tensors, "critic"), "critic", folder)
    rows = [row for row in read_log(home) if row["step"] <= state.facts["step"]]
    return Trained(generator.eval(), critic.eval(), rows, state, home)


def checkpoints(folder: str | Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    return sorted((Path(folder) / "checkpoints").glob("step-*.safetensors"))


def read_state(folder: str | Path) -> State:
    """Return what the latest checkpoint of a run holds, or a checkpoint that is named itself."""
    path = as_path(folder, "the folder of a run")
    found = [path] if path.is_file() else checkpoints(path)
    if not found:
        raise InputError(f"{folder} has no checkpoint; give the out= of a run")
    state = State(*read_tensors(found[-1], "a checkpoint of a run"))
    if not state.facts.keys() >= {"first", "step", "seen", "settings"}:
        raise InputError(f"{found[-1]} is not a checkpoint of a run, but another file of ours")
    return state


def write_state(folder: Path, state: State, keep: int) -> None:
    """Write a checkpoint, whole or not at all, and delete all but the `keep` latest."""
    inside = folder / "checkpoints"
    inside.mkdir(parents=True, exist_ok=True)
    write_tensors(inside / f"step-{state.facts['step']:08d}.safetensors", *state)
    for old in checkpoints(folder)[:-keep]:
        old.unlink(missing_ok=True)


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a run's log; a last line that was cut off by a crash is left out."""
    path = folder / "log.jsonl"
    try:
        lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
        return [json.loads(line) for line in lines if line.endswith("}\n")]
    except ValueError as error:
        raise InputError(f"{path} is not the log of a run: {error}") from error
