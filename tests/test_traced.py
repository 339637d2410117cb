"""Draws inside `jax.jit` and `jax.vmap`: the bits of NumPy, or within the distance that the docs promise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from obrs import _traced, draws
from obrs.draws import Purpose, accept, normals, uniforms, words
from obrs.errors import InputTypeError

MILLION = np.arange(1_000_000)


def ulps(got, expected):
    """Return the largest distance in units of the last place of what was expected."""
    return float(np.max(np.abs(np.asarray(got) - expected) / np.spacing(np.abs(expected))))


@pytest.mark.parametrize(
    ("dtype", "x64"), [*((d, False) for d in ("i1", "u2", "i4", "u4")), ("i8", True), ("u8", True)]
)
def test_words_of_every_integer_dtype_are_those_of_numpy(dtype, x64):
    info = np.iinfo(dtype)
    ids = np.random.default_rng(0).integers(info.min, info.max, 2000, dtype=dtype, endpoint=True)
    ids[:4] = [info.min, info.max, 0, 1]
    keys = draws._keys(range(3), 2**64 - 5, Purpose.CHAIN)
    with jax.enable_x64(bool(x64)):
        high, low = jax.jit(lambda ids: _traced.words(ids, keys, draws._STEPS, draws._LAST_SHIFT))(ids)
    got = (np.asarray(high).astype(np.uint64) << np.uint64(32)) | np.asarray(low)
    np.testing.assert_array_equal(got, words(ids, range(3), seed=2**64 - 5, purpose=Purpose.CHAIN))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_with_x64_all_bits_are_those_of_numpy(dtype):
    ids = np.random.default_rng(1).integers(-(2**63), 2**63, (500, 20))
    with jax.enable_x64(True):
        got = jax.jit(lambda ids: uniforms(ids, 3, seed=1, dtype=dtype))(ids)
        latents = jax.jit(lambda ids: normals(ids, 3, seed=1, dtype=dtype))(ids)
        by_row = jax.jit(jax.vmap(lambda ids: uniforms(ids, seed=1, dtype=dtype)))(ids)
        assert got.dtype == latents.dtype == by_row.dtype == dtype
    np.testing.assert_array_equal(got, uniforms(ids, 3, seed=1, dtype=dtype))
    np.testing.assert_array_equal(by_row, uniforms(ids, seed=1, dtype=dtype))
    # 0 where XLA and NumPy have one logarithm; else each is off by at most 1 ulp on its own side
    assert ulps(latents, normals(ids, 3, seed=1, dtype=dtype)) <= 2


def test_without_x64_uniforms_are_those_of_numpy_in_float32():
    with jax.enable_x64(False):
        got = jax.jit(lambda ids: uniforms(ids, seed=2))(MILLION)
        by_id = jax.jit(jax.vmap(lambda i: uniforms(i, 2, seed=2)))(jnp.arange(1000))
        large = jax.jit(lambda ids: uniforms(ids, seed=2))(jnp.asarray(MILLION[:1000] + 2**32 - 1000, jnp.uint32))
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, uniforms(MILLION, seed=2, dtype="float32"))
    np.testing.assert_array_equal(by_id, uniforms(MILLION[:1000], 2, seed=2, dtype="float32"))
    np.testing.assert_array_equal(large, uniforms(MILLION[:1000] + 2**32 - 1000, seed=2, dtype="float32"))


@pytest.mark.parametrize("dim", [0, 2, 3])
def test_without_x64_normals_agree_to_4_ulp(dim):
    ids = MILLION[: 1_000_000 if dim == 2 else 1000]
    with jax.enable_x64(False):
        got = jax.jit(lambda ids: normals(ids, dim, seed=3))(ids)
        one = jax.jit(jax.vmap(lambda i: normals(i, dim, seed=3)))(jnp.arange(10))
    expected = normals(ids, dim, seed=3, dtype="float32")
    assert got.dtype == np.float32
    assert got.shape == expected.shape
    if dim:
        assert ulps(got, expected) <= 4
        assert ulps(one, expected[:10]) <= 4


def test_rare_words_give_accurate_normals_in_float32():
    """Words at the edges: radii near 0 and the largest, angles next to every quarter of the turn."""
    edges = [b + d for b in range(0, 2**64 + 1, 2**61) for d in (-(2**11), 0, 2**11, 2**30, -(2**41), 2**55)]
    edges = np.array([e % 2**64 for e in edges], np.uint64)
    first, second = (grid.ravel() for grid in np.meshgrid(edges, edges))
    pair = _traced.split(np.stack([first, second], axis=-1).view(np.int64))
    with jax.enable_x64(False):
        got = np.asarray(jax.jit(lambda *word: _traced.normals(word, "float32", wide=False))(*pair), np.float64)
    bits = [(w >> np.uint64(11)).astype(np.longdouble) * np.longdouble(2) ** -53 for w in (first, second)]
    radius = np.sqrt(-2 * np.log1p(-bits[0]))
    quarters = np.round(4 * bits[1])
    angle = (bits[1] - quarters / 4) * 2 * np.longdouble("3.14159265358979323846")
    cos, sin = np.cos(angle), np.sin(angle)
    turns = {0: (cos, sin), 1: (-sin, cos), 2: (-cos, -sin), 3: (sin, -cos)}
    expected = np.select([(quarters % 4 == q)[:, None] for q in turns], [np.stack(t, -1) for t in turns.values()])
    expected *= radius[:, None]
    np.testing.assert_allclose(got, expected.astype(np.float64), rtol=4 * 2.0**-23, atol=0)


@pytest.mark.parametrize("x64", [False, True])
def test_a_million_decisions_are_those_of_numpy(x64):
    """Without x64 one in ten million may differ, so that two in a million are one in two hundred runs: and a fault."""
    log_a = np.log(np.random.default_rng(4).random(len(MILLION)) ** 3).astype(np.float32)
    expected = accept(log_a, MILLION, seed=5)
    with jax.enable_x64(x64):
        both = jax.jit(lambda log_a, ids: accept(log_a, ids, seed=5))(log_a, MILLION)
        known_ids = jax.jit(lambda log_a: accept(log_a, range(1000), seed=5))(log_a[:1000])
        known_log_a = jax.jit(lambda ids: accept(log_a[:1000], ids, seed=5))(MILLION[:1000])
        mapped = jax.vmap(lambda a, i: accept(a, i, seed=5))(jnp.asarray(log_a[:1000]), jnp.arange(1000))
        sure = jax.jit(lambda a: accept(a, range(4)))(jnp.asarray([jnp.nan, -jnp.inf, 0.0, jnp.inf]))
    assert np.count_nonzero(np.asarray(both) != expected) <= (0 if x64 else 1)
    for some in (known_ids, known_log_a, mapped):
        np.testing.assert_array_equal(some, expected[:1000])
    assert np.asarray(sure).tolist() == [False, False, True, True]


def test_comparing_in_float32_uses_all_53_bits():
    """A probability between two float32 uniforms, far below 2**-24, is not raised to the next one."""
    a = np.array([2.0**-40, 2.0**-40, 2.0**-53, 0.5, 0.5, 1 - 2.0**-24, 1 - 2.0**-24, 1.0], np.float32)
    k = np.array([2**13 - 1, 2**13, 0, 2**52 - 1, 2**52, 2**53 - 2**29 - 1, 2**53 - 2**29, 2**53 - 1], np.uint64)
    with jax.enable_x64(False):
        got = jax.jit(_traced.below)(_traced.split((k << np.uint64(11)).view(np.int64)), a)
    assert np.asarray(got).tolist() == [True, False, True, True, False, True, False, True]


def test_gradients_do_not_stop_a_decision():
    """`jax.grad` alone shows values; with `jit` around it they are hidden."""

    def kept_sum(x):
        return jnp.sum(jnp.where(accept(-x, jnp.arange(3)), x, 0.0))

    x = jnp.asarray([0.1, 0.2, 5.0])
    plain, hidden = jax.grad(kept_sum)(x), jax.jit(jax.grad(kept_sum))(x)
    np.testing.assert_array_equal(plain, hidden)
    np.testing.assert_array_equal(plain, accept(-np.asarray(x), range(3)))


BAD = {
    "float ids": ("plain integers, got a tracer of float32", jnp.zeros(2, "float32"), {}),
    "bool ids": ("plain integers, got a tracer of bool", jnp.zeros(2, bool), {}),
    "another library": (
        "like must be None or of JAX where JAX traces the ids",
        jnp.arange(2),
        {"like": torch.zeros(1)},
    ),
    "no float64": ("float64 needs jax_enable_x64", jnp.arange(2), {"dtype": "float64"}),
}


@pytest.mark.parametrize(("message", "ids", "where"), BAD.values(), ids=BAD)
def test_bad_input_is_answered_in_one_line(message, ids, where):
    with jax.enable_x64(False), pytest.raises(InputTypeError, match=message) as caught:
        jax.jit(lambda ids: uniforms(ids, seed=0, **where))(ids)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputTypeError, match="ids must be known"):
        jax.jit(lambda ids: words(ids, range(1), seed=0, purpose=Purpose.CHAIN))(jnp.arange(2))
