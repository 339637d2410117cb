"""Make entries of golden.json anew, by their names: `python tests/make_golden.py "ENTRY" …`.

The file was written by the code of 0.2 (commit 01f09f9). An entry that is meant to change is made again by its name,
which goes into the title of the commit; without names nothing is written.
"""

import json
import sys
from pathlib import Path

PATH = Path(__file__).parent / "golden.json"


def main(names):
    import torch
    from golden_cases import CASES

    if not names:
        sys.exit("name the entries to make again; the others stay as 0.2 wrote them")
    torch.set_num_threads(1)
    cases = {name: CASES[name]() for name in names}
    fresh = {name: {field: list(pair) for field, pair in each.items()} for name, each in cases.items()}
    entries = json.loads(PATH.read_text()) | fresh
    lines = [f"{json.dumps(name, ensure_ascii=False)}: {_entry(entries[name])}" for name in CASES if name in entries]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _entry(fields):
    rows = [f" {json.dumps(key)}: {json.dumps(pair)}" for key, pair in fields.items()]
    return "{\n" + ",\n".join(rows) + "\n}"


if __name__ == "__main__":
    main(sys.argv[1:])
