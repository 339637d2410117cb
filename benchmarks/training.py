"""What the rejection costs in training: a Tw/OBRS step with c solved every step, against the plain f-GAN step.

    python benchmarks/training.py [--out FILE.json] [--rounds 9]

One run of `obrs.train`, on one thread, whose generator loss changes every few steps: the losses take turns on the same
networks in the same memory, milliseconds apart, in an order that is drawn anew each time. Two runs side by side differ
by several per cent for no reason of ours. Times are of the CPU. A round's ratio is the median over its cycles of a
turn's time to that of the plain loss in the same cycle; reported is the median of the rounds, each with fresh networks.
Targets: at most 1.05 at DCGAN size (32x32, width 32, batch 64), at most 1.15 for 4x100 perceptrons at batch 256. The
paper reports 1.19 when c is solved every 10 steps and 1.017 every 100.
"""

import os
from dataclasses import dataclass
from time import thread_time
from typing import Any

import numpy as np
import torch
from bench import exit_code, goal, options, write

import obrs
from obrs.training import critic_loss, generator_loss
from paper.train import build_networks

PLAIN, MODES = "dual", ("paper_raw", "exact")


@dataclass(frozen=True)
class Size:
    """Networks to train, how many steps a turn has and how many cycles a round, and what is aimed at."""

    networks: dict[str, dict[str, Any]]
    shape: tuple[int, ...]
    batch_size: int
    turn: int
    cycles: int
    target: float


CONV = {"generator": {"name": "conv_generator", "latent": 64, "width": 32}, "critic": {"name": "conv_critic"}}
SIZES = {
    "dcgan": Size(CONV, (1, 32, 32), 64, turn=1, cycles=12, target=1.05),
    "mlp": Size({}, (2,), 256, turn=5, cycles=80, target=1.15),
}


class Turns:
    """Losses of a generator that take turns, and when each step began."""

    name = "turns"

    def __init__(self, size, seed):
        self.losses = {mode: generator_loss(mode) for mode in (PLAIN, *MODES)}
        draw = np.random.default_rng(seed)
        self.order = [str(mode) for _ in range(size.cycles + 1) for mode in draw.permutation(list(self.losses))]
        self.turn, self.steps = size.turn, size.turn * len(self.order) + 1
        self.stamps = []

    @property
    def current(self):
        return self.losses[self.order[min((len(self.stamps) - 1) // self.turn, len(self.order) - 1)]]

    @property
    def rejects(self):
        return self.current.rejects

    def __call__(self, fake, cut):
        return self.current(fake, cut)

    def times(self):
        """Return the time of each turn, by loss, without the first cycle, which warms up."""
        turns = np.diff(self.stamps).reshape(-1, self.turn).mean(1)[len(self.losses) :]
        order = np.array(self.order[len(self.losses) :])
        return {mode: turns[order == mode] for mode in self.losses}


class Stamped:
    """The loss of the critic, whose step is the first of a step of training."""

    name, of_ratio = "gan", True

    def __init__(self, turns):
        self.loss, self.turns = critic_loss("gan"), turns

    def __call__(self, real, fake):
        self.turns.stamps.append(thread_time())
        return self.loss(real, fake)


def one_round(size, seed):
    """Train fresh networks; return the ratio of each loss to the plain one, and the plain step in seconds."""
    generator, (critic,) = build_networks(size.networks, size.shape, 0)
    data, turns = np.tanh(np.random.default_rng(0).normal(size=(1024, *size.shape))), Turns(size, seed)
    options = {"batch_size": size.batch_size, "budget": 2, "seed": seed}
    many = {"steps": turns.steps, "log_every": turns.steps, "save_every": turns.steps}
    obrs.train(generator, critic, data, loss=(Stamped(turns), turns), **options, **many, progress=False)
    times = turns.times()
    ratios = {mode: float(np.median(times[mode] / times[PLAIN])) for mode in MODES}
    return ratios, float(np.median(times[PLAIN]))


def compare(name, rounds):
    """Return a row of the table for each loss."""
    size = SIZES[name]
    times, plain = zip(*(one_round(size, seed) for seed in range(rounds)), strict=True)
    rows = []
    for mode in MODES:
        ratios = np.array([each[mode] for each in times])
        row = {"size": name, "mode": mode, "ratio": round(float(np.median(ratios)), 4)}
        row |= {"rounds": ratios.round(4).tolist(), "plain step, ms": round(1e3 * float(np.median(plain)), 3)}
        rows.append(row | {"target": size.target, "met": bool(np.median(ratios) <= size.target)})
    return rows


def main():
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=SIZES)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    rows = []
    for size in arguments.sizes:
        for row in compare(size, arguments.rounds):
            rows.append(row)
            low, high = min(row["rounds"]), max(row["rounds"])
            spread = f"{row['ratio']:.3f}, rounds {low:.3f} to {high:.3f}"
            print(f"{size:6} {row['mode']:10} {spread}  {goal(row['target'], row['met'])}", flush=True)
    config = {"rounds": arguments.rounds, "threads": 1, "cores": os.cpu_count()}
    loads = {"before": round(load, 2), "after": round(os.getloadavg()[0], 2)}
    write(arguments.out, "training", config, ("torch",), rows=rows, load=loads)
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
