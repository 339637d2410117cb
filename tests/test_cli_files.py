"""What the command line reads and writes: the rows of `files.select`, and nothing that is read is overwritten."""

import gzip
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import obrs
from obrs import files
from obrs.cli import main
from obrs.cli.app import parse_amount
from obrs.errors import InputError
from obrs.html.report import Source
from obrs.scores import find_sources, read_columns

LOGITS = np.random.default_rng(0).normal(size=200).round(4)
ROWS = "id,logit\n" + "".join(f"{i},{x!r}\n" for i, x in enumerate(LOGITS.tolist()))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with 200 logits in f.csv, f.csv.gz, f.parquet and many/a.csv."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    os.mkdir("many")
    for path in ("f.csv", "many/a.csv"):
        Path(path).write_text(ROWS)
    Path("f.csv.gz").write_bytes(gzip.compress(ROWS.encode()))
    parquet.write_table(pa.table({"logit": LOGITS}), "f.parquet")
    return tmp_path


def run(capsys, *arguments):
    """Return exit code, standard output and standard error of a command."""
    code = main([str(a) for a in arguments])
    return code, *capsys.readouterr()


def contents():
    return {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}


def kept_ids(path):
    return read_columns(find_sources(path), ["id"]).ids("id")


# The rows


def test_select_keeps_the_rows_of_files_select_with_their_columns_in_order(folder, capsys):
    done = run(capsys, "select", "f.csv", "-n", 150, "--seed", 4, "-o", "kept.csv")
    assert done == (0, "", "kept 150 of 200 rows (1 in 1.333): kept.csv\n")
    files.select("f.csv", 150, seed=4, out="same.csv")
    assert Path("kept.csv").read_bytes() == Path("same.csv").read_bytes()
    lines = ROWS.splitlines()
    kept = Path("kept.csv").read_text().splitlines()
    assert kept == [line for line in lines if line in set(kept)]
    by_id = run(capsys, "select", "f.csv", "--id", "id", "-n", 150, "--weights", "-o", "kept.csv")
    assert by_id[0] == 0
    assert Path("kept.csv").read_text().splitlines()[0] == "id,logit,inclusion_probability,log_weight"
    np.testing.assert_array_equal(kept_ids("kept.csv"), obrs.select(LOGITS, 150, design="priority"))


def test_one_row_in_k_of_folders_globs_many_files_and_packed_ones(folder, capsys):
    Path("many/b.csv").write_text(ROWS)
    for number, where in enumerate((["many"], ["many/*.csv"], ["many/b.csv", "many/a.csv"])):
        code, out, err = run(capsys, "select", *where, "--budget", 1.6, "-o", f"kept-{number}/")
        assert (code, out, err) == (0, "", f"kept 250 of 400 rows (1 in 1.6): kept-{number}/\n")
        assert contents()[Path(f"kept-{number}/a.csv")] == contents()[Path("kept-0/a.csv")]
    assert run(capsys, "select", "f.csv.gz", "--budget", 1.6, "-o", "kept.csv.gz")[0] == 0
    assert len(kept_ids("kept.csv.gz")) == 125
    code, out, _ = run(capsys, "plan", "many", "--budget", "2", "-n", 100)
    assert (code, out.splitlines()[0]) == (0, "many, 2 files: 400 scores, column 'logit' read as logit")


def test_a_finished_run_says_that_nothing_was_done(folder, capsys):
    for word in ("kept/", "kept/ (already there, nothing done)"):
        code, _, err = run(capsys, "select", "many", "-n", 150, "-o", "kept/")
        assert (code, err) == (0, f"kept 150 of 200 rows (1 in 1.333): {word}\n")


def test_a_share_of_the_rows_is_exact(folder, capsys):
    for share in (1, 7, 29, 57, 58, 99):
        err = run(capsys, "select", "many", "-n", f"{share}%", "-o", f"kept-{share}/")[2]
        assert err.startswith(f"kept {200 * share // 100} of 200 rows")
    assert 'obrs.select(design="pivotal") in Python' in run(capsys, "select", "f.csv", "-n", 99, "-o", "k.csv")[2]
    for share in range(1, 101):
        budget = parse_amount(f"{share}%", None)[1]
        assert [int(n / budget) for n in range(0, 10**5, 97)] == [n * share // 100 for n in range(0, 10**5, 97)]


# An output that is an input


@pytest.mark.parametrize(
    ("source", "out"),
    [
        *[("f.csv", out) for out in ("f.csv", "../{here}/f.csv", "{folder}/f.csv", "soft.csv", "hard.csv")],
        ("soft.csv", "hard.csv"),
        ("f.csv.gz", "f.csv.gz"),
    ],
)
def test_select_does_not_overwrite_its_input(folder, capsys, source, out):
    os.symlink("f.csv", "soft.csv")
    os.link("f.csv", "hard.csv")
    before, out = contents(), out.format(here=folder.name, folder=folder)
    code, _, err = run(capsys, "select", source, "--kind", "logit", "-n", 10, "-o", out)
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


def test_a_page_or_a_picture_does_not_overwrite_scores(folder, capsys):
    """By their extensions they hardly could, but a link makes it possible."""
    os.symlink("f.csv", "page.html")
    os.link("f.csv", "hard.png")
    os.link("f.csv", "many/a.png")
    before = contents()
    for arguments in (
        ["report", "f.csv", "--kind", "logit", "-o", "page.html"],
        ["report", "f.parquet", "--kind", "logit", "--real", "f.csv", "-o", "page.html"],
        ["plan", "f.csv", "--kind", "logit", "--plot", "hard.png"],
        ["plan", "many/", "--plot", "many/new.png"],
        ["plan", "*.csv", "--plot", "many/a.png"],
        ["doctor", "f.parquet", "f.csv", "--kind", "logit", "--budget", 2, "--plot", "hard.png"],
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


# A first line that is a row

HEADLESS = "a.png,0.5,x\nb.png,-1.25,y\nc.png,0.75,x\nd.png,2.5,y\n"


@pytest.mark.parametrize("text", [HEADLESS, "0.5\n0.25\n", "id, 7 \n1,2\n", "x,nan\ny,1\n"])
def test_a_number_among_the_names_is_refused(folder, capsys, text):
    Path("h.csv").write_text(text)
    before = contents()
    for arguments in (
        ["plan", "h.csv"],
        ["select", "h.csv", "-n", 1, "-o", "k.csv"],
        ["report", "h.csv", "-o", "page.html"],
        ["doctor", "h.csv", "f.csv", "--budget", 2],
    ):
        code, out, err = run(capsys, *arguments, "--kind", "logit")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "h.csv, line 1 must name the columns, and " in err
        assert "--no-header" in err
    assert contents() == before


def test_without_a_header_columns_are_numbers_and_no_row_is_lost(folder, capsys):
    Path("h.csv").write_text(HEADLESS)
    Path("real.csv").write_text("x\nx\ny\n")
    options = ["--no-header", "--column", 1, "--kind", "logit"]
    code, out, _ = run(capsys, "plan", "h.csv", *options, "--budget", 2)
    assert (code, out.splitlines()[0]) == (0, "h.csv: 4 scores, column '1' read as logit")
    assert run(capsys, "select", "h.csv", *options, "--id", 0, "-n", 4, "-o", "kept.csv")[0] == 0
    assert Path("kept.csv").read_text() == HEADLESS, "no header comes in"
    shares = ["--group", 2, "--shares", "real.csv", "-n", 3]
    assert run(capsys, "select", "h.csv", *options, *shares, "-o", "k.csv")[0] == 0
    assert Path("k.csv").read_text().count(",x\n") == 2
    assert run(capsys, "report", "h.csv", *options, "--show", 2, "-o", "page.html")[0] == 0
    assert "--no-header" in (page := Path("page.html").read_text())
    assert "header=False" in page


def test_no_header_is_about_those_of_two_files_that_are_csv(folder, capsys):
    rng = np.random.default_rng(0)
    Path("fake.csv").write_text("".join(f"{x}\n" for x in (rng.normal(size=300) - 0.5).tolist()))
    np.save("real.npy", rng.normal(size=300) + 0.5)
    options = ["--no-header", "--kind", "logit"]
    assert run(capsys, "doctor", "real.npy", "fake.csv", *options, "--budget", 2, "--json")[0] == 0
    assert run(capsys, "report", "fake.csv", "--real", "real.npy", *options, "-o", "page.html")[0] == 0


# Pictures in a page that is passed on


@pytest.fixture
def pictures(folder):
    """A folder `given` with ok.png and a file for scores, beside secret.png."""
    from PIL import Image

    os.mkdir("given")
    for name in ("given/ok.png", "secret.png"):
        Image.new("RGB", (4, 4), "red").save(name)
    os.symlink("../secret.png", "given/link.png")
    os.symlink("ok.png", "given/inner.png")
    return folder


@pytest.mark.parametrize("picture", ["../secret.png", "{folder}/secret.png", "link.png", "x/../../secret.png"])
def test_a_page_shows_no_picture_outside_the_folder_of_its_file(pictures, capsys, picture):
    rows = [f"0.5,{picture.format(folder=pictures)}\n", "-0.5,ok.png\n"]
    Path("given/scores.csv").write_text("log_ratio,image\n" + "".join(rows))
    code, out, err = run(capsys, "report", "given/scores.csv", "--show", "image", "-o", "page.html")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "is not below 'given'" in err
    assert "--images-from" in err
    assert not Path("page.html").exists()
    source = Source(obrs.Profile([0.5, -0.5]), samples=[picture.format(folder=pictures), "ok.png"], folder="given")
    with pytest.raises(InputError, match="give the folder of the images"):
        obrs.report(source, out="page.html")


def test_pictures_below_the_folder_or_the_one_that_is_named_are_shown(pictures, capsys):
    Path("given/scores.csv").write_text(f"log_ratio,image\n0.5,{pictures}/given/ok.png\n0.1,inner.png\n-0.5,ok.png\n")
    assert run(capsys, "report", "given/scores.csv", "--show", "image", "-o", "page.html")[0] == 0
    assert Path("page.html").read_text().count("data:image/png") == 3
    Path("given/scores.csv").write_text("log_ratio,image\n0.5,secret.png\n-0.5,given/link.png\n")
    elsewhere = ["--images-from", pictures]
    assert run(capsys, "report", "given/scores.csv", "--show", "image", *elsewhere, "-o", "page.html")[0] == 0
    assert Path("page.html").read_text().count("data:image/png") == 2


# The wrong kind of score


@pytest.mark.parametrize(("values", "why"), [(1 / (1 + np.exp(-LOGITS)), "all scores lie in [0, 1]"), (LOGITS, "")])
def test_the_wrong_kind_of_score_is_one_line_of_warning(folder, capsys, values, why):
    Path("many/a.csv").write_text("logit\n" + "".join(f"{x}\n" for x in values))
    for arguments in (
        ["plan", "many/a.csv"],
        ["plan", "many"],
        ["select", "many/a.csv", "-n", 5, "-o", "k.csv"],
        ["report", "many/a.csv", "-o", "page.html"],
    ):
        code, _, err = run(capsys, *arguments)
        lines = [line for line in err.splitlines() if line.startswith("warning")]
        assert (code, len(lines)) == (0, bool(why))
        assert not why or ("a.csv, column 'logit' read as logit: " in lines[0] and why in lines[0])
    assert why in Path("page.html").read_text()
