"""Data sets: whatever the source, only the right bytes are kept; images are what they are; mistakes are one line."""

import gzip
import hashlib
import json
import sys

import numpy as np
import pytest
from PIL import Image

from obrs.errors import InputError, MissingLibraryError, UnknownNameError
from paper.__main__ import main
from paper.data.fetch import DATASETS, Dataset, FetchError, fetch, is_here
from paper.data.images import IMAGES, Pixels, load

FILES = {
    "train-images-idx3-ubyte": bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 3, 4]),
    "train-labels-idx1-ubyte": bytes([0, 0, 8, 1, 0, 0, 0, 2, 0, 1]),
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OBRS_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


# --- Fetching ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def shelf(tmp_path):
    """A folder with the files, one of them gzipped."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    (first, content), (second, labels) = FILES.items()
    (folder / first).write_bytes(content)
    (folder / f"{second}.gz").write_bytes(gzip.compress(labels))
    return folder


@pytest.fixture
def tiny(cache, shelf, monkeypatch):
    """The home of a data set of two small files, whose second source is the shelf."""
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    monkeypatch.setitem(DATASETS, "tiny", Dataset(hashes, ("/nowhere", str(shelf)), "two images"))
    return cache / "tiny"


def test_what_has_a_wrong_hash_or_is_damaged_is_not_kept_but_what_was_right_is(tiny, shelf):
    home, labels = tiny, shelf / "train-labels-idx1-ubyte.gz"
    whole = labels.read_bytes()
    labels.write_bytes(whole[:-9])
    with pytest.raises(FetchError, match="Compressed file ended"):
        fetch("tiny")
    assert [path.name for path in home.iterdir()] == ["train-images-idx3-ubyte"]
    labels.write_bytes(gzip.compress(b"others"))
    with pytest.raises(FetchError, match=r"ubyte\.gz has sha256 [0-9a-f]{12}\.\.\., expected [0-9a-f]{12}"):
        fetch("tiny")
    with pytest.raises(InputError, match=r"tiny cannot be taken from .*shelf: train-labels-idx1-ubyte\.gz has sha256"):
        fetch("tiny", folder=shelf)
    labels.write_bytes(whole)
    (shelf / "train-images-idx3-ubyte").unlink()  # not needed any more
    assert not is_here("tiny")
    assert fetch("tiny") == home
    assert {path.name: path.read_bytes() for path in home.iterdir()} == FILES  # and nothing else is left behind
    assert is_here("tiny")
    labels.unlink()
    assert fetch("tiny") == home


def test_the_command_lists_and_fetches_and_says_what_is_wrong_in_one_line(tiny, shelf, capsys):
    assert main(["fetch"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert any(line.startswith("tiny ") and line.endswith(" to fetch") for line in listed)
    assert main(["fetch", "tiny"]) == 0
    assert capsys.readouterr().out == f"tiny: {tiny}\n"
    assert main(["fetch", "tiny", "--folder", "/nowhere"]) == 0
    assert capsys.readouterr().err == "warning: tiny is here already; /nowhere was not looked at\n"
    assert main(["fetch", "mnist", "--folder", str(shelf / "no")]) == 2
    assert capsys.readouterr().err == f"error: mnist cannot be taken from {shelf / 'no'}: no such folder\n"


# --- Images -----------------------------------------------------------------------------------------------------------


def idx_bytes(array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return header + array.astype(np.uint8).tobytes()


def test_digits_are_split_once_and_for_all():
    from sklearn.datasets import load_digits

    digits = load()
    assert (digits.train.shape, digits.test.shape) == ((1500, 1, 8, 8), (297, 1, 8, 8))
    assert (digits.train.min(), digits.train.max(), digits.train.dtype) == (-1, 1, np.float32)
    assert digits.train_labels[:10].tolist() == [6, 6, 6, 2, 5, 6, 6, 2, 2, 1]
    whole = np.concatenate([digits.train, digits.test]).reshape(-1, 64)
    assert sorted(map(tuple, 8 * (whole + 1))) == sorted(map(tuple, load_digits().data))


def test_idx_files_are_read_as_they_are(cache):
    drawn = np.random.default_rng(0).integers(256, size=(9, 28, 28))
    arrays = [drawn[:6], np.arange(6) % 3, drawn[6:], np.arange(3) % 3]
    (cache / "mnist").mkdir(parents=True)
    for name, array in zip(DATASETS["mnist"].files, arrays, strict=True):
        (cache / "mnist" / name).write_bytes(idx_bytes(array))
    images = load("mnist")
    np.testing.assert_allclose(images.train[:, 0], arrays[0] / 127.5 - 1, atol=1e-7)
    np.testing.assert_array_equal(images.test_labels, arrays[3])
    assert images.train.shape == (6, 1, 28, 28)


def test_what_was_not_fetched_says_how_and_unknown_names_have_a_neighbour(cache):
    with pytest.raises(InputError, match=f"^mnist is not in {cache}: run `python -m paper fetch mnist`"):
        load("mnist")
    with pytest.raises(UnknownNameError, match="unknown data set of images 'fashion'; did you mean 'fashion_mnist'"):
        load("fashion")
    assert set(DATASETS) < set(IMAGES)


def test_bytes_become_numbers_where_they_are_looked_at():
    content = np.random.default_rng(0).integers(256, size=(9, 3, 4, 4), dtype=np.uint8)
    x = Pixels(content)
    np.testing.assert_allclose(x[np.array([8, 2])], content[[8, 2]] / 127.5 - 1, atol=1e-6)
    assert np.shares_memory(x[2:5].bytes, content)
    np.testing.assert_allclose(np.asarray(x[2:5]), content[2:5] / 127.5 - 1, atol=1e-6)


def test_a_row_of_pixels_is_an_image_of_cifar(cache, monkeypatch):
    rng, pictures = np.random.default_rng(0), {}
    home = cache / "cifar10"
    home.mkdir(parents=True)
    for name in (*(f"data_batch_{k}.png" for k in range(1, 6)), "test_batch.png"):
        pictures[name] = rng.integers(256, size=(2, 1024, 3), dtype=np.uint8)
        Image.fromarray(pictures[name]).save(home / name)
    for part, count in (("train", 10), ("test", 2)):
        (home / f"{part}_lables.json").write_text(json.dumps([k % 10 for k in range(count)]))
    images = load("cifar10")
    assert (images.train.shape, images.test.shape) == ((10, 3, 32, 32), (2, 3, 32, 32))
    expected = pictures["data_batch_2.png"][1].reshape(32, 32, 3)[7, 11] / 127.5 - 1
    np.testing.assert_allclose(np.asarray(images.train)[3, :, 7, 11], expected, atol=1e-6)
    assert (images.train_labels.tolist(), images.test_labels.tolist()) == (list(range(10)), [0, 1])
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingLibraryError, match="need Pillow: pip install"):
        load("cifar10")
