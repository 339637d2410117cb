"""Budgets of other kinds: never more than K proposals per sample, and one mean budget for many groups.

A hard cap chooses 1 of exactly K proposals. `obrs.rules.Choice` is set beside three other ways to do so: SIR draws one
in proportion to r, best-of-K takes the largest r, and a retry accepts with probability min(c r, 1) and keeps the last
proposal if none was accepted, with the constant that leaves least. OBRS with the same mean is there to compare: it may
take many more for one sample. They run on the GAN of Table 2 with its exact ratio, and on a conditional GAN of CIFAR-10
with the ratio of its critic, whose samples are judged by the Fréchet distance in the features of a small classifier.
That distance is not what the critic sees: it rises by every method, while the KL by the critic's ratio falls.

One budget is split among 16 groups whose log-ratios are normal with standard deviations from 0.2 to 2.2; the split is
set beside the same budget for each, and beside the largest KL made least. The paper has none of this.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch

from obrs import Budgeted, Grouped, Profile, accept, choose, normals, uniforms
from obrs._checks import check_count
from obrs._text import text_table
from obrs.divergences import DIVERGENCES
from obrs.metrics.frechet import frechet
from obrs.root import brent
from obrs.rules import Choice
from obrs.split import left_after

from .gan25 import SMOKE, ExactRatio, Settings, fit_gan, one_thread, score
from .image_gans import load_gan, parts
from .image_ratios import committed_judge
from .record import Numbers, Record
from .style import LOOKS, PALETTE, Look, canvas, caption, page_table, section, tidy

__all__ = ["PRESETS", "Config", "figure", "markdown", "run", "table"]

METHODS = {
    "cap": Look("hard cap", PALETTE["rust"], "-", "o"),
    "sir": LOOKS["sir"],
    "best": Look("best of K", LOOKS["topk"].colour, "--", "s"),
    "retry": Look("retry, keep the last", LOOKS["drs"].colour, "-.", "^"),
    "mean": Look("OBRS, mean of K", LOOKS["obrs"].colour, ":", "D"),
}
MODELS = {"gaussians": "25 Gaussians", "cifar10": "CIFAR-10"}
_BINS = 60  # of log r, on which realised laws are measured


@dataclass(frozen=True)
class Config(Settings):
    """What to measure; the other fields are of the GAN of 25 Gaussians, see `Settings`."""

    unchecked = ("seed", "images")
    budgets: tuple[int, ...] = (2, 4, 8)  # whole numbers K
    pilot: int = 20_000  # proposals that rules are fitted on
    rows: int = 20_000  # samples that are chosen of the 25 Gaussians
    images: int = 2000  # samples that are chosen of CIFAR-10; 0 leaves it out
    seeds: int = 3  # seeds of the proposals
    group: int = 20_000  # proposals of each group that a budget is split by

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.seeds, "seeds", least=2)


PRESETS = {
    "smoke": Config(**SMOKE, budgets=(2, 4), pilot=2000, rows=1000, images=0, seeds=2, group=500),
    "default": Config(),
}


def run(config: Config, rows: Record) -> None:
    """Choose by every method from the same proposals, then split budgets."""
    models = {"gaussians": _gaussians} | ({"cifar10": _cifar10} if config.images else {})
    for row, make in rows.todo(models):
        pilot, fresh, judge = make(config)
        budgets: dict[str, Any] = {}
        number = len(fresh[0]) // max(config.budgets)
        for k in config.budgets:
            laws = _closed_forms(pilot, k)
            measured = [_measure(pilot, x, number, k, seed, judge) for seed, x in enumerate(fresh)]
            for method in METHODS:
                values = {key: np.array([one[method][key] for one in measured]) for key in measured[0][method]}
                budgets[f"{method} {k}"] = {"closed": laws.get(method)} | values
        alone = [judge(seed, np.arange(number)) for seed in range(config.seeds)]
        budgets["model 1"] = {key: np.array([one[key] for one in alone]) for key in alone[0]}
        rows.add(row, {"log_ratio_sd": float(np.std(pilot)), "none": Profile(pilot).divergence("kl", 1.0)} | budgets)
    for row, k in rows.todo({f"split {k}": k for k in config.budgets}):
        rows.add(row, _split(config, float(k)))


def _gaussians(config: Config) -> tuple[Numbers, list[Numbers], Any]:
    """Return log-ratios of a pilot and of fresh proposals of each seed, and what judges positions among them."""
    gan = fit_gan(Settings.select(config))
    ratio = ExactRatio.fit(gan.generator, config.exact_samples)
    number = config.rows * max(config.budgets)
    samples = [gan.propose(1 + seed)(np.arange(number)).numpy() for seed in range(config.seeds)]
    pilot = ratio(gan.propose(0)(np.arange(config.pilot)).numpy())

    def judge(seed: int, at: Numbers) -> dict[str, float]:
        scores = score(samples[seed][at])
        return {"precision": scores["precision"], "cells": scores["kl"]}

    return pilot, [ratio(x) for x in samples], judge


def _cifar10(config: Config) -> tuple[Numbers, list[Numbers], Any]:
    """The same of the first GAN of CIFAR-10; a pool has each class equally often."""
    gan, extract = load_gan("cifar10-gan"), committed_judge(half=False)

    def make(seed: int, number: int) -> tuple[Numbers, Numbers]:
        """Return log-ratios of proposals, and their features."""
        scores, features = [], []
        for ids in np.array_split(np.arange(number), max(number // 250, 1)):
            label = torch.from_numpy(ids % 10)
            x = gan.generator(normals(ids, 64, seed=seed, like=torch.empty(0)), label)
            scores.append(gan.critic(x, label)[:, 1].double().numpy())
            features.append(extract(x))
        return np.concatenate(scores), np.concatenate(features)

    with one_thread():
        real, (pilot, _) = extract(parts("cifar10")["test"].x), make(0, config.pilot)
        fresh = [make(1 + seed, config.images * max(config.budgets)) for seed in range(config.seeds)]

    def judge(seed: int, at: Numbers) -> dict[str, float]:
        return {"frechet": frechet(real=real, fake=fresh[seed][1][at][: config.images])}

    return pilot, [x for x, _ in fresh], judge


def _measure(pilot: Numbers, fresh: Numbers, rows: int, k: int, seed: int, judge: Any) -> dict[str, dict[str, float]]:
    """Return by method what the chosen are like: the KL that is left, by bins of log r, and what the judge says."""
    x = fresh[: rows * k].reshape(rows, k)
    u, first = uniforms(np.arange(rows), k, seed=seed), np.arange(rows) * k
    met = u < np.exp(np.minimum(x + _retry_constant(pilot, k), 0.0))
    met[:, -1] = True
    mean = Budgeted.fit(pilot, k)
    chosen = {
        "cap": first + choose(x, Choice.fit(pilot, k), seed=seed),
        "sir": first + np.argmax(x - np.log(-np.log1p(-u)), axis=1),
        "best": first + np.argmax(x, axis=1),
        "retry": first + np.argmax(met, axis=1),
        "mean": np.flatnonzero(accept(mean(x.reshape(-1)), np.arange(x.size), seed=seed)),
    }
    order, share = _target_share(pilot)
    half = np.arange(1, len(order) + 1) / len(order) + share  # bins have an equal share of p and q together
    edges = np.unique(order[np.searchsorted(half, 2 * np.arange(1, _BINS) / _BINS)])
    # p is that of the same proposals: a KL of a few thousandths is beyond what these counts can tell from 0
    p = np.bincount(np.searchsorted(edges, fresh), _target(fresh), len(edges) + 1)
    judged = {}
    for method, at in chosen.items():
        n = np.bincount(np.searchsorted(edges, fresh[at]), minlength=len(p))
        o = np.maximum(n, 0.5) / len(at)
        kl = _kl(p, o) - float(np.sum(p * (1 - o) / (2 * o * len(at))))  # less what counts add on average
        judged[method] = {"kl": kl, "cost": x.size / len(at)} | judge(seed, at)
    return judged


def _kl(p: Numbers, o: Numbers) -> float:
    """Return KL(p || o)."""
    some = p > 0
    return float(np.sum(p[some] * np.log(p[some] / o[some])))


def _target(log_ratio: Numbers) -> Numbers:
    """Return the mass of the target at proposals."""
    p = np.exp(log_ratio - log_ratio.max())
    return np.asarray(p / p.sum())


def _target_share(pilot: Numbers) -> tuple[Numbers, Numbers]:
    """Return log-ratios in ascending order, and the share of the target up to each."""
    order = np.sort(pilot)
    share = np.cumsum(np.exp(order - order[-1]))
    return order, share / share[-1]


def _closed_forms(pilot: Numbers, k: int) -> dict[str, float]:
    """Return the KL that each method leaves, but for SIR, whose law has no closed form."""
    profile, left = Profile(pilot), 1 - np.arange(len(pilot) + 1) / len(pilot)
    best = _kl(_target(np.sort(pilot)[::-1]), left[:-1] ** k - left[1:] ** k)
    retry = _retry_kl(pilot, k, _retry_constant(pilot, k))
    cap, mean = profile.divergence("kl", k, cap=True), profile.divergence("kl", k)
    return {"cap": float(cap), "mean": float(mean), "best": best, "retry": retry}


def _retry_kl(pilot: Numbers, k: int, log_c: float) -> float:
    """Return the KL of trying at most k times: o/q = a (1 - (1-Z)^(k-1)) / Z + (1-Z)^(k-1)."""
    a = np.exp(np.minimum(pilot + log_c, 0.0))
    z = a.mean()
    last = (1 - z) ** (k - 1)
    return _kl(_target(pilot), (a * (1 - last) / z + last) / len(a))


def _retry_constant(pilot: Numbers, k: int) -> float:
    """Return the log c of a retry that leaves least: one at which some share of the target has a = 1."""
    order, share = _target_share(pilot)
    tried = -order[np.searchsorted(share, np.linspace(0.005, 0.995, 100))]
    return float(tried[np.argmin([_retry_kl(pilot, k, c) for c in tried])])


def _split(config: Config, k: float) -> dict[str, Any]:
    """Return what a mean budget leaves of 16 groups: the same for each, split for the mean, split for the largest."""
    spread, kl = np.linspace(0.2, 2.2, 16), DIVERGENCES["kl"]
    draws = normals(np.arange(config.group * (config.seeds + 1)), 16, seed=config.seed).T * spread[:, None]
    pilot, *fresh = np.split(draws, config.seeds + 1, axis=1)
    labels = np.repeat(np.arange(16), config.group)

    def measure(budgets: Numbers) -> dict[str, Numbers]:
        """Return mean and largest KL of groups, by seed."""
        by_group = np.array([left_after(list(part), budgets, kl) for part in fresh])
        return {"mean": by_group.mean(axis=1), "largest": by_group.max(axis=1)}

    def alike(goal: float) -> float:
        """Return the equal budget of all groups that leaves as much."""
        top = np.log(64 * k)
        return float(np.exp(brent(lambda x: measure(np.full(16, np.exp(x)))["mean"].mean() - goal, 0.0, top)))

    splits: dict[str, Any] = {"equal": measure(np.full(16, k))}
    for goal in ("kl", "minimax"):
        rule = Grouped.fit(pilot.reshape(-1), k, labels, split=goal)
        splits[goal] = {"promised": rule.left, "budgets": np.array(rule.budgets)} | measure(np.array(rule.budgets))
        splits[goal]["equals"] = alike(float(splits[goal]["mean"].mean()))
    return splits


def _spread(values: Any, digits: int = 4) -> str:
    """Return mean and standard error over seeds."""
    x = np.asarray(values, dtype=np.float64)
    return f"{x.mean():.{digits}f} ± {x.std(ddof=1) / np.sqrt(len(x)):.{digits}f}"


_DIGITS = {"gaussians": {"precision": 3, "cells": 3}, "cifar10": {"frechet": 2}}  # of what judges say
_SPLITS = {"equal": "the same for each", "kl": 'split="kl"', "minimax": 'split="minimax"'}
_HEADS = {
    "gaussians": ["K", "method", "KL, closed form", "KL of fresh ones", "precision", "KL, 301 cells"],
    "cifar10": ["K", "method", "KL, closed form", "KL of fresh ones", "Fréchet distance"],
    "split": ["mean K", "budget", "promised KL", "mean KL, fresh", "largest KL of a group", "the same for each"],
}


def _tables(record: Record) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Return titles of columns, and cells, of the table of each model and of that of groups."""
    tables = {model: (_HEADS[model], _caps(record[model], model, record)) for model in MODELS if model in record}
    splits = []
    for k, (name, title) in product(record.config["budgets"], _SPLITS.items()):
        row = {"promised": None, "equals": k} | record[f"split {k}"][name]
        left = [_number(row["promised"]), _spread(row["mean"]), _spread(row["largest"])]
        splits.append([f"{k}", title, *left, f"{row['equals']:.2f}"])
    return tables | {"split": (_HEADS["split"], splits)}


def _caps(cells: Mapping[str, Any], model: str, record: Record) -> list[list[str]]:
    def judge_cells(row: Mapping[str, Any]) -> list[str]:
        return [_spread(row[key], digits) for key, digits in _DIGITS[model].items()]

    lines = [["1", "the model itself", _number(cells["none"]), "", *judge_cells(cells["model 1"])]]
    for k, (method, look) in product(record.config["budgets"], METHODS.items()):
        row = cells[f"{method} {k}"]
        lines.append([f"{k}", look.label, _number(row["closed"]), _spread(row["kl"]), *judge_cells(row)])
    return lines


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def table(record: Record) -> str:
    """Return the tables as text; ± is a standard error over seeds."""
    return "\n\n".join(text_table(head, lines, left=2) for head, lines in _tables(record).values())


def markdown(record: Record) -> str:
    """Return a part for each model, and one for groups."""
    return "\n\n".join(section(name, page_table(head, lines)) for name, (head, lines) in _tables(record).items())


def figure(record: Record) -> Any:
    """Draw the KL that is left at each cap, and the budgets of groups."""
    models = [model for model in MODELS if model in record]
    drawn = canvas(9, 4.2)
    *panels, last = drawn.subplots(1, len(models) + 1)
    budgets = record.config["budgets"]
    for model, axes in zip(models, panels, strict=True):
        for method, look in METHODS.items():
            left = [np.mean(record[model][f"{method} {k}"]["kl"]) for k in budgets]
            axes.plot(budgets, left, color=look.colour, ls=look.line, marker=look.marker, label=look.label)
        axes.set(title=MODELS[model], xlabel="proposals per sample, K", ylabel="KL left, nats", ylim=(0, None))
        axes.set_xticks(budgets)
        tidy(axes, None)
    panels[0].legend(fontsize=8)
    for k, colour in zip(budgets, ("sky", "blue", "night"), strict=False):
        last.plot(np.linspace(0.2, 2.2, 16), record[f"split {k}"]["kl"]["budgets"], "o-", ms=4, color=PALETTE[colour],
                  label=f"mean {k}")  # fmt: skip
    last.set(title="16 groups, split", xlabel="sd of log r in the group", ylabel="budget of the group", yscale="log")
    tidy(last)
    text = "Left: KL that is left by choosing 1 of exactly K, and by OBRS with a mean of K. Right: what each group "
    return caption(drawn, record.experiment, f"{text}gets of one mean budget.")
