"""A diffusers pipeline as `propose(ids)`: the noise of an image belongs to its id, not to its batch."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .._checks import check_callable, check_count, check_seed
from ..draws import Purpose, words
from ..errors import InputError, InputTypeError
from ..metrics.images import read_images
from ..sampling.proposals import Batch, concatenate, warn_of_train_mode

__all__ = ["from_pipeline", "generator_seeds"]

Numbers = np.ndarray[Any, Any]

_LOW = 2**32 - 1
_SET_HERE = {"generator", "output_type", "return_dict", "batch_size", "num_images_per_prompt"}


def from_pipeline(
    pipe: Callable[..., Any],
    *,
    arguments: Mapping[str, Any] | None = None,
    conditions: Sequence[Any] | None = None,
    argument: str = "prompt",
    batch_size: int = 16,
    seed: int = 0,
) -> Callable[[Any], Batch]:
    """Turn a diffusers pipeline into the `propose(ids)` that samplers take.

    Each id gets a random generator of its own, so an image does not depend on the others of its batch, but for the last
    bits of what a network computes.

    Args:
        pipe: The pipeline, on its device. It must take a list of generators, as those of diffusers do.
        arguments: What else it is called with, the same for all images, such as `{"num_inference_steps": 20}`.
        conditions: Prompts or classes, if it takes any; the image with id i is of condition i modulo their number.
        argument: What the pipeline calls them: "prompt", or "class_labels".
        batch_size, seed: Images that it makes at a time; an integer with `0 <= seed < 2**64`.

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
    check_callable(pipe, "pipe", "a pipeline of diffusers or alike")
    if conditions is not None and (isinstance(conditions, str) or not len(conditions)):
        raise InputError(f"conditions must be a list of at least one prompt or class, got {conditions!r:.60}")
    options, needed = dict(arguments or {}), "batch_size" if conditions is None else argument
    for name in options.keys() & {*_SET_HERE, needed}:
        raise InputError(f"arguments must not have {name!r}, which from_pipeline sets")
    if conditions is None and "batch_size" not in inspect.signature(pipe).parameters:
        raise InputError(f"{type(pipe).__name__} takes no 'batch_size'; give it conditions=[...]")
    warn_of_train_mode(*getattr(pipe, "components", {}).values())
    size, seed = check_count(batch_size, "batch_size"), check_seed(seed)

    def propose(ids: Any) -> Batch:
        ids = np.asarray(ids)
        return concatenate([make(ids[start : start + size]) for start in range(0, max(len(ids), 1), size)])

    def make(ids: Numbers) -> Batch:
        import torch

        # generators of the CPU, which diffusers takes for any device: the noise is the same on all of them
        given = {"generator": [torch.Generator().manual_seed(int(s)) for s in generator_seeds(ids, seed)], **options}
        number = np.mod(ids, len(conditions or [0]))
        if conditions is None:
            given["batch_size"] = len(ids)
        else:
            given[argument] = [conditions[i] for i in number]
        with torch.no_grad():
            output = getattr(pipe(output_type="np", **given), "images", None)
        if not isinstance(output, np.ndarray) or len(output) != len(ids):
            raise InputError(f"the pipeline must return an array of {len(ids)} images, got {type(output).__name__}")
        images = read_images(output, pixels=(0, 1), name="the images of the pipeline")
        device = getattr(pipe, "device", "cpu")
        x = torch.from_numpy(images.floats(0, images.n)).to(device)
        return x if conditions is None else (x, torch.from_numpy(number.astype(np.int64)).to(device))

    return propose


def generator_seeds(ids: Any, seed: int) -> Numbers:
    """Return a seed below 2**32 for the random generator of each id.

    Torch's generator on the CPU uses 32 bits of its seed; drawn at random, one pair of 100 000 images would be equal.
    So a one-to-one map, the finaliser of MurmurHash3 (Appleby, 2011) between two keys, takes the low half of an id to
    its seed; the high half chooses the keys.
    """
    ids = np.asarray(ids)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InputTypeError(f"ids must be integers of shape (n,), got {ids.dtype} of {ids.shape}")
    bits: Numbers = ids.astype(np.int64).view(np.uint64)
    key = words((bits >> 32).view(np.int64), range(1), seed=seed, purpose=Purpose.GENERATOR)[:, 0]
    x: Numbers = (bits ^ key) & _LOW
    for by, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> by)) * factor & _LOW  # below 2**64 before the cut
    return np.asarray(x ^ (x >> 16) ^ (key >> 32))
