"""What the rejection costs in training: a Tw/OBRS step with c solved every step, against the plain f-GAN step.

    python benchmarks/training.py [--out FILE.json] [--repeats 20]

Both go through `obrs.training.train`, on one core, in turns that change who goes first; the median of the ratios of
neighbours is reported, of wall time and of processor time, which other work on the machine disturbs less. Targets: at
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

PLAIN = "dual"
MODES = ("paper", "exact", "exact_non_saturating", "two_critics")
SIZES = {
    # name: (configuration, shape of a sample, target); the number of steps makes a turn of about half a second
    "dcgan": (
        TrainConfig(network="conv", latent=64, generator_width=32, critic_width=32, batch_size=64, steps=5),
        (1, 32, 32),
        1.02,
    ),
    "mlp": (TrainConfig(network="mlp", latent=2, layers=3, batch_size=256, steps=200), (2,), 1.10),
}


def seconds(config, data):
    """Wall and processor time of the steps of a run, without what it takes to set it up."""
    once = replace(config, steps=1, log_every=1)

    def timed(wanted):
        wall, cpu = perf_counter(), process_time()
        train(wanted, data=data, progress=False)
        return np.array([perf_counter() - wall, process_time() - cpu])

    return timed(replace(config, log_every=config.steps)) - timed(once)


def compare(name, mode, repeats):
    """Let a mode and the plain loss take turns; return the row of the table."""
    config, shape, target = SIZES[name]
    data = np.tanh(np.random.default_rng(0).normal(size=(1024, *shape)))
    contestants = [
        replace(config, generator_loss=PLAIN),
        replace(config, generator_loss=mode, budget=2.0, constant_every=1),
    ]
    ratios, plain = [], []
    for turn in range(repeats + 1):
        order = (0, 1) if turn % 2 else (1, 0)
        took = dict.fromkeys(order)
        for which in order:
            took[which] = seconds(contestants[which], data)
        if turn:  # the first turn warms up
            ratios.append(took[1] / took[0])
            plain.append(took[0] / config.steps)
    wall, cpu = np.median(ratios, axis=0)
    low, high = np.quantile(np.array(ratios)[:, 0], [0.25, 0.75])
    return {
        "size": name,
        "mode": mode,
        "wall_ratio": round(float(wall), 4),
        "wall_ratio_quartiles": [round(float(low), 4), round(float(high), 4)],
        "processor_ratio": round(float(cpu), 4),
        "plain_ms_per_step": round(1e3 * float(np.median(np.array(plain)[:, 0])), 3),
        "target": target if mode != "two_critics" else None,
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
            print(
                f"{row['size']:6} {row['mode']:21} wall {row['wall_ratio']:.3f}  "
                f"processor {row['processor_ratio']:.3f}  plain step {row['plain_ms_per_step']:.2f} ms  "
                f"target {row['target']}",
                flush=True,
            )
    result = {
        "rows": rows,
        "repeats": arguments.repeats,
        "load_before": round(load, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "machine": {"cpus": os.cpu_count(), "platform": platform.platform(terse=True)},
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "obrs": obrs.__version__},
    }
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
