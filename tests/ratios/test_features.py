"""Ratios of features: every method, that they are computed once, their files, labels, and what is refused."""

import warnings
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import obrs
from obrs.errors import InputError, InputTypeError, UnknownNameError
from obrs.metrics.features import FEATURES
from obrs.models.classifier import small_classifier
from obrs.models.conv import ConvCritic
from obrs.models.mlp import mlp, mlp_critic
from obrs.ratios.features import Features, classifier_features, critic_features
from obrs.ratios.methods import FineTune, Head, Network
from obrs.ratios.refit import METHODS, load_ratio, refit
from paper.data.images import load

SHIFT = np.array([1.0, -0.5])
QUICK = {"steps": 60, "batch_size": 128}


def real_samples(n=1500, seed=0):
    """Two numbers that are N(SHIFT, 1), and two far away from those of the model, which the features do not see."""
    z = np.random.default_rng(seed).normal(size=(n, 4))
    return z + np.array([*SHIFT, 50.0, -50.0])


def propose(ids):
    return obrs.normals(ids, 4, seed=5)


def first_two(x):
    return x[:, :2]


def exact(x):
    return x[:, :2] @ SHIFT - SHIFT @ SHIFT / 2


def seeded():
    torch.manual_seed(0)
    return mlp_critic(2, width=16)


CASES = {
    "head": Head,
    "fine_tune": lambda: FineTune(seeded(), lr=1e-2),
    "network": lambda: Network(width=16, layers=2, waves=0),
}


@pytest.fixture(scope="module")
def fits():
    return {name: refit(real_samples(), propose, make(), features=first_two, **QUICK) for name, make in CASES.items()}


@pytest.mark.parametrize("name", list(METHODS))
class TestEveryMethod:
    def test_finds_the_ratio_of_the_features_and_nothing_else(self, name, fits):
        x = propose(np.arange(4000))
        found = fits[name](x)
        assert np.corrcoef(found, exact(x))[0, 1] > 0.9
        x[:, 2:] += 50
        np.testing.assert_array_equal(fits[name](x), found)
        assert fits[name].shape == (4,)

    def test_is_used_like_any_other_ratio(self, name, fits):
        kept = obrs.sample(propose, fits[name], 300, budget=3)
        assert 0.25 < kept.x[:, 0].mean() < 1.2  # 0 ± 0.06 without rejection, 1 in the data
        assert kept.x.shape == (300, 4)

    def test_is_read_from_a_file_if_the_features_are_given(self, name, fits, tmp_path):
        path = tmp_path / "ratio.safetensors"
        fits[name].save(path)
        network = mlp_critic(2, width=16) if name == "fine_tune" else None
        with pytest.raises(
            InputError,
            match=r"^this ratio was fitted on features of your own; pass load_ratio\(path, features=\.\.\.\)$",
        ):
            load_ratio(path, network=network)
        again = load_ratio(path, network=network, features=first_two)
        x = propose(np.arange(50))
        np.testing.assert_array_equal(again(x), fits[name](x))
        with pytest.raises(InputError, match="network or features given are not those of"):
            load_ratio(path, network=network, features=lambda x: x[:, 2:] - 9)


class Watched(nn.Module):
    """A module with dropout that remembers what it was called with."""

    seen: ClassVar[list] = []

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))

    def forward(self, x):
        self.seen.append((x, self.training, torch.is_grad_enabled()))
        return self.body(x)


class TestOnce:
    def test_each_real_sample_is_looked_at_once_without_gradient_in_evaluation_mode(self):
        Watched.seen = []
        phi, real = Watched(), real_samples()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            refit(real, propose, Network(width=8, layers=1, waves=0), features=phi, steps=40, batch_size=128)
        rows = torch.cat([x for x, *_ in Watched.seen])
        assert int((rows[:, 2] > 25).sum()) == len(real)
        assert not any(training or grad for _, training, grad in Watched.seen)
        assert max(len(x) for x, *_ in Watched.seen) <= 512
        assert phi.training  # the copy was used, not this one
        assert all(p.requires_grad for p in phi.parameters())

    def test_training_a_network_further_does_not_change_the_ratio(self):
        phi = Watched()
        for features in (phi, phi.forward):  # a method brings its module along
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = refit(real_samples(), propose, Head(), features=features, steps=5)
            x = propose(np.arange(20))
            before = fitted(x)
            with torch.no_grad():
                phi.body[0].weight.add_(1.0)
            np.testing.assert_array_equal(fitted(x), before)

    def test_samples_that_require_a_gradient_get_one_through_the_features(self, fits):
        x = torch.from_numpy(propose(np.arange(6))).requires_grad_()
        (slope,) = torch.autograd.grad(fits["head"](x).sum(), x)
        assert slope[:, :2].abs().min() > 0
        assert slope[:, 2:].abs().max() == 0
        assert not fits["head"](x.detach()).requires_grad

    def test_a_checkpoint_knows_its_features(self, tmp_path):
        options = {"steps": 5, "checkpoint": tmp_path / "fit"}
        first = refit(real_samples(), propose, Head(), features=first_two, **options)
        again = refit(real_samples(), propose, Head(), features=first_two, **options)
        x = propose(np.arange(9))
        np.testing.assert_array_equal(first(x), again(x))
        with pytest.raises(InputError, match=r"is of another fit \(.*features.*\)"):
            refit(real_samples(), propose, Head(), features=squares, **options)

    def test_features_of_numpy_and_of_no_samples_will_do(self):
        fitted = refit(real_samples(), propose, Head(), features=lambda x: np.asarray(x)[:, :2] ** 3, steps=5)
        assert fitted(propose(np.arange(3))).dtype == np.float64
        assert fitted(np.zeros((0, 4))).shape == (0,)


def squares(x):
    return x[:, :2] ** 2


@pytest.fixture(scope="module")
def digits():
    return load("digits").train


class TestNames:
    def test_a_name_is_saved_with_the_ratio(self, digits, tmp_path):
        fitted = named(digits[700:])
        path = tmp_path / "ratio.safetensors"
        fitted.save(path)
        loaded = load_ratio(path)
        np.testing.assert_array_equal(loaded(digits[:30]), fitted(digits[:30]))
        features = torch.as_tensor(FEATURES["gradients"](digits[:30]))
        np.testing.assert_allclose(fitted(digits[:30]), fitted.scorer(features), rtol=1e-5, atol=1e-4)

    def test_integers_and_channels_that_come_last_are_the_same_images(self, digits):
        images = np.round((digits[:, 0, :, :, None] + 1) * 127.5).astype(np.uint8)
        fitted = named(images[700:])
        floats = images[:30].transpose(0, 3, 1, 2) / np.float32(127.5) - 1
        features = torch.as_tensor(FEATURES["gradients"](floats))
        np.testing.assert_allclose(fitted(images[:30]), fitted.scorer(features), rtol=1e-3, atol=1e-3)

    def test_other_floats_are_refused(self, digits):
        with pytest.raises(
            InputError, match=r"^gradients takes uint8, or floats in \[-1, 1\], real has .* -255 to 255$"
        ):
            named(digits[700:] * 255)

    def test_an_extractor_itself_will_do(self, digits):
        fitted = refit(digits[700:], digits[:700] * 0.8, Head(), features=FEATURES["gradients"], steps=3)
        assert fitted.features.name == "gradients"


def named(real):
    dimmed = (real * 0.8).astype(real.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return refit(real, dimmed, Head(), features="gradients", steps=20, batch_size=64, held_out=0.2)


class TestClassifierFeatures:
    def test_they_are_saved_with_the_ratio_and_the_seed_decides_them(self, digits, tmp_path):
        labels = load("digits").train_labels
        first, again, other = (classifier_features(digits[:200], labels[:200], seed=seed) for seed in (3, 3, 4))
        x = torch.as_tensor(digits[:5])
        assert torch.equal(first(x), again(x))
        assert not torch.equal(first(x), other(x))
        for features, length in ((first, 10), (first.features, 128), (critic_features(first), 128)):
            fitted = refit(digits[700:], digits[:700] * 0.9, Head(), features=features, steps=3)
            fitted.save(tmp_path / "ratio")
            loaded = load_ratio(tmp_path / "ratio")
            np.testing.assert_array_equal(loaded(digits[:9]), fitted(digits[:9]))
            assert loaded.features.length == length

    def test_bad_input_gets_one_clear_line(self, digits):
        for arguments, message in [
            ((3, 4), "images must be float images of shape .* got int"),
            ((digits[:, 0], 4), r"images must be .* got shape \(1500, 8, 8\)"),
            ((digits, 4), "labels must be 1500 integers, one per image, got int"),
            ((digits, np.zeros(7, int)), r"labels must be 1500 integers, one per image, got shape \(7,\)"),
            ((digits, np.full(1500, -1)), ".* one per image, from 0 on; got -1"),
            ((digits, np.full(1500, "a")), ".* one per image, got <U1; number them with .*"),
            ((digits[:0], np.zeros(0, int)), "images must be at least one, got none"),
        ]:
            with pytest.raises((InputError, InputTypeError), match=f"^{message}$"):
                classifier_features(*arguments)


class TestLabels:
    def test_features_are_of_the_sample_and_labels_pass_as_they_are(self):
        label = np.arange(1500) % 3

        def labelled(ids):
            x = propose(ids)
            return {"image": x, "label": np.asarray(ids) % 3}

        real = real_samples()
        real[:, 0] += 2 * label
        method = Network(width=32, layers=2, waves=0, lr=1e-2)
        fitted = refit({"image": real, "label": label}, labelled, method, features=first_two, **QUICK)
        x = np.zeros((3, 4))
        low, _, high = fitted({"image": x, "label": np.arange(3)})
        assert low > high + 1  # label 2 has its real samples further away
        kept = obrs.sample(labelled, fitted, 50, budget=2)
        assert kept.x["image"].shape == (50, 4)

    def test_features_may_take_the_label(self):
        label = np.arange(1500) % 2
        fitted = refit(
            (real_samples(), label),
            lambda ids: (propose(ids), np.asarray(ids) % 2),
            Head(),
            features=lambda x, y: x[:, :2] * (1 + y[:, None]),
            steps=20,
        )
        assert fitted((np.ones((2, 4)), np.array([0, 1]))).shape == (2,)


class TestCriticFeatures:
    def test_a_method_called_features_is_taken(self):
        x = torch.zeros(5, 1, 8, 8)
        net, conditional = small_classifier(8, features=12), ConvCritic(size=8, width=4, classes=3)
        torch.testing.assert_close(critic_features(net)(x), net.eval().features(x))
        assert critic_features(conditional)(x).shape == conditional.features(x).shape  # without labels
        assert not critic_features(conditional).takes_label

    def test_a_part_called_features_is_not(self):
        class Vgg(nn.Module):
            def __init__(self):
                super().__init__()
                self.features, self.classifier = nn.Linear(2, 7), nn.Linear(7, 1)

            def forward(self, x):
                return self.classifier(torch.relu(self.features(x)))

        found = critic_features(Vgg())(torch.linspace(-9, 9, 40).reshape(20, 2))
        assert (found.shape, float(found.min())) == ((20, 7), 0.0)  # after relu

    def test_it_moves_with_the_ratio(self):
        moved = Features(critic_features(small_classifier(8)), length=64).to("meta")
        assert next(moved.compute.critic.parameters()).device.type == "meta"
        assert next(Features(mlp((2, 1))).to("meta").compute.parameters()).device.type == "meta"
        assert Features(first_two).to("meta").compute is first_two


def short(x):
    return x[1:, :2]


def with_nan(x):
    return torch.where(x[:, :2] > 3, torch.nan, x[:, :2])


def changing(x):
    return x[:, : 2 if len(x) > 3 and bool((x[:, 2] > 25).any()) else 3]


BAD = {
    "wrong length": ({"features": short}, InputError, r"features must have shape \(512, k\), got \(511, 2\)"),
    "flat": ({"features": lambda x: x[:, 0]}, InputError, r"got \(512,\); for those of a critic use critic_features"),
    "NaN": ({"features": with_nan}, InputError, r"features of real has \d+ NaN or infinite among 3000 values"),
    "NaN of fakes": (
        {"features": lambda x: torch.where(x[:, 2:] < 0.1, torch.nan, x[:, :2] + 0 * x[:, 2:].abs())},
        InputError,
        "NaN or infinite among",
    ),
    "NaN of one fake in a thousand": (
        {"features": lambda x: torch.where((x[:, 2:3] < 25) & (x[:, :1].abs() < 1e-3), torch.nan, x[:, :2])},
        InputError,
        r"features of propose has \d+ NaN or infinite among",
    ),
    "another number in another batch": (
        {"features": lambda x: x[:, : 2 if len(x) == 512 else 3]},
        InputError,
        "as many numbers for every sample, got 2 and 3 in different batches",
    ),
    "another number": ({"features": changing}, InputError, "features must have 2 numbers per sample, as before, got 3"),
    "no array": ({"features": lambda x: [1.0]}, InputTypeError, r"must return an array of shape \(512, k\), got list"),
    "a number": ({"features": 3}, InputTypeError, "a callable, a torch module or a name, one of gradients, .* got int"),
    "a class": ({"features": nn.Linear}, InputTypeError, "got the class Linear"),
    "no such name": (
        {"features": "gradient"},
        UnknownNameError,
        "unknown features 'gradient'; did you mean 'gradients'",
    ),
    "another shape": (
        {"features": nn.Linear(3, 2)},
        InputError,
        r"features cannot take samples of shape \(4,\): mat1 and mat2 shapes cannot be multiplied",
    ),
    "elsewhere": ({"features": nn.Linear(4, 2).to("meta")}, InputError, "features are not on cpu, .* move one"),
    "a critic of samples": (
        {"method": FineTune(mlp_critic(4)), "features": first_two},
        InputError,
        r"with features=first_two the critic gets features of shape \(2,\), not samples, and cannot take them",
    ),
    "a head on nothing": (
        {"method": Head(), "features": None},
        InputError,
        r"a head needs features, got none: use Head",
    ),
    "a head by name": ({"method": "head", "features": None}, InputError, "a head needs features, got none"),
    "features twice": (
        {"method": Head(squares), "features": first_two},
        InputError,
        r"a head needs features, got two: use Head\(\) with refit\(\.\.\., features=\.\.\.\)",
    ),
    "labels for features": (
        {"features": lambda x, y: x},
        InputError,
        r"features take labels, \(x, label\): give real as a tuple",
    ),
    "too few labels": (
        {"real": (real_samples(), np.zeros(7, int)), "features": first_two},
        InputError,
        "real has 1500 samples and 7 labels; give one label per sample",
    ),
    "labels on one side": (
        {"real": (real_samples(), np.zeros(1500, int)), "features": first_two},
        InputTypeError,
        r"real is a tuple \(x, label\) and propose is an array; make them alike",
    ),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_gets_one_clear_line(case):
    change, error, message = BAD[case]
    arguments = {"real": real_samples(), "propose": propose, "method": Network(width=8), "steps": 3} | change
    with pytest.raises(error, match=message) as caught:
        refit(**arguments)
    assert "\n" not in str(caught.value)
