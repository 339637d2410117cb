"""Draws: unrelated streams, the same bits everywhere, and one line for every bad input.

Thresholds come from the null distribution. Each statistical check has a fixed seed, and a sound generator
would fail it for one seed in ten thousand (`ALPHA`), shared out over the parts where a check has many.
"""

import array_api_strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy import stats

from obrs import draws
from obrs.draws import Purpose, accept, mixer, normal_columns, normals, uniform_columns, uniforms, words
from obrs.errors import InputError, InputTypeError

ALPHA = 1e-4
N = 1 << 17

IDS = {
    "consecutive": np.arange(N),
    "large": 2**62 + np.arange(N),
    "strided": 4096 * np.arange(N),
    "high bits only": np.arange(N) << 46,
    "negative": -1 - np.arange(N),
}


def bits_of(ids, *, seed=0, purpose=Purpose.ACCEPT, column=0):
    """Return the bits of one column of words, shape `(n, 64)`, the lowest first."""
    word = words(ids, range(column, column + 1), seed=seed, purpose=purpose)[:, 0]
    return (word[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)


def z_limit(checks):
    """Return the size that the largest of so many standard normals exceeds with probability `ALPHA`."""
    return stats.norm.isf(ALPHA / checks / 2)


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
def test_uniforms_are_uniform(ids):
    assert stats.kstest(uniforms(ids, seed=1), "uniform").pvalue > ALPHA


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
def test_every_bit_is_balanced_and_unrelated_to_its_neighbours(ids):
    n = N // 2
    signs = 2.0 * bits_of(ids[:n], seed=2) - 1
    assert np.abs(signs.mean(0)).max() * n**0.5 < z_limit(64)
    # einsum, because the threads of a matrix product can stall for seconds on a busy machine
    within = np.einsum("ni,nj->ij", signs, signs) / n - np.eye(64)  # of one word
    assert np.abs(within).max() * n**0.5 < z_limit(64 * 63 / 2)
    across = np.einsum("ni,nj->ij", signs[1:], signs[:-1]) / (n - 1)  # of one word with the next one's
    assert np.abs(across).max() * (n - 1) ** 0.5 < z_limit(64 * 64)


def uniform(ids=IDS["consecutive"], seed=3, purpose=Purpose.ACCEPT, column=0):
    return uniform_columns(ids, range(column, column + 1), seed=seed, purpose=purpose)[:, 0]


PAIRS = {
    "next id": {"ids": IDS["consecutive"] + 1},
    "id 2**32 further": {"ids": IDS["consecutive"] + 2**32},
    "next seed": {"seed": 4},
    "seed 2**32 further": {"seed": 3 + 2**32},
    "seed 2**63 further": {"seed": 3 + 2**63},
    "next column": {"column": 1},
    "latents": {"purpose": Purpose.LATENT},
    "next column of the next seed": {"seed": 4, "column": 1},
}


@pytest.mark.parametrize("other", PAIRS.values(), ids=PAIRS)
def test_pairs_fill_the_square(other):
    grid, _, _ = np.histogram2d(uniform(), uniform(**other), bins=64, range=[[0, 1], [0, 1]])
    assert ALPHA / 2 < stats.chisquare(grid.ravel()).pvalue < 1 - ALPHA / 2


def test_streams_are_no_shifted_copies_of_each_other():
    streams = [words(range(2000), range(3), seed=s, purpose=p) for s in (0, 1, 2**32) for p in Purpose]
    every = np.concatenate([stream.ravel() for stream in streams])
    assert len(np.unique(every)) == len(every)
    # where one would be the copy of another, if both only added their keys to the id
    (first, *_), (other, *_) = mixer(0, Purpose.ACCEPT), mixer(1, Purpose.ACCEPT)
    moved = np.arange(2000, dtype=np.uint64) + np.uint64((first - other) % 2**64)
    one, two = (words(ids, range(1), seed=s, purpose=Purpose.ACCEPT) for s, ids in ((0, range(2000)), (1, moved)))
    assert not np.any(one == two)


@pytest.mark.parametrize("which", ["id", "seed"])
def test_flipping_one_input_bit_flips_half_of_the_output_bits(which):
    count, rng = 512, np.random.default_rng(5)
    random = rng.integers(0, 2**64, count, dtype=np.uint64)
    sparse = np.arange(count, dtype=np.uint64)

    def word(value):
        if which == "id":
            return words(value, range(1), seed=6, purpose=Purpose.ACCEPT)[:, 0]
        return np.array([words([7], range(1), seed=int(v), purpose=Purpose.ACCEPT)[0, 0] for v in value])

    for start in (random[:32], sparse[:32]) if which == "seed" else (random, sparse):
        base = word(start)
        flips = np.array([np.bitwise_count(base ^ word(start ^ np.uint64(1 << bit))) for bit in range(64)])
        z = (flips.mean(1) - 32) / (4 / len(start) ** 0.5)  # 64 fair coins have a deviation of 4
        assert np.abs(z).max() < z_limit(64)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_largest_word_stays_below_one(dtype):
    bits = {"float64": 53, "float32": 24}[dtype]
    top = draws._write_fractions(np.array([-1, 0]), np.empty(2, dtype))
    assert top.tolist() == [1 - 2.0**-bits, 0.0]
    native = draws._write_fractions(torch.tensor([-1, 0]), torch.empty(2, dtype=getattr(torch, dtype)))
    assert native.tolist() == top.tolist()


def test_float32_is_float64_rounded_down():
    wide, narrow = uniforms(range(N), seed=10), uniforms(range(N), seed=10, dtype="float32")
    np.testing.assert_array_equal(narrow.astype(np.float64), np.floor(wide * 2**24) / 2**24)


def test_words_follow_their_definition():
    mask = 2**64 - 1

    def mix(z, last=True):
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        return z ^ z >> 31 if last else z

    gamma = 0x9E3779B97F4A7C15
    for seed, purpose, i, column in [(0, 1, 0, 0), (2**64 - 1, 2, -1, 5), (12345, 5, 2**63 + 9, 1000)]:
        state = mix(seed + gamma & mask)
        state = mix(state + (purpose + 1) * gamma & mask)
        first = mix(state + (column + 1) * gamma & mask)
        second = mix(first + gamma & mask)
        expected = mix(mix(i + first & mask, last=False) ^ second)
        assert int(words(i, range(column, column + 1), seed=seed, purpose=Purpose(purpose))[0]) == expected


def test_batches_and_order_do_not_matter():
    ids = np.random.default_rng(11).permutation(100_000)
    whole, latents = uniforms(ids, seed=12), normals(ids, 3, seed=12)
    pieces = np.array_split(ids, [1, 2, 1000, 40_000, 77_777])
    np.testing.assert_array_equal(np.concatenate([uniforms(p, seed=12) for p in pieces]), whole)
    np.testing.assert_array_equal(np.concatenate([normals(p, 3, seed=12) for p in pieces]), latents)
    back = np.argsort(ids)
    np.testing.assert_array_equal(uniforms(range(len(ids)), seed=12), whole[back])


def test_block_size_does_not_matter(monkeypatch):
    wide, tall = normals(range(3), 1001, seed=13), normals(range(1001), 3, seed=13)
    for block in (1, 7, 64):
        monkeypatch.setattr(draws, "_BLOCK", block)
        np.testing.assert_array_equal(normals(range(3), 1001, seed=13), wide)
        np.testing.assert_array_equal(normals(range(1001), 3, seed=13), tall)
        expected = uniform(range(1001), seed=13, purpose=Purpose.UNIFORM)
        np.testing.assert_array_equal(uniforms(range(1001), seed=13), expected)


BACKENDS = {
    "numpy": np.asarray,
    "torch": lambda x: torch.tensor(np.asarray(x)),
    "jax": jnp.asarray,
    "strict": array_api_strict.asarray,
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("target", BACKENDS)
@pytest.mark.parametrize("source", BACKENDS)
def test_bits_are_the_same_in_every_library(source, target, dtype):
    ids = np.arange(-300, 300, dtype=np.int32).reshape(2, 300)
    with jax.enable_x64(True):
        like = BACKENDS[target](np.zeros(2, dtype))
        got = uniforms(BACKENDS[source](ids), seed=14, like=like)
        latents = normals(BACKENDS[source](ids), 5, seed=14, like=like)
        assert type(got) is type(like)
        assert got.dtype == latents.dtype == like.dtype
        np.testing.assert_array_equal(np.from_dlpack(got), uniforms(ids, seed=14, dtype=dtype))
        np.testing.assert_array_equal(np.from_dlpack(latents), normals(ids, 5, seed=14, dtype=dtype))


@pytest.mark.parametrize("block", [1 << 22, 100])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_computing_in_torch_gives_the_same_numbers(monkeypatch, dtype, block):
    monkeypatch.setattr(draws, "_HOST_DEVICES", ())  # treat the CPU as an accelerator
    monkeypatch.setattr(draws, "_TORCH_BLOCK", block)
    ids = np.random.default_rng(16).integers(-(2**63), 2**63, (20, 100))
    like = torch.empty(0, dtype=getattr(torch, dtype))
    for source in (ids, torch.tensor(ids), ids.view(np.uint64), jnp.arange(3), [], 5):
        got = uniforms(source, seed=17, like=like)
        assert got.dtype == like.dtype
        np.testing.assert_array_equal(got.numpy(), uniforms(source, seed=17, dtype=dtype))
    for dim in (0, 1, 2, 5):
        got, expected = normals(ids, dim, seed=17, like=like), normals(ids, dim, seed=17, dtype=dtype)
        assert got.shape == expected.shape
        np.testing.assert_array_max_ulp(got.numpy(), expected, maxulp=4, dtype=dtype)


def test_normals_are_normal():
    draw = normals(range(N), 6, seed=18)
    for column in draw.T:
        assert stats.kstest(column, "norm").pvalue > ALPHA / 6
    limit = z_limit(6 * 4)
    for power, mean, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
        z = ((draw**power).mean(0) - mean) * (N / variance) ** 0.5
        assert np.abs(z).max() < limit


def test_latents_are_independent_of_each_other_and_of_acceptance():
    draw = normals(range(N), 6, seed=19)
    decision, drawn = uniform(range(N), seed=19), uniforms(range(N), seed=19)
    features = np.column_stack([draw, draw**2, *(f for u in (decision, drawn) for f in (u, (u - 0.5) ** 2))])
    correlation = np.corrcoef(features.T) - np.eye(features.shape[1])
    assert np.abs(correlation).max() * N**0.5 < z_limit(features.shape[1] * (features.shape[1] - 1) / 2)


@pytest.mark.parametrize("seed", [0, 7])
def test_a_proposal_may_draw_with_the_seed_of_the_decision(seed):
    """x uniform, accepted with probability x: the mean of what is kept is 2/3, with any seeds."""
    ids = np.arange(100_000)
    x = uniforms(ids, seed=seed)
    kept = x[accept(np.log(x), ids, seed=seed)]
    assert abs(kept.mean() - 2 / 3) < 4 * np.sqrt(1 / 18 / len(kept))
    assert abs(len(kept) / len(ids) - 1 / 2) < 4 * np.sqrt(1 / 4 / len(ids))


@pytest.mark.parametrize("library", ["numpy", "torch", "jax.numpy", "array_api_strict"])
def test_decisions_are_the_same_in_every_library(library):
    xp = pytest.importorskip(library)
    log_a = -np.linspace(0, 3, 1000).astype(np.float32)
    kept = accept(xp.asarray(log_a), range(1000), seed=4)
    assert type(kept) is type(xp.asarray(log_a))
    np.testing.assert_array_equal(np.asarray(kept), accept(log_a, np.arange(1000), seed=4))
    assert accept(xp.asarray(np.float32(-np.inf)), 5, seed=0).shape == ()


def test_decisions_ask_for_one_id_each():
    with pytest.raises(InputError, match=r"one shape, got \(3, 1\) and \(3,\)"):
        accept(np.zeros((3, 1)), [0, 1, 2])
    assert accept([1000.0, np.inf, np.nan], [0, 1, 2]).tolist() == [True, True, False]


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap])
def test_inside_jit_and_vmap_draws_are_refused(transform):
    for draw in (lambda x: accept(x + 0.5, [0, 1, 2]), lambda ids: uniforms(ids, seed=0)):
        with pytest.raises(InputTypeError, match="must be known, not traced"):
            transform(draw)(jnp.arange(3))
    with pytest.raises(InputTypeError, match="log_a must be known, not traced"):
        torch.vmap(lambda x: accept(x, [0, 1]))(torch.zeros(3, 2))


def test_the_first_columns_do_not_depend_on_dim():
    five = normals(range(1000), 5, seed=20)
    for dim in range(5):
        np.testing.assert_array_equal(normals(range(1000), dim, seed=20), five[:, :dim])
    later = normal_columns(range(1000), range(2, 5), seed=20, purpose=Purpose.LATENT)
    np.testing.assert_array_equal(later, five[:, 2:])
    three = uniforms(range(1000), 3, seed=20)
    assert np.abs(np.corrcoef(three.T) - np.eye(3)).max() * 1000**0.5 < z_limit(3)
    for dim in range(4):
        np.testing.assert_array_equal(uniforms(range(1000), dim, seed=20), three[:, :dim])
    np.testing.assert_array_equal(uniforms(range(1000), seed=20), three[:, 0])
