"""A diffusers pipeline as `propose(ids)`: the noise of an image belongs to its id, not to its batch."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._checks import check_count
from ..draws import Purpose, words
from ..errors import InputError, InputTypeError, MissingLibraryError
from ..metrics.images import read_images
from ..sampling.proposals import Batch, concatenate, warn_of_train_mode

__all__ = ["PipelineProposal", "from_pipeline", "generator_seeds"]

Numbers = np.ndarray[Any, Any]

_LOW = 2**32 - 1
_OURS = ("generator", "output_type", "return_dict", "batch_size", "num_images_per_prompt")  # set here, by nobody else


@dataclass(frozen=True, eq=False)
class PipelineProposal:
    """What `from_pipeline` returns; call it with ids. The fields are its arguments.

    Args:
        pipe, arguments, conditions, argument, batch_size, seed: As in `from_pipeline`.
    """

    pipe: Callable[..., Any]
    arguments: Mapping[str, Any]
    conditions: Sequence[Any] | None
    argument: str
    batch_size: int
    seed: int

    def __call__(self, ids: Any) -> Batch:
        """Return the images with these ids, or with conditions `(images, numbers of the conditions)`."""
        ids = np.asarray(ids)
        starts = range(0, max(len(ids), 1), self.batch_size)
        return concatenate([self._batch(ids[start : start + self.batch_size]) for start in starts])

    def _batch(self, ids: Any) -> Batch:
        import torch

        seeds = generator_seeds(ids, self.seed)
        # generators of the CPU, which diffusers takes for any device: the noise is the same on all of them
        given = {**self.arguments, "generator": [torch.Generator().manual_seed(int(seed)) for seed in seeds]}
        if self.conditions is None:
            given["batch_size"] = len(ids)
        else:
            number = np.mod(ids, len(self.conditions))
            given[self.argument] = [self.conditions[i] for i in number]
        with torch.no_grad():
            found = getattr(self.pipe(output_type="np", **given), "images", None)
        if not isinstance(found, np.ndarray) or len(found) != len(ids):
            got = f"{len(found)} of them" if isinstance(found, np.ndarray) else type(found).__name__
            raise InputError(f"the pipeline must return an array of {len(ids)} images, got {got}")
        images = read_images(found, pixels=(0, 1), name="the images of the pipeline")
        device = getattr(self.pipe, "device", "cpu")
        x = torch.from_numpy(images.floats(0, images.n)).to(device)
        return x if self.conditions is None else (x, torch.from_numpy(number.astype(np.int64)).to(device))


def from_pipeline(
    pipe: Callable[..., Any],
    *,
    arguments: Mapping[str, Any] | None = None,
    conditions: Sequence[Any] | None = None,
    argument: str = "prompt",
    batch_size: int = 16,
    seed: int = 0,
) -> PipelineProposal:
    """Turn a diffusers pipeline into the `propose(ids)` that samplers take.

    Each id gets a random generator of its own, so an image does not depend on the others of its batch. The noise is
    the same bit for bit; what a network makes of it may differ in the last bits between batch sizes.

    Args:
        pipe: The pipeline, on its device. It must take a list of generators, as those of diffusers do.
        arguments: What else it is called with, the same for all images, such as `{"num_inference_steps": 20}`.
        conditions: Prompts or classes; the image with id i is of condition i modulo their number. None for a pipeline
            without any.
        argument: What the pipeline calls them: "prompt", or "class_labels".
        batch_size: Images that it makes at a time.
        seed: Integer with `0 <= seed < 2**64`.

    Returns:
        A callable on ids. It returns a float32 tensor in [-1, 1] of shape `(n, channels, height, width)` on the device
        of the pipeline; with conditions a tuple of that and the number of each image's condition, for `groups=`.

    Example:
        >>> from types import SimpleNamespace
        >>> import torch
        >>> def pipe(batch_size, generator, output_type):  # stands for one of diffusers
        ...     return SimpleNamespace(images=np.stack([torch.rand(4, 4, 1, generator=g).numpy() for g in generator]))
        >>> propose = from_pipeline(pipe)
        >>> propose(range(3)).shape, bool((propose(range(3))[2:] == propose([2])).all())
        (torch.Size([3, 1, 4, 4]), True)
    """
    if not callable(pipe):
        raise InputTypeError(f"pipe must be a diffusers pipeline, got {type(pipe).__name__}")
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingLibraryError("pipelines need torch: pip install 'obrs[torch]'") from error
    arguments = dict(arguments or {})
    if conditions is not None and (isinstance(conditions, str) or not len(conditions)):
        raise InputError(f"conditions must be a list of at least one prompt or class, got {conditions!r:.60}")
    needed = "batch_size" if conditions is None else argument
    for name in arguments:
        if name in {*_OURS, needed}:
            raise InputError(f"arguments must not have {name!r}: from_pipeline says it to the pipeline")
    known = inspect.signature(pipe).parameters
    for name in ("generator", needed, *arguments):
        if name not in known and not any(p.kind is p.VAR_KEYWORD for p in known.values()):
            hint = "; give it conditions=[...]" if name == "batch_size" else f"; it takes {', '.join(known)}"
            raise InputError(f"{type(pipe).__name__} takes no {name!r}{hint}")
    warn_of_train_mode(*getattr(pipe, "components", {}).values())
    generator_seeds([], seed)  # refuses a wrong seed now
    size = check_count(batch_size, "batch_size")
    return PipelineProposal(pipe, arguments, conditions, argument, size, seed)


def generator_seeds(ids: Any, seed: int) -> Numbers:
    """Return a seed below 2**32 for the random generator of each id.

    Torch's generator on the CPU uses 32 bits of its seed. If they were drawn at random, about one pair of 100 000
    images would be equal. So a one-to-one map takes the low half of an id to its seed; the high half chooses the map.

    Args:
        ids: Integers, shape `(n,)`.
        seed: Integer with `0 <= seed < 2**64`.

    Example:
        >>> len(set(generator_seeds(range(100_000), 0).tolist()))
        100000

    References:
        | The steps between the keys are the 32-bit finaliser of MurmurHash3 (Appleby, 2011)
    """
    ids = np.asarray(ids) if len(ids) else np.empty(0, np.int64)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InputTypeError(f"ids must be integers of shape (n,), got {ids.dtype} of {ids.shape}")
    bits: Numbers = ids.astype(np.int64).view(np.uint64)
    key = words((bits >> 32).view(np.int64), range(1), seed=seed, purpose=Purpose.GENERATOR)[:, 0]
    x: Numbers = (bits ^ key) & _LOW
    for by, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> by)) * factor & _LOW  # below 2**64 before the cut
    return np.asarray(x ^ (x >> 16) ^ (key >> 32))
