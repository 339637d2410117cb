"""`tune` finds what improves a model, says so only where it is confirmed, and is silent where there is nothing."""

import json

import numpy as np
import pytest

import obrs
from obrs.errors import InputError, InputTypeError
from obrs.metrics.curve import Curve

torch = pytest.importorskip("torch")
from obrs import tuning  # noqa: E402
from obrs.tuning import Recipe, tune  # noqa: E402


def propose(ids):
    return obrs.normals(ids, 2, seed=1, dtype="float32")


def draw(n, shift=1.0, seed=0):
    return np.random.default_rng(seed).normal(shift, 1.0, (n, 2)).astype("float32")


@pytest.fixture(scope="module")
def tuned():
    return tune(draw(4000), propose, budget=2, pool=4000, progress=False)


def test_a_gain_is_found_confirmed_and_had_by_fresh_samples(tuned, tmp_path):
    assert tuned.confirmed
    assert tuned.change.value < -0.3
    kept = tuned.sample(3000)
    assert kept.ids.min() >= tuned.start == 4000
    assert kept.rate == pytest.approx(0.5, abs=0.05)
    plain, after = (np.linalg.norm(x.mean(0) - 1) for x in (propose(np.arange(10**6, 10**6 + 3000)), kept.x))
    assert after < 0.7 * plain
    assert str(tuned).startswith("confirmed by KL on cells: ")
    tuned.save(tmp_path / "tuned")
    facts = json.loads((tmp_path / "tuned" / "tuned.json").read_text())
    assert (facts["confirmed"], facts["budget"]) == (True, 2)
    again = obrs.ratios.refit.load_ratio(tmp_path / "tuned" / "ratio-0.safetensors")
    np.testing.assert_allclose(again(kept.x[:5]), kept.log_ratio[:5] / tuned.recipe.coefficients[0][1], atol=1e-5)


def test_the_half_that_confirms_is_not_the_one_that_chose(monkeypatch):
    """Proposals are made in order: those to fit on, those to choose by, those to confirm by."""
    seen = []
    monkeypatch.setattr(tuning._Court, "choose", lambda self, tuned, pool, *_: seen.append(pool) or tuned)
    monkeypatch.setattr(tuning._Court, "confirm", lambda self, tuned, pool, real: seen.append(pool) or tuned)
    tune(draw(1200), propose, budget=2, pool=1000, progress=False)
    np.testing.assert_array_equal(seen[0].seen, propose(np.arange(500)))
    np.testing.assert_array_equal(seen[1].seen, propose(np.arange(500, 1000)))


def test_where_the_model_is_right_the_answer_is_the_plain_model():
    found = tune(draw(3000, 0.0), propose, budget=2, pool=2000, progress=False)
    assert not found.confirmed
    assert "this is the plain model" in str(found)
    kept = found.sample(500)
    assert (kept.proposed, kept.notes) == (500, ("the plain model: no gain was confirmed",))


def test_a_pool_of_ratios_has_no_weights(tuned):
    from dataclasses import replace

    def pooled(x):
        return 2 * tuned.log_ratio(x)

    pooled.calibrated = False
    kept = replace(tuned, log_ratio=pooled).sample(50)
    assert "no weights" in kept.notes[0]
    np.testing.assert_array_equal(kept.log_weight, 0)


def test_an_interrupted_search_says_that_nothing_is_confirmed(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning._Court, "confirm", stop)
    found = tune(draw(1200), propose, budget=2, pool=1000, progress=False)
    assert str(found).startswith("the best so far by KL on cells at K = 2, not confirmed")
    assert "not confirmed" in found.sample(20).notes[-1]


def court(rng, n, gain):
    """Pools and real points in the plane, a candidate that is right as far as `gain` says, and one of noise."""
    x = rng.normal(size=(2, n, 2))
    score = [{"one": gain * (p.sum(1) - 1), "two": rng.normal(size=n)} for p in x]
    for each in score:
        each["two"][:9] = -np.inf  # a candidate may say r = 0
    pools = [tuning._Pool(s, p, None) for s, p in zip(score, x, strict=True)]
    reals = [rng.normal(gain, 1.0, (n, 2)) for _ in range(2)]
    distance = tuning._Cells.fit(reals[0]).distance
    candidates = [tuning._Candidate(name, lambda x: x) for name in ("one", "two")]
    start = tuning.Tuned(2.0, "a judge", (), None, None, False, len, None, propose, 0)
    made = tuning._Court(distance, 2.0, None, candidates, None)
    return made.confirm(made.choose(start, pools[0], reals[0], keep_recall=False), pools[1], reals[1])


def test_false_alarms_are_few_and_gains_are_found(monkeypatch):
    """The search is over noise: the best of some thirty recipes must not pass for a gain."""
    monkeypatch.setattr(tuning._Court, "_recall", lambda *_: obrs.estimate.Estimate(0.0, 0.0, 0.0, 0.0))
    rng = np.random.default_rng(0)
    alarms = sum(court(rng, 600, 0.0).confirmed for _ in range(200))
    assert alarms <= 200 * 0.05 + 2 * np.sqrt(200 * 0.05 * 0.95)
    assert all(court(rng, 600, 0.7).confirmed for _ in range(10))


def test_of_recipes_that_are_as_good_the_simplest_is_taken(tuned):
    assert tuned.recipe.coefficients[0][1] <= 2
    assert len(tuned.recipe.coefficients) == 1


def test_kl_on_cells_has_the_value_and_the_errors_of_repeated_draws():
    rng, values, errors = np.random.default_rng(0), [], []
    for _ in range(200):
        real, fake = rng.normal(0.5, 1.0, (2000, 2)), rng.normal(size=(2000, 2))
        ratio = np.exp(0.5 * fake.sum(1))
        curve = tuning._Cells((np.array([0.0, 0.5, 1.0]),) * 2).distance(real, fake, np.stack([ratio * 0 + 1, ratio]))
        assert isinstance(curve, Curve)
        values.append(curve.value)
        errors.append(curve.difference(1, 0).standard_error)
    values = np.array(values)
    from scipy.stats import norm

    edges = np.array([-np.inf, 0, 0.5, 1, np.inf])
    p, q = (np.outer(*[np.diff(norm.cdf(edges - shift))] * 2) for shift in (0.5, 0.0))
    assert values[:, 0].mean() == pytest.approx(np.sum(p * np.log(p / q)), abs=0.004)
    assert abs(values[:, 1].mean()) < 0.004
    assert np.mean(errors) == pytest.approx((values[:, 1] - values[:, 0]).std(), rel=0.15)


def test_calibration_by_class_gives_each_class_its_mean_ratio():
    rng = np.random.default_rng(0)
    label, score = rng.integers(0, 3, 3000), rng.normal(size=3000)
    pool = tuning._Pool({"a": score}, np.zeros((3000, 1)), label)
    recipe = Recipe((("a", 2.0),), "one constant, calibrated by class").calibrate(pool, {0: 1, 1: 1, 2: 2})
    r = np.exp(recipe.score(pool))
    for y, share in enumerate((0.25, 0.25, 0.5)):
        assert r[label == y].sum() / 3000 == pytest.approx(share)


@pytest.mark.slow
def test_images_with_labels_are_judged_by_a_second_classifier():
    from sklearn.datasets import load_digits

    pixels, label = load_digits(return_X_y=True)
    images, rng = (pixels / 8 - 1).astype("float32").reshape(-1, 1, 8, 8), np.random.default_rng(0)
    images, label = np.tile(images, (2, 1, 1, 1)), np.tile(label.astype("int64"), 2)
    noise = rng.random(len(images)) < 0.5  # half of the model's images are spoilt

    def model(ids):
        at = ids % len(images)
        spoilt = np.where(noise[at, None, None, None], images[at][:, :, ::-1].copy(), images[at])
        return torch.from_numpy(spoilt), torch.from_numpy(label[at])

    found = tune((images, label), model, budget=2, pool=1600, extra={"upright": upright}, progress=False)
    assert found.judge == "a second classifier"
    assert any("one constant per class" in name for name, _ in found.rows)


def upright(batch):
    """Upright digits are lighter in their upper half than turned ones, by and large."""
    x = batch[0].float()
    return (x[:, :, :4].mean((1, 2, 3)) - x[:, :, 4:].mean((1, 2, 3))) * 4


def test_mistakes_are_one_line(monkeypatch):
    images = np.zeros((100, 1, 8, 8), "float32")
    monkeypatch.setattr(tuning, "find_spec", lambda name: None)
    for error, message, ask in (
        (InputError, "images without labels need a judge", lambda: tune(images, lambda i: images[i], budget=2)),
        (InputError, "give at least", lambda: tune(draw(500), propose, budget=2)),
        (InputError, "pool must be", lambda: tune(draw(500), propose, budget=2, pool=10)),
        (InputTypeError, "extra must be log-ratios by name", lambda: tune(draw(9), propose, budget=2, extra={"a": 3})),
    ):
        with pytest.raises(error, match=message):
            ask()
