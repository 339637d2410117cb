"""The parts that every fit is made of: loop, order of the data, seeds, penalty and files of tensors."""

import numpy as np
import pytest
import torch
from torch import nn

from obrs.errors import InputError
from obrs.fitting.loop import descend, fit, fit_best
from obrs.fitting.penalty import gradient_penalty
from obrs.fitting.seeds import Shuffled, derive, new_rng
from obrs.fitting.tensors import read_tensors, write_tensors

X = torch.linspace(-1.0, 1.0, 9)[:, None]


def line():
    module = nn.Linear(1, 1)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    return module


def error(module, target=3.0):
    return (module(X) - target * X).square().mean()


# The loop


def test_a_fit_is_adam_written_out_by_hand():
    ours, by_hand = line(), line()
    adam = torch.optim.Adam(ours.parameters(), lr=0.1)
    values = fit(lambda step: error(ours, target=step), adam, 5, schedule=torch.optim.lr_scheduler.StepLR(adam, 2, 0.5))
    adam, expected = torch.optim.Adam(by_hand.parameters(), lr=0.1), []
    for step in range(5):
        adam.param_groups[0]["lr"] = 0.1 * 0.5 ** (step // 2)
        loss = error(by_hand, target=step)
        adam.zero_grad()
        loss.backward()
        adam.step()
        expected.append(loss.detach())
    assert torch.equal(values, torch.stack(expected))
    assert torch.equal(ours.weight, by_hand.weight)


def test_the_best_fit_is_adam_with_an_average_written_out_by_hand():
    """Warm-up, cosine, and a moving average that starts at the weights of the first step."""
    steps, lr, by_hand, seen = 60, 0.1, line(), []
    fit_best(line(), lambda m, step: error(m), lambda m: seen.append(m.weight.item()) or 1.0, steps=steps, lr=lr)
    adam = torch.optim.Adam(by_hand.parameters(), lr=lr, betas=(0.9, 0.99))
    mean, expected = by_hand.weight.detach().clone(), []
    for step in range(steps):
        if step % 6 == 0 or step in (1, 3):
            expected.append(mean.item())
        adam.param_groups[0]["lr"] = (
            lr * min(1, (step + 1) / (1 + 0.03 * steps)) * (1 + np.cos(np.pi * step / steps)) / 2
        )
        descend(adam, error(by_hand))
        decay = 0.0 if step == 0 else min(0.998, (1 + step) / (10 + step))
        mean = decay * mean + (1 - decay) * by_hand.weight.detach()
    np.testing.assert_allclose(seen, expected[: len(seen)], rtol=1e-4, atol=1e-6)


def test_the_weights_that_did_best_are_kept_and_the_fit_stops():
    judged = iter([*[5.0] * 5, 4.0, 1.0, *[2.0] * 40])
    module, seen = line(), []

    def judge(averaged):
        seen.append(averaged.weight.item())
        return next(judged)

    course = fit_best(module, lambda m, step: error(m), judge, steps=600, lr=0.1)
    assert course.stopped == "no better held-out loss after step 40"
    assert course.steps == 240
    assert [loss for _, loss in course.history] == [*[5.0] * 5, 4.0, 1.0, *[2.0] * 10]
    assert module.weight.item() == seen[6]
    assert not module.training
    assert not module.weight.requires_grad


def test_weights_that_overfit_soon_are_judged_before_they_do():
    module = line()
    fit_best(module, lambda m, step: error(m, 10.0), lambda m: error(m, 1.0).item(), steps=3000, lr=0.1)
    assert error(module, 1.0).item() < 0.5 * error(line(), 1.0).item()


def test_ctrl_c_leaves_the_best_weights_so_far():
    module, seen = line(), []

    def loss(module, step):
        if step == 31:
            raise KeyboardInterrupt
        return error(module)

    course = fit_best(module, loss, lambda m: seen.append(m.weight.item()) or float(error(m)), steps=60, lr=0.1)
    assert (course.steps, course.stopped) == (31, "interrupted at step 31")
    assert module.weight.item() == seen[-1]


# The order of the data, and seeds


@pytest.mark.parametrize("batch", [1, 3, 10, 25])
def test_all_rows_are_seen_before_any_is_seen_again(batch):
    orders = [np.random.default_rng(epoch).permutation(10) for epoch in range(20)]
    shuffled = Shuffled(10, lambda epoch: orders[epoch])
    rows = np.concatenate([shuffled.rows(at, at + batch) for at in range(0, 50, batch)])
    np.testing.assert_array_equal(rows, np.concatenate(orders)[: len(rows)])
    np.testing.assert_array_equal(shuffled.rows(35, 47), np.concatenate(orders)[35:47])


def test_keys_that_differ_give_streams_that_differ():
    keys = [(0,), (1,), (0, "a"), (0, "b"), (0, "a", 1), (0, "a", 11), (0, "a", 1, 1), (0, 1)]
    assert len({derive(*key) for key in keys}) == len(keys)
    assert all(0 <= derive(*key) < 2**63 for key in keys)
    x = torch.stack([torch.rand(4000, generator=new_rng(*key)) for key in keys])
    assert torch.corrcoef(x).fill_diagonal_(0.0).abs().max() < 5 / 4000**0.5


# The penalty


def test_the_penalty_is_that_of_the_exact_slope():
    real, fake = torch.randn(16, 3), torch.randn(16, 3)
    mix = torch.rand(16)
    between = mix[:, None] * real + (1 - mix[:, None]) * fake
    value = gradient_penalty(lambda x: x.square().sum(1), real, fake, mix, centre=0.5)
    torch.testing.assert_close(value, (2 * between.norm(dim=1) - 0.5).square().mean())
    with pytest.raises(InputError, match="real and fake must have one shape"):
        gradient_penalty(lambda x: x[:, 0], real, fake[:8], mix)


# Files of tensors


def test_tensors_of_any_layout_and_dtype_come_back(tmp_path):
    x = torch.ones(3)
    tensors = {
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "narrow": torch.ones(3, dtype=torch.bfloat16),
        "count": torch.tensor(7),
        "shared": x,
        "shared again": x,
    }
    facts = {"step": 3, "names": ["a", None], "nested": {"x": 0.5}}
    write_tensors(tmp_path / "x", tensors, facts)
    read, beside = read_tensors(str(tmp_path / "x"), "a test")
    assert beside == facts
    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], x) and read[name].dtype == x.dtype for name, x in tensors.items())
    with pytest.raises(TypeError):
        write_tensors(tmp_path / "x", tensors, {"step": object()})
    assert read_tensors(tmp_path / "x", "a test")[1] == facts
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
