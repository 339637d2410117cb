"""The parts that every fit is made of: loop, average, order of the data, seeds, penalty."""

import numpy as np
import pytest
import torch
from torch import nn

from obrs.errors import InputError
from obrs.fitting.averaging import average, average_weights
from obrs.fitting.batches import Shuffled
from obrs.fitting.loop import descend, fit, fit_best
from obrs.fitting.penalty import gradient_penalty
from obrs.fitting.seeds import derived, keyed, own_noise
from obrs.fitting.tensors import Checkpoint

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


def test_a_step_forgets_the_gradient_before_it():
    x = torch.zeros(1, requires_grad=True)
    x.grad = torch.full((1,), 1e6)
    descend(torch.optim.SGD([x], lr=1.0), (2 * x).sum())
    assert x.item() == -2.0


def test_the_weights_that_did_best_are_kept_and_the_fit_stops():
    judged = iter([5.0, 4.0, 1.0, *[2.0] * 40])
    module, seen = line(), []

    def judge(averaged):
        seen.append(averaged.weight.item())
        return next(judged)

    course = fit_best(module, lambda m, step: error(m), judge, steps=300, lr=0.1, patience=4)
    assert course.stopped == "no better held-out loss after step 20"
    assert course.steps == 60
    assert [loss for _, loss in course.history] == [5.0, 4.0, 1.0, 2.0, 2.0, 2.0, 2.0]
    assert module.weight.item() == seen[2]
    assert not module.training
    assert not module.weight.requires_grad


def test_a_loss_that_is_not_finite_names_the_rate():
    with pytest.raises(InputError, match=r"the loss is nan at step 3; lower lr, 0\.5 is too large here"):
        fit_best(line(), lambda m, step: error(m) * (float("nan") if step == 3 else 1), lambda m: 0.0, steps=9, lr=0.5)


def test_a_fit_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    class Stop(Exception):
        pass

    def run(module, until, path):
        def loss(module, step):
            if step == until:
                raise Stop
            return error(module, target=step % 5)

        kept = None if path is None else Checkpoint(path, {"seed": 0})
        return fit_best(module, loss, lambda m: -float(m.weight.detach()), steps=60, lr=0.1, checkpoint=kept)

    whole, parts = line(), line()
    expected = run(whole, None, None)
    with pytest.raises(Stop):
        run(parts, 31, tmp_path / "fit")
    parts = line()
    found = run(parts, None, tmp_path / "fit")
    assert torch.equal(whole.weight, parts.weight)
    assert (found.steps, found.history) == (expected.steps, expected.history)
    other = line()
    nn.init.ones_(other.weight)
    with pytest.raises(InputError, match=r"is of another fit \(initial weights\); delete it"):
        run(other, None, tmp_path / "fit")


# The average


def test_an_average_of_weights_leaves_buffers_alone():
    layer, mean = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    layer(torch.randn(8, 2) + 5)
    nn.init.constant_(layer.weight, 3.0)
    average_weights(mean, layer, 0.75)
    assert mean.weight.tolist() == [1.5, 1.5]
    assert mean.running_mean.tolist() == [0.0, 0.0]
    average(mean, layer, 0.0)
    assert mean.weight.tolist() == [3.0, 3.0]
    assert torch.equal(mean.running_mean, layer.running_mean)


# The order of the data


@pytest.mark.parametrize("batch", [1, 3, 7, 10, 25])
def test_all_rows_are_seen_before_any_is_seen_again(batch):
    orders = [np.random.default_rng(epoch).permutation(10) for epoch in range(20)]
    shuffled = Shuffled(10, lambda epoch: orders[epoch])
    rows = np.concatenate([shuffled.rows(at, at + batch) for at in range(0, 50, batch)])
    np.testing.assert_array_equal(rows, np.concatenate(orders)[: len(rows)])


def test_a_place_in_the_order_does_not_depend_on_what_was_asked_before():
    shuffled = Shuffled(10, lambda epoch: np.random.default_rng(epoch).permutation(10))
    expected = shuffled.rows(35, 47)
    shuffled.rows(0, 100)
    np.testing.assert_array_equal(shuffled.rows(35, 47), expected)


# Seeds


def test_keys_that_differ_give_streams_that_differ():
    keys = [(0,), (1,), (0, "a"), (0, "b"), (0, "a", 1), (0, "a", 11), (0, "a", 1, 1), (0, 1)]
    assert len({derived(*key) for key in keys}) == len(keys)
    assert all(0 <= derived(*key) < 2**63 for key in keys)
    x = torch.stack([torch.rand(4000, generator=keyed(*key)) for key in keys])
    correlation = torch.corrcoef(x).fill_diagonal_(0.0)
    assert correlation.abs().max() < 5 / 4000**0.5


def test_noise_of_ones_own_leaves_the_global_numbers_alone():
    before = torch.get_rng_state()
    with own_noise() as reseed:
        reseed(3)
        first = torch.rand(2)
        reseed(3)
        assert torch.equal(first, torch.rand(2))
    assert torch.equal(torch.get_rng_state(), before)


# The penalty


def test_the_penalty_is_that_of_the_exact_slope():
    real, fake = torch.randn(16, 3), torch.randn(16, 3)
    mix = torch.rand(16)
    between = mix[:, None] * real + (1 - mix[:, None]) * fake
    found = gradient_penalty(lambda x: x.square().sum(1), real, fake, mix, centre=0.5)
    torch.testing.assert_close(found, (2 * between.norm(dim=1) - 0.5).square().mean())
    with pytest.raises(InputError, match="real and fake must have one shape"):
        gradient_penalty(lambda x: x[:, 0], real, fake[:8], mix)
