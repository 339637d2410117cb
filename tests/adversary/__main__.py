"""`python -m adversary`: many cases at every door, or one again."""

import argparse
import json
import sys
import traceback

import torch

from .rooms import ROOMS, SHARES
from .running import run_case, run_room


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="in all rooms together, or in the one that is named")
    parser.add_argument("--room", choices=ROOMS)
    parser.add_argument("--case", type=int, help="run this one again, and show the fault")
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    parser.add_argument("--most", type=int, default=5, help="faults of a door to show")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.case is not None:
        print(*run_case(asked.room, asked.case))
        return 0
    rooms = [asked.room] if asked.room else list(ROOMS)
    whole = sum(SHARES[room] for room in rooms)
    faults, cases = 0, 0
    for room in rooms:
        shown = {}

        def fail(number, door, error, room=room, shown=shown):
            kind = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:100]
            shown[door, kind] = shown.get((door, kind), 0) + 1
            if shown[door, kind] == 1 and len(shown) <= asked.most * len(ROOMS[room]):
                at = traceback.extract_tb(error.__traceback__)[-1]
                print(f"  case {number} {door}: {kind} at {at.filename.split('src/')[-1]}:{at.lineno}", flush=True)

        number = -(-asked.cases * SHARES[room] // whole)
        told, seconds = run_room(room, range(asked.start, asked.start + number), fail=fail)
        wrong = sum(counts["faults"] for counts in told.values())
        faults, cases = faults + wrong, cases + number
        print(f"{room}: {number} cases, {wrong} faults, {seconds:.0f} s", flush=True)
        for door, counts in told.items():
            print(f"    {json.dumps({'door': door, **counts})}", flush=True)
    print(f"{cases} cases, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
