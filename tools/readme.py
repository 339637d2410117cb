"""Write the tables that pages repeat, between markers: what a budget buys, and what the benchmarks found.

python tools/readme.py          # rewrite the pages
python tools/readme.py --check  # exit 1 if one would change, and name it

Tables of experiments are not written here: `python -m paper NAME` writes `paper/results/NAME.md`, and pages include it.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def table(head, rows):
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def rows_of(path):
    """Return the rows of an experiment by their names."""
    return {row["row"]: row for row in json.loads((ROOT / path).read_text())["rows"]}


def minimal():
    """Return what a budget buys in `examples/minimal.py`."""
    rows = json.loads((ROOT / "examples/results/minimal.json").read_text())["rows"]
    head = ["budget K", "rate", "KL before", "KL after", "TV before", "TV after"]
    return table(head, [[f"{row['budget']:g}", *(f"{row[key]:.3f}" for key in list(row)[1:])] for row in rows])


def real_evidence():
    """Return what a budget buys on real data: a line for each model, beside its nearest rival at the same price."""
    rows = []

    def add(name, cells):
        def quarter(rule):  # the distance at one quarter, and by how many standard errors it fell
            value, change, error = cells[f"{rule} 4"]
            return f"{value:.2f} ({-change / error:.0f} se)"

        base = f"{cells['model 1'][0]:.2f}"
        rows.append([name, "Fréchet distance", base, quarter("obrs"), "DRS", quarter("drs")])

    for number, row in enumerate(rows_of("paper/results/figure-pretrained.json").values(), 1):
        add(f"GAN {number} of clothes, conditional", row["ratios"]["outputs"]["cells"]["class"]["classifier"])
    early = rows_of("paper/results/table-diffusion.json")["1000 updates, ratio 1"]  # nothing was chosen on it
    add("diffusion model of clothes, stopped early", early["cells"]["classifier"])
    language = rows_of("paper/results/language.json")
    for kind, name in (("hot", "rollouts of SmolLM2, temperature 1.2"), ("int8", "rollouts of SmolLM2, 8 bits")):
        found = language[f"gradient {kind}"]
        whole, ours, random = (found[method]["error"] for method in ("all 64", "OBRS 16", "random 16"))
        cells = [f"{whole:.2f}", f"{ours:.2f}", "random 16 of 64", f"{random:.2f}"]
        rows.append([name, "error of the gradient", *cells])
    return table(["model", "measured", "all proposals", "1 in 4 by OBRS", "rival", "1 in 4 by it"], rows)


def flat(row):
    """Return a row without dicts in it, and without dots in names, which `str.format` would take for attributes.

    >>> flat({"n": 3, "budgets": {"2.6": {"kl": 1}}})
    {'n': 3, 'budgets 2_6 kl': 1}
    """
    found = {}
    for key, value in row.items():
        inner = flat(value) if isinstance(value, dict) else {"": value}
        found |= {f"{key} {name}".strip().replace(".", "_"): one for name, one in inner.items()}
    return found


def side_by_side(rows, over):
    """Join rows that differ in one column, whose value goes before the names of the others.

    >>> list(side_by_side([{"n": 3, "rule": "a", "kl": 1}, {"n": 3, "rule": "b", "kl": 2}], over=("rule", "n")))
    [{'n': 3, 'a kl': 1, 'b kl': 2}]
    """
    column, *same = over
    joined = {}
    for row in rows:
        place = joined.setdefault(tuple(row[key] for key in same), {key: row[key] for key in same})
        place |= {f"{row[column]} {key}": value for key, value in row.items() if key not in over}
    return joined.values()


def cell(form, row):
    """Return a cell; it is empty if the row lacks what the form names."""
    try:
        return re.sub(r"(?<=\d)%", " %", form.format(**row))
    except KeyError:
        return ""


def benchmark(name, columns, *, part=None, only=lambda row: True, over=()):
    """Return a function that makes the table of a benchmark from titles and forms of cells.

    Args:
        name: Of the benchmark.
        columns: Titles, and forms that `str.format` fills from a row made flat.
        part: Where in the record the rows are.
        only: Which rows there are.
        over: The column that goes side by side, and those that name a line.
    """

    def made():
        record = json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())
        rows = [row for row in map(flat, (record[part] if part else record)["rows"]) if only(row)]
        rows = side_by_side(rows, over) if over else rows
        return table(list(columns), [[cell(form, row) for form in columns.values()] for row in rows])

    return made


SIZES = {1_000_000: "10⁶", 10_000_000: "10⁷", 20_000_000: "2·10⁷", 50_000_000: "5·10⁷"}
FAULTS = {"exact, 1 apart", "exact, 4 apart", "three times too steep", "off by 2", "tanh", "clipped", "wrong way round"}
FAULTS |= {"unrelated", "each row ten times", "30 % missing", "noise of 1", "no overlap"}
DESIGNS = ("pivotal", "systematic", "priority", "pareto", "gumbel top-k")
TABLES = {
    "minimal": minimal,
    "real evidence": real_evidence,
    "solver": benchmark(
        "solver",
        {
            "sd of log r": "{sd}",
            "library": "{backend}",
            "time in exp-and-sum passes": "{passes:.1f}",
            "\\|K·rate − 1\\|": "{error:.0e}",
            "Algorithm B.1: slower by": "{speed-up:.0f}×",
            "its \\|K·rate − 1\\|": "{paper error:.0e}",
        },
        only=lambda row: row["n"] == 10**7,
    ),
    "training cost": benchmark(
        "training",
        {
            "networks": "{size}",
            "loss": "`{mode}`",
            "CPU time": "{ratio:.3f}",
            "target, at most": "{target:g}",
        },
    ),
    "metric cost": benchmark(
        "metrics",
        {"": "{name}", "ours, CPU s": "{cpu_seconds:.1f}", "theirs": "{rival_cpu_seconds:.1f}"},
        only=lambda row: "rival_cpu_seconds" in row,
    ),
    "rollout cost": benchmark(
        "rollout",
        {
            "`level=`": "{level}",
            "CPU s": "{seconds:.3f}",
            "bytes of the input": "{input_bytes:,}",
            "of the largest copy": "{largest_copy_bytes:,}",
            "added at most": "{added_bytes:,}",
        },
    ),
    "priority error": benchmark(
        "priority",
        {"n of N, σ of log r": "{n} of {candidates}, {spread:g}", "noise": "{pivotal noise:.1%}"}
        | {name: f"{{{name} error:.1%}}" for name in DESIGNS}
        | {"priority: worst π": "{priority worst:.3f}"},
        over=("method", "candidates", "n", "spread"),
    ),
    "planted faults": benchmark(
        "doctor",
        {"fault": "{fault}"}
        | {f"n = {n:,}": f"{{verdicts {n}}}" for n in (200, 2000, 20_000)}
        | {"KL removed as it is": "{kl removed as it is:.3f}", "repaired": "{kl removed repaired:.3f}"}
        | {"refitted": "{kl removed refitted:.3f}", "exact ratio": "{kl removed exact:.3f}"},
        only=lambda row: row["fault"] in FAULTS,
    ),
    "scale": benchmark(
        "scale",
        {"": "{contestant}"}
        | {f"{name} rows": f"{{{n} cpu_seconds:.1f}} s, {{{n} peak_mb:.0f}} MB" for n, name in SIZES.items()},
        over=("rows", "contestant"),
    ),
    "ratio gaussians": benchmark(
        "ratios",
        {
            "ratio": "{contestant}",
            "CPU s of a fit": "{cpu seconds:.2f}",
            "doctor": "{doctor}",
            "high quality, K = 2.6": "{budgets 2_6 high quality[0]:.1%}",
            "KL left, K = 2.6": "{budgets 2_6 kl[0]:.2f} ± {budgets 2_6 kl[1]:.2f}",
            "K = 5": "{budgets 5 kl[0]:.2f} ± {budgets 5 kl[1]:.2f}",
        },
        part="gaussians",
    ),
}


def render(page):
    """Return the text of a page with the table of every marker renewed."""
    text = page.read_text()
    for name, made in TABLES.items():
        if f"<!-- {name} -->" in text:
            block = f"<!-- {name} -->\n{made()}\n<!-- end {name} -->"
            text = re.sub(rf"<!-- {name} -->(.*?<!-- end {name} -->)?", lambda _, block=block: block, text, flags=re.S)
    return text


if __name__ == "__main__":
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    stale = {page: new for page in pages if (new := render(page)) != page.read_text()}
    if "--check" in sys.argv:
        sys.exit(", ".join(f"{page.relative_to(ROOT)} is stale" for page in stale) or 0)
    for page, new in stale.items():
        page.write_text(new)
