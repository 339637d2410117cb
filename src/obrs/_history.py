"""The history of rows: what they were selected by before. A second score needs a second seed.

A row that was kept has a small uniform for its score. Whoever selects the kept rows again by another score, with the
same seed and ids, meets these uniforms again: nearly all rows pass, whatever the second score says of them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import InputError

__all__ = ["RECORD", "History", "check_history", "from_record", "to_record"]

RECORD = b"obrs"
"""The key under which a Parquet file carries its history."""

History = tuple[Mapping[str, Any], ...]  # of each selection, first to last: seed, score, kind and beta


def check_history(history: Sequence[Mapping[str, Any]], now: Mapping[str, Any], name: str) -> None:
    """Raise if rows were selected with the same seed by another score.

    Example:
        >>> before = {"seed": 0, "score": "logit", "kind": "logit", "beta": None}
        >>> check_history([before], {**before, "seed": 1, "score": "reward"}, "kept.parquet")
        >>> check_history([before], {**before, "score": "reward"}, "kept.parquet")
        Traceback (most recent call last):
        obrs.errors.InputError: kept.parquet was selected by 'logit' with seed 0; to select it again by 'reward' give
        another seed: with this one the result would be biased
    """
    for past in history:
        if past.get("seed") == now["seed"] and any(past.get(key) != now[key] for key in ("score", "kind", "beta")):
            what = f"{name} was selected by {past.get('score')!r} with seed {now['seed']}"
            again = f"to select it again by {now['score']!r} give another seed"
            raise InputError(f"{what}; {again}: with this one the result would be biased")


def to_record(history: Sequence[Mapping[str, Any]]) -> bytes:
    """Return a history as a file carries it."""
    return json.dumps([dict(past) for past in history]).encode()


def from_record(record: bytes | None) -> History:
    """Return the history that a file carries, empty if it carries nothing that we wrote."""
    try:
        history = json.loads(record or b"[]")
    except ValueError:
        return ()
    return tuple(history) if isinstance(history, list) and all(isinstance(past, dict) for past in history) else ()
