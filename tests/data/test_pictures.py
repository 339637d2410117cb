"""Files of pictures: whatever is wrong with one, the error is one line that names it."""

import numpy as np
import pytest

from obrs.data.images import load
from obrs.data.pictures import read_picture
from obrs.errors import InputError
from obrs.metrics.images import read_images

Image = pytest.importorskip("PIL.Image")


def pixels(path):
    return read_picture(path, np.asarray)


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """Files that Pillow refuses with errors of three kinds, of which only the last is an OSError."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50_000)
    noise = np.random.default_rng(0).integers(256, size=(200, 210, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "whole.png")
    content = (tmp_path / "whole.png").read_bytes()
    assert content.count(b"IDAT") > 1
    (tmp_path / "chunk.png").write_bytes(b"!!!!".join(content.rsplit(b"IDAT", 1)))
    Image.new("RGB", (500, 400)).save(tmp_path / "bomb.png")
    (tmp_path / "text.png").write_text("no picture")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kind"), [("chunk", SyntaxError), ("bomb", Image.DecompressionBombError), ("text", OSError)]
)
def test_a_broken_picture_is_one_line(broken, name, kind):
    with pytest.raises(InputError, match=f"{name}.png cannot be read as an image: .*; replace it") as caught:
        pixels(broken / f"{name}.png")
    assert isinstance(caught.value.__cause__, kind)
    assert "\n" not in str(caught.value)
    assert pixels(broken / "whole.png").shape == (200, 210, 3)


@pytest.mark.parametrize("name", ["chunk", "bomb", "text"])
def test_every_door_refuses_a_broken_picture(broken, name, tmp_path, monkeypatch):
    monkeypatch.setenv("OBRS_DATA", str(tmp_path / "cache"))
    content = (broken / f"{name}.png").read_bytes()
    faces, cifar = tmp_path / "faces" / "img_align_celeba", tmp_path / "cifar"
    for folder in (faces, cifar):
        folder.mkdir(parents=True)
    for k in range(2):
        (faces / f"{k}.png").write_bytes(content)
    for file in (*(f"data_batch_{k}.png" for k in range(1, 6)), "test_batch.png"):
        (cifar / file).write_bytes(content)
    for part in ("train", "test"):
        (cifar / f"{part}_lables.json").write_text("[0]")
    doors = [
        lambda: load("celeba", folder=faces.parent),
        lambda: load("cifar10", folder=cifar),
        lambda: list(read_images(faces).blocks(1)),
    ]
    for door in doors:
        with pytest.raises(InputError, match="cannot be read as an image"):
            door()


@pytest.mark.parametrize("failure", [MemoryError("no memory"), OSError(24, "Too many open files")])
def test_a_machine_that_fails_is_not_called_a_broken_picture(broken, failure):
    def use(image):
        raise failure

    with pytest.raises(type(failure), match=str(failure.args[-1])):
        read_picture(broken / "whole.png", use)
