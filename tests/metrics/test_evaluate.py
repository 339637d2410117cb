"""Evaluate: one pool says what samples that were really kept would say, at every budget, and how sure it is."""

import json
import warnings
from dataclasses import asdict, replace

import numpy as np
import pytest

import obrs
from obrs.errors import InputError
from obrs.metrics import frechet, frechet_curve, kernel, neighbours, row_hashes
from obrs.metrics.table import METRICS

DIM, WIDE = 6, 1.3


def log_ratio_of(fake):
    return -0.5 * (fake**2).sum(1) * (1 - WIDE**-2)


def problem(n_real, n_fake, seed=0):
    rng = np.random.default_rng(seed)
    real, fake = rng.standard_normal((n_real, DIM)), WIDE * rng.standard_normal((n_fake, DIM))
    return real, fake, log_ratio_of(fake)


def all_of(given, size=None, draws=10):
    """Every metric of one line of weights, each from its own function."""
    beyond = frechet_curve(**given).value[0]
    distances = {"frechet": beyond, "frechet_plain": frechet(**given), "kernel": kernel(**given).value}
    return distances | neighbours(**given, size=size, draws=draws)._asdict()


@pytest.fixture(scope="module")
def table():
    real, fake, log_ratio = problem(500, 1600)
    return obrs.evaluate(real=real, fake=fake, log_ratio=log_ratio, budgets=[4, 2], rules=["obrs", "drs", "topk"])


def test_rows_are_the_model_and_each_rule_at_each_budget(table):
    keys = [(row.rule, row.budget) for row in table.rows]
    assert keys == [("model", 1.0), *((rule, k) for rule in ("obrs", "drs", "topk") for k in (2.0, 4.0))]
    assert table.metrics == tuple(name for name in METRICS if "within" not in name)
    assert [row.rate for row in table.rows] == pytest.approx([1, 0.5, 0.25] + 2 * [0.5, 0.25], rel=1e-6)
    assert table.size == 400  # what the largest budget keeps
    assert table.rows[0].n == pytest.approx(1600)
    for row in table.rows:
        for value in (*row.metrics.values(), *row.change.values()):
            assert value.low <= value.value <= value.high


def test_a_budget_buys_what_it_should(table):
    """The exact ratio: every distance falls with the budget, further with OBRS than with DRS; top-k is too narrow."""
    model, two, four, drs, _, _, topk = table.rows
    for name in ("frechet", "kernel"):
        assert two.change[name].high < 0
        assert four[name].value < two[name].value < drs[name].value < model[name].value
        assert topk[name].value > four[name].value
    assert four.change["precision"].low > 0
    assert model.change["recall"].standard_error == 0
    for name in ("frechet", "precision", "density"):  # differences are known better than values
        apart = np.hypot(four[name].standard_error, model[name].standard_error)
        assert four.change[name].standard_error < apart


def test_values_are_those_of_the_metrics_at_the_weights_of_each_rule(table):
    real, fake, log_ratio = problem(500, 1600)
    rules = (obrs.Budgeted.fit(log_ratio, 4), obrs.rules.DRS.fit(log_ratio, 2))
    for row, rule in zip(table.rows[2:4], rules, strict=True):
        direct = all_of({"real": real, "fake": fake, "weights": np.exp(rule(log_ratio))}, size=400, draws=4)
        assert {name: row[name].value for name in direct} == pytest.approx(direct, rel=1e-6)


def test_the_weighted_pool_says_what_accepted_samples_say():
    """At one n both agree; at their own n they do not."""
    n, apart = 250, []
    for seed in range(12):
        real, fake, log_ratio = problem(300, 1000, seed)
        weights = np.exp(obrs.Budgeted.fit(log_ratio, 3.0)(log_ratio))
        kept = fake[np.random.default_rng(100 + seed).random(1000) < weights][:n]
        assert len(kept) == n
        pool = all_of({"real": real, "fake": fake, "weights": weights}, size=n, draws=2)
        drawn = all_of({"real": real, "fake": kept})
        apart.append([drawn[name] - pool[name] for name in pool])
    t = np.mean(apart, axis=0) / (np.std(apart, axis=0, ddof=1) / np.sqrt(12))
    t = dict(zip(pool, t, strict=True))
    assert t.pop("frechet_plain") > 3  # the plain distance speaks of its n
    assert max(map(abs, t.values())) < 3.2


def classes(n, share, narrow, seed):
    """Two classes, of which the second comes with this share and is too narrow."""
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < share).astype(int)
    return rng.standard_normal((n, 3)) * np.where(label, narrow, 1.0)[:, None] + 3 * label[:, None], label


def test_distances_within_classes_do_not_reward_a_changed_mix():
    real, fake = classes(2000, 0.5, 1.0, 0), classes(4000, 0.8, 1.0, 1)
    # the ratio mends the mix, and prefers the outer half of each class
    log_ratio = np.where(fake[1], np.log(0.5 / 0.8), np.log(0.5 / 0.2)) + 0.5 * (fake[0][:, 0] > 3 * fake[1])
    table = obrs.evaluate(real=real, fake=fake, log_ratio=log_ratio, budgets=[2])
    kept = table.rows[1]
    assert kept.change["frechet"].high < 0
    assert kept.change["frechet_within"].low > 0
    assert kept.change["kernel_within"].value > 0
    direct = []
    for c in (0, 1):
        weights = np.exp(obrs.Budgeted.fit(log_ratio, 2)(log_ratio))[fake[1] == c]
        given = {"real": real[0][real[1] == c], "fake": fake[0][fake[1] == c], "weights": weights}
        direct.append([frechet_curve(**given).value[0], kernel(**given).value])
    share = np.bincount(real[1]) / 2000
    assert [kept["frechet_within"].value, kept["kernel_within"].value] == pytest.approx(list(share @ direct), rel=1e-6)


def test_errors_within_classes_are_those_of_repeated_experiments():
    rows = []
    for seed in range(100):
        real, fake = classes(400, 0.5, 1.0, 2 * seed), classes(600, 0.7, 0.8, 2 * seed + 1)
        given = {"log_ratio": -0.6 * fake[0][:, 1], "groups": lambda batch: batch[1], "shares": [1, 1]}
        row = obrs.evaluate(real=real, fake=fake, **given, budgets=[3], draws=1).rows[1]
        names = ("frechet_within", "kernel_within")
        rows.append([[row[name].value, row[name].standard_error, row.change[name].value] for name in names])
        rows[-1] = [[*x, row.change[name].standard_error] for x, name in zip(rows[-1], names, strict=True)]
    value, error, change, change_error = np.array(rows).transpose(2, 0, 1)
    slack = 0.04 + 3.5 / np.sqrt(2 * 99)
    assert error.mean(0) == pytest.approx(value.std(0, ddof=1), rel=slack)
    assert change_error.mean(0) == pytest.approx(change.std(0, ddof=1), rel=slack)


def test_what_is_saved_is_plain_json_beside_a_picture(table, tmp_path):
    unknown = replace(table, rows=(replace(table.rows[0], ess=np.nan), *table.rows[1:]))
    home = unknown.save(tmp_path / "new" / "folder")
    saved = json.loads((home / "evaluate.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert saved["rows"][0]["ess"] is None
    assert saved["rows"][1] == asdict(table.rows[1])
    assert (home / "evaluate.png").read_bytes().startswith(b"\x89PNG")


def test_real_rows_that_the_ratio_has_seen_are_warned_of():
    real, fake, log_ratio = problem(100, 200)
    options = {"real": real, "fake": fake, "log_ratio": log_ratio, "budgets": [2], "draws": 1}

    class Ratio:
        seen = row_hashes(real[:40])

        def __call__(self, x):
            return log_ratio_of(x)

    for seen in ({"fitted_on": real[:40]}, {"fitted_on": row_hashes(real[:40])}, {"log_ratio": Ratio()}):
        with pytest.warns(UserWarning, match="40 of 100 real samples were also used to fit the ratio"):
            obrs.evaluate(**options | seen)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        obrs.evaluate(**options, fitted_on=real + 1)


def test_a_refitted_ratio_knows_its_rows(tmp_path):
    from obrs.ratios.refit import Network, load_ratio

    real, fake, _ = problem(200, 200)
    fitted = obrs.refit(real, fake, Network(width=8), steps=1, held_out=0.3)
    fitted.save(tmp_path / "ratio")
    for ratio in (fitted, load_ratio(tmp_path / "ratio")):
        assert np.isin(row_hashes(real.astype(np.float32)), ratio.seen).all()
        assert not np.isin(row_hashes(real + 1), ratio.seen).any()


def test_images_and_files(tmp_path, monkeypatch):
    from paper.data.images import load

    monkeypatch.setenv("OBRS_DATA", str(tmp_path / "cache"))
    digits = load("digits")
    real, fake = digits.test, digits.train[:200]
    np.savez(tmp_path / "real.npz", x=((real + 1) * 127.5).round().astype(np.uint8), labels=digits.test_labels)
    np.savez(tmp_path / "fake.npz", images=(fake + 1) / 2, labels=digits.train_labels[:200])
    labelled = {"real": (real, digits.test_labels), "fake": (fake, digits.train_labels[:200])}
    direct = obrs.evaluate(**labelled, features="gradients")
    assert direct.features == "oriented gradients"
    given = {"real": tmp_path / "real.npz", "fake": tmp_path / "fake.npz", "features": "gradients"}
    with pytest.raises(InputError, match="no value below 0"):
        obrs.evaluate(**given)
    files = obrs.evaluate(**given, pixels=(0, 1)).rows[0]
    for name in ("frechet", "frechet_within"):
        assert files[name].value == pytest.approx(direct.rows[0][name].value, rel=1e-2, abs=1e-3)


def test_the_same_samples_are_noticed(tmp_path):
    real = problem(100, 200)[0]
    np.save(tmp_path / "x.npy", real)
    np.save(tmp_path / "copy.npy", real)
    with pytest.raises(InputError, match=r"real and fake are the same, .*x\.npy; fake must be proposals of the model"):
        obrs.evaluate(real=tmp_path / "x.npy", fake=str(tmp_path / "x.npy"))
    for again in (real, real.copy(), tmp_path / "copy.npy"):
        with pytest.raises(InputError, match="real and fake are the same samples"):
            obrs.evaluate(real=real, fake=again)
    with pytest.raises(InputError, match="real and fake are the same, "):
        obrs.evaluate(real=tmp_path, fake=tmp_path, features="gradients")


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"log_ratio": np.zeros(7)}, InputError, r"log_ratio must have shape \(200,\), one per fake, got \(7,\)"),
        ({"log_ratio": None, "groups": np.zeros(200, dtype=int)}, InputError, "groups need log_ratio"),
        ({"real": np.zeros((100, 1, 8, 8))}, InputError, r"if these are images, say features=, one of gradients"),
        ({"real": (np.zeros((100, 6)), [1, 2])}, InputError, r"real has 100 samples and labels of shape \(2,\)"),
        ({"budgets": [100]}, InputError, "need at least 40 real samples and 40 fakes, got 100 and .* at the largest"),
    ],
)
def test_bad_input_is_one_line(change, error, says):
    real, fake, log_ratio = problem(100, 200)
    given = {"real": real, "fake": fake, "log_ratio": log_ratio + 50 * (fake[:, 0] > 3), "budgets": [2]}
    with pytest.raises(error, match=says) as caught:
        obrs.evaluate(**{**given, **change})
    assert "\n" not in str(caught.value)
