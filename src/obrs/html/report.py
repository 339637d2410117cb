"""`obrs.report`: one page that shows what each budget buys, with the samples that it keeps."""

import base64
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._arrays import known_values
from .._checks import as_log_ratio, check_budget, check_count, check_ratios, is_number
from ..draws import priority_key
from ..errors import InputError, InputTypeError
from ..groups import groups_of
from ..profile import Profile
from ..ratios.doctor import Diagnosis, diagnose
from ..sampling.samples import Samples
from .data import (
    Finding,
    columns,
    curve,
    diagnosis_findings,
    group_rates,
    histogram,
    profile_findings,
    recall_of,
    slider,
)
from .shown import choose, show
from .template import as_data, cut, fill, page_path, rounded, write_page

__all__ = ["Source", "of_log_ratio", "report"]

Floats = np.ndarray[Any, Any]

_GROUPS = 16  # that are shown, the largest first
_PLANNED = (1, 1.5, 2, 4, 8, 16, 32, 64, 128, 256)
_TITLE, _LABEL, _SAYS = 120, 48, 300  # bytes of the title, of a label, of each part of a finding
_FINDINGS = 20
_ROWS, _IDS = 20_000, 24_000  # rows whose list can be downloaded, and bytes of all their ids


@dataclass(frozen=True, eq=False)
class Source:
    """What a page is about.

    Args:
        profile: The distribution of the log-ratio.
        log_ratio: Log-ratios of the samples that can be shown, None if they are not known.
        key: Their keys, log u - log r: kept if `key < log c`.
        names: What the list of kept samples calls them; by default their numbers.
        name: The column of that list.
        ranked: Whether exactly floor(N / K) are kept, those with the smallest keys, as `obrs select` does.
        cost: What each costs, for 1 in K of the whole cost; by default 1.
        samples: What they are, None if that is not known.
        ran_at: The budget of the run that kept them, 0 if they are proposals as they came.
        reward: Whether the target is the model tilted by a reward: then r is known up to a constant only.
        other: The same samples by another score, to compare, and its name.
        facts: What to say below the title, before the size and M.
        code: What to copy: titles, and the parts of texts between which the budget stands.
        folder: Where paths of images begin, and below which they must lie; by default they may lie anywhere.
    """

    profile: Profile
    log_ratio: Floats | None = None
    key: Floats | None = None
    names: Sequence[Any] | None = None
    name: str = "index"
    ranked: bool = False
    cost: Floats | None = None
    samples: Any = None
    ran_at: float = 0.0
    reward: bool = False
    other: tuple[str, "Source"] | None = None
    facts: Sequence[str] = ()
    code: Sequence[tuple[str, Sequence[str]]] = ()
    folder: str | os.PathLike[str] | None = None

    def last_kept(self, budgets: list[float]) -> Floats:
        """Return the number of the last budget, of some that ascend from 1, at which each sample is kept."""
        assert self.key is not None
        if self.ranked:
            order = np.argsort(self.key)
            spent = np.cumsum(np.ones(len(order)) if self.cost is None else self.cost[order])
            taken = np.searchsorted(spent, np.floor(spent[-1] / np.array(budgets[1:])), side="right")
            cuts = np.append(self.key[order], np.inf)[taken]  # of the first that is not kept
        else:
            cuts = np.array([self.profile.log_c(k) for k in budgets[1:]])
        last = np.searchsorted(-cuts, -self.key, side="left")  # how many cuts are above the key; they descend
        return np.maximum(last, np.searchsorted(budgets, self.ran_at, side="right") - 1)


def report(
    source: Any,
    *,
    out: str | os.PathLike[str],
    samples: Any = None,
    groups: Any = None,
    compare: Any = None,
    real: Any = None,
    findings: Diagnosis | Iterable[str] | None = None,
    budget: float | None = None,
    n: int | None = None,
    seconds_per_proposal: float | None = None,
    title: str = "What each budget buys",
    seed: int = 0,
) -> Path:
    """Write one self-contained page with a slider over the budget: what it keeps, what is left, and what it costs.

    The page opens offline and makes no request. What is kept is decided in it as by `obrs.accept`.

    Args:
        source: Log-ratios of proposals from the model; or a `Profile` of them; or `Samples` that were kept, which show
            the profile of the model by the weights 1/a; or a `Source`.
        out: The page, a file that ends in .html.
        samples: What to show, one item per log-ratio: texts, paths of images, or an array of images or numbers. With a
            `Profile`, `Samples`. By default, of `Samples` their x. At most 96 are shown, images as thumbnails.
        groups: A label for each log-ratio, of any kind: shows how much is kept of each.
        compare: Log-ratios of the same samples by another critic: shows how many both keep.
        real: Log-ratios of real samples: shows what `obrs.diagnose` finds at the budget that the page opens with.
        findings: What it has found already, or remarks of your own.
        budget: Where the slider starts; 4 by default.
        n: Samples wanted; shows the proposals that they cost.
        seconds_per_proposal: Shows the time that they take.
        title: The title.
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
    about = source if isinstance(source, Source) else _source(source, samples, seed)
    if compare is not None:
        about = replace(about, other=("the other score", of_log_ratio(_flat(compare), seed)))
    for name, given in (("groups", groups), ("compare", about.other), ("real", real)):
        if given is not None and (about.log_ratio is None or about.ran_at):
            raise InputError(f"{name} needs the log-ratios of all proposals beside it: pass log_ratio as the source")
    if seconds_per_proposal is not None and not (is_number(seconds_per_proposal) and 0 < seconds_per_proposal < np.inf):
        raise InputError(f"seconds_per_proposal must be a number above 0, got {seconds_per_proposal!r:.60}")
    number, profile = None if n is None else check_count(n, "n"), about.profile
    if budget is not None:
        profile.cut(check_budget(budget))  # it must be one that can be met
    asked = about.ran_at or None if budget is None else float(budget)
    budgets, recall = slider(profile, asked), recall_of(profile)
    first = asked or max([k for k in (1.5, 2, 4) if k < profile.max_budget], default=budgets[-1])
    start = int(np.argmin(np.abs(np.log(np.array(budgets) / first))))
    planned = [i for i, k in enumerate(budgets) if k in _PLANNED]
    content = {
        # what can be refused comes first, before what takes time
        "groups": None if groups is None else _groups(about, groups, [profile.log_c(k) for k in budgets]),
        **_samples(about, groups, budgets),
        "findings": _findings(about, real, findings, budgets[start]),
        "budgets": budgets,
        **columns(profile, budgets, recall),
        "start": start,
        "recall": recall,
        "max_budget": profile.max_budget if profile.calibrated else np.inf,
        "rates_only": not profile.calibrated,
        "size": profile.size,
        "n": number,
        "seconds": None if seconds_per_proposal is None else float(seconds_per_proposal),
        "histogram": histogram(profile),
        "curve": curve(profile, budgets[-1]) if profile.calibrated else None,
        "planned": planned,
        "code": [{"title": name, "parts": list(parts)} for name, parts in about.code],
        "ran_at": about.ran_at,
        "reward": about.reward,
    }
    size = f"{profile.size:,} log-ratios", f"M = {profile.max_budget:.4g}"
    facts = [*about.facts, *(size if profile.calibrated else [f"{profile.size:,} scores, not calibrated"])]
    plan = profile.plan([budgets[i] for i in planned[:6]], recall=recall)
    page = fill(
        Path(__file__).with_name("report.html"),
        text={"title": cut(title, _TITLE), "about": " · ".join(facts)},
        html={"data": as_data(content), "plan": plan._repr_html_()},
    )
    return write_page(target, page)


def _source(source: Any, samples: Any, seed: int) -> Source:
    """Return what a page is about, from what `report` takes, with Python that does what the page shows."""
    title = "Python: what this page shows"
    if isinstance(source, Profile) and not isinstance(samples, Samples):
        if samples is not None:
            got = type(samples).__name__
            raise InputTypeError(f"a Profile does not know which sample has which ratio: pass log_ratio, got {got}")
        parts = ["log_c = profile.log_c(", ")  # accept with probability min(exp(log_ratio + log_c), 1)"]
        return Source(source, code=[(title, parts)])
    if isinstance(source, Profile):
        return _of_samples(samples, samples.x, seed, title, source)
    if isinstance(source, Samples):
        return _of_samples(source, source.x if samples is None else samples, seed, title)
    if isinstance(source, str | os.PathLike):
        raise InputTypeError(f"report takes log-ratios, a Profile or Samples, got a path; try `obrs report {source}`")
    kept = f")\nkept = obrs.accept(rule(log_ratio), np.arange(len(log_ratio)), seed={seed})"
    code = [(title, ["rule = obrs.Budgeted.fit(log_ratio, budget=", kept])]
    return of_log_ratio(_flat(source), seed, samples=samples, code=code)


def _flat(log_ratio: Any) -> Floats:
    return known_values(as_log_ratio(log_ratio), "log_ratio").reshape(-1).astype(np.float64)


def of_log_ratio(values: Floats, seed: int = 0, ids: Floats | None = None, **more: Any) -> Source:
    """Return the source of proposals, flat, in float64.

    Args:
        values: Log-ratios.
        seed: As for `obrs.accept`.
        ids: Ids of the rows of a file, of which `obrs select` keeps exactly 1 in K; by default 0, 1, 2 ….
        more: Other arguments of `Source`.
    """
    check_ratios(values)
    key = priority_key(values, np.arange(len(values)) if ids is None else ids, seed=seed)
    return Source(Profile(values, more.get("cost")), values, key, ranked=ids is not None, **more)


def _of_samples(kept: Samples, shown: Any, seed: int, title: str, profile: Profile | None = None) -> Source:
    """Return the source of kept samples: of weight 1/a they stand for the proposals, with a = r over the weight left.

    They are decided on by the uniforms that kept them. Samples that were chosen in another way, or with another seed,
    have u = a v with a fresh uniform v: at a smaller rate Z' each stays with probability a'/a, as it should.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # the values are looked at
        log_a = kept.log_ratio - kept.log_weight
    if not len(kept) or not np.all(np.isfinite(log_a)):
        raise InputError(f"{len(kept)} samples without a log-ratio for each: nothing can be said of other budgets")
    key = priority_key(kept.log_ratio, kept.ids, seed=seed)
    if np.any(key >= log_a - kept.log_ratio):
        key = key + log_a
    profile = Profile(kept.log_ratio, np.exp(np.min(log_a) - log_a)) if profile is None else profile
    ran_at = max(float(f"{1 / kept.rate:.3g}"), 1.0)
    code = [(title, [f"kept = obrs.sample(propose, log_ratio, {len(kept)}, budget=", f", seed={seed})"])]
    return Source(profile, kept.log_ratio, key, kept.ids.tolist(), "id", samples=shown, ran_at=ran_at, code=code)


def _samples(source: Source, groups: Any, budgets: list[float]) -> dict[str, Any]:
    """Return the samples that are shown, the list of all that can be downloaded, and what another score keeps.

    Each comes with the last budget that keeps it.
    """
    found: dict[str, Any] = dict.fromkeys(("samples", "rows", "compare"), None) | {"kind": ""}
    if source.key is None or source.log_ratio is None:
        return found
    last, rows = source.last_kept(budgets), choose(len(source.key))
    names = None if source.names is None else [str(name) for name in source.names]
    if source.samples is not None:
        found["kind"], items = show(source.samples, rows, len(last), source.folder)
        ids = rows.tolist() if source.names is None else [source.names[row] for row in rows]
        shown = {"id": ids, "x": rounded(source.log_ratio[rows]), "last": last[rows].tolist(), "item": items}
        if groups is not None:
            labels = np.asarray(groups).reshape(-1)
            shown["group"] = [cut(labels[row], _LABEL) for row in rows]
        found["samples"] = shown
    if len(last) <= _ROWS and sum(len(name.encode("utf-8", "replace")) + 3 for name in names or ()) <= _IDS:
        code = base64.b64encode(last.astype(np.uint8).tobytes()).decode()  # a byte for each row
        found["rows"] = {"last": code, "name": source.name, "ids": names}
    if source.other is not None:
        name, other = source.other
        assert other.log_ratio is not None
        if len(other.log_ratio) != len(last):
            raise InputError(f"compare must be one log-ratio for each of {len(last)}, got {len(other.log_ratio)}")
        also, number = other.last_kept(budgets), np.arange(len(budgets))[:, None]
        both, kept = ((last >= number) & (also >= number)).sum(1), (last >= number).sum(1)
        same = rounded(both / np.maximum(kept, 1), 3)
        x = rounded(other.log_ratio[rows])
        found["compare"] = {"name": cut(name, _LABEL), "same": same, "last": also[rows].tolist(), "x": x}
    return found


def _groups(source: Source, groups: Any, log_c: list[float]) -> dict[str, Any]:
    """Return the share that each constant keeps of the largest groups, and the share that each has of the proposals."""
    assert source.log_ratio is not None
    found = groups_of(groups, source.log_ratio.shape)
    order = np.argsort(-found.size, kind="stable")
    largest = order[:_GROUPS] if len(order) > _GROUPS else np.arange(len(order))
    by_group = np.split(np.argsort(found.code, kind="stable"), np.cumsum(found.size)[:-1])
    return {
        "labels": [cut(found.labels[g], _LABEL) for g in largest],
        "share": rounded(found.size[largest] / len(source.log_ratio), 4),
        "rates": [group_rates(source.log_ratio[by_group[g]], log_c) for g in largest],
        "more": len(order) - len(largest),
    }


def _findings(source: Source, real: Any, given: Any, budget: float) -> list[Finding]:
    """Return the first findings, cut to what has room."""
    if isinstance(given, Diagnosis):
        found = diagnosis_findings(given)
    elif isinstance(given, str) or not (given is None or isinstance(given, Iterable)):
        raise InputTypeError(f"findings must be a Diagnosis or a list of texts, got {given!r:.60}")
    else:
        found = [Finding("", str(text)) for text in given or ()]
    if real is not None:
        found = diagnosis_findings(diagnose(real, source.log_ratio, budget)) + found
    if source.ran_at:
        what = f"these are {source.profile.size:,} samples that a run kept; weights 1/a make up for what it rejected"
        found.append(Finding("", f"{what}. Below its own budget there is nothing more to show"))
    known = real is not None or isinstance(given, Diagnosis)  # then the doctor has looked at the mean ratio
    found += profile_findings(source.profile, budget, reward=source.reward, diagnosed=known)
    return [Finding(mark, cut(says, _SAYS), cut(todo, _SAYS)) for mark, says, todo in found[:_FINDINGS]]
