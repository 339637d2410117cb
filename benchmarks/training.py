"""What the rejection costs in training: a Tw/OBRS step with c solved every step, against the plain f-GAN step.

    python benchmarks/training.py [--out FILE.json] [--rounds 9]

A step is what `obrs.train` does in one, on one thread: draw rows and latents, `critic_step`, `generator_step`. The
losses take turns every few steps on the same networks, milliseconds apart and in an order that is drawn anew each time:
two runs side by side differ by several per cent for no reason of ours. Times are of the CPU. A round's ratio is the
median over its cycles of a turn's time to that of the plain loss in the same cycle; the median of the rounds, each with
fresh networks, is reported. Targets: at most 1.05 at DCGAN size (32x32, width 32, batch 64), at most 1.15 for 4x100
perceptrons at batch 256. The paper reports 1.19 when c is solved every 10 steps and 1.017 every 100.
"""

import os
from dataclasses import dataclass
from time import thread_time

import numpy as np
import torch
from bench import goal, missed, options, write

from obrs.training import critic_loss, critic_step, generator_loss, generator_step
from obrs.training.data import Draws, as_data
from paper.named import build_networks
from paper.train import TrainConfig

PLAIN, MODES = "dual", ("paper_raw", "exact")


@dataclass(frozen=True)
class Size:
    """Networks to train, how many steps a turn has and how many cycles a round, and what is aimed at."""

    config: TrainConfig
    shape: tuple[int, ...]
    turn: int
    cycles: int
    target: float


CONV = TrainConfig(generator_loss=PLAIN, network="conv", latent=64, generator_width=32, critic_width=32, batch_size=64)
MLP = TrainConfig(generator_loss=PLAIN, network="mlp", latent=2, layers=3, batch_size=256)
SIZES = {
    "dcgan": Size(CONV, (1, 32, 32), turn=1, cycles=12, target=1.05),
    "mlp": Size(MLP, (2,), turn=5, cycles=80, target=1.15),
}


def one_round(size, seed):
    """Train fresh networks; return the ratio of each loss to the plain one, and the plain step in seconds."""
    generator, (critic,) = build_networks(size.config, size.shape, 0)
    adams = [torch.optim.Adam(network.parameters(), 2e-4, (0.5, 0.999)) for network in (generator, critic)]
    rng, batch = np.random.default_rng(seed), size.config.batch_size
    data, draws = as_data(np.tanh(rng.normal(size=(1024, *size.shape)))), Draws(seed, batch)
    reals = data.batches(draws.rows(1024, 0))
    losses = {mode: generator_loss(mode) for mode in (PLAIN, *MODES)}
    times = {mode: [] for mode in losses}
    for cycle in range(size.cycles + 1):
        for mode in rng.permutation(list(losses)):
            begun = thread_time()
            for step in range(cycle * size.turn, (cycle + 1) * size.turn):
                (real,) = next(reals)
                with torch.no_grad():
                    fake = generator(draws.draw(torch.randn, "latent", step, 0, size.config.latent))
                critic_step(critic, adams[1], real, fake, loss=critic_loss("gan"))
                z = draws.draw(torch.randn, "latent", step, -1, size.config.latent)
                generator_step(generator, critic, adams[0], z, loss=losses[mode], budget=size.config.budget)
            if cycle:  # the first one warms up
                times[mode].append((thread_time() - begun) / size.turn)
    plain = np.array(times[PLAIN])
    return {mode: float(np.median(np.array(times[mode]) / plain)) for mode in MODES}, float(np.median(plain))


def compare(name, rounds):
    """Return a row of the table for each loss."""
    size = SIZES[name]
    found, plain = zip(*(one_round(size, seed) for seed in range(rounds)), strict=True)
    rows = []
    for mode in MODES:
        ratios = np.array([each[mode] for each in found])
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
    return missed(rows)


if __name__ == "__main__":
    raise SystemExit(main())
