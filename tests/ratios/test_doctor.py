"""The doctor: what it says about ratios whose faults are known, and what it rests on."""

import copy
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


def half_missing(n=N, m=N, seed=0):
    """Exact log-ratios where the target has a mode, 30 % of it, that the model never makes."""
    rng = np.random.default_rng(seed)
    real = rng.normal(0, 1, n) + 8 * (rng.random(n) < 0.3)
    fake = rng.normal(0.7, 1, m)

    def log_ratio(x):
        return np.logaddexp(log(0.7) - x**2 / 2, log(0.3) - (x - 8) ** 2 / 2) + (x - 0.7) ** 2 / 2

    return log_ratio(real), log_ratio(fake)


def of_other_data(n=N, seed=0):
    """A discriminator that looks where real and fake do not differ."""
    return tuple(np.random.default_rng(seed).normal(size=(2, n)))


def mapped(f, scores):
    return tuple(f(x) for x in scores)


CASES = {
    "exact": (normals(), "fit", "no fault was found"),
    "nothing to gain": ((np.zeros(N), np.zeros(N)), "fit", "nothing to gain"),
    "exact, far apart": (normals(d=4.0), SEEN, "only a judge tells"),
    "times 3": (mapped(lambda x: x + log(3), normals()), "repairable", "slope=False"),
    "over-confident by temperature 3": (mapped(lambda x: 3 * x, normals()), "repairable", "intercept=False"),
    "under-confident": (mapped(lambda x: x / 3, normals()), "repairable", "intercept=False"),
    "bent": (mapped(lambda x: np.exp(x / 2), normals()), "repairable", "calibrated by"),
    "of other data": (of_other_data(), "unfit", "cannot tell real from fake"),
    "the wrong way round": (mapped(np.negative, normals()), "unfit", "wrong way round"),
    "of no monotone use": (
        (np.repeat([2.0, -2.5], [7 * N // 10, 3 * N // 10]) + normals(d=0.3)[0], normals()[1]),
        "unfit",
        "no monotone map",
    ),
    "the sign alone": (mapped(np.sign, normals()), "unfit", "hinge"),
    "a dropped mode": (half_missing(), "fit", "missing support: 3"),
    "a dropped mode, over-confident": (mapped(lambda x: 3 * x, half_missing()), "repairable", "missing support: 3"),
}


@pytest.fixture(scope="module")
def found():
    """Each case, diagnosed once."""
    return {name: diagnose(*scores, K) for name, (scores, _, _) in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_verdict_and_reason_are_those_of_the_fault(found, name):
    _, verdict, words = CASES[name]
    assert found[name].verdict == verdict, found[name].reason
    assert words in found[name].reason + found[name].repair


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[1] == "repairable"])
def test_repair_is_a_call_that_makes_the_scores_fit(found, name):
    real, fake = CASES[name][0]
    calibration = eval(found[name].repair, {"obrs": obrs, "real": real, "fake": fake})
    x = np.linspace(-3, 3, 50)
    np.testing.assert_allclose(calibration(x), found[name].calibration(x), rtol=1e-9, atol=1e-9)
    assert diagnose(calibration(real), calibration(fake), K).verdict == "fit"


def test_fit_is_not_said_where_the_sets_hardly_overlap():
    """Exact log-ratios of normals d apart: log-loss .16 at 3, a gap of d²/2 against 3 log K."""
    for d, budget, verdict in (
        (1.0, 2.6, "fit"),
        (2.0, 2.6, "fit"),
        (3.0, 20.0, SEEN),
        (2.2, 2.0, SEEN),
        (2.2, 4.0, "fit"),
    ):
        diagnosis = diagnose(*normals(d=d), budget)
        assert diagnosis.verdict == verdict, (d, diagnosis.evidence.log_loss)
        if verdict == SEEN:
            lines = str(diagnosis).splitlines()
            assert lines[0] == f"CALIBRATED FOR WHAT IT SEES at a budget of {budget:g}"
            assert lines[1].startswith("because  only a judge tells whether that is what you care about")
            assert diagnosis.advice.python.startswith("obrs.tune(")
            assert diagnosis.repair == ""


def test_missing_support_is_measured_and_not_called_miscalibration(found):
    for name in ("a dropped mode", "a dropped mode, over-confident"):
        share = found[name].missing_support
        assert share.low < 0.3 < share.high
        assert share.high - share.low < 0.05
        assert any("train it" in note.text for note in found[name].notes)
    assert all(d.missing_support is None for name, d in found.items() if "dropped" not in name)
    rng, n = np.random.default_rng(0), 20_000
    real = np.where(rng.random(n) > 0.04, log(0.96), 30.0) + 1e-3 * rng.normal(size=n)
    one_of_25 = diagnose(real, np.full(n, log(0.96)) + 1e-3 * rng.normal(size=n), K)
    assert one_of_25.verdict == "fit"
    assert one_of_25.missing_support.value == pytest.approx(0.04, abs=0.005)


def test_what_calibration_leaves_must_be_worth_rejecting_with():
    diagnosis = diagnose(*mapped(lambda x: 20 * x, normals(20_000, 20_000, d=0.05)), K)
    assert diagnosis.evidence.auc.low > 0.5, "it tells real from fake"
    assert diagnosis.verdict == "unfit"
    assert "next to nothing" in diagnosis.reason


# A hinge critic, trained


@pytest.fixture(scope="module")
def hinge():
    """Critic, real and fake samples, two normals 2 apart, and the critic before it came to its optimum."""
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)

    def batch(n):
        real, fake = torch.randn(2, n, 2, generator=generator)
        return real, fake + torch.tensor([2.0, 0.0])

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU()]
        critic = torch.nn.Sequential(*layers, torch.nn.Linear(64, 1), torch.nn.Flatten(0))
    optimiser = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    early = None
    for step in range(400):
        if step == 30:
            early = copy.deepcopy(critic)
        real, fake = batch(256)
        loss = torch.relu(1 - critic(real)).mean() + torch.relu(1 + critic(fake)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return critic, *batch(N), early


def test_hinge_output_is_unfit_until_refit(hinge):
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    from obrs import normals as normal_draws
    from obrs.ratios.refit import FineTune, refit

    critic, real, fake, _ = hinge
    with torch.no_grad():
        diagnosis = diagnose(critic(real), critic(fake), K)
    assert diagnosis.verdict == "unfit"
    assert "hinge" in diagnosis.reason
    assert diagnosis.repair == "obrs.refit(real, propose, obrs.ratios.refit.FineTune(critic))"

    def propose(ids):
        return normal_draws(ids, 2, seed=3, like=real) + torch.tensor([2.0, 0.0])

    train = torch.randn(20_000, 2, generator=torch.Generator().manual_seed(1))
    fitted = refit(train, propose, FineTune(critic), steps=400, progress=False)
    assert diagnose(fitted(real), fitted(fake), K).verdict in ("fit", "repairable")


def test_a_hinge_critic_short_of_its_optimum_is_unfit_if_one_says_what_it_is(hinge):
    torch = pytest.importorskip("torch")
    _, real, fake, early = hinge
    with torch.no_grad():
        scores = early(real), early(fake)
    assert diagnose(*scores, K).verdict == "repairable", "it does not look like one"
    for kind in ("hinge", "wgan", "lsgan"):
        diagnosis = diagnose(*scores, K, kind=kind)
        assert diagnosis.verdict == "unfit"
        assert "is no log-ratio" in diagnosis.reason
        assert diagnosis.repair == "obrs.refit(real, propose, obrs.ratios.refit.FineTune(critic))"
        assert any(note.advice and "Network()" in note.advice.python for note in diagnosis.notes), "if not enough"


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
    assert (first.off, second.off) == (False, True)


def test_errors_of_class_means_are_as_large_as_they_vary():
    found = []
    for seed in range(200):
        (_, fake), labels = discrete(2000, (0.0, 0.0), seed)
        p = np.bincount(labels[0]) / 2000
        found.append(class_means(fake, labels[1], dict(enumerate(p)), 2000)[0])
    deviation = np.std([mean.log_excess for mean in found])
    assert np.mean([mean.error for mean in found]) == pytest.approx(deviation, rel=4 / sqrt(2 * 200))
    assert np.mean([mean.off for mean in found]) < 0.03


def test_the_doctor_names_classes_and_says_which_way_fits():
    scores, labels = discrete(5000, (0.3, -0.15))
    diagnosis = diagnose(*scores, 2.6, labels=labels)
    (note,) = (note for note in diagnosis.notes if "E_Q[r | y]" in note.text)
    assert "labels 0, 1" in note.text
    assert note.advice.python == "ratio.calibrate_classes(pool)"
    assert {row["name"] for row in diagnosis.rows() if row["mark"] == "!"} >= {"label 0", "label 1"}
    sharp = mapped(lambda x: 8 * x, normals(2000, 2000))
    (note,) = (n for n in diagnose(*sharp, K, labels=[np.arange(2000) % 4] * 2).notes if "E_Q[r | y]" in n.text)
    assert "rests on few samples" in note.text
    assert "one constant per class" in note.advice.python
    assert "--group" in note.advice.command
    exact, labels = discrete(5000, (0.0, 0.0))
    assert not any("E_Q[r | y]" in note.text for note in diagnose(*exact, 2.6, labels=labels).notes)
    with pytest.raises(InputError, match="labels must be those of the real samples and of the fakes"):
        diagnose(*exact, 2.6, labels=(labels[0][1:], labels[1]))


def test_a_critic_that_knows_its_training_samples_by_heart_is_told():
    real, fake = normals()
    (note,) = diagnose(real, fake, K, trained_on=normals(seed=7)[0] + 1).notes
    assert "knows its training samples by heart" in note.text
    assert diagnose(real, fake, K, trained_on=normals(seed=7)[0]).notes == ()


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


def test_a_constant_changes_no_decision_and_a_temperature_does(found):
    assert found["times 3"].at_budget.misjudged == pytest.approx(0, abs=1e-12)
    thrice = found["over-confident by temperature 3"].at_budget
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
    found = [diagnose(*normals(500, 500, seed=s), K).at_budget.removed for s in range(120)]
    deviation = np.std([x.value for x in found])
    assert np.mean([x.standard_error for x in found]) == pytest.approx(deviation, rel=4 / sqrt(2 * 120))


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
    found = [diagnose(*normals(n, n, d, seed=seed), K) for n, d, seed in cases]
    most = 0.01 - 2 * sqrt(0.01 * 0.99 / len(cases))
    assert np.mean([diagnosis.verdict != "fit" for diagnosis in found]) < most, "below 1 % beyond doubt"
    assert np.mean([diagnosis.missing_support is not None for diagnosis in found]) < most


# Planted faults

# What a doctor may say of each fault, with 200 and with 2000 scores of each kind.
ALLOWED = {
    "exact, 4 apart": ("untestable", SEEN),
    "three times too steep": ("repairable", "repairable"),
    "three times too flat": ("repairable", "repairable"),
    "off by 2": ("repairable", "repairable"),
    "priors of 1 to 4": ("repairable", "repairable"),
    "base 10": ("repairable", "repairable"),
    "sign": ("unfit", "unfit"),
    "tanh": ("unfit", "unfit"),
    "clipped": ("unfit", "unfit"),
    "cubed": ("repairable", "repairable"),
    "probabilities": ("repairable", "repairable"),
    "wrong way round": ("unfit", "unfit"),
    "unrelated": ("unfit", "unfit"),
    "noise of 0.5": (None, "repairable"),  # 200 scores do not show it, and the page says so
    "noise of 1": ("repairable", "repairable"),
    "noise of 2": ("repairable", "repairable"),
    "no overlap": ("untestable", "untestable"),
}


@pytest.mark.parametrize("name", [name for name in FAULTS if name != "each row ten times"])
@pytest.mark.parametrize("n", [200, 2000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_planted_faults_are_not_flattered(name, n):
    allowed = ALLOWED.get(name, ("fit", "fit"))[n >= 2000]
    runs = [diagnose(*FAULTS[name](n, np.random.default_rng(seed))[:2], K, seed=seed) for seed in range(6)]
    verdicts = [found.verdict for found in runs]
    assert allowed is None or verdicts.count(allowed) >= 5, verdicts


def test_repeated_rows_count_once_and_rounded_scores_are_none():
    real, fake, *_ = FAULTS["each row ten times"](20_000, np.random.default_rng(0))
    found = diagnose(real, fake, K)
    assert (found.verdict, found.n_real) == ("fit", 2000 + 9)
    assert any("rows were repeated" in note.text for note in found.notes)
    with pytest.raises(InputError, match=r"got 29 real and 2\d fake .*repeated ones left out"):
        diagnose(real[:200], fake[:200], K)
    assert diagnose(*mapped(lambda x: x.round(1), normals()), K).n_real == N
