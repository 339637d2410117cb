"""Ratios of features: what they see, that they are computed once, their files, labels, and what is refused."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import obrs
from obrs.errors import InputError
from obrs.metrics.features import FEATURES
from obrs.models.classifier import Classifier
from obrs.models.conv import ConvCritic
from obrs.models.mlp import mlp_critic
from obrs.ratios.features import classifier_features, critic_features, probe_features
from obrs.ratios.refit import METHODS, FineTune, Head, Network, load_ratio, refit
from paper.data.images import load

SHIFT = np.array([1.0, -0.5])
QUICK = {"steps": 60, "batch_size": 128}


def real_samples(n=1500, seed=0):
    """Two numbers that are N(SHIFT, 1), and two far away from those of the model, which the features do not see."""
    return np.random.default_rng(seed).normal(size=(n, 4)) + np.array([*SHIFT, 50.0, -50.0])


def propose(ids):
    return obrs.normals(ids, 4, seed=5)


def first_two(x):
    return x[:, :2]


def make_critic():
    torch.manual_seed(0)
    return mlp_critic(2, width=16)


CASES = {
    "head": Head,
    "fine_tune": lambda: FineTune(make_critic(), lr=1e-2),
    "network": lambda: Network(width=16, layers=2, waves=0),
}


@pytest.mark.parametrize("name", list(METHODS))
def test_a_ratio_of_features_sees_them_and_nothing_else(name, tmp_path):
    fitted = refit(real_samples(), propose, CASES[name](), features=first_two, **QUICK)
    x = propose(np.arange(4000))
    score = fitted(x)
    assert np.corrcoef(score, x[:, :2] @ SHIFT)[0, 1] > 0.9
    x[:, 2:] += 50
    np.testing.assert_array_equal(fitted(x), score)
    kept = obrs.sample(propose, fitted, 300, budget=3)
    assert 0.25 < kept.x[:, 0].mean() < 1.2  # 0 ± 0.06 without rejection, 1 in the data
    fitted.save(tmp_path / "ratio")
    np.testing.assert_array_equal(load_ratio(tmp_path / "ratio", features=first_two)(x), score)
    differentiable = torch.from_numpy(x[:6]).requires_grad_()
    (slope,) = torch.autograd.grad(fitted(differentiable).sum(), differentiable)
    assert slope[:, :2].abs().min() > 0
    assert slope[:, 2:].abs().max() == 0


class Watched(nn.Module):
    """A module with dropout that remembers what it was called with."""

    seen: ClassVar[list] = []

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5))

    def forward(self, x):
        self.seen.append((x, self.training, torch.is_grad_enabled()))
        return self.body(x)


@pytest.mark.filterwarnings("ignore:the classifier separates", "ignore:the two sets hardly")
def test_each_real_sample_is_looked_at_once_by_a_copy_in_evaluation_mode():
    Watched.seen = []
    phi, real = Watched(), real_samples()
    fitted = refit(real, propose, Network(width=8, layers=1, waves=0), features=phi, steps=40, batch_size=128)
    rows = torch.cat([x for x, *_ in Watched.seen])
    assert int((rows[:, 2] > 25).sum()) == len(real)
    assert not any(training or grad for _, training, grad in Watched.seen)
    assert max(len(x) for x, *_ in Watched.seen) <= 512
    assert phi.training
    x = propose(np.arange(20))
    before = fitted(x)
    with torch.no_grad():
        phi.body[0].weight.add_(1.0)
    np.testing.assert_array_equal(fitted(x), before)


@pytest.fixture(scope="module")
def digits():
    return load("digits").train, load("digits").train_labels


class TestKinds:
    @pytest.mark.filterwarnings("ignore:a ratio on", "ignore:the ")
    def test_a_name_is_saved_and_bytes_with_channels_last_are_the_same_images(self, digits, tmp_path):
        images = np.round((digits[0][:, 0, :, :, None] + 1) * 127.5).astype(np.uint8)
        real, fake = images[700:], (images[700:] * 0.8).astype(np.uint8)
        fitted = refit(real, fake, Head(), features="gradients", steps=20, batch_size=64, held_out=0.2)
        fitted.save(tmp_path / "ratio")
        np.testing.assert_array_equal(load_ratio(tmp_path / "ratio")(images[:30]), fitted(images[:30]))
        floats = images[:30].transpose(0, 3, 1, 2) / np.float32(127.5) - 1
        features = torch.as_tensor(FEATURES["gradients"](floats))
        np.testing.assert_allclose(fitted(images[:30]), fitted.networks[0](features), rtol=1e-3, atol=1e-3)
        with pytest.raises(InputError, match=r"take uint8, or floats in \[-1, 1\], got floats from -255 to 255"):
            refit(digits[0] * 255, digits[0], Head(), features=FEATURES["gradients"], steps=2)

    @pytest.mark.filterwarnings("ignore:a ratio on 128 features")
    def test_a_classifier_is_saved_and_the_seed_decides_it(self, digits, tmp_path):
        images, labels = digits
        first, again, other = (classifier_features(images[:200], labels[:200], seed=seed) for seed in (3, 3, 4))
        x = torch.as_tensor(images[:5])
        assert torch.equal(first(x), again(x))
        assert not torch.equal(first(x), other(x))
        real, fake = (images[700:], labels[700:]), (images[:700] * 0.9, labels[:700])
        for features, length in ((first, 10), (critic_features(first.function), 128)):
            fitted = refit(real[0], fake[0], Head(), features=features, steps=3)
            fitted.save(tmp_path / "ratio")
            np.testing.assert_array_equal(load_ratio(tmp_path / "ratio")(images[:9]), fitted(images[:9]))
            assert features(x).shape == (5, length)
        assert refit(real, fake, Head(), features=first, steps=3)(fake).shape == (700,)  # labels do not disturb it

    def test_a_probe_is_multinomial_regression_on_standardised_features(self, digits, tmp_path):
        from sklearn.linear_model import LogisticRegression

        images, labels = digits
        net = Classifier(8, features=16)
        probe = probe_features(images[:600], labels[:600], critic_features(net), penalty=1e-2)
        x = critic_features(net)(torch.as_tensor(images)).double().numpy()
        z = (x - x[:600].mean(0)) / np.maximum(x[:600].std(0, ddof=1), 1e-6 * x[:600].std())
        best = LogisticRegression(C=1 / (600 * 1e-2), tol=1e-10, max_iter=5000).fit(z[:600], labels[:600])
        logits = probe(torch.as_tensor(images)).double().numpy()
        expected = best.decision_function(z)
        centred = [values - values.mean(1, keepdims=True) for values in (logits, expected)]
        np.testing.assert_allclose(centred[0], centred[1], atol=0.02 * np.abs(centred[1]).max())
        fitted = refit(images[700:], images[:700] * 0.9, Head(), features=probe, steps=3)
        fitted.save(tmp_path / "ratio")
        np.testing.assert_array_equal(load_ratio(tmp_path / "ratio")(images[:9]), fitted(images[:9]))

    @pytest.mark.filterwarnings("ignore:the two sets hardly overlap")
    def test_a_probe_of_a_few_logits_leaves_details_out(self):
        """Forty features differ by a detail that no class depends on; the ratio of the probe does not see it."""
        rng = np.random.default_rng(0)
        labels = rng.integers(4, size=2000)
        x = rng.normal(size=(2000, 40)) + 3 * np.eye(40)[labels]
        detail = np.where(np.arange(40) == 39, 5.0, 0.0)
        probe = probe_features(x[:500], labels[:500], lambda x: x)
        losses = [
            refit(x[500:1200], x[1200:] + detail, Head(lr=0.1), features=f, steps=200).report.log_loss
            for f in (probe, lambda x: x)
        ]
        assert losses[0] > 0.6 > 0.2 > losses[1]

    def test_features_of_a_critic_are_what_its_last_layer_sees(self):
        net, x = mlp_critic(2, width=16, layers=2), torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
        features = critic_features(net)
        np.testing.assert_array_equal(features(x), net[:-2](x).detach())
        assert critic_features(net, "1")(x).shape == (5, 2)
        conditional = ConvCritic(size=8, width=4, classes=3)
        images, label = torch.zeros(5, 1, 8, 8), torch.zeros(5, dtype=torch.int64)
        assert torch.equal(critic_features(conditional)(images, label), conditional.features(images))
        before = features(x).clone()
        with torch.no_grad():
            net[1].weight.zero_()
        assert torch.equal(features(x), before)
