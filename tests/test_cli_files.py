"""What the command line reads and writes: nothing that is read is overwritten, and no row is lost in silence."""

import gzip
import os
from pathlib import Path
from time import process_time

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import obrs
from obrs import scores
from obrs.cli import main
from obrs.errors import InputError
from obrs.html.report import make_page, of_log_ratio

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


@pytest.mark.parametrize("out", ["in", "in/", "./in/", "link", "in/kept", "link/kept/", "in/../in/kept"])
def test_select_of_a_folder_does_not_write_into_it(folder, capsys, out):
    os.mkdir("in")
    os.symlink("in", "link")
    Path("in/a.csv").write_text(ROWS)
    before = contents()
    assert run(capsys, "select", "in", "--logit", "--id", "id", "-n", 10, "-o", out)[0] == 2
    with pytest.raises(InputError):
        obrs.files.select("in", 10, column="logit", id="id", out=out, progress=False)
    assert contents() == before
    for _ in range(2):  # the second time there is nothing left to do
        assert run(capsys, "select", "in", "--logit", "--id", "id", "-n", 10, "-o", "kept/")[0] == 0
    assert sorted(os.listdir("in")) == ["a.csv"]


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
        ["plan", "many/", "--column", "logit", *csv, "--plot", "many/new.png"],
        ["plan", "many/*.png", "--column", "logit", *csv, "--plot", "many/a.png"],
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


@pytest.mark.parametrize("name", ["f.csv", "f.csv.gz", "f.parquet"])
def test_a_table_is_not_written_over_the_file_it_was_read_from(folder, name):
    table = scores.read_table(name)
    before = contents()
    with pytest.raises(InputError, match="would overwrite the input"):
        scores.write_table(folder / name, scores.take(table, np.arange(5)))
    assert contents() == before


# A first line that is a row

HEADLESS = "a.png,0.5,x\nb.png,-1.25,y\nc.png,0.75,x\nd.png,2.5,y\n"
LOGITS = [0.5, -1.25, 0.75, 2.5]


@pytest.mark.parametrize("text", [HEADLESS, "0.5\n0.25\n", "0,1\n1,0\n", "id, 7 \n1,2\n", "x,nan\ny,1\n"])
@pytest.mark.parametrize("command", ["plan", "plan many", "select", "select many", "report", "doctor"])
def test_a_number_among_the_names_is_refused(folder, capsys, command, text):
    Path("h.csv").write_text(text)
    os.mkdir("many")
    Path("many/h.csv").write_text(text)
    before = contents()
    arguments = {
        "plan": ["plan", "h.csv"],
        "plan many": ["plan", "many/"],
        "select": ["select", "h.csv", "-n", 1, "-o", "k.csv"],
        "select many": ["select", "many/", "-n", 1, "-o", "k/"],
        "report": ["report", "h.csv", "-o", "page.html"],
        "doctor": ["doctor", "h.csv", "f.csv", "--budget", 2],
    }[command]
    code, out, err = run(capsys, *arguments, "--logit")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "h.csv, line 1 must name the columns, and " in err
    assert "--no-header" in err
    assert contents() == before


def test_without_a_header_the_columns_are_numbers_and_no_row_is_lost(folder):
    Path("h.csv").write_text(HEADLESS)
    table = scores.read_table("h.csv", header=False)
    assert list(table.columns) == ["0", "1", "2"]
    np.testing.assert_array_equal(scores.column(table, "1"), LOGITS)
    assert table.where(1) == "line 2"
    only = scores.read_table("h.csv", header=False, only=lambda first: ["2"] if first["1"][0].as_py() == "0.5" else [])
    assert only["2"].to_pylist() == ["x", "y", "x", "y"]
    Path("ragged.tsv").write_text("1\t2\n\n3\n")
    with pytest.raises(InputError, match="line 3: expected 2 columns, got 1"):
        scores.read_table("ragged.tsv", header=False)


def test_names_that_are_numbers_can_be_meant(folder):
    Path("wide.csv").write_text("logit,0,1\n0.5,0.25,0.75\n")
    assert scores.column(scores.read_table("wide.csv", header=True), "1").tolist() == [0.75]


def test_plan_reads_a_file_or_a_folder_without_a_header(folder, capsys):
    Path("h.csv").write_text(HEADLESS)
    Path("g.csv").write_text(HEADLESS)
    code, out, _ = run(capsys, "plan", "h.csv", "--no-header", "--column", 1, "--logit", "--budgets", 2)
    assert (code, out.splitlines()[0]) == (0, "h.csv: 4 scores, column '1' read as logit")
    code, out, _ = run(capsys, "plan", "h.csv", "g.csv", "--no-header", "--column", 1, "--logit", "--budgets", 2)
    assert (code, out.splitlines()[0]) == (0, "h.csv and 1 more, 2 files: 8 scores, column '1' read as logit")


def test_select_keeps_rows_of_a_file_without_a_header(folder, capsys):
    Path("h.csv").write_text(HEADLESS)
    options = ["--no-header", "--column", 1, "--logit"]
    assert run(capsys, "select", "h.csv", *options, "-n", 4, "-o", "kept.csv")[0] == 0
    kept = Path("kept.csv").read_text().splitlines()
    assert [line.rsplit(",", 2)[0] for line in kept] == HEADLESS.splitlines(), "no header comes in"
    assert run(capsys, "select", "kept.csv", *options, "-n", 2, "-o", "again.jsonl")[0] == 0
    assert list(scores.read_table("again.jsonl").columns)[:5] == ["0", "1", "2", "3", "4"]


def test_select_keeps_rows_of_a_folder_without_headers(folder, capsys):
    os.mkdir("many")
    Path("many/a.csv").write_text(HEADLESS)
    Path("many/b.csv").write_text(HEADLESS.replace("png", "jpg"))
    options = ["--no-header", "--column", 1, "--logit", "--id", 0, "--group", 2]
    assert run(capsys, "select", "many/", *options, "-n", 4, "-o", "kept/")[0] == 0
    rows = "".join(path.read_text() for path in Path("kept").glob("*.csv")).splitlines()
    assert sorted(rows) == sorted((HEADLESS + HEADLESS.replace("png", "jpg")).splitlines())
    done = obrs.files.select("many", 3, header=False, column="1", kind="logit", out="three", progress=False)
    assert (done.rows, done.kept) == (8, 3)
    assert len(obrs.files.plan("many", [2], header=False, column="1", kind="logit", progress=False)) == 1


def test_report_reads_a_file_without_a_header_and_says_so_in_its_commands(folder, capsys):
    Path("h.csv").write_text("".join(f"{x},t{i}\n" for i, x in enumerate(np.linspace(-2, 2, 50).tolist())))
    options = ["--no-header", "--column", 0, "--log-ratio", "--show", 1]
    code, out, _ = run(capsys, "report", "h.csv", *options, "-o", "page.html")
    assert (code, "50 scores" in out) == (0, True)
    page = Path("page.html").read_text()
    assert "--no-header" in page
    assert "header=False" in page


def test_shares_are_counted_in_a_file_without_a_header(folder, capsys):
    Path("h.csv").write_text(HEADLESS)
    Path("real.csv").write_text("x\nx\ny\n")
    options = ["--no-header", "--column", 1, "--logit", "--group", 2, "--shares", "real.csv"]
    assert run(capsys, "select", "h.csv", *options, "-n", 3, "-o", "kept.csv")[0] == 0
    assert [line.split(",")[2] for line in Path("kept.csv").read_text().splitlines()].count("x") == 2


def test_doctor_reads_files_without_a_header(folder, capsys):
    rng = np.random.default_rng(0)
    for name, shift in (("real.csv", 0.5), ("fake.csv", -0.5)):
        Path(name).write_text("".join(f"{x},7\n" for x in (rng.normal(size=300) + shift).tolist()))
    options = ["--no-header", "--column", 0, "--logit", "--budget", 2, "--json"]
    assert run(capsys, "doctor", "real.csv", "fake.csv", *options)[0] == 0


@pytest.mark.parametrize("option", [["--no-header"], ["--header"], ["--delimiter", ";"]])
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_header_or_a_delimiter_of_what_has_none_is_refused(folder, capsys, kind, option):
    Path("f.jsonl").write_text("".join(f'{{"logit": {i}}}\n' for i in range(50)))
    before, name = contents(), f"f.{kind}"
    commands = [["plan", name], ["select", name, "-n", 1, "-o", "k.csv"], ["select", name, "-n", 1, "-o", "k/"]]
    if "--delimiter" not in option:
        commands += [["report", name, "-o", "page.html"], ["doctor", name, name, "--budget", 2]]
    for arguments in commands:
        code, out, err = run(capsys, *arguments, "--logit", *option)
        assert (code, out, err.count("\n")) == (2, "", 1), arguments
        assert f"a {option[0][2:].removeprefix('no-')} is for csv and tsv, and {kind} has none" in err
    assert contents() == before


def test_no_header_is_about_those_of_two_files_that_are_csv(folder, capsys):
    rng = np.random.default_rng(0)
    Path("fake.csv").write_text("".join(f"{x}\n" for x in (rng.normal(size=300) - 0.5).tolist()))
    np.save("real.npy", rng.normal(size=300) + 0.5)
    options = ["--no-header", "--logit"]
    assert run(capsys, "doctor", "real.npy", "fake.csv", *options, "--budget", 2, "--json")[0] == 0
    assert run(capsys, "report", "fake.csv", "--real", "real.npy", *options, "-o", "page.html")[0] == 0


# What cannot be read, in one line

DEEP = "[" * 100_000


@pytest.mark.parametrize("command", ["plan", "select", "report", "folder"])
@pytest.mark.parametrize("text", ['{"logit": 1, "x": ' + DEEP, DEEP], ids=["value", "row"])
@pytest.mark.parametrize("before", [0, 30])
def test_a_jsonl_that_is_nested_too_deeply_is_one_line(folder, capsys, command, text, before):
    Path("deep.jsonl").write_text("".join(f'{{"logit": {i}}}\n\n' for i in range(before)) + text + "\n")
    arguments = {
        "plan": ["plan", "deep.jsonl"],
        "select": ["select", "deep.jsonl", "-n", 1, "-o", "k.csv"],
        "report": ["report", "deep.jsonl", "-o", "page.html"],
        "folder": ["select", "deep.jsonl", "-n", 1, "-o", "k/"],
    }[command]
    code, out, err = run(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "is not JSON: it is nested too deeply" in err
    assert ("line 61 " if before else "line ") in err


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('id,"logit\n' + "1,2\n" * 50_000, 1),
        ('id,logit\n1,"2\n' + "1,2\n" * 50_000, 2),
        ('logit,note\n1,a\n2,"b\n3,c\n', 3),
        ('id,logit\na,1\nthe end,"2\n', 3),
    ],
    ids=["header", "first row", "later row", "last row"],
)
def test_a_quote_that_is_never_closed_is_one_line_and_loses_no_row(folder, capsys, text, line):
    Path("open.csv").write_text(text)
    for arguments in (["plan", "open.csv"], ["report", "open.csv", "-o", "page.html"]):
        code, out, err = run(capsys, *arguments, "--column", "logit")
        assert (code, out, err) == (2, "", f"error: open.csv, line {line}: a quote is never closed\n")
    code, out, err = run(capsys, "select", "open.csv", "--column", "logit", "-n", 1, "-o", "k/")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"open.csv has an odd number of quotes from line {line} on: is there a quote inside a cell, or an " in err


def test_a_quote_inside_a_cell_of_a_folder_is_named_as_such(folder, capsys):
    Path("stray.csv").write_text("logit,size\n" + "1,b\n" * 30 + '2,5" disk\n' + '3,"c"\n' * 30)
    code, out, err = run(capsys, "select", "stray.csv", "--logit", "-n", 1, "-o", "k/")
    assert (code, out) == (2, "")
    why = "has an odd number of quotes from line 32 on: is there a quote inside a cell, or an open one?"
    assert err == f"error: stray.csv {why}\n"


def test_a_quote_inside_a_cell_and_a_long_cell_are_read(folder):
    Path("stray.csv").write_text('logit,pipe\n1,5" wide\n2,' + "x" * 200_000 + "\n")
    table = scores.read_table("stray.csv", only=lambda first: list(first.columns))
    assert (len(table), table["pipe"][0].as_py()) == (2, '5" wide')
    Path("long.csv").write_text('logit,text\n1,"' + "x" * 200_000 + '"\n')
    assert len(scores.read_table("long.csv", only=lambda first: ["logit"])) == 1


def test_names_that_come_twice_are_found_in_linear_time(folder):
    names = [f"c{i}" for i in range(32_000)]
    Path("wide.csv").write_text(",".join([*names, "c31999"]) + "\n" + ",".join(["1"] * 32_001) + "\n")
    start = process_time()
    with pytest.raises(InputError, match="two columns named 'c31999'"):
        scores.read_table("wide.csv")
    assert process_time() - start < 1, "quadratic time takes ten times as long"


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
    arguments = ["report", "given/scores.csv", "--show", "image", "-o", "page.html"]
    code, out, err = run(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "is not below 'given'" in err
    assert err.endswith("give the folder of the images with --images-from\n")
    assert not Path("page.html").exists()
    with pytest.raises(InputError, match=r"give the folder of the images$"):
        make_page(of_log_ratio(np.asarray([0.5, -0.5]), [picture.format(folder=pictures), "ok.png"]), folder="given")


def test_pictures_below_the_folder_or_the_one_that_is_named_are_shown(pictures, capsys):
    Path("given/scores.csv").write_text(f"log_ratio,image\n0.5,{pictures}/given/ok.png\n0.1,inner.png\n-0.5,ok.png\n")
    assert run(capsys, "report", "given/scores.csv", "--show", "image", "-o", "page.html")[0] == 0
    assert Path("page.html").read_text().count("data:image/png") == 3
    Path("given/scores.csv").write_text("log_ratio,image\n0.5,secret.png\n-0.5,given/link.png\n")
    elsewhere = ["--images-from", pictures]
    assert run(capsys, "report", "given/scores.csv", "--show", "image", *elsewhere, "-o", "page.html")[0] == 0
    assert Path("page.html").read_text().count("data:image/png") == 2
    page = obrs.report(np.asarray([0.5, -0.5]), samples=["secret.png", "given/ok.png"], out="own.html")
    assert page.read_text().count("data:image/png") == 2, "who calls it from Python names the paths"


# The wrong kind of score

_RNG = np.random.default_rng(1)
WRONG = {
    "probabilities": (_RNG.uniform(0.02, 0.98, 200), "all scores lie in [0, 1]: if they are probabilities"),
    "ratios": (np.exp(_RNG.normal(size=200) - 0.5), "no score is below 0: if they are ratios"),
    "ratios with a long tail": (np.exp(2 * _RNG.normal(size=200)), "if they are ratios, take their logarithm first"),
    "percentages": (_RNG.uniform(1, 99, 200), "if they are percentages"),
    "log-densities": (_RNG.normal(size=200) * 10 - 300, "if they are log-densities"),
}
RIGHT = {
    "logits": _RNG.normal(size=200),
    "logits above 0": _RNG.uniform(0.5, 6, 200),
    "log-ratios below 0": -_RNG.uniform(0.5, 15, 200),
    "log-ratios of sequences": _RNG.normal(size=200) * 30 - 20,
    "a few in [0, 1]": _RNG.uniform(size=10),
}


def commands(path):
    """The commands that read scores, with what they need, for one file."""
    return {
        "plan": ["plan", path],
        "select": ["select", path, "-n", 5, "-o", "k.csv"],
        "report": ["report", path, "-o", "page.html"],
        "select folder": ["select", path, "-n", 5, "-o", "k/"],
        "plan folder": ["plan", "many/"],
    }


@pytest.fixture(params=commands(""))
def command(request, folder):
    """A command, and a function that writes the scores that it reads."""
    os.mkdir("many")

    def write(values, name="logit"):
        for path in ("w.csv", "many/w.csv"):
            Path(path).write_text(f"{name}\n" + "".join(f"{x}\n" for x in values))

    return commands("w.csv")[request.param], write


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("wrong", WRONG)
def test_the_wrong_kind_of_score_is_one_line_of_warning(command, capsys, wrong):
    arguments, write = command
    values, why = WRONG[wrong]
    write(values)
    code, _, err = run(capsys, *arguments)
    assert code == 0
    said = [line for line in err.splitlines() if line.startswith("warning")]
    assert len(said) == 1
    assert "w.csv, column 'logit' read as logit: " in said[0]
    assert why in said[0]
    if arguments[0] == "report":
        assert why in Path("page.html").read_text()


def test_the_right_kind_of_score_brings_no_warning(command, capsys):
    arguments, write = command
    if arguments[-1] == "k/":
        pytest.skip("a folder is written once")
    for values in RIGHT.values():
        write(values)
        code, _, err = run(capsys, *arguments)
        assert (code, "warning" in err) == (0, False), err


@pytest.mark.parametrize("name", ["logit", "probability", "reward"])
def test_scores_that_are_all_the_same_are_refused(command, capsys, name):
    arguments, write = command
    write([0.5] * 40, name)
    before = contents()
    code, out, err = run(capsys, *arguments, *(["--beta", 1] if name == "reward" else []))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"w.csv, column {name!r}: all scores are 0.5: there is nothing to choose by" in err
    assert contents() == before


def test_equal_scores_beside_forbidden_rows_and_in_python_are_chosen_from(folder, capsys):
    Path("w.csv").write_text("logit\n" + "0.5\n" * 10 + "-inf\n")
    assert run(capsys, "select", "w.csv", "-n", 5, "-o", "k.csv")[0] == 0
    assert len(obrs.select(np.full(10, 0.5), 5)) == 5


def test_the_doctor_shares_the_check(folder, capsys):
    rng = np.random.default_rng(0)
    for name, mean in (("real.csv", 0.5), ("fake.csv", -0.5)):
        ratios = np.exp(rng.normal(size=400) * 0.5 + mean)
        Path(name).write_text("logit\n" + "".join(f"{x}\n" for x in ratios / 1.2))
    code, out, _ = run(capsys, "doctor", "real.csv", "fake.csv", "--budget", 2)
    assert (code, "if they are ratios" in " ".join(out.split())) == (0, True)
