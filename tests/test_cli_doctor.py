"""`obrs doctor`: two files of scores in, one word out."""

import json

import numpy as np
import pytest

from obrs.cli import main
from obrs.ratios.doctor import diagnose

N = 600


@pytest.fixture
def scores(tmp_path, monkeypatch):
    """real.csv and fake.csv with exact log-ratios, which are returned."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    values = rng.normal(0.5, 1, N), rng.normal(-0.5, 1, N)
    for name, x in zip(("real", "fake"), values, strict=True):
        write(f"{name}.csv", x)
        np.save(f"{name}.npy", x)
    return values


def write(file, values, name="log_ratio"):
    with open(file, "w") as out:
        out.write(f"id,{name}\n" + "".join(f"{i},{x!r}\n" for i, x in enumerate(np.asarray(values).tolist())))


def run(capsys, *arguments):
    """Return exit code, standard output and standard error of a command."""
    code = main(["doctor", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_page_is_that_of_diagnose_and_the_exit_code_is_0(scores, capsys):
    code, out, err = run(capsys, "real.csv", "fake.csv", "--budget", 2.6)
    assert (code, out, err) == (0, f"{diagnose(*scores, 2.6).page(command=True)}\n", "")
    write("wrong.csv", -scores[0])
    code, out, _ = run(capsys, "wrong.csv", "fake.csv", "--budget", 2.6)
    assert code == 0
    assert out.startswith("UNFIT")
    code, out, _ = run(capsys, "real.npy", "fake.csv", "--kind", "log_ratio", "--budget", 2.6, "--json")
    assert (code, json.loads(out)["verdict"]) == (0, "fit")


def test_picture_is_written(scores, capsys):
    pytest.importorskip("matplotlib")
    assert run(capsys, "real.csv", "fake.csv", "--budget", 2.6, "--plot", "page.png")[0] == 0
    with open("page.png", "rb") as file:
        assert file.read(4) == b"\x89PNG"
    code, _, err = run(capsys, "real.csv", "fake.csv", "--budget", 2.6, "--plot", "page.zip")
    assert code == 2
    assert "--plot page.zip" in err
    assert run(capsys, "real.csv", "fake.csv", "--budget", 2.6, "--plot", "missing/page.png")[0] == 1


def test_scores_that_are_missing_are_refused_or_left_out(scores, capsys):
    real, fake = (x.copy() for x in scores)
    real[[5, 7, 9]], fake[4] = np.nan, np.inf
    write("real.csv", real)
    write("fake.csv", fake)
    code, _, err = run(capsys, "real.csv", "fake.csv", "--budget", 2.6)
    assert (code, "3 of 600 cells here" in err, "--skip-bad" in err) == (2, True, True)
    code, out, err = run(capsys, "real.csv", "fake.csv", "--budget", 2.6, "--skip-bad")
    assert (code, out.split()[0]) == (0, "FIT")
    assert err == "left out 3 of 600 rows without a score\nleft out 1 of 600 rows without a score\n"


def test_probabilities_are_read_as_such(scores, capsys):
    for name, x in zip(("real", "fake"), scores, strict=True):
        write(f"{name}.csv", 1 / (1 + np.exp(-x)), "p")
    code, out, _ = run(capsys, "real.csv", "fake.csv", "--column", "p", "--kind", "probability", "--budget", 2.6)
    assert (code, out.split()[0]) == (0, "FIT")


@pytest.mark.parametrize("kind", ["hinge", "wgan", "lsgan"])
def test_outputs_of_a_critic_without_a_ratio_are_unfit(scores, capsys, kind):
    code, out, _ = run(capsys, "real.csv", "fake.csv", "--kind", kind, "--budget", 2.6)
    assert code == 0
    assert out == f"{diagnose(*scores, 2.6, kind=kind).page(command=True)}\n"
    assert out.startswith("UNFIT")


def test_signs_are_taken_for_a_hinge_critic_unless_an_option_says_what_they_are(scores, capsys):
    write("real.csv", np.sign(scores[0] - 0.25))  # of two normals half a deviation apart: log r is 0.4 or -0.4
    write("fake.csv", np.sign(scores[1] + 0.25))
    for options, is_hinge in (([], True), (["--kind", "log_ratio"], False)):
        out = run(capsys, "real.csv", "fake.csv", *options, "--budget", 2.6)[1]
        assert ("hinge" in out.split("do  ")[0]) == is_hinge


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["real.csv", "fake.csv"], "--budget"),
        (["real.csv", "short.csv", "--budget", 2], "at least 100 held-out scores of each kind, got 600 real and 9"),
        (["rewards.csv", "fake.csv", "--budget", 2], "a reward has no real samples"),
        (["real.csv", "fake.csv", "--budget", 2, "--kind", "hing"], "unknown kind 'hing'; did you mean 'hinge'?"),
        (["real.csv", "fake.csv", "--budget", 2, "--kind", "reward"], "a reward has no real samples"),
    ],
)
def test_a_mistake_gets_one_line(scores, capsys, arguments, words):
    write("short.csv", scores[1][:9])
    write("rewards.csv", scores[0], "reward")
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert words in err
    assert err.count("\n") == 1
