"""Figure 1: the loss after rejection around a trained GAN of digits, over two random directions of its weights.

The generator has three linear layers. Its weights are moved along two directions, which are filter-normalised, and at
each point of a grid a critic is fitted. With it the GAN divergence between real digits and what OBRS keeps is measured
for every budget, on samples that it has not seen. 2 log 2 is the ceiling: there the two never meet. A landscape at the
ceiling says nothing, so a run stops if its middle is close to it.

The paper's critic sees pixels. Here it sees principal components of real images: a few, in which generator and data are
close, and more, in which they are not. What is measured is a lower bound, see `landscape`. At two points of each
generator it is measured again with many times the effort, which shows how loose it is.

`paper` has one generator, pixels, and the critic of the paper: three linear layers. The paper says neither how fine its
grid is nor how far it reaches.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from math import log
from typing import Any, NamedTuple

import numpy as np

from obrs._checks import check_budget, check_count
from obrs.errors import InputError, ObrsError

from .image_sheet import as_text, draw_sheet
from .record import Record, numbers
from .style import budget_colours, canvas, caption, tidy

__all__ = ["CEILING", "PAPER", "PRESETS", "Config", "Flatness", "figure", "flatness", "run", "table"]

PAPER = {
    "figure": "1, and Appendix D.1",
    "budgets": (1.0, 2.0, 5.0),
    "claim": "OBRS not only reduces loss, but also flattens out the loss landscape and helps avoid local minima",
}
CEILING = 2 * log(2)
"""The GAN divergence of two distributions that never meet."""
_NEAR = 0.05  # a middle this close to the ceiling says that the generator, or the features, will not do
_SEED = 100  # of proposals: no seed that a generator was trained with
_FRESH = 1 << 40  # ids of proposals that ratios are fitted on
_SHOWN = 2.0  # the budget of the sheet
Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Config:
    """What to measure.

    Args:
        generators: Names and seeds of generators, as `name-seed`.
        home: A folder with generators and data of your own, as in `figure-pretrained`; "" for those that are committed.
        budgets: Proposals per kept sample, 1 first.
        pairs: Pairs of random directions for each generator; each makes one landscape.
        cells: Points along each side of the grid; odd, so that the generator itself is the one in the middle.
        reach: How far the grid reaches. At 1 the weights are moved by their own length.
        components: How many principal components a critic sees, one landscape for each number; 0 for the pixels.
        samples: Fakes that a critic is fitted on, and as many again to measure with; real images at most as many.
        steps: Updates of a critic.
        thorough: At two points of each generator, fit again with so many times the fakes and steps; 1 for none.
        shown: Images of each sheet.
    """

    generators: tuple[str, ...] = ("mnist_plain-0", "mnist_plain-1")
    home: str = ""
    budgets: tuple[float, ...] = (1.0, 2.0, 5.0)
    pairs: int = 2
    cells: int = 11
    reach: float = 0.5
    components: tuple[int, ...] = (4, 16)
    samples: int = 12_000
    steps: int = 500
    thorough: int = 6
    shown: int = 24

    def __post_init__(self) -> None:
        for k in self.budgets:
            check_budget(k)
        if not self.generators or not self.components or list(self.budgets[:1]) != [1]:
            raise InputError("figure-landscape needs a generator, a number of components, and budgets from 1 on")
        for name in ("pairs", "samples", "steps", "thorough", "shown"):
            check_count(getattr(self, name), name)
        for number in self.components:
            check_count(number, "components", least=0)
        if check_count(self.cells, "cells", least=3) % 2 == 0:
            raise InputError(f"cells must be odd, so that one of them is the generator itself, got {self.cells}")
        if not 0 < self.reach < np.inf:
            raise InputError(f"reach must be above 0, got {self.reach}")
        for generator in self.generators:
            if not generator.rpartition("-")[2].isdecimal() or "-" not in generator:
                raise InputError(f"a generator is called name-seed, such as mnist_plain-0, got {generator!r}")


_SMOKE = Config(
    generators=("digits_plain-0",),
    pairs=1,
    cells=3,
    components=(4,),
    samples=400,
    steps=60,
    thorough=2,
    shown=12,
)
_PAPER = Config(
    generators=("mnist_plain-0",),
    pairs=1,
    cells=51,
    reach=0.25,  # at 0.5 a critic of pixels is at the ceiling
    components=(0,),
    steps=2_000,
)
PRESETS = {"smoke": _SMOKE, "default": Config(), "paper": _PAPER}


def run(config: Config, rows: Record) -> None:
    """Measure the middle of each landscape, then its lines one by one, and then look at images."""
    for name, job in rows.todo(dict(_jobs(config))):
        rows.add(name, job())
    generator = config.generators[0]
    if (name := f"{generator}, sheet") not in rows:
        surface = _surfaces(rows, config, generator, 0)[len(config.components) - 1, 0]
        rows.add(name, _sheets(config, generator, surface))


def _jobs(config: Config) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Go through all rows but the last: their names, and what makes them."""
    for generator in config.generators:
        yield f"{generator}, middle", partial(_middle, config, generator)
        for pair in range(config.pairs):
            for at, y in enumerate(_axis(config)):
                yield _line_name(generator, pair, at), partial(_line, config, generator, pair, y)
            yield _line_name(generator, pair, "again"), partial(_line, config, generator, pair, 0.0, again=1)


def _line_name(generator: str, pair: int, line: int | str) -> str:
    return f"{generator}, directions {pair}, line {line}"


def _axis(config: Config) -> list[float]:
    steps: list[float] = np.linspace(-config.reach, config.reach, config.cells).round(6).tolist()
    return steps


class _Subject(NamedTuple):
    """A generator, its seed, what critics see of an image, and what they see of real ones: for the fit, to measure."""

    generator: Any
    seed: int
    views: list[Any]
    real: list[tuple[Any, Any]]

    def fakes(self, config: Config, pair: int, x: float, y: float, again: int = 0, times: int = 1) -> tuple[Any, Any]:
        """Return images at a point: some for the fit, others to measure with; the latents are the same at each."""
        import torch

        from obrs.draws import normals

        from .landscape import direction, moved

        weights = dict(self.generator.named_parameters())
        axes = [direction(weights, self.seed, "landscape", pair, axis) for axis in ("x", "y")]
        latent, made = self.generator.spec["latent"], []
        for start, count in ((_FRESH, times * config.samples), (0, config.samples)):
            ids = np.arange(start, start + count)
            z = normals(ids, latent, seed=_SEED + again, like=torch.empty(0))
            made.append(moved(self.generator, x, y, axes, z))
        return made[0], made[1]


@lru_cache(maxsize=1)
def _subject(config: Config, generator: str) -> _Subject:
    import torch

    from .image_gans import SETTINGS, load_generator, parts
    from .landscape import Components

    name, _, seed = generator.rpartition("-")
    network = load_generator(name, int(seed), config.home)
    split = parts(name if config.home or name not in SETTINGS else SETTINGS[name].data, config.home)
    spec, shape = network.spec, list(split["test"].x.shape[1:])
    if (spec["name"], spec.get("dim")) != ("mlp_generator", shape):
        raise InputError(
            f"{generator} must be an mlp_generator of images of shape {shape}, as its data are; it is a {spec['name']} "
            f"of {spec.get('dim', 'other images')}"
        )
    look, fit, test = (torch.as_tensor(split[part].x).float() for part in ("features", "ratio", "test"))
    views: list[Any] = [Components.of(look, number) if number else _as_they_are for number in config.components]
    real = [(see(fit[: config.samples]), see(test[: config.samples])) for see in views]
    return _Subject(network, int(seed), views, real)


def _as_they_are(images: Any) -> Any:
    return images


def _measured(config: Config, subject: _Subject, images: tuple[Any, Any], *, again: int = 0, times: int = 1) -> Any:
    """Return what is left for each number of components and budget: value, standard error, what the ratio promises."""
    from .landscape import Sets, left

    found = []
    for see, (fit, test) in zip(subject.views, subject.real, strict=True):
        sets = Sets(fit, see(images[0]), test, see(images[1]))
        found.append(left(sets, config.budgets, steps=times * config.steps, seed=again))
    return np.asarray(found)


def _middle(config: Config, generator: str) -> dict[str, Any]:
    """Measure the generator itself, and one at the edge, with the usual effort and with more."""
    subject, found = _subject(config, generator), {}
    for name, x in (("middle", 0.0), ("edge", config.reach)):
        usual = _measured(config, subject, subject.fakes(config, 0, x, 0.0))
        if name == "middle":
            _check_middle(config, generator, usual[:, 0, 0])
        found[name] = {"usual": usual}
        if (times := config.thorough) > 1:
            images = subject.fakes(config, 0, x, 0.0, times=times)
            found[name]["thorough"] = _measured(config, subject, images, times=times)
    return found


def _check_middle(config: Config, generator: str, value: Floats) -> None:
    for number, at in zip(config.components, value, strict=True):
        if at > CEILING - _NEAR:
            raise ObrsError(
                f"{generator} itself has a divergence of {at:.3f} on {_seen(number)}, at the ceiling {CEILING:.3f}: "
                "its landscape would say nothing; train it for longer, or take fewer components"
            )


def _line(config: Config, generator: str, pair: int, y: float, *, again: int = 0) -> dict[str, Any]:
    """Measure one line of the grid: shape (views, budgets, cells); `again` has other latents and another fit."""
    subject = _subject(config, generator)
    points = [
        _measured(config, subject, subject.fakes(config, pair, x, y, again), again=again)[:, :, 0]
        for x in _axis(config)
    ]
    return {"y": y, "left": np.stack(points, axis=-1)}


def _sheets(config: Config, generator: str, surface: Floats) -> dict[str, Any]:
    """Return images of the generator and of the worst point of its first landscape, and which are kept."""
    from obrs.draws import accept
    from obrs.rules import Budgeted

    from .landscape import fit_ratio

    subject, axis = _subject(config, generator), _axis(config)
    line, cell = np.unravel_index(int(surface.argmax()), surface.shape)
    see, real, found = subject.views[-1], subject.real[-1][0], {}
    for name, x, y in (("middle", 0.0, 0.0), ("worst", axis[cell], axis[line])):
        fit_fake, fake = subject.fakes(config, 0, x, y)
        fitted = fit_ratio(real, see(fit_fake), steps=config.steps, seed=0)
        scores = fitted(see(fake)).double().numpy()
        kept = accept(Budgeted.fit(scores, _SHOWN)(scores[: config.shown]), np.arange(config.shown), seed=1)
        found[name] = {"x": x, "y": y, "sheet": as_text(fake[: config.shown]), "kept": kept.tolist()}
    return found | {"shape": list(fake.shape[1:])}


class Flatness(NamedTuple):
    """How flat a surface is, in nats.

    Attributes:
        middle: Its value in the middle.
        mean: Its mean over the grid.
        slope: The mean norm of its gradient over the grid, by central differences.
        rise: How far it is above its middle, on average.
        minima: How many points are below all their neighbours, up to eight of them.
    """

    middle: float
    mean: float
    slope: float
    rise: float
    minima: int


def flatness(surface: Floats, step: float) -> Flatness:
    """Measure a surface on a square grid with an odd number of points along each side.

    Args:
        surface: Its values, shape `(n, n)`.
        step: Distance between neighbours.

    Example:
        >>> x, y = np.meshgrid(np.linspace(-1, 1, 5), np.linspace(-1, 1, 5))
        >>> flatness(3 * x + 4 * y, 0.5).slope
        5.0
    """
    down, right = np.gradient(surface, step)
    middle, mean = float(surface[len(surface) // 2, len(surface) // 2]), float(surface.mean())
    around = np.lib.stride_tricks.sliding_window_view(np.pad(surface, 1, constant_values=np.inf), (3, 3))
    others = np.delete(around.reshape(*surface.shape, 9), 4, axis=2)
    minima = int(np.sum(surface < others.min(axis=2)))
    return Flatness(middle, mean, float(np.hypot(down, right).mean()), mean - middle, minima)


def _surfaces(rows: Any, config: Config, generator: str, pair: int) -> Floats:
    """Return a landscape from its lines: shape (views, budgets, cells, cells)."""
    lines = [numbers(rows[_line_name(generator, pair, at)]["left"]) for at in range(config.cells)]
    return np.stack(lines, axis=2)


def _config(record: Record) -> Config:
    """Return the configuration of a record."""
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record.config.items()}
    return Config(**fields)


def _landscapes(record: Record) -> dict[tuple[str, int], Floats]:
    """Return all landscapes, by generator and pair of directions."""
    config = _config(record)
    pairs = [(generator, pair) for generator in config.generators for pair in range(config.pairs)]
    return {(generator, pair): _surfaces(record, config, generator, pair) for generator, pair in pairs}


def _all_flatness(record: Record) -> Floats:
    """Return the flatness of every landscape: shape (landscapes, views, budgets, fields)."""
    config = _config(record)
    step = 2 * config.reach / (config.cells - 1)
    found = [[[flatness(one, step) for one in view] for view in each] for each in _landscapes(record).values()]
    return np.asarray(found)


def _noise(record: Record) -> Floats:
    """Return the standard deviation of a point, from the lines that were measured twice: shape (views, budgets)."""
    config, gaps = _config(record), []
    for (generator, pair), surface in _landscapes(record).items():
        again = numbers(record[_line_name(generator, pair, "again")]["left"])
        gaps.append(surface[:, :, config.cells // 2] - again)
    return np.asarray(np.sqrt(np.mean(np.square(gaps), axis=(0, 3)) / 2))


def _seen(number: int) -> str:
    return f"{number} components" if number else "pixels"


def _cell(values: Floats) -> str:
    """Return the mean over landscapes and its standard error."""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{values.mean():.3f} ± {values.std(ddof=1) / len(values) ** 0.5:.3f}"


def table(record: Record) -> str:
    """Return how high and how flat the landscapes are for each budget, and how far the bound may be off."""
    config, found, noise = _config(record), _all_flatness(record), _noise(record)
    generators = len(config.generators)
    lines = [
        f"GAN divergence left, a lower bound on held-out samples; the ceiling is 2 log 2 = {CEILING:.3f}",
        f"mean ± standard error over {len(found)} landscapes: generators {generators}, directions {config.pairs} each",
    ]
    columns = {"in the middle": 0, "mean over the grid": 1, "mean rise above the middle": 3, "mean slope": 2}
    for view, number in enumerate(config.components):
        lines += ["", f"{_seen(number):36}" + "".join(f"{f'K = {k:g}':>16}" for k in config.budgets)]
        cells = {label: found[:, view, :, at] for label, at in columns.items()}
        cells["slope, over that at K = 1"] = cells["mean slope"] / cells["mean slope"][:, :1]
        cells["mean, over that at K = 1"] = cells["mean over the grid"] / cells["mean over the grid"][:, :1]
        for label, values in cells.items():
            lines.append(f"  {label:34}" + "".join(f"{_cell(column):>16}" for column in values.T))
        low, high = (getattr(found[:, view, :, 4], end)(axis=0) for end in ("min", "max"))
        counts = [f"{a:g}" if a == b else f"{a:g} to {b:g}" for a, b in zip(low, high, strict=True)]
        lines.append(f"  {'local minima':34}" + "".join(f"{count:>16}" for count in counts))
        lines.append(f"  {'noise of a point':34}" + "".join(f"{value:>16.3f}" for value in noise[view]))
        for generator in config.generators:
            row = record[f"{generator}, middle"]
            for place in ("middle", "edge") if config.thorough > 1 else ():
                usual, more = (numbers(row[place][effort])[view, :, 0] for effort in ("usual", "thorough"))
                pairs = "".join(f"{f'{a:.3f} → {b:.3f}':>16}" for a, b in zip(usual, more, strict=True))
                lines.append(f"  {f'{generator}, {place}, effort x{config.thorough}':34}{pairs}")
    lines += ["", "the paper: lower and flatter with K, without numbers"]
    return "\n".join(lines)


def figure(record: Record) -> Any:
    """Draw the first landscape as surfaces over their contours, images, and the slope of all landscapes."""
    config = _config(record)
    first = config.generators[0]
    surfaces, views = _landscapes(record)[first, 0], len(config.components)
    drawn = canvas(11, 3.4 * views + 3.2)
    upper, lower = drawn.subfigures(2, 1, height_ratios=[3.4 * views, 3.2])
    grid = upper.add_gridspec(views, len(config.budgets))
    axis = numbers(_axis(config))
    for view, number in enumerate(config.components):
        for at, budget in enumerate(config.budgets):
            axes = upper.add_subplot(grid[view, at], projection="3d")
            _draw_surface(axes, axis, surfaces[view, at])
            axes.set_title(f"K = {budget:g}, {_seen(number)}", fontsize=10)
    panels = lower.subplots(1, 2 + views, width_ratios=[1.1, 1.1, *[1] * views])
    row = record[f"{first}, sheet"]
    for axes, name in zip(panels, ("middle", "worst"), strict=False):
        here = row[name]
        draw_sheet(axes, here["sheet"], row["shape"], here["kept"], across=6)
        axes.set_title(f"{name}: x = {here['x']:g}, y = {here['y']:g}", fontsize=10)
    for view, axes in enumerate(panels[2:]):
        _draw_slopes(axes, record, view)
    said = (
        f"GAN divergence between real digits and what OBRS keeps (2 log 2 = {CEILING:.2f} at most), {first} moved "
        f"along two random directions; sheets: kept (green) and rejected (red) at K = {_SHOWN:g}. Right: slope of "
        "every landscape over its slope at K = 1; dotted: the same for its mean."
    )
    caption(drawn, record.experiment, said)
    return drawn


def _draw_surface(axes: Any, axis: Floats, surface: Floats) -> None:
    x, y = np.meshgrid(axis, axis)
    levels = np.linspace(0, CEILING, 15)
    axes.contourf(x, y, surface, levels=levels, zdir="z", offset=-0.9, cmap="cividis")
    axes.plot_surface(
        x, y, surface, cmap="cividis", vmin=0, vmax=CEILING, rstride=1, cstride=1, lw=0.2, edgecolor="0.3"
    )
    axes.set(zlim=(-0.9, CEILING), zticks=[0, 0.5, 1], xlabel="x", ylabel="y", box_aspect=(1, 1, 0.9))
    axes.view_init(24, -58)
    axes.tick_params(labelsize=7, pad=0)
    axes.xaxis.labelpad = axes.yaxis.labelpad = -4


def _draw_slopes(axes: Any, record: Record, view: int) -> None:
    config, found = _config(record), _all_flatness(record)[:, view]
    slope, mean = (found[:, :, at] / found[:, :1, at] for at in (2, 1))
    at, colours = np.arange(len(config.budgets)), budget_colours(config.budgets)
    for each in slope:
        axes.plot(at, each, color="0.75", lw=1, zorder=1)
    for k, colour, values in zip(at, colours, slope.T, strict=True):
        error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
        axes.errorbar(k, values.mean(), 1.96 * error, color=colour, marker="o", ms=6, lw=2, zorder=3)
    axes.plot(at, mean.mean(axis=0), color="black", ls=":", lw=1.5, label="mean of the surface")
    axes.set(xticks=at, xticklabels=[f"{k:g}" for k in config.budgets], xlabel="K", ylim=(0, None))
    axes.set_title(f"slope, {_seen(config.components[view])}", fontsize=10)
    tidy(axes, None)
