"""`python -m adversary`: many cases of every verb, or one again."""

import argparse
import sys
import traceback
from collections import Counter
from time import perf_counter

import torch

from .making import Hung, run_case
from .verbs import SLOW, VERBS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="of all verbs together, or of those that are named")
    parser.add_argument("--verb", choices=VERBS, nargs="+", help="only these")
    parser.add_argument("--case", type=int, help="run this one again, and show the fault")
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.case is not None:
        print(run_case(arguments.verb[0], VERBS[arguments.verb[0]], arguments.case).counts)
        return 0
    shares = {verb: 1 / SLOW.get(verb, 1) for verb in arguments.verb or VERBS}
    whole, calls = Counter(), Counter()
    for verb, share in shares.items():
        counts, begun, kinds = Counter(), perf_counter(), set()
        for number in range(arguments.start, arguments.start + round(arguments.cases * share / sum(shares.values()))):
            counts["cases"] += 1
            try:
                result = run_case(verb, VERBS[verb], number)
                counts, calls = counts + result.counts, calls + result.calls
            except (Exception, Hung) as error:
                counts["faults"] += 1
                at = traceback.extract_tb(error.__traceback__)[-1]
                if (kind := (type(error), at.filename, at.lineno)) not in kinds:
                    print(f"  case {number}: {error!r:.150} at {at.filename.split('src/')[-1]}:{at.lineno}", flush=True)
                kinds.add(kind)
        whole += counts
        print(f"{verb}: {dict(counts)}, {perf_counter() - begun:.0f} s", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(calls.items())))
    print(f"{sum(calls.values())} calls in {whole['cases']} cases, {whole['faults']} faults")
    return int(whole["faults"] > 0)


if __name__ == "__main__":
    sys.exit(main())
