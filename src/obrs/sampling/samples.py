"""The record of a sampling run: what was kept, what it cost, and averages under the target.

A proposal x is kept with probability a(x), and a kept one weighs w = r/a. So sum(w g)/sum(w) estimates the mean of g
under the target, whatever the scale of r and however the run stopped. If the number N of proposals was fixed in
advance, sum(w g)/N is unbiased, for E_Q[r] = 1: the mean over all proposals of y = w g, with 0 for the rejected ones.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from importlib import import_module
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj, is_jax_array, is_torch_array

from .._arrays import as_floats, host_view
from .._checks import check_callable
from .._files import as_path, rewrite
from .._text import html_table
from ..choice import Choice
from ..errors import InputError, InputTypeError, ObrsError
from ..estimate import Estimate
from ..rules import from_json, saved_rules, to_json
from .proposals import Batch, concatenate, leaves, take

__all__ = ["Calls", "Samples", "first", "join", "keep_all", "pick"]

Numbers = np.ndarray[Any, Any]


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
        return Calls(*(getattr(self, key) + getattr(other, key) for key in Calls.__dataclass_fields__))


@dataclass(frozen=True, repr=False)
class Samples:
    """Kept samples with their ids, log-ratios and weights, and what they cost.

    Args:
        x: The samples, an array or a tuple or dict of arrays.
        ids: The proposal each came from, NumPy int64.
        log_ratio: Their log-ratios, NumPy float64; NaN where a method does not score its output.
        log_weight: log(r/a), the importance weight that is left, NumPy float64; 0 where a method has none. NaN if they
            were chosen by a score that is no ratio, such as a sum of ratios.
        proposed: Proposals up to the last one kept.
        executed: Proposals made, including the rest of the last batch.
        calls, executed_calls: Evaluations up to the last one kept; evaluations made.
        seconds, next_id: Wall time; where to resume.
        fixed: What was fixed in advance: "proposals", their number; "pool", also the number kept of them; "" neither.
        rule: The rule that decided on all of them, with which to resume; None if there was none, or more than one.
        notes: What a reader of the result should know.

    Example:
        >>> weight = np.log([1.0, 3.0])
        >>> kept = Samples(np.zeros((2, 3)), np.array([0, 5]), np.zeros(2), weight, proposed=8, executed=8)
        >>> len(kept), kept.rate, round(kept.ess, 3), float(kept.mean(lambda x: x[:, 0] + 1.0))
        (2, 0.25, 1.6, 1.0)
    """

    x: Batch
    ids: Numbers
    log_ratio: Numbers
    log_weight: Numbers
    proposed: int
    executed: int
    calls: Calls = field(default_factory=Calls)
    executed_calls: Calls = field(default_factory=Calls)
    seconds: float = 0.0
    next_id: int = 0
    fixed: str = ""
    rule: Any = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        shapes = [tuple(leaf.shape) for leaf in leaves(self.x)]
        shape = shapes[0] if len(shapes) == 1 else shapes
        return f"Samples({len(self)} of {self.proposed} proposals, x of shape {shape}, next_id={self.next_id})"

    def _repr_html_(self) -> str:
        """Return a table for notebooks: how much was kept, what it cost, and what the weights are worth."""
        scored = self.log_ratio[np.isfinite(self.log_ratio)]
        facts = {
            "kept": f"{len(self):,} of {self.proposed:,} proposals, 1 in {self.proposed / max(len(self), 1):.4g}",
            "x": ", ".join(str(tuple(leaf.shape)) for leaf in leaves(self.x)),
            "log r": f"{scored.min():.3g} to {scored.max():.3g}" if scored.size else "unknown",
            "effective sample size": f"{self.ess:.4g}, with the weights that are left",
            "calls": f"{self.calls.generator:,} of the generator, {self.calls.critic:,} of the critic",
            "seconds": f"{self.seconds:.3g}",
            "next id": self.next_id,
            **({"notes": "; ".join(self.notes)} if self.notes else {}),
        }
        return html_table(["Samples", ""], facts.items())

    @property
    def rate(self) -> float:
        """Share of the proposals that was kept."""
        return len(self) / self.proposed if self.proposed else float("nan")

    @property
    def ess(self) -> float:
        """Effective sample size (sum w)^2 / sum w^2: as many samples without weights would be worth as much."""
        if not len(self):
            return 0.0
        weight = np.exp(self.log_weight - np.max(self.log_weight))
        return float(np.sum(weight) ** 2 / np.sum(weight**2))

    def __add__(self, other: "Samples") -> "Samples":
        """Join two runs on different proposals: samples one after the other, costs added."""
        if not isinstance(other, Samples):
            return NotImplemented
        twice = np.intersect1d(self.ids, other.ids)
        if twice.size:
            remedy = f"start the second run at start={max(self.next_id, other.next_id)}"
            raise InputError(f"{twice.size} ids are in both runs, {twice[0]} first; {remedy}, or with ids of its own")
        if _form(self.x) != _form(other.x):
            raise InputError(f"cannot join samples of another kind: {_form(self.x)} and {_form(other.x)}")
        return join([self, other])

    def mean(self, g: Callable[[Batch], Any], confidence: float | None = None, *, unbiased: bool = False) -> Any:
        """Estimate the target's mean of g from the kept samples and their weights w = r/a.

        Args:
            g: Maps `x` to numbers, one row per sample.
            confidence: Return an `Estimate` whose interval has the mean with this probability, for many samples.
            unbiased: Return sum(w g)/proposed, for E_Q[r] = 1, instead of sum(w g)/sum(w); only where the number of
                proposals was fixed in advance, by `proposed`, by `pool` or by the `stop` of a stream. For a rule that
                was fitted on the first of these proposals the bias is of order 1/N.

        Example:
            >>> from obrs import normals, sample
            >>> kept = sample(lambda ids: normals(ids, 1, seed=1)[:, 0], lambda x: x - 0.5, 1000, budget=2)
            >>> print(kept.mean(lambda x: x, confidence=0.95))  # of the target, N(1, 1)
            1.064 (0.9513 to 1.176)

        References:
            | Monte Carlo Theory, Methods and Examples (Owen, 2013), Ch. 9
            | A Generalization of Sampling without Replacement from a Finite Universe (Horvitz & Thompson, 1952)
            | Asymptotic Theory of Rejective Sampling with Varying Probabilities (Hájek, 1964), the variance of a pool
        """
        if np.isnan(self.log_weight).any():
            raise InputError("chosen by a score that is no ratio, they have no weights: take the plain mean of g(x)")
        values = self._values(g)
        if confidence is not None and (len(self) < 2 or len(np.unique(self.ids)) < len(self)):
            raise InputError("an interval needs at least 2 kept samples, and none of them twice")
        if unbiased and not self.fixed:
            raise InputError("the number of proposals was not fixed in advance: sample with proposed= or pool=")
        rows = values.reshape(len(self), -1)
        mean, variance = (_over_proposals if unbiased else _self_normalised)(self, rows)
        mean = mean.reshape(values.shape[1:])[()]
        if confidence is None:
            return mean
        return Estimate.from_error(mean, np.sqrt(variance).reshape(values.shape[1:])[()], confidence)

    def _values(self, g: Callable[[Batch], Any]) -> Numbers:
        """Return g of the samples as float64, checked."""
        if not len(self):
            raise InputError("there is nothing to average: no sample was kept")
        result = check_callable(g, "g", "a function of samples")(self.x)
        values: Any = host_view(result) if is_array_api_obj(result) else np.asarray(result)
        if not values.ndim or len(values) != len(self):
            raise InputError(f"g must return one row per sample, {len(self)}, got shape {values.shape}")
        if values.dtype.kind not in "biuf":
            raise InputTypeError(f"g must return real numbers, got dtype {values.dtype}")
        return np.asarray(values, np.float64)

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Write the samples to a .npz file of arrays, whole or not at all; a rule of your own is left out."""
        if as_path(path, "path").suffix.lower() != ".npz":
            raise InputError(f"Samples.save writes .npz files, got {os.fspath(path)!r}; name it {Path(path).stem}.npz")
        keys = list(self.x) if isinstance(self.x, dict) else [] if isinstance(self.x, tuple) else None
        if not all(isinstance(key, str | int) for key in keys or []):
            raise InputError(f"keys of a batch must be text or whole numbers to be saved, got {keys!r:.60}")
        rule = to_json(self.rule) if type(self.rule) in saved_rules().values() else None
        facts = {"keys": keys, "libraries": list(map(_library, leaves(self.x))), "rule": rule}
        facts |= {key: getattr(self, key) for key in _FACTS}
        arrays: dict[str, Any] = {f"x{i}": _plain(leaf) for i, leaf in enumerate(leaves(self.x))}
        arrays |= {key: getattr(self, key) for key in _ARRAYS}
        with rewrite(path) as file:
            np.savez(file, facts=np.array(json.dumps(facts, default=asdict)), **arrays)

    @classmethod
    def load(cls, path: "str | os.PathLike[str]") -> "Samples":
        """Read what `save` wrote, as arrays of the libraries they came from, on the CPU."""
        with open(as_path(path, "path"), "rb") as file:
            try:
                with np.load(file, allow_pickle=False) as found:
                    arrays = dict(found)
                facts = json.loads(str(arrays["facts"]))
                parts = [arrays[f"x{i}"] for i in range(len(facts["libraries"]))]
                rest = {key: facts[key] for key in _FACTS} | {key: arrays[key] for key in _ARRAYS}
                rest |= {key: Calls(**facts[key]) for key in ("calls", "executed_calls")}
                rest |= {"rule": from_json(facts["rule"]) if facts["rule"] else None, "notes": tuple(facts["notes"])}
            except (ObrsError, MemoryError):
                raise
            except Exception as error:  # zipfile, zlib, struct, pickle and json each have their own
                raise InputError(f"{path} was not written by Samples.save") from error
        keys, parts = facts["keys"], list(map(_restore, parts, facts["libraries"]))
        x = parts[0] if keys is None else dict(zip(keys, parts, strict=True)) if keys else tuple(parts)
        return cls(x=x, **rest)


_ARRAYS = ("ids", "log_ratio", "log_weight")
_COSTS = ("proposed", "executed", "calls", "executed_calls", "seconds")
_FACTS = (*_COSTS, "next_id", "fixed", "notes")


def _self_normalised(kept: Samples, g: Numbers) -> tuple[Numbers, Numbers]:
    """Return sum(w g)/sum(w) and its variance by the delta method."""
    weight = np.exp(kept.log_weight - np.max(kept.log_weight))
    share, n = weight / np.sum(weight), len(weight)
    mean = share @ g
    return mean, share**2 @ (g - mean) ** 2 * n / max(n - 1, 1)


def _over_proposals(kept: Samples, g: Numbers) -> tuple[Numbers, Numbers]:
    """Return sum(w g)/N and its variance.

    With y = w g, and 0 for what was rejected, the variance of the mean of N independent y is estimated by
    (sum y^2 / N - mean^2)/(N - 1). Where exactly n of a pool were kept, with probabilities pi, adding a constant B to
    all y does not change the variance of the choice: it is sum((1 - pi) (y - B)^2)/N^2 with the best B.
    """
    y, size, n = np.exp(kept.log_weight)[:, None] * g, kept.proposed, len(g)
    mean = np.sum(y, axis=0) / size
    if kept.fixed == "proposals":
        return mean, (np.sum(y**2, axis=0) / size - mean**2) / max(size - 1, 1)
    pi = np.exp(np.minimum(kept.log_ratio - kept.log_weight, 0.0))[:, None]
    best = np.sum((1 - pi) * y, axis=0) / max(float(np.sum(1 - pi)), 1e-300)  # where all are sure, 0/0
    choice = np.sum((1 - pi) * (y - best) ** 2, axis=0) * n / max(n - 1, 1)
    return mean, (choice + np.maximum(np.sum(pi * y**2, axis=0) - size * mean**2, 0.0)) / size**2


def join(parts: Sequence[Samples]) -> Samples:
    """Put runs one after the other; costs add up."""
    filled = [part for part in parts if len(part)] or list(parts[:1])
    head, how = parts[0], {part.fixed for part in parts}
    joined: dict[str, Any] = {key: np.concatenate([getattr(part, key) for part in filled]) for key in _ARRAYS}
    joined |= {key: reduce(add, [getattr(part, key) for part in parts]) for key in _COSTS}
    return Samples(
        x=concatenate([part.x for part in filled]),
        **joined,
        next_id=max(part.next_id for part in parts),
        fixed="" if "" in how else head.fixed if len(how) == 1 else "proposals",  # whose variance is the larger one
        rule=head.rule if all(part.rule is head.rule or part.rule == head.rule for part in parts) else None,
        notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
    )


def keep_all(x: Batch, ids: Numbers, log_ratio: Numbers | None = None, *, calls: Calls, seconds: float) -> Samples:
    """Return proposals that no rule has decided on: all are there, none has a weight; without scores those are NaN."""
    return Samples(
        x=x,
        ids=ids,
        log_ratio=np.full(len(ids), np.nan) if log_ratio is None else log_ratio,
        log_weight=np.zeros(len(ids)),
        proposed=len(ids),
        executed=len(ids),
        calls=calls,
        executed_calls=calls,
        seconds=seconds,
        next_id=int(ids[-1]) + 1,
        fixed="proposals",
    )


def pick(samples: Samples, index: Numbers, **changes: Any) -> Samples:
    """Return the samples at these positions, at the same cost."""
    arrays = {key: getattr(samples, key)[index] for key in _ARRAYS}
    return replace(samples, **{"x": take(samples.x, index), **arrays, **changes})


def first(samples: Samples, n: int) -> Samples:
    """Return the first n samples of a batch of contiguous ids, and the cost up to the n-th; all if it has fewer."""
    if len(samples) < n:
        return samples
    start = samples.next_id - samples.proposed
    row = samples.rule.budget if isinstance(samples.rule, Choice) else 1
    used = -(-(int(samples.ids[n - 1]) - start + 1) // row) * row  # of a hard cap whole rows
    return pick(samples, np.arange(n), proposed=used, calls=Calls(used, used), next_id=start + used)


def _form(x: Batch) -> str:
    """Return what must agree for samples to be joined, as text."""
    keys = list(x) if isinstance(x, dict) else range(len(leaves(x)))
    return ", ".join(f"{k}: {_library(v)} {tuple(v.shape[1:])}" for k, v in zip(keys, leaves(x), strict=True))


def _library(leaf: Any) -> str:
    return "torch" if is_torch_array(leaf) else "jax.numpy" if is_jax_array(leaf) else "numpy"


def _plain(leaf: Any) -> Numbers:
    """Return the values in NumPy memory; bfloat16 becomes float32, which holds it."""
    values: Any = host_view(as_floats(leaf, "x") if "bfloat16" in str(leaf.dtype) else leaf)
    if values.dtype.kind == "O":
        raise InputError("arrays of Python objects cannot be saved; give a batch of numbers or text")
    return np.asarray(values)


def _restore(values: Numbers, library: str) -> Any:
    """Return an array of the library that it was saved from; of NumPy, if that is not installed."""
    try:
        return import_module(library).asarray(values)
    except ImportError:
        return values
