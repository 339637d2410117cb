"""Checkpoints: all that changes during a run, in one file each, and the folder in which a run keeps them."""

import copy
import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import InputError
from ..fitting import tensors as files
from ..fitting.tensors import fill_module, under
from .config import GIVEN, TrainConfig, read_config
from .processes import Processes
from .schedule import Stage, current, plan
from .window import BudgetWindow

__all__ = [
    "State",
    "checkpoints",
    "fill_optimiser",
    "fingerprint",
    "last",
    "latest",
    "load",
    "new_state",
    "optimiser_tensors",
    "save",
    "starting_point",
    "steps_done",
]

_NAME = re.compile(r"step-(\d{8})\.safetensors")
_WHAT = "a checkpoint of a run"
_FREE = ("log_every", "save_every", "keep", "tensorboard")  # may change when a run is resumed


def save(folder: str | Path, step: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], *, keep: int) -> Path:
    """Write a checkpoint and forget all but the `keep` latest.

    Whenever the process or the machine stops, the latest checkpoint is whole. If the disk is full, the earlier ones
    stay.

    Args:
        folder: Where checkpoints are.
        step: Steps done.
        tensors: What to keep, by name.
        facts: Plain values to keep beside them.
        keep: How many checkpoints to keep.

    Example:
        >>> import tempfile
        >>> path = save(tempfile.mkdtemp(), 5, {"x": torch.ones(2)}, {"world": 1}, keep=2)
        >>> path.name, load(path)[1]["world"]
        ('step-00000005.safetensors', 1)
    """
    folder = Path(folder)
    path = folder / f"step-{step:08d}.safetensors"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files.write_tensors(path, tensors, {**facts, "step": step})
    except OSError as error:
        good = checkpoints(folder)
        kept = f"the last good checkpoint is {good[-1].name}" if good else "there is no earlier checkpoint"
        raise OSError(error.errno, f"{error.strerror}; {kept}", str(path)) from error
    for old in checkpoints(folder)[:-keep]:
        old.unlink(missing_ok=True)
    return path


def checkpoints(folder: str | Path) -> list[Path]:
    """Return the checkpoints in a folder, oldest first.

    Example:
        >>> checkpoints("nowhere")
        []
    """
    folder = Path(folder)
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if _NAME.fullmatch(path.name) and path.is_file())


def latest(folder: str | Path) -> Path:
    """Return the latest checkpoint of a run's folder; a path to a checkpoint is returned as it is."""
    path = Path(folder)
    if path.is_file():
        return path
    found = last(path)
    if found is None:
        raise InputError(f"{path} has no checkpoint; give the folder of a run, or train one with out={str(path)!r}")
    return found


def last(folder: Path | None) -> Path | None:
    """Return the latest checkpoint of a run's folder, or None.

    Example:
        >>> last(None), last(Path("nowhere"))
        (None, None)
    """
    found = [] if folder is None else checkpoints(folder / "checkpoints")
    return found[-1] if found else None


def load(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a checkpoint and the facts beside them."""
    return files.read_tensors(path, _WHAT)


def steps_done(path: Path | None) -> int:
    """Return how many steps of its run a checkpoint has behind it; 0 for none."""
    return 0 if path is None else int(files.read_tensors(path, _WHAT)[1]["step"])


def starting_point(config: TrainConfig, folder: Path | None, resume: bool) -> Path | None:
    """Return the checkpoint to start from, if any; refuse to write over another run.

    Args:
        config: Of the run that is to start.
        folder: Where it is kept, or None.
        resume: Whether it goes on with the run in that folder.
    """
    if folder is None and config.tensorboard:
        raise InputError("tensorboard=true needs out, a folder for the run")
    if not resume:
        if last(folder) is not None:
            raise InputError(
                f"{folder} holds a run already; resume it (--resume, or resume=True), or choose another folder"
            )
        return latest(config.start_from) if config.start_from else None
    if folder is None:
        raise InputError("resume needs out, the folder of the run")
    path = latest(folder)
    done = steps_done(path)
    _check_same_run(plan(read_config(folder / "config.json")), plan(config), done, folder)
    return path


def _check_same_run(saved: tuple[Stage, ...], wanted: tuple[Stage, ...], done: int, folder: Path) -> None:
    """Refuse settings that would make it another run; stages may be added, and one that goes on may get longer."""
    now = current(saved, done)
    if len(wanted) < len(saved):
        raise InputError(f"{folder} was made with {len(saved)} stages, got {len(wanted)}; resume with all of them")
    if wanted[now.number - 1].last < done:
        steps, of = wanted[now.number - 1].config.steps, f" in stage {now.number}" if len(wanted) > 1 else ""
        raise InputError(f"{folder} has done {done} steps already, got steps={steps}{of}; ask for more")
    for old, new in zip(saved, wanted, strict=False):
        of = f" in stage {old.number}" if len(wanted) > 1 else ""
        free = _FREE if done > old.last else (*_FREE, "steps")
        before, after = asdict(old.config), asdict(new.config)
        for key, value in after.items():
            if key not in free and before[key] != value:
                if before[key] == GIVEN:
                    raise InputError(
                        f"{folder} was trained on data that were given to train; give the same data= again"
                    )
                raise InputError(
                    f"{folder} was made with {key}={before[key]!r}{of}, got {value!r}; resume with that, or start a "
                    "run in another folder"
                )
        if old.config.steps != new.config.steps and old.config.scheduled and done > old.begin:
            raise InputError(
                f"{folder} was made with steps={old.config.steps}{of}, got {new.config.steps}, and its noise or "
                "learning rates follow from that; resume with that, or add a stage"
            )


def optimiser_tensors(optimiser: Any) -> dict[str, Any]:
    """Return an optimiser's state by name; what is a number becomes a tensor."""
    state = optimiser.state_dict()["state"]
    return {f"{i}/{key}": torch.as_tensor(value) for i, values in state.items() for key, value in values.items()}


def fill_optimiser(optimiser: Any, tensors: Mapping[str, Any]) -> None:
    """Give an optimiser the state that `optimiser_tensors` returned."""
    state: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        index, _, key = name.partition("/")
        state.setdefault(int(index), {})[key] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def fingerprint(*tensors: Any) -> str:
    """Return a short text that differs where shapes or numbers do.

    Example:
        >>> import torch
        >>> fingerprint(torch.zeros(3)) == fingerprint(torch.zeros(3)), fingerprint(torch.zeros(3, 1))[:8]
        (True, '86826f06')
    """
    digest = hashlib.sha256()
    for tensor in tensors:
        array = np.ascontiguousarray(tensor.detach().cpu().numpy())
        digest.update(f"{array.dtype} {array.shape} ".encode())
        digest.update(array.data)
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class State:
    """All that changes during a run. Random numbers and the order of the data are functions of the step.

    Args:
        generator, critic: The networks.
        ema: Moving average of the generator; None without.
        generator_optimiser, critic_optimiser: Theirs.
        window: The last constant, and how often it is solved for.
        processes: That train together; the first one writes.
    """

    generator: nn.Module
    critic: nn.Module
    ema: nn.Module | None
    generator_optimiser: torch.optim.Optimizer
    critic_optimiser: torch.optim.Optimizer
    window: BudgetWindow
    processes: Processes

    def save(self, folder: Path, step: int, facts: dict[str, Any], keep: int) -> None:
        """Write a checkpoint; every process must call this, the first one writes."""
        if self.processes.first:
            parts = {
                **{name: module.state_dict() for name, module in self.modules().items()},
                **{name: optimiser_tensors(optimiser) for name, optimiser in self._optimisers().items()},
                "window": self.window.state_dict(),
            }
            tensors = {f"{part}/{name}": x for part, held in parts.items() for name, x in held.items()}
            facts = {**facts, "world": self.processes.count}
            save(folder / "checkpoints", step, tensors, facts, keep=keep)
        self.processes.wait()

    def start(self, found: Path | None, resume: bool, facts: dict[str, Any], *, new_critic: bool = False) -> int:
        """Start afresh, from another run's networks, or where this run stopped; return the steps that are done.

        Args:
            found: What `starting_point` returned.
            resume: Whether to take over all of it, and not the networks alone.
            facts: What is known of the data; a run goes on with its own data alone.
            new_critic: Whether to take no critic from another run.
        """
        done = 0
        if found is not None:
            tensors, known = load(found)
            if resume and known.get("data", facts["data"]) != facts["data"]:
                raise InputError(f"{found.parents[1]} was trained on other data; give train the same data=")
            if resume and known["world"] != self.processes.count:
                raise InputError(
                    f"{found} was made by {known['world']} processes, here are {self.processes.count}; resume with as "
                    "many, or fine-tune it in a new folder with start_from"
                )
            for name, module in self.modules().items():
                if name == "critic" and new_critic and not resume:
                    continue
                stored = under(tensors, name) or under(tensors, "generator")  # which starts a moving average
                fill_module(module, stored, "generator" if name == "ema" else name, found)
            if resume:
                for name, optimiser in self._optimisers().items():
                    fill_optimiser(optimiser, under(tensors, name))
                window = under(tensors, "window").items()
                self.window.load_state_dict({name: x.to(self.processes.device) for name, x in window})
                done = int(known["step"])
        self.processes.wait()  # all have read before the first one writes
        return done

    def enter(self, stage: Stage, critic: nn.Module) -> "State":
        """Return the state at the start of a stage: networks go on, and with a new critic all else starts anew.

        Args:
            stage: That begins.
            critic: Of that stage.
        """
        config, fresh = stage.config, critic is not self.critic
        window, of_critic = _window(config, self.processes), self.critic_optimiser
        if fresh:
            self.generator_optimiser.state.clear()
            of_critic = _adam(critic.to(self.processes.device), config.critic_lr, config.critic_betas)
        elif window.settings == self.window.settings:
            window = self.window
        for optimiser, betas in ((self.generator_optimiser, config.generator_betas), (of_critic, config.critic_betas)):
            for group in optimiser.param_groups:
                group["betas"] = betas
        return replace(self, critic=critic, critic_optimiser=of_critic, window=window)

    def modules(self) -> dict[str, nn.Module]:
        """Return the networks by name."""
        modules = {"generator": self.generator, "critic": self.critic}
        return modules if self.ema is None else {**modules, "ema": self.ema}

    def _optimisers(self) -> dict[str, torch.optim.Optimizer]:
        return {"generator_optimiser": self.generator_optimiser, "critic_optimiser": self.critic_optimiser}


def new_state(config: TrainConfig, generator: nn.Module, critic: nn.Module, processes: Processes) -> State:
    """Return the state before the first step of a stage, with the networks on the device of the process."""
    generator, critic = generator.to(processes.device), critic.to(processes.device)
    return State(
        generator=generator,
        critic=critic,
        ema=copy.deepcopy(generator).requires_grad_(False) if config.ema_decay else None,
        generator_optimiser=_adam(generator, config.generator_lr, config.generator_betas),
        critic_optimiser=_adam(critic, config.critic_lr, config.critic_betas),
        window=_window(config, processes),
        processes=processes,
    )


def _adam(network: nn.Module, lr: float, betas: tuple[float, float]) -> torch.optim.Optimizer:
    return torch.optim.Adam(network.parameters(), lr, betas)


def _window(config: TrainConfig, processes: Processes) -> BudgetWindow:
    return BudgetWindow(config.budget, every=config.constant_every, process_group=processes.group)
