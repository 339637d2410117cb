"""What rows were selected by before: a second score needs a second seed.

A row that was kept has a small uniform for its score. Whoever selects the kept rows again by another score, with the
same seed and ids, meets these uniforms again: nearly all rows pass, whatever the second score says of them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .errors import InputError

__all__ = ["RECORD", "Stages", "check_stages", "from_record", "to_record"]

RECORD = b"obrs"
"""The key under which a Parquet file carries its stages."""

Stages = tuple[Mapping[str, Any], ...]  # of each selection, first to last: seed, score, kind and beta


def check_stages(stages: Sequence[Mapping[str, Any]], now: Mapping[str, Any], name: str) -> None:
    """Raise if rows were selected with the same seed by another score.

    Example:
        >>> before = {"seed": 0, "score": "logit", "kind": "logit", "beta": None}
        >>> check_stages([before], {**before, "seed": 1, "score": "reward"}, "kept.parquet")
        >>> check_stages([before], {**before, "score": "reward"}, "kept.parquet")
        Traceback (most recent call last):
        obrs.errors.InputError: kept.parquet was selected by 'logit' with seed 0; to select it again by 'reward' give
        another seed: with this one the result would be biased
    """
    for stage in stages:
        if stage.get("seed") == now["seed"] and any(stage.get(key) != now[key] for key in ("score", "kind", "beta")):
            what = f"{name} was selected by {stage.get('score')!r} with seed {now['seed']}"
            again = f"to select it again by {now['score']!r} give another seed"
            raise InputError(f"{what}; {again}: with this one the result would be biased")


def to_record(stages: Sequence[Mapping[str, Any]]) -> bytes:
    """Return stages as a file carries them."""
    return json.dumps([dict(stage) for stage in stages]).encode()


def from_record(record: bytes | None) -> Stages:
    """Return the stages that a file carries, none if it carries nothing that we wrote."""
    try:
        stages = json.loads(record or b"[]")
    except ValueError:
        return ()
    return tuple(stages) if isinstance(stages, list) and all(isinstance(s, dict) for s in stages) else ()
