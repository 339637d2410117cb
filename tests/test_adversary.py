"""A fixed part of the adversary's cases, and faults that it has found. `cd tests && python -m adversary` runs more."""

import warnings

import numpy as np
import pytest

import obrs
from obrs import metrics, rivals
from obrs.errors import InputError, ObrsError
from obrs.sampling.samples import Samples

torch = pytest.importorskip("torch")

from adversary.making import Maker, run_case  # noqa: E402
from adversary.verbs import SLOW, VERBS  # noqa: E402

from obrs import training  # noqa: E402
from obrs.models.mlp import mlp  # noqa: E402
from obrs.ratios.calibration import fit_calibration  # noqa: E402
from obrs.ratios.refit import probe_features  # noqa: E402


@pytest.mark.parametrize("verb", VERBS)
def test_every_case_is_answered_rightly_or_refused(verb):
    cases = [run_case(verb, VERBS[verb], number) for number in range(6 if verb in SLOW else 40)]
    assert sum(case.counts["answered"] for case in cases) > 0  # not all may be refused


def test_a_case_is_made_from_its_number_alone():
    one, two, other = (Maker("rules", number).rng.random(3).tolist() for number in (7, 7, 8))
    assert one == two != other


def test_the_adversary_sees_a_wrong_answer_a_warning_and_a_change():
    def fail(make):
        raise AssertionError

    def warn(make):
        warnings.warn("careless", RuntimeWarning, stacklevel=2)

    def change(make):
        make.one = lambda *options: "plain"
        make.guise(np.zeros(3))[0] = 1.0

    for function, error in ((fail, AssertionError), (warn, RuntimeWarning), (change, AssertionError)):
        with pytest.raises(error):
            run_case("rules", function, 0)


# Faults that were found

X = np.random.default_rng(0).normal(size=(120, 2)).astype("float32")
LINEAR = torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Flatten(0))
ADAM = torch.optim.Adam(LINEAR[1].parameters())
KEPT = Samples(X, np.arange(120), np.zeros(120), np.zeros(120), 120, 120, next_id=120)


def train(**wrong):
    obrs.train(*LINEAR, X, **{"loss": "exact", "budget": 2, "steps": 1, "batch_size": 8, "progress": False} | wrong)


def step(**wrong):
    options = {"critic": LINEAR[1], "optimiser": ADAM, "real": torch.zeros(4, 2), "fake": torch.zeros(4, 2)}
    training.critic_step(**options | {"loss": "gan"} | wrong)


def stream(**wrong):
    options = {"propose": len, "log_ratio": len, "rule": obrs.Budgeted(0.0), "batch_size": 7, "stop": 0}
    return list(obrs.stream(**options | wrong))


WRONG = {
    "no end": lambda: stream(stop=np.nan),
    "half a shard": lambda: stream(shard=(0.5, 2)),
    "no rule": lambda: stream(rule=3),
    "seed of a stream": lambda: stream(seed=True),
    "a stream of nothing": lambda: stream(propose=None),
    "batches": lambda: obrs.collect([3], 1),
    "proposal": lambda: obrs.proposal(3),
    "stages": lambda: obrs.rules.Stages.fit([X[:, 0]], None),
    "combine": lambda: obrs.ratios.combine(3),
    "condition": lambda: obrs.sql.condition({"kind": "no"}),
    "parts of a step": lambda: step(parts=0),
    "optimiser": lambda: step(optimiser=None),
    "loss of a step": lambda: step(loss=3),
    "penalty of a step": lambda: step(r1=-1.0),
    "unlike shapes": lambda: step(fake=torch.zeros(4, 3)),
    **{f"{name} of train": lambda name=name, x=x: train(**{name: x}) for name, x in {
        "loss": ("kl",), "betas": (abs, 0.9), "lr": (), "ema": np.nan, "r1": True, "warm_up": 1.5,
        "latent": np.nan, "keep": 0, "log_every": np.inf, "save_every": {}, "out": object(), "start_from": 3,
    }.items()},
    "data of text": lambda: obrs.train(*LINEAR, np.full((40, 2), "a"), loss="exact", budget=2, steps=1, batch_size=8),
    "networks that do not fit": lambda: train(latent=7),
    "sizes": lambda: mlp(3),
    "no budgets": lambda: obrs.evaluate(real=X, fake=X + 1, log_ratio=X[:, 0], budgets=[]),
    "no budgets of a plan": lambda: obrs.Profile(X[:, 0]).plan([]),
    "no rules": lambda: obrs.evaluate(real=X, fake=X + 1, log_ratio=X[:, 0], rules=()),
    "pixels of bytes": lambda: metrics.extract(np.zeros((2, 8, 8), np.uint8), "gradients", pixels=(1, 0)),
    "seed of diagnose": lambda: obrs.diagnose(X[:, 0], X[:, 1], 2, seed=-1),
    "labels of diagnose": lambda: obrs.diagnose(X[:, 0], X[:, 1], 2, labels=(1, 2)),
    "seed of a calibration": lambda: fit_calibration(X[:, 0], X[:, 1], seed="s"),
    "penalty of a probe": lambda: probe_features(X, (X[:, 0] > 0).astype(int), lambda x: x, penalty=np.nan),
    "model": lambda: rivals.OBRS(2)(None, 5),
    "functions of a model": lambda: rivals.Model(None, abs, 1),
    "a set of samples": lambda: obrs.report(X[:, 0], samples={*range(120)}, out="page.html"),
    "title": lambda: obrs.report(X[:, 0], title=3, out="page.html"),
    "out": lambda: obrs.report(X[:, 0], out=3),
    "path": lambda: Samples.load({}),
    "g": lambda: KEPT.mean(None),
    "pipe": lambda: obrs.adapters.from_pipeline(3),
    "pretrained features": lambda: obrs.tune(X, len, budget=2, pretrained=3),
    "names of ratios": lambda: obrs.tune(X, len, budget=2, extra={3: len}),
    "columns": lambda: obrs.tune({"x": X}, len, budget=2, columns=True),
    "scores": lambda: obrs.diagnose(np.append(X[:, 0], 1e30), X[:, 1], 2),
    "labels in a column": lambda: probe_features(X, np.zeros((120, 1), int), lambda x: x),
    "ragged log-probs": lambda: obrs.rollout([[1], [1, 2]], [[1], [1, 2]], [[1], [1, 2]], keep=1),
}  # fmt: skip


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_what_was_taken_or_failed_inside_is_refused_in_one_line(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ObrsError, match=r"^[^\n]+$"):
        call()


def test_features_and_files_of_ratios_leave_random_numbers_alone(tmp_path):
    before = torch.get_rng_state()
    probe_features(X, (X[:, 0] > 0).astype(int), lambda x: x)
    assert torch.equal(before, torch.get_rng_state())


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


def test_at_budget_1_nothing_is_removed_even_where_r_is_0():
    found = obrs.diagnose(X[:, 0], np.where(X[:, 1] < 0, -np.inf, X[:, 1]), 1)
    assert found.at_budget.removed.value == 0


def test_rewards_as_near_as_floats_can_be_are_tilted():
    pick = obrs.tilt(np.array([0.0, 5e-324, 0.0]), keep=1, kl=0.5)
    assert np.isfinite(pick.log_weight).all()
