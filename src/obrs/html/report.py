"""`obrs.report`: one page that shows what each budget buys, with the samples that it keeps.

The page computes nothing: it holds all columns at each budget of its slider.
"""

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from math import inf, log
from pathlib import Path
from typing import Any

import numpy as np

from .._arrays import host_view
from .._checks import check_budget, check_count, check_ratios
from .._files import rewrite
from .._text import html_table, paragraph
from ..draws import accept, priority_key
from ..errors import InputError, InputTypeError
from ..groups import Groups, Reach, groups_of
from ..profile import Plan, Profile
from ..ratios.doctor import diagnose
from ..sampling.proposals import propose_batch, score_batch
from .findings import NAMES, diagnosis_findings, profile_findings
from .page import cut, fill, page_path, script_json, shorten, show

__all__ = ["ROUND", "Source", "report", "slider"]

Floats = np.ndarray[Any, Any]

ROUND = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 50, 64, 80, 100, 128, 160, 200, 256)
"""Budgets that the slider has exactly; it ends at the last one if exact rejection costs more."""
_POINTS, _STEP = 108, log(1.02)  # steps of the slider, at most; and how far apart they are, at least
_BINS, _SLOPES = 64, 301  # of the histogram; of the curve of precision and recall
_GROUPS, _SHOWN = 16, 96  # groups that are shown, the largest first; samples, at most
_TUNED, _DRAWN = 48, 512  # samples of each kind in the page of `tune`; proposals from which they are taken
_PLANNED = (1, 1.5, 2, 4, 8, 16, 32, 64, 128, 256)
_TITLE, _LABEL, _SAYS = 120, 48, 300  # bytes of the title, of a label, of each part of a finding
_LIST = 28_000  # bytes of the list of ids, so that a page without images stays below 150 KB


@dataclass(frozen=True, eq=False)
class Source:
    """What a page is about.

    Args:
        profile, seed: The log-ratios of the samples; and what decides which are kept, as for `obrs.accept`.
        ids: Ids of the rows of a file, of which exactly floor(N / K) are kept, of each group if there are groups, as by
            `obrs select`. By default they are 0, 1, 2 …, and kept as by `obrs.accept`.
        cost: What each costs, for 1 in K of the whole cost; by default 1.
        names, name: What the list of kept samples calls them, by default their numbers; and the column of that list.
        samples: What they are, None if that is not known.
        folder: Where paths of images begin, and below which they must lie; by default they may lie anywhere.
        reward: Whether the target is the model tilted by a reward: then r is known up to a constant only.
        other: The same samples by another score, to compare, and its name.
        facts: What to say below the title, before the size and M.
        code: What to copy: titles, and the parts of texts between which the budget stands.
    """

    profile: Profile
    seed: int = 0
    ids: Any = None
    cost: Floats | None = None
    names: Sequence[Any] | None = None
    name: str = "index"
    samples: Any = None
    folder: str | os.PathLike[str] | None = None
    reward: bool = False
    other: tuple[str, "Source"] | None = None
    facts: Sequence[str] = ()
    code: Sequence[tuple[str, Sequence[str]]] = ()

    @cached_property
    def key(self) -> Floats:
        """The key of each sample, log u - log r: kept if it is below log c."""
        log_ratio = self.profile.log_ratio
        check_ratios(log_ratio)  # a profile takes any number that weighs nothing
        ids = np.arange(len(log_ratio)) if self.ids is None else self.ids
        return np.asarray(priority_key(log_ratio, ids, seed=self.seed))

    def last_budget(self, budgets: list[float], groups: Groups | None) -> Floats:
        """Return the number of the last budget, of some that ascend from 1, at which each sample is kept."""
        if self.ids is None:
            return np.searchsorted([-self.profile.log_c(k) for k in budgets[1:]], -self.key)
        last = np.zeros(len(self.key), np.int64)
        code, size = (last, [len(last)]) if groups is None else (groups.code, groups.size)
        for rows in np.split(np.lexsort((self.key, code)), np.cumsum(size)[:-1]):  # of each group, by their keys
            key = self.key[rows]
            spent = np.cumsum(np.ones(len(rows)) if self.cost is None else self.cost[rows])
            taken = np.searchsorted(spent, np.floor(spent[-1] / np.array(budgets[1:])), side="right")
            cuts = np.append(key, inf)[taken]  # the key of the first that is not kept
            last[rows] = np.searchsorted(-cuts, -key)  # how many cuts are above the key; they descend
        return last


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
    target = page_path(out)
    if not isinstance(title, str | None):
        raise InputTypeError(f"title must be a text, got {title!r:.60}")
    if hasattr(source, "confirmed"):  # what `obrs.tune` returns
        if any(given is not None for given in (groups, compare, real, budget, n)):
            raise InputError("the page of a tuned ratio has no groups, compare, real, budget and n; leave them out")
        page = _tuned_page(source, samples, title or "Tuned")
    else:
        about = source if isinstance(source, Source) else _find_source(source, samples, seed)
        if compare is not None:
            other, size = Source(Profile(compare), seed), len(about.key)
            if len(other.key) != size:
                raise InputError(f"compare must be one log-ratio for each of {size}, got {len(other.key)}")
            about = replace(about, other=("the other score", other))
        page = _ratio_page(about, groups, real, budget, n, title)
    with rewrite(target) as file:
        file.write(page.encode(errors="replace"))  # a text may have half of a surrogate pair
    return target


def _find_source(source: Any, samples: Any, seed: int) -> Source:
    """Return the source of a page from the arguments of `report`, with Python code that does what the page shows."""
    if isinstance(source, str | os.PathLike):
        raise InputTypeError(f"report takes log-ratios or a Profile, got a path; try `obrs report {source}`")
    parts = ["log_c = profile.log_c(", ")  # accept with probability min(exp(log_ratio + log_c), 1)"]
    if not isinstance(source, Profile):
        source = Profile(source)
        kept = f")\nkept = obrs.accept(rule(log_ratio), np.arange(len(log_ratio)), seed={seed})"
        parts = ["rule = obrs.Budgeted.fit(log_ratio, budget=", kept]
    return Source(source, seed, samples=samples, code=[("Python: what this page shows", parts)])


def _ratio_page(source: Source, groups: Any, real: Any, budget: Any, n: Any, title: str | None) -> str:
    """Return the page of log-ratios."""
    profile, number = source.profile, None if n is None else check_count(n, "n")
    labels = None if groups is None else groups_of(groups, source.key.shape)
    apart = None if source.ids is None else labels  # groups that have a constant each
    budgets, recall = slider(source, apart, budget), 0.9 * min(float(profile.beta(0.0)), 1.0)
    first = budget or max([k for k in (1.5, 2, 4) if k < profile.max_budget], default=budgets[-1])
    start = int(np.argmin(np.abs(np.log(np.array(budgets) / first))))
    plan, usual = _plan(profile, budgets, recall, apart), [k for k in budgets if k in _PLANNED]
    findings = [] if real is None else diagnosis_findings(diagnose(real, profile.log_ratio, budgets[start]))
    known = {"reward": source.reward, "diagnosed": real is not None, "by_group": apart is not None}
    findings += profile_findings(profile, plan[start], **known)
    log_c, last, other_last = [profile.log_c(k) for k in budgets], source.last_budget(budgets, apart), None
    content = {"budgets": budgets, "start": start, "planned": [budgets.index(k) for k in usual], "n": number}
    content |= {"log_c": shorten(log_c), "recall": recall, **_columns(plan)}
    content |= {"reward": source.reward, "apart": apart is not None, "rows": _list_rows(source, last)}
    content["histogram"] = _histogram(profile, None if apart is None else last, len(budgets))
    content["findings"] = [(mark, cut(says, _SAYS), cut(todo, _SAYS)) for mark, says, todo in findings]
    content["code"] = [{"title": name, "parts": list(parts)} for name, parts in source.code]
    if profile.calibrated and apart is None:
        low, high = -log(30 * budgets[-1]), log(100)  # ends of the log slopes
        alpha = profile.alpha(np.exp(np.linspace(low, high, _SLOPES)))
        content |= {"max_budget": profile.max_budget, "curve": {"low": low, "high": high, "alpha": shorten(alpha, 5)}}
    if labels is not None and apart is None:
        content["groups"] = _group_shares(profile, labels, log_c)
    if source.other is not None:
        name, other = source.other
        other_last = other.last_budget(budgets, apart)
        both = [(other_last >= i)[last >= i] for i in range(len(budgets))]
        content["compare"] = {"name": cut(name, _LABEL), "same": shorten([x.sum() / max(len(x), 1) for x in both], 3)}
    if source.samples is not None:
        content |= _show_samples(source, labels, last, other_last)
    scale = f"log-ratios · M = {profile.max_budget:.4g}" if profile.calibrated else "scores, not calibrated"
    about = " · ".join([*source.facts, f"{profile.size:,} {scale}"])
    text = {"title": cut(title or "What each budget buys", _TITLE), "about": about}
    table = _plan(profile, usual[:6], recall, apart)._repr_html_()
    return fill("report.html", text=text, html={"data": script_json(content), "plan": table})


def slider(source: Source, groups: Groups | None = None, budget: float | None = None) -> list[float]:
    """Return the budgets of the slider, ascending: 1, then log-spaced ones of three digits, with the round ones exact.

    They end at the first round one beyond M, where rejection is exact, or at 256; at a budget that was asked for if it
    is larger; and where no row would be kept. Below the least that can be met there is only 1, the model itself. Groups
    with a constant each have the round ones only: a plan by groups takes longer.
    """
    profile, first, most = source.profile, 1.0 if budget is None else check_budget(budget), inf
    profile.rate(first)  # raises if it cannot be met
    least = 1 / profile.possible
    if groups is not None:
        reach = Reach.measure(groups.arrange(profile.log_ratio), groups.size)
        reach.check(np.full(len(groups.size), budget or 1e300), groups.labels)
        least, most = float(max(1 / reach.possible)), float(max(groups.size))
    elif source.ids is not None and source.cost is None:
        most = max(float(profile.size), 2.0)
    if most < max(first, 2.0):
        raise InputError(f"nothing would be kept at budget {budget or 2:g}: it must be at most {most:g}")
    beyond = [k for k in ROUND if k > max(profile.max_budget, least) * (1 + 1e-9)]
    top = min(max(float(beyond[0] if beyond else ROUND[-1]), *shorten([2 * least], 3), first), most)
    steps = max(min(_POINTS, round(log(top / least) / _STEP)), 1)
    spaced = shorten(np.geomspace(least, top, steps + 1), 3) if groups is None else []
    return [k for k in sorted({1.0, top, first, *map(float, ROUND), *spaced}) if k == 1 or least <= k <= top]


def _plan(profile: Profile, budgets: list[float], recall: float, groups: Groups | None) -> Plan:
    """Return what each budget buys; plans by groups have no intervals, and the marks of the plan without groups."""
    plan = profile.plan(budgets, recall=recall)
    if groups is None or max(budgets) == 1:
        return plan
    apart = profile.plan([k for k in budgets if k > 1], groups=groups.code)
    rows = [{key: plan[0].get(key) for key in apart[0]}, *apart]  # 1 is the model itself, even if some r are 0
    marks = ({"unreliable": row.get("unreliable", "")} for row in plan)
    return Plan([row | mark for row, mark in zip(rows, marks, strict=True)], apart.notes)


def _columns(plan: Plan) -> dict[str, Any]:
    """Return each column of a plan with its interval, if it has one, and where it is unreliable."""
    columns: dict[str, Any] = {}
    for key in [key for key in NAMES if key in plan[0]]:
        columns[key] = shorten([row[key] for row in plan])
        for end in (f"{key}_low", f"{key}_high"):
            columns[end] = shorten([row.get(end, row[key]) for row in plan], 5)
        columns[f"{key}_marks"] = "".join("~" if key in row.get("unreliable", "").split() else "." for row in plan)
    return columns


def _histogram(profile: Profile, last: Floats | None, count: int) -> dict[str, Any]:
    """Return the shares of log r in bins, with the log of the mean of r in each, from which what is kept follows.

    By groups that does not follow: it is counted, by the last of `count` budgets that keeps each row.
    """
    value, mass = profile.sorted_log_ratio
    below = np.searchsorted(np.cumsum(mass) / np.sum(mass), 0.001)  # a long lower tail would press the rest together
    low, high = float(value[below]), float(value[-1])
    if high - low < 1e-6 * max(abs(high), 1.0):
        low, high = low - 1, high + 1

    def bins(x: Floats, weights: Floats | None = None) -> Floats:
        return np.histogram(np.maximum(x, low), _BINS, (low, high), weights=weights)[0]

    share, sums = bins(value, mass), bins(value, mass * np.exp(value - high))
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(sums > 0, np.log(sums / share) + high, low)
    histogram = {"low": low, "high": high, "share": shorten(share, 4), "mean": shorten(mean, 5)}
    if last is not None:
        histogram["kept"] = [shorten(bins(profile.log_ratio[last >= i]) / len(last), 3) for i in range(count)]
    return histogram


def _group_shares(profile: Profile, groups: Groups, log_c: list[float]) -> dict[str, Any]:
    """Return the share that one constant keeps of the largest groups, and the share that each has of the proposals."""
    count, x = len(groups.size), profile.log_ratio
    largest = np.arange(count) if count <= _GROUPS else np.argsort(-groups.size, kind="stable")[:_GROUPS]
    log_a = (np.minimum(x + min(c, 1e7), 0) for c in log_c)  # |log r| is below 1e6, or r is 0
    kept = np.array([np.bincount(groups.code, np.exp(each))[largest] for each in log_a])
    return {
        "labels": [cut(groups.labels[g], _LABEL) for g in largest],
        "share": shorten(groups.size[largest] / len(x), 4),
        "rates": [shorten(rates, 3) for rates in (kept / groups.size[largest]).T],
        "more": count - len(largest),
    }


def _show_samples(source: Source, labels: Groups | None, last: Floats, other_last: Floats | None) -> dict[str, Any]:
    """Return the samples that fit, in their order: id, log r, group and last budgets; and what is left out."""
    size = len(last)
    rows = np.arange(size) if size <= _SHOWN else np.random.default_rng(0).permutation(size)[:_SHOWN]
    kind, items, limit = show(source.samples, rows, size, source.folder)
    order = np.argsort(rows[: len(items)])
    rows = rows[order]
    ids = rows.tolist() if source.names is None else [cut(source.names[row], _LABEL) for row in rows]
    samples = {"id": ids, "x": shorten(source.profile.log_ratio[rows]), "item": [items[i] for i in order]}
    samples["last"] = last[rows].tolist()
    if labels is not None:
        samples["group"] = [cut(labels.labels[labels.code[row]], _LABEL) for row in rows]
    if source.other is not None and other_last is not None:
        samples |= {
            "other_x": shorten(source.other[1].profile.log_ratio[rows]),
            "other_last": other_last[rows].tolist(),
        }
    some = f"{len(items)} of {size:,}, at random" if len(items) < size else ""
    return {"samples": samples, "kind": kind, "note": "; ".join(filter(None, (some, limit)))}


def _list_rows(source: Source, last: Floats) -> dict[str, Any] | bool:
    """Return the list of samples from which the kept can be downloaded, or False if it is too long for the page."""
    code = base64.b64encode(last.astype(np.uint8).tobytes()).decode()  # a byte for each row
    names = None if source.names is None or len(code) > _LIST else [str(name) for name in source.names]
    rows = {"last": code, "name": source.name, "ids": names}
    return rows if len(script_json(rows).encode()) <= _LIST else False


def _tuned_page(tuned: Any, samples: Any, title: str) -> str:
    """Return the page of a result of `obrs.tune`; if that had a model, on proposals that nothing was fitted on."""
    if tuned.kept is None:
        ids = np.arange(tuned.start, tuned.start + _DRAWN)
        samples = propose_batch(tuned.propose, ids)
        log_a = tuned.rule(score_batch(tuned.log_ratio, samples, len(ids)), samples)
        kept = np.asarray(accept(host_view(log_a), ids, seed=tuned.seed))
    elif samples is None:
        raise InputError("the page shows the samples that tune was given: give samples=fake")
    else:
        kept = np.isin(np.arange(len(tuned.score)), tuned.kept)
    headline, *notes = tuned.lines
    parts = ", ".join(f"{name} {seconds:.0f}" for name, seconds in tuned.seconds)
    text = {"title": title, "headline": headline, "count": len(tuned.rows), "judge": tuned.judge}
    text["seconds"] = f"Seconds: {parts}." if parts else ""
    html = {"notes": "\n".join(map(paragraph, notes)), "table": html_table(*tuned.table)}
    html["samples"] = "\n".join([_card("kept", samples, kept), _card("rejected", samples, ~kept)])
    return fill("tuned.html", text=text, html=html)


def _card(name: str, samples: Any, chosen: Any) -> str:
    """Return some of the chosen samples, spread evenly over all of them."""
    rows = np.flatnonzero(chosen)
    some = rows[np.linspace(0, len(rows) - 1, min(_TUNED, len(rows))).astype(int)]
    kind, items, _ = show(samples, some, len(chosen)) if len(some) else ("text", ["none"], "")
    form = '<img src="{}" alt="">' if kind == "image" else "<span>{}</span>"
    head = f"<h2>{name.capitalize()}, {len(some):,} of {len(rows):,}</h2>"
    drawn = "".join(form.format(escape(item)) for item in items)
    return f'<div class="card {name}">{head}<div class="grid">{drawn}</div></div>'
