"""The record of a sampling run: what was kept, and what it cost."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj

from .._arrays import host_view
from .._files import replacing
from .._names import lookup
from ..errors import InputError
from .proposals import Batch, concatenate, leaves, map_leaves, take

__all__ = ["Calls", "Samples", "first", "join", "unjudged"]

Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Calls:
    """How often the networks were evaluated, in items: forward, and with a gradient on top.

    Example:
        >>> Calls(generator=10, critic=10) + Calls(critic=5, critic_gradient=5)
        Calls(generator=10, critic=15, generator_gradient=0, critic_gradient=5)
    """

    generator: int = 0
    critic: int = 0
    generator_gradient: int = 0
    critic_gradient: int = 0

    def __add__(self, other: "Calls") -> "Calls":
        return Calls(**{key: value + getattr(other, key) for key, value in asdict(self).items()})


@dataclass(frozen=True, repr=False)
class Samples:
    """What was kept: samples with their ids, ratios and weights, and what they cost.

    Args:
        x: The samples, an array or a tuple or dict of arrays.
        ids: The proposal each came from, NumPy int64.
        log_ratio: Their log-ratios, NumPy float64; NaN where a method does not score its output.
        log_weight: log(r/a), the importance weight that is left, NumPy float64; 0 where a method has none.
        proposed: Proposals up to the last one kept.
        executed: Proposals made, including the rest of the last batch.
        calls: Evaluations up to the last one kept.
        executed_calls: Evaluations made.
        seconds: Wall time.
        next_id: Where to resume.

    Example:
        >>> weight = np.log([1.0, 3.0])
        >>> kept = Samples(np.zeros((2, 3)), np.array([0, 5]), np.zeros(2), weight, proposed=8, executed=8)
        >>> len(kept), kept.rate, float(kept.mean(lambda x: x[:, 0] + 1.0))
        (2, 0.25, 1.0)
    """

    x: Batch
    ids: Floats
    log_ratio: Floats
    log_weight: Floats
    proposed: int
    executed: int
    calls: Calls = field(default_factory=Calls)
    executed_calls: Calls = field(default_factory=Calls)
    seconds: float = 0.0
    next_id: int = 0

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        shapes = [tuple(leaf.shape) for leaf in leaves(self.x)]
        shape = shapes[0] if len(shapes) == 1 else shapes
        return f"Samples({len(self)} of {self.proposed} proposals, x of shape {shape}, next_id={self.next_id})"

    @property
    def rate(self) -> float:
        """Share of the proposals that was kept."""
        return len(self) / self.proposed if self.proposed else float("nan")

    def mean(self, g: Callable[[Batch], Any], estimator: str = "self_normalised") -> Any:
        """Estimate the target's mean of g from the kept samples and their weights w = r/a.

        Args:
            g: Maps `x` to numbers, one row per sample.
            estimator: "self_normalised", sum(w g)/sum(w): consistent, whatever the scale of r. "unbiased",
                sum(w g)/proposed: unbiased if the number of proposals was fixed in advance (`stream` with `stop`) and
                E_Q[r] = 1. "plain", the average of g, which ignores the weights.
        """
        if not len(self):
            raise InputError("there is nothing to average: no sample was kept")
        result = g(self.x)
        values: Any = host_view(result) if is_array_api_obj(result) else np.asarray(result)
        if not np.ndim(values) or len(values) != len(self):
            got = len(values) if np.ndim(values) else "one number"
            raise InputError(f"g must return one row per sample, {len(self)}, got {got}")
        values = values.astype(np.float64)
        largest = float(np.max(self.log_weight))
        relative = np.exp(self.log_weight - (largest if np.isfinite(largest) else 0.0))  # of any scale
        weighted = np.tensordot(relative, values, axes=1)
        estimators: dict[str, Callable[[], Any]] = {
            "self_normalised": lambda: weighted / np.sum(relative),
            "unbiased": lambda: _exp(largest) * weighted / self.proposed,
            "plain": lambda: np.mean(values, axis=0),
        }
        return lookup(estimators, estimator, "estimator")()

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Write the samples to a .npz file, whole or not at all."""
        x = map_leaves(host_view, self.x)
        parts = x if isinstance(x, dict) else dict(enumerate(x)) if isinstance(x, tuple) else {"": x}
        facts = {
            "kind": "dict" if isinstance(x, dict) else "tuple" if isinstance(x, tuple) else "array",
            "keys": [str(key) for key in parts],
            **{key: getattr(self, key) for key in ("proposed", "executed", "seconds", "next_id")},
            "calls": asdict(self.calls),
            "executed_calls": asdict(self.executed_calls),
        }
        arrays = {f"x{i}": value for i, value in enumerate(parts.values())}
        arrays |= {"ids": self.ids, "log_ratio": self.log_ratio, "log_weight": self.log_weight}
        with replacing(path) as file:
            np.savez(file, facts=np.array(json.dumps(facts)), **arrays)

    @classmethod
    def load(cls, path: "str | os.PathLike[str]") -> "Samples":
        """Read what `save` wrote; x comes back as NumPy arrays."""
        with np.load(path) as file:
            if "facts" not in file:
                raise InputError(f"{path} was not written by Samples.save")
            facts = json.loads(str(file["facts"]))
            parts = [file[f"x{i}"] for i in range(len(facts["keys"]))]
            x: Any = dict(zip(facts["keys"], parts, strict=True))
            if facts["kind"] != "dict":
                x = tuple(parts) if facts["kind"] == "tuple" else parts[0]
            calls = {key: Calls(**facts[key]) for key in ("calls", "executed_calls")}
            rest: dict[str, Any] = {key: facts[key] for key in ("proposed", "executed", "seconds", "next_id")} | calls
            return cls(x, file["ids"], file["log_ratio"], file["log_weight"], **rest)


def unjudged(x: Batch, ids: Floats, *, calls: Calls, seconds: float) -> Samples:
    """Return the samples of a method that neither scores nor rejects: all proposals are kept, none has a weight."""
    return Samples(
        x=x,
        ids=ids,
        log_ratio=np.full(len(ids), np.nan),
        log_weight=np.zeros(len(ids)),
        proposed=len(ids),
        executed=len(ids),
        calls=calls,
        executed_calls=calls,
        seconds=seconds,
        next_id=int(ids[-1]) + 1,
    )


def _exp(x: float) -> Any:
    with np.errstate(over="ignore"):  # of ratios that are far from E_Q[r] = 1, which this estimator needs
        return np.exp(x)


def join(parts: Sequence[Samples]) -> Samples:
    """Put runs one after the other; costs add up."""
    filled = [part for part in parts if len(part)] or list(parts[:1])
    return Samples(
        x=concatenate([part.x for part in filled]),
        ids=np.concatenate([part.ids for part in filled]),
        log_ratio=np.concatenate([part.log_ratio for part in filled]),
        log_weight=np.concatenate([part.log_weight for part in filled]),
        proposed=sum(part.proposed for part in parts),
        executed=sum(part.executed for part in parts),
        calls=sum((part.calls for part in parts), Calls()),
        executed_calls=sum((part.executed_calls for part in parts), Calls()),
        seconds=sum(part.seconds for part in parts),
        next_id=max(part.next_id for part in parts),
    )


def first(samples: Samples, n: int) -> Samples:
    """Return the first n samples of one batch of contiguous ids, with the cost up to the n-th.

    A batch with fewer samples is returned as it is. The cost of what was rejected after the n-th is left out.
    """
    if len(samples) < n:
        return samples
    start = samples.next_id - samples.proposed
    used = int(samples.ids[n - 1]) - start + 1 if n else 0
    return replace(
        samples,
        x=take(samples.x, np.arange(n)),
        ids=samples.ids[:n],
        log_ratio=samples.log_ratio[:n],
        log_weight=samples.log_weight[:n],
        proposed=used,
        calls=Calls(generator=used, critic=used),
        next_id=start + used,
    )
