"""Pipelines as proposals: the noise of an image belongs to its id. Those of diffusers, and plain functions."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import obrs
from obrs.adapters import from_pipeline
from obrs.adapters.pipelines import generator_seeds
from obrs.draws import Purpose, words
from obrs.errors import InputError, InputTypeError

BLOCKS = {"down_block_types": ["DownBlock2D"] * 2, "up_block_types": ["UpBlock2D"] * 2, "block_out_channels": [8, 16]}


def noise(batch_size, generator, output_type="pil", level=1.0):
    """A pipeline without a network: what it makes is its noise."""
    assert output_type == "np"
    assert batch_size == len(generator)
    return SimpleNamespace(images=level * np.stack([torch.rand(4, 5, 3, generator=g).numpy() for g in generator]))


def painter(prompt, generator, output_type="pil"):
    """A pipeline with prompts: the prompt's length is the brightness."""
    return SimpleNamespace(images=np.stack([np.full((4, 4, 1), len(p) / 10, np.float32) for p in prompt]))


@pytest.fixture(scope="module")
def unet():
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    return diffusers.UNet2DModel(8, in_channels=1, out_channels=1, layers_per_block=1, norm_num_groups=4, **BLOCKS)


@pytest.mark.parametrize("kind", ["DDIM", "DDPM"])  # noise at the start; noise in every step
def test_images_of_diffusers_do_not_depend_on_the_batch(unet, kind):
    import diffusers

    pipe = getattr(diffusers, f"{kind}Pipeline")(unet.eval(), getattr(diffusers, f"{kind}Scheduler")())
    pipe.set_progress_bar_config(disable=True)
    whole = from_pipeline(pipe, arguments={"num_inference_steps": 4}, batch_size=12)(range(12))
    parts = from_pipeline(pipe, arguments={"num_inference_steps": 4}, batch_size=5)(np.arange(12)[::-1].copy())
    assert whole.shape == (12, 1, 8, 8)
    assert whole.dtype == torch.float32
    assert -1 <= whole.min() < -0.5
    assert 0.5 < whole.max() <= 1
    torch.testing.assert_close(whole, parts.flip(0), rtol=0, atol=1e-3)  # 1e-5 was seen; images differ by about 1
    assert (whole[1:] - whole[:-1]).abs().mean() > 0.1
    other = from_pipeline(pipe, arguments={"num_inference_steps": 4}, batch_size=12, seed=1)(range(12))
    assert (whole - other).abs().mean() > 0.1


def test_pipeline_left_in_train_mode_is_warned_about(unet):
    import diffusers

    pipe = diffusers.DDIMPipeline(unet.train(), diffusers.DDIMScheduler())
    with pytest.warns(UserWarning, match=r"UNet2DModel is in train mode.*call \.eval\(\) first"):
        from_pipeline(pipe)
    unet.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_pipeline(pipe)


def test_noise_is_the_same_bit_for_bit_in_any_batch_and_order():
    propose = from_pipeline(noise)
    whole = propose(range(40))
    assert whole.shape == (40, 3, 4, 5)
    order = np.random.default_rng(0).permutation(40)
    for size in (1, 3, 40):
        assert torch.equal(from_pipeline(noise, batch_size=size)(order), whole[order])
    assert torch.equal(propose(np.array([7])), whole[7:8])
    expected = noise(1, [torch.Generator().manual_seed(int(generator_seeds([7], 0)[0]))], "np").images
    np.testing.assert_allclose(whole[7].permute(1, 2, 0), 2 * expected[0] - 1, atol=1e-6)


def test_sampling_keeps_the_same_images_for_any_batch_size():
    propose = from_pipeline(noise, arguments={"level": 0.5})
    one, other = (obrs.sample(propose, lambda x: 3 * x.mean((1, 2, 3)), 20, budget=3, batch_size=b) for b in (7, 64))
    np.testing.assert_array_equal(one.ids, other.ids)
    assert torch.equal(one.x, other.x)
    assert one.x.max() <= 0  # the argument arrived


def test_conditions_come_in_turn_and_with_their_number():
    x, number = from_pipeline(painter, conditions=["a", "four", "eight eh"], batch_size=2)(
        np.array([0, 4, 5, 3, 2**40])
    )
    assert number.tolist() == [0, 1, 2, 0, 2**40 % 3]
    np.testing.assert_allclose(x[:3, 0, 0, 0], [-0.8, -0.2, 0.6], atol=1e-6)
    assert number.dtype == torch.int64


def test_seeds_of_generators_differ_and_follow_seed_and_id():
    ids = np.arange(200_000)
    seeds = generator_seeds(ids, 0)
    assert len(np.unique(seeds)) == len(ids)  # at random, 4.7 pairs would be equal on average
    assert seeds.max() < 2**32
    far = generator_seeds(ids + 2**40, 0)  # the ids of a refit
    assert len(np.unique(far)) == len(ids)
    for others in (far, generator_seeds(ids, 1), np.roll(seeds, 1)):
        assert np.count_nonzero(seeds == others) <= 2
        agree = np.bitwise_count(seeds ^ others) / 32  # bits that differ, half of them if unrelated
        assert abs(agree.mean() - 0.5) < 5 * 0.5 / np.sqrt(32 * len(ids))
    bits = (seeds[:, None] >> np.arange(32, dtype=np.uint64)) & np.uint64(1)
    assert np.abs(bits.mean(0) - 0.5).max() < 5 * 0.5 / np.sqrt(len(ids))


def test_seeds_of_generators_follow_their_definition_and_never_change():
    ids, low = [0, 1, -1, 2**40], 2**32 - 1
    expected = []
    for i in ids:
        high = np.array([(i % 2**64) >> 32])
        key = int(words(high, range(1), seed=7, purpose=Purpose.GENERATOR)[0, 0])
        x = (i ^ key) & low
        x = (x ^ x >> 16) * 0x85EBCA6B & low
        x = (x ^ x >> 13) * 0xC2B2AE35 & low
        expected.append(x ^ x >> 16 ^ key >> 32)
    assert generator_seeds(ids, 7).tolist() == expected == [2339993533, 3473105794, 3299112244, 3517961668]


def test_bad_input_is_one_line():
    cases = [
        ({"arguments": {"generator": 1}}, InputError, "arguments must not have 'generator'"),
        ({"arguments": {"batch_size": 1}}, InputError, "arguments must not have 'batch_size'"),
        ({"conditions": "a cat"}, InputError, "conditions must be a list of at least one prompt or class, got 'a cat'"),
        ({"conditions": []}, InputError, "conditions must be a list"),
        ({"pipe": painter}, InputError, r"function takes no 'batch_size'; give it conditions=\[...\]"),
        ({"batch_size": 0}, InputError, "batch_size must be a whole number of at least 1, got 0"),
        ({"seed": -1}, InputError, "seed must be a whole number"),
    ]
    for options, kind, message in cases:
        with pytest.raises(kind, match=message) as caught:
            from_pipeline(**{"pipe": noise, **options})
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (["a PIL image"], "must return an array of 2 images, got list"),
        (np.zeros((1, 4, 4, 3), np.float32), "must return an array of 2 images"),
        (np.full((2, 4, 4, 3), 200.0), r"the images of the pipeline must be floats in \[0, 1\], got 200 to 200"),
        (np.full((2, 4, 4, 3), np.nan), "the images of the pipeline must be finite, 2 of 2 are not"),
        (np.zeros((2, 4, 4, 7)), "the images of the pipeline must have shape"),
    ],
)
def test_what_a_pipeline_returns_is_checked(images, message):
    propose = from_pipeline(lambda batch_size, generator, output_type: SimpleNamespace(images=images))
    with pytest.raises(InputError, match=message):
        propose(range(2))


def test_ids_must_be_integers():
    with pytest.raises(InputTypeError, match=r"ids must be integers of shape \(n,\), got float64 of \(2,\)"):
        from_pipeline(noise)(np.array([0.5, 1.0]))
