"""Looking before filtering: three ways to bracket where a pool is cut, each surer and slower than the one before.

- `by_pilot`: 2 % of the row groups of Parquet files.
- `by_sketch`: a histogram of the log-ratios of all rows, one pass over the columns that decide.
- `by_keys`: also one of the keys themselves, for rows whose uniforms are not uniform: because they were selected with
  them before, or because many share them.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil, floor, fsum, inf, sqrt
from typing import Any, NamedTuple

import numpy as np

from .._bins import Far
from .._checks import check_count
from .._progress import bar
from ..draws import priority_key
from ..errors import InputError, ObrsError
from ..groups import counts_of, shares_of, sizes_of
from ..sketch import Sketch, SketchCut
from .rows import Numbers, Source, group_count, pick_groups, read_batches, row_count
from .scored import Reading, Scored, as_scored
from .tally import inside

__all__ = ["Look", "Question", "Tell", "Wanted", "by_keys", "by_pilot", "by_sketch", "named", "sketched", "telling"]

_PILOT = 0.02  # of the row groups
_PILOT_ROWS = 1 << 22  # at most
_PILOT_GROUPS = 4  # at least; of fewer than five times as many groups it would be no pilot
_HELD = 1 << 26  # bytes of rows that the end of a run holds; beyond that it looks closer first
_MOST_GROUPS = 128

Tell = Callable[[int, int], None]  # of files done, and of rows since the last time


@dataclass(frozen=True)
class Wanted:
    """How much is to be kept: a number for each pool, which may depend on how large the pool is."""

    n: int | Mapping[str, int] | None
    budget: float | None
    shares: Mapping[str, float] | str | None

    def of(self, masses: Mapping[str, int]) -> dict[str, int]:
        """Return how much of each pool, in the order of its name."""
        names = tuple(sorted(masses))
        if self.shares is not None:
            total = self.n if self.budget is None else _part(sum(masses.values()), self.budget)
            parts = dict.fromkeys(names, 1.0) if isinstance(self.shares, str) else dict(self.shares)
            counts = sizes_of(check_count(total, "n"), shares_of(parts, names)).tolist()
        elif isinstance(self.n, Mapping):
            counts = counts_of({str(label): count for label, count in self.n.items()}, names).tolist()
        elif self.budget is None:
            counts = [check_count(self.n, "n")] * len(names)
        else:
            counts = [_part(masses[name], self.budget) for name in names]
            if not any(counts):
                raise InputError(f"1 in {self.budget:g} of {max(masses.values(), default=0)} is none; lower the budget")
        return dict(zip(names, counts, strict=True))


def _part(mass: int, budget: float) -> int:
    """Return 1 in K: 6500 / 2.6 is 2500, whichever way the division was rounded."""
    return floor(mass / budget * (1 + 1e-12))


@dataclass(frozen=True)
class Question:
    """What is to be selected: of which files, read how, how much, and by which uniforms."""

    sources: list[Source]
    reading: Reading
    wanted: Wanted
    seed: int
    progress: bool | None


class Look(NamedTuple):
    """What was seen.

    Attributes:
        way: "pilot", "sketch" or "keys".
        cuts: Where each pool is cut, by label; of other pools nothing is wanted.
        repeated: Estimated share of the rows whose id came before.
    """

    way: str
    cuts: dict[str, SketchCut]
    repeated: float

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        cuts = {label: cut.to_json() for label, cut in self.cuts.items()}
        return {"way": self.way, "cuts": cuts, "repeated": self.repeated}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "Look":
        """Return what `to_json` has saved."""
        cuts = {label: SketchCut.from_json(text) for label, text in plain["cuts"].items()}
        return cls(plain["way"], cuts, plain["repeated"])


def sketched(
    sources: Iterable[Source],
    reading: Reading,
    sketches: Mapping[str, Sketch],
    seed: int | None,
    tell: Tell,
    values: Callable[[Scored], Numbers] = lambda scored: scored.log_ratio,
) -> tuple[dict[str, Sketch], int]:
    """Return the sketch of each pool, from one pass over the columns that decide, and how many rows have no score.

    Without a seed ids do not matter. `values` may take something else for the log-ratios.
    """
    pools, bad = dict(sketches), 0
    for done, source in enumerate(sources):
        for batch in read_batches(source, reading.names, whole=False):
            scored = as_scored(batch, source, reading)
            numbers = values(scored)
            for label, rows in scored.pools():
                at = slice(None) if rows is None else rows
                cost = None if scored.cost is None else scored.cost[at]
                before = pools.get(label, Sketch())
                ids = None if seed is None else scored.ids[at]
                pools[label] = before.add(numbers[at], ids, seed or 0, cost=cost)
                if len(pools) > _MOST_GROUPS:
                    what = f"more than {_MOST_GROUPS} groups in column {', '.join(reading.group)}"
                    raise InputError(f"{what}: a folder takes a few; select group by group, or from one file in memory")
            bad += len(batch) - len(scored.log_ratio)
            tell(done, len(batch))
    return pools, bad


def by_sketch(question: Question) -> Look:
    """Bracket by a pass over all rows, and by more of them where too many rows would be left open."""
    start: dict[str, Sketch] = {} if question.reading.group else {"": Sketch()}
    with telling("looking", question.sources, question.progress) as tell:
        pools, _ = sketched(question.sources, question.reading, start, question.seed, tell)
    try:
        wanted = question.wanted.of({label: sketch.mass for label, sketch in pools.items()})
        cuts = {label: _solved(sketch, wanted[label], label) for label, sketch in pools.items() if wanted[label]}
    except ObrsError as error:
        raise InputError(f"{named(question.sources)}: {error}") from error
    while sum(cut.held_bytes for cut in cuts.values()) > _HELD and any(cut.crossing for cut in cuts.values()):
        open_before = sum(cut.crossing for cut in cuts.values())
        with telling("looking closer", question.sources, question.progress) as tell:
            finer = {label: cut.zoom() for label, cut in cuts.items()}
            closer, _ = sketched(question.sources, question.reading, finer, question.seed, tell)
        cuts = {label: cut.narrow(closer[label]) for label, cut in cuts.items()}
        if sum(cut.crossing for cut in cuts.values()) > open_before / 2:
            break
    repeated = max((sketch.repeated for sketch in pools.values()), default=0.0) if question.reading.id else 0.0
    return Look("sketch", cuts, repeated)


def by_keys(question: Question) -> Look:
    """Bracket the last key by counting keys, which takes it as it is: no chance is left."""
    look = by_sketch(question)

    def minus_key(scored: Scored) -> Numbers:
        key = priority_key(scored.log_ratio, scored.ids, seed=question.seed)
        return np.asarray(np.minimum(-key, scored.log_ratio + 37.0))  # the logarithm of a uniform above 0 is above -37

    with telling("looking at keys", question.sources, question.progress) as tell:
        blank: dict[str, Sketch] = {} if question.reading.group else {"": Sketch()}
        pools, _ = sketched(question.sources, question.reading, blank, question.seed, tell, minus_key)
    cuts = {}
    for label, cut in look.cuts.items():
        bins = pools[label].bins
        last = int(np.count_nonzero(np.cumsum(bins.mass[::-1])[::-1] >= cut.target)) - 1
        sure, never = -float(bins.upper[last]), float(np.nextafter(-bins.lower[last], inf))
        cuts[label] = replace(cut, sure=sure, never=never, undecided=int(bins.rows[last]))
    return Look("keys", cuts, look.repeated)


def _solved(sketch: Sketch, n: int, label: str) -> SketchCut:
    try:
        return sketch.solve(n=n)
    except ObrsError as error:
        raise InputError(f"group {label!r}: {error}" if label else str(error)) from error


def named(sources: list[Source]) -> str:
    return sources[0].path if len(sources) == 1 else f"{sources[0].path} and {len(sources) - 1} more"


def by_pilot(question: Question) -> Look | None:
    """Bracket by a few row groups, or return None where they would not do.

    With m pilot rows of N, c solves `mean min(c r, 1) = n / N` up to a standard error. That of whole row groups counts,
    too: in files sorted by score groups differ, and few of them tell little. The bracket is six of them wide.
    """
    if question.sources[0].format != "parquet" or question.reading.group or question.reading.cost:
        return None
    total = row_count(question.sources)
    picked = pick_groups(question.sources, _PILOT, least=_PILOT_GROUPS, most=_PILOT_ROWS)
    n = question.wanted.of({"": total})[""]
    count = sum(len(numbers) for _, numbers in picked)
    if count < _PILOT_GROUPS or count > group_count(question.sources) / 5 or not 0 < n < total:
        return None
    groups = [
        as_scored(batch, source, question.reading)
        for source, numbers in picked
        for batch in read_batches(source, question.reading.names, groups=numbers, whole=False)
    ]
    sketch = Sketch()
    for scored in groups:
        sketch = sketch.add(scored.log_ratio, scored.ids, question.seed)
    size, share = sketch.rows, n / total
    number = round(share * size)
    if share * size < 1 or number >= sketch.possible:  # c is infinite where all with r > 0 are wanted
        return None
    log_c = sketch.solve(n=number).log_c
    off = [float(np.sum(np.exp(np.minimum(group.log_ratio + log_c, 0.0)) - share)) for group in groups]
    error = max(sqrt(share * (1 - share) * size), sqrt(fsum(x * x for x in off)))
    chance = 6 * error + (6 * sqrt(n) + 22) * size / total + 2  # of the pilot, and of the uniforms of the pool
    if share * size - chance < 1 or share * size + chance > sketch.possible:
        return None
    few, many = sketch.solve(n=floor(share * size - chance)), sketch.solve(n=ceil(share * size + chance))
    blank = SketchCut(rows=0, mass=0, possible=0, top=-inf, target=0.0, floor=-inf, seed=question.seed, costs=False)
    # crossing is not known yet: at least 1, so that all of the interval is held
    at = Far(many.at.low, few.at.high)
    cut = replace(blank, at=at, crossing=1, sure=few.log_c_low, never=many.log_c_high)
    held = sum(int(np.count_nonzero(inside(cut, group.log_ratio))) for group in groups)
    if 24 * (2 * chance + held) * total / size > _HELD:
        return None
    return Look("pilot", {"": cut}, sketch.repeated if question.reading.id else 0.0)


@contextmanager
def telling(title: str, sources: list[Source], wanted: bool | None) -> Iterator[Tell]:
    """Show how many files are done, with rows and rows per second."""
    start, rows = time.monotonic(), 0
    with bar(title, len(sources), wanted) as tell:

        def told(done: int, more: int) -> None:
            nonlocal rows
            rows += more
            tell(done, f"{rows:,} rows, {rows / max(time.monotonic() - start, 1e-3):,.0f} a second")

        yield told
