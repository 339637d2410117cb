"""The command line: help, errors, exit codes, and what the options of every command mean."""

import json
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet
from typer.main import get_command

from obrs import Profile, __version__
from obrs._text import name_in_errors
from obrs.cli import app, main
from obrs.errors import InputError
from obrs.files import read

N = 400
OBRS = [sys.executable, "-m", "obrs"]
COMMANDS = {"": get_command(app), **get_command(app).commands}
EXAMPLES = [line.strip() for command in COMMANDS.values() for line in (command.epilog or "").split("\n")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with scores.csv: ids, log-ratios of which 10 are -inf, classes and prompts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    rng = np.random.default_rng(0)
    log_ratio = rng.normal(size=N)
    log_ratio[:10] = -np.inf
    rows = zip(range(N), log_ratio.tolist(), rng.choice(["cat", "dog"], N), np.arange(N) % 20, strict=True)
    text = "".join(f"{i:04d},{x!r},{label},{prompt}\n" for i, x, label, prompt in rows)
    (tmp_path / "scores.csv").write_text("id,log_ratio,class,prompt\n" + text)
    return tmp_path


def run(capsys, *arguments):
    """Return exit code, standard output and standard error of a command."""
    code = main([str(a) for a in arguments])
    return code, *capsys.readouterr()


# Help and examples


def test_help_is_a_table_of_contents(capsys):
    code, out, _ = run(capsys, "--help")
    assert (code, *list(COMMANDS)[1:]) == (0, "doctor", "plan", "report", "tune", "select", "evaluate")
    for name, command in get_command(app).commands.items():
        first = command.help.splitlines()[0]
        assert re.search(rf"^  {name} +{re.escape(first)}$", out, re.M), f"the line of {name} is cut"
    assert run(capsys)[1] == out


@pytest.mark.parametrize(("name", "most"), [("select", 12), ("plan", 9), ("report", 10)])
def test_few_options_come_first_and_the_rest_is_advanced(capsys, name, most):
    out = run(capsys, name, "--help")[1]
    first, _, rest = out.partition("\nOptions:\n")[2].partition("\nAdvanced:\n")
    assert len(re.findall(r"^  -", first, re.M)) <= most
    for option in ("--skip-bad", "--delimiter", "--header / --no-header"):
        assert option in rest
    assert not re.search("[<>]", first + rest), "no types"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_an_example_of_the_command(name, capsys):
    shown = run(capsys, *name.split(), "--help")[1].partition("\nExamples:\n")[2].splitlines()
    assert shown
    assert all(line.startswith(f"  obrs {name}".rstrip()) for line in shown)
    assert max(map(len, shown)) <= 100


def test_help_loads_no_heavy_library():
    """It takes a quarter of a second: the time itself depends on the machine."""
    lines = "; ".join(f"main(['{name}', '--help'])" for name in COMMANDS if name)
    heavy = ("numpy", "pyarrow", "rich", "torch", "scipy", "matplotlib")
    code = f"import sys; from obrs.cli import main; {lines}; main(['--version']); "
    code += f"sys.exit(str([m for m in {heavy} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"
    assert done.stdout.endswith(f"obrs {__version__}\n")


def test_plan_and_select_load_neither_pandas_nor_scipy(folder):
    commands = "main(['plan', 'scores.csv']); main(['select', 'scores.csv', '-n', '5', '--weights', '-o', 'k.csv'])"
    code = f"import sys; from obrs.cli import main; {commands}; sys.exit(str({{'pandas', 'scipy'}} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "set()"


@pytest.fixture(scope="module")
def example_files(tmp_path_factory):
    """The files that examples name."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)

    def write(name, **columns):
        (folder / name).parent.mkdir(exist_ok=True)
        cells = zip(*(column.tolist() for column in columns.values()), strict=True)
        rows = [dict(zip(columns, row, strict=True)) for row in cells]
        lines = [json.dumps(row) for row in rows]
        if name.endswith("csv"):
            lines = [",".join(columns), *(",".join(map(str, row.values())) for row in rows)]
        (folder / name).write_text("\n".join(lines) + "\n")

    fake, texts = rng.normal(size=1000), np.asarray([f"completion {i}" for i in range(1000)])
    logit = 0.5 * fake - 0.125
    classes = np.where(fake > 0, "cat", "dog")
    write("scores.csv", id=np.arange(1000), logit=logit, other=logit[::-1], text=texts, **{"class": classes})
    for part in range(2):
        write(f"scores/{part}.csv", id=np.arange(part, 1000, 2), logit=logit[part::2])
    write("real.csv", logit=0.5 * (rng.normal(size=1000) + 0.5) - 0.125)
    write("fake.csv", logit=logit)
    write("completions.jsonl", prompt_id=np.arange(1000) // 10, reward=fake, text=texts)
    write("events.csv", w=np.where(rng.random(1000) < 0.1, -1.0, 1.0) * rng.exponential(size=1000))
    np.save(folder / "real.npy", rng.normal(size=(1000, 3)) + 0.5)
    np.save(folder / "fake.npy", rng.normal(size=(1000, 3)))
    np.save(folder / "log_ratio.npy", logit)
    for kind in ("real", "fake"):
        (folder / kind).mkdir()
        for i in range(60):
            Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(folder / kind / f"{i:02}.png")
    write("images.csv", file=np.array([f"{i:02}.png" for i in range(60)]), logit=0.002 * np.arange(60))
    return folder


@pytest.mark.parametrize("line", sorted(line for line in {*EXAMPLES} if line and not line.startswith("obrs tune")))
def test_every_example_works(line, example_files, monkeypatch, capsys):
    monkeypatch.chdir(example_files)
    assert main(shlex.split(line)[1:]) == 0, capsys.readouterr().err


# Plans


def log_ratios():
    return read("scores.csv")


def test_plan_prints_a_table_that_fits(folder, capsys, monkeypatch):
    row = Profile(log_ratios()).plan([2])[0]
    low, high = (f"{row[end]:.3f}".removeprefix("0") for end in ("kl_low", "kl_high"))
    for width in (80, 120, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        code, out, err = run(capsys, "plan", "scores.csv", "--budget", "1.5,2,4", "--budget", "1000", "-n", 100)
        assert (code, err) == (0, "")
        assert out.startswith("scores.csv: 400 scores, column 'log_ratio' read as log_ratio\nM = ")
        assert max(map(len, out.splitlines())) <= width
        assert f" {low}–" in out
        assert high in out
        table = [line.split() for line in out.splitlines()[5:] if line[:7].strip()]
        assert [row[0] for row in table[:4]] == ["1.5", "2", "4", "1000"]
        assert [row[-1] for row in table[:3]] == ["150", "200", "400"]
        assert "above M exact rejection costs less" in out
        assert "K = 1.5 removes at most 0.41 of an estimated 0.53 nats" in " ".join(out.split())
    monkeypatch.setattr("obrs.files.PLANNED", 200)
    assert " ".join(run(capsys, "plan", "scores.csv")[1].split()).count("of a sample of 200 rows") == 2
    assert run(capsys, "plan", "scores.csv", "--json")[2] == "of a sample of 200 rows\n"


def test_plan_previews_what_select_would_keep(folder, capsys):
    for n, budget in (("80", 5), ("20%", 5), ("30", 400 / 30)):
        rows = json.loads(run(capsys, "plan", "scores.csv", "-n", n, "--json")[1])
        assert [row["budget"] for row in rows] == pytest.approx(sorted([1.5, 2, 4, 8, budget]))
        assert f"-n {n} is K = {budget:.6g}" in run(capsys, "plan", "scores.csv", "-n", n)[1]
    rows = json.loads(run(capsys, "plan", "scores.csv", "-n", "10", "--budget", "2", "--json")[1])
    assert [(row["budget"], row["proposals"]) for row in rows] == [(2, 20)]
    (folder / "tokens.csv").write_text("log_ratio,tokens\n0,1\n1,3\n2,0\n")
    (folder / "rows.csv").write_text("log_ratio\n0\n1\n1\n1\n")
    cost = json.loads(run(capsys, "plan", "tokens.csv", "--cost", "tokens", "--budget", "1.2", "--json")[1])[0]
    rows = json.loads(run(capsys, "plan", "rows.csv", "--budget", "1.2", "--json")[1])[0]
    assert (cost["rate"], cost["kl"]) == pytest.approx((rows["rate"], rows["kl"])), "a row of 3 tokens is 3 rows"


def test_plan_by_groups(folder, capsys):
    classes = np.array([line.split(",")[2] for line in (folder / "scores.csv").read_text().split()[1:]])
    log_ratio = log_ratios()
    code, out, _ = run(capsys, "plan", "scores.csv", "--group", "class", "--budget", "2,100")
    rows = Profile(log_ratio).plan([2, 100], groups=classes)
    assert code == 0
    assert re.search(rf"^ +2 +0.500 +{rows[0]['kl']:.3f} ", out, re.M)
    for group in rows[0]["groups"]:
        assert re.search(rf"^{group.label} +{group.max_budget:.4g} +2 +100\*$", out, re.M)
    for options, shares in ((["--shares", "cat=2,dog=1"], {"cat": 2, "dog": 1}), (["-n", "5"], {"cat": 1, "dog": 1})):
        out = run(capsys, "plan", "scores.csv", "--group", "class", *options, "--budget", "4", "--json")[1]
        expected = Profile(log_ratio).plan([4], groups=classes, shares=shares)
        assert json.loads(out)[0]["kl"] == expected[0]["kl"]
    assert json.loads(out)[0]["proposals"] == pytest.approx(40), "5 of each of 2 groups"
    (folder / "many.csv").write_text("log_ratio,g\n" + "".join(f"{i % 7 / 7},{i % 30}\n" for i in range(300)))
    out = run(capsys, "plan", "many.csv", "--group", "g", "--shares", "equal")[1]
    assert "10 more groups are in --json" in out
    assert re.findall(r"^(\d+) ", out, re.M)[:3] == ["0", "1", "2"], "labels that are numbers are in their order"


def test_plan_finds_the_budget_for_a_goal(folder, capsys):
    code, out, _ = run(capsys, "plan", "scores.csv", "--for", "kl=0.05", "--for", "truncation=0.01")
    assert code == 0
    profile = Profile(log_ratios())
    for text, goal in (("kl=0.05", {"kl": 0.05}), ("truncation=0.01", {"truncation": 0.01})):
        assert f"K = {profile.budget_for(**goal):.6g} is the smallest budget for {text}" in out.splitlines()
    code, out, _ = run(capsys, "plan", "scores.csv", "--for", "kl=0.05", "--budget", "2,8", "--json")
    assert [row["budget"] for row in json.loads(out)] == sorted([2, profile.budget_for(kl=0.05), 8])


def test_plan_says_what_signs_cost_marks_what_is_doubtful_and_shows_the_mean_ratio(folder, capsys):
    weight = np.random.default_rng(1).normal(0.5, 1, size=60)
    (folder / "events.csv").write_text("w\n" + "".join(f"{x!r}\n" for x in weight.tolist()))
    events = ["plan", "events.csv", "--kind", "weight", "--column", "w", "--budget", "2"]
    net = weight.sum() / np.abs(weight).sum()
    out = run(capsys, *events)[1]
    assert f"net {net:.3f}: the sum of w over that of |w|, so ESS is at most {net**2:.3f}" in out
    assert "E[r]" not in out
    assert json.loads(run(capsys, *events, "--json")[1])[0]["ess"] < net**2
    r = np.exp(log_ratios())
    out = run(capsys, "plan", "scores.csv", "--plot", "profile.png")[1]
    assert f"E[r] = {r.mean():.3f} ± {r.std() / np.sqrt(N):.1g}: the mean ratio" in out
    assert (folder / "profile.png").read_bytes().startswith(b"\x89PNG")
    np.save("log_ratio.npy", np.random.default_rng(0).normal(size=200) * 4)
    assert "~ not to be relied on from 200 scores" in run(capsys, "plan", "log_ratio.npy")[1]
    np.save("log_ratio.npy", np.asarray([1000.0, 1001.0, 1002.0]))
    assert "E[r] = e^1001" in run(capsys, "plan", "log_ratio.npy", "--budget", "1.2")[1]


# Which column, and what it means


@pytest.mark.parametrize(
    ("header", "arguments", "words"),
    [
        ("a,log_ratio", [], "column 'log_ratio' read as log_ratio"),
        ("a,reward", ["--beta", "1"], "column 'reward' read as reward"),
        ("a,score", ["--kind", "logit"], "column 'score' read as logit"),
        ("reward,logit", ["--kind", "logit"], "column 'logit' read as logit"),
        ("reward,logit", ["--column", "reward", "--kind", "log-ratio"], "column 'reward' read as log_ratio"),
        ("a,reward", ["--kl", "0.1", "-n", "1"], r"column 'reward' read as reward, beta [\d.]+, KL 0.1"),
    ],
)
def test_the_column_and_its_kind_are_found_where_there_is_one_choice(folder, capsys, header, arguments, words):
    (folder / "a.csv").write_text(f"{header}\n1,2\n2,1\n3,2.5\n")
    code, out, err = run(capsys, "plan", "a.csv", "--budget", "1.1", *arguments)
    assert (code, err) == (0, "")
    assert re.search(words, out.splitlines()[0])


def test_probabilities_are_read_as_logits_would_be_and_a_tab_as_a_shell_keeps_it(folder, capsys):
    (folder / "a.csv").write_text("id\tscore\n1\t0.5\n2\t0.8\n3\t0.2\n")
    (folder / "b.csv").write_text(f"logit\n0\n{float(np.log(4))!r}\n{-float(np.log(4))!r}\n")
    first = run(capsys, "plan", "a.csv", "--kind", "probability", "--delimiter", r"\t", "--budget", "1.1")
    assert first[1].splitlines()[1:] == run(capsys, "plan", "b.csv", "--budget", "1.1")[1].splitlines()[1:]


# One line for every mistake

FILES = {
    "header.csv": "log_ratio,id\n",
    "text.csv": "log_ratio\n1\n2\noops\n",
    "gaps.csv": "id,log_ratio\n1,2\n2,\n3,nan\n4,NA\n",
    "semicolon.csv": "id;logit\n1;0.5\n",
    "comma.csv": "id;logit\n1;0,5\n",
    "two.csv": "a,b\n1,2\n",
    "some.csv": "some\n1\n",
    "signs.csv": "w\n2\n-2\n1\n",
    "minus.csv": "w\n2\n-inf\n",
    "sure.csv": "probability\n0.5\n1.0\n",
    "same.csv": "logit\n0.5\n0.5\n0.5\n",
    "zero.csv": "log_ratio\n-inf\n-inf\n",
    "list.json": '[{"log_ratio": 1}]',
    "weight.csv": "log_ratio,log_weight\n1,2\n2,3\n",
    "groups.csv": "log_ratio,g\n1,a\n2,a\n1,\n",
}
SELECT = ["select", "scores.csv", "-o", "k.csv"]
GROUP = ["--group", "class"]
MISTAKES = [
    (["plan", "nothing.csv"], "^error: nothing.csv is missing or not a file$"),
    (["evaluate", "--real", "no.npy", "--fake", "no.npy", "-o", "x"], "no.npy"),
    (["plan", "header.csv"], "header.csv, column 'log_ratio': no row has a score"),
    (["plan", "text.csv"], "text.csv, row 3, column 'log_ratio': 'oops' is not a number"),
    (["plan", "gaps.csv"], "gaps.csv, row 2, column 'log_ratio': .* 3 of 4 cells here; .* --skip-bad"),
    (["plan", "semicolon.csv", "--column", "logit"], "no column 'logit'; it has id;logit"),
    (["plan", "comma.csv", "--delimiter", ";", "--column", "logit"], "row 1, column 'logit': '0,5' is not a"),
    *[
        ([*command, "same.csv"], "same.csv, column 'logit': all scores are 0.5: there is nothing to choose by")
        for command in (["plan"], ["select", "-n", "1", "-o", "k/"], ["report", "-o", "p.html"])
    ],
    (["plan", "list.json"], "list.json"),
    (["plan", "wide.csv"], "wide.csv"),
    (["select", "scores.csv", "some.csv", "-n", "1", "-o", "out.csv"], "several files go to a folder, as in -o kept/"),
    (["plan", "list.parquet", "--column", "x", "--kind", "logit"], "column 'x': numbers are expected, got list"),
    (["plan", "scores.csv", "--column", "log_ration"], "no column 'log_ration'; it has id, log_ratio"),
    (["plan", "two.csv"], "two.csv: which column has the scores.* --column"),
    (["plan", "some.csv"], "what are the numbers in column 'some'[?] one of .*, weight; give --kind$"),
    (["plan", "some.csv", "--kind", "logits"], "logits"),
    (["plan", "some.csv", "--kind", "reward"], "say how far to tilt a reward.* give --kl or --beta$"),
    (["plan", "some.csv", "--kind", "reward", "--beta", "0"], "beta must be a finite number above 0, got 0.0"),
    (["plan", "some.csv", "--kind", "logit", "--beta", "1"], "no other kind has: leave out --beta"),
    (["plan", "scores.csv", "--kl", "1"], "a budget of KL is for a number -n of rows"),
    (["plan", "scores.csv", "--column", "log_ratio", "--kind", "probability"], "p must be between 0 and 1"),
    (["plan", "sure.csv"], "1 of 2 probabilities are 1: the sigmoid has saturated"),
    (["plan", "scores.csv", "--budget", "2,x"], "--budget must be numbers with commas between them, got 'x'"),
    (["plan", "scores.csv", "--budget", "0.25"], r"did you mean budget=4 \(keep 25 %\)"),
    (["plan", "scores.csv", "--budget", "1.01"], "^error: scores.csv: budget 1.01 cannot be met: only 97"),
    (["plan", "scores.csv", "--for", "kl=x"], "--for must be as kl=0.5, got 'kl=x'"),
    (["plan", "scores.csv", "--for", "trunc=0.1"], "unknown goal 'trunc'; did you mean 'truncation'[?]"),
    (["plan", "signs.csv", "--kind", "weight", "--for", "ess=0.5"], "ess=0.5 is not reached at any budget"),
    (["plan", "scores.csv", *GROUP, "--for", "kl=0.1"], "by groups .* leave out .* --for"),
    (["plan", "scores.csv", "--plot", "profile.xyz"], "--plot profile.xyz"),
    (["select", "minus.csv", "--kind", "weight", "-n", "1", "-o", "k.csv"], "minus.csv, column 'w': .*inf"),
    (["plan", "zero.csv"], "zero.csv, column 'log_ratio': no row has r > 0"),
    (["plan"], "Missing argument 'FILE'."),
    (["plan", "scores.csv", "--bogus"], "No such option: --bogus"),
    (SELECT, "say how much to keep: either -n rows, or 1 in --budget"),
    ([*SELECT, "-n", "5", "--budget", "2"], "either -n rows, or 1 in --budget"),
    ([*SELECT, "--budget", "2,5"], "Invalid value for '--budget'"),
    ([*SELECT, "-n", "395"], "cannot keep 395: 390 of 400 have r > 0; .*--at-most"),
    ([*SELECT, "--budget", "500"], "nothing would be kept of 400; lower the budget"),
    (["select", "groups.csv", "-o", "k.csv", "-n", "1", "--group", "g"], "groups.csv, row 3, column 'g': no label"),
    ([*SELECT, "-n", "2", "--shares", "equal"], "shares need the column of classes: give --group$"),
    ([*SELECT, "-n", "a=2"], "-n by label needs to know the label of each row: give --group$"),
    ([*SELECT, "-n", "cat=1.5,dog=1", *GROUP], "whole numbers of rows, got cat=1.5"),
    ([*SELECT, "-n", "2", *GROUP, "--shares", "cat=1"], "'dog' is missing; give it 0 to keep none of it"),
    ([*SELECT, "-n", "2", *GROUP, "--shares", "cat=1,dog=1,eel=1"], "'eel', which has no proposals"),
    (["plan", "scores.csv", *GROUP, "--shares", "cat=many"], "--shares must be .* got 'cat=many'"),
    (["plan", "scores.csv", *GROUP, "--shares", "no.csv"], "no.csv is missing or not a file"),
    (["select", "weight.csv", "-o", "k.csv", "-n", "1", "--weights"], "column 'log_weight'"),
    ([*SELECT, "-n", "1", "--seed", "-1"], "seed must be a whole number"),
    *(([*SELECT, "-n", text], "-n must be rows such as 250") for text in ("0", "inf", "nan", "1e400", "inf%")),
    ([*SELECT, "--group", "class", "-n", "a=inf"], "-n must be whole numbers of rows, got a=inf"),
    (["plan", "scores.csv", "--kl", "1", "-n", "10%"], "a number -n of rows, such as -n 4"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=lambda v: " ".join(v) if type(v) is list else "")
def test_a_mistake_is_one_line_and_exit_code_2(folder, capsys, arguments, message):
    for name, content in FILES.items():
        (folder / name).write_text(content)
    (folder / "wide.csv").write_bytes("log_ratio\n1\n".encode("utf-16"))
    parquet.write_table(pa.table({"log_ratio": np.zeros(1000), "x": [[1]] * 1000}), "list.parquet")
    before = sorted(os.listdir())
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err.removesuffix("\n"))
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert sorted(os.listdir()) == before, "nothing was written"


def test_an_error_names_arguments_in_python_and_options_on_the_command_line(folder, capsys, monkeypatch):
    gives = {"at_most": True, "header": False, "delimiter": ";", "beta": None, "n": 3}

    def fail(*_, **__):
        with name_in_errors("f.csv"):
            raise InputError("give", give=gives)

    with pytest.raises(
        InputError, match=r"^f\.csv: give at_most=True or header=False or delimiter=';' or beta or n=3$"
    ):
        fail()

    monkeypatch.setattr("obrs.cli.reading.find_sources", fail)
    options = "--at-most or --no-header or --delimiter ';' or --beta or -n 3"
    assert run(capsys, "plan", "scores.csv")[2] == f"error: f.csv: give {options}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["select", "scores.csv", "-n", "1", "-o", "scores.csv/k.csv"],
        ["select", "scores.csv", "-n", "1", "-o", "no/kept/"],
        ["plan", "scores.csv", "--plot", "no/a.png"],
        ["report", "scores.csv", "-o", "no/such/page.html"],
        ["doctor", "scores.csv", "scores.csv", "--budget", "2", "--plot", "no/a.png"],
        ["evaluate", "--real", "scores.csv", "--fake", "scores.csv", "-o", "scores.csv/x"],
    ],
    ids=" ".join,
)
def test_where_to_write_is_checked_before_rows_are_read(folder, capsys, monkeypatch, arguments):
    monkeypatch.setattr("obrs.scores.Source.batches", pytest.fail)
    code, _, err = run(capsys, *arguments)
    assert (code, err.count("\n")) == (1, 1)
    assert os.listdir() == ["scores.csv"]


def test_too_little_memory_is_one_line_and_exit_code_1(folder, capsys, monkeypatch):
    def full(*_, **__):
        raise MemoryError("Unable to allocate 1 TiB")

    monkeypatch.setattr("obrs.scores.Source.batches", full)
    assert run(capsys, "plan", "scores.csv") == (1, "", "error: not enough memory (Unable to allocate 1 TiB)\n")


@pytest.mark.skipif(os.name != "posix", reason="limits the size of a file through the shell")
def test_a_full_disk_is_one_line_and_leaves_the_old_file(folder):
    (folder / "kept.csv").write_text("old")
    command = f"ulimit -f 1; exec {shlex.quote(sys.executable)} -m obrs select scores.csv -n 300 -o kept.csv"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: kept.csv: file too large\n")
    assert (folder / "kept.csv").read_text() == "old"
    assert sorted(os.listdir()) == ["kept.csv", "scores.csv"]


def test_debug_shows_where_an_error_comes_from_and_keeps_the_exit_code(folder, capsys):
    for arguments in (["--debug", "plan", "no.csv"], ["plan", "no.csv", "--debug"]):
        code, _, err = run(capsys, *arguments)
        assert (code, err.split()[0]) == (2, "Traceback")
        assert err.endswith("\nobrs.errors.InputError: no.csv is missing or not a file\n")


@pytest.mark.parametrize("out", ["kept.csv", "kept/"])
def test_an_interrupt_while_writing_leaves_the_old_file_and_says_how_to_go_on(folder, capsys, monkeypatch, out):
    def interrupt(handle):
        raise KeyboardInterrupt

    (folder / "kept.csv").write_text("old")
    monkeypatch.setattr(os, "fsync", interrupt)
    code, _, err = run(capsys, "select", "scores.csv", "-n", 5, "-o", out)
    words = "stopped; the same command goes on with the files that are not done"
    assert (code, err.strip()) == (130, "" if out == "kept.csv" else words)
    assert (folder / "kept.csv").read_text() == "old"
    assert sorted(os.listdir()) == ["kept.csv", "scores.csv"]


@pytest.mark.parametrize("arguments", [["plan", "scores.csv"], ["select", "scores.csv", "-n", "390", "-o", "-"]])
def test_a_reader_that_has_seen_enough_is_no_error(folder, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*OBRS, *arguments], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert done.returncode == 0
    assert done.stderr in (b"", b"kept 390 of 400 rows (1 in 1.026): standard output\n")


def test_warnings_and_notes_are_one_line_each(folder, capsys):
    (folder / "one.csv").write_text("log_ratio\n1\n")
    code, out, err = run(capsys, "plan", "one.csv")
    assert (code, "M = 1" in out) == (0, True)
    assert err == "warning: one score says nothing about a budget; a plan needs the scores of a sample\n"
    (folder / "gaps.csv").write_text("id,log_ratio\n1,2\n2,\n3,nan\n4,oops\n5,1\n6,inf\n")
    for command in (["plan"], ["select", "-n", "1", "-o", "kept.csv"], ["report", "-o", "page.html"]):
        code, _, err = run(capsys, command[0], "gaps.csv", *command[1:], "--skip-bad")
        assert (code, err.splitlines()[0]) == (0, "left out 4 of 6 rows without a score")
