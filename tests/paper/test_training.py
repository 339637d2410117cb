"""Training in the experiments: what is compared with what, the paper's presets, BigGANs in the one loop."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import paper
from obrs.budget import solve_cut
from paper import figure_frequency, figure_training, table_finetune
from paper.data.pixels import Pixels
from paper.image_gans import SETTINGS
from paper.image_training import CELEBA, compared, training
from paper.nets.biggan import BigGanCritic, BigGanGenerator
from paper.record import Record, plain
from paper.train import TrainConfig, losses, read_config, seen_before, train

ROOT = Path(paper.__file__).parents[1]


def test_means_are_over_all_seeds_and_gains_seed_by_seed():
    mean, error, gain, of_gain, seeds = compared({0: 1.0, 1: 2.0, 5: 9.0}, {0: 2.0, 1: 5.0})
    assert (mean, gain, of_gain, seeds) == (4.0, 2.0, pytest.approx(1.0), 2)
    assert error == pytest.approx(((9 + 4 + 25) / 2 / 3) ** 0.5)


# --- What is compared sees the same number of samples -----------------------------------------------------------------


def seen(settings):
    by_generator = sum(stage.steps * stage.batch_size for stage in settings.stages)
    return by_generator, seen_before(settings, len(settings.stages) + 1)[1]


def test_all_ways_to_train_see_the_same_number_of_samples():
    for config in (figure_training.PRESETS["smoke"], figure_training.Config(data="digits", alone=200)):
        assert len({seen(figure_training.settings(config, kind, 0)) for kind in figure_training.KINDS}) == 1
    own, new = (table_finetune.settings(table_finetune.Config(data="digits"), kind, 0) for kind in ("hinge", "exact"))
    assert (own.two_heads, new.two_heads, own.warm_up, new.warm_up) == (True, False, 200, 200)
    assert seen(own) == seen(new)


@pytest.mark.parametrize(("kind", "k"), [("without", 1.0), ("unrejected", 2.0)])
def test_without_rejection_the_loss_is_the_mean_of_f(kind, k):
    """E[f(r)], and E[2 f(r/2)] as the authors' code has it, which keeps K = 2 there."""
    config = figure_training.settings(figure_training.Config(data="digits"), kind, 0).stages[0]
    assert config.budget == k
    log_r = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    of_generator = losses(config)[1]
    loss = of_generator(log_r, solve_cut(log_r, config.budget) if of_generator.rejects else None)
    u = log_r.exp() / k
    assert float(loss) == pytest.approx(k * float((u * u.log() - (u + 1) * torch.log(u + 1)).mean()))


# --- BigGANs ----------------------------------------------------------------------------------------------------------

TINY = TrainConfig(
    network="biggan",
    classes=True,
    latent=8,
    generator_width=2,
    critic_width=2,
    spectral_norm=True,
    two_heads=True,
    generator_loss="paper_raw",
    ema_decay=0.9,
    ema_start=1,
    steps=2,
    batch_size=4,
)


def images(n=16, size=32, classes=4):
    """Images as bytes, each of a colour of its class."""
    rng = np.random.default_rng(0)
    labels = np.append(np.arange(classes), rng.integers(classes, size=n - classes))
    noise = rng.integers(60, size=(n, 3, size, size))
    return Pixels((noise + 40 * labels[:, None, None, None] % 190).astype(np.uint8)), labels


def test_bytes_train_as_their_numbers_do_and_a_sample_belongs_to_its_id():
    x, labels = images()
    run, same = (train(TINY, data=data, labels=labels) for data in (x, np.asarray(x)))
    torch.testing.assert_close(run.state.tensors, same.state.tensors, rtol=0, atol=0)
    ids = np.array([7, 3, 11, 5])
    whole, of = run.propose(ids)
    alone, label = run.propose(ids[2:3])
    torch.testing.assert_close(alone[0], whole[2], rtol=1e-4, atol=1e-5)
    assert label[0] == of[2]


def test_presets_are_the_papers_with_its_slips_mended():
    cifar = figure_training.PRESETS["paper"]
    assert (cifar.data, cifar.width, cifar.batch_size, cifar.critic_steps) == ("cifar10", 64, 50, 4)
    assert (cifar.generator_lr, cifar.critic_lr, cifar.budget, cifar.ema_start) == (2e-5, 2e-5, 2.0, 1000)
    assert (cifar.steps, cifar.kinds) == (800 * 250, ("hinge", "dual", "unrejected", "with"))
    assert figure_frequency.PRESETS["paper"].data == "cifar10"
    faces = table_finetune.PRESETS["paper"]
    assert (faces.data, faces.width, faces.batch_size, faces.budget) == ("celeba", 32, 128, 2.0)
    assert (faces.generator_lr, faces.critic_lr) == (1e-6, 4e-6)
    assert [CELEBA[key] for key in ("generator_lr", "critic_lr", "critic_steps", "ema_start")] == [1e-4, 4e-4, 1, 2000]
    celeba = SETTINGS["celeba"]
    assert (celeba.network, celeba.attention, celeba.initial, celeba.steps) == ("biggan", 32, "xavier", 636_000)
    example = asdict(read_config(ROOT / "examples" / "biggan-cifar10.toml"))
    wanted = training(cifar, 0, labelled=True) | {"generator_loss": "paper_raw", "data": "cifar10"}
    assert {key: example[key] for key in wanted} == wanted


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hinge", "dual", "unrejected", "with", "frequency", "faces"])
def test_a_step_of_a_preset_of_the_paper(kind, tmp_path):
    if kind == "faces":
        settings = table_finetune.settings(table_finetune.PRESETS["paper"], "exact", 0, classes=None)
        networks = {
            "generator": BigGanGenerator(128, size=64, width=32, attention=32, initial="xavier"),
            "critic": BigGanCritic(size=64, width=32, heads=2, attention=32, initial="xavier"),
        }
        data, labels = images(20, 64, 1)[0], None
    else:
        data, labels = images(24, 32, 10)
        cut = {"train": np.asarray(data)[:20], "test": np.asarray(data)[20:]}
        np.savez(tmp_path / "cifar10.npz", **cut, train_labels=labels[:20], test_labels=labels[20:])
        module = figure_frequency if kind == "frequency" else figure_training
        config = replace(module.PRESETS["paper"], home=str(tmp_path))
        settings = module.settings(config, 100 if kind == "frequency" else kind, 0)
        assert (settings.network, settings.two_heads, settings.initial) == ("biggan", True, "normal")
        networks = {}
    few = {"steps": 1, "warm_up": min(settings.warm_up, 1), "batch_size": 4, "parts": min(settings.parts, 2)}
    run = train(replace(settings, **few), data=data, labels=labels, **networks)
    assert run.state.facts["step"] == 1 + few["warm_up"]
    assert run.log_ratio(run.propose(range(2))).isfinite().all()


# --- Trained ahead ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [figure_training, table_finetune])
def test_units_that_are_not_there_are_named_and_the_papers_rows_stand_beside(module):
    config = module.PRESETS["cifar" if module is figure_training else "default"]
    name = module.__name__.removeprefix("paper.").replace("_", "-")
    judged = {"before": 3.0, "after": 2.5, "near_after": [0.8, 0.7], "second": [9.0, 8.5], "cpu_seconds": 600.0}
    rows = [{"row": f"{kind}, seed 0", "kind": kind, "seed": 0, "course": [[1, 3, 2]]} | judged for kind in ("hinge",)]
    record = Record(name, "default", plain(asdict(config)), rows)
    text = module.table(record)
    assert "not trained yet: " in text
    assert "hinge, seed 1" in " ".join(text.split("not trained yet: ")[1].split())
    assert "9.33" in text
    assert module.figure(record).axes
