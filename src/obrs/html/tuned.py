"""The page of a `Tuned`: what was confirmed, the table of recipes, samples kept and rejected side by side."""

import os
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from .._arrays import host_view
from .._text import html_table, paragraph
from ..draws import accept
from ..sampling.proposals import propose_batch, score_batch
from ..tuning import Tuned
from .shown import show
from .template import fill, write_page

__all__ = ["report_pool", "report_tuned"]

_SHOWN = 48  # samples of each kind
_DRAWN = 512  # proposals from which they are taken


def report_tuned(tuned: Tuned, *, out: str | os.PathLike[str], title: str = "Tuned") -> Path:
    """Write the page of a `Tuned`, with samples from its first proposals that nothing has seen."""
    ids = np.arange(tuned.start, tuned.start + _DRAWN)
    batch = propose_batch(tuned.propose, ids)
    score = score_batch(tuned.log_ratio, batch, len(ids))
    kept = np.asarray(accept(host_view(tuned.rule(score, batch)), ids, seed=tuned.seed))
    return report_pool(tuned, batch, kept, out=out, title=title)


def report_pool(outcome: Tuned, samples: Any, kept: Any, *, out: str | os.PathLike[str], title: str = "Tuned") -> Path:
    """Write the page of a search.

    Args:
        outcome: What was found.
        samples: What is shown, as `obrs.report` takes it: images, paths of images, numbers.
        kept: Whether each of them is kept, `(n,)`.
        out: The page, a file that ends in .html.
        title: The title.
    """
    kept = np.asarray(kept, dtype=bool)
    headline, *notes = outcome.lines
    parts = ", ".join(f"{name} {seconds:.0f}" for name, seconds in outcome.seconds)
    page = fill(
        Path(__file__).with_name("tuned.html"),
        text={
            "title": title,
            "headline": headline,
            "count": len(outcome.rows),
            "judge": outcome.judge,
            "seconds": f"Seconds: {parts}." if parts else "",
        },
        html={
            "notes": "\n".join(map(paragraph, notes)),
            "table": html_table(*outcome.table),
            "samples": "\n".join(_card(samples, kept == is_kept, is_kept) for is_kept in (True, False)),
        },
    )
    return write_page(out, page)


def _card(samples: Any, rows: Any, is_kept: bool) -> str:
    """Return some samples of one kind, spread evenly over all of that kind."""
    where = np.flatnonzero(rows)
    some = where[np.linspace(0, len(where) - 1, min(_SHOWN, len(where))).astype(int)]
    kind, shown = show(samples, some, len(rows)) if len(some) else ("text", ["none"])
    form = '<img src="{}" alt="">' if kind == "image" else "<span>{}</span>"
    images = (form.format(escape(item)) for item in shown)
    name = "kept" if is_kept else "rejected"
    head = f"<h2>{name.capitalize()}, {len(some):,} of {len(where):,}</h2>"
    return f'<div class="card {name}">{head}<div class="grid">{"".join(images)}</div></div>'
