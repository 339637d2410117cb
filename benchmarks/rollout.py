"""What choosing rollouts costs: 1024 sequences of 8192 tokens, beside one pass over the log-probs.

    python benchmarks/rollout.py [--out FILE.json] [--repeats 5]

Each level runs in a process of its own, with one thread. Times are CPU seconds, the best of the repeats, and are also
given as multiples of what nobody can do without: the difference of the log-probs, summed over the mask. Memory is the
peak of the process during the call minus what the process had before, and counts everything that is made, results
included. The targets: less than half a second, and no copy larger than the input.
"""

import argparse
import json
from pathlib import Path
from time import process_time

from bench import alone, memory, options, write

ROWS, LENGTH, KEEP = 1024, 8192, 0.25
SECONDS = 0.5


def batch(rows, length):
    """Log-probs with a small mismatch, and completions of 100 tokens to all."""
    import torch

    generator = torch.Generator().manual_seed(0)
    sampled = torch.empty(rows, length).exponential_(generator=generator).neg_()
    train = torch.randn(rows, length, generator=generator).mul_(0.02).add_(sampled)
    mask = torch.arange(length) < torch.randint(min(100, length), length + 1, (rows, 1), generator=generator)
    return train, sampled, mask


def measured(level, rows, length, repeats):
    """Time one level and find its peak, in this process."""
    import torch

    import obrs

    torch.set_num_threads(1)
    given = batch(rows, length)
    options = {"level": level} | ({"groups": torch.arange(rows) // 16} if level == "group" else {})
    obrs.rollout(*(x[:16, :64] for x in given), keep=KEEP)  # what is imported and made once
    reset_peak()
    before = memory("VmRSS")
    pick = obrs.rollout(*given, keep=KEEP, **options)
    added = memory("VmHWM") - before
    times = {"seconds": [], "pass": []}
    for _ in range(repeats):
        begun = process_time()
        obrs.rollout(*given, keep=KEEP, **options)
        times["seconds"].append(process_time() - begun)
        begun = process_time()
        ((given[0] - given[1]) * given[2]).sum(dim=1)
        times["pass"].append(process_time() - begun)
    best = {name: min(values) for name, values in times.items()}
    size = sum(x.numel() * x.element_size() for x in given)
    return {
        "level": level,
        "kept": len(pick.index),
        "seconds": round(best["seconds"], 4),
        "passes": round(best["seconds"] / best["pass"], 1),
        "added_bytes": added,
        "input_bytes": size,
        "met": best["seconds"] < SECONDS and added <= size,
    }


def reset_peak():
    """Forget the largest memory so far."""
    Path("/proc/self/clear_refs").write_text("5")


def main():
    parser = options(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--length", type=int, default=LENGTH)
    parser.add_argument("--level", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    size = (arguments.rows, arguments.length, arguments.repeats)
    if arguments.level:
        print(json.dumps(measured(arguments.level, *size)))
        return
    rows = []
    for level in ("sequence", "group", "token"):
        shape = ("--rows", arguments.rows, "--length", arguments.length)
        row = alone(__file__, "--level", level, "--repeats", arguments.repeats, *shape)
        rows.append(row)
        added = row["added_bytes"] / row["input_bytes"]
        print(
            f"{level:9} {row['seconds']:.3f} s, {row['passes']:.1f} passes, {added:.2f} of the input added", flush=True
        )
    config = {"rows": arguments.rows, "length": arguments.length, "keep": KEEP, "target_seconds": SECONDS}
    write(arguments.out, "rollout", config, ("torch",), rows=rows)


if __name__ == "__main__":
    main()
