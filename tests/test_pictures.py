"""Files of pictures: whatever is wrong with one, the error is one line that names it."""

import numpy as np
import pytest

from obrs._pictures import read_picture
from obrs.errors import InputError
from obrs.metrics.images import read_images

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def broken_files(tmp_path, monkeypatch):
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
def test_a_broken_picture_is_one_line(broken_files, name, kind, tmp_path):
    with pytest.raises(InputError, match=f"{name}.png cannot be read as an image: .*; replace it") as caught:
        read_picture(broken_files / f"{name}.png", np.asarray)
    assert isinstance(caught.value.__cause__, kind)
    assert "\n" not in str(caught.value)
    assert read_picture(broken_files / "whole.png", np.asarray).shape == (200, 210, 3)
    (tmp_path / "alone").mkdir()
    (broken_files / f"{name}.png").rename(tmp_path / "alone" / f"{name}.png")
    with pytest.raises(InputError, match="cannot be read as an image"):
        list(read_images(tmp_path / "alone").blocks(1))


@pytest.mark.parametrize("failure", [MemoryError("no memory"), OSError(24, "Too many open files")])
def test_a_machine_that_fails_is_not_called_a_broken_picture(broken_files, failure):
    def use(image):
        raise failure

    with pytest.raises(type(failure), match=str(failure.args[-1])):
        read_picture(broken_files / "whole.png", use)
