"""What the benchmarks share: a record, turns, and a loop over all of them."""

import ast
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


def test_contestants_take_turns_after_a_warm_up():
    called = []
    rounds = bench.take_turns({"a": lambda: called.append("a"), "b": lambda: called.append("b")}, 3)
    assert called == ["a", "b"] * 4
    assert len(rounds) == 3
    assert list(bench.medians(rounds)) == ["a", "b"]


def test_a_missed_target_is_an_exit_code():
    assert bench.missed([{"met": True}, {"met": None}, {}]) == 0
    assert bench.missed([{"met": True}, {"met": False}]) == 1
    assert bench.goal(0.5, False, " s") == "<= 0.5 s MISSED"
    assert bench.goal(None, None) == ""


@pytest.mark.parametrize("path", bench.BENCHMARKS.values(), ids=bench.BENCHMARKS)
def test_every_benchmark_takes_its_options_and_writes_its_record_by_the_same_functions(path):
    code = path.read_text()
    called = {getattr(node.func, "attr", getattr(node.func, "id", "")) for node in ast.walk(ast.parse(code))
              if isinstance(node, ast.Call)}  # fmt: skip
    assert {"options", "write"} <= called
    assert "ArgumentParser" not in called


@pytest.mark.parametrize("path", sorted((ROOT / "results").glob("bench-*.json")), ids=lambda p: p.stem)
def test_every_committed_record_is_of_a_benchmark(path):
    assert path.stem.removeprefix("bench-") in bench.BENCHMARKS
    assert json.loads(path.read_text())["benchmark"] == path.stem.removeprefix("bench-")


def test_an_unknown_benchmark_is_named(capsys):
    with pytest.raises(SystemExit):
        bench.main(["solvr"])
    assert "unknown benchmark solvr" in capsys.readouterr().err
