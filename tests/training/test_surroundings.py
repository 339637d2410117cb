"""What is around a run is as it was found: networks, the state of accelerate, and what was drawn or written before."""

import copy
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_run import SMALL, weights
from torch import nn

from obrs.errors import Interrupted
from obrs.training import batches as module
from obrs.training import checkpoints
from obrs.training.averaging import average
from obrs.training.batches import Batches, Data, load_data
from obrs.training.loop import train
from obrs.training.networks import build_networks


class InterruptedAtStep(nn.Module):
    """A generator in whose second pass with gradients somebody presses Ctrl-C."""

    def __init__(self, generator):
        super().__init__()
        self.generator, self.passes = generator, 0

    def forward(self, z):
        if torch.is_grad_enabled():
            self.passes += 1
            if self.passes == 2:
                signal.raise_signal(signal.SIGINT)
        return self.generator(z)


def test_networks_of_an_interrupted_bf16_run_compute_in_float32_again():
    config = replace(SMALL, generator_loss="exact")
    generator, critic = build_networks(config, (2,), 0, 1)
    interrupted, found = InterruptedAtStep(copy.deepcopy(generator)), copy.deepcopy(critic)
    with pytest.raises(Interrupted):
        train(replace(config, precision="bf16"), generator=interrupted, critic=found)
    interrupted.generator.load_state_dict(generator.state_dict())
    found.load_state_dict(critic.state_dict())
    again = train(config, generator=interrupted, critic=found)
    clean = train(config, generator=generator, critic=critic)
    assert torch.equal(weights(again.generator, again.critic), weights(clean.generator, clean.critic))


def test_networks_of_a_bf16_run_compute_in_float32():
    run = train(replace(SMALL, precision="bf16"))
    fresh, _ = build_networks(SMALL, (2,), 0, 1)
    fresh.load_state_dict(run.generator.state_dict())
    z = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(run.generator(z), fresh(z))
    assert "forward" not in vars(run.generator)


def test_accelerators_of_others_keep_their_precision():
    accelerate = pytest.importorskip("accelerate")
    accelerate.state.AcceleratorState._reset_state()
    try:
        theirs = accelerate.Accelerator(mixed_precision="bf16", cpu=True)
        train(SMALL)
        assert theirs.mixed_precision == "bf16"
        assert accelerate.Accelerator(mixed_precision="bf16", cpu=True).mixed_precision == "bf16"
    finally:
        accelerate.state.AcceleratorState._reset_state()


def test_networks_that_come_in_evaluation_mode_are_trained_in_training_mode():
    generator = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).eval()
    modes = []
    generator.register_forward_hook(lambda layer, *_: modes.append(layer.training and layer[1].training))
    train(replace(SMALL, steps=1), generator=generator)
    assert modes[1:] == [True, True]  # after it was tried: the critic's turn and its own


def test_statistics_are_averaged_as_weights_are_and_counts_are_the_latest():
    layer = nn.BatchNorm1d(2)
    ema = copy.deepcopy(layer)
    layer(torch.randn(8, 2) + 5)
    average(ema, layer, 0.9)
    assert torch.allclose(ema.running_mean, 0.1 * layer.running_mean)
    assert torch.allclose(ema.running_var, 0.9 + 0.1 * layer.running_var)
    assert int(ema.num_batches_tracked) == 1


def test_the_gradient_penalty_is_taken_at_the_labels_of_the_real_samples():
    class Critic(nn.Module):
        def __init__(self):
            super().__init__()
            self.line, self.seen = nn.Linear(2, 1), []

        def forward(self, x, labels):
            self.seen.append((x.requires_grad, labels))
            return self.line(x)[:, 0]

    class Generator(nn.Linear):
        def forward(self, z, labels):
            return super().forward(z)

    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(64, 2)), rng.integers(10, size=64)
    config = replace(SMALL, steps=1, classes=True, gradient_penalty=1.0)
    critic = Critic()
    train(config, data=x, labels=labels, generator=Generator(2, 2), critic=critic)
    between = next(y for wants_gradient, y in critic.seen if wants_gradient)  # the generator's turn comes later
    batches = Batches(load_data(config, x, labels), config)
    assert torch.equal(between, batches.real(0, 0, 0)[1])
    assert not torch.equal(between, batches.latent(0, 0, 0)[1])


def test_parts_of_a_batch_are_drawn_once(monkeypatch):
    drawn = []

    def counted(seed, *key):
        drawn.append(key)
        return module_keyed(seed, *key)

    module_keyed = module.keyed
    config = replace(SMALL, parts=8)
    data = Data(torch.randn(20, 2), torch.arange(20) % 3, 3)
    batches = Batches(data, config)
    monkeypatch.setattr(module, "keyed", counted)
    for part in range(8):
        batches.latent(0, 0, part)
        batches.real(0, 0, part)
        batches.mix(0, 0, part)
    once = [("epoch", 0), ("epoch", 1), ("fake labels", 0, 0), ("latent", 0, 0), ("mix", 0, 0)]
    assert sorted(drawn) == once


def test_tensorboard_shows_no_step_twice_after_going_back(tmp_path):
    board = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    config = replace(SMALL, steps=6, save_every=1, keep=6, tensorboard=True)
    train(config, out=tmp_path)
    for path in checkpoints.checkpoints(tmp_path / "checkpoints")[-3:]:
        path.unlink()
    train(config, out=tmp_path, resume=True)
    events = board.EventAccumulator(str(tmp_path)).Reload()
    assert [event.step for event in events.Scalars("critic")] == [1, 2, 3, 4, 5, 6]


def test_data_that_want_gradients_are_taken_as_they_are(tmp_path):
    data = torch.randn(64, 2, requires_grad=True)
    run = train(SMALL, data=data, out=tmp_path)
    assert data.grad is None
    assert run.log[-1]["step"] == 3
