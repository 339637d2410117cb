"""The landscape of a GAN: directions, the divergence at a point against a closed form, flatness, what goes wrong."""

from dataclasses import replace

import exact
import numpy as np
import pytest

from obrs.errors import InputError, ObrsError
from obrs.experiments import Record, Rows, draw, load, render
from obrs.experiments import figure_landscape as figure
from obrs.experiments.record import numbers, plain

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
pytest.importorskip("sklearn")
SMOKE, PAPER = figure.PRESETS["smoke"], figure.PRESETS["paper"]


@pytest.fixture
def generator():
    from obrs.models.mlp import mlp_generator

    torch.manual_seed(0)
    return mlp_generator(8, (1, 28, 28), width=32, layers=2, activation="leaky_relu", output="tanh")


def in_folder(folder, generator, images):
    """Save a generator and data of one's own as `--home` wants them."""
    from obrs.fitting.tensors import write_tensors

    write_tensors(folder / "own-0-generator.safetensors", generator.state_dict(), {"spec": generator.spec})
    np.savez(folder / "own.npz", train=images[:-60], test=images[-60:])
    return str(folder)


def run(config, rows=()):
    from dataclasses import asdict

    made = Rows(Record("figure-landscape", "smoke", plain(asdict(config)), list(rows)), progress=False)
    figure.run(config, made)
    return made.record()


def test_every_filter_of_a_direction_has_the_norm_of_that_filter_of_the_weights(generator):
    from obrs.experiments.landscape import direction

    weights = dict(generator.named_parameters())
    found, other, again = (direction(weights, 0, axis) for axis in ("x", "y", "x"))
    for name, weight in weights.items():
        if weight.ndim == 1:  # biases do not move
            assert not found[name].any()
            continue
        torch.testing.assert_close(found[name].norm(dim=1), weight.detach().norm(dim=1))
        assert torch.equal(found[name], again[name])
        cosine = (found[name] * other[name]).sum() / found[name].norm() / other[name].norm()
        assert abs(cosine) < 5 / weight.numel() ** 0.5


def test_a_point_is_the_generator_with_the_sum_of_its_weights_and_directions(generator):
    from copy import deepcopy

    from obrs.experiments.landscape import direction, moved

    weights = dict(generator.named_parameters())
    axes = [direction(weights, 0, axis) for axis in ("x", "y")]
    by_hand, z = deepcopy(generator), torch.randn(5, 8)
    with torch.no_grad():
        for name, weight in by_hand.named_parameters():
            weight += 0.3 * axes[0][name] - 0.2 * axes[1][name]
        torch.testing.assert_close(moved(generator, 0.3, -0.2, axes, z), by_hand(z))
        assert torch.equal(moved(generator, 0.0, 0.0, axes, z), generator(z))


def gan_left(shift, budget):
    """Return the GAN divergence that is left between N(shift, 1) and N(0, 1), by sums over a grid."""
    x = np.linspace(-12, 12, 20_001)
    q, p = (np.exp(-((x - m) ** 2) / 2) for m in (0, shift))
    q, p, log_ratio = q / q.sum(), p / p.sum(), shift * x - shift**2 / 2
    log_c = np.inf if budget == 1 else exact.bisect_log_c(log_ratio, budget, q)
    kept = q * np.exp(np.minimum(log_ratio + log_c, 0))
    kept /= kept.sum()
    return float(2 * np.log(2) + np.sum(p * np.log(p / (p + kept)) + kept * np.log(kept / (p + kept))))


@pytest.mark.parametrize("shift", [pytest.param(0.7, marks=pytest.mark.slow), 2.0])
def test_the_divergence_at_a_point_is_that_of_the_closed_form(shift):
    from obrs.experiments.landscape import Sets, left

    noise = torch.Generator().manual_seed(0)
    sets = [torch.randn(6000, 4, generator=noise) for _ in range(4)]
    for real in sets[::2]:
        real[:, 0] += shift
    budgets = (1.0, 2.0, 5.0)
    for budget, found in zip(budgets, left(Sets(*sets), budgets, steps=120, seed=0), strict=True):
        truth = gan_left(shift, budget)
        assert found.value < truth + 3 * found.standard_error  # a lower bound
        assert found.value > 0.93 * truth - 0.01 - 3 * found.standard_error  # and not a low one
        assert 0 < found.standard_error < 0.02


def test_a_critic_that_has_learned_nothing_gives_a_low_bound_not_a_wrong_one():
    from obrs.experiments.landscape import Sets, left

    noise = torch.Generator().manual_seed(0)
    sets = Sets(*(torch.randn(2000, 4, generator=noise) + shift for shift in (1.0, 0.0, 1.0, 0.0)))
    (found,) = left(sets, (1.0,), steps=1, seed=0)
    assert found.value < 0.5 * gan_left(2.0, 1.0)  # four coordinates moved by 1 are one moved by 2


def test_components_are_those_of_numpy_on_other_images_than_they_were_found_on():
    from obrs.experiments.landscape import Components

    x = torch.randn(100, 1, 3, 3, generator=torch.Generator().manual_seed(0)) * torch.arange(1.0, 10).reshape(3, 3)
    mean, flat = x.flatten(1).numpy().mean(axis=0), x.flatten(1).numpy()
    _, axes = np.linalg.eigh(np.cov(flat.T))
    expected = np.abs((2 * flat - mean) @ axes[:, ::-1][:, :2])
    np.testing.assert_allclose(np.abs(Components.of(x, 2)(2 * x).numpy()), expected, rtol=1e-3, atol=1e-3)


def test_flatness_of_a_plane_and_of_a_bowl():
    x, y = np.meshgrid(*[np.linspace(-0.5, 0.5, 101)] * 2)
    plane = figure.flatness(0.2 + 3 * x - 4 * y, 0.01)
    assert plane == pytest.approx((0.2, 0.2, 5.0, 0.0, 1), abs=1e-9)  # its lowest corner
    bowl = figure.flatness(x**2 + y**2, 0.01)
    assert bowl.minima == 1
    assert figure.flatness(np.cos(4 * np.pi * x) + y**2, 0.01).minima == 2
    assert bowl.rise == pytest.approx(1 / 6, rel=0.03)
    assert bowl.slope == pytest.approx(2 * 0.3826, rel=0.03)  # the mean distance from the middle of a unit square


def test_the_smoke_record_has_a_landscape_below_the_ceiling_that_rises_from_its_middle(smoke, tmp_path):
    record = smoke("figure-landscape")
    (surfaces,) = figure._landscapes(record).values()
    assert surfaces.shape == (1, 3, 3, 3)
    assert np.all((surfaces >= 0) & (surfaces <= figure.CEILING))
    means = surfaces[0].mean(axis=(1, 2))
    assert means[0] > means[1] > means[2]
    assert surfaces[0, 0].mean() > surfaces[0, 0, 1, 1]
    middle = numbers(record["digits_plain-0, middle"]["middle"]["usual"])
    np.testing.assert_allclose(surfaces[:, :, 1, 1], middle[:, :, 0], rtol=1e-6)
    assert "slope, over that at K = 1" in render(record)
    record.save(tmp_path / "it.json")
    assert draw(load(tmp_path / "it.json")) == draw(record)


def test_a_run_that_was_interrupted_ends_with_the_same_rows(smoke):
    record = smoke("figure-landscape")
    assert run(SMOKE, record.rows[:-3]).rows == record.rows


def test_a_generator_at_the_ceiling_is_a_loud_failure(generator, tmp_path):
    noise = np.random.default_rng(0)
    images = np.sign(noise.normal(size=(1300, 1, 28, 28))).astype(np.float32)  # black and white; the generator is grey
    images[:, :, :14] = np.sign(noise.normal(size=(1300, 1, 1, 1)))
    config = replace(SMOKE, generators=("own-0",), home=in_folder(tmp_path, generator, images), steps=150)
    said = r"^own-0 itself has a divergence of 1\.3\d+ on 4 components, at the ceiling 1\.386: .* train it"
    with pytest.raises(ObrsError, match=said):
        run(config)


def test_the_papers_preset_makes_a_real_step_on_pixels(generator, tmp_path):
    images = np.random.default_rng(0).uniform(-1, 1, (1300, 1, 28, 28)).astype(np.float32)
    home = in_folder(tmp_path, generator, images)
    sizes = {"cells": 3, "samples": 260, "steps": 1, "thorough": 1, "shown": 4}
    record = run(replace(PAPER, generators=("own-0",), home=home, **sizes))
    assert [row["row"] for row in record.rows] == [
        "own-0, middle",
        *(f"own-0, directions 0, line {line}" for line in (0, 1, 2, "again")),
        "own-0, sheet",
    ]
    assert np.shape(record["own-0, directions 0, line 0"]["left"]) == (1, 3, 3)
    assert record["own-0, sheet"]["shape"] == [1, 28, 28]
    assert "pixels" in render(record)


def test_the_papers_preset_has_the_papers_sizes():
    assert (PAPER.budgets, PAPER.components, PAPER.pairs) == (figure.PAPER["budgets"], (0,), 1)
    from obrs.experiments.image_gans import load_generator

    layers = [part for part in load_generator("mnist_plain", 0) if isinstance(part, torch.nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in layers] == [(256, 64), (256, 256), (784, 256)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cells": 4}, "cells must be odd, so that one of them is the generator itself, got 4"),
        ({"reach": 0.0}, "reach must be above 0, got 0.0"),
        ({"budgets": (2.0, 5.0)}, "needs a generator, a number of components, and budgets from 1 on"),
        ({"components": (-1,)}, "components must be"),
        ({"generators": ("mnist_plain",)}, "a generator is called name-seed, such as mnist_plain-0, got 'mnist_plain'"),
    ],
)
def test_a_bad_field_is_one_line(changes, said):
    with pytest.raises(InputError, match=said):
        replace(SMOKE, **changes)


def test_a_missing_or_another_generator_is_one_line(generator, tmp_path):
    with pytest.raises(InputError, match=r"there is no mnist_plain-9-generator; there are: .*mnist_plain-0-generator"):
        run(replace(SMOKE, generators=("mnist_plain-9",)))
    said = r"digits-0 must be an mlp_generator of images of shape \[1, 8, 8\].*; it is a conv_generator"
    with pytest.raises(InputError, match=said):
        run(replace(SMOKE, generators=("digits-0",)))
    home = in_folder(tmp_path, generator, np.zeros((400, 1, 14, 14), dtype=np.float32))
    with pytest.raises(InputError, match=r"own-0 must be .* of shape \[1, 14, 14\].*of \[1, 28, 28\]"):
        run(replace(SMOKE, generators=("own-0",), home=home))


def test_without_the_data_set_the_command_that_fetches_it_is_said(tmp_path, monkeypatch):
    from obrs.experiments.image_gans import parts

    monkeypatch.setenv("OBRS_DATA", str(tmp_path))
    parts.cache_clear()
    with pytest.raises(InputError, match="run `obrs data fetch mnist`"):
        run(replace(SMOKE, generators=("mnist_plain-0",)))
