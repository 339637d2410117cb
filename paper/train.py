"""Training runs from settings: data and networks by name, and stages.

The experiments and `python -m paper train FILE.toml` train through `train`, which calls `obrs.train` for each stage.
Settings are a mapping, as a TOML file holds it. What `OWN` has not is an argument of `obrs.train`. Importing this
module adds the paper's networks to `obrs.models.registry.NETWORKS`.
"""

import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import inf, log
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import obrs
from obrs._files import rewrite
from obrs._progress import rank, world_size
from obrs._text import lookup
from obrs.budget import Cut, solve_cut
from obrs.errors import InputError
from obrs.fitting.seeds import derive, own_noise
from obrs.models.registry import NETWORKS, build
from obrs.training.data import as_data
from obrs.training.losses import GeneratorLoss, critic_loss, generator_loss
from obrs.training.trained import Trained, checkpoints, load_trained, read_state

from .data.images import IMAGES, load
from .toys import TOYS

__all__ = ["OWN", "build_networks", "load_run", "losses", "read_settings", "run_file", "stages", "train", "two_critics"]

Settings = Mapping[str, Any]

NETWORKS |= {
    "conv_generator": "paper.nets.conv:ConvGenerator",
    "biggan_generator": "paper.nets.biggan:BigGanGenerator",
    "biggan_critic": "paper.nets.biggan:BigGanCritic",
    "unet": "paper.nets.unet:UNet",
}
OWN: dict[str, Any] = {
    "data": "",  # a density of `TOYS`, of which `data_size` points are drawn, or images of `IMAGES`
    "data_size": 100_000,
    "classes": False,  # whether the networks see labels
    "generator": {"name": "mlp_generator"},  # a network of `NETWORKS`; the shape of the data is filled in
    "critic": {"name": "mlp_critic"},
    "loss": None,  # of the generator, as of `obrs.train`, or "unrejected"; it has no default
    "divergence": "gan",
    "lr": (1e-3, 2e-3),  # of generator and critic; from these shares of the steps on they fall to a fiftieth
    "decay_from": (1.0, 1.0),
    "ema": 0.99,  # the generator is averaged from this step on
    "ema_start": 0,
    "start_from": "",
    "stage": (),  # tables, each with what differs from the stage before, the first one from the settings above
}
"""What settings may hold beside arguments of `obrs.train`, with defaults."""
_OF_RUN = ("data", "data_size", "classes", "generator", "seed", "start_from", "stage")
_PASSED = {name for name in inspect.signature(obrs.train).parameters if name not in (*OWN, "out", "progress")}


def read_settings(path: str | Path) -> dict[str, Any]:
    """Read settings from a TOML file."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} is missing or not a file")
    try:
        return dict(_toml(path.read_text()))
    except ValueError as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _toml(text: str) -> dict[str, Any]:
    return dict(import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads(text))


def stages(settings: Settings) -> list[dict[str, Any]]:
    """Return the settings of each stage, with defaults.

    Example:
        >>> tables = [{"steps": 100}, {"loss": "exact", "batch_size": 512}]
        >>> [(s["steps"], s["loss"], s["budget"]) for s in stages({"budget": 4, "loss": "dual", "stage": tables})]
        [(100, 'dual', 4), (100, 'exact', 4)]
    """
    typed = OWN | {"seed": 0}  # `obrs.train` checks what else it is given
    tables: Sequence[Settings] = settings.get("stage") or ({},)
    for table in (settings, *tables):
        for key in table:
            lookup(dict.fromkeys((*OWN, *_PASSED)), key, "setting")
            for kind in (Mapping, tuple | list, int | float):
                if isinstance(default := typed.get(key), kind) and not isinstance(table[key], kind):
                    raise InputError(f"{key} must be like {default!r}, got {table[key]!r:.60}")
            if table is not settings and key in _OF_RUN:
                raise InputError(f"{key} is the same in all stages; set it before them")
    options = [typed | {"budget": 2.0, "steps": 10_000} | dict(settings)]
    for table in tables:
        options.append(options[-1] | dict(table))
    return options[1:]


# Data and networks ----------------------------------------------------------------------------------------------------


def _load_data(settings: Settings) -> Any:
    """Return the data that the settings name."""
    lookup(dict.fromkeys((*TOYS, *IMAGES)), settings["data"], "data")
    if settings["data"] in TOYS:
        density: Any = TOYS[settings["data"]]()
        density = density.standardise() if hasattr(density, "standardise") else density
        return density.sample(settings["data_size"], seed=settings["seed"])
    images = load(settings["data"])
    return (np.asarray(images.train), images.train_labels) if settings["classes"] else np.asarray(images.train)


def build_networks(settings: Settings, shape: Sequence[int], classes: int) -> tuple[nn.Module, list[nn.Module]]:
    """Return the generator, and the critic of each stage; one that is kept is in the list again.

    Example:
        >>> tables = [{}, {}, {"new_critic": True, "critic": {"name": "mlp_critic", "waves": 64}}]
        >>> _, critics = build_networks({"stage": tables}, (2,), 0)
        >>> critics[0] is critics[1], critics[2].spec["waves"]
        (True, 64)
    """
    first, *others = stages(settings)
    with own_noise() as reseed:
        reseed(derive(first["seed"], "weights"))
        generator, *critics = (_network(first[part], shape, classes) for part in ("generator", "critic"))
        for number, stage in enumerate(others, 2):
            reseed(derive(first["seed"], "weights", number))
            critics.append(_network(stage["critic"], shape, classes) if stage.get("new_critic") else critics[-1])
    return generator, critics


def _network(spec: Settings, shape: Sequence[int], classes: int) -> nn.Module:
    if spec.get("name", "").startswith("mlp"):
        return build({**spec, "dim": list(shape)})
    if len(shape) != 3:
        raise InputError(f"{spec.get('name')} is for images, shape (channels, size, size), the data are {tuple(shape)}")
    return build({**spec, "channels": shape[0], "size": shape[1], "classes": classes or None})


# Losses and schedules ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Loss:
    """A loss of all outputs of the critic, as `obrs.train` takes it."""

    name: str
    function: Callable[..., Tensor]
    of_ratio: bool = True
    rejects: bool = False

    def __call__(self, *outputs: Any) -> Tensor:
        return self.function(*outputs)


def two_critics(of: str, budget: float) -> tuple[_Loss, _Loss]:
    """Return the losses of Section 4.2, for `obrs.train` with a critic of two outputs, shape `(n, 2)`.

    The first output compares P with what is kept, and the kept samples follow it; the second is the log-ratio that
    rejects. No gradient goes through a: what is kept is a sample of Q~, and moves as such. With one, the loss would
    also descend the rate, which the budget holds fixed.
    """
    of_critic, dual = critic_loss(of), generator_loss("dual", of)

    def log_weight(fake: Tensor) -> Tensor:
        log_ratio = fake[:, 1].detach()
        group = torch.distributed.group.WORLD if world_size() > 1 else None
        cut = solve_cut(log_ratio, budget, check=False, process_group=group)
        return cut.log_a(log_ratio) - cut.log_rate

    def generator(fake: Tensor, cut: None) -> Tensor:
        return (log_weight(fake).exp() * dual.terms(fake[:, 0], None)).mean()

    critic = _Loss("two_critics", lambda real, fake: of_critic(real, fake, log_weight(fake)))
    return critic, _Loss("two_critics", generator)


def losses(stage: Settings) -> Any:
    """Return the losses of critic and generator of a stage."""
    name, of = stage["loss"], stage["divergence"]
    if name == "unrejected":  # what the authors' code descends without rejection: E_Q[K f(r/K)], K stays
        raw, all_kept = generator_loss("paper_raw"), Cut(inf, -log(stage["budget"]))
        return critic_loss(of), GeneratorLoss(name, lambda x, cut: raw.terms(x, all_kept))
    return name and (critic_loss(name if name in ("hinge", "wgan") else of), generator_loss(name, of))


def _options(stage: Settings) -> dict[str, Any]:
    """Return the arguments of `obrs.train` for a stage."""
    decay, start = stage["ema"], stage["ema_start"]

    def rate(value: float, begin: float) -> Callable[[float], float]:
        slope = 0.0 if begin == 1 else 0.98 / (1 - begin)
        return lambda share: value * (1 - slope * max(share - begin, 0.0))

    return {key: value for key, value in stage.items() if key in _PASSED and key != "new_critic"} | {
        "loss": losses(stage),
        "lr": tuple(map(rate, stage["lr"], stage["decay_from"])),
        "ema": (lambda step: decay if step >= start else 0.0) if decay else 0.0,
    }


# Runs ----------------------------------------------------------------------------------------------------------------


def train(
    settings: Settings,
    *,
    data: Any = None,
    generator: nn.Module | None = None,
    critic: nn.Module | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
) -> Trained:
    """Train stage after stage by settings, see `OWN`; what is in `out` already goes on where it stopped.

    Args:
        data: To train on instead of those that the settings name, as for `obrs.train`.
        generator, critic: Networks instead of those that the settings name; trained in place.
        out: The folder of the run: `settings.json`, and a folder for each stage.
    """
    each = stages(settings)
    first = each[0]
    samples = _load_data(first) if data is None else data
    about = as_data(samples)
    classes = 0 if about.labels is None else int(about.labels.max()) + 1
    network, critics = build_networks(settings, about.shape[1:], classes)
    folder = None if out is None else Path(out)
    if folder is not None:
        _check_same(folder, settings)
        if rank() == 0:
            folder.mkdir(parents=True, exist_ok=True)
            with rewrite(folder / "settings.json") as file:
                file.write((json.dumps(dict(settings), indent=2) + "\n").encode())
    done: Any = _last_stage(first["start_from"]) if first["start_from"] else None
    rows: list[dict[str, Any]] = []
    for number, (stage, fallback) in enumerate(zip(each, critics, strict=True), 1):
        home = None if folder is None else folder / f"stage-{number}"
        fresh = stage.get("new_critic", False) and done is not None
        more: Any = {"start_from": done, "new_critic": fresh, "out": home, "progress": progress}
        done = obrs.train(generator or network, critic or fallback, samples, **_options(stage), **more)
        rows += [row | ({"stage": number} if len(each) > 1 else {}) for row in done.log]
    return Trained(done.generator, done.critic, rows, done.state)


def _check_same(folder: Path, settings: Settings) -> None:
    """Raise if the folder has a run with other settings; more steps go on from it."""
    if not (folder / "settings.json").exists():
        return
    before, now = json.loads((folder / "settings.json").read_text()), json.loads(json.dumps(dict(settings)))
    for key in sorted({*before, *now} - {"steps", "stage", "log_every", "save_every", "keep"}):
        if before.get(key) != now.get(key):
            what = f"was made with {key}={before.get(key)}, got {now.get(key)}"
            raise InputError(f"{folder} {what}; choose another folder")


def _last_stage(folder: str | Path) -> Path:
    """Return the folder of the last stage that a run came to; a run of `obrs.train` is itself."""
    folders = sorted(path for path in Path(folder).glob("stage-*") if checkpoints(path))
    return folders[-1] if folders else Path(folder)


def load_run(folder: str | Path) -> Trained:
    """Load a run from its folder, as of its latest checkpoint."""
    path = _last_stage(folder)
    facts = read_state(path).facts
    settings = json.loads((Path(folder) / "settings.json").read_text())
    generator, critics = build_networks(settings, facts["shape"], len(facts["counts"]))
    return load_trained(path, generator, critics[int(path.name.removeprefix("stage-")) - 1])


def run_file(path: Path, changes: Mapping[str, str | None], out: Path | None = None) -> None:
    """Train from a TOML file of settings, some of them changed, and say what to do with the run.

    A change is text; None is a bare flag. The folder of the run is by default runs/NAME.
    """
    settings = read_settings(path) | {key: _value(text) for key, text in changes.items()}
    folder = out or Path("runs") / path.stem
    done = train(settings, out=folder)
    if rank() == 0:
        names = ", then ".join(stage["loss"] for stage in stages(settings))
        print(f"trained {done.state.facts['step']} steps ({names}): {folder}")
        print(f'load it:    from paper.train import load_run; run = load_run("{folder}")')
        print(f"sample it:  run.sample(1000, budget={stages(settings)[-1]['budget']:g})")


def _value(text: str | None) -> Any:
    """Return text parsed as a value of TOML, or else the text itself."""
    try:
        return True if text is None else _toml(f"x = {text}")["x"]
    except ValueError:
        return text
