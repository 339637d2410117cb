"""A fitted log-ratio: called like any other, saved with safetensors, with a report of how well it did."""

import os
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj, is_torch_array

from .._arrays import host_view, like
from ..errors import InputError, InputTypeError
from ..fitting.tensors import read_tensors, write_tensors
from ..types import Array
from .descent import FILE
from .pairs import to_tensor
from .scorers import Scorer, blocks

__all__ = ["FitReport", "FittedRatio", "find_trouble", "load_ratio"]

_VERSION = 1
_SATURATED = 0.02  # nats of held-out log-loss; between unit Gaussians that is a KL of about 11
_SATURATION = (
    "the classifier separates the two sets (held-out log-loss {loss:.1g}): where they do not meet, its log-ratio is a "
    "guess, and so are averages of it such as a KL divergence; use Telescope()"
)


@dataclass(frozen=True)
class FitReport:
    """How well a ratio was fitted.

    Args:
        method: Name of the method.
        log_loss: On held-out samples; log 2 = 0.693 is chance.
        standard_error: Of that loss.
        steps, seconds, stopped: Updates, wall time, and why it ended.
        n_real, n_fake: Samples it was fitted on.
        history: Pairs of a step and the held-out loss after it.
        bridges: Held-out loss of each bridge of a telescope, from the model to the data.
        trouble: One line if the ratio should not be trusted, else None.

    Example:
        >>> report = FitReport("Network", 0.5, 0.01, 100, 2.0, "all steps done", 900, 51200, ((100, 0.5),))
        >>> print(report)
        Network: held-out log-loss 0.500 ± 0.010 (chance 0.693), 100 steps in 2 s, all steps done
    """

    method: str
    log_loss: float
    standard_error: float
    steps: int
    seconds: float
    stopped: str
    n_real: int
    n_fake: int
    history: tuple[tuple[int, float], ...] = ()
    bridges: tuple[float, ...] = ()
    trouble: str | None = None

    def __str__(self) -> str:
        loss = f"held-out log-loss {self.log_loss:.3f} ± {self.standard_error:.3f} (chance {log(2):.3f})"
        line = f"{self.method}: {loss}, {self.steps} steps in {self.seconds:.0f} s, {self.stopped}"
        return line if self.trouble is None else f"{line}\n{self.trouble}"


def find_trouble(log_loss: float, standard_error: float, bridges: list[tuple[float, ...]]) -> str | None:
    """Say in one line why a fit should not be trusted, or None.

    Args:
        log_loss, standard_error: Held-out, of the whole ratio.
        bridges: The losses of the bridges of each member; empty for one that is no telescope.
    """
    for losses in filter(None, bridges):
        worst = int(np.argmin(losses))
        if losses[worst] < _SATURATED:
            where = (
                f"bridge {worst + 1} of {len(losses)} separates its two sets (held-out log-loss {losses[worst]:.1g})"
            )
            return f"{where}; use Telescope(bridges={2 * len(losses)})"
    if log_loss < _SATURATED and not all(bridges):
        return _SATURATION.format(loss=log_loss)
    if log_loss > log(2) + 3 * standard_error:
        return f"held-out log-loss {log_loss:.3f} is worse than chance, {log(2):.3f}; more steps, or more real samples"
    return None


@dataclass(frozen=True, eq=False, repr=False)
class FittedRatio:
    """log p(x) - log q(x), as fitted by `refit`.

    Call it with samples `(n, ...)` of NumPy, torch or JAX; the answer `(n,)` is of the same library and device, and
    float32 or, for float64, float64. Torch samples that require a gradient get one, except from trees, which are flat.

    Args:
        scorer: The fitted tensors and how to read them.
        shape: Shape of one sample.
        report: How well it was fitted.
        probe: A few samples; a file that is read with another network is found out by them.

    Example:
        >>> from obrs.ratios.refit import refit
        >>> rng = np.random.default_rng(0)
        >>> fitted = refit(rng.normal(1.0, 1.0, (1000, 1)), rng.normal(0.0, 1.0, (1000, 1)), steps=50)
        >>> fitted(np.array([[-1.0], [2.0]])).shape
        (2,)
    """

    scorer: Scorer
    shape: tuple[int, ...]
    report: FitReport
    probe: Any

    def __repr__(self) -> str:
        return f"FittedRatio({self.report})"

    def __call__(self, x: Array) -> Array:
        if not is_array_api_obj(x):
            raise InputTypeError(f"a fitted ratio takes an array of samples, got {type(x).__name__}")
        if tuple(x.shape[1:]) != self.shape or not x.ndim:
            raise InputError(f"this ratio is of samples of shape {self.shape}, got an array of {tuple(x.shape)}")
        if is_torch_array(x) and x.device != self.probe.device:
            raise InputError(f"samples are on {x.device} and this ratio on {self.probe.device}; use ratio.to(device)")
        asks = is_torch_array(x) and x.requires_grad
        samples = x.to(self.probe.dtype) if asks else to_tensor(x, self.probe.device)
        score = blocks(self.scorer, samples) if len(x) else samples.new_zeros(0)
        wide = "float64" in str(x.dtype)
        if is_torch_array(x):
            return score.double() if wide else score
        return like(host_view(score), x, dtype=x.dtype if wide else np.float32)

    def to(self, device: Any) -> "FittedRatio":
        """Return the ratio on another device of torch; features of a head must be there already."""
        return replace(self, scorer=self.scorer.to(device), probe=self.probe.to(device))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file that `load_ratio` reads; the whole of it, or nothing."""
        tensors: dict[str, Any] = {}
        facts = _describe(self.scorer, "ratio", tensors)
        tensors |= {"probe": self.probe, "expected": blocks(self.scorer, self.probe)}
        facts = {"version": _VERSION, "scorer": facts, "shape": list(self.shape), "report": asdict(self.report)}
        write_tensors(Path(path), tensors, facts)


def load_ratio(
    path: str | os.PathLike[str],
    *,
    network: Any = None,
    features: Any = None,
) -> FittedRatio:
    """Read a ratio that `FittedRatio.save` has written. Nothing in the file is executed.

    Args:
        path: The file.
        network: For a network that is not one of `obrs.models`: one built alike, whose weights do not matter.
        features: For a head: the features it was fitted on. For an ensemble, these two may be lists, with one entry
            per member; None for a member that needs none.

    Example:
        >>> import tempfile
        >>> from obrs.ratios.boosted import Boosted
        >>> from obrs.ratios.refit import refit
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(1.0, 1.0, (1000, 1)), rng.normal(0.0, 1.0, (1000, 1))
        >>> fitted = refit(real, fake, Boosted(rounds=5))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fitted.save(f"{folder}/ratio.safetensors")
        ...     again = load_ratio(f"{folder}/ratio.safetensors")
        >>> bool((again(fake) == fitted(fake)).all())
        True
    """
    tensors, facts = read_tensors(path, FILE)
    if facts.get("version") != _VERSION:
        raise InputError(f"{path} has version {facts.get('version')} of the format, this library reads {_VERSION}")
    scorer = _rebuild(facts["scorer"], "ratio", tensors, network, features)
    probe, expected = tensors["probe"], tensors["expected"]
    gap = float((blocks(scorer, probe) - expected).abs().max())
    if not gap <= 1e-3 * (1 + float(expected.abs().max())):
        raise InputError(f"the network or features given are not those of {path}: scores differ by up to {gap:.2g}")
    report = facts["report"]
    history = tuple((int(step), float(loss)) for step, loss in report["history"])
    report = FitReport(**report | {"history": history, "bridges": tuple(report["bridges"])})
    return FittedRatio(scorer, tuple(facts["shape"]), report, probe)


def _describe(scorer: Scorer, prefix: str, tensors: dict[str, Any]) -> dict[str, Any]:
    """Collect the tensors of a scorer under a prefix, and return what else must be known."""
    tensors |= {f"{prefix}.{name}": tensor for name, tensor in scorer.module.state_dict().items()}
    specs = {name: getattr(part, "spec", None) for name, part in scorer.module.items()}
    own = {name: type(part).__name__ for name, part in scorer.module.items()}
    members = [_describe(member, f"{prefix}.{i}", tensors) for i, member in enumerate(scorer.members)]
    return {"kind": scorer.kind, "networks": specs, "classes": own, "members": members}


def _rebuild(facts: dict[str, Any], prefix: str, tensors: dict[str, Any], network: Any, features: Any) -> Scorer:
    import torch

    if facts["kind"] == "head" and features is None:
        raise InputError("this ratio is a head on features of your own; pass load_ratio(path, features=...)")
    module = torch.nn.ModuleDict()
    for name, spec in facts["networks"].items():
        module[name] = _network(spec, facts["classes"][name], network)
    networks, looks = (
        _per_member(x, len(facts["members"]), kind) for x, kind in ((network, "network"), (features, "features"))
    )
    members = [_rebuild(m, f"{prefix}.{i}", tensors, networks[i], looks[i]) for i, m in enumerate(facts["members"])]
    known = set(module.state_dict())
    for name, tensor in tensors.items():
        key = name.removeprefix(f"{prefix}.")
        if name.startswith(f"{prefix}.") and key not in known and "." not in key:
            module.register_buffer(key, tensor)
    state = {k: tensors[f"{prefix}.{k}"] for k in module.state_dict() if f"{prefix}.{k}" in tensors}
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise InputError(
            f"the network given is not built like the one in the file: {str(error).splitlines()[-1]}"
        ) from error
    module.eval().requires_grad_(False)
    return Scorer(facts["kind"], module, features, tuple(members))


def _per_member(given: Any, n: int, name: str) -> list[Any]:
    """Return what each of n members gets: the entries of a list, or all the same."""
    if not isinstance(given, list | tuple):
        return [given] * n
    if len(given) != n:
        raise InputError(f"{name} must be one, or a list with one per member, {n} of them, got {len(given)}")
    return list(given)


def _network(spec: dict[str, Any] | None, kind: str, network: Any) -> Any:
    """Build a network anew from its description, or copy the one the user gave."""
    if spec is not None:
        from ..models.registry import build

        return build(spec)
    if network is None:
        raise InputError(f"this ratio has a network of your own, {kind}; pass load_ratio(path, network={kind}(...))")
    return deepcopy(network)
