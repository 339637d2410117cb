"""The page of `obrs tune`: what was confirmed, the table of recipes, samples kept and rejected side by side."""

import os
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from .._arrays import host_view
from .._text import html_table, paragraph
from ..draws import accept
from ..errors import InputError
from ..sampling.proposals import propose_batch, score_batch
from ..tuning import Tuned
from .samples import show
from .template import fill, write_page

__all__ = ["report_tuned"]

_SHOWN = 48  # samples of each kind
_DRAWN = 512  # proposals from which they are taken


def report_tuned(tuned: Tuned, samples: Any = None, *, out: str | os.PathLike[str], title: str = "Tuned") -> Path:
    """Write the page of a search.

    Args:
        tuned: The result of `obrs.tune`.
        samples: Those that `tune` was given, as `obrs.report` takes them. If it was given a model, the page shows the
            first proposals that nothing has seen.
        out: The page, a file that ends in .html.
        title: The title.
    """
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
    page = fill(
        Path(__file__).with_name("tuned.html"),
        text={
            "title": title,
            "headline": headline,
            "count": len(tuned.rows),
            "judge": tuned.judge,
            "seconds": f"Seconds: {parts}." if parts else "",
        },
        html={
            "notes": "\n".join(map(paragraph, notes)),
            "table": html_table(*tuned.table),
            "samples": "\n".join(_card(samples, kept == is_kept, is_kept) for is_kept in (True, False)),
        },
    )
    return write_page(out, page)


def _card(samples: Any, rows: Any, is_kept: bool) -> str:
    """Return some samples of one kind, spread evenly over all of that kind."""
    where = np.flatnonzero(rows)
    some = where[np.linspace(0, len(where) - 1, min(_SHOWN, len(where))).astype(int)]
    kind, shown, _ = show(samples, some, len(rows)) if len(some) else ("text", ["none"], "")
    form = '<img src="{}" alt="">' if kind == "image" else "<span>{}</span>"
    images = (form.format(escape(item)) for item in shown)
    name = "kept" if is_kept else "rejected"
    head = f"<h2>{name.capitalize()}, {len(some):,} of {len(where):,}</h2>"
    return f'<div class="card {name}">{head}<div class="grid">{"".join(images)}</div></div>'
