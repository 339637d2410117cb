"""A run of training: what changes in it from step to step, its log and checkpoints, and the generator it ends with."""

import copy
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from math import exp, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate.utils import reduce
from torch import Tensor, nn

from .._files import as_path, hold, rewrite
from ..budget import Cut
from ..critics import FINE_TUNE
from ..errors import InputError, Interrupted, NotFiniteError
from ..fitting.tensors import check_module, read_tensors, subset, write_tensors
from ..rivals.model import Model
from ..sampling.rejection import sample
from ..sampling.samples import Samples

__all__ = ["Run", "State", "Trained", "checkpoints", "load_trained", "read_state"]


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
    """

    generator: nn.Module
    critic: nn.Module
    log: list[dict[str, Any]]
    state: State

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
    state = read_state(folder)
    weights = subset(state.tensors, "ema") or subset(state.tensors, "generator")
    of_critic = subset(state.tensors, "critic")
    check_module(generator, weights, "generator", folder)
    check_module(critic, of_critic, "critic", folder)
    generator.load_state_dict(weights)
    critic.load_state_dict(of_critic)
    return Trained(generator.eval(), critic.eval(), state.facts["log"], state)


class Run:
    """All that changes while a run goes on; what is random is no part of it, but a function of the step.

    `facts` is what a checkpoint says beside the steps; its settings are those that a folder has once and for all.
    """

    def __init__(self, networks: Any, facts: dict[str, Any], out: Any, *, averaged: bool, betas: Any) -> None:
        self.networks, self.facts, self.out = networks, facts, None if out is None else as_path(out, "out")
        self.adams = {name: torch.optim.Adam(net.parameters(), betas=betas) for name, net in networks.items()}
        if averaged:
            self.networks |= {"ema": copy.deepcopy(networks["generator"]).requires_grad_(False).eval()}
        self.first = self.step = self.seen = 0
        self.cut: Cut | None = None
        self.losses: list[dict[str, Tensor]] = []  # of the steps since the last row of the log
        self.rows: list[dict[str, Any]] = []

    def find_start(self, start_from: Any, new_critic: bool) -> State | None:
        """Return what to go on from, if anything: the run in the folder, or another one. Check it, and load nothing."""
        goes_on = self.out is not None and bool(checkpoints(self.out))
        source = self.out if goes_on else start_from
        if source is None:
            return None
        state = source.state if isinstance(source, Trained) else read_state(source)
        for key, value in self.facts["settings"].items() if goes_on else ():
            if (before := state.facts["settings"].get(key)) != value:
                raise InputError(f"{self.out} was made with {key}={before!r}, got {value!r}; choose another folder")
        left_out = () if goes_on else ("cut/", *(("critic/", "critic_adam/", "generator_adam/") if new_critic else ()))
        for name in ("generator", "critic"):
            if f"{name}/" not in left_out:
                check_module(self.networks[name], subset(state.tensors, name), name, "the run")
        self.step, self.seen = state.facts["step"], state.facts["seen"]
        self.first, self.rows = (state.facts["first"], [*state.facts["log"]]) if goes_on else (self.step, [])
        return State({key: x for key, x in state.tensors.items() if not key.startswith(left_out)}, state.facts)

    @contextmanager
    def open(self, start: State | None, place: Any, keep: int) -> Iterator[None]:
        """Load the start and begin the log, for steps in the block. The main process holds the folder, and writes."""
        self.folder, self.keep, refusal = self.out if place.is_main_process else None, keep, None
        try:
            with ExitStack() as stack:
                try:
                    stack.enter_context(nullcontext() if self.folder is None else hold(self.folder / "checkpoints"))
                except (InputError, OSError) as error:
                    refusal = error
                # ends all processes; or all have read before the first one writes
                if float(reduce(torch.tensor(float(refusal is not None), device=place.device))):
                    raise refusal or InputError("the main process may not write to the folder; it says why")
                if start is not None:
                    self.load(start)
                if self.folder is not None:
                    (self.folder / "checkpoints").mkdir(exist_ok=True)
                    with rewrite(self.folder / "log.jsonl") as file:  # rows after the checkpoint will be made again
                        file.write("".join(json.dumps(row) + "\n" for row in self.rows).encode())
                self.save()
                yield
                place.wait_for_everyone()  # the last checkpoint is there, whichever process asks for it
        except KeyboardInterrupt as error:
            again = "" if self.out is None else f"; call again with out={str(self.out)!r} to go on from its checkpoint"
            raise Interrupted(f"interrupted after step {self.step}{again}", self.result(self.state())) from error

    def end_step(self, losses: dict[str, Tensor], *, logs: bool, saves: bool) -> str:
        """Count a step. If asked for, add the mean losses since the last row to the log, and write a checkpoint.

        Return the row in words; raise if a loss, or before a checkpoint a weight, is not finite.
        """
        self.step += 1
        self.losses.append(losses)
        if not logs:
            return ""
        means = {name: torch.stack([each[name] for each in self.losses]).mean() for name in losses}
        means, self.losses = {name: float(reduce(value, "mean")) for name, value in means.items()}, []
        wrong = next((f"the {name} loss" for name, value in means.items() if not isfinite(value)), "")
        weights = (x for name in self.adams for x in self.networks[name].parameters())
        if saves and not wrong and not all(bool(x.isfinite().all()) for x in weights):
            wrong = "a weight"
        if wrong:
            what, again = f"{wrong} is not finite at step {self.step}", self.good.facts["step"]
            self.load(self.good)
            what += f"; the networks are as after step {again} again; try a lower lr or another loss"
            raise NotFiniteError(what, self.result(self.good))
        if self.cut is not None:  # c is infinite at K = 1
            means |= {"log_c": min(float(self.cut.log_c), 1e6), "rate": exp(float(self.cut.log_rate))}
        self.rows.append({"step": self.step, **means})
        if self.folder is not None:
            with (self.folder / "log.jsonl").open("a") as file:
                file.write(json.dumps(self.rows[-1]) + "\n")
        if saves:
            self.save()
        return "  ".join(f"{name} {value:.3g}" for name, value in means.items())

    def save(self) -> None:
        """Take this step as the last good one, and write its checkpoint if it is not there, whole or not at all."""
        self.good = self.state()
        if self.folder is None or (path := self.folder / "checkpoints" / f"step-{self.step:08d}.safetensors").exists():
            return
        write_tensors(path, *self.good)
        for old in checkpoints(self.folder)[: -self.keep]:
            old.unlink(missing_ok=True)

    def average(self, decay: float) -> None:
        """Move the averaged weights, and statistics of batch norms, towards the generator's; copy other buffers."""
        mean, module = self.networks["ema"], self.networks["generator"]
        with torch.no_grad():
            for old, new in zip(mean.parameters(), module.parameters(), strict=True):
                old.lerp_(new, 1 - decay)
            for (name, old), new in zip(mean.named_buffers(), module.buffers(), strict=True):
                moves = name.endswith(("running_mean", "running_var"))
                old.lerp_(new, 1 - decay) if moves else old.copy_(new)

    def load(self, state: State) -> None:
        """Take over steps, networks, both Adams and c, as far as the state has them."""
        self.step, self.seen = state.facts["step"], state.facts["seen"]
        for name, network in self.networks.items():
            if stored := subset(state.tensors, name) or (name == "ema" and subset(state.tensors, "generator")):
                network.load_state_dict(stored)
        for name, adam in self.adams.items():
            moments: dict[int, dict[str, Tensor]] = {}
            for key, value in subset(state.tensors, f"{name}_adam").items():
                moments.setdefault(int(key.split("/")[0]), {})[key.split("/")[1]] = value
            adam.load_state_dict({"state": moments, "param_groups": adam.state_dict()["param_groups"]})
        self.cut = Cut(**cut) if (cut := subset(state.tensors, "cut")) else None

    def state(self) -> State:
        """Return a copy of it all, on the CPU."""
        held = {name: network.state_dict() for name, network in self.networks.items()}
        for name, adam in self.adams.items():
            moments = adam.state_dict()["state"]
            held[f"{name}_adam"] = {f"{i}/{key}": x for i, values in moments.items() for key, x in values.items()}
        held["cut"] = {} if self.cut is None else vars(self.cut)
        tensors = {f"{name}/{key}": x.detach().cpu().clone() for name, part in held.items() for key, x in part.items()}
        steps = {"first": self.first, "step": self.step, "seen": self.seen}
        return State(tensors, self.facts | steps | {"log": [*self.rows]})

    def result(self, state: State) -> Trained:
        """Return the networks, in evaluation mode, with the state that a further run starts from."""
        modes = {name: network.eval() for name, network in self.networks.items()}
        return Trained(modes.get("ema", modes["generator"]), modes["critic"], self.rows, state)


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
    if not state.facts.keys() >= {"first", "step", "seen", "settings", "log"}:
        raise InputError(f"{found[-1]} is not a checkpoint of a run, but another file of ours")
    return state
