"""The doctor with the data at hand: ratios that know their training set by heart."""

import numpy as np
import pytest

from obrs import diagnose_model, normals
from obrs.errors import InputError
from obrs.ratios.doctor import diagnose

DIM = 140


def samples(n, seed, shift=0.0):
    x = normals(range(n), DIM, seed=seed)
    x[:, 0] += shift
    return x


def propose(ids):
    return normals(ids, DIM, seed=3)


def exact(x):
    return x[:, 0] - 0.5


@pytest.fixture(scope="module")
def overfitted():
    """A logistic regression in 140 dimensions on 150 samples of each kind, which separates them."""
    linear = pytest.importorskip("sklearn.linear_model")
    real = samples(150, 1, shift=1.0)
    x, y = np.concatenate([real, propose(np.arange(150))]), np.repeat([1, 0], 150)
    return real, linear.LogisticRegression(C=1e3, max_iter=500).fit(x, y).decision_function


def test_a_ratio_that_knows_its_training_set_is_found(overfitted):
    real, log_ratio = overfitted
    found = diagnose_model(
        real_train=real, real_test=samples(1000, 2, shift=1.0), propose=propose, log_ratio=log_ratio, budget=2.6
    )
    assert found.memorised
    assert found.memory.low > 0.5
    assert found.verdict != "fit"
    assert "by heart" in found.reason
    assert found.trained_on.at_budget.removed.value > found.held_out.at_budget.removed.value + 0.3
    seen = diagnose(log_ratio(real), log_ratio(propose(np.arange(150))), 2.6)
    assert seen.verdict == "untestable", "scores of the training set alone: they separate"
    assert str(found).startswith(found.verdict.upper())


def test_an_honest_ratio_is_cleared():
    real = samples(4000, 1, shift=1.0)
    found = diagnose_model(real_train=real[:2000], real_test=real[2000:], propose=propose, log_ratio=exact)
    assert (found.verdict, found.memorised, found.shared) == ("fit", False, 0)
    assert found.memory.low < 0.5 < found.memory.high


def test_exact_ratios_are_rarely_accused():
    accused = 0
    for seed in range(40):
        real = samples(400, 10 + seed, shift=1.0)
        fake = samples(200, 100 + seed)
        accused += diagnose_model(real_train=real[:200], real_test=real[200:], propose=fake, log_ratio=exact).memorised
    assert accused <= 1  # 0.05 are expected


def test_samples_of_the_fit_are_not_held_out():
    real = samples(500, 1)
    found = diagnose_model(real_train=real[:300], real_test=real[200:], propose=propose, log_ratio=exact)
    assert found.shared == 100
    assert found.verdict == "untestable"
    assert "100 of 300 held-out samples were in the fit" in found.reason


def test_its_page_does_not_contradict_its_headline():
    real = samples(500, 1, shift=1.0)
    page = str(diagnose_model(real_train=real[:300], real_test=real[200:], propose=propose, log_ratio=exact))
    assert page.startswith("UNTESTABLE: 100 of 300")
    assert "FIT" not in page


def test_its_fakes_are_not_those_of_a_fit():
    refit = pytest.importorskip("obrs.ratios.refit")
    pytest.importorskip("torch")
    used = {"fit": set(), "doctor": set()}

    def noted(who):
        def make(ids):
            used[who].update(ids.tolist())
            return propose(ids)

        return make

    real = samples(1000, 1, shift=1.0)
    members = refit.Ensemble((refit.Head(lambda x: x), refit.Head(lambda x: x[:, :1])))
    fitted = refit.refit(real[:500], noted("fit"), members, steps=20, batch_size=64, progress=False)
    diagnose_model(real_train=real[:500], real_test=real[500:], propose=noted("doctor"), log_ratio=fitted)
    assert used["fit"]
    assert len(used["doctor"]) == 1000
    assert not used["fit"] & used["doctor"]


def test_labels_come_along():
    x, label = samples(600, 1, shift=1.0), np.arange(600) % 3
    found = diagnose_model(
        real_train=(x[:300], label[:300]),
        real_test=(x[300:], label[300:]),
        propose=lambda ids: (propose(ids), ids % 3),
        log_ratio=lambda batch: exact(batch[0]) + 0.0 * batch[1],
    )
    assert not found.memorised


def test_bad_input_is_one_line():
    real = samples(300, 1)
    with pytest.raises(InputError, match="at least 100 samples of real_test, got 50"):
        diagnose_model(real_train=real, real_test=real[:50], propose=propose, log_ratio=exact)
    with pytest.raises(InputError, match=r"must hold samples of one shape, got \[\(140,\)\] and \[\(139,\)\]"):
        diagnose_model(real_train=real, real_test=real[:, 1:], propose=propose, log_ratio=exact)
