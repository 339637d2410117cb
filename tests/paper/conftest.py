import warnings
from pathlib import Path

import pytest
from language_model import need_language_model

import paper
from paper import harness
from paper.record import load


@pytest.fixture(scope="session")
def smoke():
    """The record of an experiment's smoke preset by name; each is run once."""
    records = {}

    def find_record(name):
        if name not in records:
            if name == "language":
                need_language_model()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "the two sets hardly overlap")  # so few steps make poor models
                warnings.filterwarnings("ignore", "groups with fewer than")  # so few proposals
                records[name] = harness.reproduce(name, "smoke", progress=False)
        return records[name]

    return find_record


@pytest.fixture(scope="session")
def committed_record():
    """The record in paper/results, by name."""
    return lambda name: load(Path(paper.__file__).parent / "results" / f"{name}.json")


@pytest.fixture(params=["smoke", "committed_record"])
def record_of(request):
    """A record by name: of the smoke preset, and as it is committed."""
    return request.getfixturevalue(request.param)
