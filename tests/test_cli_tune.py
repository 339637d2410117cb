"""`obrs tune` keeps samples of folders and arrays, says what it confirmed, and writes scores and a page."""

import csv
import json

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("torch")
from obrs.cli import main


def read_scores(folder):
    with open(folder / "scores.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_arrays_get_scores_a_page_and_a_record(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.save("real.npy", rng.normal(0.5, 1.0, (3000, 12)))
    np.save("fake.npy", rng.normal(0.0, 1.0, (3000, 12)))
    assert main(["tune", "--real", "real.npy", "--fake", "fake.npy", "--budget", "2", "-o", "tuned/"]) == 0
    assert capsys.readouterr().out.startswith("confirmed by distance of the samples at K = 2: ")
    rows = read_scores(tmp_path / "tuned")
    kept = [int(row["id"]) for row in rows if row["kept"] == "1"]
    assert (len(rows), len(kept)) == (3000, 1500)
    assert np.load("fake.npy")[kept].mean() > 0.1
    assert json.loads((tmp_path / "tuned" / "tuned.json").read_text())["confirmed"]
    page = (tmp_path / "tuned" / "tuned.html").read_text()
    assert "Kept, 48 of 1,500" in page
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.slow
def test_folders_of_pictures_with_labels_are_kept_by_name(tmp_path, monkeypatch, capsys):
    """Half of the fakes of each class are noise."""
    monkeypatch.chdir(tmp_path)
    rng, labels = np.random.default_rng(0), ["file,label"]
    for kind, n in (("real", 2000), ("fake", 2000)):
        (tmp_path / kind).mkdir()
        for i in range(n):
            y = i % 2
            image = rng.integers(0, 60, (8, 8), dtype=np.uint8)
            image[:, :4] += np.uint8(180 * y)
            if kind == "fake" and i % 4 > 1:
                image = rng.integers(0, 256, (8, 8), dtype=np.uint8)
            Image.fromarray(image).save(tmp_path / kind / f"{i:04}.png")
            labels.append(f"{kind}/{i:04}.png,{'light' if y else 'dark'}")
    (tmp_path / "labels.csv").write_text("\n".join(labels) + "\n")
    options = "--real real/ --fake fake/ --labels labels.csv --budget 2 -o tuned/"
    assert main(["tune", *options.split()]) == 0
    assert "confirmed by a second classifier" in capsys.readouterr().out
    kept = [int(row["file"][:4]) for row in read_scores(tmp_path / "tuned") if row["kept"] == "1"]
    assert np.mean(np.array(kept) % 4 < 2) > 0.95


def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("real", "fake"):
        (tmp_path / name).mkdir()
        Image.new("L", (8, 8)).save(f"{name}/a.png")
        np.save(f"{name}.npy", np.zeros((10, 2)))
    (tmp_path / "labels.csv").write_text("name,label\na.png,1\n")
    (tmp_path / "other.csv").write_text("file,label\nb.png,1\n")
    for arguments, message in (
        ("--real real.npy --fake fake.npy", "give 1167 or more"),
        ("--real real.npy --fake real.npy", "real and fake are the same, real.npy"),
        ("--real labels.csv --fake fake.npy", "is no .npy or .npz file of numbers, nor a folder of images\n"),
        ("--real real/ --fake fake/ --labels labels.csv", "labels.csv has no column 'file'"),
        ("--real real/ --fake fake/ --labels other.csv", "has no label for 1 of 1 images"),
        ("--real real.npy --fake fake/ --labels other.csv", "--labels is for folders"),
        ("--real real.npy --fake fake.npy --pixels 1", "--pixels must be two numbers"),
    ):
        assert main(["tune", *arguments.split(), "--budget", "2", "-o", "out/"]) == 2
        err = capsys.readouterr().err
        assert message in err
        assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()
