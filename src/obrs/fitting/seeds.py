"""Random numbers by key: what is drawn depends on a seed and on what it is for, not on what was drawn before."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

__all__ = ["derived", "keyed", "own_noise"]


def derived(seed: int, *key: str | int) -> int:
    """Return a seed below 2**63 that is a function of a seed and a key.

    Example:
        >>> derived(0, "mix", 5) == derived(0, "mix", 5), derived(0, "mix", 5) == derived(0, "mix", 6)
        (True, False)
    """
    return int.from_bytes(blake2b(repr((seed, *key)).encode(), digest_size=8).digest(), "little") >> 1


def keyed(seed: int, *key: str | int) -> Any:
    """Return a `torch.Generator` whose state is a function of a seed and a key.

    Example:
        >>> import torch
        >>> torch.rand(1, generator=keyed(0, "mix", 5)) == torch.rand(1, generator=keyed(0, "mix", 5))
        tensor([True])
    """
    import torch

    return torch.Generator().manual_seed(derived(seed, *key))


@contextmanager
def own_noise(device: Any = "cpu") -> Iterator[Callable[[int], None]]:
    """Give a function that seeds torch's own generators, which initial weights and dropout come from.

    After the block these generators are as they were before it.

    Args:
        device: Where random numbers are drawn besides the CPU.

    Example:
        >>> import torch
        >>> before = torch.get_rng_state()
        >>> with own_noise() as reseed:
        ...     reseed(7)
        ...     x = torch.rand(3)
        >>> torch.equal(torch.get_rng_state(), before)
        True
    """
    import torch

    device = torch.device(device)
    on_cuda = device.type == "cuda"
    index = (torch.cuda.current_device() if device.index is None else device.index) if on_cuda else 0
    generators = [torch.default_generator, *([torch.cuda.default_generators[index]] if on_cuda else [])]

    def reseed(seed: int) -> None:
        for generator in generators:
            generator.manual_seed(seed)

    with torch.random.fork_rng(devices=[index] if on_cuda else []):
        yield reseed
