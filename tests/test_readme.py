"""The README and the docs say what the committed results say, and what the metadata say."""

import json
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import obrs
from obrs import __version__
from paper import harness
from paper.__main__ import main
from paper.record import load
from paper.registry import EXPERIMENTS

tomllib = pytest.importorskip("tomllib")  # Python 3.11

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "paper" / "results"


def test_tables_come_from_the_results():
    done = subprocess.run([sys.executable, ROOT / "tools" / "readme.py", "--check"], check=False)
    assert done.returncode == 0, "run python tools/readme.py"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_tables_that_pages_include_come_from_the_records(name):
    found = (RESULTS / f"{name}.md").read_text()
    assert found == harness.markdown(load(RESULTS / f"{name}.json")), f"run python -m paper redraw {name}"
    assert "](" not in found, "pages of several folders include it, so it has no links"


def test_table_and_picture_are_drawn_again_from_a_record(tmp_path, capsys):
    shutil.copy(RESULTS / "figure-pr.json", tmp_path)
    assert main(["redraw", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "figure-pr.md, figure-pr.png\n"
    assert (tmp_path / "figure-pr.md").read_text() == (RESULTS / "figure-pr.md").read_text()
    assert (tmp_path / "figure-pr.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_its_row_in_the_readme_of_paper(name):
    entry, text = EXPERIMENTS[name], (ROOT / "paper" / "README.md").read_text()
    row = re.search(rf"^\| `{name}` \|.*$", text, re.M)[0]
    label, on, _, time = (cell.strip() for cell in row.strip("|").split("|")[1:])
    assert (label, on, time) == (entry.label, entry.on, entry.time)


def test_what_is_said_of_the_fine_tunings_is_in_the_record():
    rows = json.loads((RESULTS / "language.json").read_text())["rows"]
    runs = [row for row in rows if row["row"].startswith("training ")]
    page = (ROOT / "docs" / "evidence" / "language.md").read_text()
    assert "move no run by two standard errors" in page
    assert len(runs) == 9
    assert all(abs(run["change"]) < 2 * run["change_error"] for run in runs)
    seconds = {
        arm: [sum(sum(run[key]) for run in runs if run["arm"] == arm) for key in ("sampling", "training")]
        for arm in ("all", "obrs")
    }
    assert seconds["obrs"][1] / seconds["all"][1] == pytest.approx(1 / 4, abs=0.02)
    assert 1 / 3 < 1 - sum(seconds["obrs"]) / sum(seconds["all"]) < 0.4


def test_no_page_fits_images_on_gradients():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    advised = [page.name for page in pages if re.search("features=.?gradients", page.read_text())]
    assert not advised, "ratio-evidence: with one constant they made the distance of every GAN larger"


def test_the_line_for_images_runs_on_outputs_of_a_classifier_with_one_constant_per_class():
    torch = pytest.importorskip("torch")
    from obrs.ratios.refit import Network, classifier_features

    line = re.search(r"^\| a GAN or diffusion model of images.*$", (ROOT / "README.md").read_text(), re.M)[0]
    x, y = torch.rand(1000, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(1000) % 3
    names = {
        "classifier_features": partial(classifier_features, epochs=1),
        "Network": Network,
        "obrs": SimpleNamespace(refit=lambda *a, **more: obrs.refit(*a, **more | {"steps": 3}), sample=obrs.sample),
        "images": x[:100],
        "labels": y[:100],
        "real": (x, y),
        "propose": lambda ids: (0.9 * x[np.asarray(ids) % 1000], y[np.asarray(ids) % 1000]),
    }
    for code in re.findall("`([^`]+)`", line.split("|")[2]):
        exec(code, names)
    kept = names["kept"]
    assert len(kept) == 2500
    assert kept.rule.labels == (0, 1, 2)


def test_what_is_said_of_table_2_is_in_the_record():
    rows = {row["row"]: row for row in json.loads((RESULTS / "table-2.json").read_text())["rows"]}
    at_budget = {name: rows[name] for name in ("obrs", "drs", "topk")}
    assert "leaves the least divergence of all rejection methods" in (ROOT / "README.md").read_text()
    assert min(at_budget, key=lambda name: at_budget[name]["kl"][0]) == "obrs"
    assert max(at_budget, key=lambda name: at_budget[name]["precision"][0]) == "topk"


def test_python_version_is_that_of_the_metadata():
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = metadata["requires-python"].removeprefix(">=")
    assert f"Python ≥ {wanted}" in (ROOT / "README.md").read_text()


def test_the_version_is_that_of_the_changelog_and_of_the_citation():
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[1] in (__version__, "Unreleased")
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize("extra", ["torch", "jax", "cli", "ray", "all"])
def test_extras_that_are_named_exist(extra):
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extra in metadata["optional-dependencies"]
    assert f"`{extra}`" in (ROOT / "README.md").read_text()


def test_results_have_one_layout():
    wanted = {f"{name}.{kind}" for name in EXPERIMENTS for kind in ("json", "md", "png")}
    assert {path.name for path in RESULTS.iterdir()} == wanted | {"check.json"}
