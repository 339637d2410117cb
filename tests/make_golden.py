"""Write golden.json: run once, in a checkout of 0.2, `python tests/make_golden.py`; with names, these entries alone.

An entry that is meant to change is made anew by its name, which goes into the title of the commit.
"""

import json
import sys
from pathlib import Path

PATH = Path(__file__).parent / "golden.json"


def main(names):
    import torch
    from golden_cases import CASES

    torch.set_num_threads(1)
    known = json.loads(PATH.read_text()) if names else {}
    found = {name: CASES[name]() for name in names or CASES}
    entries = {**known, **{name: {field: list(pair) for field, pair in each.items()} for name, each in found.items()}}
    lines = [f"{json.dumps(name, ensure_ascii=False)}: {_entry(entries[name])}" for name in CASES if name in entries]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _entry(fields):
    rows = [f" {json.dumps(key)}: {json.dumps(pair)}" for key, pair in fields.items()]
    return "{\n" + ",\n".join(rows) + "\n}"


if __name__ == "__main__":
    main(sys.argv[1:])
