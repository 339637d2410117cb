"""Refits: every method on one problem with a known answer, their files, their checkpoints, and what is refused."""

import os
import signal
import subprocess
import sys
import textwrap
from math import log

import numpy as np
import pytest
import torch
from torch import nn

import obrs
from obrs.errors import InputError, InputTypeError, UnknownNameError
from obrs.models.conv import ConvCritic
from obrs.models.mlp import mlp, mlp_critic
from obrs.ratios.features import critic_features
from obrs.ratios.methods import FineTune, Head, Network
from obrs.ratios.refit import METHODS, load_ratio, refit
from obrs.ratios.task import logistic_loss
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
    "head": lambda: Head(squares),
    "fine_tune": lambda: FineTune(critic()),
    "network": lambda: Network(width=32, layers=2, waves=8),
}


def real_samples(n=3000, seed=0):
    """N(SHIFT, 1) against a model N(0, 1): the log-ratio is linear."""
    return np.random.default_rng(seed).normal(SHIFT, 1.0, (n, 2))


def propose(ids):
    return obrs.normals(ids, 2, seed=5)


def exact(x):
    return x @ SHIFT - SHIFT @ SHIFT / 2


def fit(name, **options):
    return refit(real_samples(), propose, CASES[name](), **{"steps": 150, "batch_size": 256} | options)


@pytest.fixture(scope="module")
def fits():
    return {name: fit(name) for name in CASES}


class TestEveryMethod:
    pytestmark = pytest.mark.parametrize("name", list(METHODS))

    def test_is_tested(self, name):
        assert isinstance(CASES[name](), METHODS[name])

    def test_finds_most_of_what_can_be_known(self, name, fits):
        real, fake = real_samples(20000, seed=1), propose(np.arange(20000))
        losses = []
        for ratio in (fits[name], exact):
            scores = (torch.as_tensor(ratio(x)) for x in (real, fake))
            losses.append(float(logistic_loss(*scores)))
        fitted, best = losses
        assert fitted - best < 0.2 * (log(2) - best)  # four fifths of the information of the exact ratio

    def test_is_a_ratio_with_mean_one_under_the_model(self, name, fits):
        ratio = np.exp(fits[name](propose(np.arange(20000))))
        spread = np.exp(exact(propose(np.arange(20000)))).std() / 3000**0.5  # as of the real samples it knows
        assert abs(ratio.mean() - 1) < 4 * spread

    def test_answers_in_kind(self, name, fits):
        x = real_samples(7)
        answer = fits[name](x)
        assert (type(answer), answer.dtype, answer.shape) == (np.ndarray, np.float64, (7,))
        assert fits[name](x.astype(np.float32)).dtype == np.float32
        tensor = fits[name](torch.from_numpy(x))
        assert (tensor.dtype, tensor.requires_grad) == (torch.float64, False)
        np.testing.assert_array_equal(tensor, answer)
        assert fits[name](x[:0]).shape == (0,)

    def test_has_a_gradient_where_samples_ask_for_one(self, name, fits):
        x = torch.from_numpy(real_samples(7)).requires_grad_()
        score = fits[name](x)
        assert torch.equal(score, fits[name](x.detach()))
        (gradient,) = torch.autograd.grad(score.sum(), x)
        assert gradient.abs().min() > 0
        with torch.no_grad():
            assert not fits[name](x).requires_grad

    def test_a_sample_with_nan_gets_no_number(self, name, fits):
        x = real_samples(7)
        x[3, 1] = np.nan
        assert np.isnan(fits[name](x)).tolist() == [False, False, False, True, False, False, False]

    def test_scores_a_sample_alone_as_in_a_crowd(self, name, fits):
        x = real_samples(9000)  # more than a block
        np.testing.assert_allclose(fits[name](x)[[0, 4100, 8999]], fits[name](x[[0, 4100, 8999]]), atol=1e-5)

    def test_the_seed_decides_everything(self, name, fits):
        x = real_samples(50)
        state, numpy_state = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        again, other = fit(name), fit(name, seed=1)
        assert torch.equal(torch.random.get_rng_state(), state)
        np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
        np.testing.assert_array_equal(again(x), fits[name](x))
        assert not np.array_equal(other(x), fits[name](x))

    def test_a_file_brings_it_back(self, name, fits, tmp_path):
        fits[name].save(tmp_path / "ratio.safetensors")
        again = load_ratio(tmp_path / "ratio.safetensors", features=squares if name == "head" else None)
        x = real_samples(50)
        np.testing.assert_array_equal(again(x), fits[name](x))
        assert again.report == fits[name].report
        assert os.listdir(tmp_path) == ["ratio.safetensors"]

    def test_reports_what_was_done(self, name, fits):
        report = fits[name].report
        assert report.method == METHODS[name].__name__
        assert report.n_real == 2700
        assert report.n_fake >= 2700
        assert report.trouble is None
        assert abs(report.log_loss - 0.57) < 5 * report.standard_error
        assert f"{report.log_loss:.3f}" in str(report)

    def test_a_model_in_torch_gets_a_ratio_in_torch(self, name):
        real = torch.from_numpy(real_samples(1000)).float()
        fitted = refit(real, obrs.proposal(lambda n: torch.randn(n, 2)), CASES[name](), steps=20)
        kept = obrs.sample(obrs.proposal(lambda n: torch.randn(n, 2)), fitted, 100, budget=2)
        assert isinstance(kept.x, torch.Tensor)
        again = refit(real, obrs.proposal(lambda n: torch.randn(n, 2)), CASES[name](), steps=20)
        assert torch.equal(again(kept.x), fitted(kept.x))  # what torch draws in propose is decided, too


class TestSamplesOfAFit:
    def test_every_step_gets_fakes_that_nobody_has_seen(self):
        asked = []

        def watched(ids):
            asked.append(np.asarray(ids))
            return propose(ids)

        refit(real_samples(), watched, Network(width=8, layers=1), steps=40, batch_size=64)
        training = [ids for ids in asked if len(ids) == 64][-40:]
        assert len(np.unique(np.concatenate(training))) == 40 * 64
        held_out = np.concatenate([ids for ids in asked if ids[0] < 2**40])
        assert len(np.unique(held_out)) == 300
        assert not np.isin(held_out, np.concatenate(training)).any()
        assert min(ids.min() for ids in asked) > 10**12 - 10**11  # far from what is sampled later

    def test_no_call_asks_for_more_fakes_than_a_batch(self):
        asked = []

        def watched(ids):
            asked.append(np.asarray(ids))
            return propose(ids)

        refit(real_samples(), watched, Network(width=4, layers=1, waves=0), steps=2, batch_size=200)
        assert max(map(len, asked)) == 200

    def test_the_state_of_torch_is_left_alone(self):
        state = torch.random.get_rng_state()
        model = obrs.proposal(lambda n: torch.randn(n, 2))
        refit(torch.from_numpy(real_samples(1000)).float(), model, Network(width=4), steps=2)
        assert torch.equal(torch.random.get_rng_state(), state)

    def test_real_samples_take_turns_and_held_out_ones_never_come(self):
        from obrs.ratios.task import prepare

        real = np.arange(200.0)[:, None]
        options = {"held_out": 0.25, "seed": 0, "progress": None, "checkpoint": None}
        task = prepare(real, real, steps=1, batch_size=60, **options)
        seen = torch.cat([task.real.batch(step, 60) for step in range(5)])[:, 0]  # two epochs of 150
        counts = torch.bincount(seen.long(), minlength=200)
        held = task.held_real[:, 0].long()
        assert len(held) == 50
        assert (counts[held] == 0).all()
        assert counts.sum() == 300
        assert set(counts.tolist()) == {0, 2}

    def test_fakes_may_come_as_an_array_of_another_size(self):
        fake = propose(np.arange(9000))
        fitted = refit(real_samples(), fake, Head(squares), steps=300)
        ratio = np.exp(fitted(propose(np.arange(10**6, 10**6 + 20000))))
        assert abs(ratio.mean() - 1) < 0.1  # uncorrected, three times as many fakes would make it 1/3
        assert fitted.report.trouble is None

    def test_sets_that_do_not_meet_are_warned_about(self):
        x = propose(np.arange(600))
        with pytest.warns(UserWarning, match=r"separates the two sets .* use features=") as caught:
            apart = refit(x + 100, x, Network(width=16), steps=100)
        assert str(caught[0].message) == apart.report.trouble
        assert str(apart.report).endswith(apart.report.trouble)
        assert apart(x + 100).min() > 3 > -3 > apart(x).max()

    def test_early_stopping_keeps_the_best_weights(self):
        fitted = refit(real_samples(200), propose(np.arange(200)), Network(width=64), steps=600, held_out=0.3)
        losses = dict(fitted.report.history)
        assert fitted.report.steps < 600
        assert fitted.report.stopped.startswith("no better held-out loss")
        assert fitted.report.log_loss == pytest.approx(min(losses.values()), abs=1e-6)
        assert losses[fitted.report.steps] > min(losses.values())

    def test_thin_modes_are_found(self):
        """A quarter of the plane's 25 Gaussians would be missed by a network without waves in so few steps."""
        target = grid25().standardised()
        wide = Mixture(target.means, 4 * target.sigma)
        real = target.sample(20000, seed=1)
        test = wide.sample(20000, seed=2)
        truth = target.log_prob(test) - wide.log_prob(test)

        def share_kept_of_the_best(log_ratio):
            log_a = obrs.Budgeted.fit(log_ratio, 8)(log_ratio)
            good = truth > 0
            return np.exp(log_a)[good].sum() / np.exp(log_a).sum()

        fitted = refit(real, lambda ids: wide.sample(len(ids), seed=int(ids[0])), Network(width=64), steps=300)
        plain = refit(real, lambda ids: wide.sample(len(ids), seed=int(ids[0])), Network(width=64, waves=0), steps=300)
        assert share_kept_of_the_best(fitted(test)) > 0.9 * share_kept_of_the_best(truth)
        assert share_kept_of_the_best(plain(test)) < 0.7 * share_kept_of_the_best(truth)


class TestHead:
    def test_descent_with_fresh_fakes_comes_to_a_logistic_regression(self):
        from sklearn.linear_model import LogisticRegression

        real = real_samples()
        fitted = refit(real, propose, Head(squares), steps=600, batch_size=512)
        x = np.concatenate([real, propose(np.arange(20000))])
        exact = LogisticRegression(C=1e6, class_weight="balanced", tol=1e-10, max_iter=1000)
        exact.fit(np.c_[x, x * x], np.repeat([1, 0], [len(real), 20000]))
        x = real_samples(1000, seed=4)
        gap = fitted(x) - exact.decision_function(np.c_[x, x * x])
        assert np.sqrt(np.mean(gap**2)) < 3 * (5 / 2700) ** 0.5  # five numbers known from 2700 real samples

    def test_features_of_a_critic_are_what_its_last_layer_sees(self):
        net = mlp_critic(2, width=16, layers=2)
        x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
        features = critic_features(net)(x)
        np.testing.assert_array_equal(features, net[:-2](x).detach())
        assert critic_features(net, "1")(x).shape == (5, 2)
        images = ConvCritic(size=8, channels=1, width=4)
        picture = torch.zeros(3, 1, 8, 8)
        np.testing.assert_array_equal(critic_features(images)(picture), images.features(picture).detach())

    def test_features_stay_when_the_critic_trains_on(self):
        net = critic()
        features = critic_features(net)
        x = torch.ones(3, 2)
        before = features(x).clone()
        with torch.no_grad():
            net[1].weight.zero_()
        assert torch.equal(features(x), before)

    def test_bad_features_are_refused(self):
        cases = [
            (lambda x: x[:, 0], InputError, r"shape \(n, k\), got \(\d+,\).*critic_features"),
            (lambda x: x.log(), InputError, "features has .* NaN or infinite among"),
            (lambda x: torch.ones(len(x), 3), InputError, "features are constant"),
        ]
        for features, error, message in cases:
            with pytest.raises(error, match=message):
                refit(real_samples(), propose, Head(features), steps=2)
        elsewhere = critic_features(mlp_critic(2).to("meta"))
        with pytest.raises(InputError, match="features are not on cpu, where the proposals are"):
            refit(real_samples(), propose, Head(elsewhere), steps=2)
        with pytest.raises(InputTypeError, match="features must be a callable, got int"):
            Head(3)
        with pytest.raises(UnknownNameError, match="did you mean '3'"):
            critic_features(mlp_critic(2), "33")
        with pytest.raises(InputError, match="critic has no linear layer"):
            critic_features(nn.Sequential(nn.Flatten()))
        with pytest.raises(InputTypeError, match="critic must be a torch module, got function"):
            critic_features(squares)


class Hinged(nn.Module):
    """A critic with spectral norm of either style, dropout and an output (n, 1), as users have them."""

    def __init__(self, norm):
        super().__init__()
        self.body = nn.Sequential(norm(nn.Linear(2, 32)), nn.ReLU(), nn.Dropout(0.1), norm(nn.Linear(32, 1)))

    def forward(self, x):
        return 3 * self.body(x)


def hinged(norm):
    """Train with the hinge loss for a moment: the output is no log-ratio."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = Hinged(norm)
        optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
        for step in range(60):
            real, fake = torch.from_numpy(real_samples(256, seed=step)).float(), torch.randn(256, 2)
            optimiser.zero_grad()
            (torch.relu(1 - net(real)).mean() + torch.relu(1 + net(fake)).mean()).backward()
            optimiser.step()
    return net


class TestFineTune:
    @pytest.mark.parametrize("norm", ["new", "old"])
    def test_a_hinge_critic_becomes_a_log_ratio_and_stays_what_it_was(self, norm):
        make = nn.utils.parametrizations.spectral_norm if norm == "new" else nn.utils.spectral_norm
        net = hinged(make)
        before = {key: value.clone() for key, value in net.state_dict().items()}
        fitted = refit(real_samples(), propose, FineTune(net, lr=1e-2), steps=200, batch_size=256)
        assert net.training
        assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
        history = dict(fitted.report.history)
        assert fitted.report.log_loss < history[0]  # the critic as it came, read as a logit
        x = propose(np.arange(5000))
        slope = np.polyfit(exact(x), fitted(x), 1)[0]
        assert abs(slope - 1) < 0.15

    def test_a_frozen_critic_is_trained_all_the_same(self):
        frozen = critic().requires_grad_(False)
        fitted = refit(real_samples(), propose, FineTune(frozen), steps=60)
        assert fitted.report.log_loss < 0.65
        assert not any(p.requires_grad for p in frozen.parameters())

    def test_several_scores_per_sample_are_refused(self):
        with pytest.raises(InputError, match=r"one score per sample, .* got \(\d+, 2\)"):
            refit(real_samples(), propose, FineTune(mlp_critic(2, heads=2)), steps=2)

    def test_a_critic_elsewhere_is_refused(self):
        with pytest.raises(InputError, match="critic is on meta and the proposals on cpu; move"):
            refit(real_samples(), propose, FineTune(mlp_critic(2).to("meta")), steps=2)

    def test_a_function_is_refused(self):
        with pytest.raises(InputTypeError, match="critic must be a torch module, got function"):
            refit(real_samples(), propose, FineTune(squares), steps=2)


class TestNetwork:
    def test_images_get_a_convolutional_network(self):
        generator = np.random.default_rng(0)
        real = generator.normal(0.0, 1.0, (300, 1, 8, 8))
        real[:, :, :4] += 1.0
        fitted = refit(real, generator.normal(0.0, 1.0, (300, 1, 8, 8)), Network(width=4), steps=40, held_out=0.3)
        assert type(fitted.scorer.module["network"]) is ConvCritic
        assert fitted.report.log_loss < 0.5

    def test_a_network_of_your_own(self, tmp_path):
        own = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
        fitted = refit(real_samples(), propose, Network(own), steps=60)
        fitted.save(tmp_path / "ratio")
        with pytest.raises(InputError, match=r"network of your own, Sequential; pass load_ratio\(path, network="):
            load_ratio(tmp_path / "ratio")
        differs = r"file: network.0.weight has shape \(16, 2\) there and shape \(8, 2\) here$"
        with pytest.raises(InputError, match=f"not built like the one in the {differs}"):
            load_ratio(tmp_path / "ratio", network=nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)))
        differs = r"file: network.2.bias has shape \(1,\) there and nothing here$"
        with pytest.raises(InputError, match=f"not built like the one in the {differs}"):
            load_ratio(tmp_path / "ratio", network=own[:2])
        x = real_samples(9)
        np.testing.assert_array_equal(load_ratio(tmp_path / "ratio", network=own)(x), fitted(x))

    def test_bad_networks_are_refused(self):
        with pytest.raises(UnknownNameError, match="unknown network 'mpl'; did you mean 'mlp'"):
            Network("mpl")
        with pytest.raises(InputError, match=r'"cnn" needs square images .* got samples of shape \(2,\)'):
            refit(real_samples(), propose, Network("cnn"), steps=2)
        with pytest.raises(InputError, match="lr must be a finite number above 0, got 0"):
            Network(lr=0)
        with pytest.raises(InputError, match="width must be a whole number"):
            Network(width=0)
        for waves in (-1, 1.5, "a", None):
            with pytest.raises(InputError, match=f"waves must be a whole number of at least 0, got {waves!r}"):
                Network(waves=waves)
        with pytest.raises(InputError, match=r"the loss is nan at step .* lower lr"):
            refit(real_samples(), propose, Network(lr=1e30), steps=9)


KILLED = """
    import os, signal, sys
    import numpy as np
    import obrs
    from obrs.ratios.methods import Network
    from obrs.ratios.refit import refit

    def propose(ids):
        if ids[0] > 2**40 + 100 * 64 and os.path.exists(sys.argv[1]):  # past the pool
            os.kill(os.getpid(), signal.SIGKILL)
        return obrs.normals(ids, 2, seed=5)

    real = np.random.default_rng(0).normal([1.0, -0.5], 1.0, (3000, 2))
    refit(real, propose, Network(width=16), steps=150, batch_size=64, checkpoint=sys.argv[1])
"""


class Dropping(nn.Sequential):
    """Its training depends on torch's random numbers."""

    def __init__(self):
        super().__init__(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 1))


RESUMED = {
    "network": lambda: Network(width=16),
    "head": lambda: Head(squares),
    "dropout and batch norm": lambda: FineTune(FIXED),
}
with torch.random.fork_rng(devices=[]):
    torch.manual_seed(0)
    FIXED = Dropping()


class TestCheckpoints:
    @pytest.mark.slow
    def test_a_killed_process_goes_on_bit_for_bit(self, tmp_path):
        path = tmp_path / "fit.safetensors"
        command = [sys.executable, "-c", textwrap.dedent(KILLED), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert path.exists()
        method = Network(width=16)
        resumed = refit(real_samples(), propose, method, steps=150, batch_size=64, checkpoint=path)
        straight = refit(real_samples(), propose, method, steps=150, batch_size=64)
        one, two = resumed.scorer.module.state_dict(), straight.scorer.module.state_dict()
        assert one.keys() == two.keys()
        assert all(torch.equal(one[key], two[key]) for key in one)
        assert resumed.report.history == straight.report.history
        assert os.listdir(tmp_path) == ["fit.safetensors"]

    @pytest.mark.parametrize("name", list(RESUMED))
    def test_an_interrupted_fit_goes_on_bit_for_bit(self, name, tmp_path):
        path, last = tmp_path / "fit", 2**40 + 13 * 64

        def interrupted(ids):
            if ids[0] >= last and path.exists():  # past the pool, in the middle of the steps
                raise KeyboardInterrupt
            return propose(ids)

        options = {"steps": 60, "batch_size": 64}
        with pytest.raises(KeyboardInterrupt):
            refit(real_samples(), interrupted, RESUMED[name](), checkpoint=path, **options)
        resumed = refit(real_samples(), propose, RESUMED[name](), checkpoint=path, **options)
        straight = refit(real_samples(), propose, RESUMED[name](), **options)
        one, two = resumed.scorer.module.state_dict(), straight.scorer.module.state_dict()
        assert all(torch.equal(one[key], two[key]) for key in two)

    def test_a_finished_fit_is_read_and_not_repeated(self, tmp_path):
        path, asked = tmp_path / "fit", []

        def counted(ids):
            asked.append(len(ids))
            return propose(ids)

        options = {"steps": 60, "batch_size": 64, "checkpoint": path}
        first = refit(real_samples(), counted, Head(squares), **options)
        asked.clear()
        second = refit(real_samples(), counted, Head(squares), **options)
        assert sum(asked) < 8192 + 10 * 64  # the pool and what is held out, no step
        assert second.report == first.report

    def test_checkpoints_of_another_fit_are_refused(self, tmp_path):
        path = tmp_path / "fit"
        refit(real_samples(), propose, Network(width=8), steps=20, checkpoint=path)
        for change, options in [("steps", {"steps": 30}), ("seed", {"seed": 1}), ("method", {"method": Head(squares)})]:
            options = {"method": Network(width=8), "steps": 20} | options
            with pytest.raises(InputError, match=rf"is of another fit \({change}"):
                refit(real_samples(), propose, checkpoint=path, **options)
        with pytest.raises(InputError, match=r"another fit \(real, initial weights\); delete it"):
            refit(real_samples(seed=9), propose, Network(width=8), steps=20, checkpoint=path)
        with pytest.raises(InputError, match=r"another fit \(propose, initial weights\); delete it"):
            refit(real_samples(), lambda ids: propose(ids) + 1e-3, Network(width=8), steps=20, checkpoint=path)
        path.write_bytes(b"something else")
        with pytest.raises(InputError, match="is not a file of a fitted ratio"):
            refit(real_samples(), propose, Network(width=8), steps=20, checkpoint=path)

    def test_checkpoints_of_other_fakes_or_another_critic_are_refused(self, tmp_path):
        fakes, options = propose(np.arange(2000)), {"steps": 5, "batch_size": 64}
        path = tmp_path / "fakes"
        refit(real_samples(), fakes, FineTune(critic()), checkpoint=path, **options)
        with pytest.raises(InputError, match=r"another fit \(propose\)"):
            refit(real_samples(), fakes + 1e-3, FineTune(critic()), checkpoint=path, **options)
        other = critic()
        with torch.no_grad():
            other[1].bias += 1e-3
        with pytest.raises(InputError, match=r"another fit \(initial weights\)"):
            refit(real_samples(), fakes, FineTune(other), checkpoint=path, **options)

    def test_proposals_that_do_not_repeat_are_warned_about(self, tmp_path):
        rng = np.random.default_rng(0)
        options = {"steps": 5, "batch_size": 64, "checkpoint": tmp_path / "fit"}
        for _ in range(2):  # it can be read, as the same
            with pytest.warns(UserWarning, match="other samples when it is asked for the same ids again"):
                refit(real_samples(), obrs.proposal(lambda n: rng.normal(size=(n, 2))), FineTune(critic()), **options)
        with pytest.raises(InputError, match=r"another fit \(propose\)"):
            refit(real_samples(), propose, FineTune(critic()), **options)
        model = obrs.proposal(lambda n: torch.randn(n, 2))  # no warning: the seed decides what torch draws
        refit(real_samples(), model, FineTune(critic()), **options | {"checkpoint": tmp_path / "torch"})


class TestFiles:
    def test_a_head_needs_its_features_and_notices_others(self, fits, tmp_path):
        fits["head"].save(tmp_path / "head")
        with pytest.raises(InputError, match=r"pass load_ratio\(path, features=...\)"):
            load_ratio(tmp_path / "head")
        with pytest.raises(InputError, match=r"features given are not those of .* scores differ by up to"):
            load_ratio(tmp_path / "head", features=lambda x: torch.cat([x * x, x], dim=1))

    def test_other_files_are_refused(self, tmp_path):
        (tmp_path / "text").write_text("hello")
        with pytest.raises(InputError, match="text is not a file of a fitted ratio"):
            load_ratio(tmp_path / "text")
        with pytest.raises(FileNotFoundError):
            load_ratio(tmp_path / "nowhere")

    def test_a_ratio_moves_to_a_device(self, fits):
        moved = fits["network"].to("meta")
        assert moved.scorer.module["network"][1].weight.device.type == "meta"
        assert fits["network"].scorer.module["network"][1].weight.device.type == "cpu"
        with pytest.raises(InputError, match=r"samples are on cpu and this ratio on meta; use ratio.to\(device\)"):
            moved(torch.zeros(2, 2))


def with_nan(x):
    x = x.copy()
    x[3, 1], x[7, 0], x[8, 0] = np.nan, np.nan, np.inf
    return x


BAD = {
    "empty real": (
        {"real": np.zeros((0, 2))},
        InputError,
        r"real is empty, shape \(0, 2\)",
    ),
    "empty fakes": ({"propose": np.zeros((0, 2))}, InputError, "propose is empty"),
    "flat real": (
        {"real": np.zeros(500)},
        InputError,
        r"real must have shape .* got \(500,\); use real\[:, None\]",
    ),
    "a list": (
        {"real": [[1.0, 2.0]]},
        InputTypeError,
        r"real must be an array of samples, or a tuple or dict \(x, label\), got list",
    ),
    "shapes": (
        {"propose": lambda ids: np.zeros((len(ids), 3))},
        InputError,
        r"real has samples of shape \(2,\) and propose of \(3,\)",
    ),
    "NaN in real": ({"real": with_nan(real_samples())}, InputError, "real has 3 NaN or infinite among 6000 values"),
    "NaN in fakes": (
        {"propose": lambda ids: with_nan(propose(ids)) if len(ids) > 9 else propose(ids)},
        InputError,
        "propose has 3 NaN or infinite among 600 values",
    ),
    "NaN later": (
        {"propose": lambda ids: with_nan(propose(ids)) if len(ids) == 512 else propose(ids)},
        InputError,
        "propose has 3 NaN or infinite among 1024 values",
    ),
    "wrong number": (
        {"propose": lambda ids: propose(ids)[1:]},
        InputError,
        "propose must return one item per id, 2 of them, got 1",
    ),
    "several arrays": (
        {"propose": lambda ids: (propose(ids), propose(ids))},
        InputTypeError,
        r"real is an array and propose is a tuple \(x, label\); make them alike",
    ),
    "not callable": (
        {"propose": 3},
        InputTypeError,
        "propose must be a callable of ids or an array .* got int",
    ),
    "too few": (
        {"real": real_samples(300)},
        InputError,
        "real has 300 samples, of which held_out=0.1 leaves 30 to stop by; 50 are needed: give at least 500 samples",
    ),
    "too few fakes": ({"propose": real_samples(300)}, InputError, "propose has 300 samples, .* at least 500 samples"),
    "integers": (
        {"real": np.zeros((500, 2), np.uint8)},
        InputTypeError,
        "real has dtype uint8 and propose float64: this alone would tell them apart",
    ),
    "device of real": ({"real": torch.empty(500, 2, device="meta")}, InputError, "real is on device meta"),
    "device of fakes": (
        {"propose": lambda ids: torch.empty(len(ids), 2, device="meta")},
        InputError,
        "propose makes samples on device meta",
    ),
    "no folder": ({"checkpoint": "nowhere/fit"}, InputError, "the folder nowhere does not exist; make it first"),
    "steps": ({"steps": 0}, InputError, "steps must be a whole number of at least 1, got 0"),
    "batch": ({"batch_size": 2.5}, InputError, "batch_size must be a whole number of at least 1, got 2.5"),
    "held out": ({"held_out": 1.0}, InputError, "held_out must be a share between 0 and 1, got 1.0"),
    "seed": ({"seed": -1}, InputError, "seed must be a whole number from 0 to"),
    "unknown method": ({"method": "netwrok"}, UnknownNameError, "unknown method 'netwrok'; did you mean 'network'"),
    "a method without its critic": (
        {"method": "fine_tune"},
        InputError,
        r"'fine_tune' needs arguments; pass FineTune",
    ),
    "a class": ({"method": Network}, InputTypeError, "got the class Network"),
    "a critic": (
        {"method": mlp((2, 1))},
        InputTypeError,
        r"FineTune\(critic\), got Sequential",
    ),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_gets_one_clear_line(case):
    change, error, message = BAD[case]
    arguments = {"real": real_samples(), "propose": propose, "method": Network(width=8), "steps": 3} | change
    with pytest.raises(error, match=message) as caught:
        refit(**arguments)
    assert "\n" not in str(caught.value)


def test_real_on_an_accelerator_and_fakes_elsewhere_are_refused():
    from obrs.ratios.task import _common_device

    with pytest.raises(InputError, match="real is on meta and propose makes samples on cpu; move one"):
        _common_device(torch.empty(2, 2, device="meta"), torch.empty(2, 2))


def test_a_fitted_ratio_refuses_other_samples(fits):
    with pytest.raises(InputError, match=r"samples of shape \(2,\), got an array of \(4, 3\)"):
        fits["network"](np.zeros((4, 3)))
    with pytest.raises(InputTypeError, match="takes an array of samples, got list"):
        fits["network"]([[1.0, 2.0]])


def test_samples_flow_along_a_fitted_ratio(fits):
    model = obrs.rivals.Model(lambda z: z, fits["network"], dim=2, like=torch.empty(0))
    moved = obrs.rivals.SAMPLERS["dgflow"](steps=3)(model, 200)
    start = torch.as_tensor(model.latent(np.arange(200), seed=0))
    assert exact(moved.x.double().numpy()).mean() > exact(start.double().numpy()).mean()


def test_names_of_methods_will_do():
    assert refit(real_samples(), propose, "network", steps=2).report.method == "Network"


def test_jax_arrays_get_jax_answers(fits):
    jnp = pytest.importorskip("jax.numpy")
    answer = fits["network"](jnp.asarray(real_samples(5)))
    assert type(answer) is type(jnp.zeros(1))
    np.testing.assert_allclose(answer, fits["network"](real_samples(5)), atol=1e-5)


@pytest.mark.slow
def test_25_gaussians_are_as_good_as_with_the_exact_ratio():
    """At K = 2.6 the share of high-quality samples is within a percentage point of the exact ratio's."""
    target = grid25().standardised()
    rng, s = np.random.default_rng(0), target.sigma[0]
    shift = 0.7 * s * rng.normal(size=target.means.shape)
    means = np.concatenate([target.means + shift, target.means + 2 * shift, np.zeros((1, 2))])
    sigma = np.repeat([1.3 * s, 5 * s, 1.1], [25, 25, 1])
    weights = np.concatenate([rng.uniform(0.4, 1.6, 50) * np.repeat([0.6, 0.25], 25) / 25, [0.15]])
    model = Mixture(means, sigma, weights)
    test = model.sample(100_000, seed=99)
    near = np.min(np.linalg.norm(test[:, None] - target.means, axis=2), axis=1) < 4 * s

    def high_quality(log_ratio):
        a = np.exp(obrs.Budgeted.fit(log_ratio, 2.6)(log_ratio))
        return a[near].sum() / a.sum()

    fitted = refit(target.sample(64000, seed=1), lambda ids: model.sample(len(ids), seed=int(ids[0])))
    ceiling = high_quality(target.log_prob(test) - model.log_prob(test))
    assert near.mean() < 0.7 < 0.99 < ceiling
    assert high_quality(fitted(test)) > ceiling - 0.01
