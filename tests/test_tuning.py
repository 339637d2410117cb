"""`tune` finds what improves a model, says so only where it is confirmed, and is silent where there is nothing."""

import json
from dataclasses import replace

import numpy as np
import pytest

import obrs
from obrs.errors import InputError, InputTypeError, UnknownNameError
from obrs.metrics.curve import Curve

torch = pytest.importorskip("torch")
from obrs import tuning  # noqa: E402
from obrs.metrics.cells import Cells  # noqa: E402
from obrs.ratios.pools import Recipe  # noqa: E402
from obrs.tuning import Pool, Search, Split, Tuned, load, tune  # noqa: E402


def propose(ids):
    return obrs.normals(ids, 2, seed=1, dtype="float32")


def draw(n, shift=1.0, seed=0):
    return np.random.default_rng(seed).normal(shift, 1.0, (n, 2)).astype("float32")


@pytest.fixture(scope="module")
def result():
    return tune(draw(4000), propose, budget=2, pool=4000, progress=False)


def test_a_gain_is_found_confirmed_and_had_by_fresh_samples(result):
    assert result.confirmed
    assert result.change.value < -0.3
    kept = result.sample(3000)
    assert kept.ids.min() >= result.start == 4000
    assert (kept.rate, kept.notes) == (pytest.approx(0.5, abs=0.05), ())
    plain, after = (np.linalg.norm(x.mean(0) - 1) for x in (propose(np.arange(10**6, 10**6 + 3000)), kept.x))
    assert after < 0.7 * plain
    assert str(result).startswith("confirmed by KL on cells at K = 2: ")
    assert result.recipe.coefficients[0][1] <= 2  # of recipes that are as good the simplest is taken
    assert len(result.recipe.coefficients) == 1


def test_what_is_saved_keeps_the_same_ids_when_it_is_loaded(result, tmp_path):
    result.save(tmp_path / "tuned")
    facts = json.loads((tmp_path / "tuned" / "tuned.json").read_text())
    assert (facts["confirmed"], facts["budget"]) == (True, 2)
    again = load(tmp_path / "tuned", propose)
    np.testing.assert_array_equal(again.sample(500).ids, result.sample(500).ids)
    assert (again.lines, again.table) == (result.lines, result.table)
    other = replace(result, recipe=Recipe((("mine", 1.0),)), ratios={"mine": lambda x: x[:, 0]})
    replace(other, score=np.arange(3.0), kept=np.array([0, 2])).save(tmp_path / "tuned")
    again = load(tmp_path / "tuned", np.zeros((3, 2)), extra=other.ratios)  # not by the ratio that was saved before
    np.testing.assert_array_equal(again.log_ratio(np.ones((4, 2))), np.ones(4))
    np.testing.assert_array_equal(np.arange(3)[again.kept], [0, 2])
    assert (again.propose, again.score.tolist()) == (None, [0, 1, 2])


def propose_labelled(ids):
    return torch.as_tensor(propose(ids)), torch.from_numpy(np.asarray(ids) % 3)


class Critic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 1)

    def forward(self, x, label):
        return self.linear(x)[:, 0]


@pytest.mark.parametrize("constants", ["one constant per class", "one constant, calibrated by class"])
def test_a_critic_and_a_ratio_of_ones_own_are_given_again_to_load(constants, tmp_path):
    critic = Critic()
    label_ratio = lambda batch: batch[0][:, 0] + 0.1 * batch[1]  # noqa: E731
    parts = {"critic as it is": lambda batch: critic(*batch), "mine": label_ratio}
    x, y = propose_labelled(np.arange(3000))
    scores = {name: np.asarray(f((x, y)).detach(), np.float64) for name, f in parts.items()}
    recipe = Recipe((("critic as it is", 1.0), ("mine", 2.0)), constants)
    recipe = recipe.calibrate(scores, y.numpy(), dict.fromkeys(range(3), 1 / 3))
    tuned = Tuned(2.0, "a judge", recipe=recipe, rule=recipe.rule(scores, y.numpy(), 2), propose=propose_labelled)
    one = replace(tuned, confirmed=True).use(parts)
    one.save(tmp_path)
    again = load(tmp_path, propose_labelled, critic=critic, extra={"mine": label_ratio})
    np.testing.assert_array_equal(again.sample(300).ids, one.sample(300).ids)
    with pytest.raises(InputError, match="no ratio 'mine', which is yours"):
        load(tmp_path, propose_labelled, critic=critic)
    with pytest.raises(InputTypeError, match="critic must be a torch module"):
        load(tmp_path, propose_labelled, critic=3)
    (tmp_path / "tuned.json").write_text("{}")
    with pytest.raises(InputError, match="was not written by"):
        load(tmp_path, propose_labelled)


def test_another_budget_needs_no_new_fits(result, monkeypatch):
    monkeypatch.setattr(tuning, "refit", None)
    more = result.search.tune(4)
    assert more.confirmed
    assert more.change.value < result.change.value
    assert more.sample(500).rate == pytest.approx(0.25, abs=0.05)


def test_a_budget_that_buys_no_more_than_a_smaller_one_is_said():
    """Of two points in the plane only the sign of x tells anything: K = 2 is too little, and from 3 on all is exact."""
    rng = np.random.default_rng(0)
    tuned = search(rng, 2000, 0.0, sign=True).tune(6)
    assert tuned.confirmed
    assert any(note.startswith("K = 3 buys as much") for note in tuned.notes)
    assert not any("buys as much" in note for note in search(rng, 2000, 0.0, sign=True).tune(2.5).notes)


def test_fakes_that_are_there_are_scored_by_the_fold_that_did_not_see_them(monkeypatch):
    """Each fold is fitted on the other: a ratio that knows the fakes it was fitted on by heart tells nothing."""
    fitted = []

    def refit_by_heart(real, fake, method=None, **options):
        known = {row.tobytes() for row in np.asarray(fake)}
        fitted.append(known)

        def ratio(x):
            assert not any(row.tobytes() in known for row in np.asarray(x))
            return torch.as_tensor(np.asarray(x)).sum(1) * 0.7

        return add_report(ratio)

    monkeypatch.setattr(tuning, "refit", refit_by_heart)
    fake = draw(4000, 0.0, seed=3)
    tuned = tune(draw(4000, 0.7), fake, budget=4, progress=False)
    assert len(fitted) == 2
    assert not fitted[0] & fitted[1]
    assert fitted[0] | fitted[1] == {row.tobytes() for row in fake}
    assert tuned.confirmed
    assert len(tuned.kept) == 1000
    b = tuned.recipe.coefficients[0][1]
    np.testing.assert_allclose(tuned.score, b * 0.7 * fake.sum(1), rtol=1e-4, atol=1e-4)
    assert fake[tuned.kept].mean() > 0.4
    assert len(tuned.search.tune(2).kept) == 2000
    with pytest.raises(InputError, match=r"take fake\[tuned.kept\]"):
        tuned.sample(10)


def test_fakes_with_labels_are_kept_in_equal_shares_of_each_class(monkeypatch):
    """One constant per class: a class of which the ratio thinks little is kept as often as the others."""
    monkeypatch.setattr(tuning, "refit", lambda *_, **__: add_report(lambda batch: batch[0].sum(1) - 3 * batch[1]))
    label = np.arange(3000) % 3
    tuned = tune((draw(3000, 0.7), label), (draw(3000, 0.0, 3), label), budget=3, progress=False)
    assert tuned.recipe.constants == "one constant per class"
    assert np.bincount(label[tuned.kept]).tolist() == [333, 333, 333]


def test_the_half_that_confirms_is_not_the_one_that_chose(monkeypatch):
    """Proposals are made in order: those to fit on, those to choose by, those to confirm by."""
    monkeypatch.setattr(Search, "tune", lambda self, *_, **__: self)
    monkeypatch.setattr(tuning, "refit", no_fit)
    tuned = tune(draw(1200), propose, budget=2, pool=1000, progress=False)
    np.testing.assert_array_equal(tuned.pool.features, propose(np.arange(500)))
    np.testing.assert_array_equal(tuned.other_pool.features, propose(np.arange(500, 1000)))
    real = {row.tobytes() for row in draw(1200).astype("float64")}
    one, two = ({row.tobytes() for row in pool.real} for pool in (tuned.pool, tuned.other_pool))
    assert one | two < real
    assert not one & two


def no_fit(*_, **__):
    return add_report(lambda x: torch.as_tensor(x).sum(1))


def add_report(ratio):
    ratio.report = type("Report", (), {"stopped": ""})
    return ratio


def test_where_the_model_is_right_the_answer_is_the_plain_model(monkeypatch):
    flat = {"flat": lambda x: np.zeros(len(x))}
    tuned = tune(draw(3000, 0.0), propose, budget=2, pool=2000, extra=flat, progress=False)
    assert not tuned.confirmed
    assert "the same score for all proposals" in tuned.notes[-1]
    assert "flat" in tuned.notes[-1]
    assert "this is the plain model" in str(tuned)
    kept = tuned.sample(500)
    assert (kept.proposed, kept.notes) == (500, ("the plain model: no gain was confirmed",))
    monkeypatch.setattr(tuning, "refit", no_fit)
    given = tune(draw(3000, 0.0), draw(2400, 0.0, seed=1), budget=2, progress=False)
    np.testing.assert_array_equal(given.kept, np.arange(2400))


def test_a_pool_of_ratios_has_no_weights(result):
    kept = replace(result, recipe=Recipe((("samples", 2.0),))).sample(50)
    assert "no weights" in kept.notes[0]
    assert np.isnan(kept.log_weight).all()


def test_an_interrupted_search_says_that_nothing_is_confirmed(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "confirm", stop)
    monkeypatch.setattr(tuning, "refit", no_fit)
    tuned = tune(draw(1200), propose, budget=2, pool=1000, progress=False)
    assert str(tuned).startswith("the best so far by KL on cells at K = 2, not confirmed")
    assert "not confirmed" in tuned.sample(20).notes[-1]


def search(rng, n, gain, sign=False):
    """Pools and real points in the plane, a candidate that is right as far as `gain` says, and one of noise."""
    x = rng.normal(size=(2, n, 2))
    reals = rng.normal(gain, 1.0, (2, n, 2))
    if sign:
        reals[:, :, 0] = np.abs(reals[:, :, 0])
    scores = [
        {"one": np.where(p[:, 0] > 0, 0.0, -np.inf) if sign else gain * (p.sum(1) - 1), "two": rng.normal(size=n)}
        for p in x
    ]
    for each in scores:
        each["two"][:9] = -np.inf  # a candidate may say r = 0
    split = Split(np.zeros((1200, 2)), None, None, None, None, None, 0, False)
    pools = (Pool(*each) for each in zip(scores, x, [None] * 2, reals, strict=True))
    return Search(split, dict.fromkeys(("one", "two"), lambda x: x), *pools, propose)


def test_false_alarms_are_few_and_gains_are_found(monkeypatch):
    """The search is over noise: the best of some thirty recipes must not pass for a gain."""
    monkeypatch.setattr(Search, "_recall", lambda *_: obrs.estimate.Estimate(0.0, 0.0, 0.0, 0.0))
    rng = np.random.default_rng(0)
    alarms = sum(search(rng, 600, 0.0).tune(2).confirmed for _ in range(200))
    print(f"{alarms} false alarms in 200 searches")
    assert alarms <= 200 * 0.05 + 2 * np.sqrt(200 * 0.05 * 0.95)
    assert all(search(rng, 600, 0.7).tune(2).confirmed for _ in range(10))


def test_kl_on_cells_has_the_value_and_the_errors_of_repeated_draws():
    rng, values, errors = np.random.default_rng(0), [], []
    for _ in range(200):
        real, fake = rng.normal(0.5, 1.0, (2000, 2)), rng.normal(size=(2000, 2))
        ratio = np.exp(0.5 * fake.sum(1))
        curve = Cells((np.array([0.0, 0.5, 1.0]),) * 2).distance(real, fake, np.stack([ratio * 0 + 1, ratio]))
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
    recipe = Recipe((("a", 2.0),), "one constant, calibrated by class")
    recipe = recipe.calibrate({"a": score}, label, {0: 0.25, 1: 0.25, 2: 0.5})
    r = np.exp(recipe.score({"a": score}, label))
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
    monkeypatch.setattr(tuning, "installed_features", lambda: ())
    for error, message, ask in (
        (InputError, "images without labels need a judge", lambda: tune(images, lambda i: images[i], budget=2)),
        (InputError, "give 1167 or more", lambda: tune(draw(500), propose, budget=2)),
        (InputError, "pool must be", lambda: tune(draw(500), propose, budget=2, pool=10)),
        (UnknownNameError, "unknown pretrained features", lambda: tune(draw(9), propose, budget=2, pretrained=["vgg"])),
        (InputError, "fake has 100 samples", lambda: tune(draw(2000), draw(100), budget=2)),
        (InputTypeError, "extra must be log-ratios by name", lambda: tune(draw(9), propose, budget=2, extra={"a": 3})),
    ):
        with pytest.raises(error, match=message):
            ask()


def test_the_page_of_a_tuned_shows_what_is_kept_and_escapes_what_it_is_told(result, tmp_path):
    pictures, scored = np.zeros((90, 8, 8), "uint8"), replace(result, score=np.zeros(90), kept=np.arange(60))
    title, out = "<script>alert(1)</script>\ud800", tmp_path / "a.html"
    page = obrs.report(scored, samples=pictures, out=out, title=title).read_text()
    assert "<script>" not in page
    assert "confirmed by KL on cells at K = 2" in page
    assert "Kept, 48 of 60" in page
    assert "Rejected, 30 of 30" in page
    assert page.count('<img src="data:image/png;base64,') == 78
    page = obrs.report(replace(scored, kept=np.arange(90)), samples=pictures, out=tmp_path / "b.html").read_text()
    assert "Rejected, 0 of 0" in page
    page = obrs.report(result, out=tmp_path / "c.html").read_text()
    assert "Kept, 48 of" in page
    assert "<title>Tuned</title>" in page
    with pytest.raises(InputError, match="leave them out"):
        obrs.report(result, out=tmp_path / "d.html", budget=2)


def test_the_cost_is_said_before_the_work_and_the_parts_after_it(monkeypatch, capsys):
    monkeypatch.setattr(tuning, "refit", no_fit)
    tuned = tune(draw(1200), propose, budget=2, pool=1000, progress=True)
    err = capsys.readouterr().err
    assert "tune: 1,500 proposals, about " in err
    assert "real samples: 514 fit, 343 choose, 343 confirm" in err
    assert "judged by KL on cells" in err
    assert [name for name, _ in tuned.seconds][-1] == "search"
    assert str(tuned).splitlines()[-1].endswith(")")
