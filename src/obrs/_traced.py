"""Draws of ids whose values JAX does not show, inside `jit` and `vmap`: the arithmetic of `draws` in pairs of uint32.

Without x64 JAX has no integers of 64 bits, so a word is a pair (high, low), and a multiplication is done by hand.
Uniforms and comparisons are exact with x64 and without. Float32 is enough for the rest if it never subtracts what is
rounded: small numbers are made from the integers themselves.
"""

import sys
from math import pi
from typing import Any

import numpy as np

from .errors import InputTypeError
from .types import Array

__all__ = ["below", "normals", "split", "uniforms", "words"]

Pair = tuple[Array, Array]  # the high and the low 32 bits

_HALF = np.uint32(0xFFFF)
_REST = 11  # bits of a word that a uniform does not use
_USED = np.uint32(2**32 - 2**_REST)  # of the low half
_TURN = np.float32(6.28125)  # 2 pi in 8 bits


def split(values: "np.ndarray[Any, Any]") -> Pair:
    """Return known int64 as a pair.

    Example:
        >>> print(*split(np.array([2**32 + 7, -1])))
        [         1 4294967295] [         7 4294967295]
    """
    bits = values.view(np.uint64)
    return (bits >> np.uint64(32)).astype(np.uint32), bits.astype(np.uint32)


def words(ids: Array, keys: "np.ndarray[Any, Any]", steps: Any, last: int) -> Pair:
    """Return the words of traced ids by column, a pair of shape `(*ids.shape, columns)`.

    Args:
        ids: A tracer of JAX.
        keys: First and second key of each column.
        steps, last: Shifts and factors of the mixing, and its last shift.
    """
    first, second = (split(key) for key in keys)
    word = _add(_pair(ids), first)
    word = _mixed(word, steps)
    word = _mixed((word[0] ^ second[0], word[1] ^ second[1]), steps)
    return _folded(word, last)


def uniforms(word: Pair, dtype: str) -> Array:
    """Return the fraction that a word stands for, rounded down to "float32" or "float64"."""
    high, low = word
    if dtype == "float32":
        return (high >> 8).astype(dtype) * np.float32(2.0**-24)
    return high.astype(dtype) * 2.0**-32 + (low >> _REST).astype(dtype) * 2.0**-53


def below(word: Pair, a: Array) -> Array:
    """Return whether the uniform of a word, with all of its 53 bits, is below a float32 `a`; no step rounds."""
    xp = sys.modules["jax"].numpy
    scaled = a * np.float32(2.0**32)
    high = xp.floor(scaled)
    rest = (scaled - high) * np.float32(2.0 ** (32 - _REST))
    most = xp.where(a < 1, high, 0).astype(xp.uint32)  # 0 for NaN, too: it accepts nothing
    tie = (word[0] == most) & ((word[1] >> _REST).astype(a.dtype) < rest)
    return (a >= 1) | (word[0] < most) | tie


def normals(word: Pair, dtype: str, *, wide: bool) -> Array:
    """Return normals by Box and Muller, from words of columns 2j and 2j + 1; in float64 if `wide`."""
    xp = sys.modules["jax"].numpy
    even, odd = (tuple(half[..., start::2] for half in word) for start in (0, 1))
    if wide:
        radius = xp.sqrt(-2.0 * xp.log(1.0 - uniforms(even, "float64")))
        angle = uniforms(odd, "float64") * (2 * pi)
        pair = [radius * xp.cos(angle), radius * xp.sin(angle)]
    else:
        radius = xp.sqrt(np.float32(-2.0) * _log_of_rest(even))
        pair = [radius * wave for wave in _cos_sin(odd)]
    return xp.stack(pair, axis=-1).reshape((*word[0].shape[:-1], word[0].shape[-1])).astype(dtype)


def _log_of_rest(word: Pair) -> Array:
    """Return log(1 - u) in float32: from 1 - u where that is small, from u where it is not."""
    xp = sys.modules["jax"].numpy
    word = (word[0], word[1] & _USED)
    small = word[0] < np.uint32(1 << 31)
    u, rest = _fraction(word), _fraction(_negative(word))
    return xp.where(small, xp.log1p(-u), xp.log(rest))


def _cos_sin(word: Pair) -> tuple[Array, Array]:
    """Return cosine and sine of 2 pi u in float32: whole quarters of the turn are taken off before anything rounds."""
    xp = sys.modules["jax"].numpy
    high, low = word[0], word[1] & _USED
    quarter = ((high >> 29) + np.uint32(1)) >> 1  # the nearest, 4 being 0 again
    high = high - (quarter << 30)
    before = high >= np.uint32(1 << 31)  # the angle is less than its quarter
    opposite = _negative((high, low))
    high, low = xp.where(before, opposite[0], high), xp.where(before, opposite[1], low)
    # 2 pi u = angle + rest: the angle is a product of 12 bits each, so exact, and the rest is below 0.0017
    coarse = (high >> 20).astype("float32") * np.float32(2.0**-12)
    angle, rest = coarse * _TURN, coarse * np.float32(2 * pi - _TURN)
    rest = rest + _fraction((high & np.uint32(0xFFFFF), low)) * np.float32(2 * pi)
    cos, sin, square = xp.cos(angle), xp.sin(angle), rest * rest / 2
    cos, sin = cos - (sin * rest + cos * square), sin + (cos * (rest - rest * square / 3) - sin * square)
    sin = xp.where(before, -sin, sin)
    swapped, turned = (quarter & 1) == 1, (quarter & 2) == 2
    cos, sin = xp.where(swapped, -sin, cos), xp.where(swapped, cos, sin)
    return xp.where(turned, -cos, cos), xp.where(turned, -sin, sin)


def _fraction(word: Pair) -> Array:
    """Return a word divided by 2**64 in float32, rounded about once, however small it is."""
    high, low = word
    top, next_bits = high >> 8, (high << 24) | (low >> 8)  # 24 bits are exact in a float32; the lowest 8 are 0
    return top.astype("float32") * np.float32(2.0**-24) + next_bits.astype("float32") * np.float32(2.0**-56)


def _pair(ids: Array) -> Pair:
    """Return traced ids as a pair with one more axis; negative ones count from the top, as everywhere."""
    xp, ids = sys.modules["jax"].numpy, ids[..., None]
    if not xp.issubdtype(ids.dtype, xp.integer):
        raise InputTypeError(f"ids must be plain integers, got a tracer of {ids.dtype}")
    signed = xp.issubdtype(ids.dtype, xp.signedinteger)
    if ids.dtype.itemsize == 8:
        return (ids >> 32).astype(xp.uint32), (ids & (2**32 - 1)).astype(xp.uint32)
    if signed:
        ids = ids.astype(xp.int32)
        return (ids >> 31).astype(xp.uint32), ids.astype(xp.uint32)
    return xp.zeros(ids.shape, xp.uint32), ids.astype(xp.uint32)


def _mixed(word: Pair, steps: Any) -> Pair:
    for by, factor in steps:
        word = _multiplied(_folded(word, by), factor)
    return word


def _folded(word: Pair, by: int) -> Pair:
    """Return a word xor itself shifted to the right by less than 32."""
    high, low = word
    return high ^ (high >> by), low ^ ((low >> by) | (high << (32 - by)))


def _add(a: Pair, b: Pair) -> Pair:
    low = a[1] + b[1]
    return a[0] + b[0] + (low < b[1]).astype("uint32"), low


def _negative(word: Pair) -> Pair:
    low = ~word[1] + np.uint32(1)
    return ~word[0] + (low == 0).astype("uint32"), low


def _multiplied(word: Pair, factor: int) -> Pair:
    """Return the low 64 bits of a product: schoolbook, in halves of 16 bits where it may exceed 32."""
    high, low = word
    top, bottom = np.uint32(factor >> 32 & 0xFFFFFFFF), np.uint32(factor & 0xFFFFFFFF)
    middle = (low >> 16) * (bottom & _HALF) + ((low & _HALF) * (bottom & _HALF) >> 16)
    other = (low & _HALF) * (bottom >> 16) + (middle & _HALF)
    carried = (low >> 16) * (bottom >> 16) + (middle >> 16) + (other >> 16)
    return carried + low * top + high * bottom, low * bottom
