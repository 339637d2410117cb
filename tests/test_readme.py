"""The README and the pages say what the committed results say, and what the metadata say."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import obrs
from obrs import __version__
from paper import harness
from paper.harness import EXPERIMENTS
from paper.record import load

tomllib = pytest.importorskip("tomllib")  # Python 3.11

ROOT = Path(__file__).parents[1]
RESULTS, README = ROOT / "paper" / "results", (ROOT / "README.md").read_text()
LINES = re.findall(r"`([^`]+)`", re.search(r"^\| you have \| line \|\n.*?\n\n", README, re.M | re.S)[0])


def rows_of(path):
    return json.loads((ROOT / path).read_text())["rows"]


def test_numbers_come_from_the_records():
    done = subprocess.run([sys.executable, ROOT / "tools" / "readme.py", "--check"], check=False)
    assert done.returncode == 0, "run python tools/readme.py"


def test_the_readme_is_short_and_begins_with_a_number_from_a_record():
    assert len(README.split()) <= 600
    assert re.search(r"\d", README.splitlines()[2])


def test_pages_by_hand_are_at_most_22_with_25000_words():
    pages = sorted((ROOT / "docs").rglob("*.md"))
    assert len(pages) <= 22
    assert sum(len(page.read_text().split()) for page in pages) <= 25_000


@pytest.fixture(scope="module")
def names():
    """What the lines of the README take as given: a small model of points, its ratio, rollouts and events."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    tuning = {"pool": 1500, "progress": False}

    class Quick:
        """The library with a `tune` that makes fewer proposals."""

        def __getattr__(self, name):
            return getattr(obrs, name)

        def tune(self, *given, **options):
            return obrs.tune(*given, **options, **tuning)

    logp = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    return {
        "obrs": Quick(),
        "real": rng.normal(1.0, 1.0, (1500, 2)).astype("float32"),
        "propose": lambda ids: obrs.normals(ids, 2, seed=1).astype("float32"),
        "log_ratio": lambda x: x.sum(axis=1) - 1,
        "labels_of": lambda x: (x[:, 0] > 0).astype(int),
        "logp_train": logp,
        "logp_rollout": logp - 0.1,
        "mask": torch.ones(64, 8, dtype=torch.bool),
        "weight": rng.normal(size=10_000),
    }


@pytest.mark.parametrize("line", [line for line in LINES if "obrs." in line])
def test_every_line_of_python_in_the_readme_works_and_returns_the_same_attributes(line, names):
    exec(line, names)
    if "kept" in line:
        kept = names["kept"]
        assert len(kept) == (16 if "rollout" in line else 2500)
        assert hasattr(kept, "log_weight") or hasattr(kept, "weight")  # signed weights have no logs
        assert hasattr(kept, "index") or hasattr(kept, "x")


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("obrs ")])
def test_every_command_of_the_readme_works(line, tmp_path, monkeypatch):
    from obrs.cli import main as run

    monkeypatch.chdir(tmp_path)
    text = "id,score\n" + "".join(f"{i},{x:.4f}\n" for i, x in enumerate(np.random.default_rng(0).normal(size=5000)))
    Path("scores").mkdir()
    for path in ("scores.csv", "scores/part.csv"):
        Path(path).write_text(text.replace("score", "logit"))
    run(shlex.split(line)[1:])
    out = Path(line.split()[-1])
    kept = out if out.is_file() else next(out.glob("*.csv"))
    assert len(kept.read_text().splitlines()) == 2501


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_tables_that_pages_include_come_from_the_records(name):
    text = (RESULTS / f"{name}.md").read_text()
    assert text == harness.markdown(load(RESULTS / f"{name}.json")), f"run python -m paper redraw {name}"
    assert "](" not in text, "pages of several folders include it, so it has no links"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_its_row_in_the_readme_of_paper(name):
    entry, text = EXPERIMENTS[name], (ROOT / "paper" / "README.md").read_text()
    row = re.search(rf"^\| `{name}` \|.*$", text, re.M)[0]
    label, on, _, time = (cell.strip() for cell in row.strip("|").split("|")[1:])
    assert (label, on, time) == (entry.label, entry.on, entry.time)


def test_what_is_said_of_table_2_is_in_the_record():
    rows = {(row["gan"], row["method"]): row for row in rows_of("paper/results/table-2.json") if "method" in row}
    least = [min(("obrs", "drs", "topk"), key=lambda name, gan=gan: rows[gan, name]["kl"][0]) for gan in range(3)]
    assert least == ["obrs", "topk", "obrs"]
    assert "OBRS leaves the least KL on two of three GANs" in (ROOT / "docs" / "reproduce.md").read_text()
    for gan in range(3):
        assert max(("obrs", "drs", "topk"), key=lambda name, gan=gan: rows[gan, name]["precision"][0]) == "topk"


def test_python_version_and_extras_are_those_of_the_metadata():
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"Python ≥ {metadata['requires-python'].removeprefix('>=')}" in README
    assert all(f"`{extra}`" in README for extra in metadata["optional-dependencies"])


def test_the_version_is_that_of_the_changelog_and_of_the_citation():
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[1] in (__version__, "Unreleased")
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_results_have_one_layout():
    expected = {f"{name}.{kind}" for name in EXPERIMENTS for kind in ("json", "md", "png")}
    assert {path.name for path in RESULTS.iterdir()} == expected | {"check.json"}
