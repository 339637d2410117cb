"""Every method of the 25-Gaussian experiments on one GAN, at the constants its authors published.

Those that follow a gradient also with a step that is tuned to this GAN.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from time import process_time
from typing import Any

import numpy as np
import torch

from obrs.ratios.calibration import Isotonic
from obrs.ratios.refit import Network, refit
from obrs.rivals import DOT, MHGAN, SAMPLERS, Bare, LatentRS, Model, latent, lipschitz

from .gan25 import ExactRatio, Gan, Settings, fit_gan, one_thread, score

__all__ = ["SPECIAL", "STEP_SIZES", "TUNABLE", "Prepared", "generations", "method", "prepare", "tune_step"]

_FRESH = 1_000_003  # added to a seed: no sample that is judged has the sum


@dataclass(frozen=True, eq=False)
class Prepared:
    """A GAN and what its rivals fit once before they sample."""

    gan: Gan  # the GAN, with the log-ratio of its critic
    refitted: Any  # a log-ratio that a new network was fitted to, with sines and cosines as inputs
    log_loss: float  # held-out log-loss of the refitted one
    calibrated: Any  # the critic's log-ratio, calibrated on points that it has not seen
    exact: ExactRatio  # the exact log-ratio
    weights: latent.LatentWeights  # weights of latents for LatentRS, fitted to the critic's log-ratio
    steepness: float  # Lipschitz constant of the log-ratio, for DOT


@cache
@one_thread()
def prepare(settings: Settings, progress: bool | None = None) -> Prepared:
    """Train the GAN and fit what the methods need; once in a process for the same settings.

    Example:
        >>> ready = prepare(Settings(1000, 0.01, 5, critic_steps=2, refit_steps=2, weight_steps=2, exact_samples=1000))
        >>> sampler, model = method("obrs", ready, 2.0)
        >>> len(sampler(model, 50))
        50
    """
    gan, seed = fit_gan(settings, progress), settings.seed
    ratio = refit(
        gan.real, gan.propose(seed + _FRESH), Network(), steps=settings.refit_steps, seed=seed, progress=progress
    )
    steps: dict[str, Any] = {"steps": settings.weight_steps, "width": 128, "seed": seed, "progress": progress}
    weights = latent.fit_latent_weights_to_ratio(gan.model(), **steps)
    with torch.no_grad():
        fake = gan.propose(seed + 2 * _FRESH)(np.arange(len(gan.held_out)))
        isotonic = Isotonic.fit(gan.log_ratio(gan.held_out), gan.log_ratio(fake))
    return Prepared(
        gan,
        ratio,
        ratio.report.log_loss,
        lambda x: isotonic(gan.log_ratio(x)),
        ExactRatio.fit(gan.generator, settings.exact_samples),
        weights,
        lipschitz(gan.model(), seed=seed),
    )


SPECIAL: dict[str, Callable[[Prepared, float], Any]] = {
    "model": lambda ready, budget: Bare(),
    "mhgan": lambda ready, budget: MHGAN(ceil(budget)),
    "dot": lambda ready, budget: DOT(steps=ceil(budget), k_eff=ready.steepness),
    "latent_rs": lambda ready, budget: LatentRS(ready.weights),
    "obrs_refit": lambda ready, budget: SAMPLERS["obrs"](budget),
    "obrs_exact": lambda ready, budget: SAMPLERS["obrs"](budget),
    "mhgan_own": lambda ready, budget: MHGAN(ceil(budget), start="fake"),
    "mhgan_5": lambda ready, budget: MHGAN(5),
    "mhgan_10": lambda ready, budget: MHGAN(10),
    "mhgan_50": lambda ready, budget: MHGAN(50),
    "mhgan_calibrated": lambda ready, budget: MHGAN(ceil(budget)),
    "mhgan_discarding": lambda ready, budget: MHGAN(max(2, int(budget)), discard_unmoved=True),
}
"""Samplers that need more than a budget, from what was prepared; the others are those of `obrs.rivals.SAMPLERS`."""


def method(name: str, ready: Prepared, budget: float) -> tuple[Any, Model]:
    """Return a sampler at a budget and the model it works on, whose log-ratio is that of the critic or a better one."""
    sampler = SPECIAL[name](ready, budget) if name in SPECIAL else SAMPLERS[name].at_budget(budget)
    better = {"obrs_refit": ready.refitted, "obrs_exact": ready.exact, "mhgan_calibrated": ready.calibrated}
    return sampler, ready.gan.model(better.get(name))


STEP_SIZES = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1)
"""Sizes that `tuned` tries for DOT, DGflow and DDLS; the published ones, 0.01, 0.1 and 0.01, are among them."""

TUNABLE = {"dot": "lr", "dgflow": "step", "ddls": "step"}
"""Methods that follow a gradient, and the name of the size of their step."""


@one_thread()
def tune_step(
    name: str, ready: Prepared, budget: float, n: int, many: int, *, seed: int = 0
) -> tuple[Any, dict[str, Any]]:
    """Choose the step of a method: of `STEP_SIZES`, the one whose samples are closest to the target.

    It is judged by what the table shows, the KL of n samples at the same budget, as a mean of many draws. Their latents
    are of other seeds than those of any sample that is shown. Returned are the sampler, and `step`, its size, with
    `grid`, the KL of every size in the order of `STEP_SIZES`.
    """
    sampler, model = method(name, ready, budget)
    tries = [replace(sampler, **{TUNABLE[name]: size}) for size in STEP_SIZES]
    seeds = [seed + 3 * _FRESH + i for i in range(many)]
    grid = [float(np.mean([score(one(model, n, seed=s, progress=False).x)["kl"] for s in seeds])) for one in tries]
    best = int(np.argmin(grid))
    return tries[best], {"step": STEP_SIZES[best], "grid": grid}


@one_thread()
def generations(sampler: Any, model: Model, n: int, many: int, *, seed: int = 0) -> dict[str, Any]:
    """Draw many times; return mean and standard deviation of every column.

    Columns: those of `score`, calls up to the last sample kept, calls executed, shares and numbers of proposals, and
    time. Time is processor time with one thread, as a multiple of the time of the bare model. That is measured before
    each draw, so that a busy machine slows both.

    Example:
        >>> found = generations(Bare(), Model(lambda z: z, lambda x: x[:, 0], dim=2), 200, 3)
        >>> found["g"], found["generations"]
        ((200.0, 0.0), 3)
    """
    bare, scores, taken, of_bare = Bare(), [], [], []
    sampler(model, n, seed=seed, progress=False)  # warm
    for i in range(many):
        bare(model, n, seed=seed + i)  # the scores of the last draw have emptied the caches
        begun = process_time()
        bare(model, n, seed=seed + i)
        of_bare.append(process_time() - begun)
        begun = process_time()
        kept = sampler(model, n, seed=seed + i, progress=False)
        taken.append(process_time() - begun)
        calls = {"g": kept.calls.generator, "d": kept.calls.critic}
        calls |= {"g_executed": kept.executed_calls.generator, "d_executed": kept.executed_calls.critic}
        copies = {"repeated": 1 - len(np.unique(kept.ids)) / n, "tried": kept.proposed / n}
        scores.append(score(kept.x) | calls | copies)
    columns = {key: [float(one[key]) for one in scores] for key in scores[0]}
    columns["time"] = [seconds / float(np.median(of_bare)) for seconds in taken]
    spread = {key: float(np.std(values, ddof=1)) if many > 1 else 0.0 for key, values in columns.items()}
    return {"generations": many} | {key: (float(np.mean(values)), spread[key]) for key, values in columns.items()}
