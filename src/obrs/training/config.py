"""What a training run is made from: one frozen record of plain values, read from TOML, saved as JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any

from .._files import replacing
from .._inputs import check_budget
from .._names import lookup
from ..divergences import DIVERGENCES
from ..errors import InputError, InputTypeError, MissingLibraryError, UnknownNameError
from .losses import CRITIC_LOSSES, GENERATOR_LOSSES, MAX_LOG_RATIO

__all__ = ["GIVEN", "TrainConfig", "override", "read_config"]

GIVEN = "given"
"""What the configuration of a run says of data that were given to `train`."""


@dataclass(frozen=True)
class TrainConfig:
    """All that decides a training run; the same configuration gives the same networks, bit for bit on a CPU.

    Args:
        data: A toy density or an image data set by name; "given" once `train` was given data.
        data_size: How many points are drawn from a toy density.
        classes: Train on the labels of the data: both networks are conditional.
        network: "mlp" or "conv"; ignored for networks that are given to `train`.
        latent: Length of the latent.
        generator_width, critic_width: Width of the hidden layers.
        layers: Hidden layers of an MLP.
        activation: Activation of an MLP.
        spectral_norm: Spectral normalisation of the critic.
        generator_loss: A key of `GENERATOR_LOSSES`. "paper_raw", "exact" and their like train for the budget; "dual"
            and "non_saturating" are plain training. "paper_raw" is for the divergence "gan" alone.
        divergence: Which divergence the generator minimises, a key of `DIVERGENCES`; hinge and wgan ignore it.
        critic_loss: A key of `CRITIC_LOSSES`; "" takes the divergence, or what goes with hinge and wgan.
        budget: K, proposals per kept sample; the Tw/OBRS losses train for it, and the log reports at it.
        two_heads: Give the critic a second head that is always trained with the logistic loss, so that its log-ratio
            is at hand whatever trains the generator.
        gradient_penalty: Weight of the gradient penalty on the critic's first output; 0 for none.
        constant_every: Solve the constant c_K every so many steps. The second critic of "two_critics" is trained on
            what its own batch keeps, solved every time.
        window: Solve it on so many of the latest log-ratios; 0 takes those of the batch.
        max_log_ratio: Where losses that grow faster than log r clamp it.
        steps: Steps of the generator.
        critic_steps: Steps of the critic for each of them.
        batch_size: Samples per step, over all processes and parts.
        parts: Split each step's batch into so many parts and accumulate their gradients.
        generator_lr, critic_lr: Learning rates of Adam; 0 freezes the network.
        generator_betas, critic_betas: Decay rates of Adam's moments.
        ema_decay: Decay of the moving average of the generator's weights; 0 keeps none.
        ema_start: Step from which on it averages; before, it copies.
        precision: "no" for float32, or "bf16" for mixed precision.
        seed: Decides initial weights, order of the data and latents.
        start_from: A run to fine-tune: its folder, or one of its checkpoints.
        log_every, save_every: Steps between lines of the log, and between checkpoints.
        keep: How many checkpoints to keep.
        tensorboard: Write the log for TensorBoard, too.

    Example:
        >>> config = TrainConfig(steps=100, budget=4)
        >>> config.budget, config.critic_betas
        (4.0, (0.5, 0.999))
    """

    data: str = "grid25"
    data_size: int = 100_000
    classes: bool = False
    network: str = "mlp"
    latent: int = 2
    generator_width: int = 100
    critic_width: int = 100
    layers: int = 3
    activation: str = "relu"
    spectral_norm: bool = False
    generator_loss: str = "paper_raw"
    divergence: str = "gan"
    critic_loss: str = ""
    budget: float = 2.0
    two_heads: bool = False
    gradient_penalty: float = 0.0
    constant_every: int = 1
    window: int = 0
    max_log_ratio: float = MAX_LOG_RATIO
    steps: int = 10_000
    critic_steps: int = 1
    batch_size: int = 256
    parts: int = 1
    generator_lr: float = 1e-3
    critic_lr: float = 1e-3
    generator_betas: tuple[float, float] = (0.5, 0.999)
    critic_betas: tuple[float, float] = (0.5, 0.999)
    ema_decay: float = 0.0
    ema_start: int = 0
    precision: str = "no"
    seed: int = 0
    start_from: str = ""
    log_every: int = 100
    save_every: int = 1000
    keep: int = 2
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = _typed(field.name, getattr(self, field.name), _TYPES[field.name])
            object.__setattr__(self, field.name, value)
        check_budget(self.budget)
        for names, wanted, allowed in _RANGES:
            for name in names:
                if not allowed(getattr(self, name)):
                    raise InputError(f"{name} must be {wanted}, got {_plain(getattr(self, name))}")
        for name, choices in _CHOICES.items():
            if getattr(self, name) or name != "critic_loss":
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


_TYPES = {field.name: type(field.default) for field in fields(TrainConfig)}
_IN_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", tuple: "a pair of numbers"}
_POSITIVE = (
    *("data_size", "latent", "generator_width", "critic_width", "layers", "constant_every"),
    *("steps", "critic_steps", "batch_size", "parts", "log_every", "save_every", "keep"),
)
_RANGES: list[tuple[tuple[str, ...], str, Any]] = [
    (_POSITIVE, "at least 1", lambda n: n >= 1),
    (("window", "ema_start"), "at least 0", lambda n: n >= 0),
    (("generator_lr", "critic_lr", "gradient_penalty"), "at least 0 and finite", lambda x: x >= 0 and isfinite(x)),
    (("max_log_ratio",), "above 0", lambda x: x > 0),
    (("ema_decay",), "at least 0 and below 1", lambda x: 0 <= x < 1),
    (("generator_betas", "critic_betas"), "two numbers from 0 to below 1", lambda b: all(0 <= x < 1 for x in b)),
    (("seed",), "at least 0 and below 2**63", lambda n: 0 <= n < 2**63),
]
_CHOICES: dict[str, Mapping[str, Any]] = {
    "network": dict.fromkeys(("mlp", "conv")),
    "precision": dict.fromkeys(("no", "bf16")),
    "generator_loss": GENERATOR_LOSSES,
    "divergence": DIVERGENCES,
    "critic_loss": CRITIC_LOSSES,
}
_NOTES = {"precision": "; no is float32"}


def read_config(path: str | Path) -> TrainConfig:
    """Read a configuration from a TOML or JSON file.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "run.toml")
        >>> _ = path.write_text('data = "ring8"\\nbudget = 4')
        >>> read_config(path).data
        'ring8'
    """
    path = Path(path)
    parse = json.loads if path.suffix == ".json" else _toml().loads
    try:
        values = parse(path.read_text())
    except ValueError as error:  # both libraries' errors are such, and one for text that is not UTF-8
        raise InputError(f"{path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path} must hold one table of keys and values, got {type(values).__name__}")
    for key in values:
        _check_key(key, "key", f" of {path.name}")
    return TrainConfig(**values)


def override(config: TrainConfig, values: Mapping[str, str | None]) -> TrainConfig:
    """Replace fields by what a command line says of them, as text; None is a bare flag, and true.

    Example:
        >>> override(TrainConfig(), {"steps": "50", "two_heads": None}).steps
        50
    """
    parsed: dict[str, Any] = {}
    for key, text in values.items():
        _check_key(key, "option")
        if text is None and _TYPES[key] is not bool:
            raise InputError(f"--{key} needs a value: {_IN_WORDS[_TYPES[key]]}")
        parsed[key] = True if text is None else _parsed(key, text)
    return replace(config, **parsed)


def _check_key(key: str, what: str, where: str = "") -> None:
    if key not in _TYPES:
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
    raise MissingLibraryError("TOML needs tomli on Python 3.10: pip install 'obrs[training]'")
