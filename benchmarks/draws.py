"""Time `uniforms` and `normals` against the generators of NumPy, torch and JAX, side by side.

    python benchmarks/draws.py [--out FILE.json] [--n 10000000] [--repeat 9]

Each row alternates the two contestants and compares their medians. The target, at most three times the
library's own generator, holds for the uniforms in NumPy and torch; the other rows are for information.
"""

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import torch
from bench import exit_code, goal, medians, options, take_turns, write

from obrs.draws import normals, uniforms

TARGET = 3.0
Contest = tuple[str, float | None, Callable[[], Any], Callable[[], Any]]


def contests(n: int) -> list[Contest]:
    """Return name, target, our draw and the rival's draw of `n` numbers."""
    ids, half = np.arange(n), np.arange(n // 2)
    rng, key = np.random.default_rng(0), jax.random.key(0)
    tensor_ids, jax_ids = torch.arange(n), jax.numpy.arange(n)
    rows: list[Contest] = []
    for name in ("float64", "float32"):
        numpy_dtype, torch_dtype = getattr(np, name), getattr(torch, name)
        tensor = torch.empty(0, dtype=torch_dtype)
        rows.append(
            (
                f"uniforms numpy {name}",
                TARGET,
                lambda dtype=numpy_dtype: uniforms(ids, seed=0, dtype=dtype),
                lambda dtype=numpy_dtype: rng.random(n, dtype=dtype),
            )
        )
        rows.append(
            (
                f"uniforms torch {name}",
                TARGET,
                lambda like=tensor: uniforms(tensor_ids, seed=0, like=like),
                lambda dtype=torch_dtype: torch.rand(n, dtype=dtype),
            )
        )
    like = jax.numpy.empty(0, dtype="float32")
    rows.append(
        (
            "uniforms jax float32",
            None,
            lambda: uniforms(jax_ids, seed=0, like=like).block_until_ready(),
            lambda: jax.random.uniform(key, (n,), dtype="float32").block_until_ready(),
        )
    )
    for dtype in (np.float64, np.float32):
        rows.append(
            (
                f"normals numpy {np.dtype(dtype).name}",
                None,
                lambda dtype=dtype: normals(half, 2, seed=0, dtype=dtype),
                lambda dtype=dtype: rng.standard_normal((n // 2, 2), dtype=dtype),
            )
        )
    return rows


def run(n: int, repeat: int) -> list[dict[str, Any]]:
    """Time every contest `repeat` times, after one warm-up, and return its row."""
    rows = []
    for name, target, ours, rival in contests(n):
        took = medians(take_turns({"ours": ours, "rival": rival}, repeat))
        mine, theirs = took["ours"], took["rival"]
        rows.append(
            {
                "name": name,
                "seconds": mine,
                "rival_seconds": theirs,
                "ratio": mine / theirs,
                "target": target,
                "met": None if target is None else mine <= target * theirs,
            }
        )
    return rows


def main(argv: list[str] | None = None) -> int:
    """Print the table, and write the JSON if asked to; return 1 if a target is missed."""
    parser = options(__doc__)
    parser.add_argument("--n", type=int, default=10_000_000, help="numbers per draw")
    parser.add_argument("--repeat", type=int, default=9, help="timed repeats, at least 7")
    args = parser.parse_args(argv)
    if args.repeat < 7 or args.n < 2:
        parser.error("--repeat must be at least 7 and --n at least 2")
    rows = run(args.n, args.repeat)
    print(f"{'':26}{'obrs s':>9}{'rival s':>9}{'ratio':>7}  target")
    for row in rows:
        times = f"{row['seconds']:9.4f}{row['rival_seconds']:9.4f}{row['ratio']:7.2f}"
        print(f"{row['name']:26}{times}  {goal(row['target'], row['met'])}".rstrip())
    threads = torch.get_num_threads()
    config = {"n": args.n, "repeat": args.repeat, "torch_threads": threads, "cores": os.cpu_count()}
    write(args.out, "draws", config, ("numpy", "torch", "jax"), rows=rows)
    return exit_code(rows)


if __name__ == "__main__":
    raise SystemExit(main())
