"""Networks of `refit`: pixels that hardly change, frozen layers, and images whose channels come last."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

import obrs
from obrs.errors import InputError
from obrs.models.conv import ConvCritic
from obrs.models.mlp import mlp_critic
from obrs.ratios.evidence import losses, mean_of_means
from obrs.ratios.methods import FineTune, Network, _standardise
from obrs.ratios.refit import load_ratio, refit
from paper.data.images import load

SHIFT = np.array([1.0, -0.5])


def real_samples(n=1000, seed=0):
    return np.random.default_rng(seed).normal(SHIFT, 1.0, (n, 2))


def propose(ids):
    return obrs.normals(ids, 2, seed=5)


def quietly(*arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return refit(*arguments, **options)


@pytest.fixture(scope="module")
def digits():
    found = load("digits")
    both = np.concatenate([found.train, found.test])
    return both[np.random.default_rng(0).permutation(len(both))]


class TestFloor:
    @pytest.mark.parametrize("flat", [True, False])
    def test_a_pixel_that_hardly_changes_does_not_decide(self, digits, flat):
        """The model never draws on the edge, and is off by 0.002 there; real images do, once in a few hundred."""
        images = digits.reshape(-1, 64) if flat else digits
        real, fresh = images[:1000], images[1000:]
        edge = real.std(0) < 0.05

        def model(ids):
            x = real[(obrs.uniforms(ids, seed=0) * len(real)).astype(int)]
            noise = obrs.normals(ids, 64, seed=1).reshape(x.shape).astype(np.float32)
            return np.where(edge, -1 + 0.002 * abs(noise), (x + 0.1 * noise).clip(-1, 1)).astype(np.float32)

        fitted = quietly(real, model, Network("mlp", width=32, waves=0), steps=150, batch_size=256)
        scale = fitted.scorer.module.scale
        assert float(scale.min()) == pytest.approx(0.1 * float(scale.square().mean().sqrt()), rel=0.05)
        real_scores, fake_scores = fitted(fresh), fitted(model(np.arange(len(fresh))))
        assert real_scores.min() > -60  # it was -2406 without a floor
        assert mean_of_means(*losses(real_scores, fake_scores)).value < 0.3  # of images never seen

    def test_columns_of_a_table_keep_their_units(self):
        """Twenty columns whose units differ by a factor of a million, and only the smallest tells anything."""
        units = 10.0 ** -np.linspace(0, 6, 20)
        real = np.random.default_rng(0).normal(size=(1000, 20)) * units
        real[:, -1] += 2 * units[-1]
        fitted = refit(real, lambda ids: obrs.normals(ids, 20, seed=1) * units, Network(width=32), steps=60)
        assert fitted.report.log_loss < 0.55

    def test_a_feature_that_is_almost_dead_does_not_decide(self):
        x = torch.randn(2000, 20, generator=torch.Generator().manual_seed(0))
        x[:, 7] *= 1e-4
        module = nn.Module()
        _standardise(module, x)
        assert float(module.scale[7]) == pytest.approx(0.1, rel=0.05)
        torch.testing.assert_close(module.scale[8:], x.std(0)[8:])

    def test_a_constant_is_divided_by_one(self):
        module = nn.Module()
        _standardise(module, torch.cat([torch.zeros(9, 1), torch.arange(9.0)[:, None]], dim=1))
        assert module.scale[0] == 1
        assert module.scale[1] == torch.arange(9.0).std()


def half_frozen():
    """A network whose first half has batch norm, spectral norm and dropout, all frozen."""
    torch.manual_seed(0)
    norm = nn.utils.parametrizations.spectral_norm
    first = nn.Sequential(norm(nn.Linear(2, 16)), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2))
    net = nn.Sequential(first, nn.Linear(16, 1))
    net[0].requires_grad_(False)
    return net


@pytest.mark.parametrize("method", [FineTune, Network])
class TestFrozen:
    def test_frozen_layers_stay_as_they_are_and_the_others_learn(self, method):
        net = half_frozen()
        fitted = refit(real_samples(), propose, method(net, lr=1e-2), steps=60)
        after = fitted.scorer.module["network"]
        for key, value in net[0].state_dict().items():
            assert torch.equal(after[0].state_dict()[key], value), key
        assert not torch.equal(after[1].weight, net[1].weight)
        assert fitted.report.log_loss < 0.66
        assert [p.requires_grad for p in net[0].parameters()] == [False] * len(list(net[0].parameters()))
        assert net[1].weight.requires_grad
        assert net.training

    def test_a_network_that_is_frozen_as_a_whole_is_trained_as_a_whole(self, method):
        net = mlp_critic(2, width=16).requires_grad_(False)
        fitted = refit(real_samples(), propose, method(net, lr=1e-2), steps=60)
        assert fitted.report.log_loss < 0.62
        assert not any(p.requires_grad for p in net.parameters())


class TestChannelsLast:
    @pytest.mark.parametrize("channels", [1, 3])
    def test_they_get_the_network_of_channels_first(self, channels, tmp_path):
        rng = np.random.default_rng(0)
        real, fake = (rng.normal(m, 1.0, (600, channels, 8, 8)).astype(np.float32) for m in (0.1, 0.0))
        options = {"steps": 10, "batch_size": 64}
        first = refit(real, fake, Network(width=4), **options)
        last = refit(real.transpose(0, 2, 3, 1), fake.transpose(0, 2, 3, 1), Network(width=4), **options)
        assert last.scorer.module["network"].spec["channels"] == channels
        np.testing.assert_allclose(last(real.transpose(0, 2, 3, 1)), first(real), rtol=1e-3, atol=1e-4)
        last.save(tmp_path / "ratio")
        again = load_ratio(tmp_path / "ratio")
        np.testing.assert_array_equal(again(fake.transpose(0, 2, 3, 1)), last(fake.transpose(0, 2, 3, 1)))

    def test_a_critic_of_channels_first_says_what_is_wrong(self):
        images = np.zeros((600, 8, 8, 1), np.float32)
        said = r"cannot take samples of \(8, 8, 1\), whose channels come last: this critic takes images of \(1, 8, 8\)"
        with pytest.raises(InputError, match=said):
            refit(images, images, FineTune(ConvCritic(size=8, width=4)), steps=2)

    def test_what_is_no_image_is_refused(self):
        table = np.zeros((600, 8, 8, 7), np.float32)
        with pytest.raises(
            InputError, match=r'"cnn" needs square images .* or \(side, side, channels\), .* \(8, 8, 7\)'
        ):
            refit(table, table, Network("cnn"), steps=2)


class TestHowMuchThereIs:
    def test_the_report_says_what_a_budget_can_do_at_most(self, tmp_path):
        fitted = refit(real_samples(), propose, Network(width=16, waves=0), steps=60)
        nats = fitted.report.nats
        assert 0.1 < nats < 0.9  # 0.625 is true
        assert fitted.report.room(1.05) == (
            f"K = 1.05 removes at most 0.049 of an estimated {nats:.2g} nats: choose what it is spent on"
        )
        assert str(fitted.report).splitlines()[1] == f"an estimated {nats:.2g} nats, and K = 2 could remove 0.69"
        fitted.save(tmp_path / "ratio")
        assert load_ratio(tmp_path / "ratio").report == fitted.report

    def test_sets_that_hardly_overlap_are_warned_about(self):
        """At 4 standard deviations the loss of the best classifier is 0.06, at 2.5 it is 0.24."""
        for distance, hardly in ((4.0, True), (2.5, False)):
            real = np.random.default_rng(0).normal([distance, 0], 1.0, (1000, 2))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                report = refit(real, propose, Network(width=16, waves=0, lr=1e-2), steps=150).report
            said = [str(w.message) for w in caught if "hardly overlap in what the ratio sees" in str(w.message)]
            assert bool(said) == hardly, report
            assert (report.trouble is not None) == hardly
