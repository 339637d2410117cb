"""Section 5.3: what training for a budget is worth, loss by loss, in one stage and in three.

The paper trains BigGANs on CIFAR-10 and CelebA. Here small networks learn 25 Gaussians from the same seeds: a strong
generator (three hidden layers of 100) and a weak one (2-16-16-16-2). A run of one stage has one loss and one critic,
the usual one or one that sees waves. A staged run is that of `examples/train-in-stages.toml`: a usual GAN with noise
that fades, a new critic with the f-GAN's loss, and such a critic anew with the loss in question. How much of its gain
is owed to noise and learning rates that fall is seen in a run of one stage with both. All runs train their generator,
and their critic, on the same number of samples. In three stages the critic takes more steps than the generator; so the
runs of one stage end with some steps in which the critic takes two.

All are judged in the same way, at the budget that they were trained for: the moving average of the generator (decay
0.99) proposes, a ratio is fitted from scratch on fresh samples of it, rejects fresh proposals, and what it keeps is
measured.

- `divergence`: the GAN divergence (twice Jensen-Shannon, at most 1.386) between the target and what is kept, from a
  histogram of what is kept over 301 cells of known mass.
- `exact_ratio`: what the exact ratio on these cells would leave: no ratio is fitted.
- `high_quality`: share of what is kept within 4 sigma of a mode.
- `modes`: modes with a sample of high quality.
- `before`: the same without rejection.
- `cpu_seconds`: what the training took.

A run has collapsed if the generator went to infinity or to no number at all, or fewer than half of the modes are left.
Collapsed runs are counted, and are part of the means: what went to infinity with the largest divergence and no modes.
"""

from dataclasses import dataclass, replace
from math import log, sqrt
from time import process_time
from typing import Any

import numpy as np

from obrs import Budgeted, accept
from obrs._text import lookup, text_table
from obrs.budget import solve_cut
from obrs.errors import InputError, ObrsError

from .record import Checked, Record
from .style import PALETTE, canvas, caption, tidy

__all__ = ["MODES", "PAPER", "PRESETS", "SETTINGS", "Config", "figure", "gain", "run", "settings", "table"]
__all__ += ["mean_sd", "verdict"]

_LOSSES = {
    "non_saturating": "plain, non-saturating",
    "dual": "plain, f-GAN dual",
    "paper_raw": "paper, raw f",
}
_WAVES, _STAGED, _FADING = "_waves", "staged_", "fading"
MODES = {
    **_LOSSES,
    **{f"{loss}{_WAVES}": f"{title}, waves" for loss, title in _LOSSES.items()},
    _FADING: "the first of three alone",
    **{f"{_STAGED}{loss}": f"three stages, {loss}" for loss in ("dual", "exact")},
}
"""What is compared, and what it is called: a generator loss in one stage, with a critic of waves, or in the last of
three stages; and the first of the three for the whole time."""

PAPER = {
    "tables": "training on CIFAR-10 and CelebA with BigGAN, K = 2",
    "fid": {
        "CIFAR-10": {"hinge": 8.43, "without": 11.18, "with": 8.98},
        "CelebA": {"hinge": 9.33, "without": 6.33, "with": 5.42},
    },
}
_GAUSSIANS = {"data": "grid25", "data_size": 100_000}
SETTINGS: dict[str, dict[str, Any]] = {
    "strong": _GAUSSIANS | {"generator_width": 100},
    "weak": _GAUSSIANS | {"generator_width": 16},
    "strong_more": _GAUSSIANS | {"generator_width": 100},
}
"""Fields of the training configuration that make each setting; the last one has the larger budget and fewer seeds."""

_TITLES = {
    "strong": "25 Gaussians, strong generator",
    "weak": "25 Gaussians, weak generator",
    "strong_more": "25 Gaussians, strong generator",
}
_FIRST_LOSS = {"weak": "paper_raw"}  # of three stages; else non_saturating
_FALLING = ("noise", "noise_until", "generator_decay_from", "critic_decay_from")  # fields of the first of three
_WAVES_CRITIC = ("critic_network", "critic_width", "critic_layers")  # of the second
_WORST = {"divergence": 2 * log(2), "high_quality": 0.0, "modes": 0}  # of a run that has nothing to measure


@dataclass(frozen=True)
class Config(Checked):
    """What to train, and for how long.

    Args:
        settings: Keys of `SETTINGS`.
        modes: Keys of `MODES`.
        seeds, more_seeds: Runs of each; those of "strong_more".
        budget, more_budget: K, in training and in judgement; that of "strong_more".
        steps: Steps of the generator in each of the three stages; runs of one stage follow from them.
        warm_up: Steps of the critic alone in each of the three.
        batches: Samples a step in each of the three.
        batch_size: Samples a step in runs of one stage.
        refit_steps: Steps of the ratio that judges.
        real: Points of the target that it is fitted on.
        proposals: Fresh proposals that it rejects.
        seed: First of the seeds; the stages were found on seeds 0 to 7 and 30 to 49.
    """

    unchecked = ("seed", "warm_up")
    settings: tuple[str, ...] = tuple(SETTINGS)
    modes: tuple[str, ...] = tuple(MODES)
    seeds: int = 10
    more_seeds: int = 5
    budget: float = 2.0
    more_budget: float = 5.0
    steps: tuple[int, ...] = (3000, 600, 2500)
    warm_up: tuple[int, ...] = (0, 400, 300)
    batches: tuple[int, ...] = (128, 256, 256)
    batch_size: int = 128
    refit_steps: int = 500
    real: int = 50_000
    proposals: int = 40_000
    seed: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("steps", "warm_up", "batches"):
            if len(getattr(self, name)) != 3:
                raise InputError(f"{name} must be three numbers, one for each stage, got {getattr(self, name)}")
        for key in self.settings:
            lookup(SETTINGS, key, "setting")
        for key in self.modes:
            lookup(MODES, key, "mode")
        if any(count % self.batch_size for count in self.samples()) or self.samples()[1] > 2 * self.samples()[0]:
            raise InputError(f"the samples of the stages, {self.samples()}, must be whole batches of {self.batch_size}")

    def samples(self) -> tuple[int, int]:
        """Return how many samples the generator makes for its own steps, and how many the critic sees of each kind."""
        of_generator = sum(steps * batch for steps, batch in zip(self.steps, self.batches, strict=True))
        alone = sum(steps * batch for steps, batch in zip(self.warm_up, self.batches, strict=True))
        return of_generator, of_generator + alone


_SMOKE = Config(
    settings=("weak", "strong_more"),
    modes=("non_saturating", "dual_waves", "fading", "staged_exact"),
    seeds=1,
    more_seeds=1,
    steps=(10, 4, 4),
    warm_up=(0, 2, 2),
    batches=(32, 64, 64),
    batch_size=32,
    refit_steps=20,
    real=2000,
    proposals=2000,
)
PRESETS = {"smoke": _SMOKE, "default": Config()}


def run(config: Config, rows: Record) -> None:
    """Train and judge, a row for each setting, mode and seed.

    Runs whose losses do not know the budget are trained once, and judged at every budget that they have a row for.
    """
    jobs = {
        f"{setting}, {mode}, seed {seed}": (setting, mode, seed)
        for setting in config.settings
        for mode in config.modes
        for seed in _seeds(config, setting)
    }
    done: dict[str, tuple[Any, float]] = {}
    for name, (setting, mode, seed) in rows.todo(jobs):
        wanted = settings(config, setting, mode, seed)
        if (key := _key(wanted)) not in done:
            done[key] = _train(wanted)
        trained, seconds = done[key]
        found = _judged(config, _budget(vars(config), setting), trained, seed)
        rows.add(name, {"setting": setting, "mode": mode, "seed": seed} | found | {"cpu_seconds": seconds})


def _seeds(config: Config, setting: str) -> range:
    return range(config.seed, config.seed + (config.more_seeds if setting == "strong_more" else config.seeds))


def _budget(config: Any, setting: str) -> float:
    """Return the budget of a setting, from the fields of a configuration."""
    return float(config["more_budget" if setting == "strong_more" else "budget"])


def settings(config: Config, setting: str, mode: str, seed: int) -> Any:
    """Return the configuration of a training run.

    Example:
        >>> staged, one = (settings(Config(), "strong", mode, 10) for mode in ("staged_exact", "dual_waves"))
        >>> [(s.generator_loss, s.critic_network, s.warm_up, s.steps) for s in staged.stages]
        [('non_saturating', '', 0, 3000), ('dual', 'fourier', 400, 600), ('exact', 'fourier', 300, 2500)]
        >>> [(s.generator_loss, s.critic_network, s.critic_steps, s.steps) for s in one.stages]
        [('dual', 'fourier', 1, 7800), ('dual', 'fourier', 2, 1400)]
    """
    from .train import TrainConfig, recipe

    shared: dict[str, Any] = SETTINGS[setting] | {"budget": _budget(vars(config), setting), "seed": seed}
    shared |= {"ema_decay": 0.99, "critic_lr": 2e-3}
    three = recipe(TrainConfig(**shared))
    first_loss = _FIRST_LOSS.get(setting, three[0]["generator_loss"])
    if not mode.startswith(_STAGED):
        by_generator, by_critic = (count // config.batch_size for count in config.samples())
        twice = by_critic - by_generator
        if mode == _FADING:  # the steps in which the critic takes two come first, before anything falls
            falling = {key: three[0][key] for key in _FALLING}
            before = {"noise": falling["noise"], "noise_until": 0.0, "generator_loss": first_loss}
            before |= {"steps": twice, "critic_steps": 2}
            fading = falling | {"steps": by_generator - twice, "critic_steps": 1}
            return TrainConfig(**shared, batch_size=config.batch_size, stage=[before, fading])
        shared |= {"generator_loss": mode.removesuffix(_WAVES), "batch_size": config.batch_size}
        shared |= {key: three[1][key] for key in _WAVES_CRITIC} if mode.endswith(_WAVES) else {}
        return TrainConfig(**shared, stage=[{"steps": by_generator - twice}, {"steps": twice, "critic_steps": 2}])
    each = zip(three, config.steps, config.warm_up, config.batches, strict=True)
    stages = [table | {"steps": n, "warm_up": warm, "batch_size": batch} for table, n, warm, batch in each]
    stages[0]["generator_loss"] = first_loss
    stages[2]["generator_loss"] = mode.removeprefix(_STAGED)
    return TrainConfig(**shared, stage=stages)


def _key(wanted: Any) -> str:
    """Return what decides a training: all of its configuration, but for a budget that no loss of it knows."""
    from .train import losses

    rejects = any(losses(stage)[1].rejects for stage in wanted.stages)
    return repr(wanted if rejects else replace(wanted, budget=1.0))


def _train(wanted: Any) -> tuple[Any, float]:
    """Return a finished training and its CPU seconds."""
    from .train import train

    begun = process_time()
    return train(wanted, progress=False), round(process_time() - begun, 2)


def _judged(config: Config, budget: float, trained: Any, seed: int) -> dict[str, Any]:
    def propose(ids: Any) -> Any:
        return trained.propose(ids, seed=seed + 1)

    sample = propose(range(1000))
    if not bool(sample.isfinite().all()) or float(sample.abs().max()) > 1e3:
        return {"collapsed": True, "why": "the generator went to infinity"}
    try:
        found = _judge(config, budget, propose, seed)
    except ObrsError as error:
        return {"collapsed": True, "why": str(error).splitlines()[0]}
    return found | {"collapsed": bool(found["modes"] < 25 / 2)}


def _judge(config: Config, budget: float, propose: Any, seed: int) -> dict[str, Any]:
    from .gan25 import CELLS, SIGMA, TARGET
    from .scores import histogram_divergence, mode_scores

    real = TARGET.sample(config.real, seed=10_000 + seed).astype(np.float32)
    ratio = _fitted(config, real, propose, seed)
    fake = propose(np.arange(config.proposals)).numpy()
    log_ratio = np.asarray(ratio(fake), dtype=np.float64)
    kept = fake[accept(Budgeted.fit(log_ratio, budget)(log_ratio), np.arange(len(fake)), seed=seed)]

    def measures(x: Any) -> dict[str, Any]:
        scores = mode_scores(x, TARGET.means, sigma=SIGMA)
        gan = 2 * histogram_divergence(x, CELLS, "js")
        return {"divergence": gan, "high_quality": scores.precision, "modes": scores.modes}

    counts = np.bincount(CELLS.of(fake.astype(np.float64)), minlength=len(CELLS.masses))
    ideal = _divergence_on_cells(CELLS.masses, counts, budget)
    return measures(kept) | {"before": measures(fake), "exact_ratio": ideal}


def _fitted(config: Config, real: Any, propose: Any, seed: int) -> Any:
    import warnings

    from obrs.ratios.refit import Network, refit

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a classifier separates the two sets is a result here
        network, steps = Network(width=64), config.refit_steps
        return refit(real, propose, network, steps=steps, batch_size=256, seed=seed, progress=False)


def _divergence_on_cells(p: Any, counts: Any, budget: float) -> float:
    """Return the GAN divergence that the exact ratio on the cells would leave."""
    q = counts / counts.sum()
    p, q = p[q > 0], q[q > 0]
    log_ratio = np.log(p / q)
    a = np.exp(solve_cut(log_ratio, budget, weights=q).log_a(log_ratio))
    kept = q * a / np.sum(q * a)
    u = p / kept  # cells without a proposal add nothing: f(u)/u goes to 0
    return float(np.sum(kept * (u * np.log(u) - (u + 1) * np.log1p(u))) + 2 * log(2))


def _runs(record: Record, setting: str, mode: str) -> list[dict[str, Any]]:
    """Return the runs of a mode, by seed; what went to infinity has the worst of everything."""
    worst = _WORST | {"exact_ratio": _WORST["divergence"]}
    return [worst | row for row in record.rows if (row["setting"], row["mode"]) == (setting, mode)]


def mean_sd(runs: list[dict[str, Any]], key: str) -> tuple[float, float]:
    """Return mean and standard deviation over the seeds."""
    values = [run[key] for run in runs]
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def gain(record: Record, setting: str, mode: str, over: str, key: str = "divergence") -> str:
    """Return by how much less a mode leaves than another, seed by seed: mean ± standard error, and wins of seeds.

    Example:
        >>> rows = [
        ...     {"row": f"{mode} {seed}", "setting": "weak", "mode": mode, "seed": seed, "divergence": left}
        ...     for mode, seed, left in (("dual", 0, 0.5), ("dual", 1, 0.7), ("exact", 0, 0.4), ("exact", 1, 0.2))
        ... ]
        >>> gain(Record("tw-obrs", "smoke", {}, rows), "weak", "exact", over="dual")
        '+0.300 ± 0.200  2/2'
    """
    ours, theirs = ({run["seed"]: run[key] for run in _runs(record, setting, name)} for name in (mode, over))
    less = np.array([theirs[seed] - left for seed, left in ours.items() if seed in theirs])
    error = float(np.std(less, ddof=1)) / sqrt(len(less)) if len(less) > 1 else 0.0
    return f"{np.mean(less):+.3f} ± {error:.3f}{int(np.sum(less > 0)):>3}/{len(less)}"


def verdict(record: Record, setting: str) -> list[str]:
    """Say by how much three stages with the exact loss beat the best run of one stage, and three plain stages.

    Nothing if the record has no such runs.
    """
    modes = [mode for mode in record.config["modes"] if _runs(record, setting, mode)]
    one_stage = [mode for mode in modes if not mode.startswith(_STAGED)]
    if "staged_exact" not in modes or not one_stage:
        return []
    best = min(one_stage, key=lambda mode: mean_sd(_runs(record, setting, mode), "divergence")[0])
    found = []
    for rival in (best, *(mode for mode in modes if mode == "staged_dual")):
        said = [
            f"{gain(record, setting, 'staged_exact', over=rival, key=key)} with the {judge}"
            for key, judge in (("divergence", "fitted ratio"), ("exact_ratio", "exact ratio"))
        ]
        title = f"{MODES[rival]}{', the best of one stage' if rival == best else ''}"
        found += [f"  three stages, exact, over {title}:", f"    {'; '.join(said)}"]
    return found


def table(record: Record) -> str:
    """Return what is left after rejection, mean ± sd over the seeds.

    The last column is the gain over the first mode, seed by seed: its mean ± standard error, and in how many seeds it
    is one.
    """
    lines, first = [], record.config["modes"][0]
    digits = {"divergence": 3, "exact_ratio": 3, "high_quality": 3, "modes": 1}
    head = ["  training", *(key.replace("_", " ") for key in digits), "collapsed", "CPU s", "gain over the first"]
    for setting in record.config["settings"]:
        rows = []
        for mode in record.config["modes"]:
            runs = _runs(record, setting, mode)
            cells = ["{:.{n}f} ± {:.{n}f}".format(*mean_sd(runs, key), n=n) for key, n in digits.items()]
            failed = f"{sum(run['collapsed'] for run in runs)} of {len(runs)}"
            more = "" if mode == first else gain(record, setting, mode, over=first)
            seconds = f"{mean_sd(runs, 'cpu_seconds')[0]:.0f}"
            rows.append([f"  {MODES[mode]}", *cells, failed, seconds, more])
        lines.append(f"{_TITLES[setting]}, K = {_budget(record.config, setting):g}")
        lines += [text_table(head, rows, gap=1), *verdict(record, setting)]
    return "\n".join(lines)


_COLOURS = {
    "non_saturating": PALETTE["dark"],
    "dual": PALETTE["grey"],
    "paper_raw": PALETTE["red"],
    "exact": PALETTE["blue"],
}


def _colour(mode: str) -> str:
    return _COLOURS["non_saturating" if mode == _FADING else mode.removesuffix(_WAVES).removeprefix(_STAGED)]


def figure(record: Record) -> Any:
    """Draw every run as a dot: divergence and high-quality share after rejection, for each setting and loss."""
    settings, modes = record.config["settings"], record.config["modes"]
    drawn = canvas(9, 1.9 + len(settings) * (0.5 + 0.27 * len(modes)))
    axes = drawn.subplots(len(settings), 2, squeeze=False, sharey="row")
    for row, setting in zip(axes, settings, strict=True):
        for side, key, label in zip(row, _WORST, ("GAN divergence left", "high-quality share"), strict=False):
            for height, mode in enumerate(modes):
                runs, colour = _runs(record, setting, mode), _colour(mode)
                for collapsed, marker in ((False, "o"), (True, "X")):
                    values = [run[key] for run in runs if run["collapsed"] == collapsed]
                    side.plot(values, [height] * len(values), marker, color=colour, alpha=0.6, ms=6.5, mew=0)
                side.plot([mean_sd(runs, key)[0]] * 2, [height - 0.34, height + 0.34], color=colour, lw=2.5)
            side.set_xlabel(f"{label} at K = {_budget(record.config, setting):g}")
            tidy(side, None)
        row[0].set(yticks=range(len(modes)), yticklabels=[MODES[m] for m in modes], ylim=(len(modes) - 0.4, -0.6))
        row[0].set_title(_TITLES[setting])
        row[0].set_xlim(left=0)
        row[1].set_xlim(-0.03, 1.03)
    said = "Each mark is a training run, a cross one that collapsed; bars are means. Ratios were fitted from scratch."
    caption(drawn, record.experiment, said)
    return drawn
