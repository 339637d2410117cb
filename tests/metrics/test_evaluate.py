"""Evaluate: one pool says what samples that were really kept would say, at every budget, and how sure it is."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

import obrs
from obrs.errors import BudgetError, InputError, RatioError, UnknownNameError
from obrs.estimate import Estimate
from obrs.metrics.frechet_distance import frechet
from obrs.metrics.kernel_distance import kernel, kernel_curve
from obrs.metrics.nearest_neighbours import neighbours
from obrs.metrics.rows import row_hashes, seen_before
from obrs.metrics.table import METRICS, Row, Table, load_table
from obrs.metrics.weightings import weightings

DIM, WIDE = 6, 1.3


def log_ratio_of(fake):
    return -0.5 * (fake**2).sum(1) * (1 - WIDE**-2)


def problem(n_real, n_fake, seed=0):
    rng = np.random.default_rng(seed)
    real, fake = rng.standard_normal((n_real, DIM)), WIDE * rng.standard_normal((n_fake, DIM))
    return real, fake, log_ratio_of(fake)


@pytest.fixture(scope="module")
def found():
    real, fake, log_ratio = problem(500, 1600)
    return obrs.evaluate(real=real, fake=fake, log_ratio=log_ratio, budgets=[4, 2])


def test_rows_are_the_model_and_each_rule_at_each_budget(found):
    keys = [(row.rule, row.budget) for row in found.rows]
    assert keys == [("model", 1.0), ("obrs", 2.0), ("obrs", 4.0), ("drs", 2.0), ("drs", 4.0)]
    assert found.metrics == tuple(METRICS)
    assert [row.rate for row in found.rows] == pytest.approx([1, 0.5, 0.25, 0.5, 0.25], rel=1e-6)
    assert found.size == 400  # what the largest budget keeps
    assert found.rows[0].n == pytest.approx(1600)
    for row in found.rows:
        for value in (*row.metrics.values(), *row.change.values()):
            assert value.low <= value.value <= value.high


def test_ess_is_that_of_the_profile(found):
    _, _, log_ratio = problem(500, 1600)
    profile = obrs.Profile(log_ratio)
    assert found.rows[0].ess == pytest.approx(profile.ess(1))
    assert found.rows[2].ess == pytest.approx(profile.ess(4))
    assert found.rows[4].ess < found.rows[2].ess  # DRS at the same budget


def test_a_budget_buys_what_it_should(found):
    """The exact ratio: every distance falls with the budget, and falls further with OBRS than with DRS."""
    model, two, four, drs, _ = found.rows
    for name in ("frechet", "kernel"):
        assert two.change[name].high < 0
        assert four[name].value < two[name].value < drs[name].value < model[name].value
    assert four.change["precision"].low > 0
    assert model.change["recall"].standard_error == 0


def test_differences_are_known_better_than_values(found):
    four = found.rows[2]
    for name in ("frechet", "precision", "density"):
        apart = np.hypot(four[name].standard_error, found.rows[0][name].standard_error)
        assert four.change[name].standard_error < apart


def test_values_are_those_of_the_metrics_at_the_weights_of_each_rule(found):
    real, fake, log_ratio = problem(500, 1600)
    for row, rule in ((found.rows[2], obrs.Budgeted.fit(log_ratio, 4)), (found.rows[3], obrs.DRS.fit(log_ratio, 2))):
        given = {"real": real, "fake": fake, "weights": np.exp(rule(log_ratio))}
        near = neighbours(**given, size=400, draws=4)
        direct = {"frechet": frechet(**given, extrapolate=True).value, "frechet_plain": frechet(**given).value}
        direct |= {"kernel": kernel(**given).value}
        direct |= {name: getattr(near, name) for name in ("precision", "recall", "density", "coverage")}
        assert {name: row[name].value for name in METRICS} == pytest.approx(direct, rel=1e-6)


def accepted(pool, weights, n, rng):
    """Rows that rejection really keeps, the first n of them."""
    kept = np.flatnonzero(rng.random(len(pool)) < weights)
    assert len(kept) >= n
    return pool[kept[:n]]


def test_the_weighted_pool_says_what_accepted_samples_say():
    """At one n both agree; at their own n they do not."""
    budget, n, runs = 3.0, 250, 12
    weighted, drawn, plain = [], [], []
    for seed in range(runs):
        rng = np.random.default_rng(100 + seed)
        real, fake, log_ratio = problem(300, 1000, seed)
        weights = np.exp(obrs.Budgeted.fit(log_ratio, budget)(log_ratio))
        kept = accepted(fake, weights, n, rng)
        near = neighbours(real=real, fake=fake, weights=weights, size=n, draws=2, seed=seed)
        fd = frechet(real=real, fake=fake, weights=weights, extrapolate=True).value
        weighted.append([fd, kernel(real=real, fake=fake, weights=weights).value, near.precision, near.recall])
        weighted[-1] += [near.density, near.coverage]
        there = neighbours(real=real, fake=kept)
        drawn.append([frechet(real=real, fake=kept, extrapolate=True).value, kernel(real=real, fake=kept).value])
        drawn[-1] += [there.precision, there.recall, there.density, there.coverage]
        plain.append(frechet(real=real, fake=kept).value - frechet(real=real, fake=fake, weights=weights).value)
    apart = np.array(weighted) - np.array(drawn)
    error = apart.std(axis=0, ddof=1) / np.sqrt(runs)
    assert np.all(np.abs(apart.mean(axis=0)) < 3.2 * error)
    assert np.mean(plain) > 3 * np.std(plain, ddof=1) / np.sqrt(runs)  # the plain distance speaks of its n


def test_one_constant_per_group_and_its_errors():
    """Groups: the rate of each is 1/K; errors know that constants are solved for, as simulation says."""
    budget, runs, values, variances = 4.0, 150, [], []
    real = np.random.default_rng(999).standard_normal((100, 1)) + 3  # always the same: the error of the pool alone
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        groups = rng.integers(0, 2, 300)
        fake = rng.standard_normal((300, 1)) + groups[:, None]
        pool = weightings(-fake[:, 0] * (1 + groups), [budget], ["obrs", "drs"], groups)
        for label in (0, 1):
            assert pool.weights[1, groups == label].mean() == pytest.approx(1 / budget)
        curve = pool.pulled(kernel_curve(real=real, fake=fake, weights=pool.weights))
        values.append(curve.value)
        variances.append(np.square(curve.fake_influence).sum(axis=1))
    spread, said = np.std(values, axis=0, ddof=1), np.sqrt(np.mean(variances, axis=0))
    assert said == pytest.approx(spread, rel=3 / np.sqrt(2 * (runs - 1)))  # as if weights were given: 25 % too small


def test_shares_are_kept_on_a_pool_and_their_errors_are_right():
    runs, values, variances = 200, [], []
    real = np.random.default_rng(1).standard_normal((400, 2))
    for seed in range(runs):
        rng = np.random.default_rng([7, seed])
        groups = rng.integers(0, 2, 300)
        fake = rng.standard_normal((300, 2)) * 1.4 + groups[:, None]
        log_ratio = -0.5 * (fake**2).sum(1) * (1 - 1.4**-2)
        pool = weightings(log_ratio, [2, 3], ["obrs"], groups, shares={0: 3, 1: 1})
        for budget, line in zip((2, 3), pool.weights[1:], strict=True):
            assert line.mean() == pytest.approx(1 / budget, rel=1e-6)
            assert line[groups == 0].sum() / line.sum() == pytest.approx(0.75, rel=1e-6)
        curve = pool.pulled(kernel_curve(real=real, fake=fake, weights=pool.weights))
        values.append(curve.value)
        variances.append(np.square(curve.fake_influence).sum(axis=1))
    spread, said = np.std(values, axis=0, ddof=1), np.sqrt(np.mean(variances, axis=0))
    assert said == pytest.approx(spread, rel=3.5 / np.sqrt(2 * (runs - 1)))


def test_shares_that_a_pool_cannot_have_are_one_line():
    with pytest.raises(BudgetError, match=r"shares need a budget of at least 1\.6 on this pool, got 1.5"):
        weightings(np.zeros(100), [1.5], ["obrs"], np.arange(100) % 2, shares=[4, 1])
    with pytest.raises(InputError, match="shares are those of groups"):
        weightings(np.zeros(100), [1.5], ["obrs"], shares=[4, 1])


def test_one_group_is_no_group():
    real, fake, log_ratio = problem(200, 400)
    alone = weightings(log_ratio, [1, 2], ["obrs", "drs"])
    one = weightings(log_ratio, [1, 2], ["obrs", "drs"], np.zeros(400, dtype=int))
    assert np.allclose(one.weights, alone.weights)
    common = {"real": real, "fake": fake, "weights": alone.weights}
    pulled, own = one.pulled(kernel_curve(**common)), kernel_curve(**common, slopes=alone.slopes)
    assert np.allclose(pulled.standard_error, own.standard_error, rtol=1e-3)


def test_groups_reach_the_table():
    real, fake, log_ratio = problem(100, 400)
    groups = np.arange(400) % 2
    found = obrs.evaluate(real=real, fake=fake, log_ratio=log_ratio, groups=groups, budgets=[2], rules=["obrs"])
    assert found.grouped
    assert "one constant per group" in found.plot(["frechet"]).get_suptitle()


def test_without_a_ratio_the_model_is_measured():
    real, fake, _ = problem(200, 300)
    found = obrs.evaluate(real=real, fake=fake)
    assert len(found.rows) == 1
    assert found.rows[0]["precision"].value == pytest.approx(neighbours(real=real, fake=fake).precision)
    assert found.rows[0]["recall"].value == pytest.approx(neighbours(real=real, fake=fake).recall)
    assert np.isnan(found.rows[0].ess)


def test_what_is_saved_comes_back(found, tmp_path):
    unknown = replace(found, rows=(replace(found.rows[0], ess=np.nan), *found.rows[1:]))
    home = unknown.save(tmp_path / "new" / "folder")
    again = load_table(home)
    assert np.isnan(again.rows[0].ess)
    assert replace(again, rows=(found.rows[0], *again.rows[1:])) == found
    assert (home / "evaluate.png").read_bytes().startswith(b"\x89PNG")
    json.loads((home / "evaluate.json").read_text(), parse_constant=lambda name: pytest.fail(name))


def test_a_file_of_something_else(tmp_path):
    (tmp_path / "evaluate.json").write_text("{}")
    with pytest.raises(InputError, match=r"was not written by Table\.save"):
        load_table(tmp_path)


def test_the_text_has_every_row(found):
    lines = str(found).splitlines()
    assert lines[0] == "1,600 fakes against 500 real samples, 6 features"
    assert len(lines) == 2 + len(found.rows) + 2
    assert "recall and coverage are for 400 fakes" in lines[-1]


def test_only_inception_has_an_fid(found):
    assert found.title("frechet") == "FD, n → ∞"
    lite = replace(found, features="efficientnet_lite0", titled="EfficientNet-Lite0")
    assert lite.title("frechet_plain") == "FD (EfficientNet-Lite0) at n"
    assert replace(found, features="inception_v3", titled="Inception-v3").title("kernel") == "KID"


def test_real_rows_that_the_ratio_has_seen_are_warned_of():
    real, fake, log_ratio = problem(100, 200)
    options = {"real": real, "fake": fake, "log_ratio": log_ratio, "budgets": [2], "rules": ["obrs"], "draws": 1}
    with pytest.warns(UserWarning, match="40 of 100 real samples were also used to fit the ratio"):
        obrs.evaluate(**options, fitted_on=real[:40])
    with pytest.warns(UserWarning, match="40 of 100 real samples"):
        obrs.evaluate(**options, fitted_on=row_hashes(real[:40]))

    class Ratio:
        seen = row_hashes(real[:3])

        def __call__(self, x):
            return log_ratio_of(x)

    with pytest.warns(UserWarning, match="3 of 100 real samples"):
        obrs.evaluate(**{**options, "log_ratio": Ratio()})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        obrs.evaluate(**options, fitted_on=real + 1)


def test_a_refitted_ratio_knows_its_rows(tmp_path):
    from obrs.ratios.refit import Network, load_ratio

    real, fake, _ = problem(200, 200)
    fitted = obrs.refit(real, fake, Network(width=8), steps=1, held_out=0.3)
    fitted.save(tmp_path / "ratio")
    for ratio in (fitted, load_ratio(tmp_path / "ratio")):
        assert seen_before(row_hashes(real.astype(np.float32)), ratio.seen) == 200
        assert seen_before(row_hashes(real + 1), ratio.seen) == 0


def test_bytes_and_floats_are_the_same_row():
    images = np.arange(48, dtype=np.uint8).reshape(3, 1, 4, 4)
    floats = images.astype(np.float32) / np.float32(127.5) - np.float32(1)
    assert np.array_equal(row_hashes(images), row_hashes(floats))
    assert len(set(row_hashes(images).tolist())) == 3


def test_fewer_samples_than_dimensions_are_warned_of():
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="60 dimensions and there are 50 real samples"):
        obrs.evaluate(real=rng.standard_normal((50, 60)), fake=rng.standard_normal((90, 60)))


def test_images_of_two_sizes_are_one_line():
    real, fake = np.zeros((60, 8, 8), np.uint8), np.zeros((60, 3, 10, 12), np.uint8)
    with pytest.raises(InputError, match="real has images of 8x8 and fake of 12x10; resize one of them first"):
        obrs.evaluate(real=real, fake=fake, features="gradients")


def test_images_and_files(tmp_path, monkeypatch):
    from paper.data.images import load

    monkeypatch.setenv("OBRS_DATA", str(tmp_path / "cache"))
    digits = load("digits")
    real, fake = digits.test, digits.train[:200]
    np.save(tmp_path / "real.npy", ((real + 1) * 127.5).round().astype(np.uint8))
    np.savez(tmp_path / "fake.npz", images=(fake + 1) / 2)
    direct = obrs.evaluate(real=real, fake=fake, features="gradients")
    assert direct.title("frechet") == "FD (oriented gradients), n → ∞"
    with pytest.raises(InputError, match="no value below 0"):
        obrs.evaluate(real=tmp_path / "real.npy", fake=tmp_path / "fake.npz", features="gradients")
    files = obrs.evaluate(real=tmp_path / "real.npy", fake=tmp_path / "fake.npz", features="gradients", pixels=(0, 1))
    assert files.rows[0]["frechet"].value == pytest.approx(direct.rows[0]["frechet"].value, abs=1e-3)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"log_ratio": np.zeros(7)}, InputError, r"log_ratio must have shape \(200,\), one per fake, got \(7,\)"),
        ({"log_ratio": np.full(200, np.nan)}, RatioError, "NaN"),
        ({"budgets": [0.5]}, BudgetError, "did you mean budget=2"),
        ({"budgets": []}, InputError, "budgets must be at least one number"),
        ({"budgets": [2, 2]}, InputError, "each once"),
        ({"budgets": 3}, InputError, r"budgets must be a list of numbers such as \[1, 2, 4\], got 3"),
        ({"rules": ["orbs"]}, UnknownNameError, "did you mean 'obrs'"),
        ({"rules": []}, InputError, "rules must be at least one of"),
        ({"rules": ["drs", "drs"]}, InputError, "rules must be .* each once"),
        ({"rules": "orbs"}, UnknownNameError, "did you mean 'obrs'"),
        ({"seed": -1}, InputError, "seed must be a whole number from 0 to"),
        ({"groups": np.zeros(3, dtype=int)}, InputError, r"groups must have shape \(200,\)"),
        ({"log_ratio": None, "groups": np.zeros(200, dtype=int)}, InputError, "groups need log_ratio"),
        ({"real": np.zeros((100, 1, 8, 8))}, InputError, r"if these are images, say features=, one of gradients"),
        ({"real": np.zeros((100, 3))}, InputError, "the same dimension, got 3 and 6"),
        ({"features": "gradient"}, UnknownNameError, "did you mean 'gradients'"),
        ({"confidence": 2}, InputError, "confidence must be a probability between 0 and 1"),
        ({"k": 0}, InputError, "k must be a whole number"),
        (
            {"budgets": [100]},
            InputError,
            "need at least 40 real samples and 40 fakes, got 100 and .* kept at the largest",
        ),
        ({"real": np.zeros((4, 6))}, InputError, "need at least 40 real samples and 40 fakes, got 4 and"),
        ({"k": 60, "size": 61}, InputError, "need at least 68 real samples and 68 fakes, got 100 and 61 fakes"),
        ({"real": np.full((100, 6), np.nan)}, InputError, "real must be finite, 100 of 100 points are not"),
        ({"size": 1000}, InputError, "size must be at most 200"),
    ],
)
def test_bad_input_is_one_line(change, error, says):
    real, fake, log_ratio = problem(100, 200)
    given = {"real": real, "fake": fake, "log_ratio": log_ratio + 50 * (fake[:, 0] > 3), "budgets": [2]}
    with pytest.raises(error, match=says) as caught:
        obrs.evaluate(**{**given, **change})
    assert "\n" not in str(caught.value)


def test_seed_is_that_of_halves_too():
    real, fake, log_ratio = problem(100, 200)
    one, two = (obrs.evaluate(real=real, fake=fake, log_ratio=log_ratio, budgets=[1], seed=i).rows[0] for i in (0, 1))
    assert one["frechet"].value != two["frechet"].value
    assert one["frechet_plain"].value == pytest.approx(two["frechet_plain"].value, rel=1e-9)


def test_a_folder_needs_features(tmp_path):
    with pytest.raises(InputError, match="is a folder of images; say features="):
        obrs.evaluate(real=tmp_path, fake=tmp_path)


def test_accepted_samples_of_many_dimensions():
    """In 128 dimensions 2000 accepted samples look far from real ones; brought to one n they do not."""
    rng = np.random.default_rng(0)
    dim, wide = 128, 1.02
    real, fake = rng.standard_normal((20_000, dim)), wide * rng.standard_normal((20_000, dim))
    log_ratio = -0.5 * (fake**2).sum(1) * (1 - wide**-2)
    weights = np.exp(obrs.Budgeted.fit(log_ratio, 4)(log_ratio))
    kept = accepted(fake, weights, 2000, rng)
    apart = frechet(real=real, fake=kept).value - frechet(real=real, fake=fake, weights=weights).value
    assert apart > 0.5
    both = [frechet(real=real, fake=x, weights=w, extrapolate=True).value for x, w in ((kept, None), (fake, weights))]
    assert abs(both[0] - both[1]) < 0.15 * apart


@pytest.mark.parametrize(
    ("value", "reach", "shown"),
    [(331.4, 12.0, "331 ±10"), (331.4, 9.7, "331 ±10"), (12345.0, 456.0, "12300 ±500"), (2e-7, 3e-8, "2e-07 ±3e-08")],
)
def test_numbers_of_a_usual_size_are_shown_without_an_exponent(value, reach, shown):
    at = Estimate(value, value - reach, value + reach, reach / 2)
    row = Row("model", 1.0, 1.0, 0.5, 100.0, {"frechet": at}, {"frechet": at})
    assert shown in str(Table((row,), None, "", 8, 200, 100, 100, 5, 0.95, False))
