"""What a training run is made from: one frozen record of plain values, read from TOML, saved as JSON.

A run may have stages. Each is a small table of the fields that differ from the stage before; what it leads to is again
such a record, without stages: `TrainConfig.stages`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any

from .._checks import check_budget
from .._files import replacing
from .._text import lookup
from ..divergences import DIVERGENCES
from ..errors import InputError, InputTypeError, MissingLibraryError, ObrsError, UnknownNameError
from .losses import CRITIC_LOSSES, GENERATOR_LOSSES, MAX_LOG_RATIO
from .recipe import recipe

__all__ = ["GIVEN", "TrainConfig", "check_recipe", "override", "read_config"]

GIVEN = "given"
"""What the configuration of a run says of data that were given to `train`."""


@dataclass(frozen=True)
class TrainConfig:
    """All that decides a training run; the same configuration gives the same networks, bit for bit on a CPU.

    Args:
        data: A name of `batches.SOURCES`; "given" for data that `train` is given.
        data_size: How many points are drawn from a density.
        classes: Train on the labels of the data: both networks are conditional.
        network: A name of `networks.GENERATORS`; ignored for networks that are given to `train`.
        latent: Length of the latent.
        generator_width, critic_width: Width of the hidden layers.
        layers: Hidden layers of an MLP.
        activation: Activation of an MLP.
        critic_network: A name of `networks.CRITICS`, such as "fourier", which also sees sines and cosines of points;
            "" is as `network`.
        critic_layers: Hidden layers of the critic; 0 is as `layers`.
        spectral_norm: Spectral normalisation of the critic; the generator of a BigGAN always has it.
        attention: Of a BigGAN, the side of the map that self-attention follows; 0 for none.
        shared: Of a BigGAN, the length of an embedding of labels that all blocks share; 0 for one per block.
        hierarchical: Give each block of a BigGAN a part of the latent.
        initial: How the weights of a BigGAN start: "orthogonal", or "normal" for N(0, .02).
        generator_loss: A key of `GENERATOR_LOSSES`, for a run of one stage. "paper_raw", "exact" and their like train
            for the budget; "dual" and "non_saturating" are plain training. "paper_raw" is for the divergence "gan"
            alone. "" trains for the budget by the `recipe`: points in three stages.
        divergence: Which divergence the generator minimises, a key of `DIVERGENCES`; hinge and wgan ignore it.
        critic_loss: A key of `CRITIC_LOSSES`; "" takes the divergence, or what goes with hinge and wgan.
        budget: K, proposals per kept sample; the Tw/OBRS losses train for it, and the log reports at it.
        two_heads: Give the critic a second head that is always trained with the logistic loss, so that its log-ratio
            is at hand whatever trains the generator.
        gradient_penalty: Weight of the gradient penalty on the critic's first output; 0 for none.
        r1: Weight of the penalty on the squared slope of the critic's first output at real samples, halved as is usual.
        constant_every: Solve the constant c_K every so many steps. The second critic of "two_critics" is trained on
            what its own batch keeps, solved every time.
        max_log_ratio: Where losses that grow faster than log r clamp it.
        new_critic: Start with a new critic. The first stage has one anyway, unless it starts from another run.
        warm_up: Steps of the critic alone, before those of the generator.
        steps: Steps of the generator.
        critic_steps: Steps of the critic for each of them.
        batch_size: Samples per step, over all processes and parts.
        parts: Split each step's batch into so many parts and accumulate their gradients.
        noise: Standard deviation of Gaussian noise on all samples that the critic sees, real and fake.
        noise_until: Share of the steps after which it has fallen to 0, linearly; 0 keeps it as it is.
        generator_lr, critic_lr: Learning rates of Adam; 0 freezes the network.
        generator_decay_from, critic_decay_from: Share of the steps after which the learning rate falls linearly; 1 for
            never.
        decay_to: Share of the learning rate that is left at the end of such a fall.
        generator_betas, critic_betas: Decay rates of Adam's moments.
        ema_decay: Decay of the moving average of the generator's weights; 0 keeps none.
        ema_start: Step from which on it averages; before, it copies.
        precision: "no" for float32, or "bf16" for mixed precision.
        seed: Decides initial weights, order of the data and latents.
        start_from: A run to fine-tune: its folder, or one of its checkpoints.
        log_every, save_every: Steps between lines of the log, and between checkpoints.
        keep: How many checkpoints to keep.
        tensorboard: Write the log for TensorBoard, too.
        stage: Stages: tables of fields, each what differs from the stage before, the first from the fields above.

    Example:
        >>> tables = [{"steps": 100}, {"generator_loss": "exact", "batch_size": 512}]
        >>> config = TrainConfig(budget=4, generator_loss="dual", stage=tables)
        >>> [(s.steps, s.generator_loss, s.batch_size, s.budget) for s in config.stages]
        [(100, 'dual', 256, 4.0), (100, 'exact', 512, 4.0)]
    """

    data: str = GIVEN
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
    critic_loss: str = ""
    budget: float = 2.0
    two_heads: bool = False
    gradient_penalty: float = 0.0
    r1: float = 0.0
    constant_every: int = 1
    max_log_ratio: float = MAX_LOG_RATIO
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
    decay_to: float = 0.02
    generator_betas: tuple[float, float] = (0.5, 0.999)
    critic_betas: tuple[float, float] = (0.5, 0.999)
    ema_decay: float = 0.99
    ema_start: int = 0
    precision: str = "no"
    seed: int = 0
    start_from: str = ""
    log_every: int = 100
    save_every: int = 1000
    keep: int = 2
    tensorboard: bool = False
    stage: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            typed = _stages(value) if field.name == "stage" else _typed(field.name, value, _TYPES[field.name])
            object.__setattr__(self, field.name, typed)
        if not self.stage:
            self._check()
        if not self.generator_loss or self.stage:
            _ = self.stages  # each checks itself

    @property
    def stages(self) -> tuple["TrainConfig", ...]:
        """The configuration of each stage, without stages; the configuration itself if it is of one stage."""
        if not self.stage and self.generator_loss:
            return (self,)
        found, now = [], {field.name: getattr(self, field.name) for field in fields(self)} | {"stage": ()}
        for number, changed in enumerate(self.spelled_out().stage, 1):
            before, now = now, {**now, **changed}
            if not now["generator_loss"]:
                raise InputError(f"stage {number} needs a generator_loss, or the fields above all stages do")
            if number > 1 and not now["new_critic"]:
                pair = "two_critics" in (now["generator_loss"], before["generator_loss"])
                for name in (*_OF_CRITIC, *(["generator_loss"] if pair else [])):
                    if now[name] != before[name]:
                        raise InputError(
                            f"stage {number} has {name}={_plain(now[name])}, and the critic that it keeps has "
                            f"{_plain(before[name])}; set new_critic=true in it"
                        )
            try:
                found.append(TrainConfig(**now))
            except ObrsError as error:
                raise type(error)(f"stage {number}: {error}") from None
        return tuple(found)

    def spelled_out(self) -> "TrainConfig":
        """Return the same run with its stages in full, those of the recipe if it names no loss."""
        return self if self.stage or self.generator_loss else replace(self, stage=recipe(self))

    @property
    def scheduled(self) -> bool:
        """Whether noise or a learning rate depends on how many steps there will be; asked of a stage."""
        fades = self.noise > 0 and self.noise_until > 0
        return fades or self.generator_decay_from < 1 or self.critic_decay_from < 1

    def _check(self) -> None:
        check_budget(self.budget)
        for names, wanted, allowed in _RANGES:
            for name in names:
                if not allowed(getattr(self, name)):
                    raise InputError(f"{name} must be {wanted}, got {_plain(getattr(self, name))}")
        for name, choices in _CHOICES.items():
            if getattr(self, name) or name not in _MAY_BE_EMPTY:
                try:
                    lookup(choices, getattr(self, name), name)
                except UnknownNameError as error:
                    raise UnknownNameError(f"{error}{_NOTES.get(name, '')}") from None
        if self.batch_size % self.parts:
            raise InputError(f"batch_size must be a multiple of parts, got {self.batch_size} and {self.parts}")

    def save(self, path: str | Path) -> None:
        """Write the configuration as JSON."""
        with replacing(path) as file:
            file.write((json.dumps(asdict(self), indent=2) + "\n").encode())


_DEFAULTS = {field.name: field.default for field in fields(TrainConfig) if field.name != "stage"}
_TYPES = {name: type(default) for name, default in _DEFAULTS.items()}
_IN_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", tuple: "a pair of numbers"}
_POSITIVE = (
    *("data_size", "latent", "generator_width", "critic_width", "layers", "constant_every"),
    *("steps", "critic_steps", "batch_size", "parts", "log_every", "save_every", "keep"),
)
_RANGES: list[tuple[tuple[str, ...], str, Any]] = [
    (_POSITIVE, "at least 1", lambda n: n >= 1),
    (("ema_start", "warm_up", "critic_layers", "attention", "shared"), "at least 0", lambda n: n >= 0),
    (
        ("generator_lr", "critic_lr", "gradient_penalty", "r1", "noise"),
        "at least 0 and finite",
        lambda x: x >= 0 and isfinite(x),
    ),
    (
        ("noise_until", "generator_decay_from", "critic_decay_from", "decay_to"),
        "a share of 1, from 0 to 1",
        lambda x: 0 <= x <= 1,
    ),
    (("max_log_ratio",), "above 0", lambda x: x > 0),
    (("ema_decay",), "at least 0 and below 1", lambda x: 0 <= x < 1),
    (("generator_betas", "critic_betas"), "two numbers from 0 to below 1", lambda b: all(0 <= x < 1 for x in b)),
    (("seed",), "at least 0 and below 2**63", lambda n: 0 <= n < 2**63),
]
_CHOICES: dict[str, Mapping[str, Any]] = {
    "initial": dict.fromkeys(("orthogonal", "normal")),
    "precision": dict.fromkeys(("no", "bf16")),
    "generator_loss": GENERATOR_LOSSES,
    "divergence": DIVERGENCES,
    "critic_loss": CRITIC_LOSSES,
}
_MAY_BE_EMPTY = ("generator_loss", "critic_loss")
_NOTES = {"precision": "; no is float32"}
_OF_CRITIC = ("critic_network", "critic_width", "critic_layers", "spectral_norm", "two_heads")
"""Fields that decide what a critic looks like; one that is kept looks as it did."""
_OF_RECIPE = (
    *("critic_network", "new_critic", "warm_up", "noise", "noise_until", "r1"),
    *("generator_decay_from", "critic_decay_from"),
)
"""Fields that the recipe chooses; what else it sets follows from what was asked for, or is of its new critics."""
_OF_RUN = (
    *("data", "data_size", "classes", "network", "latent", "generator_width", "layers", "activation"),
    *("attention", "shared", "hierarchical", "initial"),
    *("ema_decay", "ema_start", "precision", "seed", "start_from", "log_every", "save_every", "keep", "tensorboard"),
)
"""Fields that are the same in all stages of a run."""


def read_config(path: str | Path) -> TrainConfig:
    """Read a configuration from a TOML or JSON file.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "run.toml")
        >>> _ = path.write_text('generator_loss = "dual"\\nbudget = 4')
        >>> read_config(path).budget
        4.0
    """
    path = Path(path)
    parse = json.loads if path.suffix == ".json" else _toml().loads
    try:
        values = parse(path.read_text())
    except ValueError as error:  # both libraries' errors are such, and one for text that is not UTF-8
        raise InputError(f"{path} cannot be read: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path} cannot be read: it is nested too deeply") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} must hold one table of keys and values, got {type(values).__name__}")
    for key in values:
        _check_key(key, "key", f" of {path.name}", also=("stage",))
    return TrainConfig(**values)


def check_recipe(config: TrainConfig) -> None:
    """Refuse fields that the recipe would overrule; asked when a run starts, as a loss may be named until then.

    Example:
        >>> check_recipe(TrainConfig(noise=0.1, generator_loss="dual"))
        >>> check_recipe(TrainConfig(noise=0.1))
        Traceback (most recent call last):
        obrs.errors.InputError: noise is for the recipe to choose, which trains where no loss is named; name a
        generator_loss, or change its stages: --stage.1.noise 0.1
    """
    stages = () if config.stage or config.generator_loss else recipe(config)
    for name in _OF_RECIPE:
        own = getattr(config, name)
        differs = [number for number, table in enumerate(stages, 1) if table.get(name, own) != own]
        if own != _DEFAULTS[name] and differs:
            raise InputError(
                f"{name} is for the recipe to choose, which trains where no loss is named; name a generator_loss, or "
                f"change its stages: --stage.{differs[0]}.{name} {_plain(own)}"
            )


def override(config: TrainConfig, values: Mapping[str, str | None]) -> TrainConfig:
    """Replace fields by what a command line says of them, as text; None is a bare flag, and true.

    A field of one stage is said as `stage.2.steps`. A field that some stage sets cannot be said for all of them.

    Example:
        >>> override(TrainConfig(), {"steps": "50", "two_heads": None}).steps
        50
        >>> staged = TrainConfig(generator_loss="dual", stage=[{"steps": 10}, {"budget": 4}])
        >>> [s.steps for s in override(staged, {"stage.2.steps": "50"}).stages]
        [10, 50]
    """
    parsed = {said: _said(said, said, text) for said, text in values.items() if not said.startswith("stage.")}
    for key in parsed:
        if where := [at for at, table in enumerate(config.stage, 1) if key in table]:
            stages = f"stage {where[0]} sets" if len(where) == 1 else f"stages {', '.join(map(str, where))} set"
            raise InputError(f"{stages} {key}; say which one you mean: --stage.{where[-1]}.{key}")
    if len(parsed) < len(values) and not config.stage:  # the recipe depends on what is said of all stages
        config, parsed = replace(config, **parsed).spelled_out(), {}
    changed = [dict(table) for table in config.stage]
    for said, text in values.items():
        if said.startswith("stage."):
            number, key = _stage_and_field(said, len(changed))
            changed[number - 1][key] = _said(said, key, text)
    return replace(config, **parsed, stage=tuple(changed))


def _said(said: str, key: str, text: str | None) -> Any:
    """Return the value of a field as the command line has it; a bare flag is true."""
    _check_key(key, "option")
    if text is None and _TYPES[key] is not bool:
        raise InputError(f"--{said} needs a value: {_IN_WORDS[_TYPES[key]]}")
    return True if text is None else _parsed(key, text)


def _stage_and_field(said: str, stages: int) -> tuple[int, str]:
    """Return the number of the stage and the field that an option `stage.N.FIELD` names."""
    _, number, key = (*said.split(".", 2), "")[:3]
    if not stages:
        raise InputError(f"--{said} is of a stage, and this configuration has none")
    if not number.isdecimal() or not 1 <= int(number) <= stages or not key:
        raise InputError(f"a field of a stage is --stage.N.FIELD with N from 1 to {stages}, got --{said}")
    return int(number), key


def _stages(tables: Any) -> tuple[dict[str, Any], ...]:
    """Return the tables of stages with every value as its field's type."""
    if not isinstance(tables, list | tuple) or not all(isinstance(table, Mapping) for table in tables):
        raise InputTypeError(f"stage must be a list of tables of fields ([[stage]] in TOML), got {_plain(tables)}")
    for number, table in enumerate(tables, 1):
        for key in table:
            _check_key(key, "key", f" of stage {number}")
            if key in _OF_RUN:
                raise InputError(f"{key} is the same in all stages; set it before them, not in stage {number}")
    return tuple({key: _typed(key, value, _TYPES[key]) for key, value in table.items()} for table in tables)


def _check_key(key: str, what: str, where: str = "", also: tuple[str, ...] = ()) -> None:
    if key not in _TYPES and key not in also:
        near = get_close_matches(key, _TYPES, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(_TYPES)}"
        raise UnknownNameError(f"unknown {what} {key!r}{where}; {hint}")


def _parsed(key: str, text: str) -> Any:
    """Read a value from the command line; what does not parse stays text, and is refused as the wrong type."""
    kind = _TYPES[key]
    if kind is str:
        return text
    try:
        return json.loads(f"[{text}]" if kind is tuple and not text.startswith("[") else text)
    except ValueError:
        return text


def _typed(name: str, value: Any, kind: type) -> Any:
    """Return the value as its field's type: a whole number is a number, a list of two numbers a pair."""
    if kind is tuple and isinstance(value, list | tuple) and len(value) == 2:
        return tuple(_typed(name, part, float) for part in value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e4 steps
    if kind is not tuple and isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise InputTypeError(f"{name} must be {_IN_WORDS[kind]}, got {_plain(value)}")


def _plain(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _toml() -> Any:
    for name in ("tomllib", "tomli"):  # the first is part of Python from 3.11 on
        try:
            return import_module(name)
        except ImportError:
            continue
    raise MissingLibraryError("TOML needs tomli on Python 3.10: pip install 'obrs[torch]'")
