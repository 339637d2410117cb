"""The quick roots of a batch are those of the general solver, or say that it is not for them."""

from math import inf

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from obrs.budget import acceptance_rate, solve_log_c
from obrs.training import root, window
from obrs.training.root import batch_root, device_root
from obrs.training.window import solve_rejection

BATCHES = st.lists(st.floats(-280, 280), min_size=1, max_size=40)
WIDE = st.lists(st.floats(-700, 700, width=32), min_size=1, max_size=40)
BUDGETS = st.floats(1, 50) | st.sampled_from([1.0, 2.0, 4.0])
TIES = st.lists(st.sampled_from([-3.0, -0.5, 0.0, 0.25, 2.0]), min_size=1, max_size=40)


@given(BATCHES | TIES, BUDGETS)
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


# --- on a device ----------------------------------------------------------------------------------------------------


def assert_is_the_root(x, budget, rounding):
    """Equal to the general solver's to so much: of numbers as large as those in `x`, and of what is accepted."""
    log_c, log_rate = device_root(x, budget)
    assert log_c.dtype == log_rate.dtype == x.dtype
    assert log_c.shape == log_rate.shape == ()
    wide = x.double()
    exact = float(solve_log_c(wide, budget))
    if budget == 1:
        assert (float(log_c), float(log_rate)) == (inf, 0.0)
        return
    slack = rounding * (1 + float(wide.abs().max()))
    rate = float(acceptance_rate(wide, exact))
    assert float(acceptance_rate(wide, float(log_c))) == pytest.approx(rate, rel=4 * slack)
    assert float(log_rate) == pytest.approx(np.log(rate), abs=4 * slack)
    # a change of the rate by `slack` moves log c by that over the share that is not accepted for sure
    left = float(torch.where(wide + exact < 0, (wide + exact).exp(), 0.0).mean())
    if left > 100 * slack:
        assert float(log_c) == pytest.approx(exact, abs=4 * slack / left)


@given(BATCHES | TIES | WIDE, BUDGETS, st.sampled_from([torch.float32, torch.float64]))
def test_the_root_on_a_device_is_that_of_the_general_solver(values, budget, dtype):
    assert_is_the_root(torch.tensor(values, dtype=dtype), budget, 4 * torch.finfo(dtype).eps)


@given(values=BATCHES | TIES | WIDE, budget=BUDGETS)
def test_the_root_on_a_device_without_float64_is_that_of_the_general_solver(values, budget):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(root, "_WITHOUT_FLOAT64", {"cpu"})
        assert_is_the_root(torch.tensor(values), budget, 4 * torch.finfo(torch.float32).eps)


@pytest.mark.parametrize("size", [1, 2, 64, 5000])
@pytest.mark.parametrize("budget", [1.0, 1.3, 2.0, 8.0, 1e4, 1e300])
def test_the_root_on_a_device_is_that_on_the_host(size, budget):
    x = torch.randn(size, generator=torch.Generator().manual_seed(size), dtype=torch.float64)
    for here, there in zip(device_root(x, budget), batch_root(x.numpy(), budget), strict=True):
        assert float(here) == pytest.approx(there, rel=1e-12, abs=1e-12)


def test_the_root_on_a_device_beyond_exact_rejection_is_the_largest_ratio():
    x = torch.tensor([2.0, 1.0, 0.5, 0.5]).log()
    log_c, log_rate = device_root(x, 8.0)
    assert log_c == -x.max()
    assert float(log_rate.exp()) == pytest.approx(0.5)


@pytest.mark.parametrize("budget", [1.5, 2.0, 3.0, 50.0])
@pytest.mark.parametrize("values", [[0.0, np.nan, 1.0], [np.nan], [np.nan, np.nan, -inf]])
def test_a_nan_on_a_device_gives_nan(values, budget):
    assert all(map(torch.isnan, device_root(torch.tensor(values), budget)))


@pytest.mark.parametrize("budget", [1.1, 2.0, 3.0, 50.0])
def test_ratios_of_zero_on_a_device_are_never_accepted(budget):
    x = torch.tensor([-inf, 0.0, -inf, 1.0, -inf])
    log_c, log_rate = device_root(x, budget)
    torch.testing.assert_close(log_c, solve_log_c(x, budget, check=False))
    torch.testing.assert_close(log_rate.exp(), torch.clamp(x + log_c, max=0.0).exp().mean())


class Operations(TorchDispatchMode):
    """Note the operations that are dispatched, as kernels are on an accelerator."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("budget", [1.0, 2.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_root_on_a_device_takes_few_operations_and_no_look(dtype, budget):
    x = torch.randn(256, dtype=dtype, requires_grad=True)
    with Operations() as seen:
        log_c, log_rate = device_root(x, budget)
    assert len(seen.names) <= 30
    assert not [name for name in seen.names if "_local_scalar_dense" in name or "nonzero" in name]
    assert not log_c.requires_grad
    assert not log_rate.requires_grad


def test_tensors_on_a_device_are_solved_there(monkeypatch):
    monkeypatch.setattr(window, "batch_root", None)
    rejection = solve_rejection(torch.empty(8, device="meta"), 2.0)  # has no values to look at
    assert rejection.log_c.device.type == rejection.log_rate.device.type == "meta"
