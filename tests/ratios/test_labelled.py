"""Refits of samples with labels: every method, every form of a batch, and what is refused."""

from math import log

import numpy as np
import pytest
import torch
from torch import nn

import obrs
from obrs.critics import wrap_critic
from obrs.errors import InputError, InputTypeError
from obrs.models.conv import ConvCritic
from obrs.models.mlp import mlp
from obrs.ratios.features import critic_features
from obrs.ratios.labelled import form_of, needs_label, takes_label
from obrs.ratios.methods import FineTune, Head, Network
from obrs.ratios.refit import METHODS, load_ratio, refit
from obrs.ratios.task import logistic_loss, prepare

LABELS = np.array([3, 7, 40])  # neither from 0 on nor without gaps
SHARES = {"real": [0.2, 0.3, 0.5], "fake": [0.5, 0.3, 0.2]}
SHIFT = np.array([1.2, -1.2, 0.0])  # of the real samples of each label; the model makes N(0, 1) for all


def labels_of(u, kind):
    return LABELS[np.searchsorted(np.cumsum(SHARES[kind])[:-1], u, side="right")]


def real_samples(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    label = labels_of(rng.uniform(size=n), "real")
    return rng.normal(SHIFT[np.searchsorted(LABELS, label)][:, None], 1.0, (n, 1)), label


def propose(ids):
    return obrs.normals(ids, 1, seed=5), labels_of(obrs.uniforms(ids, seed=6), "fake")


def exact(batch):
    """Return log p(x, y) - log q(x, y)."""
    x, label = batch
    code = np.searchsorted(LABELS, label)
    prior = np.log(SHARES["real"]) - np.log(SHARES["fake"])
    return x[:, 0] * SHIFT[code] - SHIFT[code] ** 2 / 2 + prior[code]


class Critic(nn.Module):
    """D(x, y) with a vector for each label."""

    def __init__(self):
        super().__init__()
        self.embed, self.body = nn.Embedding(41, 4), mlp((5, 32, 1))

    def forward(self, x, y):
        return self.body(torch.cat([x, self.embed(y)], dim=1))


def critic():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return Critic()


def products(x, y):
    each = (y[:, None] == torch.as_tensor(LABELS)).float()
    return x * each


CASES = {
    "head": lambda: Head(products),
    "fine_tune": lambda: FineTune(critic(), lr=1e-2),
    "network": lambda: Network(width=32, layers=2, waves=0, lr=1e-2),
}


@pytest.fixture(scope="module")
def fits():
    return {name: refit(real_samples(), propose, CASES[name](), steps=100, batch_size=256) for name in CASES}


def log_loss(ratio, real, fake):
    return float(logistic_loss(*(torch.as_tensor(ratio(batch)) for batch in (real, fake))))


class TestEveryMethod:
    pytestmark = pytest.mark.parametrize("name", list(METHODS))

    def test_learns_the_ratio_of_samples_and_labels_together(self, name, fits):
        real, fake = real_samples(8000, seed=1), propose(np.arange(8000))
        best = log_loss(exact, real, fake)
        assert log_loss(fits[name], real, fake) - best < 0.2 * (log(2) - best)
        mixed = [(x, np.roll(label, 1)) for x, label in (real, fake)]  # labels of their neighbours
        assert log_loss(fits[name], *mixed) > log(2) - 0.5 * (log(2) - best)

    def test_is_the_same_after_a_file(self, name, fits, tmp_path):
        fits[name].save(tmp_path / "ratio")
        again = load_ratio(tmp_path / "ratio", network=critic(), features=products)
        batch = real_samples(9)
        np.testing.assert_array_equal(again(batch), fits[name](batch))
        with pytest.raises(InputTypeError, match="the batch is an array"):
            again(batch[0])

    def test_takes_what_obrs_sample_gives(self, name, fits):
        kept = obrs.sample(propose, fits[name], 500, budget=2)
        assert (kept.x[0].shape, kept.x[1].shape) == ((500, 1), (500,))
        assert kept.x[1].tolist().count(40) / 500 > 0.3  # 0.2 of the proposals, 0.5 of the data


class TestForms:
    def test_a_dict_and_torch_tensors_give_the_same_ratio(self, fits):
        def as_dict(batch):
            return {"digit": torch.as_tensor(batch[1]), "image": torch.as_tensor(batch[0])}

        fitted = refit(
            as_dict(real_samples()), lambda ids: as_dict(propose(ids)), CASES["network"](), steps=100, batch_size=256
        )
        batch = real_samples(50)
        np.testing.assert_array_equal(fitted(as_dict(batch)), fits["network"](batch))

    def test_fakes_may_be_given(self):
        fitted = refit(real_samples(), propose(np.arange(2000)), CASES["network"](), steps=60, batch_size=256)
        assert fitted.report.log_loss < 0.66

    def test_labels_stay_with_their_samples(self):
        n = 1500
        x = np.arange(n, dtype=np.float64)[:, None]
        options = {"steps": 3, "batch_size": 400, "held_out": 0.2, "seed": 1, "progress": None, "checkpoint": None}
        task = prepare((x, np.arange(n)), (x, np.arange(n)), **options)
        for batch in (task.held_real, task.held_fake, *task.batch(0), *task.batch(7)):
            assert torch.equal(batch.x[:, 0].long(), batch.label)
        assert not set(task.held_real.label.tolist()) & set(task.real.batch(0, 1200).label.tolist())

    def test_critics_that_see_no_label_get_none(self):
        net = mlp((1, 8, 1))
        nn.init.zeros_(net[-1].weight)  # from chance on, whatever the first layer
        nn.init.zeros_(net[-1].bias)
        fitted = refit(real_samples(), propose, FineTune(net), steps=5)
        x, label = real_samples(50)
        assert np.ptp(fitted((x, label))) > 0
        np.testing.assert_array_equal(fitted((x, label)), fitted((x, label[::-1].copy())))

    def test_images_get_a_projection(self):
        rng = np.random.default_rng(0)
        label = rng.integers(5, 7, 700)
        real = rng.normal((label == 5)[:, None, None, None], 1.0, (700, 1, 8, 8)).astype(np.float32)
        fake = rng.normal((label == 6)[:, None, None, None], 1.0, (700, 1, 8, 8)).astype(np.float32)
        fitted = refit((real, label), (fake, label), Network(width=4), steps=30, batch_size=64)
        assert isinstance(fitted.scorer.module["network"], ConvCritic)
        assert fitted.report.log_loss < 0.6  # without labels both sets are the same

    def test_labels_may_be_numbers(self):
        rng = np.random.default_rng(0)
        angle = rng.uniform(-1, 1, 2000)
        real, fake = rng.normal(2 * angle[:, None], 1.0, (2000, 1)), rng.normal(0.0, 1.0, (2000, 1))
        fitted = refit((real, angle), (fake, angle), CASES["network"](), steps=100, batch_size=256)
        assert fitted.report.log_loss < 0.66
        image = rng.normal(size=(600, 1, 8, 8))
        with pytest.raises(InputError, match='"cnn" takes labels that are integers, got floats; use Network'):
            refit((image, angle[:600]), (image, angle[:600]), Network("cnn"), steps=2)

    def test_features_of_a_conditional_critic(self):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            look = critic_features(ConvCritic(size=8, width=4, classes=2))
        rng = np.random.default_rng(0)
        real, label = rng.normal(0.3, 1.0, (600, 1, 8, 8)).astype(np.float32), rng.integers(0, 2, 600)
        fake = rng.normal(0.0, 1.0, (600, 1, 8, 8)).astype(np.float32)
        fitted = refit((real, label), (fake, label), Head(look), steps=40, batch_size=128)
        assert fitted.report.log_loss < 0.66

    def test_gradients_pass_to_samples(self, fits):
        x, label = (torch.as_tensor(part) for part in real_samples(5))
        score = fits["network"]((x.requires_grad_(), label))
        (gradient,) = torch.autograd.grad(score.sum(), x)
        assert gradient.abs().min() > 0

    @pytest.mark.parametrize(
        ("keys", "sample"),
        [
            (("label", "x"), "x"),
            (("image", "digit"), "image"),
            (("pixels", "y"), "pixels"),
            (("digit", "pixels"), "pixels"),  # floats
            (("condition", "pixels"), "pixels"),
        ],
    )
    def test_a_dict_says_which_is_the_sample(self, keys, sample):
        floats, integers = np.zeros((3, 2)), np.zeros(3, int)
        batch = {key: floats if key == sample else integers for key in keys}
        assert form_of(batch, "real").x == sample

    def test_a_critic_of_labels_is_a_log_ratio_of_batches(self):
        x, label = (torch.as_tensor(part) for part in real_samples(4))
        net = critic().double()
        expected = net(x, label)[:, 0]
        assert torch.equal(wrap_critic(net)((x, label)), expected)
        assert torch.equal(wrap_critic(lambda batch: net(batch["x"], batch["y"]))({"x": x, "y": label}), expected)

    def test_who_takes_labels(self):
        class Flag(nn.Module):
            def forward(self, x, features=False): ...

        class Optional(nn.Module):
            def forward(self, x, label=None): ...

        cases = [(Critic(), True, True), (Flag(), False, False), (Optional(), True, False), (mlp((2, 1)), False, False)]
        cases += [(ConvCritic(size=8, width=4), False, False), (ConvCritic(size=8, width=4, classes=2), True, True)]
        for net, takes, needs in cases:
            assert (takes_label(net), needs_label(net)) == (takes, needs)


X, LABEL = real_samples()
IMAGES = {
    "real": (np.zeros((600, 1, 8, 8)), np.arange(600) % 3),
    "propose": (np.ones((600, 1, 8, 8)), np.arange(600) % 3),
}
BAD = {
    "an array and a tuple": ({"real": X}, InputTypeError, r"real is an array and propose is a tuple \(x, label\)"),
    "a tuple and an array": (
        {"propose": lambda ids: propose(ids)[0]},
        InputTypeError,
        r"real is a tuple \(x, label\) and propose is an array; make them alike",
    ),
    "a dict and a tuple": (
        {"real": {"x": X, "y": LABEL}},
        InputTypeError,
        r"real is a dict of 'x' and 'y' and propose is a tuple",
    ),
    "other keys": (
        {"real": {"x": X, "y": LABEL}, "propose": lambda ids: dict(zip(("x", "label"), propose(ids), strict=True))},
        InputTypeError,
        "real is a dict of 'x' and 'y' and propose is a dict of 'x' and 'label'",
    ),
    "three arrays": ({"real": (X, LABEL, X)}, InputTypeError, "got a tuple of 3 arrays; leave out what"),
    "nothing": ({"real": ()}, InputTypeError, "real must hold samples and labels, got a tuple of 0 arrays"),
    "a list of labels": ({"real": (X, LABEL.tolist())}, InputTypeError, "real must be a tuple of arrays, 1 is a list"),
    "which is it": (
        {"real": {"a": X, "b": X[:, 0]}},
        InputError,
        "real is a dict of 'a' and 'b': which is the sample\\? call it 'x' or 'image'",
    ),
    "fewer labels": ({"real": (X, LABEL[1:])}, InputError, "real has 2000 samples and 1999 labels; give one label"),
    "one label": ({"real": (X, np.array(3))}, InputError, "real has 2000 samples and 0 labels"),
    "fewer labels of fakes": (
        {"propose": (X, LABEL[1:])},
        InputError,
        "propose has 2000 samples and 1999 labels; give one label per sample",
    ),
    "text": (
        {"real": (X, np.repeat("cat", 2000))},
        InputTypeError,
        r"labels that are integers or floats, got dtype <U3; number them with np.unique",
    ),
    "a column": (
        {"real": (X, LABEL[:, None])},
        InputError,
        r"the labels of real must have shape \(n,\), one integer per sample, got \(2000, 1\)",
    ),
    "floats and integers": (
        {"real": (X, LABEL.astype(float))},
        InputTypeError,
        "real has labels that are floats, propose has some of dtype int64",
    ),
    "integers and floats": (
        {"propose": lambda ids: (propose(ids)[0], propose(ids)[1].astype(float))},
        InputTypeError,
        "real has labels that are integers, propose has some of dtype float64",
    ),
    "widths": (
        {"real": (X, np.ones((2000, 3))), "propose": lambda ids: (propose(ids)[0], np.ones((len(ids), 2)))},
        InputError,
        r"real has labels of shape \(3,\) and propose of \(2,\); make them alike",
    ),
    "NaN": (
        {"real": (X, np.where(LABEL == 3, np.nan, 1.0))},
        InputError,
        "the label of real has .* NaN or infinite among 2000 values",
    ),
    "unknown labels": (
        {"propose": lambda ids: (propose(ids)[0], propose(ids)[1] + 1)},
        InputError,
        "propose has labels that real never has, 4, 8, 41; real has 3 labels, 3 to 40",
    ),
    "a critic of labels": (
        {"real": X, "propose": lambda ids: propose(ids)[0], "method": FineTune(critic())},
        InputError,
        r"critic takes labels, \(x, label\): give real as a tuple \(x, label\)",
    ),
    "a critic of fewer labels": (
        {"method": FineTune(ConvCritic(size=8, width=4, classes=2)), **IMAGES},
        InputError,
        r"critic cannot take samples of \(1, 8, 8\) with labels 0 to 2: index out of range",
    ),
    "features of labels": (
        {"real": X, "propose": lambda ids: propose(ids)[0], "method": Head(products)},
        InputError,
        "features takes labels",
    ),
}


@pytest.mark.parametrize("case", list(BAD))
def test_bad_input_gets_one_clear_line(case):
    change, error, message = BAD[case]
    arguments = {"real": (X, LABEL), "propose": propose, "method": Network(width=8), "steps": 3} | change
    with pytest.raises(error, match=message) as caught:
        refit(**arguments)
    assert "\n" not in str(caught.value)


def test_a_fitted_ratio_refuses_other_labels(fits):
    x, label = real_samples(5)
    for batch, message in (
        ((x, label[1:]), "the batch has 5 samples and 4 labels"),
        ((x, label + 1), "the batch has labels that real never has"),
        ((x, label.astype(float)), "real has labels that are integers, the batch has some of dtype float64"),
        (x, "what this ratio was fitted on is a tuple .* and the batch is an array"),
    ):
        with pytest.raises((InputError, InputTypeError), match=message):
            fits["network"](batch)
