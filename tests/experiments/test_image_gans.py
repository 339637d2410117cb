"""The committed generators of images: that they load, make images by id, and share no image with what judges them."""

import runpy
import sys

import numpy as np
import pytest

from obrs.errors import InputError, UnknownNameError
from obrs.experiments.image_gans import PARTS, load_gan, parts

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("safetensors")


def test_parts_are_disjoint():
    found = parts("digits")
    assert {name: len(part.x) for name, part in found.items()} == {**PARTS["digits"], "test": 297}
    rows = np.concatenate([part.x.reshape(len(part.x), -1) for part in found.values()])
    assert len(rows) == 1797


@pytest.mark.parametrize("name", ["digits-0", "digits-1", "digits-2"])
def test_a_committed_generator_makes_images_that_its_label_names(name):
    from sklearn.neighbors import KNeighborsClassifier

    kind, seed = name.split("-")
    gan, real = load_gan(kind, int(seed)), parts(kind)["judge"]
    images, labels = gan.propose(np.arange(400))
    again, _ = gan.propose(np.arange(100, 200))
    torch.testing.assert_close(images[100:200], again)
    judge = KNeighborsClassifier(1).fit(real.x.reshape(len(real.x), -1), real.label)
    right = np.mean(judge.predict(images.reshape(400, -1).numpy()) == labels.numpy())
    assert right > 0.5  # chance has 0.1
    assert gan.critic(images, labels).shape == (400, 2)


def test_what_is_not_there_is_one_line():
    with pytest.raises(InputError, match="there is no digits-9-generator; there are: digits-0-generator"):
        load_gan("digits", 9)
    with pytest.raises(UnknownNameError, match="unknown data set of the image experiments"):
        parts("cifar")


@pytest.fixture
def run_module(monkeypatch, capsys):
    """Run a module of the experiments as `python -m` does; return its exit code and what it said."""

    def run(program, arguments):
        name = f"obrs.experiments.{program}"
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(name, run_name="__main__")
        return ended.value.code, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("program", "arguments", "message", "code"),
    [
        ("image_gans", ["digits"], "error: expected python -m obrs.experiments.image_gans NAME SEED FOLDER", 2),
        ("image_gans", ["nothing", "0", "out"], "error: unknown generator to train 'nothing'; there are: ", 2),
        (
            "image_diffusion",
            ["digits", "x", "0", "9", "out"],
            "error: expected python -m obrs.experiments.image_diff",
            2,
        ),
    ],
)
def test_a_mistake_in_a_program_is_one_line(run_module, program, arguments, message, code):
    found, said = run_module(program, arguments)
    assert (found, said.count("\n")) == (code, 1)
    assert said.startswith(message)


@pytest.mark.parametrize(
    ("program", "arguments", "work"),
    [
        ("image_gans", ["digits", "0"], "obrs.training.loop.train"),
        ("image_diffusion", ["digits", "8", "0", "9"], "obrs.fitting.loop.fit_best"),
    ],
)
def test_an_interrupted_program_says_how_to_go_on(run_module, monkeypatch, tmp_path, program, arguments, work):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(work, interrupted)
    code, said = run_module(program, [*arguments, str(tmp_path)])
    assert (code, said) == (130, "interrupted: the same command goes on from what is kept\n")
