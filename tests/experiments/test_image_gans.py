"""The committed generators of images: that they load, make images by id, and share no image with what judges them."""

import os
import signal
import subprocess
import sys
import time

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
def test_a_mistake_in_a_program_is_one_line(program, arguments, message, code, tmp_path):
    command = [sys.executable, "-m", f"obrs.experiments.{program}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert done.stderr.startswith(message)


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
@pytest.mark.parametrize(
    ("program", "arguments", "begun"),
    [("image_gans", ["digits", "0"], "digits-0/config.json"), ("image_diffusion", ["digits", "8", "0", "900000"], "")],
)
def test_an_interrupted_program_says_how_to_go_on(program, arguments, begun, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-m", f"obrs.experiments.{program}", *arguments, str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            for _ in range(600):  # until the training has begun
                time.sleep(0.1)
                if (out / begun).exists():
                    break
            time.sleep(1)
            process.send_signal(signal.SIGINT)
            err = process.communicate(timeout=30)[1]
        finally:
            process.kill()
    assert (process.returncode, err) == (130, "interrupted: the same command goes on from what is kept\n")
