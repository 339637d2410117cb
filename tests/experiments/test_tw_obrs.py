"""Training with the rejection inside: how runs are summed up, and that the guide quotes the record."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from obrs.errors import InputError, UnknownNameError
from obrs.experiments import Record, load
from obrs.experiments.tw_obrs import (
    PRESETS,
    Config,
    _divergence_on_cells,
    gain,
    plot,
    render,
    settings,
    summary,
    verdict,
)

ROOT = Path(__file__).parents[2]


def row(mode, seed, *, divergence=None, setting="weak"):
    """A run that left this divergence, or one that collapsed."""
    head = {"row": f"{setting}, {mode}, seed {seed}", "setting": setting, "mode": mode, "seed": seed}
    if divergence is None:
        return head | {"collapsed": True, "why": "the generator went to infinity"}
    found = {"divergence": divergence, "high_quality": 1 - divergence, "modes": 25}
    return head | found | {"before": found, "collapsed": False}


def record(*rows):
    config = {"settings": ["weak"], "modes": ["non_saturating", "exact"], "budget": 2.0}
    return Record("tw-obrs", "smoke", config, list(rows))


def test_mean_and_deviation_are_over_all_seeds():
    made = record(*(row("exact", i, divergence=d) for i, d in enumerate((0.5, 0.6, 0.7))))
    (line,) = summary(made)
    assert (line["runs"], line["collapsed"]) == (3, 0)
    assert line["divergence"] == pytest.approx((0.6, 0.1))
    assert "0.600 ± 0.100" in render(made)


def test_the_gain_over_the_first_loss_is_seed_by_seed():
    plain = [row("non_saturating", i, divergence=d) for i, d in enumerate((0.5, 0.9, 0.7))]
    ours = [row("exact", i, divergence=d) for i, d in enumerate((0.4, 0.7, 0.8))]
    error = np.std([0.1, 0.2, -0.1], ddof=1) / np.sqrt(3)
    assert gain(record(*plain, *ours), "weak", "exact", over="non_saturating") == pytest.approx((0.2 / 3, error, 2, 3))
    assert gain(record(*ours), "weak", "exact", over="non_saturating") is None
    assert "+0.067 ± 0.088  2/3" in render(record(*plain, *ours))


def test_a_run_that_went_to_infinity_counts_as_the_worst_there_is():
    made = record(row("exact", 0), row("exact", 1, divergence=0.4))
    (line,) = summary(made)
    assert line["divergence"][0] == pytest.approx((2 * np.log(2) + 0.4) / 2)
    assert line["modes"][0] == 12.5
    assert "1 of 2" in render(made)
    crosses = [len(drawn.get_xdata()) for axes in plot(made).axes for drawn in axes.lines if drawn.get_marker() == "X"]
    assert sum(crosses) == 2, "one in each panel"


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"modes": ("exakt",)}, UnknownNameError, "did you mean 'exact'?"),
        ({"settings": ("week",)}, UnknownNameError, "did you mean 'weak'?"),
        ({"modes": ()}, InputError, "at least one of each"),
        ({"steps": (0, 1, 1)}, InputError, "steps must be a whole number of at least 1, got 0"),
        ({"steps": (3, 3)}, InputError, "steps must be three numbers, one for each stage, got"),
        ({"steps": (3, 3, 3), "batch_size": 100}, InputError, "must be whole batches of 100"),
    ],
)
def test_mistakes_in_a_configuration_are_named(fields, error, message):
    with pytest.raises(error, match=message.replace("?", r"\?")):
        Config(**fields)


def test_guide_quotes_the_committed_record():
    made = load(ROOT / "results" / "tw-obrs.json")
    page = (ROOT / "docs" / "evidence" / "training.md").read_text().splitlines()
    missing = [line for line in render(made).splitlines() if line.rstrip() not in page]
    assert not missing
    assert {line["setting"]: line["runs"] for line in summary(made)} == {"strong": 10, "weak": 10, "strong_more": 5}


def test_runs_of_one_stage_and_of_three_see_the_same_number_of_samples():
    from obrs.training.schedule import plan

    for config in PRESETS.values():
        seen = set()
        for mode in config.modes:
            stages = plan(settings(config, "strong", mode, 10))
            by_generator = sum(stage.config.steps * stage.config.batch_size for stage in stages)
            seen.add((by_generator, stages[-1].seen_before(stages[-1].last)))
        assert seen == {config.samples()}


def test_the_stages_are_those_of_the_example():
    from obrs.training import read_config

    ours, example = settings(Config(), "strong", "staged_exact", 0), read_config(ROOT / "examples/train-in-stages.toml")
    assert ours.stages == example.stages
    weak = settings(Config(), "weak", "staged_exact", 0)
    assert [stage.generator_loss for stage in weak.stages] == ["paper_raw", "dual", "exact"]
    assert settings(Config(), "strong_more", "staged_exact", 0).budget == 5


def test_three_stages_are_compared_with_the_best_of_one_stage_and_with_plain_stages():
    left = {"dual": (0.5, 0.7), "paper_raw": (0.6, 0.8), "staged_dual": (0.35, 0.4), "staged_exact": (0.3, 0.2)}
    rows = [row(mode, seed, divergence=d) for mode, both in left.items() for seed, d in enumerate(both)]
    made = Record("tw-obrs", "smoke", {"settings": ["weak"], "modes": list(left), "budget": 2.0}, rows)
    assert verdict(made, "weak") == [
        "  three stages, exact, over plain, f-GAN dual, the best of one stage:",
        "    +0.350 ± 0.150  2/2 with the fitted ratio",
        "  three stages, exact, over three stages, dual:",
        "    +0.125 ± 0.075  2/2 with the fitted ratio",
    ]


def test_the_exact_ratio_leaves_what_a_sum_over_the_cells_says():
    """Two cells, by hand: q = (1/2, 1/2), p = (3/4, 1/4), K = 1.25 keeps all of the first and 3/5 of the second."""
    kept = np.array([0.5, 0.3]) / 0.8
    expected = sum(p * np.log(p / (p + q)) + q * np.log(q / (p + q)) for p, q in zip((0.75, 0.25), kept, strict=True))
    found = _divergence_on_cells(np.array([0.75, 0.25]), np.array([50, 50]), 1.25)
    assert found == pytest.approx(expected + 2 * np.log(2))


@pytest.mark.parametrize(
    ("setting", "over", "key"),
    [
        ("strong", "staged_dual", "divergence"),
        ("weak", "staged_dual", "divergence"),
        ("strong_more", "staged_dual", "divergence"),
        ("strong", "staged_dual", "exact_ratio"),
        ("weak", "staged_dual", "exact_ratio"),
        ("strong", "fading", "divergence"),
        ("weak", "fading", "divergence"),
        ("strong_more", "fading", "divergence"),
    ],
)
def test_what_the_page_says_of_the_recipe_is_in_the_record(setting, over, key):
    made = load(ROOT / "results" / "tw-obrs.json")
    page = " ".join((ROOT / "docs" / "evidence" / "training.md").read_text().split())
    mean, error, _, _ = gain(made, setting, "staged_exact", over=over, key=key)
    assert f"{mean:.3f} ± {error:.3f}" in page
