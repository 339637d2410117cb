"""What choosing rollouts costs: 1024 sequences of 8192 tokens, beside one pass over the log-probs.

    python benchmarks/rollout.py [--out FILE.json] [--repeats 5]

Each level runs in processes of its own, with one thread. Times are CPU seconds, the best of the repeats, so that other
work on the machine matters little, and are also given as multiples of what nobody can do without: the difference of the
log-probs, summed over the mask. The targets: less than half a second, and no copy larger than the input.

The largest copy is the largest tensor that any operation of torch makes, or all that NumPy has at one time, which no
array of it exceeds. Added memory is for information: the peak of the process minus what it had before, results
included, with an allocator that gives back at once what is free.
"""

import argparse
import json
import os
import tracemalloc
from pathlib import Path
from time import process_time

from bench import alone, exit_code, goal, memory, options, write

ROWS, LENGTH, KEEP = 1024, 8192, 0.25
SECONDS = 0.5
GIVES_BACK = dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), "65536")  # of glibc; it is slower


def batch(rows, length):
    """Log-probs with a small mismatch, and completions of 100 tokens to all."""
    import torch

    generator = torch.Generator().manual_seed(0)
    sampled = torch.empty(rows, length).exponential_(generator=generator).neg_()
    train = torch.randn(rows, length, generator=generator).mul_(0.02).add_(sampled)
    mask = torch.arange(length) < torch.randint(min(100, length), length + 1, (rows, 1), generator=generator)
    return train, sampled, mask


def ready(level, rows, length):
    """Return the batch, and a call that chooses from it; what is imported and made once is there."""
    import torch

    import obrs

    torch.set_num_threads(1)
    tensors = batch(rows, length)
    options = {"level": level} | ({"groups": torch.arange(rows) // 16} if level == "group" else {})
    few = {name: x[:16] if name == "groups" else x for name, x in options.items()}
    obrs.rollout(*(x[:16, :64] for x in tensors), keep=KEEP, **few)
    return tensors, lambda: obrs.rollout(*tensors, keep=KEEP, **options)


def time(level, rows, length, repeats):
    """Time one level beside a pass over the log-probs, in this process."""
    tensors, choose = ready(level, rows, length)
    times = {"seconds": [], "pass": []}
    for _ in range(repeats):
        begun = process_time()
        choose()
        times["seconds"].append(process_time() - begun)
        begun = process_time()
        ((tensors[0] - tensors[1]) * tensors[2]).sum(dim=1)
        times["pass"].append(process_time() - begun)
    best = {name: min(values) for name, values in times.items()}
    return {"seconds": round(best["seconds"], 4), "passes": round(best["seconds"] / best["pass"], 1)}


def weigh(level, rows, length):
    """Find the largest copy that one level makes, and the memory that it adds, in this process."""
    tensors, choose = ready(level, rows, length)
    reset_peak()
    before = memory("VmRSS")
    kept = len(choose().index)
    added = memory("VmHWM") - before
    tracemalloc.start()
    choose()
    arrays = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    tensor = largest_tensor(choose)
    size = sum(x.numel() * x.element_size() for x in tensors)
    return {"kept": kept, "largest_copy_bytes": max(tensor, arrays), "added_bytes": added, "input_bytes": size}


def largest_tensor(call):
    """Return the bytes of the largest tensor that is new in any operation of torch during a call."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    def storages(values):
        parts = [x.untyped_storage() for x in tree_leaves(values) if hasattr(x, "untyped_storage")]
        return {part.data_ptr(): part.nbytes() for part in parts}

    class Watch(TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            result = operation(*args, **(kwargs or {}))
            old = storages((args, kwargs))
            self.largest = max([self.largest, *(size for at, size in storages(result).items() if at not in old)])
            return result

    with Watch() as watch:
        call()
    return watch.largest


def reset_peak():
    """Forget the largest memory so far."""
    Path("/proc/self/clear_refs").write_text("5")


def main():
    parser = options(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--length", type=int, default=LENGTH)
    parser.add_argument("--level", help=argparse.SUPPRESS)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    shape = (arguments.rows, arguments.length)
    if arguments.level:
        facts = weigh(arguments.level, *shape) if arguments.memory else time(arguments.level, *shape, arguments.repeats)
        print(json.dumps(facts))
        return 0
    rows = []
    for level in ("sequence", "group", "token"):
        command = ("--level", level, "--rows", arguments.rows, "--length", arguments.length)
        row = {"level": level} | alone(__file__, *command, "--repeats", arguments.repeats)
        os.environ |= GIVES_BACK
        row |= alone(__file__, *command, "--memory")
        for name in GIVES_BACK:
            del os.environ[name]
        row["met"] = row["seconds"] < SECONDS and row["largest_copy_bytes"] <= row["input_bytes"]
        rows.append(row)
        copy, added = (row[name] / row["input_bytes"] for name in ("largest_copy_bytes", "added_bytes"))
        what = f"largest copy {copy:.2f} of the input, {added:.2f} added"
        print(f"{level:9} {row['seconds']:.3f} s, {row['passes']:.1f} passes, {what} {goal(SECONDS, row['met'], ' s')}")
    config = {"rows": arguments.rows, "length": arguments.length, "keep": KEEP, "target_seconds": SECONDS}
    config |= {"seconds": "CPU, best of the repeats", "repeats": arguments.repeats}
    write(arguments.out, "rollout", config, ("torch", "numpy"), rows=rows)
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
