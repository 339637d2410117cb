"""Write what pages repeat, between markers: tables from the files under results/, the map of the code from docstrings.

python tools/readme.py          # rewrite the pages
python tools/readme.py --check  # exit 1 if one would change, and name it
"""

import ast
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


_EXTRAS = {
    "core": "what needs arrays alone: budgets, rules, profiles, selection, sampling",
    "torch": "tensors, generators and critics, `rollout`",
    "jax": "JAX arrays, also inside `jit`",
    "plot": "pictures of profiles and diagnoses",
    "cli": "the command `obrs`, and files of Parquet",
    "flows": "learned rejection in the base of a flow",
    "ratios": "`refit` and calibration",
    "training": "`obrs.training`",
    "features": "EfficientNet-Lite0 for `evaluate` and `refit`",
    "ray": "`obrs.ray`",
    "diffusion": "pipelines of diffusers as proposals",
    "language": "the experiments with a language model",
    "tensorboard": "logs of training for TensorBoard",
    "experiments": "`obrs reproduce`, and what `make demo` installs",
    "report": "`obrs report` with images",
}


def extras():
    """What each extra is for, and what it weighs."""
    record = json.loads((ROOT / "results/install.json").read_text())
    rows = {row["extra"]: row for row in record["rows"]}
    if missing := _EXTRAS.keys() - rows.keys():
        raise SystemExit(f"results/install.json lacks {', '.join(sorted(missing))}; run tools/install.py for them")
    lines = ["| extra | for | packages | MB |", "|---|---|---|---|"]
    for name, purpose in _EXTRAS.items():
        called = "none" if name == "core" else f"`{name}`"
        lines.append(f"| {called} | {purpose} | {rows[name]['packages']} | {rows[name]['MB']} |")
    sizes = record["MB"]
    lines += [
        "",
        f"Each was installed alone in an empty environment of Python {rows['core']['python']} and used "
        f"([results/install.json](results/install.json), `python tools/install.py`); torch is the build without GPUs. "
        f"The wheel has {sizes['wheel']} MB, most of it the small networks that experiments come with.",
    ]
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


def priority_error():
    """How far designs are from their probabilities."""
    rows = json.loads((ROOT / "results/bench-priority.json").read_text())["rows"]
    cases = dict.fromkeys((row["candidates"], row["n"], row["spread"]) for row in rows)
    found = {(row["candidates"], row["n"], row["spread"], row["method"]): row for row in rows}
    methods = ("pivotal", "systematic", "priority", "pareto", "gumbel top-k")
    lines = [
        f"| n of N, σ of log r | noise | {' | '.join(methods)} | priority: worst π |",
        f"|---|---|{'---|' * len(methods)}---|",
    ]
    for size, n, spread in cases:
        each = [found[size, n, spread, name] for name in methods]
        cells = [f"{100 * row['error']:.1f} %" for row in each]
        worst = f"{found[size, n, spread, 'priority']['worst']:.3f}"
        noise = f"{100 * each[0]['noise']:.1f} %"
        lines.append(f"| {n} of {size}, {spread:g} | {noise} | {' | '.join(cells)} | {worst} |")
    return "\n".join([*lines, "", "([results/bench-priority.json](results/bench-priority.json))"])


def shards():
    """The constant over the shards of two processes."""
    row = json.loads((ROOT / "results/bench-distributed.json").read_text())["rows"][0]
    seconds, off = row["seconds"], row["off"]
    return (
        f"2 × {row['rows']:,} log-ratios in two processes: {seconds['histogram']:.2f} s of CPU in each, log c off by "
        f"{off['histogram']:.0e}; bisection to 1e-12 takes {row['reductions of bisection']} reductions and "
        f"{seconds['bisection']:.2f} s ([results/bench-distributed.json](results/bench-distributed.json))."
    )


def fresh_rate():
    """How far the rate of fresh proposals is from 1/K."""
    record = json.loads((ROOT / "results/bench-rate.json").read_text())
    off = {(row["sd"], row["n"]): row["off"] for row in record["rows"]}
    return (
        f"c is fitted on a sample. With K = {record['config']['budget']} and log r of standard deviation 1, the rate "
        f"of fresh proposals is off by {off[1.0, 1000]:.3f} (root mean square) if c comes from 1000 proposals, and by "
        f"{off[1.0, 10_000]:.3f} if it comes from 10 000 ([results/bench-rate.json](results/bench-rate.json)). "
        "`confidence=` turns that into a promise."
    )


def rollout_cost():
    """What choosing rollouts costs."""
    record = json.loads((ROOT / "results/bench-rollout.json").read_text())
    config, rows = record["config"], []
    for row in record["rows"]:
        copy, added = (f"{row[name] / row['input_bytes']:.2f}" for name in ("largest_copy_bytes", "added_bytes"))
        rows.append([f'`level="{row["level"]}"`', f"{row['seconds']:.3f}", copy, added])
    size = f"{config['rows']} sequences of {config['length']} tokens"
    head = ["", f"CPU s, target {config['target_seconds']:g}", "largest copy, of the input, target 1", "memory added"]
    return (
        f"`rollout` of {size}, keep = {config['keep']:g}, on one thread "
        f"([results/bench-rollout.json](results/bench-rollout.json)):\n\n{_table(head, rows)}"
    )


def ratio_gaussians():
    """25 Gaussians: what OBRS keeps with each ratio."""
    record = json.loads((ROOT / "results/bench-ratios.json").read_text())["gaussians"]
    budgets = list(record["rows"][0]["budgets"])
    head = ["ratio", "CPU s of a fit", "doctor"]
    head += [f"{what}, K = {k}" for what in ("high quality, %", "KL left") for k in budgets] + ["recall, K = 2.6"]
    rows = [["no rejection", "", "", *_plain(record, ("high quality", 100, 1), len(budgets))]]
    rows[0] += [*_plain(record, ("kl", 1, 2), len(budgets)), _mean_sd(record["no rejection"]["recall"], 1, 3)]
    for row in record["rows"]:
        cells = [row["contestant"], _seconds(row), row["doctor"]]
        cells += [_mean_sd(row["budgets"][k]["high quality"], 100, 1) for k in budgets]
        cells += [_mean_sd(row["budgets"][k]["kl"], 1, 2) for k in budgets]
        rows.append([*cells, _mean_sd(row["budgets"]["2.6"]["recall"], 1, 3)])
    return _table(head, rows)


def ratio_digits(case="digits"):
    """Digits: what an independent classifier says of what OBRS keeps with each ratio."""
    record = json.loads((ROOT / "results/bench-ratios.json").read_text())[case]
    budgets = list(record["rows"][0]["budgets"])
    columns = {"confident": ("confident, %", 100, 1), "fd": ("FD (digits classifier)", 1, 1)}
    head = ["ratio", "CPU s of a fit", "doctor"]
    head += [f"{name}, K = {k}" for name, _, _ in columns.values() for k in budgets] + ["class JSD, K = 2.6"]
    rows = [["no rejection", "", ""]]
    for key, (_, scale, digits) in columns.items():
        rows[0] += _plain(record, (key, scale, digits), len(budgets))
    rows[0].append(_mean_sd(record["no rejection"]["class jsd"], 1, 4))
    for row in record["rows"]:
        cells = [row["contestant"], _seconds(row), row["doctor"]]
        for key, (_, scale, digits) in columns.items():
            cells += [_mean_sd(row["budgets"][k][key], scale, digits) for k in budgets]
        rows.append([*cells, _mean_sd(row["budgets"]["2.6"]["class jsd"], 1, 4)])
    return _table(head, rows)


def ratio_target():
    """How near the best refit comes to the ceiling."""
    target = json.loads((ROOT / "results/bench-ratios.json").read_text())["gaussians"]["target"]
    text = (
        f"The exact ratio keeps {100 * target['ceiling']:.1f} % high-quality samples at K = 2.6. The best refit "
        f"({target['best refit']}) is {target['points below the ceiling']:.1f} points below."
    )
    if target["quickest within a point"] is None:
        return f"{text} The target was one point; it is missed."
    met = "met" if target["met"] else "missed"
    return (
        f"{text} The quickest within one point ({target['quickest within a point']}) takes "
        f"{target['its cpu seconds']:.0f} s of one core. The target, one point within 60 s on 2 cores, is {met}."
    )


def _plain(record, column, times):
    """The model without rejection: said once, the same at every budget."""
    key, scale, digits = column
    return [_mean_sd(record["no rejection"][key], scale, digits), *[""] * (times - 1)]


def _mean_sd(pair, scale, digits):
    mean, sd = (f"{scale * value:.{digits}f}" for value in pair)
    return f"{mean} ± {sd}"


def _seconds(row):
    digits = {"calibration": 2, "refit": 0}  # the others are not fitted
    return f"{row['cpu seconds']:.{digits[row['kind']]}f}" if row["kind"] in digits else ""


def _table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def table_2():
    """The paper's Table 2: its rows with its numbers beside ours, and the rest without."""
    from obrs.experiments import load
    from obrs.experiments.table_2 import PAPER, labels, table, tuning, verdict

    record = load(ROOT / "results/table-2.json")
    found, called, n = table(record), labels(record), record.config["n"]
    rows = []
    for name, row in found.items():
        paper = PAPER.get(name)
        theirs = {
            key: f"{paper[key][0]:.{digits}f}" if paper else "" for key, digits in (("precision", 1), ("recall", 1))
        }
        calls = f"{paper['g'][0] / n:.2f}, {paper['d'][0] / n:.2f}" if paper else ""
        rows.append(
            [
                called[name],
                _mean_sd(row["precision"], 100, 1),
                theirs["precision"],
                f"{100 * row['recall'][0]:.1f}",
                theirs["recall"],
                _mean_sd(row["kl"], 1, 3),
                f"{row['g'][0] / n:.2f}, {row['d'][0] / n:.2f}",
                calls,
            ]
        )
    head = ["method", "precision, %", "paper", "recall, %", "paper", "KL left", "calls of G, D per sample", "paper"]
    text = [
        f"{n} samples of 25 Gaussians, K = {record.config['budget']:g}, mean ± sd of {record.config['generations']} "
        f"generations (rows without the paper's numbers: {record.config['generations_of_others']}); one GAN stopped at "
        f"{100 * record['gan']['precision']:.1f} % high-quality samples "
        "([results/table-2.json](results/table-2.json), `make demo`).",
        "",
        _table(head, rows),
        "",
        " ".join([*verdict(record), *tuning(record)]),
    ]
    return "\n".join(text)


def table_2_whole():
    """All columns of the paper's Table 2."""
    from obrs.experiments import load
    from obrs.experiments.table_2 import markdown

    return markdown(load(ROOT / "results/table-2.json"))


def transport():
    """Transport cost of a WGAN-GP and of what is kept of it, with its two parts."""
    from obrs.experiments import load
    from obrs.experiments.figure_transport import label

    record = load(ROOT / "results/figure-transport.json")
    rows = []
    for row in record.rows:
        costs = [_mean_sd(row[key], 1, 3) for key in ("cost", "between", "within")]
        rows.append([label(row), *costs, f"{100 * row['precision'][0]:.1f}", f"{row['kl'][0]:.3f}"])
    head = ["", "transport", "between modes", "within", "high quality, %", "KL"]
    n, draws = record.config["n"], record.config["draws"]
    text = [
        f"Mean ± standard error of {draws} draws, {n} samples in every row, matched one to one with {n} points of the "
        "target ([results/figure-transport.json](results/figure-transport.json)); KL is on cells.",
        "",
        _table(head, rows),
    ]
    return "\n".join(text)


def training_cost():
    """A step with the rejection inside, as a multiple of the plain one."""
    record = json.loads((ROOT / "results/bench-training.json").read_text())
    names = {"dcgan": "convolutional, 32×32, batch 64", "mlp": "perceptrons, 4×100, batch 256"}
    rows = [
        [
            names[row["size"]],
            f"`{row['mode']}`",
            f"{row['ratio']:.3f} ± {row['standard error']:.3f}",
            f"{min(row['rounds']):.3f} to {max(row['rounds']):.3f}",
            f"{row['target']:g}",
        ]
        for row in record["rows"]
    ]
    head = ["networks", "loss", "wall time", "range", "target, at most"]
    return _table(head, rows)


def metric_cost():
    """The metrics beside the libraries people use for them."""
    record = json.loads((ROOT / "results/bench-metrics.json").read_text())
    named = {row["name"]: row for row in record["rows"]}
    rivals = {"frechet": "Fréchet, torchmetrics", "neighbours": "precision, recall, density, coverage: prdc"}
    rivals |= {name: "kernel, torchmetrics, a fifth of the rows" for name in named if name.startswith("kernel")}
    rows = []
    for name, title in rivals.items():
        row = named[name]
        cpu, wall = ((f"{row[key]:.1f}", f"{row[f'rival_{key}']:.1f}") for key in ("cpu_seconds", "seconds"))
        rows.append([title, *cpu, f"{row['times_faster_cpu']:.1f}×", *wall, f"{row['times_faster']:.1f}×"])
    head = ["", "ours, CPU s", "theirs", "", "ours, wall s", "theirs", ""]
    many = [f"{row['name']}: {row['over_one_cpu']:.3g} times one" for row in record["rows"] if "over_one_cpu" in row]
    added = named["neighbours, memory added over that of prdc"]
    ours, theirs = (added[f"{name}_added_bytes"] / 1e6 for name in ("neighbours", "prdc"))
    large = [
        f"{row['name'].removeprefix('memory, ')} {row['peak_bytes'] / 1e9:.1f} GB"
        for row in record["rows"]
        if "peak_bytes" in row
    ]
    text = [
        f"{_table(head, rows)}",
        "",
        f"CPU seconds of many budgets over one plain evaluation: {'; '.join(many)}.",
        f"Memory beyond the features: neighbours {ours:.0f} MB, prdc {theirs:.0f} MB. Largest memory of a process: "
        f"{'; '.join(large)}, {record['rows'][-1]['input_bytes'] / 1e9:.1f} GB of them the features.",
    ]
    return "\n".join(text)


def training_evidence():
    """What every loss leaves after rejection."""
    from obrs.experiments import load
    from obrs.experiments.tw_obrs import render as table

    return f"```text\n{table(load(ROOT / 'results/tw-obrs.json'))}\n```"


def evaluate_fashion():
    """What the budget bought on clothes: three tables of `examples/evaluate_fashion.py` side by side."""
    from obrs.metrics.table import load_table

    one, classes, other = (
        load_table(ROOT / f"results/evaluate-fashion{name}.json") for name in ("", "-classes", "-gradients")
    )
    head = ["rule", "K", "FD (classifier), one constant", "one per class", "FD (gradients), one per class"]
    head += [f"{name}, one per class" for name in ("precision", "recall", "coverage")]
    rows = []
    for a, b, c in zip(one.rows, classes.rows, other.rows, strict=True):
        cells = [_interval(a, "frechet"), _interval(b, "frechet"), _interval(c, "frechet")]
        cells += [_interval(b, name) for name in ("precision", "recall", "coverage")]
        rows.append([{"obrs": "OBRS", "drs": "DRS"}.get(a.rule, a.rule), f"{a.budget:g}", *cells])
    about = (
        f"{one.n_fake:,} proposals, {one.n_real:,} test images; below each value its change from the model with its "
        f"own {100 * one.confidence:g} % interval (recall and coverage at {classes.size:,} fakes):"
    )
    return f"{about}\n\n{_table(head, rows)}"


def feature_accuracy():
    """What each extractor sees: the share of images that get the right class from their nearest neighbours."""
    record = json.loads((ROOT / "results/features.json").read_text())
    right = {(row["features"], row["data"]): row["right"] for row in record["rows"]}
    names, sets = dict.fromkeys(f for f, _ in right), record["labelled and asked"]
    rows = [[f"`{name}`", *(f"{100 * right[name, data]:.1f} %" for data in sets)] for name in names]
    head = ["features", *(f"{data}, {known} labelled" for data, (known, _) in sets.items())]
    return f"Right class by the nearest {record['neighbours']} labelled images:\n\n{_table(head, rows)}"


def _interval(row, name):
    """A value with its error; for a budget above 1 also the change from the model, bold if it is not 0."""
    value, change = row[name], row.change[name]
    digits = 2 if abs(value.value) >= 1 else 3
    text = f"{value.value:.{digits}f} ± {value.high - value.value:.{digits}f}"
    if row.budget == 1:
        return text
    moved = f"{change.value:+.{digits}f} ± {change.high - change.value:.{digits}f}"
    return f"{text}<br>{moved if change.low <= 0 <= change.high else f'**{moved}**'}"


def image_ratios(budget="2.6"):
    """The change of the distance for every ratio and kind of constant: a column per generator, and a judge."""
    from obrs.experiments.image_names import CONSTANTS, JUDGES, RATIOS

    record = json.loads((ROOT / "results/ratio-evidence.json").read_text())
    rows = {row["row"]: row["ratios"] for row in record["rows"]}
    lines = []
    for judge, title in JUDGES.items():
        body = []
        for ratio, name in RATIOS.items():
            for constant, kind in CONSTANTS.items():
                cells = [_gain(found, ratio, constant, judge, f"obrs {budget}") for found in rows.values()]
                if any(cells):
                    body.append([name, kind, *cells])
        if not body:
            continue
        lines += [f"Judged by {title}, K = {budget}, change in % ± one standard error:", ""]
        lines += [_table(["ratio", "constants", *rows], body), ""]
    return "\n".join(lines[:-1])


def image_recipe():
    """The recommended recipe at each budget, OBRS beside DRS, and what it costs."""
    record = json.loads((ROOT / "results/ratio-evidence.json").read_text())
    budgets = [f"{k:g}" for k in record["config"]["budgets"]]
    rows = []
    for row in record["rows"]:
        cells = [
            _gain(row["ratios"], "outputs", "class", "classifier", f"{rule} {k}")
            for rule in ("obrs", "drs")
            for k in budgets
        ]
        seconds = row["seconds"] + row["ratios"]["outputs"]["seconds"]
        loss = row["ratios"]["outputs"]["log_loss"]
        base = row["ratios"]["outputs"]["cells"]["class"]["classifier"]["model 1"][0]
        rows.append([row["row"], f"{base:.2f}", *cells, f"{loss:.2f}", f"{seconds:.0f}"])
    head = ["generator", "distance", *(f"{rule}, K = {k}" for rule in ("OBRS", "DRS") for k in budgets)]
    return _table([*head, "log-loss", "CPU s"], rows)


def _gain(found, ratio, constant, judge, key):
    """The change of a cell in per cent with its error, bold if it gains more than three standard errors."""
    cell = found.get(ratio, {"cells": {}})["cells"].get(constant, {}).get(judge, {})
    if key not in cell:
        return ""
    base, (_, change, error) = cell["model 1"][0], cell[key]
    text = f"{100 * change / base:+.0f} ± {100 * error / base:.0f}"
    return f"**{text}**" if change < -3 * error else text


def experiment_table(name):
    """What `obrs reproduce` prints."""

    def table():
        from obrs import experiments

        return f"```text\n{experiments.render(experiments.load(ROOT / f'results/{name}.json'))}\n```"

    return table


def planted_faults():
    """What the doctor says of planted faults, and what its advice is worth."""
    record = json.loads((ROOT / "results/bench-doctor.json").read_text())
    sizes = list(record["rows"][0]["verdicts"])
    head = ["fault", *(f"n = {int(n):,}" for n in sizes), "KL removed as it is", "repaired", "refitted", "exact ratio"]
    rows = []
    for row in record["rows"]:
        found = row["kl removed"]
        effects = [f"{found[key]:.3f}" if key in found else "" for key in ("as it is", "repaired", "refitted", "exact")]
        rows.append([row["fault"], *row["verdicts"].values(), *effects])
    return _table(head, rows)


def scale():
    """What it costs to keep a quarter of a folder."""
    record = json.loads((ROOT / "results/bench-scale.json").read_text())
    ray = record["ray"]
    found = {(row["rows"], row["contestant"]): row for row in record["rows"]}
    sizes = sorted({rows for rows, _ in found})
    names = [name for name in record["config"]["contestants"] if name != "ray"]
    head = ["", *(f"{_power(size)} rows" for size in sizes)]
    rows = []
    for name in names:
        cells = []
        for size in sizes:
            row = found.get((size, name), {})
            if "cpu_seconds" not in row:
                cells.append("out of memory at 8 GB" if "memory" in row.get("failed", "") else row.get("failed", ""))
                continue
            times = f" ({row['times']:.1f}×)" if "times" in row and name != "read-filter-write" else ""
            cells.append(f"{row['cpu_seconds']:.1f} s{times}, {row['peak_mb']:.0f} MB")
        if any(cells):
            rows.append([name, *cells])
    return "\n".join(
        [
            "CPU seconds of one thread, in brackets as multiples of read-filter-write, and the most memory, to keep a "
            "quarter of the rows with all three columns, not compressed. The machine was busy with other work; every "
            "contestant has a process of its own "
            "([results/bench-scale.json](results/bench-scale.json), `benchmarks/scale.py`).",
            "",
            _table(head, rows),
            "",
            "*read-filter-write* keeps every fourth row and decides nothing. *sketch* is what a pilot falls back to. "
            "*duckdb* sorts, `ORDER BY key LIMIT n`, within 2 GB; *polars* takes `bottom_k`. On Ray, with one worker "
            f"and {_power(ray['rows'])} rows, the last pass of `obrs.ray.select` takes {ray['times']:.2f} times Ray's "
            "own read, slice and write.",
        ]
    )


def _power(number):
    """1000000 as 10⁶, 20000000 as 2·10⁷, 8940 as 9·10³."""
    lead, digits = (int(part) for part in f"{number:.0e}".split("e"))
    small = str(digits).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{'' if lead == 1 else f'{lead}·'}10{small}"


def scale_arithmetic():
    """What 10¹² rows on 1000 workers would take, from what was measured."""
    record = json.loads((ROOT / "results/bench-scale.json").read_text())
    facts = record["constants"]
    most = max(row["rows"] for row in record["rows"] if row["contestant"] == "sketch" and "cpu_seconds" in row)
    cost = {
        row["contestant"]: row["cpu_seconds"] / most
        for row in record["rows"]
        if row["rows"] == most and "cpu_seconds" in row
    }
    rows, workers, n, wide = 10**12, 1000, 25 * 10**10, 16
    each = rows // workers
    sketch = facts["sketch_bytes"]
    per_bin = 0.3 * rows / 1024  # a normal log r has at most 0.4 of its rows within 1
    open_rows = 2 * (6 * n**0.5 + 22)
    lines = [
        ["rows of a worker", _power(each)],
        [
            "bytes that decide, id and a float32",
            f"{12 * rows / 1e12:.0f} TB, {12 * each / 1e9:.0f} GB a worker, in each look",
        ],
        [
            "bytes with all columns, 16 a row here",
            f"{wide * rows / 1e12:.0f} TB read once, {wide * n / 1e12:.0f} TB written",
        ],
        ["CPU of a look", f"{cost['plan'] * each:.0f} s a worker ({1e9 * cost['plan']:.0f} ns a row)"],
        ["CPU of look and filter", f"{cost['sketch'] * each:.0f} s a worker ({1e9 * cost['sketch']:.0f} ns a row)"],
        [
            "sketches that travel",
            f"{workers} of {sketch / 1e6:.2f} MB: {workers * sketch / 1e9:.2f} GB, merged in trees of 32",
        ],
        ["CPU of all merges", f"{workers * facts['merge_ms'] / 1e3:.1f} s"],
        [
            "rows in the bin of c",
            f"{_power(per_bin)}: too many to hold, so one more look, with bins finer by 2¹⁵: {_power(per_bin / 2**15)}",
        ],
        ["rows that are open", f"{_power(open_rows)}, within 6 standard deviations, each √n at most"],
        [
            "memory of the driver",
            f"{24 * open_rows / 1e6:.0f} MB of open rows, and {32 * sketch / 1e6:.0f} MB of sketches",
        ],
    ]
    intro = (
        "Nothing grows with the rows but reading them. Measured on one thread "
        f"([results/bench-scale.json](results/bench-scale.json): {_power(most)} rows, n = N/4), multiplied:"
    )
    end = (
        "So two looks and a filter: the time is that of reading. [Ray](engines.md#ray) does it with these parts. The "
        "rows are those of one process: tested with 8 workers, and in one process with 2·10⁸ rows, not with 10¹²."
    )
    return "\n".join([intro, "", _table(["", ""], lines), "", end])


def module_map():
    """Every module of the library with the first line of its docstring; rooms import from rooms above."""
    source = ROOT / "src" / "obrs"
    lines = []
    for room in _rooms():
        if (source / f"{room}.py").is_file():
            lines.append(f"- `{room}.py`: {_first_line(source / f'{room}.py')}")
        elif (source / room).is_dir():
            lines.append(f"- `{room}/`: {_first_line(source / room / '__init__.py')}")
            modules = [path for path in sorted((source / room).glob("*.py")) if not path.name.startswith("__")]
            lines += [f"    - `{path.name}`: {_first_line(path)}" for path in modules]
    return "\n".join(lines)


def _rooms():
    """The rooms in the order of the architecture test, which enforces it."""
    for node in ast.parse((ROOT / "tests" / "test_architecture.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "ROOMS":
            return [room for level in ast.literal_eval(node.value) for room in level]
    raise LookupError("tests/test_architecture.py has no ROOMS")


def _first_line(path):
    return ast.get_docstring(ast.parse(path.read_text())).splitlines()[0]


def _language():
    rows = json.loads((ROOT / "results/language.json").read_text())["rows"]
    return {row.pop("row"): row for row in rows}


def language_gradients():
    """Errors of the gradient of a batch, by method and kind of rollout."""
    rows = _language()
    hot, rounded = rows["gradient hot"], rows["gradient int8"]
    head = ["of 64", "trained", "error, T = 1.2", "bias", "empty", "trained", "error, int8", "bias", "empty"]
    cells = []
    for method in hot:
        both = []
        for row in (hot[method], rounded[method]):
            error = f"{row['error']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
            both += [f"{100 * row['trained']:.1f} %", error, f"{row['bias']:.2f}", f"{100 * row['empty']:.1f} %"]
        cells.append([method, *both])
    return _table(head, cells)


def language_reading():
    """What the gradients say, in numbers."""
    rows = _language()
    lines = []
    for kind, name in (("hot", "temperature 1.2"), ("int8", "8 bits")):
        table, made = rows[f"gradient {kind}"], rows[f"rollouts {kind}"]
        error = {method: row["error"] for method, row in table.items()}
        better, low, high = table["OBRS 16"]["better"]
        lines.append(
            f"- {name}: log r has a standard deviation of {made['log_ratio_sd']:.2f}, and the effective sample size of "
            f"the pool is {100 * made['ess']:.1f} % of it. 16 by OBRS have an error of {error['OBRS 16']:.2f}, all 64 "
            f"of {error['all 64']:.2f}, and 16 at random of {error['random 16']:.2f}; the squared error is smaller "
            f"than that of random ones by {better:.2f} ({low:.2f} to {high:.2f}). 32: {error['OBRS 32']:.2f} by OBRS, "
            f"{error['random 32']:.2f} at random."
        )
    return "\n".join(lines)


def language_rewards():
    """Reward against KL, by method and scorer."""
    rows, cells = _language(), []
    head = ["scorer", "method", "reward", "KL", "gap", "copies", "gap of best-of-4 minus this one's"]
    for scorer in ("sentiment", "clean"):
        for method, row in rows[f"tilt {scorer}"].items():
            smaller = row.get("smaller")
            paired = f"{smaller[0]:.4f} ({smaller[1]:.4f} to {smaller[2]:.4f})" if smaller else ""
            numbers = [f"{row['reward']:.3f}", f"{row['kl']:.3f}", f"{row['gap']:.4f}", f"{100 * row['copies']:.0f} %"]
            cells.append([scorer, method, *numbers, paired])
    return _table(head, cells)


def language_tokens():
    """How well stored log-probs bracket the rate of tokens."""
    row = _language()["tokens"]
    return (
        f"At c = 1 and temperature 1.2, {100 * row['rate']:.1f} % of the tokens are kept, by sums over the whole "
        f"vocabulary. {row['stored']} log-probs of q, with those of p for the same tokens, say "
        f"{100 * row['low']:.1f} to {100 * row['high']:.1f} %; the bracket is {row['width']:.3f} wide on average, "
        f"{row['widest']:.3f} at most. With the sampled token, the estimate is "
        f"{row['estimate_bias']:+.4f} ± {row['estimate_error']:.4f} off on average."
    )


def language_training():
    """The fine-tunings: passes, seconds and reward of each arm, over seeds."""
    rows, cells = _language(), []
    names = {"all": "all 64", "obrs": "16 by OBRS", "random": "16 at random"}
    head = [
        "backward passes per step",
        "seeds",
        "passes",
        "CPU s sampling",
        "CPU s training",
        "before",
        "after",
        "change",
    ]
    for arm, name in names.items():
        found = [row for row in rows.values() if row.get("arm") == arm]
        mean = {key: [sum(row[key]) for row in found] for key in ("sampling", "training")}
        mean |= {key: [row[key] for row in found] for key in ("before", "after", "change")}
        cells.append([name, f"{len(found)}", f"{found[0]['passes']}"])
        cells[-1] += [f"{sum(mean[key]) / len(found):.0f}" for key in ("sampling", "training")]
        cells[-1] += [f"{sum(mean[key]) / len(found):.3f}" for key in ("before", "after")]
        cells[-1] += [", ".join(f"{value:+.3f}" for value in mean["change"])]
    runs = [row for row in rows.values() if "change_error" in row]
    errors = [row["change_error"] for row in runs]
    most = max(abs(row["change"]) / row["change_error"] for row in runs)
    text = (
        f"*Change* has the seeds one by one; the standard error of each, over prompts, is {min(errors):.3f} to "
        f"{max(errors):.3f}. The largest change is {most:.1f} of its standard errors."
    )
    return f"{_table(head, cells)}\n\n{text}"


def real_evidence():
    """What a budget buys on real data: one line for each model, with what its nearest rival has at the same price."""

    def quarter(cells, rule):
        """The distance at one quarter, and the standard errors by which it is below the model's."""
        value, change, error = cells[f"{rule} 4"]
        return f"{value:.2f} ({-change / error:.0f} se)"

    rows = []
    record = json.loads((ROOT / "results/figure-pretrained.json").read_text())
    for number, row in enumerate(record["rows"], 1):
        cells = row["ratios"]["outputs"]["cells"]["class"]["classifier"]
        name = f"GAN {number} of clothes, conditional"
        rows.append([name, "Fréchet distance", f"{cells['model 1'][0]:.2f}", quarter(cells, "obrs"), "DRS"])
        rows[-1].append(quarter(cells, "drs"))
    record = json.loads((ROOT / "results/table-diffusion.json").read_text())
    updates = record["config"]["updates"][0]
    cells = next(r for r in record["rows"] if r["row"] == f"{updates} updates, ratio 1")["cells"]["classifier"]
    name = "diffusion model of clothes, stopped early"
    rows.append([name, "Fréchet distance", f"{cells['model 1'][0]:.2f}", quarter(cells, "obrs"), "DRS"])
    rows[-1].append(quarter(cells, "drs"))
    for kind, name in (("hot", "rollouts of SmolLM2, temperature 1.2"), ("int8", "rollouts of SmolLM2, 8 bits")):
        table = _language()[f"gradient {kind}"]
        error = {method: f"{table[method]['error']:.2f}" for method in ("all 64", "OBRS 16", "random 16")}
        rows.append([name, "error of the gradient", error["all 64"], error["OBRS 16"], "random 16 of 64"])
        rows[-1].append(error["random 16"])
    head = ["model", "measured", "all proposals", "1 in 4 by OBRS", "rival", "1 in 4 by it"]
    return "\n".join(
        [
            _table(head, rows),
            "",
            "Smaller is better. Distances are to test images, by a classifier that neither model nor ratio knew; the "
            "ratio is fitted on what another one makes of images, one constant per class; in brackets, by how many "
            "standard errors the distance fell ([GANs](results/figure-pretrained.json), "
            "[diffusion](results/table-diffusion.json)). The gradient is that of a policy, relative to its length, and "
            "four times fewer rollouts have a backward pass ([rollouts](results/language.json)).",
        ]
    )


_PRINTED = (
    "figure-training",
    "table-finetune",
    "figure-frequency",
    "figure-pretrained",
    "table-diffusion",
    "figure-landscape",
    "figure-when-training-pays",
)
TABLES = {
    "map": module_map,
    "extras": extras,
    "evaluate fashion": evaluate_fashion,
    "feature accuracy": feature_accuracy,
    "training evidence": training_evidence,
    "planted faults": planted_faults,
    "image ratios": image_ratios,
    "image recipe": image_recipe,
    **{name.replace("-", " "): experiment_table(name) for name in _PRINTED},
    "table 2": table_2,
    "training cost": training_cost,
    "metric cost": metric_cost,
    "rollout cost": rollout_cost,
    "table 2 whole": table_2_whole,
    "transport": transport,
    "minimal": minimal,
    "solver": solver,
    "fresh rate": fresh_rate,
    "priority error": priority_error,
    "shards": shards,
    "scale": scale,
    "scale arithmetic": scale_arithmetic,
    "ratio gaussians": ratio_gaussians,
    "ratio digits": ratio_digits,
    "ratio noisy digits": lambda: ratio_digits("noisy digits"),
    "ratio target": ratio_target,
    "real evidence": real_evidence,
    "language gradients": language_gradients,
    "language reading": language_reading,
    "language rewards": language_rewards,
    "language tokens": language_tokens,
    "language training": language_training,
}


def render(page):
    """Return the text of a page with the table of every marker renewed; links lead from the page to results/."""
    text, up = page.read_text(), "../" * (len(page.relative_to(ROOT).parts) - 1)
    for name, table in TABLES.items():
        if f"<!-- {name} -->" in text:
            lines = table().replace("](results/", f"]({up}results/")
            block = f"<!-- {name} -->\n{lines}\n<!-- end {name} -->"
            text = re.sub(rf"<!-- {name} -->(.*?<!-- end {name} -->)?", lambda _, block=block: block, text, flags=re.S)
    return text


def pages():
    """Every page that may have a marker."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


if __name__ == "__main__":
    stale = {page: new for page in pages() if (new := render(page)) != page.read_text()}
    if "--check" in sys.argv:
        sys.exit(", ".join(f"{page.relative_to(ROOT)} is stale" for page in stale) or 0)
    for page, new in stale.items():
        page.write_text(new)
