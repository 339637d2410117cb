"""Write the tables of the README from the files under results/, between their markers.

python tools/readme.py          # rewrite README.md
python tools/readme.py --check  # exit 1 if it would change
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def minimal():
    """The example: what a budget buys."""
    rows = json.loads((ROOT / "results/minimal.json").read_text())["rows"]
    lines = ["| budget K | rate | KL before | KL after | TV before | TV after |", "|---|---|---|---|---|---|"]
    for row in rows:
        cells = [f"{row['budget']:g}", *(f"{row[key]:.3f}" for key in list(row)[1:])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def solver():
    """The solver at ten million log-ratios."""
    record = json.loads((ROOT / "results/bench-solver.json").read_text())
    draws = json.loads((ROOT / "results/bench-draws.json").read_text())
    rows = [row for row in record["rows"] if row["n"] == 10**7]
    lines = [
        "10⁷ float32 log-ratios, K = 2.6, both contestants in one run "
        "([results/bench-solver.json](results/bench-solver.json), `make bench`):",
        "",
        "| sd of log r | library | time in exp-and-sum passes | \\|K·rate − 1\\| "
        "| the paper's dichotomy: slower by | its \\|K·rate − 1\\| |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        paper = (f"{row['speed-up']:.0f}×", f"{row['paper error']:.0e}") if "paper" in row else ("", "")
        cells = [f"{row['sd']}", row["backend"], f"{row['passes']:.1f}", f"{row['error']:.0e}", *paper]
        lines.append(f"| {' | '.join(cells)} |")
    many = record["many problems"]
    ours = {row["name"]: row["ratio"] for row in draws["rows"]}
    lines += [
        "",
        f"{many['rows']:,} rows × {many['columns']:,} columns: {many['axis seconds']:.0f} s and "
        f"{many['axis extra MB']:.0f} MB beyond the input. 10⁷ uniforms take "
        f"{ours['uniforms numpy float64']:.1f}× the time of NumPy's own generator and "
        f"{ours['uniforms torch float64']:.1f}× that of torch's "
        "([results/bench-draws.json](results/bench-draws.json)).",
    ]
    return "\n".join(lines)


TABLES = {"minimal": minimal, "solver": solver}


def render(text):
    """Return the README with every table renewed."""
    for name, table in TABLES.items():
        block = f"<!-- {name} -->\n{table()}\n<!-- end {name} -->"
        text = re.sub(rf"<!-- {name} -->(.*?<!-- end {name} -->)?", lambda _, block=block: block, text, flags=re.S)
    return text


if __name__ == "__main__":
    readme = ROOT / "README.md"
    new = render(readme.read_text())
    if "--check" in sys.argv:
        sys.exit(new != readme.read_text())
    readme.write_text(new)
