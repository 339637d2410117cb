"""The one door through which the golden cases reach the library: a rename touches this file, and no case.

What goes in and out are plain numbers and functions, in the words of the contract of 0.3.
"""

import csv
from pathlib import Path

import numpy as np

import obrs

accept, uniforms, normals, select = obrs.accept, obrs.uniforms, obrs.normals, obrs.select
profile, budget_for, model = obrs.Profile, obrs.Profile.budget_for, obrs.rivals.Model
DESIGNS = ("pivotal", "systematic", "priority")
DIVERGENCES = ("kl", "rkl", "gan", "js", "tv", "chi2", "neyman", "hellinger")
OF_RATIO = tuple(name for name in DIVERGENCES if name != "tv")  # the critic of tv says no ratio


def log_c(log_ratio, budget, **options):
    """log c as float64; options are weights, groups, axis."""
    return np.asarray(obrs.solve_log_c(log_ratio, budget, **options), np.float64)


def inclusion_probability(log_ratio, n, **options):
    from obrs.selection import inclusion_probability

    return inclusion_probability(log_ratio, n, **options)


def sample(propose, log_ratio, n=None, *, budget=None, pool=None, proposed=None, rule=None, pilot=None, **options):
    """(n, budget), (n, pool), (n, rule) or (proposed, budget); a pilot is how many proposals a rule is fitted on."""
    options |= {"budget": budget, "pool": pool, "proposed": proposed, "rule": rule, "pilot": pilot}
    return obrs.sample(propose, log_ratio, n, **options)


def stream(propose, log_ratio, n, *, log_c, batch_size, seed):
    """Exactly n of a stream that a rule of a given constant judges."""
    rule = obrs.Budgeted(log_c)
    return obrs.collect(obrs.stream(propose, log_ratio, rule, batch_size=batch_size, seed=seed), n)


def kept(samples):
    """What a run kept: ids, samples, the weights that are left, and where to go on."""
    return {name: getattr(samples, name) for name in ("ids", "x", "log_weight", "next_id")}


def rule(samples):
    """The rule that judged a run, to go on with; None if a pool was chosen from."""
    return samples.rule


def constants(rule):
    """log c of a rule, one per group if there are groups."""
    return rule.log_c


def select_files(folder, n, *, out, **options):
    """The column `row` of all that is written: options are id, budget, column, kind, group, shares, cost, seed."""
    from obrs import files

    files.select(folder, n, out=out, **options)
    rows = []
    for path in sorted(Path(out).iterdir()):
        if path.suffix == ".csv":
            with path.open(newline="") as opened:
                rows += [int(row["row"]) for row in csv.DictReader(opened)]
        elif path.suffix == ".parquet":
            import pyarrow.parquet

            rows += pyarrow.parquet.read_table(path)["row"].to_pylist()
    return rows


def unweight(weight, n, **options):
    found = obrs.unweight(weight, n, **options)
    return {name: getattr(found, name) for name in ("index", "weight", "probability", "max_weight", "truncated")}


def tilt(reward, **options):
    found = obrs.tilt(reward, **options)
    return {"index": found.index, "weight": found.weight, "metrics": found.metrics}


def least_budget(profile):
    """The smallest feasible budget."""
    return 1 / profile.possible


def values(profile, slopes, budgets):
    """What a profile says, by name: at slopes, at budgets, or along a curve of 9 points at K = 2."""
    curve, frontier = profile.curve(2.0, points=9), profile.frontier(2.0, points=9)
    return {
        "alpha": profile.alpha(slopes),
        "beta": profile.beta(slopes),
        "M": profile.max_budget,
        "log c": [profile.log_c(k) for k in budgets],
        "rate": [profile.rate(k) for k in budgets],
        "ess": [profile.ess(k) for k in budgets],
        "precision": curve.precision,
        "recall": curve.recall,
        "from model": frontier.from_model,
        "from target": frontier.from_target,
        **{f"{name} left": [profile.divergence(name, k) for k in budgets] for name in DIVERGENCES},
        **{f"{name} bound": [profile.bound(name, k) for k in budgets] for name in ("kl", "tv", "js")},
    }


def plan(profile, budgets, n):
    """Rows by budget: rate, kl, rkl, tv, js, chi2, ess, precision, each with …_low and …_high; proposals."""
    return list(profile.plan(budgets, n=n))


def run(name, model, n, *, seed, **constants):
    """What a rival makes of a model, as `kept` tells it; by its name in the paper."""
    from obrs import rivals

    samplers = {
        "exact": rivals.ExactRejection,
        "DRS": rivals.DiscriminatorRejection,
        "top-k": rivals.TopK,
        "SIR": rivals.SIR,
        "MH-GAN": rivals.MHGAN,
        "DOT": rivals.DOT,
        "DGflow": rivals.DGflow,
        "DDLS": rivals.DDLS,
        "LatentRS": rivals.LatentRS,
    }
    return kept(samplers[name](**constants)(model, n, seed=seed))


def latent_weights(network, largest):
    return obrs.rivals.LatentWeights(network, largest)


def fit_latent_weights(model, *, to_ratio, **options):
    """Weights with the largest and the mean of them, fitted to the ratio or against a critic."""
    fit = obrs.rivals.fit_latent_weights_to_ratio if to_ratio else obrs.rivals.fit_latent_weights
    weights = fit(model, progress=False, **options)
    return weights, weights.largest, weights.mean


def lars(kind, dim, **options):
    """A base that is filtered by a network, a torch module: kind is "resampled" or "budgeted"."""
    from obrs.rivals.lars import BudgetedBase, ResampledBase

    return {"resampled": ResampledBase, "budgeted": BudgetedBase}[kind](dim, **options)


def log_density(base, z):
    return base.log_prob(z)


def estimate_z(base, n):
    return base.estimate_z(n)


def draw(base, n, *, seed):
    """Points, and how many candidates they took."""
    return base.draw(n, seed=seed)


def diagnose(real, fake, budget):
    """Verdict, kind of repair, and the repair as a function."""
    found = obrs.diagnose(real, fake, budget)
    kinds = {
        "": "none",
        "obrs.ratios.calibration": "calibrate",
        "obrs.refit(real, propose, obrs.ratios.refit.FineTune": "fine-tune",
        "obrs.refit(real, propose, obrs.ratios.refit.Network": "refit",
        "obrs.diagnose(-": "turn round",
    }
    kind = next(kinds[start] for start in sorted(kinds, reverse=True) if found.repair.startswith(start))
    verdict = "fit" if found.verdict == "calibrated for what it sees" else found.verdict  # what 0.2 said of both
    return verdict, kind, found.calibration or (lambda log_ratio: log_ratio)


def critic_loss(name):
    """The loss of the critic's outputs on real and fake samples and, if given, log-weights of the fakes."""
    from obrs.training.losses import critic_loss

    return critic_loss(name)


def generator_loss(mode, name):
    """The loss of the critic's outputs on fakes and, if it rejects, a budget; c has no gradient."""
    from obrs.budget import solve_cut
    from obrs.training.losses import generator_loss

    loss = generator_loss(mode, name)
    return lambda fake, budget: loss(fake, solve_cut(fake.detach(), budget) if loss.rejects else None)


def train(generator, critic, optimisers, batch, *, loss, budget, steps, critic_steps=1, parts=1, every=1, r1=0.0):
    """Steps of the trainer on `batch(step, turn, part) -> (real, latent)`; return log c of the last one."""
    import torch

    from obrs.training import critic_loss, critic_step, generator_loss, generator_step

    def whole(step, turn):
        pairs = [batch(step, turn, part) for part in range(parts)]
        return [torch.cat(column) for column in zip(*pairs, strict=True)]

    cut = None
    for step in range(steps):
        for turn in range(critic_steps):
            real, z = whole(step, turn)
            with torch.no_grad():
                fake = generator(z)
            critic_step(critic, optimisers[1], real, fake, loss=critic_loss("gan"), r1=r1, parts=parts)
        goal = {"loss": generator_loss(loss, "gan"), "budget": budget, "cut": cut if step % every else None}
        cut = generator_step(generator, critic, optimisers[0], whole(step, -1)[1], parts=parts, **goal).cut
    return float(cut.log_c)
