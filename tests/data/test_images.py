"""Images: digits that come with scikit-learn, IDX files that lie in a folder."""

import gzip

import numpy as np
import pytest

from obrs.data.fetch import DATASETS
from obrs.data.images import IMAGES, load
from obrs.errors import InputError, UnknownNameError

NAMES = list(DATASETS["mnist"].files)


def idx_bytes(array):
    """The content of an IDX file."""
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return header + array.astype(np.uint8).tobytes()


def tiny(size=28, train=6, test=3):
    """Four small arrays in the order of the files."""
    generator = np.random.default_rng(0)
    images = [generator.integers(256, size=(n, size, size)) for n in (train, test)]
    labels = [np.arange(n) % 3 for n in (train, test)]
    return [images[0], labels[0], images[1], labels[1]]


@pytest.fixture
def folder(tmp_path):
    for name, array in zip(NAMES, tiny(), strict=True):
        (tmp_path / name).write_bytes(idx_bytes(array))
    return tmp_path


def test_digits_are_split_once_and_for_all():
    digits = load()
    assert digits.name == "digits"
    assert digits.train.shape == (1500, 1, 8, 8)
    assert digits.test.shape == (297, 1, 8, 8)
    assert digits.shape == (1, 8, 8)
    assert digits.classes == 10
    assert digits.train.dtype == np.float32
    assert digits.train_labels.dtype == np.int64
    assert (digits.train.min(), digits.train.max()) == (-1, 1)
    assert digits.train_labels[:10].tolist() == [6, 6, 6, 2, 5, 6, 6, 2, 2, 1]
    whole = np.concatenate([digits.train, digits.test]).reshape(-1, 64)
    from sklearn.datasets import load_digits

    assert sorted(map(tuple, 8 * (whole + 1))) == sorted(map(tuple, load_digits().data))


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_folder_of_idx_files_is_read_as_it_is(folder, name):
    images = load(name, folder=folder)
    train, train_labels, test, test_labels = tiny()
    assert images.name == name
    np.testing.assert_allclose(images.train[:, 0], train / 127.5 - 1, atol=1e-7)
    np.testing.assert_allclose(images.test[:, 0], test / 127.5 - 1, atol=1e-7)
    np.testing.assert_array_equal(images.train_labels, train_labels)
    np.testing.assert_array_equal(images.test_labels, test_labels)
    assert images.train.dtype == np.float32
    assert images.classes == 3
    images.train[0] = 0  # its own copy, not the file's


def test_gzipped_files_are_the_same(folder, tmp_path):
    plain = load("mnist", folder=str(folder))
    for name in NAMES:
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    np.testing.assert_array_equal(load("mnist", folder=tmp_path).train, plain.train)


def test_padding_is_black_and_even(folder):
    images, padded = load("mnist", folder=folder), load("mnist", folder=folder, size=33)
    assert padded.train.shape == (6, 1, 33, 33)
    assert padded.train.dtype == np.float32
    np.testing.assert_array_equal(padded.train[:, :, 2:30, 2:30], images.train)
    assert padded.test.sum() == pytest.approx(images.test.sum() - 3 * (33**2 - 28**2), rel=1e-6)
    with pytest.raises(InputError, match="size must be at least that of the images, 28x28, got 16"):
        load("mnist", folder=folder, size=16)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not an IDX file of bytes: it starts with nothing"),
        (b"PNG and so on, not numbers", "is not an IDX file of bytes: it starts with 504e4720"),
        (bytes([0, 0, 13, 1, 0, 0, 0, 1, 0]), "is not an IDX file of bytes: it starts with 00000d01"),
        (idx_bytes(tiny()[0])[:-5], r"must hold 4704 bytes for \(6, 28, 28\), got 4699; get it again"),
        (idx_bytes(tiny()[0][:5]), r"n images and n labels to train, got \(5, 28, 28\) and \(6,\)"),
        (idx_bytes(tiny()[0][0]), r"n images and n labels to train, got \(28, 28\) and \(6,\)"),
    ],
)
def test_broken_file_is_named(folder, content, message):
    (folder / NAMES[0]).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        load("mnist", folder=folder)
    assert str(folder) in str(caught.value)


def test_broken_gzip_is_named(folder):
    content = gzip.compress((folder / NAMES[2]).read_bytes())
    (folder / NAMES[2]).unlink()
    for damaged in (content[:-20], b"no gzip at all", content[:40] + bytes(20) + content[60:]):
        (folder / f"{NAMES[2]}.gz").write_bytes(damaged)
        with pytest.raises(InputError, match=f"{NAMES[2]}.gz is damaged: .*; get it again"):
            load("mnist", folder=folder)


def test_missing_file_is_named(folder):
    (folder / NAMES[3]).unlink()
    with pytest.raises(InputError, match=f"plain or .gz; {NAMES[3]} is not there"):
        load("mnist", folder=folder)


def test_what_was_not_fetched_says_how(tmp_path, monkeypatch):
    monkeypatch.setenv("OBRS_DATA", str(tmp_path))
    with pytest.raises(InputError) as caught:
        load("mnist")
    assert (
        str(caught.value) == f"mnist is not in {tmp_path}: run `obrs data fetch mnist`, or say folder= if you have it"
    )


def test_digits_have_no_folder_and_unknown_names_have_a_neighbour(folder):
    with pytest.raises(InputError, match="digits come with scikit-learn, not from a folder"):
        load("digits", folder=folder)
    with pytest.raises(UnknownNameError, match="unknown data set of images 'fashion'; did you mean 'fashion_mnist'"):
        load("fashion")
    assert set(DATASETS) < set(IMAGES)
