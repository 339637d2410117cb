"""Folders of images with scores: numbers of files as proposals, scores by name, and one line for what does not fit."""

import json

import numpy as np
import pytest
from PIL import Image

import obrs
from obrs.adapters import from_folder
from obrs.errors import InputError, RatioError

NAMES = ["a.png", "b.JPG", "sub/0.png", "sub/1.png"]


@pytest.fixture
def path(tmp_path):
    """Four images, of which the third is the darkest, and a file that is no image."""
    home = tmp_path / "images"
    (home / "sub").mkdir(parents=True)
    for name, grey in zip(NAMES, (100, 200, 50, 255), strict=True):
        Image.new("L", (6, 5), grey).save(home / name)
    (home / "notes.txt").write_text("not an image")
    return home


def scores_of(names=NAMES):
    return {name: float(i) for i, name in enumerate(names)}


def test_numbers_of_files_are_proposals_and_scores_follow_names(path):
    folder = from_folder(path, dict(reversed(scores_of().items())))
    assert len(folder) == 4
    assert [file.relative_to(path).as_posix() for file in folder.files] == NAMES
    np.testing.assert_array_equal(folder.scores, [0, 1, 2, 3])
    batch = folder.propose(np.array([2, 0]))
    np.testing.assert_array_equal(batch, [2, 0])
    np.testing.assert_array_equal(folder.log_ratio(batch), [2, 0])
    x = folder.read(batch)
    assert x.shape == (2, 1, 5, 6)
    assert x.dtype == np.float32
    np.testing.assert_allclose(x[:, 0, 0, 0], [50 / 127.5 - 1, 100 / 127.5 - 1], atol=1e-6)
    np.testing.assert_array_equal(folder.read([0, 1, 2])[2], x[0])  # in any batch
    assert folder.read([]).shape == (0, 1, 5, 6)


def test_samplers_keep_files(path):
    folder = from_folder(path, {**scores_of(), "b.JPG": -np.inf})
    pool = obrs.sample(folder.propose, folder.log_ratio, 3, pool=len(folder))
    assert [folder.files[i].name for i in pool.x] == ["a.png", "0.png", "1.png"]
    some = obrs.sample(folder.propose, folder.log_ratio, 2, budget=2, max_proposed=len(folder))
    assert 1 not in some.x
    np.testing.assert_array_equal(some.x, some.ids)
    np.testing.assert_array_equal(pool.x, obrs.select(folder.scores, 3))


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_scores_come_from_a_file(path, tmp_path, suffix):
    rows = [{"file": name, "logit": score, "size": 5} for name, score in scores_of().items()][::-1]
    table = tmp_path / f"scores.{suffix}"
    if suffix == "csv":
        table.write_text("file,logit,size\n" + "".join(f"{r['file']},{r['logit']},{r['size']}\n" for r in rows))
    elif suffix == "jsonl":
        table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), table)
    np.testing.assert_array_equal(from_folder(path, table).scores, [0, 1, 2, 3])


def test_scores_become_log_ratios(path, tmp_path):
    table = tmp_path / "scores.csv"
    table.write_text("name,aesthetic\n" + "".join(f"{name},{score}\n" for name, score in scores_of().items()))
    folder = from_folder(path, table, file="name", column="aesthetic", kind="reward", beta=0.5)
    np.testing.assert_array_equal(folder.scores, [0, 2, 4, 6])
    half = from_folder(path, dict.fromkeys(NAMES, 0.5), kind="probability")
    np.testing.assert_array_equal(half.scores, np.zeros(4))


def test_scores_that_do_not_fit_are_one_line(path):
    cases = [
        ({"a.png": 0.0}, InputError, "has no score for 3 of 4 images of .*images, the first is b.JPG"),
        ({**scores_of(), "c.png": 0.0}, InputError, "a score for c.png, which is not an image"),
        ({**scores_of(), "b.JPG": np.nan}, RatioError, "1 NaN among 4"),
        ({**scores_of(), "a.png": np.inf}, RatioError, r"1 \+inf among 4"),
    ]
    for scores, kind, message in cases:
        with pytest.raises(kind, match=message) as caught:
            from_folder(path, scores)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,a,b\na.png,1,2\n", r"which column has the scores\? one of file, a, b; give column"),
        ("file,quality\na.png,1\n", "what are the numbers in column 'quality'[?]"),
        ("image,logit\na.png,1\n", "has no column 'file'"),
        ("file,logit\na.png,1\na.png,2\n", "has more than one score for a.png"),
    ],
)
def test_files_that_do_not_fit_are_one_line(path, tmp_path, text, message):
    (tmp_path / "scores.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        from_folder(path, tmp_path / "scores.csv")


def test_images_that_do_not_fit_are_one_line(path, tmp_path):
    folder = from_folder(path, scores_of())
    with pytest.raises(InputError, match=r"has 4 images, got id 4; say pool=4"):
        folder.propose(np.arange(6))
    (path / "sub" / "1.png").unlink()
    with pytest.raises(InputError, match="had 4 images and now has 3; call from_folder again"):
        folder.read([0])
    Image.new("L", (8, 8)).save(path / "sub" / "1.png")
    with pytest.raises(InputError, match=r"must be of one size: a.png is 6x5 and 1.png 8x8; resize them first"):
        from_folder(path, scores_of()).read([0])
    with pytest.raises(InputError, match="nowhere is not a folder; expected one with images"):
        from_folder(tmp_path / "nowhere", {})
