"""Figure 1: the loss after rejection around a trained GAN of digits, over two random directions of its weights.

The paper says that "OBRS not only reduces loss, but also flattens out the loss landscape and helps avoid local minima",
without numbers, and neither how fine its grid is nor how far it reaches. Here the generator has three linear layers.
Its weights are moved along two directions, which are filter-normalised, and at each point of a grid a critic is fitted.
With it the GAN divergence between real digits and what OBRS keeps is measured for every budget, on samples that it has
not seen. 2 log 2 is the ceiling: there the two never meet.

The paper's critic sees pixels, and the paper fits a second discriminator on real and kept samples at each K. Here the
critic sees principal components of real images, and there is no second one: with u = r Z/a of the one ratio, the
inequality of Fenchel and Young says that E_P[f'(u)] - E_kept[f*(f'(u))] is at most D_f(P||kept), and equal to it if r
is the true ratio. So one fit serves all budgets, and what is measured is a lower bound. The preset `paper` has one
generator, pixels, and the critic of the paper: three linear layers.

References:
    | Visualizing the Loss Landscape of Neural Nets (Li et al., 2018), Sec. 4: filter-normalised directions
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import log
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.func import functional_call

from obrs import Budgeted, Profile, accept, normals
from obrs._text import text_table
from obrs.divergences import divergence
from obrs.fitting.seeds import new_rng
from obrs.models.mlp import mlp_critic
from obrs.ratios.refit import FineTune, Network, refit

from .image_gans import SETTINGS, load_part, parts
from .image_sheet import as_text, draw_sheet, title
from .record import Checked, Record, numbers
from .style import PALETTE, canvas, caption, tidy

__all__ = ["CEILING", "PRESETS", "Config", "Flatness", "direction", "divergence_left", "figure", "flatness", "move"]
__all__ += ["run", "table"]

CEILING = 2 * log(2)
"""The GAN divergence of two distributions that never meet."""
_SEED = 100  # of proposals: no seed that a generator was trained with
_FRESH = 1 << 40  # ids of proposals that ratios are fitted on
_COLOURS = (PALETTE["blue"], PALETTE["red"], PALETTE["green"])
_SHOWN = 2.0  # the budget of the sheet
_LEVELS = (0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.2, 1.4)  # of colours: finer where it is low
Floats = np.ndarray[Any, Any]
Tensor = Any


@dataclass(frozen=True)
class Config(Checked):
    """What to measure."""

    unchecked = ("components",)
    generators: tuple[str, ...] = ("mnist_plain-0", "mnist_plain-1")  # names and seeds of committed ones
    budgets: tuple[float, ...] = (1.0, 2.0, 5.0)  # proposals per kept sample, 1 first
    pairs: int = 1  # pairs of random directions for each generator; each makes one landscape
    cells: int = 9  # points along each side of the grid; odd, so that the generator itself is the one in the middle
    reach: float = 0.5  # how far the grid reaches; at 1 the weights are moved by their own length
    components: tuple[int, ...] = (4, 16)  # principal components a critic sees, a landscape for each; 0 for pixels
    samples: int = 12_000  # fakes to fit a critic on, and as many to measure with; real images at most as many
    steps: int = 500  # updates of a critic
    shown: int = 24  # images of each sheet


PRESETS = {
    "smoke": Config(("digits_plain-0",), cells=3, components=(4,), samples=400, steps=60, shown=12),
    "default": Config(),
    # at a reach of 0.5 a critic of pixels is at the ceiling
    "paper": Config(("mnist_plain-0",), cells=51, reach=0.25, components=(0,), steps=2_000),
}


def direction(weights: Mapping[str, Tensor], seed: int, *key: str | int) -> dict[str, Tensor]:
    """Return a random direction among weights, filter-normalised: each filter has the norm of that of the weights.

    The filters of a linear layer are the rows of its matrix. Biases stay where they are, as in the reference.
    """
    noise, weights_by_name = new_rng(seed, *key), {}
    for name, weight in weights.items():
        random = torch.randn(weight.shape, generator=noise, dtype=weight.dtype)
        norm = weight.detach().norm(dim=-1, keepdim=True) / random.norm(dim=-1, keepdim=True)
        weights_by_name[name] = random * norm if weight.ndim > 1 else torch.zeros_like(random)
    return weights_by_name


def move(generator: Any, x: float, y: float, axes: Sequence[Mapping[str, Tensor]], z: Tensor) -> Tensor:
    """Return what the generator makes of latents when its weights are moved by x and y along two directions."""
    first, second = axes
    with torch.no_grad():
        weights = {name: w + x * first[name] + y * second[name] for name, w in generator.named_parameters()}
        return functional_call(generator, weights, (z,))


def _fit_ratio(real: Tensor, fake: Tensor, steps: int) -> Any:
    """Fit the critic of a point: a small network of a few numbers, or the critic of the paper for images."""
    method: Any = Network("mlp", width=128, layers=2, waves=0, lr=1e-2)
    if real.ndim > 2:
        shape = tuple(real.shape[1:])
        method = FineTune(mlp_critic(shape, width=256, layers=2, activation="leaky_relu"), lr=2e-4)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the two sets hardly overlap|the classifier separates|.* worse than chance")
        # far from the middle that is so; it makes the bound low, which is then what is measured
        batch = min(256, len(fake) // 2)
        return refit(real, fake, method, steps=steps, batch_size=batch, held_out=0.2, seed=0, progress=False)


def divergence_left(
    fit: tuple[Tensor, Tensor], real: Tensor, fake: Tensor, budgets: Sequence[float], *, steps: int
) -> list[float]:
    """Fit a ratio once on real and fake samples; return the lower bound for each budget on others, at least 0."""
    fitted, gan, bounds = _fit_ratio(*fit, steps), divergence("gan"), []
    scores = fitted(real).double().numpy(), fitted(fake).double().numpy()
    for budget in budgets:
        log_c = Profile(scores[1]).log_c(budget)
        of_real, of_fake = (np.zeros_like(x) if log_c == np.inf else np.minimum(x + log_c, 0.0) for x in scores)
        kept = np.exp(of_fake)
        rate = float(np.mean(kept))
        gain = gan.critic(scores[0] + log(rate) - of_real)
        cost = kept / rate * gan.f_star_of_f_prime(scores[1] + log(rate) - of_fake)
        bounds.append(max(float(np.mean(gain)) - float(np.mean(cost)), 0.0))
    return bounds


class _Subject(NamedTuple):
    """A generator, its seed, what critics see of an image, and what they see of real ones: for the fit, to measure."""

    generator: Any
    seed: int
    views: list[Callable[[Tensor], Tensor]]
    real: list[tuple[Tensor, Tensor]]


@lru_cache(maxsize=1)
def _subject(config: Config, generator: str) -> _Subject:
    name, _, seed = generator.rpartition("-")
    split = parts(SETTINGS[name]["data"])
    images, fit, test = (torch.as_tensor(split[part].x).float() for part in ("features", "ratio", "test"))
    mean = images.flatten(1).mean(dim=0)

    def view(number: int) -> Callable[[Tensor], Tensor]:
        if number == 0:
            return lambda images: images
        axes = torch.linalg.svd(images.flatten(1) - mean, full_matrices=False).Vh[:number].T.contiguous()
        return lambda images: (images.flatten(1) - mean) @ axes

    views = [view(number) for number in config.components]
    real = [(see(fit[: config.samples]), see(test[: config.samples])) for see in views]
    return _Subject(load_part(name, int(seed)), int(seed), views, real)


def _fakes(subject: _Subject, samples: int, pair: int, x: float, y: float) -> list[Tensor]:
    """Return images at a point: some for the fit, others to measure with; the latents are the same at each."""
    generator, like = subject.generator, torch.empty(0)
    weights = dict(generator.named_parameters())
    axes = [direction(weights, subject.seed, "landscape", pair, axis) for axis in ("x", "y")]
    ids = (np.arange(start, start + samples) for start in (_FRESH, 0))
    return [move(generator, x, y, axes, normals(i, generator.spec["latent"], seed=_SEED, like=like)) for i in ids]


def run(config: Config, rows: Record) -> None:
    """Measure the landscapes line by line, and then show images of the middle and of the worst point of the first."""
    axis = np.linspace(-config.reach, config.reach, config.cells).round(6).tolist()
    for name, (generator, pair, line) in rows.todo(_lines(rows.config)):
        points = [_measure(config, generator, pair, x, axis[line]) for x in axis]
        rows.add(name, {"y": axis[line], "left": np.stack(points, axis=-1)})  # shape (views, budgets, cells)
    if (name := f"{config.generators[0]}, sheet") not in rows:
        surface = _landscapes(rows)[0, -1, 0]
        worst = [axis[at] for at in np.unravel_index(int(surface.argmax()), surface.shape)]
        rows.add(name, _sheets(config, {"middle": (0.0, 0.0), "worst": (worst[1], worst[0])}))


def _lines(config: Mapping[str, Any]) -> dict[str, tuple[str, int, int]]:
    """Return the generator, the pair of directions and the number of each line, by the name of its row."""
    every = product(config["generators"], range(config["pairs"]), range(config["cells"]))
    return {f"{generator}, directions {pair}, line {line}": (generator, pair, line) for generator, pair, line in every}


def _measure(config: Config, generator: str, pair: int, x: float, y: float) -> Floats:
    """Return what is left at a point, shape (views, budgets)."""
    subject, left = _subject(config, generator), []
    fit, test = _fakes(subject, config.samples, pair, x, y)
    for see, real in zip(subject.views, subject.real, strict=True):
        left.append(divergence_left((real[0], see(fit)), real[1], see(test), config.budgets, steps=config.steps))
    return np.asarray(left)


def _sheets(config: Config, places: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """Return images of the first generator at some points, and which are kept."""
    subject = _subject(config, config.generators[0])
    see, real, sheets = subject.views[-1], subject.real[-1][0], {}
    for name, (x, y) in places.items():
        fit, fake = _fakes(subject, config.samples, 0, x, y)
        scores = _fit_ratio(real, see(fit), config.steps)(see(fake)).double().numpy()
        kept = accept(Budgeted.fit(scores, _SHOWN)(scores[: config.shown]), np.arange(config.shown), seed=1)
        sheets[name] = {"x": x, "y": y, "sheet": as_text(fake[: config.shown]), "kept": kept.tolist()}
    return sheets | {"shape": list(fake.shape[1:])}


class Flatness(NamedTuple):
    """Of a surface: its mean, the mean norm of its gradient, and how many points are below all their neighbours."""

    mean: float
    slope: float
    minima: int


def flatness(surface: Floats, step: float) -> Flatness:
    """Measure a surface of shape `(n, n)` on a square grid with so large a step.

    Example:
        >>> x, y = np.meshgrid(np.linspace(-1, 1, 5), np.linspace(-1, 1, 5))
        >>> flatness(3 * x + 4 * y, 0.5).slope
        5.0
    """
    around = np.lib.stride_tricks.sliding_window_view(np.pad(surface, 1, constant_values=np.inf), (3, 3))
    others = np.delete(around.reshape(*surface.shape, 9), 4, axis=2)
    slope = float(np.hypot(*np.gradient(surface, step)).mean())
    return Flatness(float(surface.mean()), slope, int(np.sum(surface < others.min(axis=2))))


def _landscapes(record: Record) -> Floats:
    """Return the landscapes from their lines: shape (landscapes, views, budgets, cells, cells)."""
    lines = numbers([record[name]["left"] for name in _lines(record.config)])
    return np.moveaxis(lines.reshape(-1, record.config["cells"], *lines.shape[1:]), 1, 3)


def _all_flatness(record: Record) -> Floats:
    """Return the flatness of every landscape: shape (views, fields, budgets, landscapes)."""
    step = 2 * record.config["reach"] / (record.config["cells"] - 1)
    values = [[[flatness(one, step) for one in view] for view in each] for each in _landscapes(record)]
    return np.asarray(values).transpose(1, 3, 2, 0)


def _view_name(number: int) -> str:
    return f"{number} components" if number else "pixels"


def _error(values: Floats) -> Floats:
    """Return the standard error of the mean over the last axis; 0 of one value."""
    many = values.shape[-1]
    return np.asarray(values.std(axis=-1, ddof=1) / many**0.5 if many > 1 else 0 * values[..., 0])


def table(record: Record) -> str:
    """Return how high and how flat the landscapes are for each budget: means over all, and their standard error."""
    lines = []
    for number, (mean, slope, minima) in zip(record.config["components"], _all_flatness(record), strict=True):
        relative = f"slope, over that at K = {record.config['budgets'][0]:g}"
        measures = {"mean": mean, "slope": slope, relative: slope / slope[0], "local minima": minima}
        for label, values in measures.items():
            cells = [f"{m:.3f} ± {e:.3f}" for m, e in zip(values.mean(axis=1), _error(values), strict=True)]
            lines.append([f"{_view_name(number)}: {label}", *cells])
    head = ["GAN divergence left", *(f"K = {k:g}" for k in record.config["budgets"])]
    return f"{text_table(head, lines)}\nthe paper: lower and flatter with K, without numbers"


def figure(record: Record) -> Any:
    """Draw the first landscape for each view and budget, images, and the slope of all landscapes."""
    config, first = record.config, record.config["generators"][0]
    surfaces, views = _landscapes(record)[0], len(config["components"])
    drawn = canvas(11, 3.4 * views + 4)
    upper, lower = drawn.subfigures(2, 1, height_ratios=[3.4 * views + 0.8, 3.2])
    panels = upper.subplots(views, len(config["budgets"]), subplot_kw={"projection": "3d"}, squeeze=False)
    axis = np.linspace(-config["reach"], config["reach"], config["cells"])
    for view, number in enumerate(config["components"]):
        for at, budget in enumerate(config["budgets"]):
            shade = _draw_surface(panels[view, at], axis, surfaces[view, at])
            name = "no rejection" if budget == 1 else f"OBRS, K = {budget:g}"
            panels[view, at].set_title(f"{name}; the critic sees {_view_name(number)}", fontsize=10)
    bar = upper.colorbar(shade, ax=panels, shrink=0.6, aspect=40, location="bottom", ticks=_LEVELS)
    bar.set_label(f"GAN divergence left between real digits and what is kept, at most 2 log 2 = {CEILING:.2f}")
    *sheets, slopes = lower.subplots(1, 3, width_ratios=[1, 1, 1.1])
    row = record[f"{first}, sheet"]
    for axes, (key, name) in zip(sheets, {"middle": "the GAN itself", "worst": "the worst point"}.items(), strict=True):
        draw_sheet(axes, row[key]["sheet"], row["shape"], row[key]["kept"], across=6)
        axes.set_title(f"{name}: x = {row[key]['x']:g}, y = {row[key]['y']:g}", fontsize=10)
    _draw_slopes(slopes, record)
    caption(
        drawn,
        record.experiment,
        f"{title(first)}, its weights moved by x and y along two random directions. One scale of colours, with finer "
        f"steps below. Images: kept (green) and rejected (red) at K = {_SHOWN:g}. Right: all landscapes, with "
        "intervals of 95 %. The divergence is a lower bound from one critic at each point, not from a second one.",
    )
    return drawn


def _draw_surface(axes: Any, axis: Floats, surface: Floats) -> Any:
    from matplotlib.colors import BoundaryNorm

    x, y = np.meshgrid(axis, axis)
    looks = {"cmap": "viridis", "norm": BoundaryNorm(_LEVELS, 256), "lw": 0.3, "edgecolor": "0.3"}
    drawn = axes.plot_surface(x, y, surface, rstride=1, cstride=1, **looks)
    ticks = [0.8 * axis[0], 0, 0.8 * axis[-1]]
    axes.set(zlim=(0, 1.4), zticks=[0, 0.4, 0.8, 1.2], xticks=ticks, yticks=ticks)
    axes.set(xlabel="x", ylabel="y", zlabel="divergence left")
    axes.set_box_aspect((1, 1, 0.8), zoom=1.02)
    axes.view_init(24, -58)
    axes.tick_params(labelsize=8, pad=0)
    axes.xaxis.labelpad = axes.yaxis.labelpad = axes.zaxis.labelpad = -3
    return drawn


def _draw_slopes(axes: Any, record: Record) -> None:
    """Draw how steep and how high the landscapes are, over what they are without rejection."""
    config, at = record.config, np.arange(len(record.config["budgets"]))
    for number, (mean, slope, _), colour in zip(config["components"], _all_flatness(record), _COLOURS, strict=False):
        for values, name, line in ((slope, "slope", "-"), (mean, "mean", ":")):
            share, looks = values / values[0], {"color": colour, "ls": line, "marker": "o", "ms": 5}
            axes.errorbar(at, share.mean(axis=1), 1.96 * _error(share), label=f"{name}, {_view_name(number)}", **looks)
    axes.set(xticks=at, xticklabels=[f"{k:g}" for k in config["budgets"]], xlabel="K", ylim=(0, 2))
    axes.set_title("Over that without rejection", fontsize=10)
    tidy(axes, "upper left")
