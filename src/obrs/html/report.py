"""`obrs.report`: one page that shows what each budget buys, with the samples that it keeps.

The page looks numbers up and computes none: it has all columns at each budget of its slider.
"""

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, log
from pathlib import Path
from typing import Any

import numpy as np

from .._checks import check_budget, check_count, check_ratios
from ..draws import priority_key
from ..errors import InputError, InputTypeError
from ..groups import Groups, Reach, groups_of
from ..profile import Plan, Profile
from ..ratios.doctor import diagnose
from .findings import NAMES, diagnosis_findings, profile_findings
from .samples import choose, show
from .template import cut, fill, page_path, rounded, script_json, write_page

__all__ = ["ROUND", "Source", "make_source", "report", "slider"]

Floats = np.ndarray[Any, Any]

ROUND = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 50, 64, 80, 100, 128, 160, 200, 256)
"""Budgets that the slider has exactly; it ends at the last one if exact rejection costs more."""
_POINTS = 108  # steps of the slider, at most
_STEP = log(1.02)  # and at least this far apart
_BINS = 64  # of the histogram
_SLOPES = 301  # of the curve of precision and recall
_GROUPS = 16  # that are shown, the largest first
_PLANNED = (1, 1.5, 2, 4, 8, 16, 32, 64, 128, 256)
_TITLE, _LABEL, _SAYS = 120, 48, 300  # bytes of the title, of a label, of each part of a finding
_LIST = 28_000  # bytes of the list of ids, so that a page without images stays below 150 KB
_TEMPLATE = Path(__file__).with_name("report.html")


@dataclass(frozen=True, eq=False)
class Source:
    """What a page is about.

    Args:
        profile: The log-ratios of the samples.
        key: Their keys, log u - log r: kept if `key < log c`.
        names: What the list of kept samples calls them; by default their numbers.
        name: The column of that list.
        ranked: Whether exactly floor(N / K) are kept, of each group if there are groups: those with the smallest keys,
            as `obrs select` does.
        cost: What each costs, for 1 in K of the whole cost; by default 1.
        samples: What they are, None if that is not known.
        reward: Whether the target is the model tilted by a reward: then r is known up to a constant only.
        other: The same samples by another score, to compare, and its name.
        facts: What to say below the title, before the size and M.
        code: What to copy: titles, and the parts of texts between which the budget stands.
        folder: Where paths of images begin, and below which they must lie; by default they may lie anywhere.
    """

    profile: Profile
    key: Floats
    names: Sequence[Any] | None = None
    name: str = "index"
    ranked: bool = False
    cost: Floats | None = None
    samples: Any = None
    reward: bool = False
    other: tuple[str, "Source"] | None = None
    facts: Sequence[str] = ()
    code: Sequence[tuple[str, Sequence[str]]] = ()
    folder: str | os.PathLike[str] | None = None

    def last_kept(self, budgets: list[float], groups: Groups | None) -> Floats:
        """Return the number of the last budget, of some that ascend from 1, at which each sample is kept."""
        last = np.zeros(len(self.key), np.int64)
        for rows in [np.arange(len(last))] if groups is None else _split(groups):
            key = self.key[rows]
            if self.ranked:
                order = np.argsort(key)
                spent = np.cumsum(np.ones(len(order)) if self.cost is None else self.cost[rows][order])
                taken = np.searchsorted(spent, np.floor(spent[-1] / np.array(budgets[1:])), side="right")
                cuts = np.append(key[order], inf)[taken]  # of the first that is not kept
            else:
                cuts = np.array([self.profile.log_c(k) for k in budgets[1:]])
            last[rows] = np.searchsorted(-cuts, -key, side="left")  # how many cuts are above the key; they descend
        return last


def _split(groups: Groups) -> list[Floats]:
    """Return the rows of each group."""
    return np.split(np.argsort(groups.code, kind="stable"), np.cumsum(groups.size)[:-1])


def make_source(profile: Profile, seed: int = 0, ids: Any = None, **more: Any) -> Source:
    """Return the source of proposals.

    Args:
        profile: Of their log-ratios.
        seed: As for `obrs.accept`.
        ids: Ids of the rows of a file, of which `obrs select` keeps exactly 1 in K; by default 0, 1, 2 ….
        more: Other arguments of `Source`.
    """
    log_ratio = profile.log_ratio
    check_ratios(log_ratio)  # a profile takes any number that weighs nothing
    key = priority_key(log_ratio, np.arange(len(log_ratio)) if ids is None else ids, seed=seed)
    return Source(profile, key, ranked=ids is not None, **more)


def report(
    source: Any,
    *,
    out: str | os.PathLike[str],
    samples: Any = None,
    groups: Any = None,
    compare: Any = None,
    real: Any = None,
    budget: float | None = None,
    n: int | None = None,
    title: str | None = None,
    seed: int = 0,
) -> Path:
    """Write one self-contained page with a slider over the budget: what it keeps, what is left, and what it costs.

    The page opens offline, makes no request, and has at most 150 KB without images. What is kept is decided in it as by
    `obrs.accept`.

    Args:
        source: Log-ratios of proposals from the model; or a `Profile` of them; or a `Source`. Of the result of
            `obrs.tune` the page shows the recipes, and samples that are kept and rejected: give samples alone.
        out: The page, a file that ends in .html.
        samples: What to show, one item per log-ratio: texts, paths of images, or an array of images or numbers. At most
            96 are shown: fewer if texts are long, and images of at most 384 pixels.
        groups: A label for each log-ratio, of any kind: shows how much is kept of each.
        compare: Log-ratios of the same samples by another critic: shows how many both keep.
        real: Log-ratios of real samples: shows what `obrs.diagnose` finds at the budget that the page opens with.
        budget: Where the slider starts; 4 by default.
        n: Samples wanted; shows the proposals that they cost.
        title: The title; by default what the page is about.
        seed: As for `obrs.accept`.

    Returns:
        Where the page is.

    Example:
        >>> import tempfile
        >>> log_ratio = np.random.default_rng(0).normal(size=1000)
        >>> page = report(log_ratio, out=tempfile.mkdtemp() + "/report.html", samples=[f"row {i}" for i in range(1000)])
        >>> page.name, page.stat().st_size < 100_000
        ('report.html', True)
    """
    if hasattr(source, "confirmed"):  # a Tuned, whose module needs torch
        from .tuned import report_tuned

        if any(given is not None for given in (groups, compare, real, budget, n)):
            raise InputError("the page of a tuned ratio has no groups, compare, real, budget and n; leave them out")
        return report_tuned(source, samples, out=out, title=title or "Tuned")
    target = page_path(out)
    about = source if isinstance(source, Source) else _find_source(source, samples, seed)
    if compare is not None:
        other = make_source(Profile(compare), seed)
        if len(other.key) != len(about.key):
            raise InputError(f"compare must be one log-ratio for each of {len(about.key)}, got {len(other.key)}")
        about = replace(about, other=("the other score", other))
    number, profile = None if n is None else check_count(n, "n"), about.profile
    labels = None if groups is None else groups_of(groups, about.key.shape)
    apart = labels if about.ranked else None  # groups that have a constant each
    ends = _budget_range(about, apart, None if budget is None else check_budget(budget))
    budgets, recall = slider(profile, budget, *ends), 0.9 * min(float(profile.beta(0.0)), 1.0)
    if apart is not None:  # a plan by groups takes longer
        budgets = [k for k in budgets if k in ROUND or k in (budget, budgets[-1])]
    first = budget or max([k for k in (1.5, 2, 4) if k < profile.max_budget], default=budgets[-1])
    start = int(np.argmin(np.abs(np.log(np.array(budgets) / first))))
    findings = [] if real is None else diagnosis_findings(diagnose(real, profile.log_ratio, budgets[start]))
    known = {"reward": about.reward, "diagnosed": real is not None, "by_group": apart is not None}
    findings += profile_findings(profile, budgets[start], recall, **known)
    last = about.last_kept(budgets, apart)
    also = None if about.other is None else about.other[1].last_kept(budgets, apart)
    content = {
        "groups": None if labels is None or apart is not None else _group_shares(profile, labels, budgets),
        "apart": apart is not None,
        "findings": [(mark, cut(says, _SAYS), cut(todo, _SAYS)) for mark, says, todo in findings],
        "budgets": budgets,
        **_columns(profile, budgets, recall, apart),
        "start": start,
        "recall": recall,
        "max_budget": profile.max_budget if profile.calibrated and apart is None else inf,
        "size": profile.size,
        "n": number,
        "histogram": _histogram(profile, None if apart is None else last, len(budgets)),
        "curve": _curve(profile, budgets[-1]) if profile.calibrated and apart is None else None,
        "planned": [i for i, k in enumerate(budgets) if k in _PLANNED],
        "code": [{"title": name, "parts": list(parts)} for name, parts in about.code],
        "reward": about.reward,
        "compare": None if about.other is None else _compare(about.other[0], last, also, len(budgets)),
        "rows": _list_rows(about, last),
        "samples": None,
        **({} if about.samples is None else _show_samples(about, labels, last=last, other_last=also)),
    }
    calibrated = f"{profile.size:,} log-ratios", f"M = {profile.max_budget:.4g}"
    facts = [*about.facts, *(calibrated if profile.calibrated else [f"{profile.size:,} scores, not calibrated"])]
    text = {"title": cut(title or "What each budget buys", _TITLE), "about": " · ".join(facts)}
    plan = _plan(profile, [k for k in budgets if k in _PLANNED][:6], recall, apart)._repr_html_()
    return write_page(target, fill(_TEMPLATE, text=text, html={"data": script_json(content), "plan": plan}))


def _find_source(source: Any, samples: Any, seed: int) -> Source:
    """Return what a page is about, from what `report` takes, with Python that does what the page shows."""
    if isinstance(source, str | os.PathLike):
        raise InputTypeError(f"report takes log-ratios or a Profile, got a path; try `obrs report {source}`")
    parts = ["log_c = profile.log_c(", ")  # accept with probability min(exp(log_ratio + log_c), 1)"]
    if not isinstance(source, Profile):
        source = Profile(source)
        kept = f")\nkept = obrs.accept(rule(log_ratio), np.arange(len(log_ratio)), seed={seed})"
        parts = ["rule = obrs.Budgeted.fit(log_ratio, budget=", kept]
    return make_source(source, seed, samples=samples, code=[("Python: what this page shows", parts)])


def slider(profile: Profile, asked: float | None = None, least: float = 1.0, most: float = inf) -> list[float]:
    """Return the budgets of the slider, ascending: 1, then log-spaced ones of three digits, with the round ones exact.

    They end at the first round one beyond M, where rejection is exact, or at 256; at a budget that was asked for if it
    is larger, and never beyond `most`. Below `least`, or 1/possible, no budget can be met but 1, the model itself.

    Example:
        >>> budgets = slider(Profile(np.random.default_rng(0).normal(size=1000)))
        >>> len(budgets), budgets[:3], {1, 1.5, 2, 4, 8} <= set(budgets)
        (117, [1.0, 1.03, 1.05], True)
    """
    least = max(least, 1 / profile.possible)
    beyond = [k for k in ROUND if k > max(profile.max_budget, least) * (1 + 1e-9)]
    top = min(max(float(beyond[0] if beyond else ROUND[-1]), *rounded([2 * least], 3), asked or 1.0), most)
    steps = max(min(_POINTS, round(log(top / least) / _STEP)), 1)
    budgets = {1.0, top, asked or 1.0, *map(float, ROUND), *rounded(np.geomspace(least, top, steps + 1), 3)}
    return [k for k in sorted(budgets) if k == 1 or least <= k <= top]


def _budget_range(source: Source, groups: Groups | None, asked: float | None) -> tuple[float, float]:
    """Return the least budget that all groups can meet, and the largest at which a row is kept; refuse others."""
    source.profile.rate(asked or 1.0)
    least, most = 1.0, max(float(source.profile.size), 2.0) if source.ranked and source.cost is None else inf
    if groups is not None:
        reach = Reach.of(source.profile.log_ratio, groups)
        reach.check(np.full(len(groups.size), asked or 1e300), groups.labels)
        least, most = float(max(1 / reach.possible)), float(max(groups.size))
    if most < max(asked or 1.0, 2.0):
        raise InputError(f"nothing would be kept at budget {asked or 2:g}: it must be at most {most:g}")
    return least, most


def _plan(profile: Profile, budgets: list[float], recall: float, groups: Groups | None) -> Plan:
    """Return what each budget buys, by groups if there are any; budget 1 is the model itself, even if some r are 0."""
    if groups is None or max(budgets) == 1:
        return profile.plan(budgets, recall=recall)
    plan = profile.plan([k for k in budgets if k > 1], groups=groups.code)
    (model,) = profile.plan([1.0])
    return Plan([{key: model.get(key) for key in plan[0]}, *plan], plan.notes)


def _columns(profile: Profile, budgets: list[float], recall: float, groups: Groups | None) -> dict[str, Any]:
    """Return log c, each column of `Profile.plan` with its interval, and where a column is unreliable, by budget.

    A plan by groups has no intervals: it is as unreliable as that without groups.
    """
    plan = _plan(profile, budgets, recall, groups)
    doubts = [row.get("unreliable", "").split() for row in (plan if groups is None else profile.plan(budgets))]
    found: dict[str, Any] = {"log_c": rounded([profile.log_c(k) for k in budgets])}
    for key in [key for key in NAMES if key in plan[0]]:
        found[key] = rounded([row[key] for row in plan])
        for end in (f"{key}_low", f"{key}_high"):
            found[end] = rounded([row.get(end, row[key]) for row in plan], 5)
        found[f"{key}_marks"] = "".join("~" if key in doubt else "." for doubt in doubts)
    return found


def _histogram(profile: Profile, last: Floats | None, count: int) -> dict[str, Any]:
    """Return the shares of log r in bins, with the log of the mean of r in each: what is kept of a bin follows.

    With the last of `count` budgets that keeps each row, as by groups, it is counted: the share that each keeps.
    """
    value, mass = profile.sorted_log_ratio
    order = np.cumsum(mass) / np.sum(mass)
    low = float(value[np.searchsorted(order, 0.001)])  # a long lower tail would press all the rest together
    high = float(value[-1])
    if high - low < 1e-6 * max(abs(high), 1.0):
        reach = max(1.0, 1e-6 * abs(high))  # of numbers so large that one more is none
        low, high = low - reach, high + reach

    def places(x: Floats) -> Floats:
        return np.clip((np.maximum(x, low) - low) / (high - low) * _BINS, 0, _BINS - 1).astype(np.int64)

    place = places(value)
    share = np.bincount(place, weights=mass, minlength=_BINS)
    sums = np.bincount(place, weights=mass * np.exp(value - high), minlength=_BINS)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(sums > 0, np.log(sums / share) + high, low)
    found = {"low": low, "high": high, "share": rounded(share, 4), "mean": rounded(mean, 5)}
    if last is None:
        return found
    ends = np.bincount(places(profile.log_ratio) * count + last, minlength=_BINS * count).reshape(_BINS, count)
    return found | {"kept": [rounded(ends[:, i:].sum(1) / len(last), 3) for i in range(count)]}


def _curve(profile: Profile, most: float) -> dict[str, Any]:
    """Return the precision of the model at slopes from 1/(30 K) to 100: those after rejection follow from it.

    At slope `l Z` the model has precision alpha and recall alpha/(l Z). At slope l, what is kept has precision
    min(alpha/Z, 1) and recall min(alpha/(l Z), 1/l).
    """
    low, high = -log(30 * most), log(100)
    slopes = np.linspace(low, high, _SLOPES)
    return {"low": low, "high": high, "alpha": rounded(profile.alpha(np.exp(slopes)), 5)}


def _group_shares(profile: Profile, groups: Groups, budgets: list[float]) -> dict[str, Any]:
    """Return the share that one constant keeps of the largest groups, and the share that each has of the proposals."""
    log_ratio, log_c = profile.log_ratio, [min(profile.log_c(k), 1e7) for k in budgets]  # |log r| is below 1e6
    order, by_group = np.argsort(-groups.size, kind="stable"), _split(groups)
    largest = order[:_GROUPS] if len(order) > _GROUPS else np.arange(len(order))
    kept = [[np.exp(np.minimum(log_ratio[by_group[g]] + c, 0)).mean() for c in log_c] for g in largest]
    return {
        "labels": [cut(groups.labels[g], _LABEL) for g in largest],
        "share": rounded(groups.size[largest] / len(log_ratio), 4),
        "rates": [rounded(rates, 3) for rates in kept],
        "more": len(order) - len(largest),
    }


def _compare(name: str, last: Floats, also: Any, count: int) -> dict[str, Any]:
    """Return the share of the kept that another score keeps as well, by budget."""
    both, kept = (np.bincount(ends, minlength=count)[::-1].cumsum()[::-1] for ends in (np.minimum(last, also), last))
    return {"name": cut(name, _LABEL), "same": rounded(both / np.maximum(kept, 1), 3)}


def _show_samples(source: Source, labels: Groups | None, **last: Floats | None) -> dict[str, Any]:
    """Return the samples that have room, in their order: id, log r, group and last budgets; and what is missing."""
    size = len(source.key)
    rows = choose(size)
    kind, items, limit = show(source.samples, rows, size, source.folder)
    order = np.argsort(rows[: len(items)])
    rows = rows[order]
    ids = rows.tolist() if source.names is None else [cut(source.names[row], _LABEL) for row in rows]
    found = {"id": ids, "x": rounded(source.profile.log_ratio[rows]), "item": [items[i] for i in order]}
    if labels is not None:
        found["group"] = [cut(labels.labels[labels.code[row]], _LABEL) for row in rows]
    if source.other is not None:
        found["other_x"] = rounded(source.other[1].profile.log_ratio[rows])
    found |= {name: ends[rows].tolist() for name, ends in last.items() if ends is not None}
    some = f"{len(items)} of {size:,}, at random" if len(items) < size else ""
    return {"samples": found, "kind": kind, "note": "; ".join(filter(None, (some, limit)))}


def _list_rows(source: Source, last: Floats) -> dict[str, Any] | bool:
    """Return the list of samples from which the kept can be downloaded, or False if it is too long for the page."""
    code = base64.b64encode(last.astype(np.uint8).tobytes()).decode()  # a byte for each row
    names = None if source.names is None or len(code) > _LIST else [str(name) for name in source.names]
    found = {"last": code, "name": source.name, "ids": names}
    return found if len(script_json(found).encode()) <= _LIST else False
