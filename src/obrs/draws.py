"""Uniforms and normals that are pure functions of (seed, purpose, id, column).

Nothing here has a state: the number of proposal 7 is the same whether it is drawn alone, in a batch, by
another worker or in another array library. Users need `accept`, `uniforms` and `normals`; the rest of this library
draws by column, each consumer with a `Purpose` of its own, so that no two share a stream under any seed. Ids must be
known: inside `jax.jit` and `jax.vmap`, draw with `jax.random`.

References:
    | Fast Splittable Pseudorandom Number Generators (Steele, Lea & Flood, 2014)
    | Parallel Random Numbers: As Easy as 1, 2, 3 (Salmon et al., 2011)
"""

import sys
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache
from math import pi, prod
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_torch_array

from . import _arrays
from ._checks import check_count, check_seed
from .errors import InputError, InputTypeError
from .types import Array

__all__ = ["accept", "normals", "priority_key", "uniforms"]


class Purpose(IntEnum):
    """Purposes of random numbers; the values are part of the streams, so append and never renumber."""

    ACCEPT, LATENT, SELECT, CHAIN, LANGEVIN, UNIFORM, GENERATOR, ROLLOUT, CHOOSE = range(1, 10)


# A word is mix(mix(id + first) ^ second), mix being the SplitMix64 finaliser with Stafford's 13th constants
# (the inner one without its last shift, which the outer one makes redundant). The keys (first, second) come
# from chaining mix over seed, purpose and column. Keys only added to the counter would make every stream a
# shifted copy of one sequence of 2**64 words; the second key, between two rounds, makes them unrelated. For
# fixed keys, id to word is one to one. Words are int64 as torch cannot compute in uint64; both wrap around.
GAMMA = 0x9E3779B97F4A7C15 - 2**64
_STEPS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))
_LAST_SHIFT = 31
_BITS = {4: 24, 8: 53}  # of the fraction of a float of so many bytes
_BLOCK, _TORCH_BLOCK = 1 << 15, 1 << 22  # words at a time: to stay in cache, to keep an accelerator busy
_HOST_DEVICES = ("cpu", "mps")  # torch devices served from NumPy; mps has no float64 to compute in


def accept(log_a: Array, ids: Any, *, seed: int = 0) -> Array:
    """Decide which proposals are kept: `u < exp(log_a)`, u being a uniform of the id.

    The decision for an id is the same in every batch, on every worker and in every array library. It is taken in
    float64. The uniforms are of a stream of their own: a proposal may draw with `uniforms` and `normals` of any seed.

    Args:
        log_a: Log-probabilities of acceptance, as a rule returns them.
        ids: The ids of the proposals, integers of the shape of `log_a`.
        seed: Integer with `0 <= seed < 2**64`.

    Returns:
        Booleans of the shape of `log_a`, in its library and on its device.

    Example:
        >>> accept([-0.7, -0.3, 0.0, -1.0], ids=[0, 1, 2, 3])
        array([False,  True,  True,  True])
    """
    x = _arrays.as_floats(log_a, "log_a")
    if _uses_torch(x):
        return _accept_uniforms(ids, seed, x, "log_a") < x.double().exp()
    values = _arrays.known_values(x, "log_a")
    with np.errstate(over="ignore"):  # above 0 is as sure as 0
        kept = _accept_uniforms(ids, seed, values, "log_a") < np.exp(values.astype(np.float64))
    return _arrays.array_like(kept, x, dtype=array_namespace(x).bool)


def priority_key(log_ratio: Any, ids: Any, *, seed: int = 0) -> Array:
    """Return the key `log u - log r` of each row, u being the uniform by which `accept` decides on its id.

    One key does everything. `key < log c` is the rule min(c r, 1), for every c. The n smallest keys are exactly n rows:
    the same ones in whatever order, files or processes the rows come, and those of a smaller n are among them.

    Args:
        log_ratio: Log-ratios of the rows; -inf means r = 0, whose key is +inf: no c and no n takes it.
        ids: The ids of the rows, integers of the same shape. Rows of the same id share their uniform.
        seed: Integer with `0 <= seed < 2**64`.

    Returns:
        NumPy float64 of the shape of `log_ratio`.

    Example:
        >>> priority_key([0.0, 1.0, -np.inf], ids=[0, 1, 2]).round(4)
        array([-0.1382, -1.3668,     inf])

    References:
        | Sequential Poisson Sampling (Ohlsson, 1998)
        | Priority Sampling for Estimation of Arbitrary Subset Sums (Duffield, Lund & Thorup, 2007)
    """
    values = _arrays.known_values(_arrays.as_floats(log_ratio, "log_ratio"), "log_ratio")
    key = _accept_uniforms(ids, seed, values, "log_ratio")
    with np.errstate(divide="ignore"):  # a uniform may be 0: such a row comes first
        np.log(key, out=key)
    with np.errstate(invalid="ignore"):  # log 0 - log 0
        key -= values
    key[~(values > -np.inf)] = np.inf  # NaN, too: it is never accepted
    return key


def _accept_uniforms(ids: Any, seed: int, x: Array, name: str) -> Array:
    """Return the float64 uniform that decides on each id, in the shape of `x` and on its device."""
    u = uniform_columns(ids, range(1), seed=seed, purpose=Purpose.ACCEPT, like=x, dtype="float64")[..., 0]
    if tuple(u.shape) != tuple(x.shape):
        raise InputError(f"{name} and ids must have one shape, got {tuple(x.shape)} and {tuple(u.shape)}")
    return u


def uniforms(ids: Any, dim: int | None = None, *, seed: int, like: Any = None, dtype: Any = None) -> Array:
    """Draw one uniform in `[0, 1)` for each id, or `dim` of them; they depend on the seed and the id alone.

    The bits do not depend on backend, device, batch or order. A float32 is the float64 rounded down. The numbers are
    of a stream that nothing else uses: neither acceptance nor selection nor `normals`.

    Args:
        ids: Integers of any shape; negative ones count from the top, `-1` being `2**64 - 1`.
        dim: Numbers for each id, at least 0; the first columns do not depend on it. None for one, without an axis.
        seed: Integer with `0 <= seed < 2**64`.
        like: Where the result goes: None for NumPy, an array for its library, device and floating dtype (float32 for
            half precision), or a device of torch.
        dtype: float32 or float64, as a string or of an array library; by default that of `like`.

    Returns:
        Array of the shape of `ids`, with one more axis if there is a `dim`; float64 unless `like` or `dtype` says
        otherwise, or JAX has none.

    Example:
        >>> uniforms([0, 1, 2], seed=0).round(4)
        array([0.3709, 0.4843, 0.7816])
        >>> uniforms([0, 1, 2], 2, seed=0).shape
        (3, 2)
    """
    tail = () if dim is None else (check_count(dim, "dim", least=0),)
    return _deliver(_fill_uniforms, ids, _keys(range(*tail or (1,)), seed, Purpose.UNIFORM), tail, like, dtype)


def normals(ids: Any, dim: int, *, seed: int, like: Any = None, dtype: Any = None) -> Array:
    """Draw a standard normal vector of length `dim` for each id, such as the latent of a proposal.

    The first columns do not depend on `dim`, and none on the `uniforms` of the same seed. The numbers are
    the same in every array library on the CPU, and equal to 4 ulp on an accelerator.

    Args:
        ids, seed, like, dtype: As for `uniforms`; a float32 is computed in float64 where there is one.
        dim: At least 0.

    Returns:
        Array of the shape of `ids` with one more axis of length `dim`.

    Example:
        >>> normals([5, 6], 3, seed=0).round(4)
        array([[ 0.2804,  1.0392, -0.2001],
               [ 1.8478, -0.974 , -1.5574]])
    """
    columns = range(check_count(dim, "dim", least=0))
    return normal_columns(ids, columns, seed=seed, purpose=Purpose.LATENT, like=like, dtype=dtype)


def words(ids: Any, columns: range, *, seed: int, purpose: Purpose) -> Array:
    """Return 64 random bits by id and column: NumPy uint64, the shape of `ids` and one more axis."""
    keys, ids = _keys(columns, seed, purpose), as_ids(ids)
    out = np.empty((ids.size, len(columns)), np.int64)
    for rows, cols, block in _word_blocks(ids.reshape(-1, 1), keys):
        out[rows, cols] = block
    return out.reshape((*ids.shape, len(columns))).view(np.uint64)


def uniform_columns(ids: Any, columns: range, *, seed: int, purpose: Purpose, **where: Any) -> Array:
    """Return uniforms by id and column; `where` is `like` and `dtype`."""
    return _deliver(_fill_uniforms, ids, _keys(columns, seed, purpose), (len(columns),), **where)


def normal_columns(ids: Any, columns: range, *, seed: int, purpose: Purpose, **where: Any) -> Array:
    """Return normals by id and column, from an even column on; `where` is `like` and `dtype`."""
    assert columns.start % 2 == columns.step - 1 == 0, "Box–Muller makes columns 2j and 2j + 1 together"
    even = range(columns.start, columns.stop + len(columns) % 2)
    return _deliver(_fill_normals, ids, _keys(even, seed, purpose), (len(columns),), **where)


def mixer(seed: int, purpose: Purpose) -> tuple[int, int, tuple[tuple[int, int], ...], int]:
    """Return the constants of the hash of ids: two keys, the steps of a round, and the last shift.

    A word is `mix(id + first)`, then `^ second`, then `mix` and `^ >> last`, in 64 bits that wrap around. A mix does,
    for each step (shift, factor), `^ >> shift` and `* factor`. All numbers are unsigned.
    """
    first, second = (int(key) % 2**64 for key in _keys(range(1), seed, purpose)[:, 0])
    return first, second, tuple((by, factor % 2**64) for by, factor in _STEPS), _LAST_SHIFT


def _deliver(fill: Any, ids: Any, keys: Array, tail: Any, like: Any = None, dtype: Any = None) -> Array:
    """Run `fill(ids, keys, out)` in NumPy, or in torch on an accelerator, and return `out` as an array like `like`."""
    target = _prototype(like)
    name = _dtype_name(target, dtype)
    native = _uses_torch(target)
    xp, device = (sys.modules["torch"], target.device) if native else (np, "cpu")
    if not (native and is_torch_array(ids) and ids.device == device and ids.dtype == xp.int64):
        ids = xp.tensor(as_ids(ids), device=device) if native else as_ids(ids)
    out = xp.empty(ids.shape + tail, dtype=getattr(xp, name), device=device)
    fill(ids.reshape(-1, 1), xp.asarray(keys.copy(), device=device), out.reshape(prod(ids.shape), prod(tail)))
    return out if native else _arrays.array_like(out, target, dtype=getattr(array_namespace(target), name))


def _fill_uniforms(ids: Array, keys: Array, out: Array) -> None:
    for rows, cols, block in _word_blocks(ids, keys, _BITS[out.dtype.itemsize]):
        _write_fractions(block, out[rows, cols])


def _fill_normals(ids: Array, keys: Array, out: Array) -> None:
    xp = np if isinstance(out, np.ndarray) else sys.modules["torch"]
    for even, odd in zip(_word_blocks(ids, keys[:, ::2]), _word_blocks(ids, keys[:, 1::2]), strict=True):
        u, v = (_write_fractions(block, xp.empty_like(block, dtype=xp.float64)) for *_, block in (even, odd))
        radius = xp.sqrt(-2.0 * xp.log(1.0 - u))  # 1 - u is exact, and never 0
        v *= 2 * pi
        here = out[even[0], 2 * even[1].start : 2 * even[1].stop]
        here[:, ::2] = radius * xp.cos(v)
        here[:, 1::2] = (radius * xp.sin(v))[:, : here.shape[1] // 2]  # an odd dim drops the last sine


def _keys(columns: range, seed: int, purpose: Purpose) -> Array:
    """Return the first and second key of each column, shape `(2, columns)`."""
    return _derived_keys(columns, check_seed(seed), purpose)


@lru_cache(maxsize=64)  # streams ask for the same few keys batch after batch
def _derived_keys(columns: range, seed: int, purpose: Purpose) -> Array:
    state = np.array([seed], np.uint64).view(np.int64)  # arrays wrap around in silence, NumPy scalars warn
    for part in (np.array([0]), np.array([purpose]), np.arange(columns.start, columns.stop, columns.step)):
        state = _mix(state + (part + 1) * GAMMA)
    keys = np.stack([state, _mix(state + GAMMA)])
    keys.flags.writeable = False
    return keys


def _word_blocks(ids: Array, keys: Array, bits: int = 64) -> Iterator[tuple[slice, slice, Array]]:
    """Yield slices of rows and columns with their words, in memory that the next block overwrites."""
    xp, most = (np, _BLOCK) if isinstance(ids, np.ndarray) else (sys.modules["torch"], _TORCH_BLOCK)
    wide = max(1, min(keys.shape[1], most))
    tall = max(1, min(len(ids), most // wide))
    buffers = xp.empty((2, tall * wide), dtype=xp.int64, device=ids.device)
    for row in range(0, len(ids), tall):
        for column in range(0, keys.shape[1], wide):
            rows, cols = slice(row, row + tall), slice(column, column + wide)
            here, (first, second) = ids[rows], keys[:, cols]
            block, scratch = buffers[:, : len(here) * len(first)].reshape(2, len(here), len(first))
            _mix(xp.add(here, first, out=block), scratch, last=False)
            block ^= second
            # the last shift does not reach the top 31 bits, and a float32 uses no others
            yield rows, cols, _mix(block, scratch, last=bits > _LAST_SHIFT)


def _mix(words: Array, scratch: Array = None, *, last: bool = True) -> Array:
    """Scramble `words` in place, one to one."""
    scratch = np.empty_like(words) if scratch is None else scratch
    for by, factor in _STEPS:
        words ^= _shift_right(words, by, scratch)
        words *= factor
    if last:
        words ^= _shift_right(words, _LAST_SHIFT, scratch)
    return words


def scramble(words: Array) -> Array:
    """Return 64-bit integers of NumPy scrambled, one to one: SplitMix64."""
    return _mix(words + np.int64(GAMMA))


def _shift_right(words: Array, by: int, out: Array) -> Array:
    """Shift to the right into `out` and fill with zeros; int64 by itself fills with the sign."""
    if isinstance(words, np.ndarray):
        return np.right_shift(words.view(np.uint64), by, out=out.view(np.uint64)).view(np.int64)
    return sys.modules["torch"].bitwise_right_shift(words, by, out=out).bitwise_and_(2 ** (64 - by) - 1)


def _write_fractions(words: Array, out: Array) -> Array:
    """Write the top bits of `words` into `out` as a fraction, exactly; `words` are used up."""
    bits = _BITS[out.dtype.itemsize]
    out[...] = _shift_right(words, 64 - bits, words)
    out *= 2.0**-bits
    return out


def _uses_torch(x: Array) -> bool:
    """Tell whether to compute in torch, where `x` lives, and not in NumPy."""
    return is_torch_array(x) and x.device.type not in _HOST_DEVICES


def _prototype(like: Any) -> Array:
    """Return an array on the device of `like`; a device of torch becomes an empty tensor there."""
    if like is None:
        return np.empty(0)
    if is_array_api_obj(like):
        return like
    torch = sys.modules.get("torch")
    try:
        if torch and isinstance(like, str | torch.device):
            return torch.empty(0, device=like)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"like must be a device that torch can use here, got {str(like)!r}") from error
    raise InputTypeError(f"like must be None, an array, or a device of torch once it is imported, got {like!r:.60}")


def _dtype_name(target: Array, dtype: Any) -> str:
    """Return "float32" or "float64", as requested, or else to match `target`: for integers the widest available."""
    widest = "float64" if "float64" in str(_arrays.widest(array_namespace(target))) else "float32"
    if dtype is None:
        default = str(target.dtype)
        return "float32" if "float32" in default or "float16" in default else widest
    name = next((known for known in ("float32", "float64") if known in str(dtype)), None)
    if name is None:
        raise InputTypeError(f"dtype must be float32 or float64, got {dtype!r:.60}")
    if (name, widest) == ("float64", "float32"):
        raise InputTypeError("float64 needs jax_enable_x64; or pass dtype='float32'")
    return name


def as_ids(ids: Any) -> Array:
    """Return `ids` as NumPy int64, those from 2**63 on in two's complement; without a copy if possible."""
    quick = np.arange(ids.start, ids.stop, ids.step) if isinstance(ids, range) else ids
    host = _arrays.known_values(quick, "ids")
    if not host.size and host.dtype == np.float64:  # what NumPy takes [] for
        host = host.astype(np.int64)
    if host.dtype.kind not in "iu":
        raise InputTypeError(f"ids must be integers, got {type(ids).__name__} of {host.dtype}")
    return host.astype(f"{host.dtype.kind}8", copy=False).view(np.int64)
