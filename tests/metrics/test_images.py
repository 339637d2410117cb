"""Images from arrays, files and folders come out the same, and what is wrong with them is one line."""

import numpy as np
import pytest
import torch
from PIL import Image

from obrs._pictures import to_floats
from obrs.metrics.images import read_images
from obrs.metrics.rows import row_hashes

RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 256, (6, 3, 8, 10), dtype=np.uint8)


def whole(source, **options):
    images = read_images(source, **options)
    blocks = list(images.blocks(4))
    assert [len(block) for block in blocks] == ([4, 2] if images.n == 6 else [images.n])
    return np.concatenate(blocks)


@pytest.fixture
def folder(tmp_path):
    for i, image in enumerate(BYTES):
        inside = tmp_path / "pictures" / ("a" if i < 3 else "b")
        inside.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.transpose(1, 2, 0)).save(inside / f"{i}.png")
    (tmp_path / "pictures" / "notes.txt").write_text("not an image")
    return tmp_path / "pictures"


def test_every_layout_and_source_gives_the_same_images(tmp_path, folder):
    np.save(tmp_path / "x.npy", BYTES)
    np.savez(tmp_path / "x.npz", images=BYTES, labels=np.arange(6))
    last = BYTES.transpose(0, 2, 3, 1)
    sources = [BYTES, last, torch.as_tensor(BYTES), torch.as_tensor(last.copy()), folder, str(folder)]
    for source in [*sources, tmp_path / "x.npy", tmp_path / "x.npz"]:
        assert np.array_equal(whole(source), BYTES)


def test_float_ranges_are_brought_to_that_of_the_library():
    unit = BYTES / 255
    assert np.allclose(whole(unit, pixels=np.array([0, 1])), 2 * unit - 1, atol=1e-6)
    assert np.array_equal(whole(2 * unit - 1), 2 * unit - 1)


def test_the_digest_is_of_the_content(folder):
    other = BYTES.copy()
    other[3, 0, 0, 0] ^= 1
    digest = read_images(BYTES).digest
    assert read_images(BYTES.copy()).digest == digest == read_images(BYTES.transpose(0, 2, 3, 1)).digest
    assert len({digest, read_images(other).digest, read_images(BYTES[::-1]).digest, read_images(folder).digest}) == 4
    unit = BYTES / 255
    assert read_images(unit, pixels=(0, 1)).digest != read_images(unit, pixels=(-1, 1)).digest


def test_bytes_are_the_numbers_of_the_data_to_the_last_bit():
    assert np.array_equal(read_images(BYTES).floats(1, 4), to_floats(BYTES[1:4]))
    assert np.array_equal(row_hashes(BYTES), row_hashes(to_floats(BYTES)))
