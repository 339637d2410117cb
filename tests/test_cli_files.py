"""What the command line reads and writes: nothing that is read is overwritten, and no row is lost in silence."""

import gzip
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import obrs
from obrs import scores
from obrs.cli import main
from obrs.errors import InputError

ROWS = "id,logit\n" + "".join(f"{i},{x!r}\n" for i, x in enumerate(np.random.default_rng(0).normal(size=200).tolist()))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with 200 logits in f.csv, f.csv.gz and f.parquet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    Path("f.csv").write_text(ROWS)
    Path("f.csv.gz").write_bytes(gzip.compress(ROWS.encode()))
    parquet.write_table(pa.table({"logit": np.random.default_rng(0).normal(size=200)}), "f.parquet")
    return tmp_path


def run(capsys, *arguments):
    """Return exit code, standard output and standard error of a command."""
    code = main([str(a) for a in arguments])
    return code, *capsys.readouterr()


def contents():
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


# An output that is an input


@pytest.mark.parametrize(
    ("source", "out"),
    [
        *[("f.csv", out) for out in ("f.csv", "./f.csv", "../{here}/f.csv", "{folder}/f.csv", "soft.csv", "hard.csv")],
        ("soft.csv", "f.csv"),
        ("soft.csv", "hard.csv"),
        ("f.csv.gz", "f.csv.gz"),
        ("f.parquet", "./f.parquet"),
    ],
)
def test_select_does_not_overwrite_its_input(folder, capsys, source, out):
    os.symlink("f.csv", "soft.csv")
    os.link("f.csv", "hard.csv")
    before, out = contents(), out.format(here=folder.name, folder=folder)
    code, _, err = run(capsys, "select", source, "--logit", "-n", 10, "-o", out)
    assert (code, err) == (2, f"error: {out} would overwrite the input {source}; choose another output\n")
    assert contents() == before


def test_select_does_not_overwrite_the_file_of_its_shares(folder, capsys):
    Path("animals.csv").write_text("logit,class\n0.5,cat\n0.1,dog\n0.3,cat\n")
    Path("real.csv").write_text("class\ncat\ndog\n")
    before = contents()
    shares = ["--group", "class", "--shares", "real.csv"]
    code, _, err = run(capsys, "select", "animals.csv", "-n", 2, *shares, "-o", "real.csv")
    assert (code, "would overwrite the input real.csv" in err) == (2, True)
    assert contents() == before


@pytest.mark.skipif(not os.path.exists("/dev/stdin"), reason="standard input has no name here")
def test_select_does_not_overwrite_the_file_that_is_its_standard_input(folder, capsys):
    before, saved = contents(), os.dup(0)
    with open("f.csv", "rb") as file:
        os.dup2(file.fileno(), 0)
    try:
        code, _, err = run(capsys, "select", "-", "--logit", "-n", 10, "-o", "f.csv")
    finally:
        os.dup2(saved, 0)
        os.close(saved)
    assert (code, err) == (2, "error: f.csv would overwrite the input -; choose another output\n")
    assert contents() == before


@pytest.mark.parametrize("out", ["in", "in/", "./in/", "link"])
def test_select_of_a_folder_does_not_write_into_it(folder, capsys, out):
    os.mkdir("in")
    os.symlink("in", "link")
    Path("in/a.csv").write_text(ROWS)
    before = contents()
    assert run(capsys, "select", "in", "--logit", "--id", "id", "-n", 10, "-o", out)[0] == 2
    with pytest.raises(InputError):
        obrs.files.select("in", 10, column="logit", id="id", out=out, progress=False)
    assert contents() == before


def test_a_page_or_a_picture_does_not_overwrite_scores(folder, capsys):
    """By their extensions they hardly could, but a link or --format makes it possible."""
    os.symlink("f.csv", "page.html")
    os.link("f.csv", "hard.png")
    Path("scores.png").write_text(ROWS)
    os.mkdir("many")
    Path("many/a.png").write_text(ROWS)
    before = contents()
    csv = ["--format", "csv"]
    for arguments in (
        ["report", "f.csv", "--logit", "-o", "page.html"],
        ["report", "f.parquet", "--logit", "--real", "f.csv", "-o", "page.html"],
        ["plan", "f.csv", "--logit", "--plot", "hard.png"],
        ["plan", "scores.png", "--column", "logit", *csv, "--plot", "scores.png"],
        ["plan", "many/", "--column", "logit", *csv, "--plot", "many/a.png"],
        ["doctor", "f.parquet", "f.csv", "--logit", "--budget", 2, "--plot", "hard.png"],
    ):
        code, out, err = run(capsys, *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), arguments
        assert "would overwrite the input" in err
    assert contents() == before


@pytest.mark.parametrize("out", ["real", "real/deeper", "link"])
def test_evaluate_does_not_write_among_the_pictures_it_reads(folder, capsys, out):
    os.mkdir("real")
    os.symlink("real", "link")
    Path("real/evaluate.png").write_bytes(b"a picture of theirs")
    code, _, err = run(capsys, "evaluate", "--real", "real", "--fake", "f.npy", "-o", out)
    assert (code, "would overwrite the input real or lie in it" in err) == (2, True)
    assert Path("real/evaluate.png").read_bytes() == b"a picture of theirs"


def test_train_does_not_overwrite_its_configuration(folder, capsys):
    os.mkdir("run")
    text = '{"steps": 2, "batch_size": 8, "data_size": 50, "generator_loss": "exact"}'
    Path("run/config.json").write_text(text)
    code, _, err = run(capsys, "train", "run/config.json", "--out", "run")
    assert (code, "would overwrite the input run/config.json" in err) == (2, True)
    assert Path("run/config.json").read_text() == text


@pytest.mark.parametrize("name", ["f.csv", "f.csv.gz", "f.parquet"])
def test_a_table_is_not_written_over_the_file_it_was_read_from(folder, name):
    table = scores.read_table(name)
    before = contents()
    with pytest.raises(InputError, match="would overwrite the input"):
        scores.write_table(folder / name, scores.take(table, np.arange(5)))
    assert contents() == before
