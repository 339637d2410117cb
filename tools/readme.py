"""Write the numbers that pages show, between markers, from the records of experiments and benchmarks.

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


def rows_of(name):
    """Return the rows of an experiment by their names."""
    return {row["row"]: row for row in json.loads((ROOT / f"paper/results/{name}.json").read_text())["rows"]}


def benchmark(name):
    """Return the record of a benchmark."""
    return json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())


def headline():
    """Return why to care, in one line: the mean change of GANs that nothing was chosen on, by judges it never saw."""
    rows = rows_of("tune")

    def gain(judge):
        cells = [rows[f"cifar10-gan-{seed}"]["cells"]["4"]["others"][judge] for seed in (0, 1, 2)]
        return f"{-100 * sum(cell['changes']['tune'][0] for cell in cells) / len(cells):.0f} %"

    return (
        f"**Keep 1 in 4 samples of a finished GAN by `obrs.tune`: {gain('EfficientNet-Lite0')} closer to CIFAR-10 by "
        f"EfficientNet-Lite0, {gain('committed classifier')} by a classifier; neither had a part in the choice.**"
    )


def constants():
    """Return what one constant for all classes does to the distance, and what one per class does, at K = 2."""
    rows = rows_of("figure-pretrained").values()

    def times(ratio, how):
        some = [row["ratios"][ratio]["cells"] for row in rows if ratio in row["ratios"]]
        cells = [by[how]["classifier"] for by in some if "class" in by]  # an unconditional GAN has one constant
        ratios = sorted(cell["obrs 2"][0] / cell["model 1"][0] for cell in cells)
        return f"{ratios[0]:.2f} to {ratios[-1]:.2f}"

    names = {"tuned": "the critic, trained further", "outputs": "the outputs of a classifier"}
    lines = [[name, times(key, "global"), times(key, "class")] for key, name in names.items()]
    return table(["distance at K = 2, as a multiple of the model's", "one constant", "one per class"], lines)


def rate():
    """Return how far the rate of fresh proposals is off."""
    off = {row["n"]: row["off"] for row in benchmark("rate")["rows"] if row["sd"] == 1}
    return (
        "c is fitted on a sample: with K = 2.6 and log r of standard deviation 1, the rate of fresh proposals is off "
        f"by {off[1000]:.3f}\nif c comes from 1000 proposals, and by {off[10_000]:.3f} if it comes from 10 000 "
        "([record](../benchmarks/results/rate.json))."
    )


def real_evidence():
    """Return what a budget buys on real data, beside the nearest rival at the same price."""
    rows, tuned = [], rows_of("tune")
    for seed in (0, 1, 2):
        judged = tuned[f"cifar10-gan-{seed}"]["cells"]["4"]["others"]["EfficientNet-Lite0"]
        plain, changes = judged["plain"], judged["changes"]
        tune, drs = (f"{plain * (1 + changes[key][0]):.0f} ± {plain * changes[key][1]:.0f}" for key in ("tune", "drs"))
        rows.append([f"conditional GAN {seed}, CIFAR-10", f"{plain:.0f}", tune, f"DRS {drs}"])
    models = rows_of("table-diffusion")
    *_, last = (row for name, row in models.items() if name.endswith("updates, ratio 1"))  # nothing was chosen on it
    cells = last["cells"]["efficientnet_lite0"]  # a distance, and the standard error of its fall
    ours, drs = (f"{value:.0f} ± {error:.0f}" for value, _, error in (cells["obrs 4"], cells["drs 4"]))
    rows.append(["diffusion model, CIFAR-10", f"{cells['model 1'][0]:.0f}", ours, f"DRS {drs}"])
    language = rows_of("language")
    for kind, name in (("hot", "rollouts, error of the gradient"), ("int8", "rollouts in 8 bits")):
        errors = language[f"gradient {kind}"]
        whole, ours, random = (errors[method]["error"] for method in ("all 64", "OBRS 16", "random 16"))
        rows.append([name, f"{whole:.2f}", f"{ours:.2f}", f"random {random:.2f}"])
    return table(["measured", "all proposals", "1 in 4 by OBRS", "1 in 4 by a rival"], rows)


def planted_faults():
    """Return what the doctor says of planted faults, and what its advice is worth."""
    sizes = (200, 2000, 20_000)
    keys, rows = ("as it is", "repaired", "refitted", "exact"), []
    for row in benchmark("doctor")["rows"]:
        if row["fault"] in FAULTS:
            verdicts, removed = (row["verdicts"].get(str(n), "") for n in sizes), row["kl removed"]
            rows.append([row["fault"], *verdicts, *(f"{removed[key]:.3f}" if key in removed else "" for key in keys)])
    titles = ["KL removed as it is", "repaired", "refitted", "exact ratio"]
    return table(["fault", *(f"n = {n:,}" for n in sizes), *titles], rows)


def selection():
    """Return what ways to choose 500 of 2000 leave, and how long they take for a million."""
    rows = [row for row in benchmark("selection")["rows"] if (row["spread"], row["n"]) == (1, 500)]
    head = ["method", "error of π", "KL left", "TV left", "copies", "error of a mean", "with weights"]
    keys = ("error", "kl", "tv", "repeats", "rmse", "rmse_weighted")
    cells = [[f"{row[k]:.3f}" if row[k] is not None else "∞" if k == "kl" else "" for k in keys] for row in rows]
    return table(head, [[row["method"], *line] for row, line in zip(rows, cells, strict=True)])


def speed():
    """Return what parts of the library cost, beside what else does the same."""
    solver = {(row["n"], row["sd"], row["backend"]): row for row in benchmark("solver")["rows"]}[10**7, 1, "numpy"]
    passes, rival = f"{solver['passes']:.1f} passes of exp and sum", f"{solver['speed-up']:.0f} times as long"
    rows = [["solve for c, 10⁷ log-ratios", passes, f"Algorithm B.1: {rival}"]]
    for row in benchmark("metrics")["rows"]:
        if "rival_cpu_seconds" in row:
            name = {"frechet": "Fréchet distance", "neighbours": "precision, recall, density, coverage"}
            rival = "prdc" if row["name"] == "neighbours" else "torchmetrics"
            ours, theirs = f"{row['cpu_seconds']:.1f} CPU s", f"{rival}: {row['rival_cpu_seconds']:.1f} CPU s"
            rows.append([f"{name.get(row['name'], row['name'])}, 10⁴ × 2048", ours, theirs])
    for row in benchmark("training")["rows"]:
        if row["mode"] == "exact":
            rows.append([f"a step of training, {row['size']}", f"{row['ratio']:.3f}", "the plain f-GAN: 1"])
    sequence = next(row for row in benchmark("rollout")["rows"] if row["level"] == "sequence")
    rows.append(["rollout, 1024 × 8192 tokens", f"{sequence['seconds']:.3f} CPU s", ""])
    scale = {row["contestant"]: row for row in benchmark("scale")["rows"] if row["rows"] == 50_000_000}
    cost = {name: f"{row['cpu_seconds']:.0f} CPU s, {row['peak_mb']:.0f} MB" for name, row in scale.items()}
    for n, end in (("a quarter", ""), ("10⁵", ", n = 10⁵")):
        others = "; ".join(f"{name}: {cost[name + end]}" for name in ("read-filter-write", "duckdb", "polars"))
        rows.append([f"keep {n} of 5·10⁷ rows of Parquet", cost["select" + end], others])
    return table(["what", "obrs", "beside it"], rows)


def many_machines():
    """Return what 10¹⁰ rows cost each of 100 workers, from rates measured on one core."""
    ray = benchmark("scale")["ray"]
    count, write = (1e6 * ray[f"{key}_seconds"] / ray["rows"] for key in ("looks", "filter"))
    passes = [("count", "those that decide", count / 2, "520 MB: 2.6 MB per block")]
    passes += [(name, "those that decide", count / 2, "2 MB") for name in ("count inside the cell", "collect")]
    passes += [("filter and write", "all", write, "the kept rows")]
    rows = [[name, columns, f"{rate:.2f} µs", f"{100 * rate / 60:.1f}", sent] for name, columns, rate, sent in passes]
    return table(["pass", "columns", "CPU per row", "minutes per worker", "sent by a worker"], rows)


FAULTS = {"exact, 1 apart", "exact, 4 apart", "three times too steep", "tanh", "clipped", "wrong way round"}
FAULTS |= {"30 % missing", "noise of 1"}
TABLES = (constants, headline, many_machines, planted_faults, rate, real_evidence, selection, speed)


def render(page):
    """Return the text of a page with the table of every marker renewed; a marker is the name of a function."""
    text = page.read_text()
    for function in TABLES:
        name = function.__name__.replace("_", " ")
        if f"<!-- {name} -->" in text:
            block = f"<!-- {name} -->\n{function()}\n<!-- end {name} -->"
            text = re.sub(rf"<!-- {name} -->(.*?<!-- end {name} -->)?", lambda _, block=block: block, text, flags=re.S)
    return text


if __name__ == "__main__":
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    stale = {page: new for page in pages if (new := render(page)) != page.read_text()}
    if "--check" in sys.argv:
        sys.exit(", ".join(f"{page.relative_to(ROOT)} is stale" for page in stale) or 0)
    for page, new in stale.items():
        page.write_text(new)
