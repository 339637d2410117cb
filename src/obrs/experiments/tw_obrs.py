"""Section 5.3: what training for a budget is worth, for every generator loss.

The paper trains BigGANs on CIFAR-10 and CelebA. Here every generator loss of `obrs.training.losses` trains the same
small networks from the same seeds: on 25 Gaussians a strong generator (three hidden layers of 100) and a weak one
(2-16-16-16-2), and a convolutional one on scikit-learn's digits. All are judged in the same way, at the budget that
they were trained for: the moving average of the generator (decay 0.99) proposes, a ratio is fitted from scratch on
fresh samples of it, rejects fresh proposals, and what it keeps is measured.

- `divergence`: the GAN divergence (twice Jensen-Shannon, at most 1.386) between the target and what is kept. On the
  Gaussians it comes from a histogram of what is kept over 301 cells of known mass. On the digits, whose density is
  unknown, it is the dual bound E_P[f'(u)] - E_Q~[f*(f'(u))] at the fitted ratio, on test images and fresh proposals: a
  lower bound, which is sharp if the ratio is right.
- `high_quality`: share of what is kept within 4 sigma of a mode; of the digits, share that a classifier gives a
  probability of at least 0.9 to some digit.
- `modes`: modes with a sample of high quality; of the digits, classes with at least 1 % of what is kept.
- `before`: the same three without rejection.

A run has collapsed if training stopped at a loss that is not finite, the generator went to infinity, or fewer than half
of the modes are left. Collapsed runs are counted, and are part of the means: what went to infinity with the largest
divergence and no modes.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import Any

import numpy as np

from .. import Budgeted, accept
from .._inputs import check_budget, check_count
from .._names import lookup
from ..budget import solve_cut
from ..errors import InputError, ObrsError
from .record import Record, Rows
from .style import figure, tidy

__all__ = ["MODES", "PAPER", "PRESETS", "SETTINGS", "Config", "gain", "plot", "render", "run", "summary"]

MODES = {
    "non_saturating": "plain, non-saturating",
    "dual": "plain, f-GAN dual",
    "paper": "paper, f(1) = 0",
    "paper_raw": "paper, raw f",
    "exact": "exact",
    "exact_non_saturating": "exact, non-saturating",
    "two_critics": "two critics",
}
"""Generator losses that are compared, and what they are called; the first two are plain training."""

PAPER = {
    "tables": "training on CIFAR-10 and CelebA with BigGAN, K = 2",
    "fid": {"CIFAR-10": {"without": 11.18, "with": 8.98}, "CelebA": {"without": 6.33, "with": 5.42}},
}
_GAUSSIANS = {"data": "grid25", "data_size": 100_000}
SETTINGS: dict[str, dict[str, Any]] = {
    "strong": _GAUSSIANS | {"generator_width": 100},
    "weak": _GAUSSIANS | {"generator_width": 16},
    "digits": {"data": "digits", "network": "conv", "latent": 16, "generator_width": 16, "critic_width": 32},
}
"""Fields of the training configuration that make each setting."""

_TITLES = {
    "strong": "25 Gaussians, strong generator",
    "weak": "25 Gaussians, weak generator",
    "digits": "digits, convolutional",
}
_WORST = {"divergence": 2 * log(2), "high_quality": 0.0, "modes": 0}  # of a run that has nothing to measure
_GAIN = "gain over the first"
_CONFIDENT, _PRESENT = 0.9, 0.01  # of a digit of high quality, and of a class that is there


@dataclass(frozen=True)
class Config:
    """What to train, and for how long.

    Args:
        settings: Keys of `SETTINGS`.
        modes: Keys of `MODES`.
        seeds: Runs of each.
        budget: K, in training and in judgement.
        steps: Steps of the generator on 25 Gaussians.
        image_steps: Steps of the generator on digits.
        critic_steps: Steps of the critic for each of them.
        batch_size: Samples a step.
        generator_lr, critic_lr: Learning rates; rejection relies on the critic, so the critic gets the larger one.
        refit_steps: Steps of the ratio that judges.
        real: Points of the target that it is fitted on.
        proposals: Fresh proposals that it rejects.
        seed: First of the seeds.
    """

    settings: tuple[str, ...] = ("weak", "strong", "digits")
    modes: tuple[str, ...] = tuple(MODES)
    seeds: int = 10
    budget: float = 2.0
    steps: int = 3000
    image_steps: int = 1500
    critic_steps: int = 1
    batch_size: int = 128
    generator_lr: float = 1e-3
    critic_lr: float = 2e-3
    refit_steps: int = 500
    real: int = 50_000
    proposals: int = 40_000
    seed: int = 0

    def __post_init__(self) -> None:
        check_budget(self.budget)
        for name in ("seeds", "steps", "image_steps", "critic_steps", "batch_size", "refit_steps", "real", "proposals"):
            check_count(getattr(self, name), name)
        if not self.settings or not self.modes:
            raise InputError("settings and modes must name at least one of each")
        for key in self.settings:
            lookup(SETTINGS, key, "setting")
        for key in self.modes:
            lookup(MODES, key, "mode")


_SMOKE = Config(
    settings=("weak",),
    modes=("non_saturating", "exact"),
    seeds=1,
    steps=20,
    image_steps=5,
    batch_size=32,
    refit_steps=20,
    real=2000,
    proposals=2000,
)
PRESETS = {"smoke": _SMOKE, "default": Config(), "paper": Config(steps=30_000, image_steps=20_000, refit_steps=3000)}


def run(config: Config, rows: Rows) -> None:
    """Train and judge, a row for each setting, loss and seed; all losses of a seed before the next seed."""
    seeds = range(config.seed, config.seed + config.seeds)
    jobs = {f"{s}, {m}, seed {i}": (s, m, i) for s in config.settings for i in seeds for m in config.modes}
    for name, (setting, mode, seed) in rows.todo(jobs):
        rows.add(name, {"setting": setting, "mode": mode, "seed": seed} | _train_and_judge(config, setting, mode, seed))


def _train_and_judge(config: Config, setting: str, mode: str, seed: int) -> dict[str, Any]:
    from ..training.config import TrainConfig
    from ..training.loop import train
    from ..training.watch import NotFiniteError

    images = setting == "digits"
    settings = TrainConfig(
        **SETTINGS[setting],
        generator_loss=mode,
        budget=config.budget,
        steps=config.image_steps if images else config.steps,
        critic_steps=config.critic_steps,
        batch_size=config.batch_size,
        generator_lr=config.generator_lr,
        critic_lr=config.critic_lr,
        ema_decay=0.99,
        seed=seed,
    )
    try:
        trained = train(settings, progress=False)
    except NotFiniteError as error:
        return {"collapsed": True, "why": str(error).splitlines()[0]}

    def propose(ids: Any) -> Any:
        return trained.propose(ids, seed=seed + 1, network="ema")

    sample = propose(range(1000))
    if not bool(sample.isfinite().all()) or float(sample.abs().max()) > 1e3:
        return {"collapsed": True, "why": "the generator went to infinity"}
    try:
        found = (_judge_images if images else _judge_points)(config, propose, seed)
    except ObrsError as error:
        return {"collapsed": True, "why": str(error).splitlines()[0]}
    return found | {"collapsed": bool(found["modes"] < (10 if images else 25) / 2)}


def _reject(config: Config, log_ratio: Any, seed: int) -> Any:
    rule = Budgeted.fit(log_ratio, config.budget)
    return accept(rule(log_ratio), np.arange(len(log_ratio)), seed=seed)


def _fitted(config: Config, real: Any, propose: Any, seed: int) -> Any:
    import warnings

    from ..ratios.methods import Network
    from ..ratios.refit import refit

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a classifier separates the two sets is a result here
        network = Network(width=64 if real.ndim == 2 else 16)
        return refit(real, propose, network, steps=config.refit_steps, batch_size=256, seed=seed, progress=False)


def _judge_points(config: Config, propose: Any, seed: int) -> dict[str, Any]:
    from ..data.mixtures import grid25
    from ..metrics.grid import histogram_divergence, mode_cells
    from ..metrics.modes import mode_scores

    target = grid25().standardised()
    sigma = float(target.sigma[0])
    cells = mode_cells(target.means, sigma=sigma)
    real = target.sample(config.real, seed=10_000 + seed).astype(np.float32)
    ratio = _fitted(config, real, propose, seed)
    fake = propose(np.arange(config.proposals)).numpy()
    kept = fake[_reject(config, np.asarray(ratio(fake), dtype=np.float64), seed)]

    def measures(x: Any) -> dict[str, Any]:
        scores = mode_scores(modes=target.means, fake=x, sigma=sigma)
        gan = 2 * histogram_divergence(cells=cells, fake=x, divergence="js").value
        return {"divergence": gan, "high_quality": scores.precision, "modes": scores.modes}

    ideal = _divergence_on_cells(cells.masses, np.bincount(cells.of(fake.astype(np.float64)), minlength=301), config)
    return measures(kept) | {"before": measures(fake), "exact_ratio": ideal}


def _divergence_on_cells(p: Any, counts: Any, config: Config) -> float:
    """Return the GAN divergence that the exact ratio on the cells would leave."""
    q = counts / counts.sum()
    p, q = p[q > 0], q[q > 0]
    log_ratio = np.log(p / q)
    a = np.exp(solve_cut(log_ratio, config.budget, weights=q).log_a(log_ratio))
    kept = q * a / np.sum(q * a)
    u = p / kept  # cells without a proposal add nothing: f(u)/u goes to 0
    return float(np.sum(kept * (u * np.log(u) - (u + 1) * np.log1p(u))) + 2 * log(2))


@lru_cache(maxsize=1)
def _digits() -> Any:
    from ..data.images import load
    from ..models.classifier import fit_classifier

    images = load("digits")
    return images, fit_classifier(images.train, images.train_labels, progress=False)


def _judge_images(config: Config, propose: Any, seed: int) -> dict[str, Any]:
    import torch

    from ..training.losses import critic_loss

    images, classifier = _digits()
    ratio = _fitted(config, images.train, propose, seed)
    fake = propose(np.arange(min(config.proposals, 5000)))
    log_ratio = torch.as_tensor(ratio(fake)).double()
    kept = fake[torch.as_tensor(_reject(config, log_ratio.numpy(), seed))]
    real = torch.as_tensor(ratio(torch.as_tensor(images.test))).double()
    gan = critic_loss("gan")
    cut = solve_cut(log_ratio, config.budget)
    left = -gan(cut.log_u(real), cut.log_u(log_ratio), cut.log_a(log_ratio) - cut.log_rate)

    def measures(x: Any, divergence: Any) -> dict[str, Any]:
        with torch.no_grad():
            probability = torch.softmax(classifier(x), dim=1)
        best, which = probability.max(dim=1)
        shares = np.bincount(which.numpy(), minlength=10) / len(x)
        return {
            "divergence": float(divergence),
            "high_quality": float((best >= _CONFIDENT).double().mean()),
            "modes": int(np.sum(shares >= _PRESENT)),
        }

    return measures(kept, left) | {"before": measures(fake, -gan(real, log_ratio))}


def summary(record: Record) -> list[dict[str, Any]]:
    """Return mean and standard deviation over the seeds, for each setting and loss, and how many runs collapsed.

    Example:
        >>> row = {"row": "a", "setting": "weak", "mode": "exact", "seed": 0, "collapsed": False}
        >>> row |= {"divergence": 0.5, "high_quality": 0.8, "modes": 25}
        >>> summary(Record("tw-obrs", "smoke", {"settings": ["weak"], "modes": ["exact"]}, [row]))[0]["divergence"]
        (0.5, 0.0)
    """
    found = []
    for setting in record.config["settings"]:
        for mode in record.config["modes"]:
            rows = [r for r in record.rows if (r["setting"], r["mode"]) == (setting, mode)]
            if not rows:
                continue
            line: dict[str, Any] = {"setting": setting, "mode": mode, "runs": len(rows)}
            line["collapsed"] = sum(r["collapsed"] for r in rows)
            for key, worst in _WORST.items():
                values = [r.get(key, worst) for r in rows]
                spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
                line[key] = (float(np.mean(values)), float(spread))
            found.append(line)
    return found


def gain(record: Record, setting: str, mode: str, over: str) -> tuple[float, float, int, int] | None:
    """Return by how much less a loss leaves than another, seed by seed: mean, its standard error, wins, and seeds.

    None if the two have no seed in common.

    Example:
        >>> rows = [
        ...     {"row": f"{mode} {seed}", "setting": "weak", "mode": mode, "seed": seed, "divergence": left}
        ...     for mode, seed, left in (("dual", 0, 0.5), ("dual", 1, 0.7), ("exact", 0, 0.4), ("exact", 1, 0.2))
        ... ]
        >>> gain(Record("tw-obrs", "smoke", {}, rows), "weak", "exact", over="dual")
        (0.3, 0.2, 2, 2)
    """
    left = {
        (r["mode"], r["seed"]): r.get("divergence", _WORST["divergence"])
        for r in record.rows
        if r["setting"] == setting
    }
    seeds = [seed for which, seed in left if which == mode and (over, seed) in left]
    if not seeds:
        return None
    less = np.array([left[over, seed] - left[mode, seed] for seed in seeds])
    error = float(np.std(less, ddof=1) / np.sqrt(len(less))) if len(less) > 1 else 0.0
    return round(float(np.mean(less)), 12), round(error, 12), int(np.sum(less > 0)), len(less)


def render(record: Record) -> str:
    """Return the table: what is left after rejection, mean ± sd over the seeds.

    The last column is the gain over the first loss, seed by seed: its mean ± standard error, and in how many seeds it
    is one.
    """
    lines = []
    first = record.config["modes"][0]
    for setting in record.config["settings"]:
        lines.append(f"{_TITLES[setting]}, K = {record.config['budget']:g}")
        lines.append(f"  {'loss':24}{'divergence':>15}{'high quality':>15}{'modes':>13}{'collapsed':>11}{_GAIN:>24}")
        for line in summary(record):
            if line["setting"] == setting:
                divergence, quality, modes = (
                    _mean_sd(line[key], digits) for key, digits in zip(_WORST, (3, 3, 1), strict=True)
                )
                failed = f"{line['collapsed']} of {line['runs']}"
                text = f"  {MODES[line['mode']]:24}{divergence:>15}{quality:>15}{modes:>13}{failed:>11}"
                if line["mode"] != first and (less := gain(record, setting, line["mode"], over=first)):
                    mean, error, wins, seeds = less
                    text += f"{mean:>+10.3f} ± {error:.3f}{wins:>3}/{seeds}".rjust(24)
                lines.append(text)
    return "\n".join(lines)


def _mean_sd(pair: tuple[float, float], digits: int) -> str:
    return f"{pair[0]:.{digits}f} ± {pair[1]:.{digits}f}"


_COLOURS = {
    "non_saturating": "#4D4D4D",
    "dual": "#999999",
    "paper": "#E69F00",
    "paper_raw": "#D55E00",
    "exact": "#0072B2",
    "exact_non_saturating": "#56B4E9",
    "two_critics": "#009E73",
}


def plot(record: Record) -> Any:
    """Draw every run as a dot: divergence and high-quality share after rejection, for each setting and loss."""
    settings, modes = record.config["settings"], record.config["modes"]
    drawn = figure(9, 1.9 + len(settings) * (0.5 + 0.27 * len(modes)))
    axes = drawn.subplots(len(settings), 2, squeeze=False, sharey="row")
    for row, setting in zip(axes, settings, strict=True):
        for side, key, label in zip(row, _WORST, ("GAN divergence left", "high-quality share"), strict=False):
            for height, mode in enumerate(modes):
                found = [r for r in record.rows if (r["setting"], r["mode"]) == (setting, mode)]
                for collapsed, marker in ((False, "o"), (True, "X")):
                    values = [r.get(key, _WORST[key]) for r in found if r["collapsed"] == collapsed]
                    side.plot(values, [height] * len(values), marker, color=_COLOURS[mode], alpha=0.6, ms=6.5, mew=0)
                values = [r.get(key, _WORST[key]) for r in found]
                if values:
                    side.plot([np.mean(values)] * 2, [height - 0.34, height + 0.34], color=_COLOURS[mode], lw=2.5)
            side.set_xlabel(f"{label} at K = {record.config['budget']:g}")
            tidy(side, None)
        row[0].set(yticks=range(len(modes)), yticklabels=[MODES[m] for m in modes], ylim=(len(modes) - 0.4, -0.6))
        row[0].set_title(_TITLES[setting])
        row[0].set_xlim(left=0)
        row[1].set_xlim(-0.03, 1.03)
    drawn.supxlabel(
        "Each mark is a training run, a cross one that collapsed; bars are means. The ratios that reject were fitted "
        "from scratch, all in one way.",
        x=0.01,
        ha="left",
        fontsize=9,
        color="0.3",
    )
    return drawn
