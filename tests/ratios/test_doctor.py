"""The doctor: what it says about ratios whose faults are known, and what it rests on."""

from math import erf, log, sqrt

import numpy as np
import pytest
from planted import FAULTS

import obrs
import obrs.ratios.calibration
from obrs import Profile
from obrs.errors import InputError
from obrs.ratios.doctor import SEEN, diagnose
from obrs.ratios.evidence import area_under_curve, class_means, mean_of_exp, reliability

N = 5000
K = 2.6


def normals(n=N, m=N, d=1.0, seed=0):
    """Exact log-ratios of two normals d apart, of n real and m fake samples."""
    rng = np.random.default_rng(seed)
    return rng.normal(d**2 / 2, d, n), rng.normal(-(d**2) / 2, d, m)


def apply(f, scores):
    return tuple(f(x) for x in scores)


# What a doctor may say of each planted fault, with 200 and with 2000 scores of each kind; `fit`, if it is not here.
ALLOWED = {
    "exact, 4 apart": ("untestable", SEEN),
    **dict.fromkeys(("three times too steep", "three times too flat"), ("repairable", "repairable")),
    **dict.fromkeys(("off by 2", "priors of 1 to 4", "base 10"), ("repairable", "repairable")),
    **dict.fromkeys(("cubed", "probabilities", "noise of 1", "noise of 2"), ("repairable", "repairable")),
    **dict.fromkeys(("sign", "tanh", "clipped", "wrong way round", "unrelated"), ("unfit", "unfit")),
    "noise of 0.5": (None, "repairable"),  # 200 scores do not show it, and the page says so
    "no overlap": ("untestable", "untestable"),
}


@pytest.mark.parametrize("name", [name for name in FAULTS if name != "each row ten times"])
@pytest.mark.parametrize("n", [200, 2000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_planted_faults_are_not_flattered(name, n):
    allowed = ALLOWED.get(name, ("fit", "fit"))[n >= 2000]
    runs = [diagnose(*FAULTS[name](n, np.random.default_rng(seed))[:2], K, seed=seed) for seed in range(6)]
    verdicts = [run.verdict for run in runs]
    assert allowed is None or verdicts.count(allowed) >= 5, verdicts


@pytest.mark.parametrize("name", [name for name, (_, verdict) in ALLOWED.items() if verdict == "repairable"])
def test_repair_is_a_call_that_makes_the_scores_fit(name):
    real, fake, *_ = FAULTS[name](5000, np.random.default_rng(0))
    diagnosis = diagnose(real, fake, K)
    calibration = eval(diagnosis.repair, {"obrs": obrs, "real": real, "fake": fake})
    x = np.linspace(-3, 3, 50)
    np.testing.assert_allclose(calibration(x), diagnosis.calibration(x), rtol=1e-9, atol=1e-9)
    assert diagnose(calibration(real), calibration(fake), K).verdict == "fit"


@pytest.mark.parametrize(
    ("d", "budget", "verdict"),
    [(1.0, 2.6, "fit"), (2.0, 2.6, "fit"), (3.0, 20.0, SEEN), (2.2, 2.0, SEEN), (2.2, 4.0, "fit")],
)
def test_fit_is_not_said_where_the_sets_hardly_overlap(d, budget, verdict):
    """Exact log-ratios of normals d apart: log-loss .16 at 3, a gap of d²/2 against 3 log K."""
    diagnosis = diagnose(*normals(d=d), budget)
    assert diagnosis.verdict == verdict, diagnosis.evidence.log_loss
    assert verdict == "fit" or diagnosis.advice.python.startswith("obrs.tune(")


@pytest.mark.parametrize("times", [1, 3])
def test_missing_support_is_measured_and_not_called_miscalibration(times):
    real, fake, *_ = FAULTS["30 % missing"](N, np.random.default_rng(0))
    diagnosis = diagnose(times * real, times * fake, K)
    assert diagnosis.verdict == ("fit" if times == 1 else "repairable")
    assert diagnosis.missing_support.low < 0.3 < diagnosis.missing_support.high < diagnosis.missing_support.low + 0.05
    assert diagnose(*apply(lambda x: times * x, normals()), K).missing_support is None


def test_what_calibration_leaves_must_be_worth_rejecting_with():
    diagnosis = diagnose(*apply(lambda x: 20 * x, normals(20_000, 20_000, d=0.05)), K)
    assert diagnosis.evidence.auc.low > 0.5, "it tells real from fake"
    assert diagnosis.verdict == "unfit"


# Labels, and what the critic was trained on


def discrete(n, bias, seed=0):
    """Two labels and three values of x; log r exact but for a factor exp(bias) of each label."""
    p = np.array([[0.10, 0.15, 0.05], [0.20, 0.30, 0.20]])  # p(y, x)
    q = np.array([[0.20, 0.20, 0.20], [0.10, 0.10, 0.20]])
    rng = np.random.default_rng(seed)
    cells = [rng.choice(6, n, p=each.reshape(-1)) for each in (p, q)]
    score = (np.log(p / q) + np.asarray(bias)[:, None]).reshape(-1)
    return [score[cell] for cell in cells], [cell // 3 for cell in cells]


def test_class_means_are_the_quotients_of_the_shares():
    """E_Q[r | y] = p(y) / q(y) in closed form; a factor in r of a label is the factor by which it is off."""
    (_, fake), (_, labels) = discrete(200_000, (0.0, 0.4))
    first, second = class_means(fake, labels, {0: 0.3, 1: 0.7})
    assert abs(first.log_excess) < 4 * first.error
    assert abs(second.log_excess - 0.4) < 4 * second.error
    assert first.error < 0.02
    assert (first.deviates, second.deviates) == (False, True)


def test_errors_of_class_means_are_as_large_as_they_vary():
    means = []
    for seed in range(200):
        (_, fake), labels = discrete(2000, (0.0, 0.0), seed)
        p = np.bincount(labels[0]) / 2000
        means.append(class_means(fake, labels[1], dict(enumerate(p)), 2000)[0])
    deviation = np.std([mean.log_excess for mean in means])
    assert np.mean([mean.error for mean in means]) == pytest.approx(deviation, rel=4 / sqrt(2 * 200))
    assert np.mean([mean.deviates for mean in means]) < 0.03


def test_the_doctor_names_classes_and_says_which_way_fits():
    scores, labels = discrete(5000, (0.3, -0.15))
    diagnosis = diagnose(*scores, 2.6, labels=labels)
    (note,) = (note for note in diagnosis.notes if "E_Q[r | y]" in note.text)
    assert "labels 0, 1" in note.text
    assert note.advice.python == "ratio.calibrate_classes(pool)"
    assert {row["name"] for row in diagnosis.rows() if row["mark"] == "!"} >= {"label 0", "label 1"}
    sharp = apply(lambda x: 8 * x, normals(2000, 2000))
    (note,) = (n for n in diagnose(*sharp, K, labels=[np.arange(2000) % 4] * 2).notes if "E_Q[r | y]" in n.text)
    assert "rests on few samples" in note.text
    assert "one constant per class" in note.advice.python
    assert "--group" in note.advice.command
    exact, labels = discrete(5000, (0.0, 0.0))
    assert not any("E_Q[r | y]" in note.text for note in diagnose(*exact, 2.6, labels=labels).notes)
    with pytest.raises(InputError, match="labels must be those of the real samples and of the fakes"):
        diagnose(*exact, 2.6, labels=(labels[0][1:], labels[1]))


# What matters at a budget


def test_errors_of_r_beyond_one_over_c_change_nothing():
    real, fake = normals()
    boundary = -Profile(fake).log_c(K)

    def wrong_above(x):
        return np.where(x > boundary, boundary + 4 * (x - boundary), x)

    diagnosis = diagnose(wrong_above(real), wrong_above(fake), K)
    assert diagnosis.evidence.curve.rms > 0.5
    assert (diagnosis.verdict, diagnosis.at_budget.off) == ("fit", False), diagnosis.reason
    assert "weights and larger budgets need the repair" in diagnosis.reason
    assert "Isotonic" in diagnosis.repair
    assert diagnose(wrong_above(real), wrong_above(fake), 4 * K).verdict == "repairable", "there it counts"


def test_a_constant_changes_no_decision_and_a_temperature_does():
    shifted, thrice = (diagnose(*apply(f, normals()), K).at_budget for f in (lambda x: x + log(3), lambda x: 3 * x))
    assert shifted.misjudged == pytest.approx(0, abs=1e-12)
    assert thrice.misjudged > 0.1
    assert thrice.off
    assert thrice.repaired.low > thrice.removed.high
    assert thrice.repaired.high < log(K), "no rule removes more"


def test_kl_removed_agrees_with_quadrature():
    """Density after rejection on a grid: an independent route."""
    x = np.linspace(-9, 10, 40_001)
    p, q = (np.exp(-((x - mean) ** 2) / 2) / sqrt(2 * np.pi) for mean in (1.0, 0.0))
    step, s, low, high = x[1] - x[0], x - 0.5, -10.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.sum(q * np.minimum(np.exp(s + middle), 1)) * step < 1 / K else (low, middle)
    kept = q * np.minimum(np.exp(s + low), 1)
    kept /= np.sum(kept) * step
    removed = np.sum(p * np.log(p / q)) * step - np.sum(p * np.log(p / kept)) * step
    at = diagnose(*normals(40_000, 40_000), K).at_budget
    assert at.log_c == pytest.approx(low, abs=0.03)
    assert at.removed.value == pytest.approx(removed, abs=4 * at.removed.standard_error)
    assert at.removed.standard_error < 0.01


def test_the_error_of_what_is_removed_is_as_large_as_it_varies():
    kl = [diagnose(*normals(500, 500, seed=s), K).at_budget.removed for s in range(120)]
    deviation = np.std([x.value for x in kl])
    assert np.mean([x.standard_error for x in kl]) == pytest.approx(deviation, rel=4 / sqrt(2 * 120))


# What it rests on


def test_the_score_test_is_normal_and_counts_what_it_says():
    curves = [reliability(*normals(900, 400, seed=seed)) for seed in range(300)]
    z, slope = np.array([c.z for c in curves]), np.array([c.slope for c in curves])
    assert abs(slope.mean()) < 4 / sqrt(300)
    assert slope.std() == pytest.approx(1, abs=4 / sqrt(600))
    assert -0.6 < z.mean() < 0.0, "the number of labels is fixed, so that there is less to find than by chance"
    assert np.mean(z > 3) < 0.02
    real, fake = map(np.sort, normals(900, 400))
    curve = reliability(real, fake)
    assert (np.sum(curve.real), np.sum(curve.fake)) == (900, 400)
    scores, labels = np.concatenate([real, fake]), np.repeat([1.0, 0.0], [900, 400])
    claim = 1 / (1 + 400 / 900 * np.exp(-scores))
    first = np.argsort(scores)[: int(curve.real[0] + curve.fake[0])]
    odds = np.sum(claim[first]) / np.sum(1 - claim[first])
    assert curve.claimed[0] == pytest.approx(log(odds * 400 / 900))
    observed = (np.sum(labels[first]) + 0.5) / (np.sum(1 - labels[first]) + 0.5)
    assert curve.observed[0] == pytest.approx(log(observed * 400 / 900))


def test_area_under_the_curve_is_that_of_all_pairs():
    rng = np.random.default_rng(0)
    real, fake = rng.integers(0, 9, 70) + 1.0, rng.integers(0, 9, 50) + 0.0
    pairs = np.mean((real[:, None] > fake) + 0.5 * (real[:, None] == fake))
    assert area_under_curve(real, fake)[0].value == pytest.approx(pairs)
    exact = (1 + erf(1 / 2)) / 2  # of two normals 1 apart: Phi(1 / sqrt(2))
    areas = [area_under_curve(*normals(400, 300, seed=s))[0] for s in range(200)]
    covered = np.mean([area.low < exact < area.high for area in areas])
    assert abs(covered - 0.95) < 4 * sqrt(0.95 * 0.05 / 200)


def test_mean_ratio_has_an_honest_interval_and_z():
    means = [mean_of_exp(normals(2, 2000, seed=s)[1]) for s in range(400)]
    covered = np.mean([m.estimate.low < 1 < m.estimate.high for m in means])
    assert abs(covered - 0.95) < 4 * sqrt(0.95 * 0.05 / 400)
    z = np.array([m.z for m in means])
    assert abs(np.mean(z)) < 4 / sqrt(400)
    assert np.std(z) == pytest.approx(1, abs=4 / sqrt(800) + 0.1)


# The page


def test_every_library_gives_the_same_page(xp):
    real, fake = normals(400, 300)
    assert str(diagnose(xp.asarray(real), xp.asarray(fake)[:, None], K)) == str(diagnose(real, fake, K))


# Bad input


@pytest.mark.slow
def test_false_alarms_are_below_one_in_a_hundred():
    """Pooled over sizes and distances: 18 of 1800, if the rate were 1 %, with a standard error of 4."""
    cases = [(n, d, seed) for n in (200, 2000, 20_000) for d in (0.3, 1.0, 2.0) for seed in range(200)]
    runs = [diagnose(*normals(n, n, d, seed=seed), K) for n, d, seed in cases]
    most = 0.01 - 2 * sqrt(0.01 * 0.99 / len(cases))
    assert np.mean([diagnosis.verdict != "fit" for diagnosis in runs]) < most, "below 1 % beyond doubt"
    assert np.mean([diagnosis.missing_support is not None for diagnosis in runs]) < most


def test_repeated_rows_count_once_and_rounded_scores_are_none():
    real, fake, *_ = FAULTS["each row ten times"](20_000, np.random.default_rng(0))
    diagnosis = diagnose(real, fake, K)
    assert (diagnosis.verdict, diagnosis.n_real) == ("fit", 2000 + 9)
    assert any("rows were repeated" in note.text for note in diagnosis.notes)
    with pytest.raises(InputError, match=r"got 29 real and 2\d fake .*repeated ones left out"):
        diagnose(real[:200], fake[:200], K)
    assert diagnose(*apply(lambda x: x.round(1), normals()), K).n_real == N
