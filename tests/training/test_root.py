"""The quick root of a batch is that of the general solver, or it says that it is not for it."""

from math import inf

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from obrs.budget import acceptance_rate, solve_log_c
from obrs.training.root import batch_root
from obrs.training.window import solve_rejection

BATCHES = st.lists(st.floats(-280, 280), min_size=1, max_size=40)
TIES = st.lists(st.sampled_from([-3.0, -0.5, 0.0, 0.25, 2.0]), min_size=1, max_size=40)


@given(BATCHES | TIES, st.floats(1, 50) | st.sampled_from([1.0, 2.0, 4.0]))
def test_the_root_is_that_of_the_general_solver(values, budget):
    x = np.array(values)
    log_c, log_rate = batch_root(x, budget)
    assert log_c == pytest.approx(float(solve_log_c(x, budget)), rel=1e-12, abs=1e-11)
    assert np.exp(log_rate) == pytest.approx(float(acceptance_rate(x, log_c)), rel=1e-9)


@pytest.mark.parametrize("size", [64, 256, 5000])
@pytest.mark.parametrize("budget", [1.0, 1.3, 2.0, 8.0, 1e4])
def test_a_batch_of_float32_gives_what_the_general_solver_gives(size, budget):
    x = torch.randn(size, generator=torch.Generator().manual_seed(size))
    rejection = solve_rejection(x, budget)
    assert rejection.log_c.dtype == rejection.log_rate.dtype == torch.float32
    torch.testing.assert_close(rejection.log_c, solve_log_c(x, budget))
    torch.testing.assert_close(rejection.log_rate.exp(), acceptance_rate(x, rejection.log_c))


@pytest.mark.parametrize("odd", [np.nan, inf, -inf, -700.0])
def test_what_is_odd_is_left_to_the_general_solver(odd):
    x = np.array([0.0, 1.0, odd, 0.5])
    assert batch_root(x, 2.0) is None
    through = solve_rejection(torch.from_numpy(x), 2.0)
    assert torch.equal(through.log_c, solve_log_c(torch.from_numpy(x), 2.0, check=False))
