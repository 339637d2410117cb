"""The two sets a ratio is fitted on: real samples and the model's, batch by batch, each decided by seed and step."""

import hashlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from math import ceil, prod
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_torch_array

from .._arrays import host_view
from .._inputs import check_count, is_number
from ..errors import InputError, InputTypeError
from ..sampling.proposals import propose_batch, take

__all__ = ["Task", "check_folder", "check_numbers", "fingerprint", "prepare", "to_tensor"]

_FIRST_ID = 2**40  # proposals that nobody will sample later: the fitted ratio has seen none of those
_FEWEST = 50  # held-out samples of each kind
_BLOCK = 8192

Tensor = Any


class _Shuffled:
    """Rows of an array, all of them in a new order again and again."""

    def __init__(self, x: Any, rows: "np.ndarray[Any, Any]", seed: int, device: Any) -> None:
        self.x, self.rows, self.seed, self.device = x, rows, seed, device
        self.size: int | None = len(rows)
        self._order: tuple[int, Any] = (-1, None)

    def batch(self, step: int, n: int) -> Tensor:
        at, picked = step * n, []
        while n:
            epoch, start = divmod(at, len(self.rows))
            if self._order[0] != epoch:
                order = np.random.default_rng((self.seed, epoch)).permutation(len(self.rows))
                self._order = (epoch, self.rows[order])
            picked.append(self._order[1][start : start + n])
            at, n = at + len(picked[-1]), n - len(picked[-1])
        return to_tensor(take(self.x, np.concatenate(picked)), self.device)


class _Fresh:
    """Proposals with ids that were not asked for before, never more than `most` of them in one call."""

    size = None

    def __init__(
        self, propose: Callable[[Any], Any], first_id: int, shape: tuple[int, ...], device: Any, *, most: int
    ) -> None:
        self.propose, self.first_id, self.shape, self.device, self.most = propose, first_id, shape, device, most

    def batch(self, step: int, n: int) -> Tensor:
        import torch

        parts, start = [], self.first_id + step * n
        for at in range(start, start + n, self.most):
            fake = propose_batch(self.propose, np.arange(at, min(at + self.most, start + n)))
            _check_sample(fake, self.shape)
            parts.append(to_tensor(fake, self.device))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


@dataclass(frozen=True)
class Task:
    """All that a method is told: two sets by step, what is held out, and how long to try.

    Args:
        real, fake: Objects whose `batch(step, n)` is a tensor of n samples; `size` is None where there is no end.
        held_real, held_fake: Samples of which no method sees a gradient.
        steps, batch_size: Updates, and samples of each kind in one.
        seed: Decides initial weights, batches and everything torch draws.
        progress: Show a bar.
        checkpoint: A file to go on from.
        identity: Plain data that tells this task from another.
    """

    real: Any
    fake: Any
    held_real: Tensor
    held_fake: Tensor
    steps: int
    batch_size: int
    seed: int
    progress: bool | None
    checkpoint: Path | None
    identity: dict[str, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.held_real.shape[1:])

    @property
    def device(self) -> Any:
        """Where the proposals live, and so the network."""
        return self.held_fake.device

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the real samples and the fakes of this step."""
        return self.real.batch(step, self.batch_size), self.fake.batch(step, self.batch_size)

    def pool(self, n: int) -> tuple[Tensor, Tensor]:
        """Return about n of each kind from the start of training, for means and variances."""
        import torch

        parts = []
        with self.seeded() as reseed:
            for step in range(ceil(n / self.batch_size)):
                reseed(step)
                parts.append(self.batch(step))
        real, fake = zip(*parts, strict=True)
        return torch.cat(real), torch.cat(fake)

    def member(self, number: int) -> "Task":
        """Return the same task for one of an ensemble: other weights and batches, the same held-out samples."""
        seed = self.seed + 7919 * (number + 1)
        real = _Shuffled(self.real.x, self.real.rows, seed, self.real.device)
        if isinstance(self.fake, _Shuffled):
            fake: Any = _Shuffled(self.fake.x, self.fake.rows, seed + 1, self.fake.device)
        else:
            first_id = self.fake.first_id + (number + 1) * 2**36
            fake = _Fresh(self.fake.propose, first_id, self.fake.shape, self.fake.device, most=self.fake.most)
        checkpoint = self.checkpoint and self.checkpoint.with_name(f"{self.checkpoint.name}.{number}")
        return replace(self, real=real, fake=fake, seed=seed, checkpoint=checkpoint)

    def seeded(self) -> AbstractContextManager[Callable[[int], None]]:
        """Let the seed and the step decide what torch draws inside; outside nothing changes."""
        return _seeded(self.seed, self.device)


@contextmanager
def _seeded(seed: int, device: Any) -> Iterator[Callable[[int], None]]:
    import torch

    on_cuda = device.type == "cuda"
    index = (torch.cuda.current_device() if device.index is None else device.index) if on_cuda else 0
    generators = [torch.default_generator, *([torch.cuda.default_generators[index]] if on_cuda else [])]

    def reseed(step: int) -> None:
        number = int(np.random.SeedSequence((seed, step + 1)).generate_state(1, np.uint64)[0])
        for generator in generators:
            generator.manual_seed(number)

    with torch.random.fork_rng(devices=[index] if on_cuda else []):
        reseed(-1)
        yield reseed


def prepare(
    real: Any,
    propose: Any,
    *,
    steps: int,
    batch_size: int,
    held_out: float,
    seed: int,
    progress: bool | None,
    checkpoint: Any,
) -> Task:
    """Check what the user gave, and split it."""
    steps, batch_size = check_count(steps, "steps"), check_count(batch_size, "batch_size")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed must be a whole number of at least 0, got {seed!r}")
    if not is_number(held_out) or not 0 < held_out < 1:
        raise InputError(f"held_out must be a share between 0 and 1, got {held_out!r}")
    if checkpoint is not None:
        check_folder(Path(checkpoint))
    _check_set(real, "real")
    shape = tuple(real.shape[1:])
    kept, held = _split(len(real), held_out, seed, "real")
    if is_array_api_obj(propose):
        _check_set(propose, "propose")
        sample: Any = propose
    elif callable(propose):
        sample = _first_proposals(propose)
    else:
        raise InputTypeError(f"propose must be a callable of ids or an array of samples, got {type(propose).__name__}")
    _check_sample(sample, shape)
    device = _common_device(real, sample)
    if _is_float(real) != _is_float(sample):
        raise InputTypeError(
            f"real has dtype {real.dtype} and propose {sample.dtype}: this alone would tell them apart; "
            "bring real to the scale of the model's samples"
        )
    if sample is propose:
        kept_fake, held_rows = _split(len(propose), held_out, seed, "propose")
        fake: Any = _Shuffled(propose, kept_fake, int(seed) + 1, device)
        held_fake = to_tensor(take(propose, held_rows), device)
    else:
        fake = _Fresh(propose, _FIRST_ID, shape, device, most=batch_size)
        spare = _Fresh(propose, _FIRST_ID - len(held), shape, device, most=batch_size)
        with _seeded(int(seed), device):
            held_fake = spare.batch(0, len(held))
        check_numbers(held_fake, "propose")
    held_real = to_tensor(take(real, held), device)
    identity: dict[str, Any] = {
        "steps": steps,
        "batch_size": batch_size,
        "seed": int(seed),
        "held_out": float(held_out),
    }
    if checkpoint is not None:
        identity["real"] = [*real.shape, fingerprint(held_real)]
        identity["propose"] = None
        if sample is propose:
            identity["propose"] = [*propose.shape, fingerprint(held_fake)]
        elif _repeats(spare, held_fake, int(seed), batch_size):
            identity["propose"] = fingerprint(held_fake)
    return Task(
        _Shuffled(real, kept, int(seed), device),
        fake,
        held_real,
        held_fake,
        steps,
        batch_size,
        int(seed),
        progress,
        None if checkpoint is None else Path(checkpoint),
        identity,
    )


def fingerprint(*tensors: Tensor) -> str:
    """Return a short text that differs where shapes or numbers do.

    Example:
        >>> import torch
        >>> fingerprint(torch.zeros(3)) == fingerprint(torch.zeros(3)), fingerprint(torch.zeros(3, 1))[:8]
        (True, '86826f06')
    """
    digest = hashlib.sha256()
    for tensor in tensors:
        array = np.ascontiguousarray(tensor.detach().cpu().numpy())
        digest.update(f"{array.dtype} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()[:16]


def _first_proposals(propose: Callable[[Any], Any]) -> Any:
    """Return two samples, to see what they are like; torch's generator stays as it was."""
    import torch

    with torch.random.fork_rng(devices=[]):
        return propose_batch(propose, np.arange(_FIRST_ID, _FIRST_ID + 2))


def _repeats(fresh: _Fresh, before: Tensor, seed: int, n: int) -> bool:
    """Tell whether ids and seed decide what `propose` makes; warn if not, as a checkpoint then knows less."""
    n = min(n, len(before))
    with _seeded(seed, before.device):
        same = bool((fresh.batch(0, n) == before[:n]).all())
    if not same:
        warnings.warn(
            "propose makes other samples when it is asked for the same ids again: its checkpoint cannot notice "
            "another model, and a resumed fit differs a little; let ids or torch's generator decide them",
            stacklevel=4,
        )
    return same


def to_tensor(x: Any, device: Any) -> Tensor:
    """Return samples of any array library as a float32 tensor."""
    import torch

    if is_torch_array(x):
        return x.detach().to(device=device, dtype=torch.float32)
    return torch.tensor(host_view(x), dtype=torch.float32, device=device)


def check_folder(path: Path) -> None:
    """Raise if a file cannot be written for want of its folder."""
    if not path.parent.is_dir():
        raise InputError(f"the folder {path.parent} does not exist; make it first")


def check_numbers(x: Any, name: str) -> None:
    """Raise if a sample is not finite."""
    bad = size = 0
    for at in range(0, len(x), _BLOCK):
        block = x[at : at + _BLOCK]
        if not _is_float(block):
            return
        finite = array_namespace(block).isfinite(block)
        bad, size = bad + prod(finite.shape) - int(finite.sum()), size + prod(finite.shape)
    if bad:
        raise InputError(f"{name} has {bad} NaN or infinite among {size} values; drop those samples first")


def _check_set(x: Any, name: str) -> None:
    """Check an array of samples."""
    if not is_array_api_obj(x):
        raise InputTypeError(f"{name} must be an array of samples, got {type(x).__name__}")
    if x.ndim < 2:
        raise InputError(f"{name} must have shape (n, ...), got {tuple(x.shape)}; use {name}[:, None] for numbers")
    if 0 in x.shape:
        raise InputError(f"{name} is empty, shape {tuple(x.shape)}: a ratio needs samples of both kinds")
    if is_torch_array(x) and x.device.type == "meta":
        raise InputError(f"{name} is on device meta and has no values")
    check_numbers(x, name)


def _check_sample(x: Any, shape: tuple[int, ...]) -> None:
    if not is_array_api_obj(x):
        raise InputTypeError(f"propose must return one array to be compared with real, got {type(x).__name__}")
    if tuple(x.shape[1:]) != shape:
        raise InputError(f"real has samples of shape {shape} and propose of {tuple(x.shape[1:])}; make them alike")


def _is_float(x: Any) -> bool:
    xp = array_namespace(x)
    return bool(xp.isdtype(x.dtype, "real floating"))


def _split(n: int, share: float, seed: int, name: str) -> tuple[Any, Any]:
    """Return the rows to fit on and those to hold out."""
    held = round(n * share)
    if min(held, n - held) < _FEWEST:
        needed = ceil(_FEWEST / min(share, 1 - share))
        raise InputError(
            f"{name} has {n} samples, of which held_out={share:g} leaves {held} to stop by; "
            f"{_FEWEST} are needed: give at least {needed} samples or another held_out"
        )
    rows = np.random.default_rng((int(seed), 2**32)).permutation(n)
    return np.sort(rows[held:]), np.sort(rows[:held])


def _common_device(real: Any, sample: Any) -> Any:
    """Return where the fit takes place: where the proposals are. Real samples come from there or from the CPU."""
    import torch

    there, here = (x.device if is_torch_array(x) else torch.device("cpu") for x in (sample, real))
    if here != there and here.type != "cpu":
        raise InputError(f"real is on {here} and propose makes samples on {there}; move one of them to the other")
    if there.type == "meta":
        raise InputError("propose makes samples on device meta, which has no values")
    return there
