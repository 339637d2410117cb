"""A configuration is read, overridden and saved; each mistake in it is one line."""

import json
from dataclasses import asdict, fields

import pytest

from obrs.errors import BudgetError, InputError, InputTypeError, UnknownNameError
from obrs.training.config import TrainConfig, override, read_config
from paper.__main__ import read_fields


def test_a_configuration_comes_back_from_its_file(tmp_path):
    config = TrainConfig(data="ring8", budget=3.5, generator_betas=(0.0, 0.9), two_heads=True, steps=7)
    config.save(tmp_path / "config.json")
    assert read_config(tmp_path / "config.json") == config
    assert json.loads((tmp_path / "config.json").read_text()).keys() == asdict(config).keys()


@pytest.mark.parametrize(("name", "before"), [("deep.toml", "x = "), ("deep.json", "")])
def test_a_file_that_is_nested_too_deeply_is_refused(tmp_path, name, before):
    (tmp_path / name).write_text(before + "[" * 100_000)
    with pytest.raises(InputError, match="it is nested too deeply"):
        read_config(tmp_path / name)


def test_toml_says_what_differs_from_the_defaults(tmp_path):
    (tmp_path / "run.toml").write_text('data = "two_moons"\nbudget = 4\nsteps = 1e3\ncritic_betas = [0, 0.9]\n')
    expected = TrainConfig(data="two_moons", budget=4.0, steps=1000, critic_betas=(0.0, 0.9))
    assert read_config(tmp_path / "run.toml") == expected


def test_the_command_line_wins_over_the_file():
    said = ["--budget", "4", "--batch-size=128", "--two_heads", "--data", "ring8"]
    said += ["--generator-betas", "0,0.9", "--spectral-norm", "false"]
    got = override(TrainConfig(budget=3, spectral_norm=True), read_fields(said))
    assert got == TrainConfig(budget=4.0, batch_size=128, two_heads=True, data="ring8", generator_betas=(0.0, 0.9))


def test_every_field_has_a_line_in_the_docstring():
    text = TrainConfig.__doc__
    assert not [f.name for f in fields(TrainConfig) if f"{f.name}:" not in text and f"{f.name}, " not in text]


@pytest.mark.parametrize(
    ("values", "error", "line"),
    [
        ({"budget": 0.5}, BudgetError, "did you mean budget=2 (keep 50 %)?"),
        ({"budget": True}, InputTypeError, "budget must be a number, got True"),
        ({"divergence": "klx"}, UnknownNameError, "unknown divergence 'klx'; did you mean 'kl'?"),
        ({"generator_loss": "exat"}, UnknownNameError, "unknown generator_loss 'exat'; did you mean 'exact'?"),
        ({"generator_loss": "recipe"}, UnknownNameError, "unknown generator_loss 'recipe'"),
        ({"critic_loss": "hing"}, UnknownNameError, "unknown critic_loss 'hing'; did you mean 'hinge'?"),
        ({"precision": "fp16"}, UnknownNameError, "unknown precision 'fp16'; did you mean 'bf16'?"),
        ({"precision": "tf"}, UnknownNameError, "unknown precision 'tf'; there are: no, bf16; no is float32"),
        ({"steps": 0}, InputError, "steps must be at least 1, got 0"),
        ({"steps": 1.5}, InputTypeError, "steps must be a whole number, got 1.5"),
        ({"steps": "many"}, InputTypeError, "steps must be a whole number, got 'many'"),
        ({"data": 3}, InputTypeError, "data must be text, got 3"),
        ({"two_heads": 1}, InputTypeError, "two_heads must be true or false, got 1"),
        ({"generator_betas": 0.5}, InputTypeError, "generator_betas must be a pair of numbers, got 0.5"),
        ({"critic_betas": [0.5, 1.0]}, InputError, "critic_betas must be two numbers from 0 to below 1"),
        ({"critic_lr": float("nan")}, InputError, "critic_lr must be at least 0 and finite, got nan"),
        ({"ema_decay": 1.0}, InputError, "ema_decay must be at least 0 and below 1, got 1.0"),
        ({"batch_size": 100, "parts": 3}, InputError, "batch_size must be a multiple of parts, got 100 and 3"),
        ({"seed": -1}, InputError, "seed must be at least 0 and below 2**63, got -1"),
    ],
)
def test_a_wrong_value_is_one_line(values, error, line):
    with pytest.raises(error) as caught:
        TrainConfig(**values)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("budgte = 2", "unknown key 'budgte' of run.toml; did you mean 'budget'?"),
        ("[budget]\nk = 2", "budget must be a number, got {'k': 2}"),
        ("zzz = 1", "unknown key 'zzz' of run.toml; there are: data, data_size,"),
        ("steps = ", "cannot be read"),
    ],
)
def test_a_mistake_in_a_file_is_one_line(tmp_path, text, line):
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises((InputError, InputTypeError, UnknownNameError), match=r"run\.toml|budget") as caught:
        read_config(tmp_path / "run.toml")
    assert line in str(caught.value)


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (["--stpes", "3"], "unknown option 'stpes'; did you mean 'steps'?"),
        (["--steps"], "--steps needs a value: a whole number"),
        (["--steps", "--two-heads"], "--steps needs a value: a whole number"),
        (["--steps", "many"], "steps must be a whole number, got 'many'"),
        (["5"], "expected --FIELD VALUE, got '5'"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(said, line):
    with pytest.raises((InputError, InputTypeError, UnknownNameError)) as caught:
        override(TrainConfig(), read_fields(said))
    assert str(caught.value) == line
