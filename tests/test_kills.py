"""Runs that are killed at random moments and started again end as if nobody had stopped them.

`python tests/killing.py --kills 60` kills as many as one likes.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("pyarrow")
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["train", "reproduce", "refit", "select", "ray"])
def test_a_run_that_was_killed_ends_as_one_that_was_not(name):
    if name == "ray":
        pytest.importorskip("ray")
    command = [
        sys.executable,
        str(Path(__file__).with_name("killing.py")),
        "--kind",
        name,
        "--kills",
        "5",
        "--seed",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kills"] >= 4
