"""Table 2: 25 Gaussians, one GAN, every method at the same budget; what is kept, how good it is, what it costs.

The paper does not describe the GAN, what its discriminator was trained on, or the constants of the other methods;
`gan25` and `rivals` say what was chosen. Its MH-GAN has two iterations and 2.57 generator calls per sample, which is
only possible if chains are thrown away. That reading is the row "discarding"; MH-GAN itself has three steps, the budget
rounded up, and other rows have more. DOT and DGflow have three steps, as in the paper. Methods that follow a gradient
have two rows: one with the published size of a step, one with the size that is best for this GAN, found on other
latents than those of the table. The record has what every size gave.
"""

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any

import numpy as np

from obrs._checks import check_budget, check_count

from .gan25_settings import SMOKE, Settings
from .record import Record
from .style import LOOKS, canvas, caption, page_table, tidy

__all__ = ["PAPER", "PRESETS", "Config", "figure", "labels", "markdown", "run", "table", "tuning", "verdict"]

_COLUMNS = ("recall", "precision", "g", "d", "seconds")
_ROWS = {
    "model": ((100.0, 0.0), (55.80, 0.99), (2500, 0), (0, 0), (0.03, 0.01)),
    "obrs": ((100.0, 0.0), (92.54, 0.54), (6262, 92), (6262, 92), (0.45, 0.01)),
    "drs": ((100.0, 0.0), (89.87, 0.59), (6411, 93), (6411, 93), (0.46, 0.01)),
    "mhgan": ((100.0, 0.0), (89.98, 0.61), (6415, 45), (19292, 23), (6.38, 0.09)),
    "dot": ((100.0, 0.0), (58.47, 1.00), (2500, 0), (7500, 0), (0.94, 0.14)),
    "dgflow": ((94.81, 2.83), (56.00, 1.02), (7500, 0), (7500, 0), (0.67, 0.13)),
}
PAPER: dict[str, dict[str, tuple[float, float]]] = {
    method: dict(zip(_COLUMNS, row, strict=True)) for method, row in _ROWS.items()
}
"""Table 2 of the paper: means and standard deviations of 1000 generations of 2500 samples, K = 2.6."""

TUNED = {f"{name}_tuned": name for name in ("dot", "dgflow", "ddls")}
OTHERS = (
    *("obrs_pool", "obrs_refit", "obrs_exact", "exact", "topk", "sir", "latent_rs"),
    *("mhgan_own", "mhgan_calibrated", "mhgan_discarding", "mhgan_5", "mhgan_10", "mhgan_50"),
    *("dot_tuned", "dgflow_tuned", "ddls", "ddls_tuned"),
)
LABELS = {name: style.label for name, style in LOOKS.items()} | {
    "model": "the model itself",
    "obrs_refit": "OBRS, ratio refitted",
    "obrs_exact": "OBRS, exact ratio",
    "mhgan": "MH-GAN, {steps} steps",
    "mhgan_own": "MH-GAN, {steps}, own start",
    "mhgan_calibrated": "MH-GAN, {steps}, calibrated",
    "mhgan_discarding": "MH-GAN, {whole}, discarding",
    "mhgan_5": "MH-GAN, 5 steps",
    "mhgan_10": "MH-GAN, 10 steps",
    "mhgan_50": "MH-GAN, 50 steps",
    "dot_tuned": "DOT, step tuned",
    "dgflow_tuned": "DGflow, step tuned",
    "ddls_tuned": "DDLS, step tuned",
}
WHY = {
    "obrs_pool": "the same probabilities, and the number of proposals does not vary",
    "obrs_refit": "the same rule with a better ratio",
    "obrs_exact": "the same rule with the exact ratio, the ceiling at this budget",
    "sir": "it resamples and does not reject: {repeated:.0f} % of its samples are copies of others",
    "exact": "no budget holds it: {g:.1f} generator calls per sample",
    "mhgan_discarding": "it throws chains away: {g:.1f} generator calls per sample",
    "mhgan_5": "at {g:.0f} generator calls per sample",
    "mhgan_10": "at {g:.0f} generator calls per sample",
    "mhgan_50": "at {g:.0f} generator calls per sample",
    "latent_rs": "it tries {tried:.0f} latents per sample, scored by a network that was trained for it",
}
_NO_COLUMNS = ("row", "method", "gan", "generations", "step", "grid")
_ALONE = "at this budget, with this ratio"


@dataclass(frozen=True)
class Config(Settings):
    """What to run; the other fields are of the GAN, see `Settings`.

    Args:
        n: Samples in a generation.
        budget: Generator calls per sample.
        generations: Generations of the paper's six rows.
        generations_of_others: Generations of the other rows.
        gans: GANs, each with its own seed.
        tuning_draws: Draws, of n samples, that each size of a step is judged by.
    """

    n: int = 2500
    budget: float = 2.6
    generations: int = 100
    generations_of_others: int = 10
    gans: int = 1
    tuning_draws: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budget(self.budget)
        for name in ("n", "generations", "generations_of_others", "gans", "tuning_draws"):
            check_count(getattr(self, name), name)


PRESETS = {
    "smoke": Config(n=100, generations=2, generations_of_others=2, tuning_draws=1, **SMOKE),
    "demo": Config(generations=20, generations_of_others=5),
    "default": Config(),
    "paper": Config(generations=1000, generations_of_others=1000),
}


def run(config: Config, rows: Record) -> None:
    """Train the GANs, and draw from each with every method."""
    from .rivals import METHODS, generations, prepared, tuned

    for number in range(config.gans):
        wanted = {row_name(method, number): method for method in (*PAPER, *OTHERS)}
        facts, seed = row_name("gan", number), config.seed + number
        if facts in rows and all(name in rows for name in wanted):
            continue
        ready = prepared(Settings.of(config, seed=seed), rows.progress)
        if facts not in rows:
            gan = ready.gan
            of_gan = {"steps": gan.steps, "precision": gan.precision, "log_loss": gan.log_loss}
            rows.add(facts, of_gan | {"log_loss_refitted": ready.log_loss, "steepness": ready.steepness})
        for name, method in rows.todo(wanted):
            many = config.generations if method in PAPER else config.generations_of_others
            sampler, model = METHODS[TUNED.get(method, method)](ready, config.budget)
            about: dict[str, Any] = {"method": method, "gan": number}
            if method in TUNED:
                sampler, found = tuned(TUNED[method], ready, config.budget, config.n, config.tuning_draws, seed=seed)
                about |= found
            rows.add(name, about | generations(sampler, model, config.n, many, seed=seed))


def row_name(method: str, number: int) -> str:
    """Return the name of the row of a method on a GAN: the first GAN's is the method's.

    Example:
        >>> row_name("obrs", 0), row_name("obrs", 1)
        ('obrs', 'obrs, GAN 2')
    """
    return method if number == 0 else f"{method}, GAN {number + 1}"


def labels(record: Record) -> dict[str, str]:
    """Return what the rows are called; those of MH-GAN say how many steps it takes.

    Example:
        >>> labels(Record("table-2", "smoke", {"budget": 2.6}, []))["mhgan"]
        'MH-GAN, 3 steps'
    """
    k = record.config["budget"]
    return {name: label.format(steps=ceil(k), whole=max(2, int(k))) for name, label in LABELS.items()}


def measured(record: Record) -> dict[str, dict[str, tuple[float, float]]]:
    """Return mean and standard deviation of every column, by method, over the generations of all GANs.

    Example:
        >>> rows = [{"row": "obrs", "method": "obrs", "generations": 9, "kl": [1.0, 0.3]}]
        >>> rows += [{"row": "obrs, GAN 2", "method": "obrs", "generations": 9, "kl": [1.8, 0.3]}]
        >>> print(measured(Record("table-2", "paper", {}, rows)))
        {'obrs': {'kl': (1.4, 0.5)}}
    """
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for method in (*PAPER, *OTHERS):
        same = [row for row in record.rows if row.get("method") == method]
        if same:
            columns = [key for key in same[0] if key not in _NO_COLUMNS]
            found[method] = {key: _pooled([row[key] for row in same]) for key in columns}
    return found


def _pooled(pairs: list[Any]) -> tuple[float, float]:
    means, sds = np.asarray(pairs, dtype=np.float64).T
    return float(means.mean()), round(sqrt(float(np.mean(sds**2) + np.var(means))), 12)


def verdict(record: Record) -> list[str]:
    """Say what came closer to the target than OBRS, and why; or that no method did."""
    found, k = measured(record), record.config["budget"]
    n, ours, called = record.config["n"], found["obrs"]["kl"][0], labels(record)
    better = [name for name in found if name != "obrs" and found[name]["kl"][0] < ours]
    matched = ("drs", "mhgan", "mhgan_calibrated", "topk")
    if not set(better) & set(matched):
        next_best = min(matched, key=lambda name: found[name]["kl"][0])
        lines = [
            f"At K = {k:g} OBRS leaves the least KL of all rejection methods, {ours:.3f}; "
            f"the next is {called[next_best]}, {found[next_best]['kl'][0]:.3f}."
        ]
    else:
        lines = [f"At K = {k:g} OBRS leaves a KL of {ours:.3f} and is not the best of the rejection methods."]
    for name in better:
        row = found[name]
        facts = {"g": row["g"][0] / n, "repeated": 100 * row["repeated"][0], "tried": row["tried"][0]}
        lines.append(f"{called[name]} leaves {row['kl'][0]:.3f}: {WHY.get(name, _ALONE).format(**facts)}.")
    sharp = max(found, key=lambda name: found[name]["precision"][0])
    if sharp not in ("obrs", *better):
        row = found[sharp]
        lines.append(
            f"{called[sharp]} has the highest precision, {100 * row['precision'][0]:.1f} %, "
            f"and pays with a KL of {row['kl'][0]:.3f}."
        )
    return lines


def table(record: Record) -> str:
    """Return two tables, quality and cost, with the paper's numbers beside ours, and what they say."""
    found, called = measured(record), labels(record)
    quality = [["", "recall %", "paper", "precision %", "paper", "KL", "JS"]]
    cost = [["", "calls of G", "paper", "calls of D", "paper", "executed G, D", "time", "paper"]]
    for name, row in found.items():
        paper = PAPER.get(name, {})
        cells = [called[name], _cell(row["recall"], 1, 100), _cell(paper.get("recall"), 1)]
        cells += [_cell(row["precision"], 2, 100), _cell(paper.get("precision"), 2)]
        quality.append([*cells, _cell(row["kl"], 3), _cell(row["js"], 3)])
        cells = [called[name], _cell(row["g"], 0), _cell(paper.get("g"), 0)]
        cells += [_cell(row["d"], 0), _cell(paper.get("d"), 0)]
        cells += [f"{row['g_executed'][0]:.0f}, {row['d_executed'][0]:.0f}"]
        cells += [f"{_cell(row['time'], 1 if row['time'][0] < 1000 else 0)} ×"]
        cost.append([*cells, f"{_times(paper):.0f} ×" if paper else ""])
    return "\n".join([*_aligned(quality), "", *_aligned(cost), "", *verdict(record), *_fine_print(record)])


def _aligned(rows: list[list[str]]) -> list[str]:
    """Return rows of cells as lines, each column as wide as its longest cell; the first is on the left.

    Example:
        >>> print(*_aligned([["", "KL"], ["OBRS", "0.660 ± 0.022"]]), sep="\\n")
                         KL
        OBRS  0.660 ± 0.022
    """
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join([row[0].ljust(wide[0]), *map(str.rjust, row[1:], wide[1:])]) for row in rows]
    return [line.rstrip() for line in lines]


def _fine_print(record: Record) -> list[str]:
    config, gan = record.config, record["gan"]
    of = f"{config['gans']} GANs, the first" if config["gans"] > 1 else "One GAN,"
    return [
        f"{of} stopped after {gan['steps']} steps at {100 * gan['precision']:.1f} % high-quality samples.",
        f"Mean ± sd of {config['generations']} generations of {config['n']} samples, of the last {len(OTHERS)} rows "
        f"{config['generations_of_others']}.",
        "KL and JS on cells depend on the number of samples: compare them at equal n.",
        *tuning(record),
        "Time is of the processor, a multiple of the model's own in the same run; what is trained once is not in it.",
    ]


def tuning(record: Record) -> list[str]:
    """Say which step was chosen for each method; nothing of a record that has no such rows."""
    called = labels(record)
    steps = [f"{called[name]} to {record[method]['step']:g}" for method, name in TUNED.items() if method in record]
    if not steps:
        return []
    draws = f"{record.config['tuning_draws']} × {record.config['n']}"
    return [f"Steps tuned by the KL of {draws} samples of other latents: {', '.join(steps)}."]


def _times(paper: dict[str, tuple[float, float]]) -> float:
    return paper["seconds"][0] / PAPER["model"]["seconds"][0]


def _cell(pair: tuple[float, float] | None, digits: int, scale: float = 1.0) -> str:
    return "" if pair is None else f"{scale * pair[0]:.{digits}f} ± {scale * pair[1]:.{digits}f}"


def markdown(record: Record) -> str:
    """Return the table for a page, the paper's value after ours where it has one."""
    heads = ["method", "recall, %", "paper", "precision, %", "paper", "KL", "JS", "calls of G", "paper", "calls of D"]
    heads += ["paper", "executed G, D", "time", "paper"]
    lines, called = [], labels(record)
    for name, row in measured(record).items():
        paper = PAPER.get(name, {})
        cells = [called[name], _cell(row["recall"], 1, 100), _cell(paper.get("recall"), 1)]
        cells += [_cell(row["precision"], 2, 100), _cell(paper.get("precision"), 2)]
        cells += [_cell(row["kl"], 3), _cell(row["js"], 3), _cell(row["g"], 0), _cell(paper.get("g"), 0)]
        cells += [_cell(row["d"], 0), _cell(paper.get("d"), 0)]
        cells += [f"{row['g_executed'][0]:.0f}, {row['d_executed'][0]:.0f}", f"{_cell(row['time'], 1)} ×"]
        lines.append([*cells, f"{_times(paper):.0f} ×" if paper else ""])
    return page_table(heads, lines)


def figure(record: Record) -> Any:
    """Draw precision, divergence and cost of every method, the paper's precision beside ours."""
    found, called = measured(record), labels(record)
    order = list(found)[::-1]
    drawn = canvas(9, 2.2 + 0.24 * len(order))
    panels = drawn.subplots(1, 3, sharey=True, width_ratios=(1.15, 1, 1))
    places = {name: at + (0.5 if name in PAPER else 0) for at, name in enumerate(order)}
    for name, row in found.items():
        style = _look(name)
        values = (("precision", 100.0), ("kl", 1.0), ("g", 1 / record.config["n"]))
        for panel, (key, scale) in zip(panels, values, strict=True):
            mean, sd = (scale * value for value in row[key])
            panel.errorbar(
                mean, places[name], xerr=sd, color=style.colour, marker=style.marker, ms=7, mec="0.2", mew=0.5
            )
        if name in PAPER:
            mean = PAPER[name]["precision"][0]
            panels[0].plot(mean, places[name], "D", ms=10, mfc="none", mec="0.3", label="paper")
    panels[0].set_yticks(list(places.values()), [called[name] for name in places])
    panels[0].set(title="Precision", xlabel="high-quality samples, %")
    panels[1].set(title="Distance", xlabel=f"KL to the target, {record.config['n']} samples")
    panels[2].set(title="Cost", xlabel="generator calls per sample", xscale="log")
    most = 1.4 * max(sum(row["g"]) for row in found.values()) / record.config["n"]
    ticks = [1, 3, 10, 30, 100] if most < 200 else [10**power for power in range(7)]  # more would not be legible
    panels[2].set_xlim(0.8, most)
    panels[2].set_xticks([tick for tick in ticks if tick <= most])
    panels[2].xaxis.set_major_formatter("{x:g}")
    panels[2].minorticks_off()
    panels[1].locator_params(axis="x", nbins=4)
    for panel in panels:
        tidy(panel, None)
    handles, names = panels[0].get_legend_handles_labels()
    panels[0].legend(handles[:1], names[:1], loc="lower right", bbox_to_anchor=(1.02, 0.99))
    caption(
        drawn,
        record.experiment,
        f"25 Gaussians, {record.config['n']} samples. {verdict(record)[0]} Above the gap: the rows of the paper.",
    )
    return drawn


def _look(name: str) -> Any:
    """Return the look of a row; variants of a method look like it."""
    if name in LOOKS:
        return LOOKS[name]
    if name in TUNED:
        return LOOKS[TUNED[name]]
    return LOOKS["obrs_refit" if name.startswith("obrs") else "mhgan_calibrated"]
