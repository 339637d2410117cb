import pytest
import torch


@pytest.fixture(autouse=True)
def _seed():
    """Networks start from the same weights in whatever order tests run."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
