"""`obrs evaluate`: from files to a table, a JSON and a picture, and one line for every mistake."""

import json

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

import obrs
from obrs.cli import main


@pytest.fixture
def files(tmp_path):
    """Features in npz files, pictures in folders, and scores of both in every format."""
    rng = np.random.default_rng(0)
    real, fake = rng.standard_normal((100, 3)), 1.4 * rng.standard_normal((300, 3))
    log_ratio = -0.5 * (fake**2).sum(1) * (1 - 1.4**-2)
    np.savez(tmp_path / "real.npz", real)
    np.savez(tmp_path / "fake.npz", features=fake)
    np.save(tmp_path / "scores.npy", log_ratio)
    table = pa.table({"log_ratio": log_ratio, "class": np.array(["a", "b"])[np.arange(300) % 2]})
    parquet.write_table(table, tmp_path / "scores.parquet")
    (tmp_path / "real.csv").write_text("x,y\n1,2\n")
    names = []
    for folder, n in (("pictures", 60), ("made", 90)):
        (tmp_path / folder).mkdir()
        for i in range(n):
            picture = rng.integers(0, 256, (8, 8), dtype=np.uint8) // (1 if folder == "pictures" else 1 + i % 3)
            Image.fromarray(picture).save(tmp_path / folder / f"{i}.png")
        names = [f"{i}.png" for i in range(n)]
    rows = [f"{names[i]},{-0.5 * (i % 3)},{'xy'[i % 2]}" for i in rng.permutation(90)]  # in another order
    (tmp_path / "made.csv").write_text("\n".join(["file,logit,kind", *rows]))
    (tmp_path / "short.csv").write_text("\n".join(["file,logit,kind", *rows[:-1]]))
    return tmp_path


def run(files, *options):
    paths = [f"--real={files / 'real.npz'}", f"--fake={files / 'fake.npz'}", "-o", str(files / "out")]
    return main(["evaluate", *paths, *(text.replace("HERE", str(files)) for text in options)])


def load_saved(folder):
    return json.loads((folder / "evaluate.json").read_text())


def test_a_table_and_two_files(files, capsys):
    options = ("--budget=1,2", "--rules=obrs,drs", "--group=class")
    assert run(files, "--scores=HERE/scores.parquet", *options) == 0
    out = capsys.readouterr().out
    assert out.startswith("300 fakes against 100 real samples, 3 features, one constant per group\n")
    assert f"wrote {files / 'out'}/evaluate.json and evaluate.png" in out
    table = load_saved(files / "out")
    assert [(row["rule"], row["budget"]) for row in table["rows"]] == [("model", 1), ("obrs", 2), ("drs", 2)]
    assert (table["grouped"], table["k"]) == (True, 5)
    assert (files / "out" / "evaluate.png").exists()


def test_scores_of_an_npy_are_in_the_order_of_the_samples(files):
    given = {"real": np.load(files / "real.npz")["arr_0"], "fake": np.load(files / "fake.npz")["features"]}
    direct = obrs.evaluate(**given, log_ratio=np.load(files / "scores.npy"), budgets=[2])
    assert run(files, "--scores=HERE/scores.npy", "--kind=log_ratio", "--budget=2") == 0
    assert load_saved(files / "out") == load_saved(direct.save(files / "direct"))


@pytest.mark.filterwarnings("ignore:the features have 144 dimensions")
def test_scores_find_their_pictures_by_name_not_by_order(files, monkeypatch):
    monkeypatch.setenv("OBRS_DATA", str(files / "cache"))
    folders = ["--real=HERE/pictures", "--fake=HERE/made", "--features=gradients", "--budget=1.5"]
    assert run(files, *folders, "--scores=HERE/made.csv", "--kind=logit", "--group=kind", "--shares=x=3,y=1") == 0
    names = sorted(f"{i}.png" for i in range(90))
    number = np.array([int(name.removesuffix(".png")) for name in names])
    given = {"real": files / "pictures", "fake": files / "made", "features": "gradients", "budgets": [1.5]}
    groups = np.array(["x", "y"])[number % 2]
    direct = obrs.evaluate(**given, log_ratio=-0.5 * (number % 3), groups=groups, shares={"x": 3, "y": 1})
    assert load_saved(files / "out") == load_saved(direct.save(files / "direct"))


def test_a_proposal_without_a_score_is_never_kept(files, capsys):
    scores = np.load(files / "scores.npy")
    scores[:3] = np.nan
    np.save(files / "scores.npy", scores)
    assert run(files, "--scores=HERE/scores.npy", "--kind=log_ratio", "--budget=2") == 2
    assert run(files, "--scores=HERE/scores.npy", "--kind=log_ratio", "--budget=2", "--skip-bad") == 0
    assert "left out 3 of 300 rows without a score" in capsys.readouterr().err
    given = {"real": np.load(files / "real.npz")["arr_0"], "fake": np.load(files / "fake.npz")["features"]}
    direct = obrs.evaluate(**given, log_ratio=np.where(np.isnan(scores), -np.inf, scores), budgets=[2])
    assert load_saved(files / "out") == load_saved(direct.save(files / "direct"))


def test_a_warning_is_a_line(files, capsys):
    assert run(files, "--scores=HERE/scores.parquet", "--budget=2", "--fitted-on=HERE/real.npz") == 0
    assert "warning: 100 of 100 real samples were also used to fit the ratio" in capsys.readouterr().err


FOLDERS = ["--real=HERE/pictures", "--fake=HERE/made", "--features=gradients", "--kind=logit"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--pixels=1"], "--pixels must be two numbers"),
        (["--features=gradientz"], "unknown features 'gradientz'; did you mean 'gradients'?"),
        (["--features=gradients"], "must have shape (n, channels, height, width)"),
        (["--real=HERE/real.csv"], "real.csv is no .npy or .npz file of numbers, nor a folder of images"),
        (["--out=HERE/real.csv"], "results go into a folder, "),
        (["--scores=HERE/real.npz", "--kind=log_ratio"], "real.npz has no column of scores; an array of scores has"),
        (["--group=class"], "are about a file: give --scores"),
        (["--fake=HERE/real.npz"], "real and fake are the same, "),
        ([*FOLDERS, "--scores=HERE/short.csv"], "has no score for 1 of 90 images"),
        ([*FOLDERS, "--scores=HERE/made.csv", "--id=name"], "has no column 'name'; it has file, logit, kind"),
        ([*FOLDERS, "--scores=HERE/scores.npy"], "scores.npy has no column 'file'"),
    ],
)
def test_a_mistake_is_a_line(files, capsys, options, says):
    assert run(files, *options) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("error: ")
    assert says in output.err
    assert output.err.count("\n") == 1
