"""Data sets: whatever the source, only the right bytes are kept; images are what they are; mistakes are one line."""

import gzip
import hashlib
import json
import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from obrs.errors import InputError, MissingLibraryError, UnknownNameError
from paper.__main__ import main
from paper.data.fetch import DATASETS, Dataset, FetchError, fetch, folder_source, is_here
from paper.data.images import IMAGES, load
from paper.data.pixels import Pixels

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
def tiny(cache, monkeypatch):
    """A data set of two small files, by sources of the test's choice."""

    def register(*sources):
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
        monkeypatch.setitem(DATASETS, "tiny", Dataset(hashes, sources, "two images"))
        return cache / "tiny"

    return register


def assert_whole(home):
    assert {path.name: path.read_bytes() for path in home.iterdir()} == FILES  # and nothing else is left behind


def test_a_folder_is_a_source_the_users_comes_first_and_the_second_call_needs_none(tiny, shelf):
    home = tiny(folder_source("/nowhere"))
    assert not is_here("tiny")
    assert fetch("tiny", folder=shelf) == home
    assert_whole(home)
    assert is_here("tiny")
    assert fetch("tiny") == home


def test_what_has_a_wrong_hash_or_is_damaged_is_not_kept_but_what_was_right_is(tiny, shelf):
    home, labels = tiny(folder_source(str(shelf))), shelf / "train-labels-idx1-ubyte.gz"
    whole = labels.read_bytes()
    labels.write_bytes(whole[:-9])
    with pytest.raises(FetchError, match=r"train-labels-idx1-ubyte\.gz is damaged: compressed file ended"):
        fetch("tiny")
    assert [path.name for path in home.iterdir()] == ["train-images-idx3-ubyte"]
    labels.write_bytes(gzip.compress(b"others"))
    with pytest.raises(FetchError, match=r"ubyte\.gz has sha256 [0-9a-f]{12}\.\.\., expected [0-9a-f]{12}"):
        fetch("tiny")
    with pytest.raises(InputError, match=r"tiny cannot be taken from .*shelf: train-labels-idx1-ubyte\.gz has sha256"):
        fetch("tiny", folder=shelf)
    labels.write_bytes(whole)
    (shelf / "train-images-idx3-ubyte").unlink()  # not needed any more
    assert_whole(fetch("tiny"))


def test_the_command_lists_and_fetches_and_says_what_is_wrong_in_one_line(tiny, shelf, capsys):
    home = tiny(folder_source(str(shelf)))
    assert main(["fetch"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert any(line.startswith("tiny ") and line.endswith(" to fetch") for line in listed)
    assert listed[-1] == f"they are kept in {home.parent}; OBRS_DATA names another folder"
    assert main(["fetch", "tiny"]) == 0
    assert capsys.readouterr().out == f"tiny: {home}\n"
    assert main(["fetch", "tiny", "--folder", "/nowhere"]) == 0
    assert capsys.readouterr() == (f"tiny: {home}\n", "warning: tiny is here already; /nowhere was not looked at\n")
    assert main(["fetch", "digits"]) == 0
    assert capsys.readouterr().out == "digits: nothing to fetch\n"
    for words, code, said in (
        (["mnits"], 2, "unknown data set 'mnits'; did you mean 'mnist'? there are: "),
        (["mnist", "--folder", str(shelf / "no")], 2, f"mnist cannot be taken from {shelf / 'no'}: no such folder"),
        (["celeba"], 2, f"{home.parent / 'celeba'} must hold img_align_celeba/ with the aligned faces"),
    ):
        assert main(["fetch", *words]) == code
        printed = capsys.readouterr().err
        assert printed.startswith(f"error: {said}")
        assert printed.count("\n") == 1


# --- Images -----------------------------------------------------------------------------------------------------------


def idx_bytes(array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return header + array.astype(np.uint8).tobytes()


NAMES = list(DATASETS["mnist"].files)
DRAWN = np.random.default_rng(0).integers(256, size=(9, 28, 28))
ARRAYS = [DRAWN[:6], np.arange(6) % 3, DRAWN[6:], np.arange(3) % 3]


@pytest.fixture
def folder(tmp_path):
    for name, array in zip(NAMES, ARRAYS, strict=True):
        (tmp_path / name).write_bytes(idx_bytes(array))
    return tmp_path


def test_digits_are_split_once_and_for_all():
    from sklearn.datasets import load_digits

    digits = load()
    assert (digits.train.shape, digits.test.shape, digits.classes) == ((1500, 1, 8, 8), (297, 1, 8, 8), 10)
    assert (digits.train.min(), digits.train.max(), digits.train.dtype) == (-1, 1, np.float32)
    assert digits.train_labels[:10].tolist() == [6, 6, 6, 2, 5, 6, 6, 2, 2, 1]
    whole = np.concatenate([digits.train, digits.test]).reshape(-1, 64)
    assert sorted(map(tuple, 8 * (whole + 1))) == sorted(map(tuple, load_digits().data))


def test_idx_files_are_read_as_they_are_plain_or_gzipped_and_a_broken_one_is_named(folder):
    images = load("mnist", folder=folder)
    np.testing.assert_allclose(images.train[:, 0], ARRAYS[0] / 127.5 - 1, atol=1e-7)
    np.testing.assert_array_equal(images.test_labels, ARRAYS[3])
    for name in NAMES:
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    np.testing.assert_array_equal(load("mnist", folder=str(folder)).train, images.train)
    (folder / f"{NAMES[0]}.gz").unlink()
    for content, line in (
        (None, f"; {NAMES[0]} is not there"),
        (b"PNG and so on, not numbers", "is not an IDX file of bytes: it starts with 504e4720"),
        (idx_bytes(ARRAYS[0])[:-5], r"must hold 4704 bytes for \(6, 28, 28\), got 4699; get it again"),
        (idx_bytes(ARRAYS[0][:5]), "n images and n labels to train, got 5 and 6"),
    ):
        if content is not None:
            (folder / NAMES[0]).write_bytes(content)
        with pytest.raises(InputError, match=line):
            load("mnist", folder=folder)


def test_what_was_not_fetched_says_how_and_unknown_names_have_a_neighbour(cache):
    with pytest.raises(InputError, match=f"^mnist is not in {cache}: run `python -m paper fetch mnist`"):
        load("mnist")
    with pytest.raises(UnknownNameError, match="unknown data set of images 'fashion'; did you mean 'fashion_mnist'"):
        load("fashion")
    assert set(DATASETS) < set(IMAGES)


def picture(path, colour, size=(40, 60)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def faces(tmp_path):
    """Ten faces, each of one grey; three of them are to test."""
    for k in range(10):
        picture(tmp_path / "faces" / "img_align_celeba" / f"{k:06}.png", (20 * k,) * 3)
    lines = [f"{k:06}.png {({0: 2, 4: 2, 9: 2, 5: 1}).get(k, 0)}" for k in range(10)]
    (tmp_path / "faces" / "list_eval_partition.txt").write_text("\n".join(lines))
    return tmp_path / "faces"


def greys(x):
    return sorted(round(float(value)) for value in (np.asarray(x)[:, 0, 5, 5] + 1) * 127.5)


def test_faces_are_split_by_their_list_and_kept_as_bytes_until_they_change(faces, cache):
    images = load("celeba", folder=faces)
    assert (images.shape, images.classes, greys(images.train)) == ((3, 64, 64), 1, [20, 40, 60, 100, 120, 140, 160])
    assert greys(images.test) == [0, 80, 180]
    written = {path: path.stat().st_mtime_ns for path in (cache / "celeba").glob("*/*.npy")}
    assert len(written) == 4  # images and labels
    assert greys(load("celeba", folder=f"{faces}/../faces").test) == greys(load("celeba").test) == [0, 80, 180]
    assert {path: path.stat().st_mtime_ns for path in (cache / "celeba").glob("*/*.npy")} == written
    picture(faces / "img_align_celeba" / "000004.png", (90,) * 3)
    assert greys(load("celeba").test) == [0, 80, 180]
    assert greys(load("celeba", folder=faces).test) == greys(load("celeba").test) == [0, 90, 180]


def test_folders_of_classes_have_labels_in_their_order_are_mixed_and_outlive_the_pictures(tmp_path, cache):
    for part, count in (("train", 4), ("val", 2)):
        for label, name in enumerate(("n01", "n02")):
            for k in range(count):
                picture(tmp_path / "net" / part / name / f"{k}.JPEG", (200 * label, 10 * k, 0), (200, 150))
    images = load("imagenet", folder=tmp_path / "net")
    assert (images.shape, images.classes, len(images.train), len(images.test)) == ((3, 128, 128), 2, 8, 4)
    red = (images.train[np.arange(8)][:, 0, 60, 60] + 1) * 127.5
    np.testing.assert_allclose(red, 200 * images.train_labels, atol=3)  # a JPEG is not exact
    assert images.train_labels.tolist() != sorted(images.train_labels)
    shutil.rmtree(tmp_path / "net" / "val" / "n01")
    with pytest.raises(InputError, match="val/ has 1 classes, train/ has 2"):
        load("imagenet", folder=tmp_path / "net")
    shutil.rmtree(tmp_path / "net")
    np.testing.assert_array_equal(load("imagenet").test.bytes, images.test.bytes)


def test_bytes_become_numbers_where_they_are_looked_at():
    content = np.random.default_rng(0).integers(256, size=(9, 3, 4, 4), dtype=np.uint8)
    x = Pixels(content)
    np.testing.assert_allclose(x[np.array([8, 2])], content[[8, 2]] / 127.5 - 1, atol=1e-6)
    assert np.shares_memory(x[2:5].bytes, content)
    np.testing.assert_allclose(np.asarray(x[2:5]), content[2:5] / 127.5 - 1, atol=1e-6)
    for wrong in (content.astype(np.float32), content[:, 0], content[:0], [[[[0]]]]):
        with pytest.raises(InputError, match=r"pixels must be uint8, 0 to 255, .*, got"):
            Pixels(wrong)


def test_a_row_of_pixels_is_an_image_of_cifar_and_a_broken_folder_is_one_line(faces, tmp_path, cache, monkeypatch):
    rng = np.random.default_rng(0)
    found = {}
    for name in (*(f"data_batch_{k}.png" for k in range(1, 6)), "test_batch.png"):
        found[name] = rng.integers(256, size=(2, 1024, 3), dtype=np.uint8)
        Image.fromarray(found[name]).save(tmp_path / name)
    for part, count in (("train", 10), ("test", 2)):
        (tmp_path / f"{part}_lables.json").write_text(json.dumps([k % 10 for k in range(count)]))
    images = load("cifar10", folder=tmp_path)
    assert (images.train.shape, images.test.shape, images.classes) == ((10, 3, 32, 32), (2, 3, 32, 32), 10)
    expected = found["data_batch_2.png"][1].reshape(32, 32, 3)[7, 11] / 127.5 - 1
    np.testing.assert_allclose(np.asarray(images.train)[3, :, 7, 11], expected, atol=1e-6)
    assert images.train_labels.tolist() == list(range(10))
    for content, line in (
        ("[1]", "n images and n labels to test, got 2 and 1"),
        ("[0, 1", "test_lables.json must hold a list of labels as JSON: "),
        ("[0.5, 1]", "test_lables.json must hold whole numbers from 0 on, got"),
    ):
        (tmp_path / "test_lables.json").write_text(content)
        with pytest.raises(InputError, match=line):
            load("cifar10", folder=tmp_path)
    (tmp_path / "data_batch_3.png").unlink()
    with pytest.raises(InputError, match=r"must hold data_batch_1.png, .*; data_batch_3.png is not there"):
        load("cifar10", folder=tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingLibraryError, match="needs Pillow: pip install pillow"):
        load("celeba", folder=faces)
