"""Training in the experiments: what is compared with what, the paper's presets, BigGANs in the one loop."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import paper
from obrs.budget import solve_cut
from paper import figure_frequency, figure_training, table_finetune
from paper.image_gans import SETTINGS
from paper.image_training import CELEBA, KINDS, Config, follow, settings
from paper.nets.biggan import BigGanCritic, BigGanGenerator
from paper.record import Record, plain
from paper.train import losses, read_settings, stages, train

ROOT = Path(paper.__file__).parents[1]


def count_samples(settings):
    """Return how many fakes the generator is trained on, and how many real samples the critic."""
    each = stages(settings)
    turns = [stage.get("warm_up", 0) + stage["steps"] * stage.get("critic_steps", 1) for stage in each]
    return tuple(
        sum(count * stage["batch_size"] for count, stage in zip(counts, each, strict=True))
        for counts in ([stage["steps"] for stage in each], turns)
    )


def test_all_ways_to_train_see_the_same_number_of_samples():
    for config in (figure_training.PRESETS["smoke"], table_finetune.PRESETS["paper"]):
        assert len({count_samples(settings(config, kind, 0)) for kind in KINDS if kind != "none"}) == 1


def test_a_gan_that_is_looked_at_on_its_way_ends_as_one_that_is_not():
    config = replace(figure_training.PRESETS["smoke"], steps=12)
    (*_, (_, alone, _)), on_the_way = (list(follow(config, "paper_raw 10", 0, points)) for points in (1, 5))
    assert [step for step, *_ in on_the_way] == [2, 4, 6, 8, 12]
    for name, weight in on_the_way[-1][1].generator.state_dict().items():
        assert torch.equal(weight, alone.generator.state_dict()[name])


@pytest.mark.parametrize(("kind", "k"), [("without", 1.0), ("unrejected", 2.0)])
def test_without_rejection_the_loss_is_the_mean_of_f(kind, k):
    """E[f(r)], and E[2 f(r/2)] as the authors' code has it, which keeps K = 2 there."""
    (stage,) = stages(settings(Config((kind,), data="digits"), kind, 0))
    assert stage["budget"] == k
    log_r = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    of_generator = losses(stage)[1]
    loss = of_generator(log_r, solve_cut(log_r, k) if of_generator.rejects else None)
    u = log_r.exp() / k
    assert float(loss) == pytest.approx(k * float((u * u.log() - (u + 1) * torch.log(u + 1)).mean()))


# --- The paper's presets ----------------------------------------------------------------------------------------------


def test_presets_are_the_papers_with_its_slips_mended():
    cifar = figure_training.PRESETS["paper"]
    assert (cifar.data, cifar.width, cifar.batch_size, cifar.critic_steps) == ("cifar10", 64, 50, 4)
    assert (cifar.generator_lr, cifar.critic_lr, cifar.budget, cifar.ema_start) == (2e-5, 2e-5, 2.0, 1000)
    assert (cifar.steps, cifar.kinds) == (800 * 250, ("hinge", "dual", "unrejected", "paper_raw"))
    assert figure_frequency.PRESETS["paper"].data == "cifar10"
    faces = table_finetune.PRESETS["paper"]
    assert (faces.data, faces.width, faces.batch_size, faces.budget) == ("celeba", 32, 128, 2.0)
    assert (faces.generator_lr, faces.critic_lr) == (1e-6, 4e-6)
    assert [CELEBA[key] for key in ("generator_lr", "critic_lr", "critic_steps", "ema_start")] == [1e-4, 4e-4, 1, 2000]
    celeba = SETTINGS["celeba"]
    assert (celeba["generator"]["attention"], celeba["critic"]["initial"], celeba["steps"]) == (32, "xavier", 636_000)
    example = plain(read_settings(ROOT / "examples" / "biggan-cifar10.toml"))
    expected = plain(settings(cifar, "paper_raw", 0) | {"data": "cifar10"})
    assert {key: example.get(key, 0) for key in expected} == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hinge", "dual", "unrejected", "paper_raw", "paper_raw 100", "faces"])
def test_a_step_of_a_preset_of_the_paper(kind):
    rng, size, networks = np.random.default_rng(0), 64 if kind == "faces" else 32, {}
    data = rng.uniform(-1, 1, size=(20, 3, size, size)).astype(np.float32)
    if kind == "faces":
        expected = settings(table_finetune.PRESETS["paper"], "exact", 0)
        shared = {"size": 64, "width": 32, "attention": 32, "initial": "xavier"}
        networks = {"generator": BigGanGenerator(128, **shared), "critic": BigGanCritic(**shared, heads=2)}
    else:
        expected = settings(figure_frequency.PRESETS["paper"], kind, 0)
        data = data, np.arange(20) % 10
    few = {"steps": 1, "warm_up": min(expected.get("warm_up", 0), 1), "batch_size": 4}
    run = train(expected | few, data=data, **networks)
    assert run.state.facts["step"] == 1 + few["warm_up"]
    assert run.log_ratio(run.propose(range(2))).isfinite().all()


# --- Trained ahead ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [figure_training, table_finetune])
def test_units_that_are_not_there_are_named_and_the_papers_rows_stand_beside(module):
    config = replace(module.PRESETS["default"], seeds=3)
    name = module.__name__.removeprefix("paper.").replace("_", "-")
    judged = {"before": 3.0, "after": 2.5, "near_after": [0.8, 0.7], "second": [9.0, 8.5], "cpu_seconds": 600.0}
    rows = [{"row": "hinge, seed 0", "kind": "hinge", "seed": 0, "course": [[1, 3, 2]]} | judged]
    record = Record(name, "default", plain(asdict(config)), rows)
    text = module.table(record)
    assert "hinge, seed 1" in " ".join(text.split("not trained yet: ")[1].split())
    assert "9.33" in text
    assert module.figure(record).axes
