"""Refit: a log-ratio for any generator, from real samples and its own.

`refit` fits, `FittedRatio` is the result, `FitReport` says how well it did, `load_ratio` reads the result from a file.
`METHODS` lists the ways to fit.
"""

import os
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from math import log, nan
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj, is_torch_array

from .._arrays import host_view, like
from .._text import lookup
from ..errors import InputError, InputTypeError, MissingLibraryError
from ..estimate import Estimate
from ..fitting.tensors import first_difference, read_tensors, write_tensors
from ..metrics.rows import row_hashes
from ..profile import removable_kl
from ..sampling.proposals import warn_of_train_mode
from ..types import Array
from .evidence import losses, mean_of_means
from .features import Features, classifier_features, critic_features, read_features
from .labelled import ARRAY, Form, Labelled, check_labels, label_tensor, parts
from .methods import (
    FineTune,
    Head,
    Network,
    Scorer,
    blocks,
    head_scores,
    network_scores,
)
from .task import FILE, Tensor, prepare, to_tensor

__all__ = ["KINDS", "METHODS", "FitReport", "FittedRatio", "refit"]
__all__ += ["FineTune", "Head", "Network"]
__all__ += ["classifier_features", "critic_features", "load_ratio"]

METHODS: dict[str, type] = {
    "head": Head,
    "fine_tune": FineTune,
    "network": Network,
}
"""Ways to fit a ratio, by name."""

KINDS: dict[str, Callable[[Scorer, Any, Any], Tensor]] = {
    "network": network_scores,
    "head": head_scores,
}
"""How the scores of a fitted ratio are computed, by the name in its file."""

_VERSION = 1
_SATURATED = 0.02  # nats of held-out log-loss; between unit Gaussians that is a KL of about 11
_HARDLY = 0.1  # nats of held-out log-loss; a KL of about 7
_SATURATION = (
    "the classifier separates the two sets (held-out log-loss {loss:.1g}): where they do not meet, its log-ratio is a "
    "guess, and so are averages of it such as a KL divergence; use features=... in which they meet"
)
_HARDLY_MEET = (
    "the two sets hardly overlap in what the ratio sees (held-out log-loss {loss:.2f}): most of its log-ratio is a "
    "guess; use features=... in which they meet"
)
_USUAL = (2.0, 4.0, 8.0)  # budgets that a report speaks of


def refit(
    real: Any,
    propose: Any,
    method: Any = None,
    *,
    features: Any = None,
    steps: int = 3000,
    batch_size: int = 512,
    held_out: float = 0.1,
    seed: int = 0,
    progress: bool | None = None,
    checkpoint: Any = None,
) -> "FittedRatio":
    """Fit log p/q with a classifier that tells real samples from the model's.

    Every step gets new fakes. A share of the real samples and as many fakes are held out: they decide when to stop and
    which weights are kept. The seed decides all random numbers of torch, also inside `propose`; after the fit, torch's
    global generator is as it was before. The ids of the proposals start at 2**40, so that samples which you draw later
    were not seen in the fit.

    Samples may have labels. Then `real` is a tuple (x, label) or a dict of the two, what `propose` returns has the same
    form, and so has what the fitted ratio takes. It is the ratio of both together, p(x, y) / q(x, y), which is
    p(x | y) / q(x | y) if the model makes labels as often as they are in `real`. Labels are integers `(n,)`, or floats
    `(n,)` or `(n, k)`. In a dict the sample is called x, image or sample, or the other one label, y, class or
    condition; where no key says it, the sample is the one with floats.

    Args:
        real: Samples `(n, ...)` of the target, an array of NumPy, torch or JAX; with labels a tuple or dict of two.
        propose: Maps ids to samples of the model, `obrs.proposal(fn)` for a `fn(n)`; or an array of fakes.
        method: A record such as `FineTune(critic)`, or a name in `METHODS`; None for `Network()`.
        features: What the ratio shall be a function of: a callable from a tensor of samples to features `(n, k)`, a
            torch module, `critic_features(critic)`, or a name in `obrs.metrics.features.FEATURES`; None for the
            samples themselves. They are computed once for each sample, without a gradient. For images use some:
            what they see is what a budget is spent on.
        steps, batch_size: Updates, and samples of each kind in one.
        held_out: Share of the samples that is held out, between 0 and 1.
        seed: Decides initial weights and batches.
        progress: Show a bar; None on a terminal only.
        checkpoint: A file. If the fit is killed, the same call goes on from this file; a finished fit is read from it.

    Returns:
        A callable log-ratio with a `report`. If the classifier separates the two sets, there is a warning.

    Example:
        >>> import numpy as np, obrs
        >>> real = np.random.default_rng(0).normal(1.0, 1.0, (2000, 1))
        >>> fitted = refit(real, lambda ids: obrs.normals(ids, 1, seed=1), Network(width=32), steps=200)
        >>> kept = obrs.sample(lambda ids: obrs.normals(ids, 1, seed=1), fitted, 1000, budget=4)
        >>> bool(0.7 < kept.x.mean() < 1.2)
        True
    """
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingLibraryError("refit needs torch: pip install 'obrs[torch]'") from error
    chosen = _method(method)
    warn_of_train_mode(propose)
    task = prepare(
        real,
        propose,
        features=features,
        steps=steps,
        batch_size=batch_size,
        held_out=held_out,
        seed=seed,
        progress=progress,
        checkpoint=checkpoint,
    )
    task = replace(task, identity=task.identity | {"method": _description(chosen)})
    scorer, course, fakes = chosen.fit(task)
    held_out_scores = [blocks(scorer, x).double().cpu().numpy() for x in (task.held_real, task.held_fake)]
    loss = mean_of_means(*losses(*held_out_scores))
    trouble = _trouble(loss)
    report = FitReport(
        method=type(chosen).__name__,
        log_loss=loss.value,
        standard_error=loss.standard_error,
        steps=course.steps,
        seconds=course.seconds,
        stopped=course.stopped,
        n_real=task.real.size,
        n_fake=fakes,
        history=course.history,
        trouble=trouble,
        nats=float(held_out_scores[0].mean()),
    )
    if trouble:
        warnings.warn(trouble, stacklevel=2)
    seen = row_hashes(task.form.split(real)[0])
    shape = tuple(parts(task.probe)[0].shape[1:])
    return FittedRatio(scorer, shape, report, task.probe, task.form, seen, task.features)


def _description(method: Any) -> str:
    """Return the name and constants of a method, and the classes of its networks, for the checkpoint."""
    if not is_dataclass(method) or isinstance(method, type):
        return repr(method) if isinstance(method, int | float | str | None) else type(method).__name__
    values = (f"{f.name}={_description(getattr(method, f.name))}" for f in fields(method))
    return f"{type(method).__name__}({', '.join(values)})"


def _method(method: Any) -> Any:
    """Check a method, and return it; a name becomes the method of that name."""
    if method is None:
        return Network()
    if isinstance(method, str):
        kind = lookup(METHODS, method, "method")
        try:
            return kind()
        except TypeError as error:
            raise InputError(f"method {method!r} needs arguments; pass {kind.__name__}(...) itself") from error
    if isinstance(method, type) or not callable(getattr(method, "fit", None)):
        got = f"the class {method.__name__}" if isinstance(method, type) else type(method).__name__
        raise InputTypeError(f"method must be one such as Network() or FineTune(critic), got {got}")
    return method


@dataclass(frozen=True)
class FitReport:
    """How well a ratio was fitted.

    Args:
        method: Name of the method.
        log_loss: On held-out samples; log 2 = 0.693 is chance.
        standard_error: Of that loss.
        steps, seconds, stopped: Number of updates, wall time, and why it ended.
        n_real, n_fake: Samples it was fitted on.
        history: Pairs of a step and the held-out loss after it.
        trouble: Why the ratio should not be trusted, in one line; None if there is no reason.
        nats: KL divergence of the model from the data in what the ratio sees, as it says itself: the mean of log r
            over held-out real samples. NaN if it is not known.

    Example:
        >>> report = FitReport("Network", 0.5, 0.01, 100, 2.0, "all steps done", 900, 51200, ((100, 0.5),))
        >>> print(report)
        Network: held-out log-loss 0.500 ± 0.010 (chance 0.693), 100 steps in 2 s, all steps done
        >>> replace(report, nats=17.0).room(2.6)
        'K = 2.6 removes at most 0.96 of an estimated 17 nats: choose what it is spent on'
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
    trouble: str | None = None
    nats: float = nan

    def room(self, *budgets: float) -> str:
        """Say in a line how much of the KL divergence these budgets remove at most; "" if it is not above 0."""
        return removable_kl(self.nats, budgets)

    def __str__(self) -> str:
        loss = f"held-out log-loss {self.log_loss:.3f} ± {self.standard_error:.3f} (chance {log(2):.3f})"
        line = f"{self.method}: {loss}, {self.steps} steps in {self.seconds:.0f} s, {self.stopped}"
        return "\n".join(filter(None, [line, self.room(*_USUAL), self.trouble]))


def _trouble(log_loss: Estimate) -> str | None:
    """Return in one line why a fit with this held-out loss should not be trusted, or None."""
    loss = log_loss.value
    if loss < _HARDLY:
        return (_SATURATION if loss < _SATURATED else _HARDLY_MEET).format(loss=loss)
    if loss > log(2) + 3 * log_loss.standard_error:
        return f"held-out log-loss {loss:.3f} is worse than chance, {log(2):.3f}; more steps, or more real samples"
    return None


@dataclass(frozen=True, eq=False, repr=False)
class FittedRatio:
    """log p(x) - log q(x), as fitted by `refit`.

    Call it with samples `(n, ...)` of NumPy, torch or JAX. The result `(n,)` has the library and device of the samples.
    It is float64 if they are, otherwise float32. Torch samples that require a gradient get one. If it was
    fitted on samples with labels, call it with a tuple or dict as `real` was.

    Args:
        scorer: The fitted tensors, and the function that computes scores with them.
        shape: Shape of one sample.
        report: How well it was fitted.
        probe: A few samples. They are saved with their scores, so that a file read with the wrong network is noticed.
        form: How a batch holds samples and labels.
        seen: `obrs.metrics.rows.row_hashes` of the real samples of the fit; `obrs.evaluate` warns if it meets one.
        features: What it is a function of; None for the samples themselves.

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
    form: Form = ARRAY
    seen: Any = None
    features: Features | None = None

    def __repr__(self) -> str:
        return f"FittedRatio({self.report})"

    def __call__(self, batch: Any) -> Array:
        x, label = self._read(batch)
        if is_torch_array(x) and x.device != self.probe.device:
            raise InputError(f"samples are on {x.device} and this ratio on {self.probe.device}; use ratio.to(device)")
        differentiable = is_torch_array(x) and x.requires_grad
        like_probe = parts(self.probe)[0]
        samples = x.to(like_probe.dtype) if differentiable else to_tensor(x, self.probe.device)
        if label is not None:
            samples = Labelled(samples, label_tensor(label, self.probe.device))
        score = self._scores(samples) if len(x) else like_probe.new_zeros(0)
        wide = "float64" in str(x.dtype)
        if is_torch_array(x):
            return score.double() if wide else score
        return like(host_view(score), x, dtype=x.dtype if wide else np.float32)

    def _scores(self, batch: Any) -> Tensor:
        return blocks(self.scorer, batch if self.features is None else self.features(batch))

    def _read(self, batch: Any) -> tuple[Array, Array | None]:
        """Check a batch, and return its samples and labels."""
        if self.form.label is None and not is_array_api_obj(batch) and self.form.kind == "array":
            raise InputTypeError(f"a fitted ratio takes an array of samples, got {type(batch).__name__}")
        x, label = self.form.read(batch, "the batch", "what this ratio was fitted on")
        if tuple(x.shape[1:]) != self.shape or not x.ndim:
            raise InputError(f"this ratio is of samples of shape {self.shape}, got an array of {tuple(x.shape)}")
        if label is not None:
            check_labels(label, len(x), "the batch")
            self.form.check_kind(label, "the batch", tuple(self.probe.label.shape[1:]))
            self.form.check_known(label, "the batch")
        return x, label

    def to(self, device: Any) -> "FittedRatio":
        """Return the ratio on another device of torch; features that are functions must be on it already."""
        features = None if self.features is None else self.features.to(device)
        return replace(self, scorer=self.scorer.to(device), probe=self.probe.to(device), features=features)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file that `load_ratio` reads; a failure leaves no half-written file."""
        x, label = parts(self.probe)
        tensors = {"probe": x, "expected": self._scores(self.probe)}
        if self.seen is not None:
            import torch

            tensors["seen"] = torch.from_numpy(self.seen.view(np.int64))
        scorer = _describe(self.scorer, "ratio", tensors)
        facts = {"version": _VERSION, "scorer": scorer, "shape": list(self.shape), "report": asdict(self.report)}
        if self.features is not None:
            facts["features"] = self.features.describe(tensors)
        if label is not None:
            tensors["label"] = label
        if self.form.kind != "array":
            known = None if self.form.known is None else self.form.known.tolist()
            facts["form"] = {"kind": self.form.kind, "x": self.form.x, "label": self.form.label, "known": known}
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
        network: Needed if the network is not one of `obrs.models`: a network of the same form, with any weights.
        features: Needed if the ratio, or a head, was fitted on features of your own: those features. Features with a
            name, and networks of `obrs.models` that `refit` was given as features, are in the file.

    Example:
        >>> import tempfile
        >>> from obrs.ratios.refit import Network, refit
        >>> rng = np.random.default_rng(0)
        >>> real, fake = rng.normal(1.0, 1.0, (1000, 1)), rng.normal(0.0, 1.0, (1000, 1))
        >>> fitted = refit(real, fake, Network(width=8), steps=5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fitted.save(f"{folder}/ratio.safetensors")
        ...     again = load_ratio(f"{folder}/ratio.safetensors")
        >>> bool((again(fake) == fitted(fake)).all())
        True
    """
    tensors, facts = read_tensors(path, FILE)
    if facts.get("version") != _VERSION:
        raise InputError(f"{path} has version {facts.get('version')} of the format, this library reads {_VERSION}")
    see = read_features(facts.get("features"), tensors, features, path)
    scorer = _rebuild(facts["scorer"], "ratio", tensors, network, None if see else features)
    probe, expected = tensors["probe"], tensors["expected"]
    if "label" in tensors:
        probe = Labelled(probe, tensors["label"])
    gap = float((blocks(scorer, see(probe) if see else probe) - expected).abs().max())
    if not gap <= 1e-3 * (1 + float(expected.abs().max())):
        raise InputError(f"the network or features given are not those of {path}: scores differ by up to {gap:.2g}")
    report = facts["report"]
    history = tuple((int(step), float(loss)) for step, loss in report["history"])
    known = {field.name for field in fields(FitReport)}  # files of 0.2 say more
    report = FitReport(**{name: value for name, value in report.items() if name in known} | {"history": history})
    seen = tensors["seen"].numpy().view(np.uint64) if "seen" in tensors else None
    return FittedRatio(scorer, tuple(facts["shape"]), report, probe, _form(facts.get("form")), seen, see)


def _form(facts: dict[str, Any] | None) -> Form:
    """Return the form that a file describes; a file without is of samples without labels."""
    if facts is None:
        return ARRAY
    known = facts["known"]
    return Form(**facts | {"known": None if known is None else np.asarray(known, dtype=np.int64)})


def _describe(scorer: Scorer, prefix: str, tensors: dict[str, Any]) -> dict[str, Any]:
    """Add the tensors of a scorer to the dict, their names with a prefix, and return the rest as plain data."""
    kind = next((name for name, score in KINDS.items() if score is scorer.score), None)
    if kind is None:
        raise InputError(f"only ratios fitted by {', '.join(METHODS)} can be saved, not one of your own")
    tensors |= {f"{prefix}.{name}": tensor for name, tensor in scorer.module.state_dict().items()}
    specs = {name: getattr(part, "spec", None) for name, part in scorer.module.items()}
    classes = {name: type(part).__name__ for name, part in scorer.module.items()}
    return {"kind": kind, "networks": specs, "classes": classes, "own_features": scorer.features is not None}


def _rebuild(facts: dict[str, Any], prefix: str, tensors: dict[str, Any], network: Any, features: Any) -> Scorer:
    """Return the scorer that `_describe` described."""
    import torch

    score = lookup(KINDS, facts["kind"], "kind of ratio")
    if facts["kind"] == "head" and features is None and facts.get("own_features", True):
        raise InputError("this ratio is a head on features of your own; pass load_ratio(path, features=...)")
    module = torch.nn.ModuleDict()
    for name, spec in facts["networks"].items():
        module[name] = _network(spec, facts["classes"][name], network)
    own = {name.removeprefix(f"{prefix}."): x for name, x in tensors.items() if name.startswith(f"{prefix}.")}
    for name, tensor in own.items():
        if "." not in name:  # those with a dot belong to networks
            module.register_buffer(name, tensor)
    if differs := first_difference(module, own):
        raise InputError(f"the network given is not built like the one in the file: {differs}")
    module.load_state_dict(own)
    module.eval().requires_grad_(False)
    return Scorer(score, module, features)


def _network(spec: dict[str, Any] | None, kind: str, network: Any) -> Any:
    """Build a network from its spec, or copy the one that the user gave."""
    if spec is not None:
        from ..models.registry import build

        return build(spec)
    if network is None:
        raise InputError(f"this ratio has a network of your own, {kind}; pass load_ratio(path, network={kind}(...))")
    return deepcopy(network)
