"""The benchmark of the ratios runs, in miniature, from the GANs to the JSON."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from obrs.ratios.calibration import CALIBRATIONS

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    out = tmp_path_factory.mktemp("bench") / "ratios.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["ratios.py", "--quick", "--out", str(out)])
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        runpy.run_path(str(ROOT / "benchmarks" / "ratios.py"), run_name="__main__")
    return json.loads(out.read_text())


@pytest.mark.parametrize("case", ["gaussians", "noisy digits"])
def test_every_contestant_has_every_column_at_every_budget(record, case):
    rows = record[case]["rows"]
    kinds = [row["kind"] for row in rows]
    calibrations = {row["contestant"] for row in rows if row["kind"] == "calibration"}
    assert set(CALIBRATIONS) - {"identity"} <= calibrations
    assert kinds.count("raw") == 1
    assert kinds.count("refit") >= 3
    assert kinds.count("exact") == (case == "gaussians")
    columns = set(record[case]["no rejection"]) | {"rate"}
    for row in rows:
        assert list(row["budgets"]) == ["1.5", "2.6", "5"]
        assert all(set(found) == columns for found in row["budgets"].values())


def test_exact_ratio_is_better_than_the_discriminators(record):
    rows = {row["contestant"]: row["budgets"]["5"] for row in record["gaussians"]["rows"]}
    assert rows["exact ratio"]["high quality"][0] > rows["raw discriminator"]["high quality"][0]
    assert record["gaussians"]["target"]["ceiling"] > record["gaussians"]["no rejection"]["high quality"][0]
