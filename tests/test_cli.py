"""The command line: what it prints, what it writes, and one line for every mistake."""

import csv
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from obrs import Profile, __version__
from obrs.cli import app, main
from obrs.files import read
from obrs.profile import Plan

N = 400
OBRS = [sys.executable, "-m", "obrs"]
FEW = 'note: so few are chosen more evenly by obrs.select(design="pivotal") in Python\n'


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


def column(name, path="scores.csv"):
    """Return a column of a csv as text."""
    with open(path) as file:
        return np.array([row[name] for row in csv.DictReader(file)])


def log_ratios():
    return column("log_ratio").astype(float)


# What it does


def test_help_is_a_table_of_contents(folder, capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for command in (c for c in app.registered_commands if not c.hidden):
        name = command.callback.__name__
        first = command.callback.__doc__.splitlines()[0]
        assert re.search(rf"^  {name} +{re.escape(first)}$", out, re.M), f"the line of {name} is cut"
    assert "--debug" in out
    assert run(capsys)[1] == out


def test_help_and_version_load_no_heavy_library(folder):
    code = (
        "import sys; from obrs.cli import main; main(['--help']); main(['plan', '--help']); main(['--version']);"
        "sys.exit(str([m for m in ('pyarrow', 'rich', 'torch', 'jax', 'scipy') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"
    assert done.stdout.endswith(f"obrs {__version__}\n")


def test_plan_and_select_load_neither_pandas_nor_scipy(folder):
    commands = "main(['plan', 'scores.csv']); main(['select', 'scores.csv', '-n', '5', '--weights', '-o', 'k.csv'])"
    code = f"import sys; from obrs.cli import main; {commands}; sys.exit(str({{'pandas', 'scipy'}} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "set()"


@pytest.mark.parametrize("shares", ["equal", "cat=2,dog=2", "real.csv", "labels.npy"])
def test_shares_divide_the_rows_that_are_kept(folder, capsys, shares):
    (folder / "real.csv").write_text("id,class\n1,dog\n2,cat\n")
    np.save("labels.npy", np.array(["cat", "dog"] * 3))
    options = ["--group", "class", "--shares", shares, "-o", "kept.csv"]
    assert run(capsys, "select", "scores.csv", "-n", 101, *options) == (
        0,
        "",
        "kept 101 of 400 rows (1 in 3.96): kept.csv\n",
    )
    classes, counts = np.unique(column("class", "kept.csv"), return_counts=True)
    assert dict(zip(classes.tolist(), counts.tolist(), strict=True)) == {"cat": 51, "dog": 50}


def test_a_plan_by_groups_shows_the_budget_of_each(folder, capsys):
    code, out, _ = run(capsys, "plan", "scores.csv", "--group", "class", "--budgets", "2,100", "-n", 10)
    assert code == 0
    log_ratio, classes = log_ratios(), column("class")
    rows = Profile(log_ratio).plan([2, 100], n=10, groups=classes)
    assert re.search(rf"^ +2 +0.500 +{rows[0]['kl']:.3f} .* 20$", out, re.M)
    for group in rows[0]["groups"]:
        assert re.search(rf"^{group.label} +{group.max_budget:.4g} +2 +100\*$", out, re.M)
    assert "* exact: a smaller budget would keep the same distribution within the group" in out
    code, out, _ = run(capsys, "plan", "scores.csv", "--group", "class", "--shares", "cat=2,dog=1", "--json")
    expected = Profile(log_ratio).plan([1.5, 2, 4, 8], groups=classes, shares={"cat": 2, "dog": 1})
    assert [row["kl"] for row in json.loads(out)] == [row["kl"] for row in expected]
    (folder / "many.csv").write_text("log_ratio,g\n" + "".join(f"{i % 7 / 7},{i % 30}\n" for i in range(300)))
    out = run(capsys, "plan", "many.csv", "--group", "g", "--shares", "equal")[1]
    assert "10 more groups are in --json" in out
    assert re.findall(r"^(\d+) ", out, re.M)[:3] == ["0", "1", "2"], "labels that are numbers are in their order"


@pytest.mark.parametrize("command", [["plan"], ["select", "-n", "1", "-o", "kept.csv"]])
def test_rows_without_a_score_are_left_out_and_counted(folder, capsys, command):
    (folder / "gaps.csv").write_text("id,log_ratio\n1,2\n2,\n3,nan\n4,oops\n5,1\n6,inf\n")
    code, _, err = run(capsys, command[0], "gaps.csv", *command[1:], "--skip-bad")
    assert code == 0
    assert err.splitlines()[0] == "left out 4 of 6 rows without a score"


def test_plan_draws_the_profile(folder, capsys):
    assert run(capsys, "plan", "scores.csv", "--plot", "profile.png")[0] == 0
    assert (folder / "profile.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = run(capsys, "plan", "scores.csv", "--plot", "profile.xyz")
    assert (code, err.count("\n")) == (2, 1)


def test_scores_go_through_standard_input_and_output(folder, capfdbinary, monkeypatch):
    text = '{"reward": 1, "x": [1]}\n{"reward": 2, "x": [2]}\n{"reward": 90, "x": []}\n'
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    code, out, err = run(capfdbinary, "select", "-", "--beta", 2, "-n", 1, "-o", "-")
    assert (code, out) == (0, b'{"reward": 90, "x": []}\n')
    assert err == b"kept 1 of 3 rows (1 in 3): standard output\n" + FEW.encode()


def test_plan_prints_a_table_that_fits(folder, capsys, monkeypatch):
    row = Profile(log_ratios()).plan([2])[0]
    low, high = (f"{row[end]:.3f}".removeprefix("0") for end in ("kl_low", "kl_high"))
    for width in (80, 120, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        code, out, err = run(capsys, "plan", "scores.csv", "--budgets", "1.5,2,4,1000", "-n", 100)
        assert (code, err) == (0, "")
        assert out.startswith("scores.csv: 400 scores, column 'log_ratio' read as log_ratio\nM = ")
        assert "E[r] = " in out
        assert max(map(len, out.splitlines())) <= width
        assert f" {low}–" in out
        assert high in out
        table = [line.split() for line in out.splitlines()[5:] if line[:7].strip()]
        assert [row[0] for row in table[:4]] == ["1.5", "2", "4", "1000"]
        assert [row[-1] for row in table[:3]] == ["150", "200", "400"]
        assert "above M exact rejection costs less" in out
        assert "K = 1.5 removes at most 0.41 of an estimated 0.53 nats" in " ".join(out.split())
        assert "cells" not in out, "400 rows are not counted in cells"


def test_a_plan_says_where_rows_were_counted_in_cells(folder, capsys, monkeypatch):
    monkeypatch.setattr("obrs._keys._SAMPLED", 200)
    out = " ".join(run(capsys, "plan", "scores.csv")[1].split())
    assert (
        "counted in cells of 1/256 nat, which changes KL by less than 1e-5; the intervals are those of a sample" in out
    )


def test_plan_marks_what_it_cannot_trust(folder, capsys):
    np.save("log_ratio.npy", np.random.default_rng(0).normal(size=200) * 4)
    out = run(capsys, "plan", "log_ratio.npy")[1]
    assert "~0." in out
    assert "~ not to be relied on from 200 scores" in out
    np.save("log_ratio.npy", np.random.default_rng(0).normal(size=20_000) / 100)
    assert "~" not in run(capsys, "plan", "log_ratio.npy", "--budgets", "1.001")[1]


def test_plan_prints_json(folder, capsys):
    code, out, _ = run(capsys, "plan", "scores.csv", "--budgets", "2,4", "-n", 10, "--recall", 0.5, "--json")
    rows = json.loads(out, parse_constant=pytest.fail)
    assert code == 0
    assert [row["budget"] for row in rows] == [2, 4]
    assert [row["proposals"] for row in rows] == [20, 40]
    assert {"rate", "kl", "kl_low", "kl_high", "precision", "unreliable"} <= rows[0].keys()


def test_infinities_are_null_in_json_and_have_no_interval_in_the_table(folder, capsys, monkeypatch):
    def plan(self, budgets, **options):
        return Plan([{"budget": 2.0, "unreliable": "kl", "proposals": None} | dict.fromkeys(keys, np.inf)])

    names = ("rate", "kl", "rkl", "tv", "js", "chi2", "ess", "precision")
    keys = [f"{name}{end}" for name in names for end in ("", "_low", "_high")]
    monkeypatch.setattr("obrs.profile.Profile.plan", plan)
    out = run(capsys, "plan", "scores.csv", "--json")[1]
    assert json.loads(out, parse_constant=pytest.fail)[0]["kl_high"] is None
    assert run(capsys, "plan", "scores.csv")[1].splitlines()[5].split() == ["2", "inf", "~inf", *["inf"] * 6]


def test_plan_weighs_rows(folder, capsys):
    (folder / "a.csv").write_text("log_ratio,mass\n0,1\n1,3\n2,0\n")
    (folder / "b.csv").write_text("log_ratio\n0\n1\n1\n1\n")
    first = json.loads(run(capsys, "plan", "a.csv", "--weights", "mass", "--budgets", "1.2", "--json")[1])[0]
    second = json.loads(run(capsys, "plan", "b.csv", "--budgets", "1.2", "--json")[1])[0]
    assert first["rate"] == pytest.approx(second["rate"])
    assert first["kl"] == pytest.approx(second["kl"])


def test_plan_finds_the_budget_for_a_goal(folder, capsys):
    code, out, _ = run(capsys, "plan", "scores.csv", "--for", "kl=0.05", "--for", "truncated=0.01")
    assert code == 0
    profile = Profile(log_ratios())
    for text, goal in (("kl=0.05", {"kl": 0.05}), ("truncated=0.01", {"truncated": 0.01})):
        assert f"K = {profile.budget_for(**goal):.6g} is the smallest budget for {text}" in out.splitlines()
    code, out, _ = run(capsys, "plan", "scores.csv", "--for", "kl=0.05", "--budgets", "2,8", "--json")
    assert [row["budget"] for row in json.loads(out)] == sorted([2, profile.budget_for(kl=0.05), 8])


def test_plan_says_what_the_signs_cost(folder, capsys):
    weight = np.random.default_rng(1).normal(0.5, 1, size=60)
    (folder / "events.csv").write_text("w\n" + "".join(f"{x!r}\n" for x in weight.tolist()))
    code, out, _ = run(capsys, "plan", "events.csv", "--event-weight", "w", "--budgets", "2")
    net = weight.sum() / np.abs(weight).sum()
    assert code == 0
    assert f"{100 * np.mean(weight < 0):.3g} % of the events are negative" in out
    assert f"net {net:.3f}, so ESS is at most {net**2:.3f}" in out
    assert "E[r]" not in out
    _, out, _ = run(capsys, "plan", "events.csv", "--event-weight", "w", "--budgets", "2", "--json")
    assert json.loads(out)[0]["ess"] < net**2


def test_the_mean_of_a_ratio_is_shown_with_its_error_and_beyond_floats_as_a_power(folder, capsys):
    r = np.exp(log_ratios())
    shown = f"E[r] = {r.mean():.3f} ± {r.std() / np.sqrt(N):.1g}: the mean ratio"
    assert shown in run(capsys, "plan", "scores.csv")[1]
    np.save("log_ratio.npy", np.asarray([1000.0, 1001.0, 1002.0]))
    assert "E[r] = e^1001" in run(capsys, "plan", "log_ratio.npy", "--budgets", "1.2")[1]


# Which column, and what it means


@pytest.mark.parametrize(
    ("header", "arguments", "said"),
    [
        ("a,log_ratio", [], "column 'log_ratio' read as log_ratio"),
        ("a,reward", ["--beta", "1"], "column 'reward' read as reward"),
        ("a,score", ["--logit"], "column 'score' read as logit"),
        ("reward,logit", ["--logit"], "column 'logit' read as logit"),
        ("reward,logit", ["--column", "reward", "--log-ratio"], "column 'reward' read as log_ratio"),
    ],
)
def test_the_column_and_its_kind_are_found_where_there_is_one_choice(folder, capsys, header, arguments, said):
    (folder / "a.csv").write_text(f"{header}\n1,2\n2,1\n3,2.5\n")
    code, out, err = run(capsys, "plan", "a.csv", "--budgets", "1.1", *arguments)
    assert (code, err) == (0, "")
    assert said in out.splitlines()[0]


def test_a_plan_of_one_score_warns(folder, capsys):
    (folder / "one.csv").write_text("log_ratio\n1\n")
    code, out, err = run(capsys, "plan", "one.csv")
    assert (code, "M = 1" in out) == (0, True)
    assert err == "warning: one score says nothing about a budget; a plan needs the scores of a sample\n"


def test_a_tab_is_written_as_a_shell_keeps_it(folder, capsys):
    (folder / "tab.csv").write_text("id\tlogit\n1\t2\n2\t1\n")
    code, _, err = run(capsys, "plan", "tab.csv", "--column", "logit")
    assert (code, r"then give --delimiter '\t'" in err) == (2, True)
    assert run(capsys, "plan", "tab.csv", "--logit", "--delimiter", r"\t")[0] == 0


def test_probabilities_are_read_as_logits_would_be(folder, capsys):
    (folder / "a.csv").write_text("score\n0.5\n0.8\n0.2\n")
    (folder / "b.csv").write_text(f"logit\n0\n{float(np.log(4))!r}\n{-float(np.log(4))!r}\n")
    first = run(capsys, "plan", "a.csv", "--probability", "--budgets", "1.1")
    assert first[1].splitlines()[0] == "a.csv: 3 scores, column 'score' read as probability"
    assert first[1].splitlines()[1:] == run(capsys, "plan", "b.csv", "--budgets", "1.1")[1].splitlines()[1:]
    np.testing.assert_allclose(read("a.csv", kind="probability"), read("b.csv"), atol=1e-12)


# One line for every mistake

FILES = {
    "header.csv": "log_ratio,id\n",
    "text.csv": "log_ratio\n1\n2\noops\n",
    "gaps.csv": "id,log_ratio\n1,2\n2,\n3,nan\n4,NA\n",
    "semicolon.csv": "id;logit\n1;0.5\n",
    "two.csv": "a,b\n1,2\n",
    "some.csv": "some\n1\n",
    "signs.csv": "w\n2\n-2\n1\n",
    "minus.csv": "w\n2\n-inf\n",
    "sure.csv": "probability\n0.5\n1.0\n",
    "zero.csv": "log_ratio\n-inf\n-inf\n",
    "mixed.jsonl": '{"log_ratio": 1}\n\n{"log_ratio": "oops"}\n',
    "weight.csv": "log_ratio,log_weight\n1,2\n2,3\n",
    "groups.csv": "log_ratio,g\n1,a\n2,a\n1,\n",
    "scores.txt": "log_ratio\n1\n",
}
SELECT = ["select", "scores.csv", "-o", "k.csv"]
MISTAKES = [
    (["plan", "nothing.csv"], "^error: nothing.csv is missing or not a file$"),
    (["select", "nowhere/", "-n", "1", "-o", "kept/"], "^error: nowhere/ is missing or not a file$"),
    (["report", "nowhere/", "-o", "page.html"], "nowhere/ is missing or not a file"),
    (["plan", "."], "files must be of one format, got "),
    (["plan", "header.csv"], "header.csv, column 'log_ratio': no row has a score"),
    (["plan", "text.csv"], "text.csv, row 3, column 'log_ratio': 'oops' is not a number"),
    (["plan", "gaps.csv"], "gaps.csv, row 2, column 'log_ratio': .* 3 of 4 rows here; .* --skip-bad"),
    (["report", "gaps.csv", "-o", "page.html"], "gaps.csv, row 2, column 'log_ratio'"),
    (["plan", "semicolon.csv", "--column", "logit"], "is it divided by ';'[?] then give --delimiter ';'"),
    (["select", "scores.csv", "some.csv", "-n", "1", "-o", "out.csv"], "several files go to a folder, as in -o kept/"),
    (["select", "scores.csv", "some.csv", "-n", "1", "-o", "-"], "several files go to a folder, as in -o kept/"),
    (["plan", "mixed.jsonl"], "mixed.jsonl, row 2, column 'log_ratio': 'oops' is not a number"),
    (["plan", "rows.npz", "--column", "x", "--logit"], "rows.npz has no column 'x'; it has a, b"),
    (["plan", "list.parquet", "--column", "x", "--logit"], "column 'x': numbers are expected, got list"),
    (["plan", "scores.txt"], "scores.txt: unknown extension '.txt'; choose from csv, tsv"),
    (["plan", "scores.csv", "--column", "log_ration"], "no column 'log_ration'; did you mean 'log_ratio'[?]"),
    (["plan", "scores.csv", "--weights", "clas"], "no column 'clas'; did you mean 'class'[?]"),
    (["plan", "two.csv"], "two.csv: which column has the scores[?] --column .* is one of a, b"),
    (["plan", "some.csv"], "what are the numbers in column 'some'[?] say one of --log-ratio, --logit, --probability"),
    (["plan", "some.csv", "--reward"], "a reward needs --beta"),
    (["plan", "some.csv", "--reward", "--beta", "0"], "beta must be a finite number above 0, got 0.0"),
    (["plan", "some.csv", "--logit", "--beta", "1"], "a reward needs --beta .*, and no other kind of score has one"),
    (
        ["plan", "some.csv", "--logit", "--reward"],
        "one kind: give one of --log-ratio, --logit, --probability, --reward",
    ),
    (["plan", "scores.csv", "--probability"], "p must be between 0 and 1"),
    (["plan", "sure.csv"], "1 of 2 probabilities are 1: the sigmoid has saturated"),
    (["plan", "scores.csv", "--budgets", "2,x"], "--budgets must be numbers with commas between them, got 'x'"),
    (["plan", "scores.csv", "--budgets", "0.25"], r"did you mean budget=4 \(keep 25 %\)"),
    (["plan", "scores.csv", "--budgets", "1.01"], "^error: scores.csv: budget 1.01 cannot be met: only 97"),
    (["plan", "scores.csv", "--for", "kl=x"], "--for kl must be a number, as in kl=0.5, got 'x'"),
    (["plan", "scores.csv", "--for", "trunc=0.1"], "unknown goal 'trunc'; did you mean 'truncated'[?]"),
    (["plan", "signs.csv", "--event-weight", "w", "--for", "ess=0.5"], "ess=0.5 is not reached at any budget"),
    (["plan", "signs.csv", "--event-weight", "w", "--logit"], "one kind: .* --event-weight"),
    (["plan", "scores.csv", "--group", "class", "--for", "kl=0.1"], "by groups .* leave out .* --for"),
    (["plan", "signs.csv", "--event-weight", "v"], "signs.csv has no column 'v'; it has w"),
    (["select", "minus.csv", "--event-weight", "w", "-n", "1", "-o", "k.csv"], "minus.csv, column 'w': .*inf"),
    (["plan", "zero.csv"], "zero.csv, column 'log_ratio': no row has r > 0"),
    (["plan", "scores.csv", "-n", "0"], "Invalid value for '-n'"),
    (["plan"], "Missing argument 'FILE'."),
    (["plan", "scores.csv", "--bogus"], "No such option: --bogus"),
    (["pln", "scores.csv"], "No such command 'pln'"),
    (SELECT, "say how many rows to keep: either -n or --budget, or --quota by label"),
    ([*SELECT, "-n", "5", "--budget", "2"], "either -n or --budget, or --quota by label"),
    ([*SELECT, "-n", "395"], "cannot keep 395: 390 of 400 have r > 0"),
    ([*SELECT, "--budget", "500"], "nothing would be kept of 400; lower the budget"),
    (["select", "groups.csv", "-o", "k.csv", "-n", "1", "--group", "g"], "groups.csv, row 3, column 'g': no label"),
    ([*SELECT, "-n", "2", "--shares", "equal"], "--shares needs to know the class of each row: give --group"),
    ([*SELECT, "-n", "2", "--group", "class", "--shares", "cat=1"], "'dog' is missing; give it 0 to keep none of it"),
    ([*SELECT, "-n", "2", "--group", "class", "--shares", "cat=1,dog=1,eel=1"], "'eel', which has no proposals"),
    ([*SELECT, "--quota", "cat=1.5,dog=1", "--group", "class"], "whole numbers of rows, got cat=1.5"),
    (["plan", "scores.csv", "--group", "class", "--shares", "cat=many"], "--shares must be .* got 'cat=many'"),
    (["plan", "scores.csv", "--group", "class", "--shares", "no.csv"], "no.csv is missing or not a file"),
    (["select", "weight.csv", "-o", "k.csv", "-n", "1", "--weights"], "has a column 'log_weight' already; rename it"),
    (["select", "scores.csv", "-o", "k.txt", "-n", "1"], r"rows keep their format: out is a \.csv file or a folder"),
    ([*SELECT, "-n", "1", "--seed", "-1"], "seed must be a whole number"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=lambda v: " ".join(v) if type(v) is list else "")
def test_a_mistake_is_one_line_and_exit_code_2(folder, capsys, arguments, message):
    for name, content in FILES.items():
        (folder / name).write_text(content)
    np.savez("rows.npz", x=np.zeros((3, 2)), a=np.zeros(3), b=np.zeros(3))
    parquet.write_table(pa.table({"log_ratio": np.zeros(1000), "x": [[1]] * 1000}), "list.parquet")
    before = sorted(os.listdir())
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err.removesuffix("\n"))
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert sorted(os.listdir()) == before, "nothing was written"


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "no.csv"],
        ["select", "no.csv", "-n", "1", "-o", "k.csv"],
        ["doctor", "no.csv", "no.csv", "--budget", "2", "--logit"],
        ["evaluate", "--real", "no.npy", "--fake", "no.npy", "-o", "x"],
    ],
    ids=lambda value: value[0],
)
def test_a_file_that_is_not_there_is_a_mistake_in_every_command(folder, capsys, arguments):
    code, _, err = run(capsys, *arguments)
    assert (code, err.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["select", "scores.csv", "-n", "1", "-o", "scores.csv/k.csv"],
        ["select", "scores.csv", "-n", "1", "-o", "no/kept/"],
        ["plan", "scores.csv", "--plot", "no/a.png"],
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


def test_of_many_processes_all_but_the_first_say_which_one_they_are(folder, capsys, monkeypatch):
    for rank, size, who in (("0", "2", ""), ("1", "2", "process 1: "), ("1", "", ""), ("", "2", "")):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", size)
        assert run(capsys, "plan", "no.csv") == (2, "", f"{who}error: no.csv is missing or not a file\n")


def test_debug_shows_where_an_error_comes_from_and_keeps_the_exit_code(folder, capsys, monkeypatch):
    for arguments in (["--debug", "plan", "no.csv"], ["plan", "no.csv", "--debug"]):
        code, _, err = run(capsys, *arguments)
        assert code == 2
        assert err.startswith("Traceback")
        assert err.endswith("\nobrs.errors.InputError: no.csv is missing or not a file\n")
    monkeypatch.setenv("OBRS_DEBUG", "1")
    assert "Traceback" in run(capsys, "plan", "no.csv")[2]
    assert run(capsys, "select", "scores.csv", "-n", 1, "-o", "no/kept.csv")[0] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel what is left in a pipe")
def test_an_interrupt_exits_with_130_and_no_file(folder):
    import fcntl
    import termios

    command = [*OBRS, "select", "-", "-n", "1", "-o", "kept.csv"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(b"log_ratio\n")
        process.stdin.flush()
        for _ in range(400):  # until the command has begun to read
            time.sleep(0.05)
            if not int.from_bytes(fcntl.ioctl(process.stdin, termios.FIONREAD, bytes(4)), sys.byteorder):
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read().strip() == b""
    assert os.listdir() == ["scores.csv"]


@pytest.mark.parametrize("out", ["kept.csv", "kept/"])
def test_an_interrupt_while_writing_leaves_the_old_file_and_says_how_to_go_on(folder, capsys, monkeypatch, out):
    def interrupt(handle):
        raise KeyboardInterrupt

    (folder / "kept.csv").write_text("old")
    monkeypatch.setattr(os, "fsync", interrupt)
    code, _, err = run(capsys, "select", "scores.csv", "-n", 5, "-o", out)
    said = "stopped; 0 files are whole, and the same command goes on with the rest"
    assert (code, err.strip()) == (130, "" if out == "kept.csv" else said)
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


def test_a_warning_is_one_line(folder, monkeypatch):
    code = (
        "import sys, warnings; from obrs.cli import app, main\n"
        "@app.command()\ndef careful():\n    warnings.warn('seldom\\n  meant')\n"
        "sys.exit(main(['careful']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "warning: seldom meant\n")
