"""A training run that takes a moment; tests of training say what differs."""

import torch

from obrs.training.config import TrainConfig

SMALL = TrainConfig(
    data="grid25",
    generator_loss="paper_raw",
    ema_decay=0,
    steps=3,
    batch_size=32,
    data_size=128,
    generator_width=16,
    critic_width=16,
    log_every=1,
)


def weights(*modules):
    """Return all weights of some networks, one after the other."""
    return torch.cat([p.detach().flatten() for module in modules for p in module.parameters()])
