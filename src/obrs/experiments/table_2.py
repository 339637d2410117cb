"""Table 2: 25 Gaussians, one GAN, every method at the same budget; what is kept, how good it is, what it costs.

The paper does not describe the GAN, what its discriminator was trained on, or the constants of the other methods;
`gan25` and `rivals` say what was chosen. Its MH-GAN has two iterations and 2.57 generator calls per sample, which is
only possible if chains are thrown away. That reading is the row "MH-GAN, discarding"; "MH-GAN" has three steps, the
budget rounded up. DOT and DGflow have three steps, as in the paper.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from .._inputs import check_budget, check_count
from .recipe import SMOKE, Recipe
from .record import Record, Rows
from .style import LOOKS, caption, figure, tidy

__all__ = ["PAPER", "PRESETS", "Config", "markdown", "plot", "render", "run", "verdict"]

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

OTHERS = (
    *("obrs_pool", "obrs_refit", "obrs_exact", "mhgan_calibrated", "mhgan_discarding"),
    *("exact", "topk", "sir", "latent_rs", "ddls"),
)
LABELS = {name: style.label for name, style in LOOKS.items()} | {
    "model": "the model itself",
    "obrs_refit": "OBRS, ratio refitted",
    "obrs_exact": "OBRS, exact ratio",
    "mhgan_discarding": "MH-GAN, discarding",
}
WHY = {
    "obrs_pool": "the same probabilities, and the number of proposals does not vary",
    "obrs_refit": "the same rule with a better ratio",
    "obrs_exact": "the same rule with the exact ratio, the ceiling at this budget",
    "sir": "it resamples and does not reject: {repeated:.0f} % of its samples are copies of others",
    "exact": "no budget holds it: {g:.1f} generator calls per sample",
    "mhgan_discarding": "it throws chains away: {g:.1f} generator calls per sample",
    "latent_rs": "it tries {tried:.0f} latents per sample, scored by a network that was trained for it",
}
_ALONE = "at this budget, with this ratio"


@dataclass(frozen=True)
class Config(Recipe):
    """What to run; the other fields are of the GAN, see `Recipe`.

    Args:
        n: Samples in a generation.
        budget: Generator calls per sample.
        generations: Generations of the paper's six rows.
        generations_of_others: Generations of the other rows.
        gans: GANs, each with its own seed.
    """

    n: int = 2500
    budget: float = 2.6
    generations: int = 100
    generations_of_others: int = 10
    gans: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_budget(self.budget)
        for name in ("n", "generations", "generations_of_others", "gans"):
            check_count(getattr(self, name), name)


PRESETS = {
    "smoke": Config(n=300, generations=3, generations_of_others=2, **SMOKE),
    "default": Config(),
    "paper": Config(generations=1000, generations_of_others=1000, gans=5),
}


def run(config: Config, rows: Rows) -> None:
    """Train the GANs, and draw from each with every method."""
    from .rivals import METHODS, generations, prepared

    for number in range(config.gans):
        wanted = {row_name(method, number): method for method in (*PAPER, *OTHERS)}
        facts, seed = row_name("gan", number), config.seed + number
        if facts in rows and all(name in rows for name in wanted):
            continue
        ready = prepared(Recipe.of(config, seed=seed), rows.progress)
        if facts not in rows:
            gan = ready.gan
            of_gan = {"steps": gan.steps, "precision": gan.precision, "log_loss": gan.log_loss}
            rows.add(facts, of_gan | {"log_loss_refitted": ready.log_loss, "steepness": ready.steepness})
        for name, method in rows.todo(wanted):
            many = config.generations if method in PAPER else config.generations_of_others
            sampler, model = METHODS[method](ready, config.budget)
            rows.add(name, {"method": method, "gan": number} | generations(sampler, model, config.n, many, seed=seed))


def row_name(method: str, number: int) -> str:
    """Return the name of the row of a method on a GAN: the first GAN's is the method's.

    Example:
        >>> row_name("obrs", 0), row_name("obrs", 1)
        ('obrs', 'obrs, GAN 2')
    """
    return method if number == 0 else f"{method}, GAN {number + 1}"


def table(record: Record) -> dict[str, dict[str, tuple[float, float]]]:
    """Return mean and standard deviation of every column, by method, over the generations of all GANs.

    Example:
        >>> rows = [{"row": "obrs", "method": "obrs", "generations": 9, "kl": [1.0, 0.3]}]
        >>> rows += [{"row": "obrs, GAN 2", "method": "obrs", "generations": 9, "kl": [1.8, 0.3]}]
        >>> print(table(Record("table-2", "paper", {}, rows)))
        {'obrs': {'kl': (1.4, 0.5)}}
    """
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for method in (*PAPER, *OTHERS):
        same = [row for row in record.rows if row.get("method") == method]
        if same:
            columns = [key for key in same[0] if key not in ("row", "method", "gan", "generations")]
            found[method] = {key: _pooled([row[key] for row in same]) for key in columns}
    return found


def _pooled(pairs: list[Any]) -> tuple[float, float]:
    means, sds = np.asarray(pairs, dtype=np.float64).T
    return float(means.mean()), round(sqrt(float(np.mean(sds**2) + np.var(means))), 12)


def verdict(record: Record) -> list[str]:
    """Say what came closer to the target than OBRS, and why; or that no method did."""
    found, k = table(record), record.config["budget"]
    n, ours = record.config["n"], found["obrs"]["kl"][0]
    better = [name for name in found if name != "obrs" and found[name]["kl"][0] < ours]
    matched = ("drs", "mhgan", "mhgan_calibrated", "topk")
    if not set(better) & set(matched):
        next_best = min(matched, key=lambda name: found[name]["kl"][0])
        lines = [
            f"At K = {k:g} OBRS leaves the least KL of all rejection methods, {ours:.3f}; "
            f"the next is {LABELS[next_best]}, {found[next_best]['kl'][0]:.3f}."
        ]
    else:
        lines = [f"At K = {k:g} OBRS leaves a KL of {ours:.3f} and is not the best of the rejection methods."]
    for name in better:
        row = found[name]
        facts = {"g": row["g"][0] / n, "repeated": 100 * row["repeated"][0], "tried": row["tried"][0]}
        lines.append(f"{LABELS[name]} leaves {row['kl'][0]:.3f}: {WHY.get(name, _ALONE).format(**facts)}.")
    sharp = max(found, key=lambda name: found[name]["precision"][0])
    if sharp not in ("obrs", *better):
        row = found[sharp]
        lines.append(
            f"{LABELS[sharp]} has the highest precision, {100 * row['precision'][0]:.1f} %, "
            f"and pays with a KL of {row['kl'][0]:.3f}."
        )
    return lines


def render(record: Record) -> str:
    """Return two tables, quality and cost, with the paper's numbers beside ours, and what they say."""
    found = table(record)
    lines = [f"{'':22}{'recall %':>14}{'paper':>14}{'precision %':>15}{'paper':>14}{'KL':>16}{'JS':>16}"]
    for name, row in found.items():
        ours, paper = row, PAPER.get(name, {})
        lines.append(
            f"{LABELS[name]:22}{_cell(ours['recall'], 1, 100):>14}{_cell(paper.get('recall'), 1):>14}"
            f"{_cell(ours['precision'], 2, 100):>15}{_cell(paper.get('precision'), 2):>14}"
            f"{_cell(ours['kl'], 3):>16}{_cell(ours['js'], 3):>16}"
        )
    lines += ["", f"{'':22}{'calls of G':>15}{'paper':>11}{'calls of D':>15}{'paper':>12}{'executed G':>12}{'D':>8}"]
    lines[-1] += f"{'time':>16}{'paper':>7}"
    for name, row in found.items():
        paper = PAPER.get(name, {})
        beside = f"{_times(paper):.0f} ×" if paper else ""
        lines.append(
            f"{LABELS[name]:22}{_cell(row['g'], 0):>15}{_cell(paper.get('g'), 0):>11}"
            f"{_cell(row['d'], 0):>15}{_cell(paper.get('d'), 0):>12}"
            f"{row['g_executed'][0]:12.0f}{row['d_executed'][0]:8.0f}{_cell(row['time'], 1) + ' ×':>16}{beside:>7}"
        )
    return "\n".join([*lines, "", *verdict(record), *_fine_print(record)])


def _fine_print(record: Record) -> list[str]:
    config, gan = record.config, record["gan"]
    of = f"{config['gans']} GANs, the first" if config["gans"] > 1 else "One GAN,"
    return [
        f"{of} stopped after {gan['steps']} steps at {100 * gan['precision']:.1f} % high-quality samples.",
        f"Mean ± sd of {config['generations']} generations of {config['n']} samples, of the last {len(OTHERS)} rows "
        f"{config['generations_of_others']}.",
        "Time is of the processor, a multiple of the model's own in the same run; what is trained once is not in it.",
    ]


def _times(paper: dict[str, tuple[float, float]]) -> float:
    return paper["seconds"][0] / PAPER["model"]["seconds"][0]


def _cell(pair: tuple[float, float] | None, digits: int, scale: float = 1.0) -> str:
    return "" if pair is None else f"{scale * pair[0]:.{digits}f} ± {scale * pair[1]:.{digits}f}"


def markdown(record: Record) -> str:
    """Return the table for a page, the paper's value after ours where it has one."""
    heads = ["method", "recall, %", "paper", "precision, %", "paper", "KL", "JS", "calls of G", "paper", "calls of D"]
    heads += ["paper", "executed G, D", "time", "paper"]
    lines = [heads, ["---"] * len(heads)]
    for name, row in table(record).items():
        paper = PAPER.get(name, {})
        cells = [LABELS[name], _cell(row["recall"], 1, 100), _cell(paper.get("recall"), 1)]
        cells += [_cell(row["precision"], 2, 100), _cell(paper.get("precision"), 2)]
        cells += [_cell(row["kl"], 3), _cell(row["js"], 3), _cell(row["g"], 0), _cell(paper.get("g"), 0)]
        cells += [_cell(row["d"], 0), _cell(paper.get("d"), 0)]
        cells += [f"{row['g_executed'][0]:.0f}, {row['d_executed'][0]:.0f}", f"{_cell(row['time'], 1)} ×"]
        lines.append([*cells, f"{_times(paper):.0f} ×" if paper else ""])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def plot(record: Record) -> Any:
    """Draw precision, divergence and cost of every method, the paper's precision beside ours."""
    found = table(record)
    order = list(found)[::-1]
    drawn = figure(9, 5.6)
    panels = drawn.subplots(1, 3, sharey=True, width_ratios=(1.15, 1, 1))
    places = {name: at + (0.5 if name in PAPER else 0) for at, name in enumerate(order)}
    for name, row in found.items():
        style = LOOKS.get(name, LOOKS["obrs_refit" if name.startswith("obrs") else "mhgan_calibrated"])
        values = (("precision", 100.0), ("kl", 1.0), ("g", 1 / record.config["n"]))
        for panel, (key, scale) in zip(panels, values, strict=True):
            mean, sd = (scale * value for value in row[key])
            panel.errorbar(
                mean, places[name], xerr=sd, color=style.colour, marker=style.marker, ms=7, mec="0.2", mew=0.5
            )
        if name in PAPER:
            mean = PAPER[name]["precision"][0]
            panels[0].plot(mean, places[name], "D", ms=10, mfc="none", mec="0.3", label="paper")
    panels[0].set_yticks(list(places.values()), [LABELS[name] for name in places])
    panels[0].set(title="Precision", xlabel="high-quality samples, %")
    panels[1].set(title="Distance", xlabel="KL to the target, nats")
    panels[2].set(title="Cost", xlabel="generator calls per sample", xscale="log")
    panels[2].set_xticks([1, 3, 10, 30], ["1", "3", "10", "30"])
    panels[2].minorticks_off()
    for panel in panels:
        tidy(panel, None)
    handles, labels = panels[0].get_legend_handles_labels()
    panels[0].legend(handles[:1], labels[:1], loc="lower right", bbox_to_anchor=(1.02, 0.99))
    caption(
        drawn,
        record.experiment,
        f"25 Gaussians, {record.config['n']} samples. {verdict(record)[0]} Above the gap: the rows of the paper.",
    )
    return drawn
