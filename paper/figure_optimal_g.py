"""Figure 4: one Gaussian for a target of two. The model that is best before rejection is not the best one after it.

The paper gives no constants but K = 2, and says that minimising before rejection covers one mode, minimising after it
both, and leaves drastically less. Here the target is 0.4 N(-2, 0.5²) + 0.6 N(2, 0.5²), for which the Gaussian with the
least GAN divergence sits on one bump, as in the paper; with equal weights it would not. The divergence after rejection
is computed on a grid and minimised by Nelder and Mead's method from several starts. The same minimum is then looked for
by descending the losses of training, with the exact ratio and with samples of equal mass in place of random ones:

* `exact`, the loss whose gradient is that of the divergence after rejection;
* `paper_raw`, Algorithm 2 as printed, with the f of Table 1, f(1) = -2 log 2;
* `paper`, the same with f(1) = 0. That changes no divergence, but it changes this loss.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize

from obrs._text import text_table
from obrs.budget import solve_cut
from obrs.fitting.loop import descend
from obrs.training.losses import generator_loss

from .record import Checked, Numbers, Record, numbers
from .style import LOOKS, canvas, caption, draw_densities
from .toys import Pair, mixture, thin

__all__ = ["PRESETS", "TARGET", "Config", "figure", "run", "table"]

TARGET = ((0.4, -2.0, 0.5), (0.6, 2.0, 0.5))  # weight, mean, standard deviation
MODES = {"exact": "The exact loss", "paper_raw": "Algorithm 2 as printed", "paper": "Algorithm 2, f(1) = 0"}
STARTS = ((1.5, 0.8), (2.0, 0.6), (0.0, 1.0), (-1.0, 1.0), (1.0, 3.5))  # mean, standard deviation
_MEANS, _SDS = (-3.5, 3.5), (0.2, 4.0)
_REACHED = 0.02  # how near an end must come to a minimum to have reached it


@dataclass(frozen=True)
class Config(Checked):
    """What to compute."""

    budget: float = 2.0  # proposals per kept sample
    cells: int = 49  # cells of the landscape, along each axis
    points: int = 3001  # points of the grid that densities are summed on
    starts: int = 5  # how many of the five starts to descend from
    steps: int = 400  # steps of each descent
    samples: int = 2000  # samples in each step, of equal mass
    rate: float = 0.03  # learning rate at the first step; it falls to 0 along half a cosine


PRESETS = {"smoke": Config(2.0, 9, 1001, starts=2, steps=150, samples=500, rate=0.06), "default": Config()}


def run(config: Config, rows: Record) -> None:
    """Compute the landscapes, find their minima, and descend."""
    x = np.linspace(-24.0, 24.0, config.points)
    if "landscape" not in rows:
        rows.add("landscape", _landscape(config, x))
    budgets = {"before": 1.0, "after": config.budget}
    for name, budget in rows.todo({f"minima {name}": budget for name, budget in budgets.items()}):
        rows.add(name, {"minima": _minima(budget, config.budget, x)})
    for row, name in rows.todo({f"densities {name}": name for name in budgets}):
        best = rows[f"minima {name}"]["minima"][0]
        pair = _pair(best["mean"], best["sd"], x)
        left = {key: pair.profile().divergence("gan", k) for key, k in budgets.items()}
        rows.add(row, left | pair.curves(config.budget, within=6))
    descents = product(MODES, STARTS[: config.starts])
    for name, (mode, start) in rows.todo({f"{mode} from {s[0]:g}, {s[1]:g}": (mode, s) for mode, s in descents}):
        rows.add(name, _descent(config, mode, start, x))


def _pair(mean: float, sd: float, x: Numbers) -> Pair:
    return Pair.evaluate(mixture(TARGET), mixture(((1.0, mean, sd),)), x)


def _loss(mean: float, sd: float, budget: float, x: Numbers) -> float:
    return _pair(mean, sd, x).profile().divergence("gan", budget)


def _landscape(config: Config, x: Numbers) -> dict[str, Any]:
    means, sds = np.linspace(*_MEANS, config.cells), np.linspace(*_SDS, config.cells)
    loss = np.empty((2, config.cells, config.cells))
    for (i, sd), (j, mean) in product(enumerate(sds), enumerate(means)):
        profile = _pair(mean, sd, x).profile()
        loss[:, i, j] = profile.divergence("gan"), profile.divergence("gan", config.budget)
    return {"mean": means, "sd": sds, "before": loss[0], "after": loss[1]}


def _minima(budget: float, later: float, x: Numbers) -> list[dict[str, float]]:
    """Return the local minima, best first, and what is left at each after rejection at the later budget."""
    places: list[dict[str, float]] = []
    for mean, sd in product((-2.0, 0.0, 2.0), (0.5, 2.0)):
        options = {"method": "Nelder-Mead", "options": {"xatol": 1e-5, "fatol": 1e-10}}
        best = minimize(lambda v: _loss(v[0], np.exp(v[1]), budget, x), [mean, np.log(sd)], **options)
        place = {"mean": float(best.x[0]), "sd": float(np.exp(best.x[1])), "loss": float(best.fun)}
        if all(abs(place["mean"] - other["mean"]) + abs(place["sd"] - other["sd"]) > 0.05 for other in places):
            places.append(place | {"left": _loss(place["mean"], place["sd"], later, x)})
    return sorted(places, key=lambda place: place["loss"])


def _descent(config: Config, mode: str, start: tuple[float, float], x: Numbers) -> dict[str, Any]:
    """Follow a loss of training; the ratio is a fixed function of x in each step, as a critic's is."""
    target, loss_of = mixture(TARGET), generator_loss(mode, "gan")
    middle = (torch.arange(config.samples, dtype=torch.float64) + 0.5) / config.samples
    z = torch.special.ndtri(middle)
    place = torch.tensor([start[0], np.log(start[1])], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([place], lr=config.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.steps)
    path = [start]
    for _ in range(config.steps):
        mean, log_sd = place.detach().clone()
        sample = place[0] + place[1].exp() * z
        log_q = -0.5 * ((sample - mean) / log_sd.exp()) ** 2 - log_sd - 0.5 * np.log(2 * np.pi)
        log_ratio = target.log_prob(sample[:, None]) - log_q
        descend(optimiser, loss_of(log_ratio, solve_cut(log_ratio, config.budget)))
        schedule.step()
        path.append((float(place[0].detach()), float(place[1].detach().exp())))
        if path[-1][1] > 2 * _SDS[1]:
            break  # on its way to infinity
    mean, sd = path[-1]
    facts = {"mode": mode, "start": start, "end": path[-1], "steps": len(path) - 1, "escaped": sd > 2 * _SDS[1]}
    return facts | {"left": _loss(mean, sd, config.budget, x), "path": thin(np.asarray(path), 150)}


def _reaches_best(record: Record, row: dict[str, Any]) -> bool:
    """Tell whether a descent ends at the best minimum."""
    best = record["minima after"]["minima"][0]
    return bool(np.hypot(row["end"][0] - best["mean"], row["end"][1] - best["sd"]) < _REACHED)


def table(record: Record) -> str:
    """Return the minima, and where each descent ends."""
    lines = []
    for name in ("before", "after"):
        for place in record[f"minima {name}"]["minima"]:
            before = f"{place['loss']:.4f}" if name == "before" else ""
            cells = [f"minimum {name} rejection", f"{place['mean']:.3f}", f"{place['sd']:.3f}", before]
            lines.append([*cells, f"{place['left']:.4f}", ""])
    for row in (row for row in record.rows if "path" in row):
        where = "goes to infinity" if row["escaped"] else "reaches the minimum" if _reaches_best(record, row) else ""
        lines.append([row["row"], *(f"{at:.3f}" for at in row["end"]), "", f"{row['left']:.4f}", where])
    return text_table(["", "mean", "sd", "GAN before", "GAN after", ""], lines)


def figure(record: Record) -> Any:
    """Draw both landscapes with their minima, the densities there, and the descents."""
    drawn = canvas(9, 10.6)
    upper, middle, lower = drawn.subfigures(3, 1, height_ratios=[1.1, 0.85, 1.0])
    k = record.config["budget"]
    titles = {"before": "Divergence before rejection", "after": f"Divergence after rejection, K = {k:g}"}
    panels = upper.subplots(1, 2, sharey=True)
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        shade = _draw_landscape(axes, record["landscape"], name, filled=True)
        best, *others = record[f"minima {name}"]["minima"]
        axes.plot(best["mean"], best["sd"], "*", ms=18, mfc="white", mec="black")
        axes.plot([p["mean"] for p in others], [p["sd"] for p in others], "*", ms=11, mfc="white", mec="black")
        axes.set_title(title)
        axes.label_outer()
    upper.colorbar(shade, ax=panels, label="GAN divergence", ticks=np.arange(0, 0.9, 0.2))
    for axes, name in zip(middle.subplots(1, 2), titles, strict=True):
        row = record[f"densities {name}"]
        draw_densities(axes, row, {"kept": f"kept, {row['after']:.3f} left"}, width=4)
        top = 1.5 * max(max(row[key]) for key in ("p", "q", "kept"))
        axes.set(title=f"At the best model {name} rejection", xlabel="x", ylabel="density", xlim=(-6, 6), ylim=(0, top))
        axes.legend(loc="upper left", ncols=2)
    panels = lower.subplots(1, 3, sharey=True)
    for axes, (mode, title) in zip(panels, MODES.items(), strict=True):
        _draw_landscape(axes, record["landscape"], "after", filled=False)
        _draw_descents(axes, record, mode)
        axes.set_title(title)
        axes.label_outer()
    left = [record[f"densities {name}"]["after"] for name in ("before", "after")]
    text = "Stars are minima, the best one large. Choosing the model for what rejection leaves of it brings the "
    text += f"divergence after rejection from {left[0]:.3f} to {left[1]:.3f}. Below: descents over the landscape after "
    text += "rejection, from dot to cross; an arrow leaves for infinity."
    return caption(drawn, record.experiment, text)


def _draw_landscape(axes: Any, row: dict[str, Any], name: str, *, filled: bool) -> Any:
    values = numbers(row[name])
    axes.set(xlabel="mean μ of the model", ylabel="standard deviation σ", xlim=_MEANS, ylim=_SDS)
    if filled:
        levels = np.linspace(0, 0.8, 33)
        return axes.contourf(row["mean"], row["sd"], values, levels=levels, cmap="cividis_r", extend="max")
    return axes.contour(row["mean"], row["sd"], values, levels=np.linspace(0.1, 1.3, 13), colors="0.8", linewidths=0.8)


def _draw_descents(axes: Any, record: Record, mode: str) -> None:
    colour = {"exact": LOOKS["obrs"].colour, "paper_raw": LOOKS["model"].colour, "paper": LOOKS["mhgan"].colour}[mode]
    for row in (row for row in record.rows if row.get("mode") == mode):
        path = numbers(row["path"])
        axes.plot(path[:, 0], path[:, 1], color=colour, lw=1.6)
        axes.plot(*row["start"], "o", color=colour, ms=5)
        if row["escaped"]:
            inside, arrow = path[path[:, 1] < 0.97 * _SDS[1]], {"arrowstyle": "-|>", "color": colour, "lw": 1.6}
            axes.annotate("", (inside[-1, 0], _SDS[1]), inside[-1], arrowprops=arrow)
        else:
            axes.plot(*row["end"], "X", color="black", ms=8, mec="white", zorder=6)
    best = record["minima after"]["minima"][0]
    axes.plot(best["mean"], best["sd"], "*", ms=13, mfc="none", mec="black", zorder=5)
