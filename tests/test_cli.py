"""The command line: what it prints, what it writes, and one line for every mistake."""

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

from obrs import Profile, __version__, unweight
from obrs.cli import app, main
from obrs.cli.columns import to_log_ratio
from obrs.errors import InputError
from obrs.profile import Plan
from obrs.scores import FORMATS, Table, column, labels, read_table, write_table
from obrs.selection import inclusion_probability, select

N = 400
OBRS = [sys.executable, "-m", "obrs"]


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


# What it does


def test_help_is_a_table_of_contents(folder, capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for command in (c for c in app.registered_commands if not c.hidden):
        name = command.callback.__name__
        first = command.callback.__doc__.splitlines()[0]
        assert re.search(rf"^  {name} +{re.escape(first)}$", out, re.M), f"the line of {name} is cut"
    assert run(capsys)[1] == out


def test_help_and_version_load_no_heavy_library(folder):
    code = (
        "import sys; from obrs.cli import main; main(['--help']); main(['plan', '--help']); main(['--version']);"
        "sys.exit(str([m for m in ('pyarrow', 'rich', 'torch', 'jax', 'scipy') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"
    assert done.stdout.endswith(f"obrs {__version__}\n")


def test_select_keeps_exactly_n_rows_with_their_columns_in_order(folder, capsys):
    code, out, err = run(capsys, "select", "scores.csv", "-n", 100, "-o", "kept.csv")
    assert (code, out) == (0, "")
    assert err == "kept 100 of 400 rows (1 in 4): kept.csv\n"
    lines = (folder / "scores.csv").read_text().splitlines()
    kept = (folder / "kept.csv").read_text().splitlines()
    assert kept[0] == lines[0] + ",weight,inclusion_probability"
    rows = [line.rsplit(",", 2)[0] for line in kept[1:]]
    assert len(rows) == 100
    assert rows == [line for line in lines if line in set(rows)], "the order of the file"


def test_select_writes_the_weight_and_the_probability(folder, capsys):
    assert run(capsys, "select", "scores.csv", "-n", 100, "-o", "kept.npz")[0] == 0
    log_ratio = column(read_table("scores.csv"), "log_ratio")
    kept = np.load("kept.npz")
    rows = kept["id"].astype(int)
    pi = inclusion_probability(log_ratio, 100)[rows]
    np.testing.assert_allclose(kept["inclusion_probability"], pi, rtol=1e-15)
    ratio = np.exp(log_ratio[rows]) / pi
    np.testing.assert_allclose(kept["weight"], ratio / ratio.mean(), rtol=1e-12)


def test_a_seed_keeps_the_same_rows_in_every_format(folder, capsys):
    kept = {}
    for format in FORMATS:
        write_table(f"rows.{format}", read_table("scores.csv"))
        arguments = ["select", f"rows.{format}", "-n", 3, "--group", "prompt", "--seed", 5]
        for out in (f"kept.{format}", f"again.{format}"):
            assert run(capsys, *arguments, "-o", out)[0] == 0
        assert (folder / f"kept.{format}").read_bytes() == (folder / f"again.{format}").read_bytes()
        kept[format] = labels(read_table(f"kept.{format}"), "id")[1]
    assert len(kept["csv"]) == 60
    assert all(ids == kept["csv"] for ids in kept.values())
    assert len({run(capsys, "select", "scores.csv", "-n", 100, "--seed", s, "-o", "-")[1] for s in range(3)}) == 3


def test_a_budget_keeps_one_row_in_k(folder, capsys):
    code, _, err = run(capsys, "select", "scores.csv", "--budget", 1.6, "-o", "kept.csv")
    assert (code, err) == (0, "kept 250 of 400 rows (1 in 1.6): kept.csv\n")


def test_n_rows_are_kept_of_every_group(folder, capsys):
    assert run(capsys, "select", "scores.csv", "-n", 7, "--group", "prompt", "-o", "kept.parquet")[0] == 0
    kept = parquet.read_table("kept.parquet")
    prompts, counts = np.unique(kept["prompt"].to_numpy(), return_counts=True)
    assert len(prompts) == 20
    assert set(counts) == {7}
    weights = [kept["weight"].to_numpy()[kept["prompt"].to_numpy() == p].mean() for p in prompts]
    np.testing.assert_allclose(weights, 1)


def test_a_budget_holds_in_groups_of_different_sizes(folder, capsys):
    assert run(capsys, "select", "scores.csv", "--budget", 4, "--group", "class", "-o", "kept.csv")[0] == 0
    table, kept = read_table("scores.csv"), read_table("kept.csv")
    labels, log_ratio = np.asarray(table["class"].to_pylist()), column(table, "log_ratio")
    for name in ("cat", "dog"):
        mine = labels == name
        here = np.asarray(kept["class"].to_pylist()) == name
        n = np.count_nonzero(here)
        assert n == np.count_nonzero(mine) // 4
        rows = column(kept, "id")[here].astype(int)
        pi = np.zeros(N)
        pi[mine] = inclusion_probability(log_ratio[mine], n)
        np.testing.assert_allclose(column(kept, "inclusion_probability")[here], pi[rows], rtol=1e-12)
        assert column(kept, "weight")[here].mean() == pytest.approx(1)


@pytest.mark.parametrize("shares", ["equal", "cat=2,dog=2", "real.csv", "labels.npy"])
def test_shares_divide_the_rows_that_are_kept(folder, capsys, shares):
    (folder / "real.csv").write_text("id,class\n1,dog\n2,cat\n")
    np.save("labels.npy", np.array(["cat", "dog"] * 3))
    assert (
        run(capsys, "select", "scores.csv", "-n", 101, "--groups", "class", "--shares", shares, "-o", "kept.csv")[0]
        == 0
    )
    kept = read_table("kept.csv")
    classes, counts = np.unique(kept["class"].to_pylist(), return_counts=True)
    assert dict(zip(classes.tolist(), counts.tolist(), strict=True)) == {"cat": 51, "dog": 50}
    budget = ["--budget", 4, "--group", "class", "--shares", "cat=1,dog=0", "-o", "kept.csv"]
    assert run(capsys, "select", "scores.csv", *budget)[0] == 0
    assert read_table("kept.csv")["class"].to_pylist() == ["cat"] * 100


def test_a_plan_by_groups_shows_the_budget_of_each(folder, capsys):
    code, out, _ = run(capsys, "plan", "scores.csv", "--group", "class", "--budgets", "2,100", "-n", 10)
    assert code == 0
    log_ratio, classes = column(read_table("scores.csv"), "log_ratio"), read_table("scores.csv")["class"].to_pylist()
    rows = Profile(log_ratio).plan([2, 100], n=10, groups=classes)
    assert re.search(rf"^ +2 +0.500 +{rows[0]['kl']:.3f} .* 20$", out, re.M)
    for group in rows[0]["groups"]:
        assert re.search(rf"^{group.label} +{group.max_budget:.4g} +2 +100\*$", out, re.M)
    assert "* exact: a smaller budget would keep the same distribution within the group" in out
    code, out, _ = run(capsys, "plan", "scores.csv", "--group", "class", "--shares", "cat=2,dog=1", "--json")
    expected = Profile(log_ratio).plan([1.5, 2, 4, 8], groups=classes, shares={"cat": 2, "dog": 1})
    assert [row["kl"] for row in json.loads(out)] == [row["kl"] for row in expected]
    assert json.loads(out)[0]["groups"][0] == expected[0]["groups"][0]._asdict()
    many = run(capsys, "plan", "scores.csv", "--group", "id", "--budgets", "1.5", "--shares", "equal")
    assert many[:2] == (2, "")
    (folder / "many.csv").write_text("log_ratio,g\n" + "".join(f"{i % 7 / 7},{i % 30}\n" for i in range(300)))
    assert "10 more groups are in --json" in run(capsys, "plan", "many.csv", "--group", "g")[1]


def test_a_quota_is_said_by_label(folder, capsys):
    arguments = ["select", "scores.csv", "--group", "class", "--quota", "cat=7,dog=30", "-o", "kept.csv"]
    assert run(capsys, *arguments)[0] == 0
    classes, counts = np.unique(read_table("kept.csv")["class"].to_pylist(), return_counts=True)
    assert dict(zip(classes.tolist(), counts.tolist(), strict=True)) == {"cat": 7, "dog": 30}


def test_groups_may_be_pairs_of_two_columns(folder, capsys):
    assert run(capsys, "select", "scores.csv", "-n", 2, "--group", "class", "--group", "prompt", "-o", "k.csv")[0] == 0
    kept = read_table("k.csv")
    pairs = list(zip(kept["class"].to_pylist(), kept["prompt"].to_pylist(), strict=True))
    assert len(pairs) == 80
    assert {pairs.count(pair) for pair in pairs} == {2}
    assert "cat/10" in run(capsys, "plan", "scores.csv", "--group", "class", "--group", "prompt", "--json")[1]


def test_the_command_line_keeps_the_rows_of_select(folder, capsys):
    assert run(capsys, "select", "scores.csv", "-n", 20, "--group", "class", "--seed", 4, "-o", "k.npz")[0] == 0
    table = read_table("scores.csv")
    expected = select(column(table, "log_ratio"), 20, groups=table["class"].to_pylist(), seed=4)
    np.testing.assert_array_equal(np.load("k.npz")["id"].astype(int), expected)


def test_ids_decide_wherever_a_row_stands(folder, capsys):
    lines = (folder / "scores.csv").read_text().splitlines()
    (folder / "other.csv").write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
    kept = {}
    for name in ("scores.csv", "other.csv"):
        assert run(capsys, "select", name, "-n", 50, "--id", "id", "-o", "kept.csv")[0] == 0
        kept[name] = set(read_table("kept.csv")["id"].to_pylist())
    assert kept["scores.csv"] == kept["other.csv"]
    (folder / "twice.csv").write_text("id,log_ratio\n1,1\n2,1\n1,0\n")
    code, _, err = run(capsys, "select", "twice.csv", "-n", 1, "--id", "id", "-o", "kept.csv")
    assert (code, err.count("\n")) == (2, 1)
    assert "1 of 3 rows have the id of another" in err
    assert run(capsys, "select", "twice.csv", "-n", 1, "--id", "id", "--repeats", "-o", "kept.csv")[0] == 0


def test_rows_can_be_counted_in_tokens(folder, capsys):
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 500, N)
    write_table("docs.csv", Table({"log_ratio": rng.normal(size=N), "tokens": tokens}, "memory", "npz"))
    code, _, err = run(capsys, "select", "docs.csv", "--cost", "tokens", "-n", 20_000, "-o", "kept.csv")
    assert code == 0
    spent = column(read_table("kept.csv"), "tokens").sum()
    assert 20_000 - 500 < spent <= 20_000
    assert f"that cost {spent:.0f} of {tokens.sum()}" in err


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


def test_plan_reads_only_the_columns_that_it_needs(folder, capsys, monkeypatch):
    write_table("a.parquet", read_table("scores.csv"))
    read, asked = parquet.ParquetFile.read, []

    def watched(self, columns=None, **options):
        asked.append(columns)
        return read(self, columns=columns, **options)

    monkeypatch.setattr(parquet.ParquetFile, "read", watched)
    assert run(capsys, "plan", "a.parquet", "--group", "class")[0] == 0
    assert asked == [["class", "log_ratio"]]


def test_many_rows_per_kept_one_are_written_out(folder, capsys):
    (folder / "a.csv").write_text("log_ratio\n" + "0\n-1\n" * 10_000)
    assert "(1 in 10 000)" in run(capsys, "select", "a.csv", "-n", 2, "-o", "kept.csv")[2]


def test_a_csv_may_have_another_delimiter(folder, capsys):
    (folder / "a.csv").write_text("id;log_ratio\n1;0,5\n".replace(",", ".") + "2;1\n")
    assert run(capsys, "select", "a.csv", "-n", 2, "--delimiter", ";", "-o", "kept.csv")[0] == 0
    assert (folder / "kept.csv").read_text().startswith("id;log_ratio;weight")


def test_a_format_does_not_overrule_an_extension(folder, capsys):
    assert run(capsys, "plan", "scores.csv", "--format", "jsonl")[0] == 0
    code, out, _ = run(capsys, "select", "scores.csv", "--format", "jsonl", "-n", 1, "-o", "-")
    assert code == 0
    assert json.loads(out)["id"]


def test_scores_go_through_standard_input_and_output(folder, capfdbinary, monkeypatch):
    text = '{"reward": 1, "x": [1]}\n{"reward": 2, "x": [2]}\n{"reward": 30, "x": []}\n'
    found = []
    for options in ([], ["--format", "jsonl"]):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        found.append(run(capfdbinary, "select", "-", "--beta", 2, "-n", 1, "-o", "-", *options))
    assert json.loads(found[0][1])["x"] == []
    assert found[0][2] == b"kept 1 of 3 rows (1 in 3): standard output\n"
    assert found[0] == found[1]


def test_plan_prints_a_table_that_fits(folder, capsys, monkeypatch):
    for width in (80, 120):
        monkeypatch.setenv("COLUMNS", str(width))
        code, out, err = run(capsys, "plan", "scores.csv", "--budgets", "1.5,2,4,1000", "-n", 100)
        assert (code, err) == (0, "")
        assert out.startswith("scores.csv: 400 scores, column 'log_ratio' read as log_ratio\nM = ")
        assert "E[r] = " in out
        assert "…" not in out
        assert max(map(len, out.splitlines())) <= width
        table = [line.split() for line in out.splitlines()[5:] if line[:7].strip()]
        assert [row[0] for row in table[:4]] == ["1.5", "2", "4", "1000"]
        assert [row[-1] for row in table[:3]] == ["150", "200", "400"]
        assert "above M exact rejection costs less" in out
        assert "K = 1.5 removes at most 0.41 of an estimated 0.53 nats" in " ".join(out.split())


def test_plan_prints_both_ends_of_a_skewed_interval(folder, capsys, monkeypatch):
    row = Profile(column(read_table("scores.csv"), "log_ratio")).plan([2])[0]
    assert row["kl_high"] - row["kl"] > 2 * (row["kl"] - row["kl_low"])
    low, high = (f"{row[end]:.3f}".removeprefix("0") for end in ("kl_low", "kl_high"))
    for width, ends in ((200, f"{low}–{high}"), (120, f"{low}–{high}"), (78, f"{low}–")):
        monkeypatch.setenv("COLUMNS", str(width))
        out = run(capsys, "plan", "scores.csv", "--budgets", "2", "-n", 100)[1]
        table = out[out.index("budget ") : out.index("low–high is")]
        assert f" {ends}" in table
        assert high in table
        assert "±" not in table


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
    log_ratio = column(read_table("scores.csv"), "log_ratio")
    profile = Profile(log_ratio)
    for text, goal in (("kl=0.05", {"kl": 0.05}), ("truncated=0.01", {"truncated": 0.01})):
        assert f"K = {profile.budget_for(**goal):.6g} is the smallest budget for {text}" in out.splitlines()
    code, out, _ = run(capsys, "plan", "scores.csv", "--for", "kl=0.05", "--budgets", "2,8", "--json")
    assert [row["budget"] for row in json.loads(out)] == sorted([2, profile.budget_for(kl=0.05), 8])
    assert min(abs(row["kl"] - 0.05) for row in json.loads(out)) < 1e-12


def events_file(folder):
    """Weights of both signs, one of them 0, in two channels."""
    weight = np.random.default_rng(1).normal(0.5, 1, size=60)
    weight[7] = 0.0
    rows = "".join(f"e{i},{x!r},{'ab'[i % 2]}\n" for i, x in enumerate(weight.tolist()))
    (folder / "events.csv").write_text("id,weight,channel\n" + rows)
    return weight


def test_events_with_weights_of_both_signs_are_kept_with_their_signs(folder, capsys):
    weight = events_file(folder)
    code, *_ = run(capsys, "select", "events.csv", "--event-weight", "weight", "-n", 30, "-o", "kept.csv")
    assert code == 0
    kept = read_table("kept.csv")
    index = np.array([int(key[1:]) for key in kept["id"].to_pylist()])
    left, pi = column(kept, "residual_weight"), column(kept, "inclusion_probability")
    same = unweight(weight, 30)
    np.testing.assert_array_equal(index, same.index)
    np.testing.assert_allclose(left, same.weight)
    np.testing.assert_allclose(left, weight[index] / pi)
    assert abs(left.sum() - weight.sum()) < 2 * same.max_weight


def test_events_are_kept_of_every_channel(folder, capsys):
    weight = events_file(folder)
    arguments = ("select", "events.csv", "--event-weight", "weight", "--budget", 3, "--group", "channel", "-o", "k.csv")
    assert run(capsys, *arguments)[0] == 0
    kept = read_table("k.csv")
    codes, names = labels(kept, "channel")
    for code, name in enumerate(names):
        left = column(kept, "residual_weight")[codes == code]
        total = weight["ab".index(name) :: 2].sum()
        assert len(left) == 10
        assert abs(left.sum() - total) < 2 * np.abs(left).min()


def test_plan_says_what_the_signs_cost(folder, capsys):
    weight = events_file(folder)
    code, out, _ = run(capsys, "plan", "events.csv", "--event-weight", "weight", "--budgets", "2")
    net = weight.sum() / np.abs(weight).sum()
    assert code == 0
    assert f"{100 * np.mean(weight < 0):.3g} % of the events are negative" in out
    assert f"net {net:.3f}, so ESS is at most {net**2:.3f}" in out
    assert "E[r]" not in out
    _, out, _ = run(capsys, "plan", "events.csv", "--event-weight", "weight", "--budgets", "2", "--json")
    assert json.loads(out)[0]["ess"] < net**2


def test_the_mean_of_a_ratio_beyond_floats_is_shown_as_a_power(folder, capsys):
    np.save("log_ratio.npy", np.asarray([1000.0, 1001.0, 1002.0]))
    assert "E[r] = e^1001" in run(capsys, "plan", "log_ratio.npy", "--budgets", "1.2")[1]


# Which column, and what it means


@pytest.mark.parametrize(
    ("header", "arguments", "said"),
    [
        ("a,log_ratio", [], "column 'log_ratio' read as log_ratio"),
        ("a,logit", [], "column 'logit' read as logit"),
        ("a,reward", ["--beta", "1"], "column 'reward' read as reward"),
        ("a,score", ["--log-ratio"], "column 'score' read as log_ratio"),
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


def test_the_only_column_of_numbers_is_taken(folder, capsys):
    (folder / "a.csv").write_text("name,critic\nx,2\ny,1\n")
    assert "'critic' read as logit" in run(capsys, "plan", "a.csv", "--budgets", "1.1", "--logit")[1]


def test_a_plan_of_one_score_warns(folder, capsys):
    (folder / "one.csv").write_text("log_ratio\n1\n")
    code, out, err = run(capsys, "plan", "one.csv")
    assert (code, "M = 1" in out) == (0, True)
    assert err == "warning: one score says nothing about a budget; a plan needs the scores of a sample\n"


def test_a_tab_is_written_as_a_shell_keeps_it(folder, capsys):
    (folder / "tab.csv").write_text("id\tlogit\n1\t2\n2\t1\n")
    code, _, err = run(capsys, "plan", "tab.csv", "--logit")
    assert (code, err.endswith(r"then give --delimiter '\t'" + "\n")) == (2, True)
    assert run(capsys, "plan", "tab.csv", "--logit", "--delimiter", r"\t")[0] == 0


def test_rewards_are_divided_by_beta():
    np.testing.assert_allclose(to_log_ratio(np.asarray([1.0, 3.0, -np.inf]), "reward", 0.5), [2, 6, -np.inf])
    np.testing.assert_array_equal(to_log_ratio(np.asarray([1.0, 3.0]), "logit"), [1, 3])
    with pytest.raises(InputError, match="needs --beta"):
        to_log_ratio(np.zeros(2), "reward")


def test_probabilities_are_read_as_logits_would_be(folder, capsys):
    (folder / "a.csv").write_text("score\n0.5\n0.8\n0.2\n")
    (folder / "b.csv").write_text(f"logit\n0\n{float(np.log(4))!r}\n{-float(np.log(4))!r}\n")
    first = run(capsys, "plan", "a.csv", "--probability", "--budgets", "1.1")
    assert first[1].splitlines()[0] == "a.csv: 3 scores, column 'score' read as probability"
    assert first[1].splitlines()[1:] == run(capsys, "plan", "b.csv", "--budgets", "1.1")[1].splitlines()[1:]


# One line for every mistake

COLUMNS = "id, log_ratio, class, prompt"
EXTENSIONS = "choose from csv, tsv, jsonl, parquet, npy, npz"
FILES = {
    "empty.csv": "",
    "blank.jsonl": "\n \n",
    "header.csv": "log_ratio,id\n",
    "headless.csv": "0.5,1\n0.25,2\n",
    "twice.csv": "a,b,a\n1,2,3\n",
    "ragged.csv": "log_ratio,id\n1,2\n\n3\n",
    "text.csv": "log_ratio\n1\n2\noops\n",
    "gaps.csv": "id,log_ratio\n1,2\n2,\n3,nan\n4,NA\n",
    "gaps2.csv": "id,log_ratio\n5,1\n",
    "semicolon.csv": "id;logit\n1;0.5\n",
    "comma.csv": "id|logit|note\n1|0.5|yes, it is\n",
    "inf.csv": "log_ratio\n1\ninf\n",
    "two.csv": "a,b\n1,2\n",
    "names.csv": "a,b\nx,y\n",
    "some.csv": "some\n1\n",
    "signs.csv": "w\n2\n-2\n1\n",
    "minus.csv": "w\n2\n-inf\n",
    "sure.csv": "probability\n0.5\n1.0\n",
    "zero.csv": "log_ratio\n-inf\n-inf\n",
    "latin.csv": b"log_ratio,caf\xe9\n1,2\n",
    "latin2.csv": b"log_ratio,name\n1,caf\xe9\n",
    "mixed.jsonl": '{"log_ratio": 1}\n\n{"log_ratio": "0.5"}\n',
    "bool.jsonl": '{"log_ratio": 1}\n{"log_ratio": true}\n',
    "absent.jsonl": '{"log_ratio": 1}\n{"id": 1}\n{"log_ratio": null}\n',
    "array.jsonl": '{"log_ratio": 1}\n[1, 2]\n',
    "broken.jsonl": '{"log_ratio": 1}\n{"log_ratio": \n',
    "huge.jsonl": '{"log_ratio": 1' + "0" * 400 + "}\n",
    "weight.csv": "log_ratio,weight\n1,2\n2,3\n",
    "groups.csv": "log_ratio,g\n1,a\n2,a\n1,\n",
    "few.csv": "log_ratio,g\n1,a\n1,a\n1,b\n-inf,b\n",
    "mixed_groups.jsonl": '{"log_ratio": 1, "g": 1}\n{"log_ratio": 2, "g": "a"}\n',
    "scores.txt": "log_ratio\n1\n",
    "broken.npy": b"\x93NUMPY\x01",
    "broken.npz": b"PK\x03\x04 nothing",
    "broken.parquet": b"PAR1 nothing",
}
MISTAKES = [
    (["plan", "nothing.csv"], "nothing.csv is missing or not a file"),
    (["plan", "nowhere/"], "nowhere/ is missing or not a file"),
    (["select", "nowhere/", "-n", "1", "-o", "kept.csv"], "nowhere/ is missing or not a file"),
    (["select", "nowhere/", "-n", "1", "-o", "kept/"], "nowhere/ is missing or not a file"),
    (["report", "nowhere/", "-o", "page.html"], "nowhere/ is missing or not a file"),
    (["plan", "."], re.compile("^error: files must be of one format, got ")),
    (["plan", "empty.csv"], "empty.csv is empty"),
    (["plan", "blank.jsonl"], "blank.jsonl is empty"),
    (["plan", "header.csv"], "header.csv has no rows"),
    (["plan", "headless.csv"], re.compile("^error: headless.csv, line 1 must name the columns, and '0.5' is a number")),
    (["plan", "twice.csv"], "twice.csv has two columns named 'a'; rename one"),
    (["plan", "ragged.csv"], "ragged.csv, line 4: expected 2 columns, got 1"),
    (["plan", "text.csv"], "text.csv, line 4, column 'log_ratio': 'oops' is not a number"),
    (
        ["plan", "gaps.csv"],
        "gaps.csv, line 3, column 'log_ratio': empty or NaN, as in 3 of 4 rows; "
        "leave them out with --skip-bad, or check what scored them",
    ),
    (
        ["plan", "gaps.csv", "--column", "id", "--log-ratio", "--weights", "log_ratio"],
        re.compile("column 'log_ratio': empty or NaN, as in 3 of 4 rows; drop them, or check what scored them\n$"),
    ),
    (
        ["report", "gaps.csv", "-o", "page.html"],
        re.compile("column 'log_ratio': empty or NaN, as in 3 of 4 rows; drop them, or check what scored them\n$"),
    ),
    (
        ["plan", "gaps.csv", "gaps2.csv"],
        re.compile("as in 3 of 4 rows; check what scored them, or leave them out with --skip-bad\n$"),
    ),
    (
        ["plan", "semicolon.csv", "--logit"],
        "semicolon.csv, line 2, column 'id;logit': '1;0.5' is not a number; is it divided by ';'? "
        "then give --delimiter ';'",
    ),
    (
        ["plan", "semicolon.csv", "--column", "logit"],
        "semicolon.csv has no column 'logit'; is it divided by ';'? then give --delimiter ';'",
    ),
    (
        ["plan", "comma.csv", "--logit"],
        "comma.csv, line 2: expected 1 columns, got 2; is it divided by '|'? then give --delimiter '|'",
    ),
    (
        ["select", "scores.csv", "some.csv", "-n", "1", "-o", "out.parquet"],
        "-o names a folder for several files, got out.parquet; give -o kept/, or out.parquet/ if that is one",
    ),
    (
        ["plan", "inf.csv"],
        "inf.csv, line 3, column 'log_ratio': +inf, as in 1 of 2 rows; "
        "leave them out with --skip-bad, or check what scored them",
    ),
    (["plan", "latin.csv"], "latin.csv is not UTF-8 text"),
    (["plan", "latin2.csv"], "latin2.csv is not UTF-8 text"),
    (["plan", "mixed.jsonl"], "mixed.jsonl, line 3, column 'log_ratio': '0.5' is not a number"),
    (["plan", "bool.jsonl"], "bool.jsonl, line 2, column 'log_ratio': True is not a number"),
    (
        ["plan", "absent.jsonl"],
        re.compile("^error: absent.jsonl, line 2, column 'log_ratio': empty or NaN, as in 2 of 3"),
    ),
    (["plan", "array.jsonl"], "array.jsonl, line 2 is not a JSON object: [1, 2]"),
    (["plan", "broken.jsonl"], "broken.jsonl, line 2 is not JSON: expecting value"),
    (
        ["plan", "huge.jsonl"],
        re.compile(r"huge.jsonl, line 1, column 'log_ratio': 10+\.\.\.0+ is too large for a number"),
    ),
    (["plan", "broken.npy"], "broken.npy cannot be read by NumPy; is it whole, and without Python objects?"),
    (["plan", "broken.npz"], "broken.npz cannot be read by NumPy; is it whole, and without Python objects?"),
    (["plan", "broken.parquet"], "broken.parquet cannot be read as parquet; is it whole?"),
    (["plan", "cut.parquet"], "cut.parquet cannot be read as parquet; is it whole?"),
    (["plan", "objects.npy"], "objects.npy cannot be read by NumPy; is it whole, and without Python objects?"),
    (["plan", "cube.npy"], "cube.npy must hold one axis of scores, or rows and columns, got shape (2, 2, 2)"),
    (["plan", "uneven.npz"], "uneven.npz must have one row per score in every array, got lengths a 2, b 3"),
    (["plan", "several.npz"], "several.npz has no single column of scores; choose --column from a, b"),
    (["plan", "several.npz", "--column", "x"], "several.npz has no column 'x'; it has a, b"),
    (
        ["plan", "rows.npz", "--column", "x"],
        "rows.npz, column 'x': expected one number per row, got float64 of shape (3, 2)",
    ),
    (
        ["plan", "rows.npz", "--column", "c"],
        "rows.npz, column 'c': expected one number per row, got complex128 of shape (3,)",
    ),
    (
        ["plan", "list.parquet", "--column", "x"],
        re.compile("^error: list.parquet, column 'x': expected numbers, got li"),
    ),
    (["plan", "scores.txt"], f"scores.txt: unknown extension '.txt'; {EXTENSIONS}"),
    (["plan", "scores.csv", "--format", "xls"], f"unknown format 'xls'; {EXTENSIONS}"),
    (
        ["plan", "scores.csv", "--column", "log_ration"],
        "scores.csv has no column 'log_ration'; did you mean 'log_ratio'?",
    ),
    (["plan", "scores.csv", "--column", "zzz"], f"scores.csv has no column 'zzz'; it has {COLUMNS}"),
    (["plan", "scores.csv", "--weights", "clas"], "scores.csv has no column 'clas'; did you mean 'class'?"),
    (["plan", "two.csv"], "two.csv has no single column of scores; choose --column from a, b"),
    (["plan", "names.csv"], "names.csv has no single column of scores; choose --column from a, b"),
    (
        ["plan", "some.csv"],
        "some.csv: is column 'some' a --log-ratio, a --logit, a --probability or a --reward with --beta?",
    ),
    (["plan", "some.csv", "--reward"], "a reward needs --beta, its temperature"),
    (["plan", "some.csv", "--reward", "--beta", "0"], "beta must be a finite number above 0, got 0.0"),
    (["plan", "some.csv", "--reward", "--beta", "nan"], "beta must be a finite number above 0, got nan"),
    (["plan", "some.csv", "--reward", "--beta", "x"], re.compile("^error: Invalid value for '--beta'")),
    (["plan", "some.csv", "--logit", "--beta", "1"], "--beta is for rewards only"),
    (
        ["plan", "some.csv", "--logit", "--reward"],
        "scores are of one kind: give one of --log-ratio, --logit, --probability, --reward",
    ),
    (
        ["plan", "scores.csv", "--probability"],
        re.compile(r"^error: scores.csv: p must be between 0 and 1, \d+ of 400 are not; if they are logits, say so$"),
    ),
    (
        ["plan", "sure.csv"],
        "sure.csv: 1 of 2 probabilities are 1: the sigmoid has saturated and the ratio is lost; give logits instead",
    ),
    (["plan", "scores.csv", "--budgets", "2,x"], "--budgets must be numbers with commas between them, got 'x'"),
    (["plan", "scores.csv", "--budgets", ""], "--budgets must be numbers with commas between them, got ''"),
    (
        ["plan", "scores.csv", "--budgets", "0.25"],
        "budget must be at least 1 proposal per sample, got 0.25; did you mean budget=4 (keep 25 %)?",
    ),
    (
        ["plan", "scores.csv", "--budgets", "1.01"],
        re.compile(r"^error: scores.csv: budget 1.01 cannot be met: only 97"),
    ),
    (["plan", "scores.csv", "--budgets", "", "--for", "kl"], "--for kl must be a number, as in kl=0.5, got nothing"),
    (["plan", "scores.csv", "--for", "kl=x"], "--for kl must be a number, as in kl=0.5, got 'x'"),
    (
        ["plan", "scores.csv", "--for", "trunc=0.1"],
        re.compile("^error: unknown goal 'trunc'; did you mean 'truncated'\\? there are: kl, rkl, "),
    ),
    (["plan", "scores.csv", "--for", "kl=-1"], "scores.csv: kl must be a number at least 0, got -1.0"),
    (
        ["plan", "signs.csv", "--event-weight", "w", "--for", "ess=0.5"],
        re.compile("^error: signs.csv: ess=0.5 is not reached at any budget: the best is 0.04, at budget 1.2"),
    ),
    (
        ["plan", "signs.csv", "--event-weight", "w", "--logit"],
        "event weights stand instead of scores: give --event-weight alone",
    ),
    (
        ["plan", "scores.csv", "--group", "class", "--for", "kl=0.1"],
        "--group and --for do not go together: a goal is for one pool",
    ),
    (
        ["plan", "signs.csv", "--event-weight", "w", "--group", "w"],
        "--group and --event-weight do not go together: plan one group at a time",
    ),
    (["plan", "signs.csv", "--event-weight", "v"], "signs.csv has no column 'v'; it has w"),
    (
        ["select", "signs.csv", "--event-weight", "w", "--column", "w", "-n", "1", "-o", "k.csv"],
        "event weights stand instead of scores: give --event-weight alone",
    ),
    (
        ["select", "minus.csv", "--event-weight", "w", "-n", "1", "-o", "k.csv"],
        "minus.csv: weight must be finite, 1 of 2 are not; drop such events, or look at them",
    ),
    (["plan", "zero.csv"], re.compile("^error: zero.csv: .*r > 0")),
    (["plan", "scores.csv", "-n", "0"], re.compile("^error: Invalid value for '-n'")),
    (["plan"], "Missing argument 'FILE'."),
    (["plan", "scores.csv", "--bogus"], re.compile("^error: No such option: --bogus")),
    (["pln", "scores.csv"], re.compile("^error: No such command 'pln'")),
    (["select", "scores.csv", "-n", "5"], "Missing option '--out' / '-o'."),
    (["select", "scores.csv", "-o", "k.csv"], "say how many rows to keep: either -n or --budget, or --quota by label"),
    (
        ["select", "scores.csv", "-o", "k.csv", "-n", "5", "--budget", "2"],
        "say how many rows to keep: either -n or --budget, or --quota by label",
    ),
    (["select", "scores.csv", "-o", "k.csv", "-n", "500"], "scores.csv: cannot keep 500 of 400 rows"),
    (
        ["select", "scores.csv", "-o", "k.csv", "-n", "395"],
        "scores.csv: cannot keep 395 rows, only 390 of 400 have r > 0",
    ),
    (
        ["select", "scores.csv", "-o", "k.csv", "--budget", "500"],
        "scores.csv: nothing would be kept of 400 rows; lower the budget",
    ),
    (
        ["select", "scores.csv", "-o", "k.csv", "--budget", "0.5"],
        re.compile("^error: budget must be at least 1 proposal"),
    ),
    (
        ["select", "few.csv", "-o", "k.csv", "-n", "2", "--group", "g"],
        "few.csv: g 'b': cannot keep 2 rows, only 1 of 2 have r > 0",
    ),
    (
        ["select", "groups.csv", "-o", "k.csv", "-n", "1", "--group", "g"],
        "groups.csv, line 4, column 'g': no label, as in 1 of 3 rows",
    ),
    (
        ["select", "mixed_groups.jsonl", "-o", "k.csv", "-n", "1", "--group", "g"],
        "mixed_groups.jsonl, column 'g': labels must be all text or all integers",
    ),
    (
        ["select", "scores.csv", "-o", "k.csv", "-n", "1", "--group", "promt"],
        "scores.csv has no column 'promt'; did you mean 'prompt'?",
    ),
    (
        ["select", "scores.csv", "-o", "k.csv", "-n", "2", "--shares", "equal"],
        "--shares needs to know the class of each row: give --group, the column of classes",
    ),
    (
        ["select", "scores.csv", "-o", "k.csv", "-n", "2", "--group", "class", "--shares", "cat=1"],
        "scores.csv: shares must name every group, 'dog' is missing; give it 0 to keep none of it",
    ),
    (
        ["select", "scores.csv", "-o", "k.csv", "-n", "2", "--group", "class", "--shares", "cat=1,dog=1,eel=1"],
        "scores.csv: shares names group 'eel', which has no proposals; there are 'cat', 'dog'",
    ),
    (
        ["select", "scores.csv", "-o", "k.csv", "-n", "300", "--group", "class", "--shares", "cat=1,dog=0"],
        re.compile("^error: scores.csv: class 'cat': cannot keep 300 of "),
    ),
    (
        ["plan", "scores.csv", "--group", "class", "--shares", "cat=many"],
        "--shares must be equal, label=share with commas between them, or a file of real labels, got 'cat=many'",
    ),
    (["plan", "scores.csv", "--group", "class", "--shares", "no.csv"], "no.csv is missing or not a file"),
    (
        ["plan", "scores.csv", "--group", "class", "--weights", "id"],
        "--group and --weights do not go together: the proposals of a group are of equal mass",
    ),
    (
        ["plan", "scores.csv", "--group", "class", "--budgets", "1.5", "--shares", "cat=1,dog=0"],
        re.compile("^error: scores.csv: budget 1.5 cannot be met with these shares"),
    ),
    (["select", "weight.csv", "-o", "k.csv", "-n", "1"], "weight.csv has a column 'weight' already; rename it first"),
    (["select", "scores.csv", "-o", "k.txt", "-n", "1"], f"k.txt: unknown extension '.txt'; {EXTENSIONS}"),
    (["select", "scores.csv", "-o", "k", "-n", "1"], f"k: unknown extension ''; {EXTENSIONS}"),
    (
        ["select", "scores.csv", "-o", "k.csv", "-n", "1", "--seed", "-1"],
        re.compile("^error: scores.csv: seed must be a whole number"),
    ),
    (
        ["select", "scores.csv", "-o", "k.csv", "-n", "1", "--design", "x"],
        re.compile("^error: scores.csv: unknown design"),
    ),
]


@pytest.mark.parametrize(
    ("arguments", "message"), MISTAKES, ids=lambda value: " ".join(value) if type(value) is list else ""
)
def test_a_mistake_is_one_line_and_exit_code_2(folder, capsys, arguments, message):
    for name, content in FILES.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    np.save("objects.npy", np.asarray([{}]), allow_pickle=True)
    np.save("cube.npy", np.zeros((2, 2, 2)))
    np.savez("uneven.npz", a=np.zeros(2), b=np.zeros(3))
    np.savez("several.npz", a=np.zeros(2), b=np.zeros(2))
    np.savez("rows.npz", x=np.zeros((3, 2)), c=np.zeros(3, complex))
    parquet.write_table(pa.table({"log_ratio": np.zeros(1000), "x": [[1]] * 1000}), "list.parquet")
    (folder / "cut.parquet").write_bytes((folder / "list.parquet").read_bytes()[:-50])
    before = sorted(os.listdir())
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    if isinstance(message, str):
        assert err == f"error: {message}\n"
    else:
        assert message.search(err)
    assert sorted(os.listdir()) == before, "nothing was written"


def test_a_folder_that_is_not_there_is_one_line_and_exit_code_1(folder, capsys):
    code, _, err = run(capsys, "select", "scores.csv", "-n", 1, "-o", "no/kept.csv")
    assert (code, err) == (1, "error: no/kept.csv: no such file or directory\n")
    (folder / "dir.csv").mkdir()
    code, _, err = run(capsys, "select", "scores.csv", "-n", 1, "-o", "dir.csv")
    assert (code, err) == (1, "error: dir.csv: is a directory\n")


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
        ["plan", "scores.csv", "--plot", "no/a.png"],
        ["doctor", "scores.csv", "scores.csv", "--budget", "2", "--plot", "no/a.png"],
        ["evaluate", "--real", "scores.csv", "--fake", "scores.csv", "-o", "scores.csv/x"],
    ],
    ids=lambda value: value[0],
)
def test_where_to_write_is_checked_before_anything_is_read(folder, capsys, monkeypatch, arguments):
    monkeypatch.setattr("obrs.scores.read_table", pytest.fail)
    code, _, err = run(capsys, *arguments)
    assert (code, err.count("\n")) == (1, 1)
    assert os.listdir() == ["scores.csv"]


def test_too_little_memory_is_one_line_and_exit_code_1(folder, capsys, monkeypatch):
    def full(*_, **__):
        raise MemoryError("Unable to allocate 1 TiB")

    monkeypatch.setattr("obrs.scores.read_table", full)
    code, _, err = run(capsys, "plan", "scores.csv")
    assert code == 1
    assert err.startswith("error: not enough memory (Unable to allocate 1 TiB); ")
    assert err.count("\n") == 1


def test_help_knows_debug(capsys):
    assert "--debug" in run(capsys, "--help")[1]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_one_line_and_exit_code_1(folder, capsys):
    (folder / "locked").mkdir(mode=0o500)
    code, _, err = run(capsys, "select", "scores.csv", "-n", 1, "-o", "locked/kept.csv")
    assert (code, err) == (1, "error: locked/kept.csv: permission denied\n")


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


def test_an_interrupt_while_writing_leaves_the_old_file(folder, capsys, monkeypatch):
    def interrupt(handle):
        raise KeyboardInterrupt

    (folder / "kept.csv").write_text("old")
    monkeypatch.setattr(os, "fsync", interrupt)
    code, _, err = run(capsys, "select", "scores.csv", "-n", 5, "-o", "kept.csv")
    assert (code, err.strip()) == (130, "")
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
