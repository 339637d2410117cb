"""The faults of tools/mutants.py can still be planted, and the tests that must catch them are still there."""

import ast
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MUTANTS = runpy.run_path(str(ROOT / "tools" / "mutants.py"))["MUTANTS"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault)
def test_a_fault_can_be_planted_and_its_test_exists(mutant):
    assert (ROOT / "src" / "obrs" / mutant.file).read_text().count(mutant.old) == 1
    file, *names = mutant.node.split("::")
    inside = ast.parse((ROOT / file).read_text())
    for name in names:
        inside = next(node for node in inside.body if getattr(node, "name", None) == name)
