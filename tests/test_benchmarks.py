"""What the benchmarks share: a record, turns, and a loop over all of them."""

import ast
import importlib.util
import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import obrs

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("bench", ROOT / "benchmarks" / "bench.py")
bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench)


def test_a_record_has_what_was_asked_what_was_found_and_versions(tmp_path):
    out = tmp_path / "new" / "bench-x.json"
    bench.write(out, "x", {"n": 3}, ("numpy",), rows=[{"met": True}], more=1)
    record = json.loads(out.read_text())
    assert list(record) == ["benchmark", "config", "rows", "more", "versions"]
    assert list(record["versions"]) == ["obrs", "numpy", "python"]
    assert record["versions"]["obrs"] == obrs.__version__
    bench.write(None, "x", {})


@pytest.mark.parametrize("path", bench.BENCHMARKS.values(), ids=bench.BENCHMARKS)
def test_every_benchmark_takes_its_options_and_writes_its_record_by_the_same_functions(path):
    code = path.read_text()
    called = {getattr(node.func, "attr", getattr(node.func, "id", "")) for node in ast.walk(ast.parse(code))
              if isinstance(node, ast.Call)}  # fmt: skip
    assert {"options", "write"} <= called
    assert "ArgumentParser" not in called


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "results").glob("*.json")), ids=lambda p: p.stem)
def test_every_committed_record_is_of_a_benchmark(path):
    assert path.stem in bench.BENCHMARKS
    assert json.loads(path.read_text())["benchmark"] == path.stem


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux forgets a peak")
def test_the_largest_copy_of_a_choice_of_rollouts_is_below_the_input(tmp_path, monkeypatch):
    """What was asked for; memory that is added for a while is not a copy."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    out, size = tmp_path / "bench-rollout.json", ["--rows", "256", "--length", "8192", "--repeats", "1"]
    script = str(ROOT / "benchmarks" / "rollout.py")
    done = subprocess.run([sys.executable, script, *size, "--out", out], check=False)
    assert done.returncode == 0
    rows = json.loads(out.read_text())["rows"]
    assert [row["level"] for row in rows] == ["sequence", "group", "token"]
    assert all(row["met"] for row in rows)
    copies = [row["largest_copy_bytes"] / row["input_bytes"] for row in rows]
    assert copies == pytest.approx([1 / 9, 1 / 9, 4 / 9], rel=0.1)  # the mask of the kept, and one log-ratio per token
    largest = runpy.run_path(script)["largest_tensor"]
    x = torch.ones(1000)
    assert largest(lambda: (x[None], x + 1, torch.cat([x, x]))) == 8000
