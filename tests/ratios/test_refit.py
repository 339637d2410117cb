"""Refits: every method on problems with a known answer, with and without labels, their files, and what is refused."""

import os
from math import log

import numpy as np
import pytest
import torch
from torch import nn

import obrs
from obrs.errors import InputError, InputTypeError
from obrs.models.conv import ConvCritic
from obrs.models.mlp import mlp, mlp_critic
from obrs.ratios import evidence
from obrs.ratios.refit import METHODS, FineTune, Head, Network, load_ratio, refit
from paper.toys import Mixture, grid25

SHIFT = np.array([1.0, -0.5])


def squares(x):
    return torch.cat([x, x * x], dim=1)


def critic():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return mlp_critic(2, width=32, layers=2)


# One instance of every method, small enough for a test.
CASES = {
    "head": (Head, {"features": squares}),
    "fine_tune": (lambda: FineTune(critic()), {}),
    "network": (lambda: Network(width=32, layers=2, waves=8), {}),
}


def real_samples(n=3000, seed=0):
    """N(SHIFT, 1) against a model N(0, 1): the log-ratio is linear."""
    return np.random.default_rng(seed).normal(SHIFT, 1.0, (n, 2))


def propose(ids):
    return obrs.normals(ids, 2, seed=5)


def exact(x):
    return x @ SHIFT - SHIFT @ SHIFT / 2


def fit(name, **options):
    make, given = CASES[name]
    return refit(real_samples(), propose, make(), **given, **{"steps": 150, "batch_size": 256} | options)


@pytest.fixture(scope="module")
def fits():
    return {name: fit(name) for name in CASES}


def log_loss(ratio, real, fake):
    return evidence.log_loss(ratio(real), ratio(fake)).value


class TestEveryMethod:
    pytestmark = pytest.mark.parametrize("name", list(METHODS))

    def test_finds_most_of_what_can_be_known(self, name, fits):
        assert isinstance(CASES[name][0](), METHODS[name])
        real, fake = real_samples(20000, seed=1), propose(np.arange(20000))
        best = log_loss(exact, real, fake)
        assert log_loss(fits[name], real, fake) - best < 0.2 * (log(2) - best)  # four fifths of the information
        spread = np.exp(exact(fake)).std() / 3000**0.5  # as of the real samples it knows
        assert abs(np.exp(fits[name](fake)).mean() - 1) < 4 * spread

    def test_answers_in_kind(self, name, fits):
        x = real_samples(7)
        x[3, 1] = np.nan
        answer = fits[name](x)
        assert (type(answer), answer.dtype, answer.shape) == (np.ndarray, np.float64, (7,))
        assert np.isnan(answer).tolist() == [False, False, False, True, False, False, False]
        assert fits[name](x.astype(np.float32)).dtype == np.float32
        tensor = fits[name](torch.from_numpy(x))
        assert (tensor.dtype, tensor.requires_grad) == (torch.float64, False)
        np.testing.assert_array_equal(tensor, answer)
        assert fits[name](x[:0]).shape == (0,)
        many = real_samples(9000)  # more than a block
        np.testing.assert_allclose(fits[name](many)[[0, 8999]], fits[name](many[[0, 8999]]), atol=1e-5)

    def test_the_seed_decides_everything(self, name, fits):
        x, state = real_samples(50), torch.random.get_rng_state()
        again, other = fit(name), fit(name, seed=1)
        assert torch.equal(torch.random.get_rng_state(), state)
        np.testing.assert_array_equal(again(x), fits[name](x))
        assert not np.array_equal(other(x), fits[name](x))

    def test_a_file_brings_it_back(self, name, fits, tmp_path):
        fits[name].save(tmp_path / "ratio.safetensors")
        again = load_ratio(tmp_path / "ratio.safetensors", **CASES[name][1])
        np.testing.assert_array_equal(again(real_samples(50)), fits[name](real_samples(50)))
        assert again.report == fits[name].report
        assert os.listdir(tmp_path) == ["ratio.safetensors"]


class TestSamplesOfAFit:
    def requests(self, **options):
        requested = []

        def watch(ids):
            requested.append(np.asarray(ids))
            return propose(ids)

        refit(real_samples(), watch, **options)
        return requested

    def test_every_step_gets_fakes_that_nobody_has_seen(self):
        batches = self.requests(method=Network(width=8, layers=1), steps=40, batch_size=64)
        training = [ids for ids in batches if len(ids) == 64 and ids[0] >= 2**40][-40:]
        assert len(np.unique(np.concatenate(training))) == 40 * 64
        held_out = np.unique(np.concatenate([ids for ids in batches if ids[0] < 2**40]))
        assert len(held_out) == 300
        assert not np.isin(held_out, np.concatenate(training)).any()
        assert max(map(len, batches)) == 64

    def test_fakes_may_come_as_an_array_of_another_size(self):
        fitted = refit(real_samples(), propose(np.arange(9000)), Head(), features=squares, steps=300)
        ratio = np.exp(fitted(propose(np.arange(10**6, 10**6 + 20000))))
        assert abs(ratio.mean() - 1) < 0.1  # uncorrected, three times as many fakes would make it 1/3

    @pytest.mark.parametrize(("distance", "words"), [(100, "separates"), (4.0, "hardly overlap"), (2.5, None)])
    def test_sets_that_hardly_meet_are_warned_about(self, distance, words, recwarn):
        """At 4 standard deviations the loss of the best classifier is 0.06, at 2.5 it is 0.24."""
        real = np.random.default_rng(0).normal([distance, 0], 1.0, (1000, 2))
        report = refit(real, propose, Network(width=16, waves=0, lr=1e-2), steps=150).report
        messages = [str(w.message) for w in recwarn]
        assert messages == ([] if words is None else [report.trouble])
        assert words is None or words in messages[0]


class TestSeveralFits:
    def test_the_mean_of_three_varies_less_than_one(self):
        options = {"steps": 150, "batch_size": 64, "held_out": 0.2}
        method, fake = Network(width=64, waves=8), propose(np.arange(1000))
        single = [refit(real_samples(1000), fake, method, seed=seed, **options) for seed in range(3)]
        three = [refit(real_samples(1000), fake, method, seed=seed, fits=3, **options) for seed in (10, 20, 30)]
        x = propose(np.arange(10_000, 14_000))
        errors = [[np.mean((ratio(x) - exact(x)) ** 2) for ratio in some] for some in (single, three)]
        assert np.mean(errors[1]) < np.mean(errors[0])
        spread = np.std([ratio(x) for ratio in single], axis=0, ddof=1)
        assert three[0].report.spread == pytest.approx(np.sqrt(np.mean(spread**2)), rel=0.6)
        assert single[0].report.spread is None
        assert "mean of 3 fits, which differ by" in str(three[0].report)


class TestHead:
    def test_descent_comes_to_a_logistic_regression(self):
        from sklearn.linear_model import LogisticRegression

        real, fake = real_samples(), propose(np.arange(20000))
        fitted = refit(real, fake, Head(), features=squares, steps=600, batch_size=512)
        x = np.concatenate([real, fake])
        best = LogisticRegression(C=1e6, class_weight="balanced", tol=1e-10, max_iter=1000)
        best.fit(np.c_[x, x * x], np.repeat([1, 0], [len(real), 20000]))
        x = real_samples(1000, seed=4)
        gap = fitted(x) - best.decision_function(np.c_[x, x * x])
        assert np.sqrt(np.mean(gap**2)) < 3 * (5 / 2700) ** 0.5  # five numbers known from 2700 real samples


class Hinged(nn.Module):
    """A critic with spectral norm of either style, dropout and an output (n, 1), as users have them."""

    def __init__(self, norm):
        super().__init__()
        self.body = nn.Sequential(norm(nn.Linear(2, 32)), nn.ReLU(), nn.Dropout(0.1), norm(nn.Linear(32, 1)))

    def forward(self, x):
        return 3 * self.body(x)


def half_frozen():
    """A network whose first half has batch norm, spectral norm and dropout, all frozen."""
    torch.manual_seed(0)
    norm = nn.utils.parametrizations.spectral_norm
    first = nn.Sequential(norm(nn.Linear(2, 16)), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2))
    net = nn.Sequential(first, nn.Linear(16, 1))
    net[0].requires_grad_(False)
    return net


class TestNetworksOfYourOwn:
    @pytest.mark.parametrize("norm", [nn.utils.parametrizations.spectral_norm, nn.utils.spectral_norm])
    def test_a_critic_becomes_a_log_ratio_and_stays_what_it_was(self, norm):
        torch.manual_seed(0)
        net = Hinged(norm)
        before = {key: value.clone() for key, value in net.state_dict().items()}
        fitted = refit(real_samples(), propose, FineTune(net, lr=1e-2), steps=200, batch_size=256)
        assert net.training
        assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
        assert fitted.report.log_loss < dict(fitted.report.history)[0]  # the critic as it came, read as a logit
        x = propose(np.arange(5000))
        assert abs(np.polyfit(exact(x), fitted(x), 1)[0] - 1) < 0.15

    def test_frozen_layers_stay_as_they_are_and_a_frozen_network_is_trained(self):
        net = half_frozen()
        fitted = refit(real_samples(1000), propose, FineTune(net, lr=1e-2), steps=60, batch_size=512)
        after = fitted.networks[0].network
        for key, value in net[0].state_dict().items():
            assert torch.equal(after[0].state_dict()[key], value), key
        assert not torch.equal(after[1].weight, net[1].weight)
        whole = critic().requires_grad_(False)
        assert refit(real_samples(), propose, FineTune(whole, lr=1e-2), steps=60).report.log_loss < 0.62
        assert not any(p.requires_grad for p in whole.parameters())

    def test_a_file_needs_the_network(self, tmp_path):
        network = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
        fitted = refit(real_samples(), propose, FineTune(network), steps=20)
        fitted.save(tmp_path / "ratio")
        with pytest.raises(InputError, match=r"network of your own, Sequential; pass load_ratio\(path, network="):
            load_ratio(tmp_path / "ratio")
        with pytest.raises(InputError, match=r"network.0.weight has shape \(16, 2\) there and shape \(8, 2\) here$"):
            load_ratio(tmp_path / "ratio", network=nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)))
        np.testing.assert_array_equal(
            load_ratio(tmp_path / "ratio", network=network)(real_samples(9)), fitted(real_samples(9))
        )


class TestNetwork:
    def test_images_get_a_convolutional_network_wherever_their_channels_are(self, tmp_path):
        rng = np.random.default_rng(0)
        real, fake = (rng.normal(m, 1.0, (600, 3, 8, 8)).astype(np.float32) for m in (0.1, 0.0))
        first = refit(real, fake, Network(width=4), steps=10, batch_size=64)
        last = refit(*(x.transpose(0, 2, 3, 1) for x in (real, fake)), Network(width=4), steps=10, batch_size=64)
        assert type(first.networks[0].network) is ConvCritic
        np.testing.assert_allclose(last(real.transpose(0, 2, 3, 1)), first(real), rtol=1e-3, atol=1e-4)
        last.save(tmp_path / "ratio")
        x = fake.transpose(0, 2, 3, 1)
        np.testing.assert_array_equal(load_ratio(tmp_path / "ratio")(x), last(x))

    def test_columns_of_a_table_keep_their_units(self):
        """Twenty columns whose units differ by a factor of a million, and only the smallest tells anything."""
        units = 10.0 ** -np.linspace(0, 6, 20)
        real = np.random.default_rng(0).normal(size=(1000, 20)) * units
        real[:, -1] += 2 * units[-1]
        fitted = refit(real, lambda ids: obrs.normals(ids, 20, seed=1) * units, Network(width=32), steps=60)
        assert fitted.report.log_loss < 0.55

    def test_thin_modes_are_found(self):
        """A quarter of the plane's 25 Gaussians would be missed by a network without waves in so few steps."""
        target = grid25().standardise()
        wide = Mixture(target.means, 4 * target.sigma)
        real, test = target.sample(20000, seed=1), wide.sample(20000, seed=2)
        truth = target.log_prob(test) - wide.log_prob(test)

        def share_kept_of_the_best(log_ratio):
            log_a = obrs.Budgeted.fit(log_ratio, 8)(log_ratio)
            return np.exp(log_a)[truth > 0].sum() / np.exp(log_a).sum()

        args = {"real": real, "propose": lambda ids: wide.sample(len(ids), seed=int(ids[0])), "steps": 300}
        fitted, plain = (refit(**args, method=Network(width=64, waves=waves)) for waves in (64, 0))
        assert share_kept_of_the_best(fitted(test)) > 0.9 * share_kept_of_the_best(truth)
        assert share_kept_of_the_best(plain(test)) < 0.7 * share_kept_of_the_best(truth)


# Samples with labels

LABELS = np.array([3, 7, 40])  # neither from 0 on nor without gaps
SHARES = {"real": [0.2, 0.3, 0.5], "fake": [0.5, 0.3, 0.2]}
MOVES = np.array([1.2, -1.2, 0.0])  # of the real samples of each label; the model makes N(0, 1) for all


def labels_of(u, kind):
    return LABELS[np.searchsorted(np.cumsum(SHARES[kind])[:-1], u, side="right")]


def labelled_real(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    label = labels_of(rng.uniform(size=n), "real")
    return rng.normal(MOVES[np.searchsorted(LABELS, label)][:, None], 1.0, (n, 1)), label


def propose_labelled(ids):
    return obrs.normals(ids, 1, seed=5), labels_of(obrs.uniforms(ids, seed=6), "fake")


def exact_labelled(batch):
    """Return log p(x, y) - log q(x, y)."""
    code = np.searchsorted(LABELS, batch[1])
    prior = np.log(SHARES["real"]) - np.log(SHARES["fake"])
    return batch[0][:, 0] * MOVES[code] - MOVES[code] ** 2 / 2 + prior[code]


class Critic(nn.Module):
    """D(x, y) with a vector for each label."""

    def __init__(self):
        super().__init__()
        self.embed, self.body = nn.Embedding(41, 4), mlp((5, 32, 1))

    def forward(self, x, y):
        return self.body(torch.cat([x, self.embed(y)], dim=1))


def products(x, y):
    return x * (y[:, None] == torch.as_tensor(LABELS)).float()


LABELLED = {
    "head": (Head, {"features": products}),
    "fine_tune": (lambda: FineTune(Critic(), lr=1e-2), {}),
    "network": (lambda: Network(width=32, layers=2, waves=0, lr=1e-2), {}),
}


@pytest.fixture(scope="module")
def labelled_fits():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return {
            name: refit(labelled_real(), propose_labelled, make(), **given, steps=150, batch_size=256)
            for name, (make, given) in LABELLED.items()
        }


class TestLabels:
    @pytest.mark.parametrize("name", list(METHODS))
    def test_the_ratio_is_that_of_samples_and_labels_together(self, name, labelled_fits, tmp_path):
        real, fake = labelled_real(8000, seed=1), propose_labelled(np.arange(8000))
        best = log_loss(exact_labelled, real, fake)
        assert log_loss(labelled_fits[name], real, fake) - best < 0.2 * (log(2) - best)
        mixed = [(x, np.roll(label, 1)) for x, label in (real, fake)]  # labels of their neighbours
        assert log_loss(labelled_fits[name], *mixed) > log(2) - 0.5 * (log(2) - best)
        labelled_fits[name].save(tmp_path / "ratio")
        again = load_ratio(tmp_path / "ratio", network=Critic(), **LABELLED[name][1])
        np.testing.assert_array_equal(again(labelled_real(9)), labelled_fits[name](labelled_real(9)))
        kept = obrs.sample(propose_labelled, labelled_fits[name], 500, budget=2)
        assert kept.x[1].tolist().count(40) / 500 > 0.3  # 0.2 of the proposals, 0.5 of the data


class TestCalibrationByClass:
    def biased_ratio(self):
        """A ratio that is right but for a factor in each class, as a critic of one logit leaves it."""
        fitted = refit(labelled_real(), propose_labelled, LABELLED["network"][0](), steps=150, batch_size=256)
        with torch.no_grad():
            network = fitted.networks[0].network
            network[1].weight[:, -3:] += torch.tensor([0.3, -0.2, 0.1])
        return fitted

    def test_class_means_become_the_quotients_of_the_shares(self, tmp_path):
        """On a pool of proposals E_Q[r | y] = p(y) / q(y), here p(y) of the real samples and q(y) of the pool."""
        biased, pool = self.biased_ratio(), propose_labelled(np.arange(20_000))
        even = biased.calibrate_classes(pool)
        r, label = np.exp(even(pool).astype(float)), pool[1]
        p = np.bincount(np.searchsorted(LABELS, labelled_real()[1])) / 2000
        for code, y in enumerate(LABELS):
            assert r[label == y].mean() == pytest.approx(p[code] / (label == y).mean(), rel=0.05)
        assert r.mean() == pytest.approx(1, rel=0.01)
        raw = np.exp(biased(pool).astype(float))
        assert max(abs(np.log(raw[label == y].mean() / r[label == y].mean())) for y in LABELS) > 0.02
        even.save(tmp_path / "ratio")
        np.testing.assert_array_equal(load_ratio(tmp_path / "ratio")(pool), even(pool))
        np.testing.assert_allclose(even.calibrate_classes(pool)(pool), even(pool), atol=1e-5)

    def test_few_samples_are_warned_about_and_ratios_without_labels_refused(self, fits):
        with pytest.warns(UserWarning, match="rests on few samples for the labels 3, .* one constant per class"):
            self.biased_ratio().calibrate_classes(propose_labelled(np.arange(40)))
        with pytest.raises(InputError, match="fitted without labels: there are no classes"):
            fits["network"].calibrate_classes(propose(np.arange(9)))


class TestFiles:
    def test_features_must_be_given_again_and_others_are_noticed(self, fits, tmp_path):
        fits["head"].save(tmp_path / "head")
        with pytest.raises(InputError, match=r"features of your own; pass load_ratio\(path, features=...\)"):
            load_ratio(tmp_path / "head")
        with pytest.raises(InputError, match=r"features given are not those of .* scores differ by up to"):
            load_ratio(tmp_path / "head", features=lambda x: torch.cat([x * x, x], dim=1))


def spoil(x):
    x = x.copy()
    x[3, 1], x[7, 0], x[8, 0] = np.nan, np.nan, np.inf
    return x


X, Y = labelled_real()
BAD = {
    "NaN in real": ({"real": spoil(real_samples())}, InputError, "real has 3 NaN or infinite among 6000 values"),
    "shapes": (
        {"propose": lambda ids: np.zeros((len(ids), 3))},
        InputError,
        r"real has samples of shape \(2,\) and propose of \(3,\)",
    ),
    "integers": (
        {"real": np.zeros((500, 2), np.uint8)},
        InputTypeError,
        "real has dtype torch.uint8 and propose torch.float64: this alone would tell them apart",
    ),
    "labels on one side": (
        {"real": (X, Y), "propose": lambda ids: propose_labelled(ids)[0]},
        InputTypeError,
        "make them alike",
    ),
    "unknown labels": (
        {"real": (X, Y), "propose": lambda ids: (propose_labelled(ids)[0], propose_labelled(ids)[1] + 1)},
        InputError,
        "propose has labels that real never has, such as .*; real has 3 labels, 3 to 40",
    ),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_gets_one_clear_line(case):
    change, error, message = BAD[case]
    arguments = {"real": real_samples(), "propose": propose, "method": Network(width=8), "steps": 3} | change
    with pytest.raises(error, match=message) as caught:
        refit(**arguments)
    assert "\n" not in str(caught.value)
