"""A fleet trains as its runs would alone."""

from dataclasses import replace

import pytest
import torch

from obrs.errors import InputError
from obrs.experiments import fleet, tw_obrs
from obrs.experiments.fleet import train_fleet
from obrs.training.config import TrainConfig
from obrs.training.loop import train

# So few steps that roundings do not grow: later a ReLU or the sign of a small gradient turns them into steps of Adam.
SMALL = tw_obrs.Config(steps=(4, 2, 2), warm_up=(0, 1, 1), batches=(32, 64, 64), batch_size=32)


@pytest.mark.parametrize("mode", ["non_saturating", "dual_waves", "paper_raw", "paper_raw_waves", "staged_exact"])
@pytest.mark.parametrize("setting", ["weak", "strong_more"])
def test_a_fleet_trains_as_its_runs_would_alone(mode, setting):
    configs = [replace(tw_obrs.settings(SMALL, setting, mode, seed), data_size=500) for seed in (3, 4, 5)]
    for config, together in zip(configs, train_fleet(configs), strict=True):
        alone = train(config, progress=False)
        for name in ("generator", "critic", "ema"):
            for a, b in zip(getattr(alone, name).parameters(), getattr(together, name).parameters(), strict=True):
                torch.testing.assert_close(a, b, rtol=0, atol=2e-5)
        torch.testing.assert_close(
            alone.propose(range(50), network="ema"), together.propose(range(50), network="ema"), rtol=0, atol=1e-4
        )


def test_betas_may_change_between_stages():
    stages = [{"steps": 3}, {"steps": 3, "generator_betas": (0.0, 0.9), "critic_betas": (0.9, 0.9)}]
    config = TrainConfig(generator_loss="dual", batch_size=32, data_size=100, stage=stages)
    (together,), alone = train_fleet([config]), train(config, progress=False)
    torch.testing.assert_close(together.propose(range(20)), alone.propose(range(20)), rtol=0, atol=1e-4)


def test_a_run_that_diverges_leaves_the_others_alone(monkeypatch):
    calm = replace(tw_obrs.settings(SMALL, "weak", "dual", 0), data_size=500)
    (alone,) = train_fleet([calm])

    def spoilt(batches, *when, real=fleet._Batches.real):
        x, labels = real(batches, *when)
        x[1:] = torch.nan
        return x, labels

    monkeypatch.setattr(fleet._Batches, "real", spoilt)
    together = train_fleet([calm, replace(calm, seed=1)])
    assert not together[1].propose(range(20)).isfinite().any()
    torch.testing.assert_close(together[0].propose(range(20)), alone.propose(range(20)))


def test_what_a_fleet_cannot_train_is_refused():
    plain = TrainConfig(generator_loss="dual", steps=1, data_size=100)
    with pytest.raises(InputError, match="differ in their seed alone"):
        train_fleet([plain, replace(plain, budget=3)])
    with pytest.raises(InputError, match="at least one run"):
        train_fleet([])
    for field in (
        {"start_from": "runs/first"},
        {"network": "conv"},
        {"constant_every": 2},
        {"r1": 0.1},
        {"two_heads": True},
        {"spectral_norm": True},
    ):
        with pytest.raises(InputError, match="a fleet has"):
            train_fleet([replace(plain, **field)])
