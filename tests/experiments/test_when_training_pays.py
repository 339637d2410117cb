"""The best models for a budget: the objective is what the library says, its gradient what finite differences say."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("scipy")

from obrs import Profile
from obrs.errors import InputError, UnknownNameError
from obrs.experiments import load
from obrs.experiments.figure_when_training_pays import CASES, Config, _log_share, _start, objective, target

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("budget", [1.0, 1.7, 3.0, 1e4])
def test_the_gradient_is_that_of_finite_differences(name, budget):
    case = CASES[name]
    x, log_p = target(case, 401)
    theta = _start(case, case.capacities[1], np.random.default_rng(1))
    _, gradient = objective(theta, case, x, log_p, budget)
    ends = [[objective(theta + h * e, case, x, log_p, budget)[0] for h in (1e-5, -1e-5)] for e in np.eye(len(theta))]
    np.testing.assert_allclose(gradient, [(up - down) / 2e-5 for up, down in ends], atol=1e-8)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("budget", [1.0, 2.0, 5.0])
def test_what_is_left_is_what_a_profile_says(name, budget):
    import torch

    case = CASES[name]
    x, log_p = target(case, 401)
    theta = _start(case, 2, np.random.default_rng(2))
    log_q = _log_share(torch.as_tensor(theta), case, torch.as_tensor(x)).numpy()
    profile = Profile(log_p - log_q, np.exp(log_q), normalise=False)
    assert objective(theta, case, x, log_p, budget)[0] == pytest.approx(profile.divergence("gan", budget), abs=1e-9)


def test_while_junk_uses_up_the_budget_the_best_model_does_not_depend_on_it():
    """For KL the divergence left is that of the rest, less log K (1 - j): nothing but a constant depends on K."""
    import torch

    case = CASES["junk"]
    x, log_p = target(case, 401)
    for seed in (1, 2):
        theta = torch.as_tensor(_start(case, 2, np.random.default_rng(seed)))
        log_q = _log_share(theta, case, torch.as_tensor(x)).numpy()
        profile = Profile(log_p - log_q, np.exp(log_q), normalise=False)
        left = [profile.divergence("kl", budget) + np.log(budget) for budget in (1.0, 1.3, 1.9)]
        np.testing.assert_allclose(left, left[0], atol=2e-3)


def test_the_best_model_for_the_budget_is_never_worse_than_that_for_1():
    record = load(ROOT / "results" / "figure-when-training-pays.json")
    for row in record.rows:
        assert min(row["gain"]) >= 0
        assert row["gain"][0] == 0
        assert np.all(np.diff(row["for_1"]) <= 1e-9), "a larger budget leaves less"
        assert np.all(np.diff(row["for_k"]) <= 1e-9)


def test_what_the_page_says_is_in_the_record():
    record = load(ROOT / "results" / "figure-when-training-pays.json")
    page = " ".join((ROOT / "docs" / "when-training-pays.md").read_text().split())
    two = record.rows[0]["budgets"].index(2.0)
    for row in record.rows:
        if row["case"] == "junk":
            assert max(row["gain"][:two]) < 0.0065
        else:
            assert row["for_1"][two] < 0.16
        if row["case"] == "plane":
            assert 0.001 < max(row["gain"]) < 0.0205
            assert 1.25 <= row["budgets"][int(np.argmax(row["gain"]))] <= 4
    assert max(record["line, 1 Gaussians"]["gain"]) < 0.0115
    three = record["line, 3 Gaussians"]
    assert f"{three['for_1'][0]:.3f} is left at every K" in page
    np.testing.assert_allclose(three["for_1"], three["for_1"][0], atol=5e-4)
    assert f"{three['for_k'][1]:.3f} is left at K = 1.25, {three['for_k'][2]:.3f} at K = 1.5" in page


def test_a_budget_of_2_that_removes_all_junk_leaves_what_no_budget_leaves_without_junk():
    """Two minimisations of one thing, from other starts: neither has missed the minimum."""
    record = load(ROOT / "results" / "figure-when-training-pays.json")
    for m in (1, 2, 3):
        junk, plain = record[f"junk, {m} Gaussians"], record[f"line, {m} Gaussians"]
        assert junk["for_k"][junk["budgets"].index(2.0)] == pytest.approx(plain["for_k"][0], abs=1e-3)


@pytest.mark.parametrize(
    ("fields", "error", "line"),
    [
        ({"cases": ("lime",)}, UnknownNameError, "did you mean 'line'"),
        ({"budgets": (1.0,)}, InputError, "budgets above 1"),
        ({"points": 50}, InputError, "points must be at least 100, got 50"),
    ],
)
def test_mistakes_are_one_line(fields, error, line):
    with pytest.raises(error, match=line):
        Config(**fields)
