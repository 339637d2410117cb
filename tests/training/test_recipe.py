"""What a run does whose configuration names no loss."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from obrs.errors import InputError
from obrs.training.config import TrainConfig, override, read_config
from obrs.training.loop import train
from obrs.training.recipe import recipe
from obrs.training.trained import load_trained
from paper import table_finetune
from paper.__main__ import main

ROOT = Path(__file__).parents[2]
SMALL = TrainConfig(
    data="grid25", steps=20, batch_size=16, data_size=64, generator_width=8, critic_width=8, log_every=100
)


def test_the_example_in_stages_is_the_recipe_in_full():
    example = read_config(ROOT / "examples/train-in-stages.toml")
    assert example.stages == TrainConfig(data="grid25", budget=2, steps=6100).stages


@pytest.mark.parametrize("steps", [1, 2, 3, 10, 999, 6100])
def test_the_steps_are_divided_among_the_stages(steps):
    stages = TrainConfig(steps=steps).stages
    assert sum(stage.steps for stage in stages) == max(steps, 3)
    assert all(stage.steps >= 1 for stage in stages)


@pytest.mark.parametrize(("batch", "parts", "first"), [(256, 1, 128), (255, 1, 255), (6, 3, 3), (6, 2, 6), (1, 1, 1)])
def test_the_first_stage_has_half_a_batch_where_there_is_one(batch, parts, first):
    assert [stage.batch_size for stage in TrainConfig(batch_size=batch, parts=parts).stages] == [first, batch, batch]


def test_a_run_of_images_is_the_paper_s_algorithm_in_one_stage():
    flat = TrainConfig(network="conv", spectral_norm=True)
    assert flat.stages == (replace(flat, generator_loss="paper_raw"),)
    judged = table_finetune.settings(table_finetune.Config(), "paper_raw", 0)
    (tuned,) = replace(flat, start_from="runs/first", steps=600).stages
    fields = ("generator_loss", "spectral_norm", "r1", "warm_up", "steps", "generator_decay_from", "critic_decay_from")
    assert [getattr(tuned, name) for name in fields] == [getattr(judged, name) for name in fields]
    assert tuned.new_critic


def test_images_are_known_by_their_name_or_their_shape_whatever_the_network():
    assert [stage.generator_loss for stage in replace(SMALL, data="digits").stages] == ["paper_raw"]
    assert [stage.generator_loss for stage in replace(SMALL, data="digits", divergence="kl").stages] == ["exact"]
    images = torch.rand(20, 1, 8, 8) * 2 - 1
    for divergence, loss in (("gan", "paper_raw"), ("kl", "exact")):
        run = train(replace(SMALL, steps=2, divergence=divergence), data=images)
        assert [stage.generator_loss for stage in run.config.stages] == [loss]
    assert len(train(replace(SMALL, steps=3), data=torch.randn(20, 2)).config.stages) == 3


@pytest.mark.parametrize(
    ("field", "value"),
    [("noise", 0.1), ("critic_network", "mlp"), ("generator_decay_from", 0.5), ("warm_up", 7), ("noise_until", 0.5)],
)
def test_what_the_recipe_chooses_cannot_be_set_beside_it(field, value):
    with pytest.raises(InputError, match=rf"^{field} is for the recipe to choose.* --stage\.[12]\.{field} "):
        train(replace(SMALL, **{field: value}))
    assert getattr(replace(SMALL, generator_loss="dual", **{field: value}), field) == value
    assert getattr(override(SMALL, {f"stage.1.{field}": str(value)}).stages[0], field) == value


def test_the_advice_on_what_the_recipe_chooses_can_be_followed(tmp_path, capsys):
    (tmp_path / "run.toml").write_text("data = 'grid25'\nsteps = 3\nbatch_size = 8\ndata_size = 64\nnoise = 0.5\n")
    command = ["train", str(tmp_path / "run.toml"), "--out", str(tmp_path / "run")]
    assert main(command) == 2
    advice = capsys.readouterr().err
    assert "name a generator_loss, or change its stages: --stage.1.noise 0.5" in advice
    assert main([*command, "--stage.1.noise", "0.5"]) == 0
    assert main([*command[:-1], str(tmp_path / "other"), "--generator-loss", "dual"]) == 0
    images = torch.rand(20, 1, 8, 8) * 2 - 1
    assert train(replace(SMALL, steps=1, noise=0.2), data=images).config.stages[0].noise == 0.2


def test_a_run_without_a_loss_is_trained_in_stages_that_its_file_has_in_full(tmp_path):
    run = train(SMALL, out=tmp_path)
    assert [row["stage"] for row in run.log][-1] == 3
    assert load_trained(tmp_path).config.stage == recipe(SMALL)
    said = train(replace(SMALL, stage=recipe(SMALL)))
    assert all(torch.equal(a, b) for a, b in zip(run.generator.parameters(), said.generator.parameters(), strict=True))


def test_a_run_without_a_loss_can_be_resumed_by_the_same_configuration(tmp_path):
    train(SMALL, out=tmp_path)
    again = train(SMALL, out=tmp_path, resume=True)
    assert again.log[-1]["step"] == 20 + sum(stage.warm_up for stage in SMALL.stages)


def test_a_run_that_starts_from_another_has_the_last_stage_alone(tmp_path):
    train(replace(SMALL, generator_loss="non_saturating"), out=tmp_path)
    tuned = replace(SMALL, start_from=str(tmp_path), steps=25)
    (stage,) = tuned.stages
    assert (stage.generator_loss, stage.warm_up, stage.steps, stage.new_critic) == ("exact", 3, 25, True)
    run = train(tuned)
    assert run.critic.spec["name"] == "fourier_critic"
    assert run.log[-1]["step"] == 28


def test_a_loss_on_the_command_line_is_plain_training_and_a_stage_can_be_changed():
    assert [stage.generator_loss for stage in override(SMALL, {"generator_loss": "dual"}).stages] == ["dual"]
    changed = override(SMALL, {"stage.3.generator_loss": "dual", "budget": "5"}).stages
    assert [(stage.generator_loss, stage.budget) for stage in changed] == [
        ("non_saturating", 5),
        ("dual", 5),
        ("dual", 5),
    ]


def test_the_recipe_of_a_command_line_is_that_of_all_that_it_says():
    said = {"stage.1.warm_up": "50", "start_from": "runs/first", "steps": "30"}
    (tuned,) = override(SMALL, said).stages
    assert (tuned.generator_loss, tuned.warm_up, tuned.steps) == ("exact", 50, 30)
    (images,) = override(SMALL, {"stage.1.noise": "0.2", "network": "conv"}).stages
    assert (images.generator_loss, images.critic_network, images.noise) == ("paper_raw", "", 0.2)


def test_the_command_says_what_it_does_without_a_loss(tmp_path, capsys):
    (tmp_path / "run.toml").write_text("data = 'grid25'\nsteps = 6\nbatch_size = 8\ndata_size = 64\n")
    assert main(["train", str(tmp_path / "run.toml"), "--budget", "3", "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == (
        "no loss is named: non_saturating, then dual, then exact, for K = 3; --generator-loss dual is plain training"
    )
    assert "in 3 stages" in said[1]


def test_a_critic_of_ones_own_needs_a_loss():
    critic = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1), nn.Flatten(0))
    with pytest.raises(InputError, match="leave out critic=, or name a generator_loss for a run of one stage"):
        train(SMALL, critic=critic)
    assert train(replace(SMALL, generator_loss="exact"), critic=critic).critic is critic


def test_stages_that_name_no_loss_are_refused():
    with pytest.raises(InputError, match="stage 1 needs a generator_loss, or the fields above all stages do"):
        TrainConfig(stage=[{"steps": 3}, {"generator_loss": "dual"}])
