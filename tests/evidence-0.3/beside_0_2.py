"""Measure this version beside 0.2: the same calls, in separate processes that take turns, with one thread each.

    git worktree add ../obrs-0.2 01f09f9
    python tests/evidence-0.3/beside_0_2.py ../obrs-0.2 --rounds 5

The CPU seconds of a call are the least of three in a process; the table has medians over rounds, and their ratio.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

HERE = Path(__file__).parents[2]
CALLS = """
import json, time
start = time.process_time()
import obrs
found = {"import obrs": time.process_time() - start}
import numpy as np
import torch
from obrs.metrics import frechet

rng = np.random.default_rng(0)
x, groups = rng.normal(size=10**6), rng.integers(0, 1000, 10**6)
many = rng.normal(size=10**7)
real, fake = rng.normal(size=(5000, 512)), rng.normal(size=(5000, 512)) + 0.1
logp, tokens = torch.from_numpy(rng.normal(size=(256, 2048)) / 50), torch.ones(256, 2048, dtype=torch.bool)
profile = obrs.Profile(x)
propose, score = obrs.proposal(lambda n: np.random.default_rng(0).normal(size=n)), lambda y: 0.5 * y - 0.125
calls = {
    "solve_log_c, 10**7": lambda: obrs.solve_log_c(many, 4),
    "accept, 10**6": lambda: obrs.accept(np.minimum(x - 1, 0), range(10**6)),
    "normals, 10**6": lambda: obrs.normals(range(10**6), 1, seed=0),
    "Grouped.fit, 10**6 in 1000 groups": lambda: obrs.Grouped.fit(x, 4, groups),
    "select, pivotal, 10**5 of 10**6": lambda: obrs.select(x, 10**5),
    "select, priority, 10**5 of 10**6": lambda: obrs.select(x, 10**5, design="priority"),
    "unweight, 10**5 of 10**6": lambda: obrs.unweight(np.exp(x), 10**5),
    "Profile, 10**6": lambda: obrs.Profile(x),
    "profile.divergence": lambda: profile.divergence("kl", 4),
    "profile.plan of three budgets": lambda: profile.plan([2, 4, 8]),
    "sample, 10**5 at K = 4": lambda: obrs.sample(propose, score, 10**5, budget=4),
    "rollout, 256 x 2048": lambda: obrs.rollout(logp, 0 * logp, tokens, keep=0.25),
    "frechet, 5000 x 512": lambda: frechet(real=real, fake=fake),
}
for name, call in calls.items():
    took = []
    for _ in range(3):
        start = time.process_time()
        call()
        took.append(time.process_time() - start)
    found[name] = min(took)
print(json.dumps(found))
"""


def measure(tree: Path) -> dict[str, float]:
    """Return the CPU seconds of each call in one process that imports the library of a tree."""
    env = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", CALLS], env=env, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    """Let both versions take turns, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="a work tree of version 0.2")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    rounds = [(measure(args.old), measure(HERE)) for _ in range(args.rounds)]
    print("| call | 0.2, CPU s | 0.3, CPU s | 0.3 / 0.2 |\n| --- | --- | --- | --- |")
    for name in rounds[0][0]:
        old, new = (median(turn[at][name] for turn in rounds) for at in (0, 1))
        print(f"| {name} | {old:.4f} | {new:.4f} | {new / old:.2f} |")


if __name__ == "__main__":
    main()
