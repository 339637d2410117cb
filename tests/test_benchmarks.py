"""What the benchmarks share: a record, turns, and a loop over all of them."""

import importlib.util
import json
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


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "results").glob("*.json")), ids=lambda p: p.stem)
def test_every_committed_record_is_of_a_benchmark(path):
    assert path.stem in bench.BENCHMARKS
    assert json.loads(path.read_text())["benchmark"] == path.stem
