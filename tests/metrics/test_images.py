"""Images from arrays, files and folders come out the same, and what is wrong with them is one line."""

import numpy as np
import pytest
import torch
from PIL import Image

from obrs._pictures import to_floats
from obrs.errors import InputError, InputTypeError
from obrs.metrics.images import read_images
from obrs.metrics.rows import row_hashes

RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 256, (6, 3, 8, 10), dtype=np.uint8)


def whole(source, **options):
    found = read_images(source, **options)
    blocks = list(found.blocks(4))
    assert [len(block) for block in blocks] == ([4, 2] if found.n == 6 else [found.n])
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
    assert np.allclose(whole(unit, pixels=(0, 1)), 2 * unit - 1, atol=1e-6)
    assert np.array_equal(whole(2 * unit - 1), 2 * unit - 1)


def test_the_digest_is_of_the_content(folder):
    other = BYTES.copy()
    other[3, 0, 0, 0] ^= 1
    digest = read_images(BYTES).digest
    assert read_images(BYTES.copy()).digest == digest == read_images(BYTES.transpose(0, 2, 3, 1)).digest
    assert len({digest, read_images(other).digest, read_images(BYTES[::-1]).digest, read_images(folder).digest}) == 4
    unit = BYTES / 255
    assert read_images(unit, pixels=(0, 1)).digest != read_images(unit, pixels=(-1, 1)).digest


@pytest.mark.parametrize(
    ("source", "error", "says"),
    [
        (np.zeros((5, 4, 8, 8), dtype=np.uint8), InputError, r"with 1 or 3 channels, got \(5, 4, 8, 8\)"),
        (np.zeros((8, 8), dtype=np.uint8), InputError, r"must have shape .* got \(8, 8\)"),
        (np.zeros((0, 8, 8), dtype=np.uint8), InputError, "at least one image"),
        (np.zeros((5, 8, 8), dtype=np.int64), InputTypeError, "must be uint8, or floats in .* got int64"),
        (np.full((5, 8, 8), 0.5), InputError, r"no value below 0; are they in \[0, 1\]\? then say pixels=\(0, 1\)"),
        (np.full((5, 8, 8), 200.0), InputError, r"must be floats in \[-1, 1\], got 200 to 200"),
        (np.full((5, 8, 8), np.nan), InputError, "must be finite, 5 of 5 are not"),
        ("nowhere.npy", InputError, "nowhere.npy does not exist"),
    ],
)
def test_bad_images_are_one_line(source, error, says):
    with pytest.raises(error, match=says) as caught:
        read_images(source)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="pixels must be the values of black and white"):
        read_images(np.zeros((5, 8, 8)), pixels=(1, 0))


def test_unreadable_image_is_named(folder):
    (folder / "b" / "9.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"9\.png cannot be read as an image"):
        read_images(folder)


def test_cut_image_is_named_when_it_is_read(folder):
    whole_file = (folder / "b" / "5.png").read_bytes()
    (folder / "b" / "5.png").write_bytes(whole_file[: len(whole_file) // 2])
    with pytest.raises(InputError, match=r"5\.png cannot be read as an image"):
        whole(folder)


def test_mixed_sizes_are_named(folder):
    Image.fromarray(BYTES[0, 0, :4]).save(folder / "b" / "7.png")
    with pytest.raises(InputError, match=r"must be of one size: 0\.png is 10x8 and 7\.png 10x4"):
        read_images(folder)


def test_files_that_are_none(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 broken")
    (tmp_path / "x.csv").write_text("1,2")
    np.savez(tmp_path / "two.npz", left=BYTES, right=BYTES)
    (tmp_path / "empty").mkdir()
    for name, says in (
        ("x.npz", r"x\.npz is no \.npy or \.npz file of numbers"),
        ("x.csv", r"x\.csv is no \.npy or \.npz file of numbers, nor a folder of images"),
        ("two.npz", "has the arrays left, right; call the one to read 'images'"),
        ("empty", r"has no image; expected files that end in \.png"),
    ):
        with pytest.raises(InputError, match=says) as caught:
            read_images(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_bytes_are_the_numbers_of_the_data_to_the_last_bit():
    assert np.array_equal(read_images(BYTES).floats(1, 4), to_floats(BYTES[1:4]))
    assert np.array_equal(row_hashes(BYTES), row_hashes(to_floats(BYTES)))
