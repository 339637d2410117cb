"""A fixed part of the adversary's cases, and faults that it has found. `cd tests && python -m adversary` runs more."""

import warnings

import numpy as np
import pytest

import obrs
from obrs import metrics
from obrs.errors import InputError
from obrs.sampling.samples import Samples

torch = pytest.importorskip("torch")

from adversary.making import Maker, run_case  # noqa: E402
from adversary.verbs import SLOW, VERBS  # noqa: E402


@pytest.mark.parametrize("verb", VERBS)
def test_every_case_is_answered_rightly_or_refused(verb):
    counts = [run_case(verb, VERBS[verb], number) for number in range(150 // SLOW.get(verb, 1))]
    assert sum(each["answered"] for each in counts) > 0  # not all may be refused


def test_a_case_is_made_from_its_number_alone():
    one, two, other = (Maker("rules", number).rng.random(3).tolist() for number in (7, 7, 8))
    assert one == two != other


def test_the_adversary_sees_a_wrong_answer_a_warning_and_a_change():
    def wrong(make):
        raise AssertionError

    def warned(make):
        warnings.warn("careless", RuntimeWarning, stacklevel=2)

    def changed(make):
        make.one = lambda *options: "plain"
        make.guise(np.zeros(3))[0] = 1.0

    for function, error in ((wrong, AssertionError), (warned, RuntimeWarning), (changed, AssertionError)):
        with pytest.raises(error):
            run_case("rules", function, 0)


# Faults that were found


def test_a_group_that_is_hardly_kept_adds_no_nan_to_a_plan():
    log_ratio = np.array([-750.0, 0.0, 1.0, 1.0, -5000.0])
    (row,) = obrs.Profile(log_ratio).plan([1e6], groups=[0, 0, 1, 1, 0], shares=[1.0, 1e300])
    assert not np.any(np.isnan([row[key] for key in ("kl", "rkl", "tv", "js", "chi2", "ess")]))


def test_averages_do_not_depend_on_the_scale_of_the_weights():
    weights = np.array([5000.0, 0.0, 1.0])
    kept = Samples(np.zeros((3, 1)), np.arange(3), np.zeros(3), weights, 3, 3, next_id=3, fixed="proposals")
    assert kept.mean(lambda x: x[:, 0] + 2.0) == 2.0
    assert kept.ess == 1.0


def test_features_too_large_to_be_squared_are_refused_and_one_heavy_row_gives_a_number():
    real, fake = np.random.default_rng(0).normal(size=(2, 30, 2))
    for metric in (metrics.kernel, metrics.frechet, metrics.neighbours):
        with pytest.raises(InputError, match=r"fake has values beyond 1e.12"):
            metric(real=real, fake=1e200 * fake)
    weights = np.where(np.arange(30) < 2, 1.0, 1e-200)
    assert np.isfinite(metrics.frechet_curve(real=real, fake=fake, weights=weights[None]).value).all()


def test_metrics_of_a_rollout_are_numbers_where_one_sequence_is_left():
    train, mask = torch.tensor([[0.0], [-1e5]]), torch.tensor([[False], [True]])
    pick = obrs.rollout(train, torch.zeros(2, 1), mask, keep=1)
    assert not any(np.isnan(value) for value in pick.metrics.values())
    assert float(pick.metrics["ess"]) == pytest.approx(1)
