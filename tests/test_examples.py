"""Every script of `examples/` is run, and prints what examples/README.md says that it prints."""

import re
import runpy
from functools import cache
from math import log
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What other tests run: those of BigGANs, of training, and of language models.
ELSEWHERE = {"finetune", "train_lightning", "train_loop", "trl_rollout", "verl_rollout", "minimal"}
SCRIPTS = sorted({path.stem for path in (ROOT / "examples").glob("*.py")} - ELSEWHERE)
TRAINED = {"conditional_shares", "diffusers_scorer", "early_rejection", "torch_gan"}  # five to ten seconds each
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
ENVIRONMENT = {"MPLBACKEND": "Agg", "NO_COLOR": "1"}


def numbers(line):
    return [float(number) for number in NUMBER.findall(line)]


def words(text):
    """The text without its numbers and spaces."""
    return NUMBER.sub("#", text).split()


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
def readme_outputs():
    """What examples/README.md says that each script prints."""
    text = (ROOT / "examples" / "README.md").read_text()
    form = r"```console\n\$ (?:PYTHONPATH=\. )?python examples/(\w+)\.py\n(.*?)```"
    return dict(re.findall(form, text, flags=re.DOTALL))


def test_the_readme_has_the_output_of_every_script():
    assert set(readme_outputs()) == set(SCRIPTS)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in TRAINED)) for name in SCRIPTS])
def test_a_script_prints_what_the_readme_says(name, run):
    """The same words, and numbers that are near: other versions of libraries round in other ways."""
    needed = {"diffusers_scorer": "diffusers", "early_rejection": "diffusers", "jit_accept": "jax"}
    pytest.importorskip(needed.get(name, "numpy"))
    printed, expected = run(name), readme_outputs()[name]
    assert words(printed) == words(expected)
    assert numbers(printed) == pytest.approx(numbers(expected), rel=0.3 if name in TRAINED else 0.05, abs=0.02)


def test_the_minimal_example_shows_what_each_budget_buys(run):
    rows = [numbers(line) for line in run("minimal").splitlines() if re.match(r" +\d", line)]
    assert [row[0] for row in rows] == [1, 1.5, 2, 3, 4]
    for budget, rate, before, after, *_ in rows[:4]:
        assert rate == pytest.approx(1 / budget, abs=0.01)
        assert before - log(budget) < after + 1e-3 <= before + 1e-3
    assert rows[2][3] == pytest.approx(0.0646, abs=1e-3)  # by quadrature, as the errata have it
    assert rows[4][3] == 0
