"""Notebooks run in fresh kernels from top to bottom, and show plots and progress bars."""

import importlib.util
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = sorted(path.stem for path in (ROOT / "notebooks").glob("*.py"))
NEEDED = {"cifar10": "efficientnet_lite_pytorch", "pipeline": "diffusers", "parquet": "duckdb"}


@pytest.fixture(scope="module")
def tool():
    for module in ("jupytext", "nbclient", "ipykernel"):
        pytest.importorskip(module)
    spec = importlib.util.spec_from_file_location("notebooks_tool", ROOT / "tools" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_six_and_the_site_shows_them():
    assert len(NAMES) == 6
    hooks = (ROOT / "docs" / "hooks.py").read_text()
    assert all(f'"{name}"' in hooks for name in NAMES)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_notebook_runs_and_shows_what_it_draws(name, tool):
    pytest.importorskip(NEEDED.get(name, "matplotlib"))
    if (
        name == "cifar10"
        and not (Path(os.environ.get("OBRS_DATA") or "~/.cache/obrs").expanduser() / "cifar10").is_dir()
    ):
        pytest.skip("needs python -m paper fetch cifar10")
    outputs = [output for cell in tool.run(name).cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert name not in ("two_moons", "cifar10") or any("fitting" in str(output) for output in outputs)
