"""CIFAR-10 as it is fetched; CelebA and ImageNet as they lie in a folder, kept as bytes."""

import json
import shutil

import numpy as np
import pytest

from obrs.cli import main
from obrs.data.fetch import is_here
from obrs.data.images import load
from obrs.data.pixels import Pixels
from obrs.errors import InputError, MissingLibraryError

Image = pytest.importorskip("PIL.Image")


def picture(path, colour, size=(40, 60)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OBRS_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def faces(tmp_path):
    """Ten faces, each of one grey; three of them are to test."""
    for k in range(10):
        picture(tmp_path / "faces" / "img_align_celeba" / f"{k:06}.png", (20 * k,) * 3)
    split = {0: 2, 4: 2, 9: 2, 5: 1}
    lines = [f"{k:06}.png {split.get(k, 0)}" for k in range(10)]
    (tmp_path / "faces" / "list_eval_partition.txt").write_text("\n".join(lines))
    return tmp_path / "faces"


@pytest.fixture
def classes(tmp_path):
    for part, count in (("train", 4), ("val", 2)):
        for label, name in enumerate(("n01", "n02")):
            for k in range(count):
                picture(tmp_path / "net" / part / name / f"{k}.JPEG", (200 * label, 10 * k, 0), (200, 150))
    return tmp_path / "net"


def greys(x):
    return sorted(round(float(value)) for value in (np.asarray(x)[:, 0, 5, 5] + 1) * 127.5)


def test_faces_are_split_by_their_list_and_read_once(faces, cache):
    images = load("celeba", folder=faces)
    assert (images.shape, images.classes, images.name) == ((3, 64, 64), 1, "celeba")
    assert greys(images.train) == [20, 40, 60, 100, 120, 140, 160]
    assert greys(images.test) == [0, 80, 180]
    written = {path: path.stat().st_mtime_ns for path in (cache / "celeba").glob("*.npy")}
    assert len(written) == 4  # images and labels
    for folder in (faces, None):
        assert greys(load("celeba", folder=folder).test) == [0, 80, 180]
    assert {path: path.stat().st_mtime_ns for path in (cache / "celeba").glob("*.npy")} == written


def test_a_folder_is_the_same_however_it_is_named(faces, cache, monkeypatch):
    monkeypatch.chdir(faces.parent)
    for folder in ("faces", faces, "faces/../faces", None):
        assert greys(load("celeba", folder=folder).test) == [0, 80, 180]
    monkeypatch.chdir("/")
    assert greys(load("celeba").test) == [0, 80, 180]
    assert len(list((cache / "celeba").glob("*.npy"))) == 4


def test_what_is_kept_outlives_the_pictures(classes, cache):
    first = load("imagenet", folder=classes)
    shutil.rmtree(classes)
    again = load("imagenet")
    for part in ("train", "test"):
        np.testing.assert_array_equal(getattr(again, part).bytes, getattr(first, part).bytes)
        np.testing.assert_array_equal(getattr(again, f"{part}_labels"), getattr(first, f"{part}_labels"))
    assert again.train_labels.dtype == np.int64


def test_pictures_that_changed_are_read_again_if_their_folder_is_named(faces, cache):
    load("celeba", folder=faces)
    picture(faces / "img_align_celeba" / "000004.png", (90,) * 3)
    assert greys(load("celeba").test) == [0, 80, 180]
    assert greys(load("celeba", folder=faces).test) == [0, 90, 180]
    assert greys(load("celeba").test) == [0, 90, 180]  # what was read last


def test_pictures_under_the_cache_are_found_and_kept(faces, cache):
    cache.mkdir()
    faces.rename(cache / "celeba")
    assert greys(load("celeba").test) == [0, 80, 180]
    shutil.rmtree(cache / "celeba" / "img_align_celeba")
    assert greys(load("celeba").test) == [0, 80, 180]


def test_bytes_that_were_deleted_are_made_again(faces, cache):
    load("celeba", folder=faces)
    for path in (cache / "celeba").glob("*.npy"):
        path.unlink()
    assert greys(load("celeba").test) == [0, 80, 180]


@pytest.mark.parametrize("content", ["", "[1]", '{"folder": 3, "train": "a", "test": "b"}'])
def test_a_damaged_list_of_what_is_kept_is_one_line(faces, cache, content):
    load("celeba", folder=faces)
    (cache / "celeba" / "kept.json").write_text(content)
    with pytest.raises(InputError, match=r"kept.json is damaged; delete it"):
        load("celeba")
    assert greys(load("celeba", folder=faces).test) == [0, 80, 180]


def test_a_link_to_nothing_is_named(faces, cache):
    (faces / "img_align_celeba" / "000003.png").unlink()
    (faces / "img_align_celeba" / "000003.png").symlink_to("nowhere")
    with pytest.raises(InputError, match=r"000003.png cannot be read: No such file"):
        load("celeba", folder=faces)


def test_faces_without_a_list_are_every_tenth(faces, cache):
    (faces / "list_eval_partition.txt").unlink()
    images = load("celeba", folder=faces)
    assert (len(images.train), greys(images.test)) == (9, [0])


def test_folders_of_classes_have_labels_in_their_order_and_are_mixed(classes, cache):
    images = load("imagenet", folder=classes)
    assert (images.shape, images.classes) == ((3, 128, 128), 2)
    assert (len(images.train), len(images.test)) == (8, 4)
    red = (images.train[np.arange(8)][:, 0, 60, 60] + 1) * 127.5
    np.testing.assert_allclose(red, 200 * images.train_labels, atol=3)  # a JPEG is not exact
    assert images.train_labels.tolist() != sorted(images.train_labels)


def test_the_middle_of_a_picture_is_taken(tmp_path, cache):
    wide = np.zeros((50, 150, 3), dtype=np.uint8)
    wide[:, 50:100] = 255
    for k in range(2):
        path = tmp_path / "faces" / "img_align_celeba" / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(wide).save(path)
    assert greys(load("celeba", folder=tmp_path / "faces").train) == [255]
    assert np.asarray(load("celeba", folder=tmp_path / "faces").train).min() > 0.99


def test_bytes_become_numbers_where_they_are_looked_at():
    content = np.random.default_rng(0).integers(256, size=(9, 3, 4, 4), dtype=np.uint8)
    x = Pixels(content)
    np.testing.assert_allclose(x[np.array([8, 2])], content[[8, 2]] / 127.5 - 1, atol=1e-6)
    assert np.shares_memory(x[2:5].bytes, content)
    np.testing.assert_allclose(np.asarray(x[2:5]), content[2:5] / 127.5 - 1, atol=1e-6)
    changed = content.copy()
    changed[4, 0, 0, 0] ^= 1
    assert Pixels(changed).fingerprint() != x.fingerprint() == Pixels(content.copy()).fingerprint()


@pytest.mark.parametrize(
    ("wrong", "got"),
    [
        (np.zeros((2, 3, 4, 4), dtype=np.float32), r"float32 of shape \(2, 3, 4, 4\)"),
        (np.zeros((2, 3, 4, 4), dtype=np.int64), "int64 of shape"),
        (np.zeros((2, 4, 4), dtype=np.uint8), r"uint8 of shape \(2, 4, 4\)"),
        (np.zeros((0, 3, 4, 4), dtype=np.uint8), r"uint8 of shape \(0, 3, 4, 4\)"),
        ([[[[0]]]], "list of shape"),
    ],
)
def test_what_is_no_image_in_bytes_is_refused(wrong, got):
    with pytest.raises(InputError, match=f"pixels must be uint8, 0 to 255, .*, got {got}"):
        Pixels(wrong)
    with pytest.raises(InputError, match="at least one image"):
        Pixels(np.zeros((2, 3, 4, 4), dtype=np.uint8))[2:]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("celeba", r"must hold img_align_celeba/ with the aligned faces, 000001.jpg .* list_eval_partition.txt"),
        ("imagenet", r"must hold train/ and val/, and each of them a folder for each class, .*; train/ is not there"),
    ],
)
def test_the_message_says_the_layout(name, line, tmp_path, cache, capsys):
    with pytest.raises(InputError, match=line):
        load(name, folder=tmp_path)
    assert main(["data", "fetch", name]) == 2
    assert str(cache / name) in capsys.readouterr().err


def test_other_mistakes_are_one_line(classes, faces, cache):
    picture(classes / "val" / "n03" / "0.JPEG", (0, 0, 0))
    with pytest.raises(InputError, match="must have the same classes; n03 is in one of them"):
        load("imagenet", folder=classes)
    (faces / "img_align_celeba" / "000003.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"000003.png cannot be read as an image"):
        load("celeba", folder=faces)
    assert not list((cache / "celeba").iterdir())
    (faces / "list_eval_partition.txt").write_text("")
    with pytest.raises(InputError, match="got one kind only"):
        load("celeba", folder=faces)


# CIFAR-10


@pytest.fixture
def cifar(tmp_path):
    """A folder in the layout of CIFAR-10, two images in each file."""
    generator = np.random.default_rng(0)
    found = {}
    for name in (*(f"data_batch_{k}.png" for k in range(1, 6)), "test_batch.png"):
        found[name] = generator.integers(256, size=(2, 1024, 3), dtype=np.uint8)
        Image.fromarray(found[name]).save(tmp_path / name)
    for part, count in (("train", 10), ("test", 2)):
        (tmp_path / f"{part}_lables.json").write_text(json.dumps([k % 10 for k in range(count)]))
    return tmp_path, found


def test_a_row_of_pixels_is_an_image(cifar):
    folder, found = cifar
    images = load("cifar10", folder=folder)
    assert (images.train.shape, images.test.shape, images.classes) == ((10, 3, 32, 32), (2, 3, 32, 32), 10)
    expected = found["data_batch_2.png"][1].reshape(32, 32, 3)[7, 11] / 127.5 - 1
    np.testing.assert_allclose(images.train[3, :, 7, 11], expected, atol=1e-6)
    assert images.train_labels.tolist() == list(range(10))


def test_a_folder_that_is_not_cifar_is_one_line(cifar, cache):
    folder, _ = cifar
    (folder / "test_lables.json").write_text("[1]")
    with pytest.raises(InputError, match=r"n images and n labels to test, got 2 and \(1,\)"):
        load("cifar10", folder=folder)
    (folder / "data_batch_3.png").unlink()
    with pytest.raises(InputError, match=r"must hold data_batch_1.png, .*; data_batch_3.png is not there"):
        load("cifar10", folder=folder)
    with pytest.raises(InputError, match="run `obrs data fetch cifar10`"):
        load("cifar10")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "a list of labels as JSON: "),
        (b"\xff\xfe\xff", "a list of labels as JSON: "),
        (b"[0, 1", "a list of labels as JSON: "),
        (b"[[0], [1, 2]]", "a list of labels as JSON: "),
        (b"[" * 100_000, "a list of labels as JSON: "),
        (b'["cat", "dog"]', r"whole numbers from 0 on, got \['cat', 'dog'\]"),
        (b"[0.5, 1]", "whole numbers from 0 on, got"),
        (b"[0, -1]", "whole numbers from 0 on, got"),
        (b"[]", "whole numbers from 0 on, got"),
        (b'{"a": 1}', "whole numbers from 0 on, got"),
    ],
)
def test_a_broken_file_of_labels_is_one_line(cifar, content, line):
    folder, _ = cifar
    (folder / "test_lables.json").write_bytes(content)
    with pytest.raises(InputError, match=f"test_lables.json must hold {line}") as caught:
        load("cifar10", folder=folder)
    assert "\n" not in str(caught.value)


def test_pictures_need_pillow(cifar, faces, cache, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    for name, folder in (("cifar10", cifar[0]), ("celeba", faces)):
        with pytest.raises(MissingLibraryError, match="needs Pillow: pip install pillow"):
            load(name, folder=folder)


@pytest.mark.slow
def test_cifar_is_the_usual_one():
    if not is_here("cifar10"):
        pytest.skip("CIFAR-10 is not here: obrs data fetch cifar10")
    images = load("cifar10")
    assert (images.train.shape, images.test.shape) == ((50_000, 3, 32, 32), (10_000, 3, 32, 32))
    for channel, mean, deviation in zip(range(3), (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), strict=True):
        x = (images.train[:, channel].astype(np.float64) + 1) / 2
        assert x.mean() == pytest.approx(mean, abs=1e-4)
        assert x.std() == pytest.approx(deviation, abs=1e-4)
    assert np.bincount(images.train_labels).tolist() == [5000] * 10
    assert np.bincount(images.test_labels).tolist() == [1000] * 10
