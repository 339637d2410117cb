"""Training runs from settings: data and networks by name, and stages.

The experiments and `python -m paper train FILE.toml` train through `train`, which calls `obrs.train` for each stage.
Importing this module adds the paper's networks to `obrs.models.registry.NETWORKS`.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from importlib import import_module
from math import inf, log
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import obrs
from obrs._checks import check_budget
from obrs._files import cache_folder, replacing
from obrs._progress import rank, world_size
from obrs._text import lookup, unknown_name
from obrs.budget import Cut, solve_cut
from obrs.errors import InputError
from obrs.fitting.seeds import derived, own_noise
from obrs.models.conv import ConvCritic
from obrs.models.fourier import FourierCritic
from obrs.models.mlp import mlp_critic, mlp_generator
from obrs.models.registry import NETWORKS
from obrs.training.data import as_data
from obrs.training.losses import GENERATOR_LOSSES, GeneratorLoss, critic_loss, generator_loss
from obrs.training.trained import Trained, checkpoints, load_trained, read_state

from .data.fetch import DATASETS, is_here
from .data.images import IMAGES, load
from .data.pixels import Pixels
from .nets.biggan import BigGanCritic, BigGanGenerator
from .nets.conv import ConvGenerator
from .toys import TOYS

__all__ = ["TrainConfig", "build_networks", "load_run", "losses", "options", "read_config", "run_file", "seen_before"]
__all__ += ["train", "two_critics"]

NETWORKS |= {
    "conv_generator": "paper.nets.conv:ConvGenerator",
    "biggan_generator": "paper.nets.biggan:BigGanGenerator",
    "biggan_critic": "paper.nets.biggan:BigGanCritic",
    "unet": "paper.nets.unet:UNet",
}


@dataclass(frozen=True)
class TrainConfig:
    """All that decides a run; the same settings give the same networks, bit for bit on a CPU.

    `data` names a density of `TOYS` or images; `data_size` points are drawn of a density. `network` and
    `critic_network` are mlp, fourier (critics of points), conv or biggan; `attention` to `initial` are of a BigGAN.
    `generator_loss` is a key of `GENERATOR_LOSSES` or unrejected; it has no default. `two_heads` gives the
    critic a second output with the logistic loss. `noise` falls to 0 linearly until the share `noise_until`
    of the steps, the learning rates from the shares `..._decay_from` on to a fiftieth. The generator is averaged from
    the step `ema_start` on. The other fields are arguments of `obrs.train`. Each table of `stage` says what differs
    from the stage before, the first one from the fields above.

    Example:
        >>> tables = [{"steps": 100}, {"generator_loss": "exact", "batch_size": 512}]
        >>> config = TrainConfig(budget=4, generator_loss="dual", stage=tables)
        >>> [(s.steps, s.generator_loss, s.batch_size, s.budget) for s in config.stages]
        [(100, 'dual', 256, 4), (100, 'exact', 512, 4)]
    """

    data: str = "given"
    data_size: int = 100_000
    classes: bool = False
    network: str = "mlp"
    latent: int = 2
    generator_width: int = 100
    critic_width: int = 100
    layers: int = 3
    activation: str = "relu"
    critic_network: str = ""
    critic_layers: int = 0
    spectral_norm: bool = False
    attention: int = 0
    shared: int = 0
    hierarchical: bool = False
    initial: str = "orthogonal"
    generator_loss: str = ""
    divergence: str = "gan"
    budget: float = 2.0
    two_heads: bool = False
    gradient_penalty: float = 0.0
    r1: float = 0.0
    constant_every: int = 1
    new_critic: bool = False
    warm_up: int = 0
    steps: int = 10_000
    critic_steps: int = 1
    batch_size: int = 256
    parts: int = 1
    noise: float = 0.0
    noise_until: float = 1.0
    generator_lr: float = 1e-3
    critic_lr: float = 2e-3
    generator_decay_from: float = 1.0
    critic_decay_from: float = 1.0
    betas: tuple[float, float] = (0.5, 0.999)
    ema_decay: float = 0.99
    ema_start: int = 0
    precision: str = "no"
    seed: int = 0
    start_from: str = ""
    log_every: int = 100
    save_every: int = 1000
    keep: int = 2
    stage: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        check_budget(self.budget)
        if self.generator_loss:
            lookup(dict.fromkeys([*GENERATOR_LOSSES, "unrejected"]), self.generator_loss, "generator_loss")
        for number, key in ((n, key) for n, table in enumerate(self.stage, 1) for key in table):
            if key in _OF_RUN:
                raise InputError(f"{key} is the same in all stages; set it before them, not in stage {number}")
            _check_field(key, f"key of stage {number}")
        object.__setattr__(self, "betas", tuple(self.betas))
        object.__setattr__(self, "stage", tuple(dict(table) for table in self.stage))

    @property
    def stages(self) -> tuple["TrainConfig", ...]:
        """The settings of each stage, without stages."""
        made = [replace(self, stage=())]
        for table in self.stage or ({},):
            made.append(replace(made[-1], **table))
        return tuple(made[1:])


_OF_RUN = {"data", "data_size", "classes", "network", "latent", "generator_width", "layers", "activation", "seed"}
_OF_RUN |= {"attention", "shared", "hierarchical", "initial", "ema_decay", "ema_start", "precision", "start_from"}
_FREE = {"log_every", "save_every", "keep"}  # may change when a run goes on


def _check_field(name: str, what: str) -> None:
    known = [field.name for field in fields(TrainConfig)]
    if name not in known:
        raise unknown_name(name, known, what)


def read_config(path: str | Path) -> TrainConfig:
    """Read settings from a TOML file, or from the config.json of a run."""
    path = Path(path)
    try:
        if path.suffix == ".json":
            values = json.loads(path.read_text())
        else:
            values = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    for key in values:
        _check_field(key, f"key of {path.name}")
    return TrainConfig(**values)


# Data and networks ----------------------------------------------------------------------------------------------------


class _Mapped(Dataset):  # type: ignore[misc]
    """Pixels, which need not fit in memory, as a Dataset that fetches a batch at once."""

    def __init__(self, x: Pixels, labels: Any) -> None:
        self.x, self.targets = x, labels

    def __len__(self) -> int:
        return len(self.x)

    def __getitems__(self, rows: list[int]) -> Any:
        x = self.x[np.array(rows)]
        return x if self.targets is None else (x, np.asarray(self.targets)[rows])


def _load_data(config: TrainConfig, x: Any = None, labels: Any = None) -> Any:
    """Return data for `obrs.train`: those that are given, or those that the settings name."""
    if x is None and config.data in TOYS:
        density: Any = TOYS[config.data]()
        density = density.standardised() if hasattr(density, "standardised") else density
        x = density.sample(config.data_size, seed=config.seed)
    elif x is None:
        lookup(dict.fromkeys([*TOYS, *IMAGES]), config.data, "data")
        if config.data in DATASETS and not is_here(config.data):
            fetch = f"python -m paper fetch {config.data}"
            raise InputError(f"{config.data} is not in {cache_folder()}: run `{fetch}`, or `{fetch} --folder DIR`")
        images = load(config.data)
        x, labels = images.train, images.train_labels
    if config.classes and labels is None:
        raise InputError("classes=true needs labels")
    labels = labels if config.classes else None
    if isinstance(x, Pixels):
        return DataLoader(_Mapped(x, labels), collate_fn=lambda batch: batch)
    return x if labels is None else (x, labels)


def build_networks(config: TrainConfig, shape: Sequence[int], classes: int) -> tuple[nn.Module, list[nn.Module]]:
    """Return the generator, and the critic of each stage; one that is kept is in the list again.

    Example:
        >>> tables = [{}, {}, {"new_critic": True, "critic_network": "fourier"}]
        >>> _, critics = build_networks(TrainConfig(generator_loss="dual", stage=tables), (2,), 0)
        >>> critics[0] is critics[1], critics[2].spec["name"]
        (True, 'fourier_critic')
    """
    critics: list[nn.Module] = []
    with own_noise() as reseed:
        reseed(derived(config.seed, "weights"))
        generator = _generator(config, tuple(shape), classes)
        for number, stage in enumerate(config.stages, 1):
            if number > 1 and not stage.new_critic:
                critics.append(critics[-1])
                continue
            if number > 1:
                reseed(derived(config.seed, "weights", number))
            critics.append(_critic(stage, tuple(shape), classes))
    return generator, critics


def _image(config: TrainConfig, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
    if len(shape) != 3 or shape[1] != shape[2]:
        raise InputError(f"network {config.network!r} needs square images, (channels, size, size), got {shape}")
    return {"size": shape[1], "channels": shape[0], "classes": classes or None}


def _points(config: TrainConfig, classes: int) -> dict[str, Any]:
    if classes:
        raise InputError(f"network {config.network!r} takes no classes; use conv, or give networks of your own")
    return {"layers": config.critic_layers or config.layers}


def _generator(config: TrainConfig, shape: tuple[int, ...], classes: int) -> nn.Module:
    sizes: dict[str, Any] = {"width": config.generator_width}
    if config.network == "mlp":
        _points(config, classes)
        sizes |= {"layers": config.layers, "activation": config.activation}
        return mlp_generator(config.latent, shape, **sizes, output="tanh" if len(shape) == 3 else "linear")
    if config.network == "biggan":
        sizes |= {key: getattr(config, key) for key in ("shared", "hierarchical", "attention", "initial")}
    make: Any = lookup({"mlp": None, "conv": ConvGenerator, "biggan": BigGanGenerator}, config.network, "network")
    return make(config.latent, **sizes, **_image(config, shape, classes))


def _critic(config: TrainConfig, shape: tuple[int, ...], classes: int) -> nn.Module:
    name = config.critic_network or config.network
    sizes: dict[str, Any] = {"width": config.critic_width, "spectral_norm": config.spectral_norm}
    sizes["heads"] = 1 + config.two_heads
    if name == "mlp":
        return mlp_critic(shape, activation=config.activation, **_points(config, classes), **sizes)
    if name == "fourier":
        return FourierCritic(shape, **_points(config, classes), **sizes)
    if name == "biggan":
        sizes |= {"attention": config.attention, "initial": config.initial}
    known: dict[str, Any] = {"mlp": None, "fourier": None, "conv": ConvCritic, "biggan": BigGanCritic}
    return lookup(known, name, "critic_network")(**_image(config, shape, classes), **sizes)


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

    def critic(real: Tensor, fake: Tensor) -> Tensor:
        kept = of_critic(real[:, 0], fake[:, 0], log_weight(fake))
        return kept + of_critic(real[:, 1], fake[:, 1])

    def generator(fake: Tensor, cut: None) -> Tensor:
        return (log_weight(fake).exp() * dual.terms(fake[:, 0], None)).mean()

    return _Loss("two_critics", critic), _Loss("two_critics", generator)


def losses(stage: TrainConfig) -> tuple[Any, Any]:
    """Return the losses of critic and generator of a stage."""
    name, of = stage.generator_loss, stage.divergence
    if not name:
        raise InputError("name a generator_loss, such as dual, or paper_raw, which knows the budget")
    if name == "wgan" and not (stage.gradient_penalty or stage.spectral_norm):
        raise InputError("wgan needs a critic of bounded slope: set gradient_penalty (10 is usual) or spectral_norm")
    if name == "unrejected":  # what the authors' code descends without rejection: E_Q[K f(r/K)], K stays
        raw, all_kept = generator_loss("paper_raw"), Cut(inf, -log(stage.budget))
        return critic_loss(of), GeneratorLoss(name, lambda x, cut: raw.terms(x, all_kept))
    return critic_loss(name if name in ("hinge", "wgan") else of), generator_loss(name, of)


def _falling(value: float, start: float, share: float) -> float:
    """Return a learning rate that falls linearly from a share of the steps on, to a fiftieth."""
    return value if share <= start or start == 1 else value * (1 - 0.98 * (share - start) / (1 - start))


def _fading(value: float, until: float, share: float) -> float:
    return value * (max(1 - share / until, 0.0) if until else 1.0)


def options(stage: TrainConfig) -> dict[str, Any]:
    """Return the arguments of `obrs.train` for a stage."""
    same = ["budget", "steps", "batch_size", "critic_steps", "warm_up", "betas", "r1", "gradient_penalty", "parts"]
    same += ["constant_every", "precision", "latent", "new_critic", "seed", "log_every", "save_every", "keep"]
    decay, start = stage.ema_decay, stage.ema_start
    return {key: getattr(stage, key) for key in same} | {
        "loss": losses(stage),
        "lr": (
            partial(_falling, stage.generator_lr, stage.generator_decay_from),
            partial(_falling, stage.critic_lr, stage.critic_decay_from),
        ),
        "noise": partial(_fading, stage.noise, stage.noise_until) if stage.noise else 0.0,
        "ema": (lambda step: decay if step >= start else 0.0) if decay else 0.0,
    }


def seen_before(config: TrainConfig, number: int) -> tuple[int, int]:
    """Return how many steps and real samples come before a stage, from 1 on; one after the last is the whole run."""
    before = config.stages[: number - 1]
    turns = [stage.warm_up + stage.steps * stage.critic_steps for stage in before]
    samples = sum(n * stage.batch_size for n, stage in zip(turns, before, strict=True))
    return sum(stage.warm_up + stage.steps for stage in before), samples


# Runs ----------------------------------------------------------------------------------------------------------------


def train(
    config: TrainConfig,
    *,
    data: Any = None,
    labels: Any = None,
    generator: nn.Module | None = None,
    critic: nn.Module | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
) -> Trained:
    """Train stage after stage; what is in `out` already goes on where it stopped.

    Args:
        config: The settings.
        data, labels: To train on instead of those that the settings name.
        generator, critic: Networks instead of those that the settings name; trained in place.
        out: The folder of the run: `config.json`, and a folder for each stage.
        progress: As everywhere.
    """
    samples = _load_data(config, data, labels)
    about = as_data(samples)
    count = 0 if about.labels is None else int(about.labels.max()) + 1
    stages = config.stages
    goals = [options(stage) for stage in stages]
    if critic is not None and any(stage.new_critic for stage in stages[1:]):
        raise InputError("a stage asks for a new critic; leave out critic=")
    if generator is None or critic is None:
        made, critics = build_networks(config, about.shape[1:], count)
        generator = generator or made
    critics = critics if critic is None else [critic] * len(stages)
    folder = None if out is None else Path(out)
    if folder is not None and rank() == 0:
        _keep_settings(config, folder)
    done: Any = _last_stage(config.start_from) if config.start_from else None
    rows: list[dict[str, Any]] = []
    for number, (goal, own) in enumerate(zip(goals, critics, strict=True), 1):
        home = None if folder is None else folder / f"stage-{number}"
        fresh = goal.pop("new_critic") and (number > 1 or bool(done))
        done = obrs.train(
            generator, own, samples, **goal, start_from=done, new_critic=fresh, out=home, progress=progress
        )
        rows += [row | ({"stage": number} if len(stages) > 1 else {}) for row in done.log]
    return Trained(done.generator, done.critic, rows, done.state, folder)


def _keep_settings(config: TrainConfig, folder: Path) -> None:
    """Write the settings of a run, unless the folder holds another one."""
    path = folder / "config.json"
    if path.is_file() and list(folder.glob("stage-*")):
        before, now = (asdict(settings) for settings in (read_config(path), config))
        for key in (key for key in now if key not in _FREE and now[key] != before[key]):
            raise InputError(f"{folder} was made with {key}={before[key]!r}, got {now[key]!r}; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write((json.dumps(asdict(config), indent=2) + "\n").encode())


def _last_stage(folder: str | Path) -> Path:
    """Return the folder of the last stage that a run came to; a checkpoint, or a run of `obrs.train`, is itself."""
    found = sorted(path for path in Path(folder).glob("stage-*") if checkpoints(path))
    return found[-1] if found else Path(folder)


def load_run(folder: str | Path, checkpoint: Path | None = None) -> Trained:
    """Load a run from its folder, as of its latest checkpoint or another one."""
    path = checkpoint or _last_stage(folder)
    facts = read_state(path).facts
    number = int(next(part for part in path.parts[::-1] if part.startswith("stage-")).removeprefix("stage-"))
    config = read_config(Path(folder) / "config.json")
    generator, critics = build_networks(config, facts["shape"], len(facts["counts"]))
    return load_trained(path, generator, critics[number - 1])


def run_file(path: Path, changes: Mapping[str, str | None], out: Path | None = None) -> None:
    """Train from a file of settings, and say what to do with the run.

    Args:
        path: A TOML file.
        changes: Fields as text, which override it; None for a bare flag.
        out: The folder of the run; by default runs/NAME.
    """
    if not path.is_file():
        raise InputError(f"{path} is missing or not a file")
    config, values = read_config(path), dict[str, Any]()
    for key, text in changes.items():
        _check_field(key, "option")
        kind = type(getattr(config, key))
        try:
            values[key] = True if text is None else text if kind is str else json.loads(text)
            values[key] = kind(values[key]) if kind is int and values[key] == int(values[key]) else values[key]
        except (ValueError, TypeError):
            raise InputError(f"--{key} must be {kind.__name__}, got {text!r}") from None
    config, folder = replace(config, **values), out or Path("runs") / path.stem
    done = train(config, out=folder)
    if rank() == 0:
        names = ", then ".join(stage.generator_loss for stage in config.stages)
        print(f"trained {done.state.facts['step']} steps ({names}): {folder}")
        print(f'load it:    from paper.train import load_run; run = load_run("{folder}")')
        print(f"sample it:  run.sample(1000, budget={config.stages[-1].budget:g})")
