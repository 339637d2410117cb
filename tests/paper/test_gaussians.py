"""The experiments with GANs of points: 25 Gaussians and other densities in the plane; what their records must say."""

import numpy as np
import pytest

import obrs
from paper import figure_obrs_vs_drs, figure_time, gan25, rivals, table_2
from paper.gan25 import SMOKE, Settings
from paper.record import Record, numbers
from paper.toys import Mixture

pytestmark = pytest.mark.filterwarnings("ignore:the two sets hardly overlap")  # of the GAN of the smoke presets


@pytest.fixture(scope="module")
def ready():
    """The GAN of the smoke presets, with all that is fitted to it; trained once."""
    return rivals.prepare(Settings(**SMOKE), False)


# --- The GAN ----------------------------------------------------------------------------------------------------------


def test_training_stops_near_the_share_and_holds_out_a_tenth_of_the_points(ready):
    assert abs(ready.gan.precision - SMOKE["stop_at"]) <= 0.01 or ready.gan.steps == SMOKE["most"]
    assert 1 < ready.gan.steps <= SMOKE["most"]
    assert len(ready.gan.held_out) == SMOKE["real"] // 10
    assert len(ready.gan.held_out) + len(ready.gan.real) == SMOKE["real"]


def test_the_histogram_has_the_density_of_a_generator_that_is_known():
    exact = gan25.ExactRatio.fit(lambda z: 0.5 * z, 400_000, cells_per_sigma=1)
    x = 0.5 * np.random.default_rng(0).normal(size=(300, 2))
    truth = Mixture([[0.0, 0.0]], 0.5).log_prob(x)
    expected = np.exp(truth) * exact.cell**2 * exact.total  # samples in a cell; a lattice varies less than Poisson
    error = np.exp(exact.log_density(x) - truth) - 1
    assert np.max(np.abs(error) * np.sqrt(np.maximum(expected, 1))) < 6
    assert np.allclose(exact(x), gan25.TARGET.log_prob(x) - exact.log_density(x))


# --- The methods ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["drs", "mhgan", "topk", "sir", "obrs_pool", "obrs"])
def test_methods_that_select_are_at_the_budget(name, ready):
    sampler, model = rivals.method(name, ready, 2.6)
    kept = [sampler(model, 400, seed=i, progress=False) for i in range(5)]
    assert {tuple(one.x.shape) for one in kept} == {(400, 2)}
    calls = np.mean([one.calls.generator / 400 for one in kept])
    # rejection stops at the n-th: sd of one run is sqrt(K (K - 1) / n) = 0.1, and that of the fitted constant as much
    assert calls == pytest.approx(3.0 if name == "mhgan" else 2.6, abs=4 * 0.15 / np.sqrt(5))


def test_a_tuned_step_is_the_best_of_the_grid_on_latents_of_its_own(ready, monkeypatch):
    drawn, latent = [], obrs.rivals.Model.latent

    def record_seed(self, ids, *, seed):
        drawn.append(seed)
        return latent(self, ids, seed=seed)

    monkeypatch.setattr(obrs.rivals.Model, "latent", record_seed)
    sampler, facts = rivals.tune_step("dot", ready, 2.6, 100, 2, seed=5)
    assert min(drawn) > 1_000_000 + 5, "the table draws with the seeds of its generations"
    assert (facts["step"], sampler.steps) == (rivals.STEP_SIZES[np.argmin(facts["grid"])], 3)
    assert sampler.lr == facts["step"]
    for name, field in rivals.TUNABLE.items():
        published, model = rivals.method(name, ready, 2.6)
        assert getattr(published, field) in rivals.STEP_SIZES
    model = rivals.method("dot", ready, 2.6)[1]
    again = [gan25.score(sampler(model, 100, seed=s, progress=False).x)["kl"] for s in sorted(set(drawn))]
    assert np.mean(again) == pytest.approx(min(facts["grid"]))


# --- Table 2 ----------------------------------------------------------------------------------------------------------


def test_several_gans_are_averaged_and_their_spread_is_in_the_deviation():
    rows = [
        {"row": table_2.row_name("drs", i), "method": "drs", "gan": i, "generations": 5, "kl": [m, 0.3]}
        for i, m in enumerate((1.0, 2.0, 3.0))
    ]
    mean, sd = table_2.summarise(Record("table-2", "paper", {}, rows))["drs"]["kl"]
    assert mean == pytest.approx(2.0)
    assert sd == pytest.approx(np.sqrt(0.09 + 2 / 3))


def test_the_verdict_names_the_rules_by_what_they_leave():
    names = ("obrs", "drs", "mhgan", "mhgan_calibrated", "topk", "sir")
    left = zip(names, (0.6, 0.7, 0.8, 0.9, 1.0, 0.5), strict=True)
    rows = [{"row": name, "method": name, "kl": [kl, 0.01]} for name, kl in left]
    record = Record("table-2", "smoke", {"budget": 2.6, "n": 2500, "gans": 1}, rows)
    verdict = table_2.verdict(record)
    assert "OBRS 0.600; DRS 0.700" in verdict
    assert verdict.endswith("Least on each GAN: OBRS.")
    rows[1]["kl"] = [0.4, 0.01]
    assert "DRS 0.400; OBRS 0.600" in table_2.verdict(record)


def test_committed_table_2_is_of_a_gan_like_the_papers_and_obrs_is_the_best_rejection(committed_record):
    record = committed_record("table-2")
    means, paper = table_2.summarise(record), table_2.PAPER
    assert list(means) == [*paper, *table_2.OTHERS]
    text = table_2.table(record)
    assert all(words in text for words in ("92.54 ± 0.54", "6411 ± 93", "19292 ± 23", "213 ×", "MH-GAN, 3 steps"))
    assert means["model"]["precision"][0] == pytest.approx(paper["model"]["precision"][0] / 100, abs=0.02)
    assert (record.config["gans"], record.config["generations"]) == (3, 1000)
    for number in range(3):
        left = {name: record[table_2.row_name(name, number)]["kl"][0] for name in table_2._MATCHED}
        assert left["obrs"] < min(left["drs"], left["mhgan"], left["mhgan_calibrated"])
    assert table_2.best_rules(record) == ["obrs", "topk", "obrs"], "top-k, by 0.007, on the GAN that misses most"
    for name in table_2._MATCHED[1:]:
        assert all(means["obrs"][key][0] < means[name][key][0] for key in ("kl", "js"))
    for key in ("precision", "kl"):  # a better ratio, then the exact one
        better = [means[name][key][0] * (1 if key == "kl" else -1) for name in ("obrs_exact", "obrs_refit", "obrs")]
        assert better == sorted(better)
    assert means["obrs"]["g"][0] / record.config["n"] == pytest.approx(record.config["budget"], abs=0.02)
    assert means["obrs"]["precision"][0] > means["drs"]["precision"][0]
    for name in table_2.TUNED:
        assert means[name]["kl"][0] < means[name.removesuffix("_tuned")]["kl"][0]
        assert record[name]["step"] == rivals.STEP_SIZES[np.argmin(record[name]["grid"])]
        assert rivals.STEP_SIZES[0] < record[name]["step"] < rivals.STEP_SIZES[-1], "the grid is wide enough"
    more = [means[name]["kl"][0] for name in ("mhgan", "mhgan_5", "mhgan_10", "mhgan_50")]
    assert more == sorted(more, reverse=True)


# --- Appendix D.2 -----------------------------------------------------------------------------------------------------


def test_figure_time_says_how_much_slower_a_method_is_at_its_best_precision():
    def point(method, budget, time, precision, kl):
        row = {"row": f"{method} {budget}", "method": method, "budget": budget}
        return row | {"time": [time, 0.0], "precision": [precision, 0.0], "kl": [kl, 0.0]}

    points = [point("obrs", 2, 3, 0.8, 0.5), point("obrs", 4, 6, 0.9, 0.4), point("drs", 4, 6, 0.85, 0.45)]
    points += [point("mhgan", 100, 90, 0.95, 0.3), point("mhgan", 10, 9, 0.85, 0.39), point("topk", 2, 3, 0.99, 0.9)]
    record = Record("figure-time", "smoke", {}, points)
    assert figure_time.slower(record, "drs") == (0.85, 1.0)
    assert figure_time.slower(record, "mhgan") == (0.95, float("inf"))
    assert [p["budget"] for p in figure_time.curves(record)["mhgan"]] == [10, 100]


def test_committed_figure_time_is_capped_where_rejection_is_exact_and_steps_are_tuned(committed_record):
    record = committed_record("figure-time")
    of = figure_time.curves(record)
    kl = [point["kl"][0] for point in of["obrs"]]
    assert kl == sorted(kl, reverse=True)
    assert 0 < kl[-1] - of["exact"][0]["kl"][0] < 0.05, (
        "K = 16 comes close to exact rejection, at 50 calls, and stays above"
    )
    assert all(row["generations"] >= 20 for row in record.rows)
    for ours, theirs in zip(of["obrs"], of["drs"], strict=True):
        assert ours["budget"] == theirs["budget"]
        assert ours["kl"][0] < theirs["kl"][0] + 0.015  # the error of twenty generations
    for name in rivals.TUNABLE:
        for tuned, published in zip(of[name], of[f"{name}_published"], strict=True):
            assert tuned["step"] == rivals.STEP_SIZES[np.argmin(tuned["grid"])]
            assert tuned["kl"][0] < published["kl"][0] + 0.03


def test_a_judge_knows_the_divergence_and_the_precision_of_a_wider_normal():
    target, wide = Mixture([[0.0, 0.0]], 0.5), Mixture([[0.0, 0.0]], 0.6)
    x = wide.sample(40_000, seed=2)
    judge = figure_obrs_vs_drs.judge_of(target, x)
    line = np.linspace(-4, 4, 801)
    at = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    p, q = (np.exp(one.log_prob(at)) * 1e-4 for one in (target, wide))
    js = (np.sum(p * np.log(2 * p / (p + q))) + np.sum(q * np.log(2 * q / (p + q)))) / 2
    score = judge(np.ones(len(x)))
    assert score["js"] == pytest.approx(js, rel=0.05), "cells lose a little of it"
    assert score["precision"] == pytest.approx(1 - np.exp(-((4 * 0.5 / 0.6) ** 2) / 2), abs=1e-3)
    kept = judge(np.exp(target.log_prob(x) - wide.log_prob(x)))  # weights that are the ratio itself
    assert abs(kept["js"]) < 0.05 * js
    assert kept["precision"] == pytest.approx(1 - np.exp(-8), abs=1e-3)


def test_with_exact_ratios_obrs_leaves_less_than_drs_at_every_budget(committed_record):
    record = committed_record("figure-obrs-vs-drs")
    assert {row["target"] for row in record.rows} == set(record.config["targets"])
    for row in record.rows:
        ours, theirs = (numbers(row["exact"][rule]["js"]) for rule in ("obrs", "drs"))
        known = np.isfinite(ours)
        assert np.all(ours[known] <= theirs[known] + 2e-3)  # cells are coarser than the ratio
        assert np.all(numbers(row["exact"]["obrs"]["precision"])[known] > row["precision"])
