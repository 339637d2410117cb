"""BigGANs in the experiments: a public checkpoint to a figure, and a training that is kept where it was stopped."""

import importlib.util
import json
import os
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from obrs.errors import InputError
from obrs.experiments import Record, Rows, table_finetune
from obrs.experiments.image_gans import load_gan, parts
from obrs.experiments.image_training import kept

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

from obrs.models.biggan import BigGanCritic, BigGanGenerator, exported  # noqa: E402

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "biggan-pretrained.py"
SMALL = {"pool": 60, "neighbours": 60, "judged": 60, "second": "efficientnet_lite0", "fakes": 300}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with public checkpoints of a generator and a critic of faces, and with images."""
    folder = tmp_path_factory.mktemp("faces")
    torch.manual_seed(0)
    generator = BigGanGenerator(16, size=32, width=2, classes=1).eval()
    safetensors.save_file(exported(generator), folder / "G_ema.safetensors")
    torch.save(exported(BigGanCritic(size=32, width=2, classes=1)), folder / "D.pth")
    x = np.random.default_rng(0).uniform(-1, 1, (1300, 3, 32, 32)).astype(np.float32)
    np.savez(folder / "celeba.npz", train=x[:1200], test=x[1200:])
    return folder


def example():
    spec = importlib.util.spec_from_file_location("biggan_pretrained", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def converted(home):
    assert example().convert(home / "G_ema.safetensors", home / "D.pth", "celeba", home) == 1
    return home


def test_the_script_says_in_one_line_which_file_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "G_ema.pth", "D.pth"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    said = capsys.readouterr().err
    assert (ended.value.code, said.count("\n")) == (2, 1)
    assert said.startswith("error: ")
    assert "G_ema.pth" in said


def test_the_script_says_how_it_is_run():
    assert "python examples/biggan-pretrained.py" in SCRIPT.read_text().split('"""')[1]


def test_a_checkpoint_becomes_a_gan_of_the_experiments(converted):
    gan = load_gan("celeba", 0, str(converted))
    assert gan.classes is None
    whole, _ = gan.propose(np.arange(8))
    alone, _ = gan.propose(np.array([5]))
    torch.testing.assert_close(whole[5], alone[0], rtol=1e-4, atol=1e-5)
    both = gan.critic(whole)
    assert torch.equal(both[:, 0], both[:, 1])  # the second head starts as the first


def test_pictures_of_faces_are_parts_of_the_experiments(tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setenv("OBRS_DATA", str(tmp_path / "cache"))
    (tmp_path / "img_align_celeba").mkdir()
    for k in range(60):
        image.new("RGB", (20, 30), (4 * k, 0, 0)).save(tmp_path / "img_align_celeba" / f"{k:06}.jpg")
    found = parts("celeba", str(tmp_path))
    assert {name: len(part.x) for name, part in found.items()} | {"judge": 2, "features": 2} == {
        "generator": 44,
        "ratio": 6,
        "features": 2,
        "judge": 2,
        "test": 6,
    }
    assert all(part.label is None for part in found.values())
    with pytest.raises(InputError, match=r"there is no .*imagenet.npz; .*; or else pictures: .* must hold train/"):
        parts("imagenet", str(tmp_path))


@pytest.mark.slow
def test_a_checkpoint_goes_in_and_the_figure_comes_out(home, tmp_path):
    options = SMALL | {"kept": 20, "shown": 4, "steps": 3, "rates": "0.5,0.25"}
    fields = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-W", "ignore", SCRIPT, home / "G_ema.safetensors", home / "D.pth"]
    done = subprocess.run(
        [*command, "--data", "celeba", "--home", home, "--out", tmp_path, *fields],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "picture: " in done.stdout
    assert (tmp_path / "figure-pretrained.png").read_bytes()[:4] == b"\x89PNG"
    (row,) = json.loads((tmp_path / "figure-pretrained.json").read_text())["rows"]
    assert list(row["ratios"]) == ["own", "tuned", "gradients"]
    cells = row["ratios"]["gradients"]["cells"]["global"]["efficientnet_lite0"]
    assert list(cells) == ["model 1", "obrs 2", "obrs 4", "drs 2", "drs 4"]


@pytest.mark.slow
def test_a_training_is_kept_beside_the_record_and_goes_on(converted, tmp_path):
    config = replace(
        table_finetune.PRESETS["paper"],
        **SMALL,
        home=str(converted),
        kinds=("none", "paper_raw"),
        width=2,
        latent=16,
        steps=8,
        alone=2,
        batch_size=4,
        fit_steps=3,
    )
    path = tmp_path / "table-finetune.abc.partial.json"
    rows = Rows(Record("table-finetune", "paper", {}, []), path, progress=False)
    folder = kept(config, rows, "paper_raw, seed 0")
    assert folder == tmp_path / "table-finetune.abc.paper_raw-seed-0"
    table_finetune.run(config, rows)
    first = rows.record()["paper_raw, seed 0"]
    written = sorted((folder / "checkpoints").iterdir())
    assert len(written) > 3
    for later in written[-2:]:
        later.unlink()  # as if it had been stopped there
    again = Rows(Record("table-finetune", "paper", {}, []), tmp_path / "again.abc.partial.json", progress=False)
    folder.rename(kept(config, again, "paper_raw, seed 0"))
    table_finetune.run(config, again)
    second = again.record()["paper_raw, seed 0"]
    assert {key: first[key] for key in ("before", "after", "change")} == {
        key: second[key] for key in ("before", "after", "change")
    }
