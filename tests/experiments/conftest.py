import warnings

import pytest
from language_model import need_language_model

from obrs import experiments


@pytest.fixture(scope="session")
def smoke():
    """The record of an experiment's smoke preset by name; each is run once."""
    made = {}

    def of(name):
        if name not in made:
            if name == "language":
                need_language_model()
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "the two sets hardly overlap")  # so few steps make poor models
                warnings.filterwarnings("ignore", "groups with fewer than")  # so few proposals
                made[name] = experiments.reproduce(name, "smoke", progress=False)
        return made[name]

    return of
