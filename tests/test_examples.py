"""Every script of `examples/` is run, and what it prints is true; so is what examples/README.md says that it prints."""

import re
import runpy
from functools import cache
from math import hypot, log, sqrt
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What other tests run: those of BigGANs, of training, and of language models.
ELSEWHERE = {"finetune", "train_lightning", "train_loop", "trl_rollout", "verl_rollout"}
SCRIPTS = sorted({path.stem for path in (ROOT / "examples").glob("*.py")} - ELSEWHERE)
LONG = {"minimal"}  # it also draws a figure
TRAINED = {"conditional_shares", "diffusers_scorer", "early_rejection", "torch_gan"}  # five to ten seconds each
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
ENVIRONMENT = {"MPLBACKEND": "Agg", "NO_COLOR": "1"}


def numbers(line):
    return [float(found) for found in NUMBER.findall(line)]


def words(text):
    """The text without its numbers and spaces."""
    return NUMBER.sub("#", text).split()


def of_share(share, n):
    """Four standard errors of a share that was counted among n."""
    return 4 * sqrt(share * (1 - share) / n)


def of_budget(budget, n, pilot):
    """Four standard errors, at most, of the proposals per kept sample, with c fitted on a pilot."""
    return 4 * budget * sqrt((1 - 1 / budget) * (1 / n + budget / pilot))


# One function for each script: what must be true of the lines that it prints.


def torch_gan(lines):
    (near, left), (_, near_kept, left_kept) = numbers(lines[0]), numbers(lines[1])[-3:]
    assert abs(numbers(lines[1])[1] - 3) < of_budget(3, 5000, 4096)
    assert near_kept - near > 100 * hypot(of_share(near / 100, 5000), of_share(near_kept / 100, 5000))
    assert 0.1 < left - left_kept < left  # of total variation


def conditional_shares(lines):
    real, none, one, each, shares = ([float(x) for x in line.split("%")[1].split()] for line in lines[1:])

    def drift(row):
        return max(abs(a - b) for a, b in zip(row[:10], real, strict=True))

    tolerance = 100 * hypot(of_share(0.1, 2000), 0.1 * of_budget(4, 1e9, 4096 / 10) / 4)
    assert drift(shares) < tolerance
    assert max(abs(a - 10) for a in each[:10]) < tolerance
    assert drift(one) > 2 * max(drift(none), drift(shares))
    assert one[10] > max(none[10], each[10], shares[10])


def diffusers_scorer(lines):
    right, (share, n), (one_in, kept, n_kept) = numbers(lines[0])[0], numbers(lines[1]), numbers(lines[2])[-3:]
    assert right > 90
    assert one_in == 8
    assert kept - share > 100 * hypot(of_share(share / 100, n), of_share(kept / 100, n_kept))


def early_rejection(lines):
    (correlation,), (kept, begun, finished, cost) = numbers(lines[0])[-1:], numbers(lines[1])
    assert correlation > 0.5
    assert kept < finished < begun == 1024
    assert abs(kept / begun - 1 / (1.3 * 1.55)) < hypot(of_share(0.5, 1024), of_share(0.5, 768))
    assert abs(cost - (begun + finished) / 2 / kept) < 0.01
    assert cost < begun / kept - 0.1
    assert numbers(lines[2])[0] > 4 / sqrt(kept)


def log_densities(lines):
    before, after = numbers(lines[0])
    kept, proposed, worth = numbers(lines[1])
    assert 0 < before - after < log(4)
    assert abs(proposed / kept - 4) < of_budget(4, kept, 20_000)
    assert 0.5 * kept < worth < kept
    (exact,), (plain,), unbiased = (numbers(line.replace("95 %", "")) for line in lines[2:])
    assert plain < exact - 2 * (unbiased[2] - unbiased[1]), "what is kept is not the target"
    assert unbiased[1] < exact < unbiased[2]


def scored_folder(lines):
    assert numbers(lines[0]) == [200, 1000]
    folder, chosen = (share / 100 for share in numbers(lines[1]))
    assert abs(folder - 0.5) < of_share(0.5, 1000)
    assert folder - chosen > hypot(of_share(folder, 1000), of_share(chosen, 200))


def jit_accept(lines):
    n, proposed, one_in, budget = (numbers(lines[0])[i] for i in (0, 1, 3, 5))
    assert abs(proposed / n - one_in) < 0.01
    assert abs(one_in - budget) < of_budget(budget, n, 20_000)
    near, near_kept = (numbers(line)[0] / 100 for line in lines[1:3])
    assert near_kept - near > hypot(of_share(near, n), of_share(near_kept, n))
    assert [numbers(line)[-1] for line in lines[1:3]] == [8, 8]


def rollout_thresholds(lines):
    for line in lines[2:]:
        trained, _, tv, keep, threshold, ess, tv_kept = numbers(line)[-7:]
        assert 0 < ess <= 1
        if line.startswith("truncate"):  # the same law with fewer backward passes
            assert (tv, threshold) == (tv_kept, numbers(line)[0])
            assert keep < trained == 100
        else:
            assert keep == trained
            assert tv_kept < tv or line.startswith("drop"), "no mask without weights leaves less"


def signed_weights(lines):
    lifetime, net = numbers(lines[0])[1], sqrt(numbers(lines[3])[1])
    (_, total, mean, error), (n, total_kept, mean_kept, error_kept) = map(numbers, lines[1:3])
    assert n == 2000
    assert abs(total_kept - total) < 2 * total / net / n + 0.1  # 2/c, and 1/c is at most the mean of |w| over n
    assert abs(mean - lifetime) < 4 * error
    assert abs(mean_kept - lifetime) < 4 * error_kept
    assert error_kept < error * sqrt(10), "a kept event must be worth more than any event"


def minimal(lines):
    rows = [numbers(line) for line in lines if re.match(r" +\d", line)]
    assert [row[0] for row in rows] == [1, 1.5, 2, 3, 4]
    for budget, rate, before, after, *_ in rows[:4]:
        assert abs(rate - 1 / budget) <= sqrt(2) * of_share(1 / budget, 100_000) + 5e-4
        assert before - log(budget) < after + 1e-3 <= before + 1e-3
    assert abs(rows[2][3] - 0.0646) < 1e-3  # by quadrature, as the errata have it
    assert rows[4][3] == 0
    assert rows[4][1] > 0.25


CHECKS = {
    check.__name__: check
    for check in (
        conditional_shares,
        diffusers_scorer,
        early_rejection,
        jit_accept,
        log_densities,
        minimal,
        rollout_thresholds,
        scored_folder,
        signed_weights,
        torch_gan,
    )
}


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a script in a folder of its own, in this process; return what it prints."""
    monkeypatch.chdir(tmp_path)
    for key, value in ENVIRONMENT.items():
        monkeypatch.setenv(key, value)

    def run(name, *arguments):
        script = str(ROOT / "examples" / f"{name}.py")
        monkeypatch.setattr("sys.argv", [script, *map(str, arguments)])
        runpy.run_path(script, run_name="__main__")
        out, err = capsys.readouterr()
        assert not err
        return out

    return run


@cache
def in_the_readme():
    """What examples/README.md says that each script prints."""
    text = (ROOT / "examples" / "README.md").read_text()
    form = r"```console\n\$ (?:PYTHONPATH=\. )?python examples/(\w+)\.py\n(.*?)```"
    return dict(re.findall(form, text, flags=re.DOTALL))


def test_every_script_has_an_expectation():
    assert set(SCRIPTS) == set(CHECKS)


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in LONG])
def test_scripts_say_how_they_are_run(name):
    text = (ROOT / "examples" / f"{name}.py").read_text()
    assert f"python examples/{name}.py" in text.split('"""')[1]


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in TRAINED)) for name in CHECKS])
def test_what_a_script_prints_is_right(name, run):
    needed = {"diffusers_scorer": "diffusers", "early_rejection": "diffusers", "jit_accept": "jax"}
    pytest.importorskip(needed.get(name, "numpy"))
    printed = run(name)
    CHECKS[name](printed.splitlines())
    assert name in LONG or words(printed) == words(in_the_readme()[name])


def test_readme_has_the_output_of_every_short_script():
    assert set(in_the_readme()) == set(CHECKS) - LONG


@pytest.mark.parametrize("name", [name for name in CHECKS if name not in LONG])
def test_what_the_readme_says_that_a_script_prints_is_right(name):
    CHECKS[name](in_the_readme()[name].splitlines())
