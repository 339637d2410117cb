"""What the rejection costs in training: a Tw/OBRS step with c solved every step, against the plain f-GAN step.

    python benchmarks/training.py [--out FILE.json] [--repeats 20]

Both go through `obrs.training.train`, on one core, in turns that change who goes first. A turn's time is the median of
its steps; the median of the ratios of neighbouring turns is reported, of wall time and of processor time, which other
work on the machine disturbs less. The loss `two_critics` has a second network and is not part of this. Targets: at
most 1.02 at DCGAN size (32x32, width 32, batch 64), at most 1.10 for 4x100 perceptrons at batch 256. The paper reports
1.19 when c is solved every 10 steps and 1.017 every 100.
"""

import argparse
import json
import os
import platform
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import torch

import obrs
from obrs.training import TrainConfig, train
from obrs.training.networks import build_networks

PLAIN = "dual"
MODES = ("paper_raw", "exact", "exact_non_saturating")
SIZES = {
    # name: (configuration, shape of a sample, target)
    "dcgan": (
        TrainConfig(network="conv", latent=64, generator_width=32, critic_width=32, batch_size=64, steps=12),
        (1, 32, 32),
        1.02,
    ),
    "mlp": (TrainConfig(network="mlp", latent=2, layers=3, batch_size=256, steps=100), (2,), 1.10),
}


def step_times(config, data):
    """Run it; return wall and processor time of its median step, from one pass of the generator to the next."""
    generator, critic = build_networks(config, data.shape[1:], 0, 1)
    stamps = []

    def stamp(*_):
        if torch.is_grad_enabled():  # its own step, not that of the critic
            stamps.append((perf_counter(), process_time()))

    generator.register_forward_pre_hook(stamp)
    train(replace(config, log_every=config.steps), data=data, generator=generator, critic=critic, progress=False)
    return np.median(np.diff(stamps, axis=0)[1:], axis=0)


def compare(name, mode, repeats):
    """Let a mode and the plain loss take turns; return the row of the table."""
    config, shape, target = SIZES[name]
    data = np.tanh(np.random.default_rng(0).normal(size=(1024, *shape)))
    contestants = {"plain": replace(config, generator_loss=PLAIN), "ours": replace(config, generator_loss=mode)}
    times = {"plain": [], "ours": []}
    for turn in range(repeats + 1):
        for key in contestants if turn % 2 else reversed(contestants):
            took = step_times(contestants[key], data)
            if turn:  # the first turn warms up
                times[key].append(took)
    ratios = np.divide(times["ours"], times["plain"])
    wall, cpu = np.median(ratios, axis=0)
    return {
        "size": name,
        "mode": mode,
        "wall ratio": round(float(wall), 4),
        "processor ratio": round(float(cpu), 4),
        "processor ratio, quartiles": np.quantile(ratios[:, 1], [0.25, 0.75]).round(4).tolist(),
        "plain step, processor ms": round(1e3 * float(np.median(times["plain"], axis=0)[1]), 3),
        "target": target,
        "met": bool(wall <= target),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    rows = []
    for size in SIZES:
        for mode in MODES:
            rows.append(row := compare(size, mode, arguments.repeats))
            verdict = "met" if row["met"] else "MISSED"
            print(
                f"{size:6} {mode:21} wall {row['wall ratio']:.3f}  processor {row['processor ratio']:.3f}  "
                f"(target {row['target']}, {verdict})",
                flush=True,
            )
    result = {
        "benchmark": "training",
        "config": {"repeats": arguments.repeats, "threads": 1, "cores": os.cpu_count()},
        "rows": rows,
        "load": {"before": round(load, 2), "after": round(os.getloadavg()[0], 2)},
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "obrs": obrs.__version__},
    }
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
