"""A training run that takes a moment; tests say what differs."""

import numpy as np
import torch

import obrs
from obrs.models.mlp import mlp_critic, mlp_generator

SMALL = {"loss": "exact", "budget": 2.0, "steps": 3, "batch_size": 32, "lr": (1e-3, 2e-3), "ema": 0.0, "log_every": 1}


def points(n=128, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 2))


def networks(heads=1, width=16):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return mlp_generator(width=width), mlp_critic(width=width, heads=heads)


def train(data=None, given=None, **options):
    return obrs.train(*(given or networks()), points() if data is None else data, **SMALL | options)


def weights(*modules):
    return torch.cat([p.detach().flatten() for module in modules for p in module.parameters()])


def same(one, other):
    """Tell whether two runs have the same weights, averages and moments, bit for bit."""
    a, b = one.state.tensors, other.state.tensors
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)
