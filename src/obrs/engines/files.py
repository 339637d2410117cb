"""Folders of files with more rows than memory: what a budget buys, and exactly n rows with all their columns.

`select` looks first and filters then. A pilot of 2 % of the row groups of Parquet files, or else one pass over the
columns that decide, brackets the key `log u(id) - log r` of the last row that is kept (see `obrs.Sketch`). A pass over
the files writes the rows below the bracket and holds those in it; at its end the constant c and the n rows are exact:
those of `obrs.select(…, design="priority", ids=…)`, in whatever files and order the rows lie. Should the pilot have
missed, as in a file sorted by score, the run notices and looks at all rows. Memory does not grow with the rows.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import ceil, fsum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import BracketError, InputError, MissingLibraryError

try:
    import pyarrow as pa
except ImportError as error:
    raise MissingLibraryError("obrs.files needs pyarrow: pip install 'obrs[cli]'", name="pyarrow") from error

from .._checks import check_budget, check_count
from .._files import check_not_input
from ..draws import priority_key
from ..profile import Plan
from ..sketch import Open, Sketch, SketchCut
from .looking import Look, Question, Tell, Wanted, by_keys, by_pilot, by_sketch, named, sketched, telling
from .rows import (
    Numbers,
    Paths,
    Source,
    columns_of,
    find_sources,
    held,
    holding,
    read_batches,
    row_ids,
    same_columns,
    writing,
)
from .runs import Run, check_free, read_manifest, running
from .scored import Reading, as_scored, check_scores
from .tally import Part, Tally, inside

__all__ = ["AT_THE_CUT", "Selected", "plan", "select"]

AT_THE_CUT = "at-the-cut"
"""The file of the rows that were decided last, beside one file for each that was read."""

_ONE_BY_ONE = 1 << 22  # kept ids that are compared at once


@dataclass(frozen=True)
class Selected:
    """What `select` has written.

    Args:
        out: The folder.
        rows: Rows that were read; those left out by `skip_bad` are not counted.
        kept: Rows that were kept.
        log_c: The constant: row i was kept with probability min(c r_i, 1), up to about 1/n. By label, if there are
            groups. Of a folder of ours that is selected again by the same score, ids and seed it is that of both
            selections together, up to about 1/sqrt(n).
        bad: Rows that were left out for want of a score.
        way: "pilot", "sketch" or "keys", how the cut was found.
        repeated: Estimated share of the rows whose id came before, of the rows that were looked at.
        units: What the kept rows cost, if they cost anything.
    """

    out: Path
    rows: int
    kept: int
    log_c: float | dict[str, float]
    bad: int
    way: str
    repeated: float
    units: int | None = None

    def __repr__(self) -> str:
        each = list(self.log_c.values()) if isinstance(self.log_c, dict) else [self.log_c]
        ends = f"{each[0]:.4g}" if len(each) == 1 else f"{min(each):.4g} to {max(each):.4g} in {len(each)} groups"
        more = [f"{getattr(self, name):,} {name}" for name in ("bad", "units") if getattr(self, name)]
        return f"Selected({', '.join([f'{self.kept:,} of {self.rows:,} rows', *more])}, log c {ends}; in {self.out})"


def plan(
    where: Paths,
    budgets: Iterable[float] = (1.5, 2.0, 4.0, 8.0),
    *,
    column: str = "log_ratio",
    kind: str | None = None,
    beta: float | None = None,
    n: int | None = None,
    recall: float = 0.9,
    skip_bad: bool = False,
    format: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    progress: bool | None = None,
) -> Plan:
    """Show what each budget buys on files that may be larger than memory; only the scores are read.

    Args:
        where: A folder, a glob, or a list of files: parquet, csv, tsv or jsonl; text also as .gz or .zst.
        budgets, n, recall: As for `Profile.plan`.
        column, kind, beta, skip_bad, format, delimiter, header, progress: As for `select`.

    Returns:
        The rows of `Sketch.plan`: of all rows, so there is no sampling error; `error` is that of the bins.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.csv").write_text("log_ratio\\n" + "\\n".join(str(i % 7) for i in range(700)))
        >>> [round(row["rate"], 3) for row in plan(folder, [2, 4], progress=False)]
        [0.5, 0.25]
    """
    sketch, _ = sketch_of(
        where,
        column=column,
        kind=kind,
        beta=beta,
        skip_bad=skip_bad,
        format=format,
        delimiter=delimiter,
        header=header,
        progress=progress,
    )
    return sketch.plan(budgets, n=n, recall=recall)


def sketch_of(
    where: Paths,
    *,
    column: str = "log_ratio",
    kind: str | None = None,
    beta: float | None = None,
    skip_bad: bool = False,
    format: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    progress: bool | None = None,
) -> tuple[Sketch, int]:
    """Return the sketch of files, from one pass over their scores, and how many rows had none; arguments as `plan`."""
    reading = Reading.checked(column, kind, beta, skip_bad=skip_bad)
    sources = find_sources(where, format=format, delimiter=delimiter, header=header)
    check_scores(sources, reading)
    with telling("looking", sources, progress) as tell:
        pools, bad = sketched(sources, reading, {"": Sketch()}, None, tell)
    return pools[""], bad


def select(
    where: Paths,
    n: int | Mapping[str, int] | None = None,
    *,
    out: str | os.PathLike[str],
    budget: float | None = None,
    column: str = "log_ratio",
    kind: str | None = None,
    beta: float | None = None,
    id: str | None = None,
    cost: str | None = None,
    group: str | Sequence[str] | None = None,
    shares: Mapping[str, float] | str | None = None,
    seed: int = 0,
    skip_bad: bool = False,
    repeats: bool = False,
    format: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    progress: bool | None = None,
) -> Selected:
    """Keep exactly n rows of files that may be larger than memory, or 1 in K, with all their columns.

    The rows kept of a file go to a file of its name, in their order, and those that were decided last to one called
    `at-the-cut`. The folder appears when everything is in it, with `manifest.json`: what was asked for, and c. A run
    that was killed or failed goes on where it was if it is started again with the same arguments.

    Args:
        where: A folder, a glob, or a list of files: parquet, csv, tsv or jsonl; text also as .gz or .zst.
        n: Rows to keep; with `cost` units, with `group` of each group or by label, with `shares` in all.
        out: The folder to make. It must be empty or not there, and not inside the folder that is read.
        budget: Keep 1 row in K instead: of N rows floor(N / K), of N units as many.
        column: The scores.
        kind: What they are: "log_ratio", "logit", "probability" or "reward"; by default what the column is called.
        beta: The temperature of a reward.
        id: The column of ids, integers or text: the same ids and seed keep the same rows, however they are spread over
            files. By default the name of a file, below the folder that is given, and the number of a row in it.
        cost: The column of what rows cost, whole numbers such as tokens: n is then in units, and missed by less than
            one row.
        group: The column of labels, or several; each group has its own constant. At most 128 groups.
        shares: The shares of the groups among the kept rows, by label, or "equal".
        seed: Integer with `0 <= seed < 2**64`. Rows that were selected before, by another score, need another seed.
        skip_bad: Leave out rows whose score is NaN, empty or +inf, and count them, instead of stopping.
        repeats: Allow ids that are repeated. Rows of one id share their uniform.
        format: Of files whose extension says nothing.
        delimiter: Between the cells of a csv.
        header: Whether the first line of a csv names the columns, which are called 0, 1, … otherwise.
        progress: True or False; None shows a bar on a terminal.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "scores").mkdir()
        >>> rows = [f"{i},{i % 7}\\n" for i in range(700)]
        >>> _ = (folder / "scores" / "a.csv").write_text("id,log_ratio\\n" + "".join(rows))
        >>> done = select(folder / "scores", 70, id="id", out=folder / "kept")
        >>> done.rows, done.kept, sorted(os.listdir(done.out))
        (700, 70, ['a.csv', 'at-the-cut.csv', 'manifest.json'])
    """
    if (n is None) == (budget is None):
        raise InputError("say how many rows to keep: either n or budget")
    if not (n is None or isinstance(n, Mapping)):
        n = check_count(n, "n")
    check_free(out)
    check_not_input(out, *([where] if isinstance(where, str | os.PathLike) else []))
    priority_key(np.zeros(1), [0], seed=seed)  # a bad seed is better known now
    columns = () if group is None else (group,) if isinstance(group, str) else tuple(group)
    if not columns and (shares is not None or isinstance(n, Mapping)):
        raise InputError("shares, and n by label, need to know the label of each row: give group")
    if isinstance(shares, str) and shares != "equal":
        raise InputError(f"shares is a number for each label, or 'equal', got {shares!r}")
    wanted = Wanted(n, None if budget is None else check_budget(budget), shares)
    reading = Reading.checked(column, kind, beta, id=id, cost=cost, group=columns, skip_bad=skip_bad)
    sources = find_sources(where, format=format, delimiter=delimiter, header=header)
    _check_sources(sources, reading)
    asked = {
        **asdict(reading), "group": list(columns), "n": n if n is None or isinstance(n, int) else dict(n),
        "budget": budget, "shares": dict(shares) if isinstance(shares, Mapping) else shares, "seed": seed,
        "header": header, "inputs": {source.name: source.size for source in sources},
    }  # fmt: skip
    with running(out, asked) as run:
        if (done := read_manifest(run.out)) is None:
            check_scores(sources, reading)
            question = Question(sources, reading, wanted, seed, progress)
            _do(_Job(run, question, _is_nested(where, sources, asked)), repeats)
            done = read_manifest(run.out)
        assert done is not None
        return Selected(out=Path(out), **done["found"])


def _check_sources(sources: list[Source], reading: Reading) -> None:
    same_columns(sources)
    for name in reading.names:
        if name not in (known := columns_of(sources[0])):
            raise InputError(f"{sources[0].path} has no column {name!r}; it has {', '.join(known)}")


def _is_nested(where: Paths, sources: list[Source], asked: Mapping[str, Any]) -> bool:
    """Tell whether rows were selected before by the same keys, from the manifest of a folder of ours."""
    folders = {os.path.dirname(source.path) or os.curdir for source in sources}
    if isinstance(where, str | os.PathLike):
        folders.add(os.fspath(where))  # some of its files may lie in folders below it
    before = [manifest["asked"] for folder in sorted(folders) if (manifest := read_manifest(folder)) is not None]
    same = ("column", "kind", "beta", "id", "seed")  # without a column of ids, rows that are kept get new ones
    return asked["id"] is not None and any(all(past.get(key) == asked[key] for key in same) for past in before)


class _Job(NamedTuple):
    """A selection under way.

    Attributes:
        run: Where it is done.
        question: What was asked for.
        nested: Whether the rows were selected before by the same keys: their uniforms are not uniform.
    """

    run: Run
    question: Question
    nested: bool

    @property
    def sources(self) -> list[Source]:
        return self.question.sources

    @property
    def reading(self) -> Reading:
        return self.question.reading


def _do(job: _Job, repeats: bool) -> None:
    """Look, filter, and decide on what was left open; look better if that shows that the first look was wrong."""
    while True:
        saved = job.run.load("look")
        look = _look(job) if saved is None else Look.from_json(saved)
        job.run.save("look", look.to_json())
        if look.repeated > 0 and not repeats:
            share = f"about {float(f'{100 * look.repeated:.2g}'):g} % of the rows have the id of another"
            raise InputError(f"{named(job.sources)}: {share}, and so its uniform; make ids unique, or allow repeats")
        with telling("filtering", job.sources, job.question.progress) as tell:
            parts = [_filtered(job, i, look, tell) for i in range(len(job.sources))]
        try:
            exact = _finished(job, look, parts)
        except BracketError:
            if look.way == "keys":
                raise
            job = job._replace(run=job.run.again(look.way))
            continue
        job.run.finish(_written(job, exact, parts, look, repeats))
        return


def _look(job: _Job) -> Look:
    """Look in the cheapest way that has not missed yet."""
    if job.nested or "sketch" in job.run.failed:
        return by_keys(job.question)
    return (None if "pilot" in job.run.failed else by_pilot(job.question)) or by_sketch(job.question)


def _filtered(job: _Job, index: int, look: Look, tell: Tell) -> Part:
    """Write what is kept of a file for sure, and what is undecided to a file apart; return what else the end needs."""
    source, key = job.sources[index], f"part-{index:06d}"
    before = job.run.load_arrays(key, len(Part._fields))
    if before is not None and (job.run.kept / source.name).exists():
        tell(index + 1, 0)
        return Part._make(before)
    tally = Tally(look.cuts, pilot=look.way == "pilot")
    with (
        writing(job.run.kept / source.name, source) as write,
        holding(_open_path(job, index)) as hold,
    ):
        for batch in read_batches(source, job.reading.names):
            scored = as_scored(batch, source, job.reading)
            decision = scored.spread(tally.judge(scored), len(batch))
            tally.bad += len(batch) - len(scored.log_ratio)
            kept, undecided = decision == 1, decision == -1
            if kept.any() or undecided.any():
                for put, table in zip((write, hold), batch.take(kept, undecided), strict=True):
                    put(table)
            tell(index, len(batch))
    part = tally.part()
    job.run.save_arrays(key, *part)
    tell(index + 1, 0)
    return part


def _open_path(job: _Job, index: int) -> Path:
    return job.run.folder / "open" / f"{index:06d}.arrow"


def _finished(job: _Job, look: Look, parts: list[Part]) -> dict[str, SketchCut]:
    """Return the exact cut of each pool, or raise `BracketError`."""
    exact = {}
    for number, (label, cut) in enumerate(look.cuts.items()):
        opens = [part.open_of(number, costs=cut.costs) for part in parts]
        if look.way == "pilot":
            cut = _filled(job, cut, parts, opens)
        exact[label] = cut.finish(*opens)
        if look.way == "pilot" and not cut.at.low <= -exact[label].log_c < cut.at.high:
            raise BracketError(f"-log c is {-exact[label].log_c}, outside the bracket of the pilot")
    return exact


def _filled(job: _Job, cut: SketchCut, parts: list[Part], opens: list[Open]) -> SketchCut:
    """Return the cut of a pilot with what the pass has counted."""
    rows, possible, above = np.sum([(part.rows, part.possible, part.above) for part in parts], axis=0).tolist()
    n = job.question.wanted.of({"": rows})[""]
    if not 0 < n <= possible:
        raise InputError(f"{named(job.sources)}: cannot keep {n} of {rows} rows, {possible} have r > 0")
    crossing = sum(int(np.count_nonzero(inside(cut, part.log_ratio))) for part in opens)
    below, top = fsum(float(part.below) for part in parts), max(float(part.top) for part in parts)
    at = cut.at._replace(above=above, below=below)
    return replace(cut, rows=rows, mass=rows, possible=possible, top=top, target=float(n), at=at, crossing=crossing)


def _written(job: _Job, exact: Mapping[str, SketchCut], parts: list[Part], look: Look, repeats: bool) -> dict[str, Any]:
    """Write the last rows, look for repeated ids among all that are kept, and return what is to be told."""
    first = job.sources[0]
    last = job.run.kept / _last_name(job.sources)
    kept, units = sum(int(part.kept_rows) for part in parts), sum(int(part.kept.sum()) for part in parts)
    spare = {label: cut.spare for label, cut in exact.items()}
    with writing(last, first) as write:
        for index, part in enumerate(parts):
            mask = _last_rows(part, exact, spare)
            kept, units = kept + int(np.count_nonzero(mask)), units + int(part.left_units[mask].sum())
            if mask.any():
                at = 0
                for table in held(_open_path(job, index)):
                    write(table.filter(pa.array(mask[at : at + len(table)])))
                    at += len(table)
    if job.reading.id is not None and not repeats:
        _check_repeats(job, parts, kept, last)
    # rows that were selected before have met a part of the rule: the key of the last one is all of it
    log_c: Any = {label: cut.sure if job.nested else cut.log_c for label, cut in exact.items()}
    return {
        "rows": sum(int(part.rows) for part in parts),
        "kept": kept,
        "log_c": log_c if job.reading.group else log_c[""],
        "bad": sum(int(part.bad) for part in parts),
        "way": look.way,
        "repeated": look.repeated,
        "units": units if job.reading.cost else None,
    }


def _last_name(sources: list[Source]) -> str:
    """Return a name for the file of the last rows that no file has: a folder of ours may be selected again."""
    ending = "".join(Path(sources[0].name).suffixes[-2 if sources[0].codec else -1 :])
    taken = {source.name for source in sources}
    names = (f"{AT_THE_CUT}{number or ''}{ending}" for number in range(len(taken) + 1))
    return next(name for name in names if name not in taken)


def _last_rows(part: Part, exact: Mapping[str, SketchCut], spare: dict[str, int]) -> Numbers:
    """Tell which of the undecided rows of a file are kept; `spare` counts down rows that nothing tells apart."""
    mask = np.zeros(len(part.left_ids), bool)
    for number, (label, cut) in enumerate(exact.items()):
        at = np.flatnonzero(part.left_pool == number)
        decision = cut.keep(part.left_ids[at], part.left_log_ratio[at])
        tied = np.flatnonzero(decision == -1)[: max(spare[label], 0)]
        spare[label] -= len(tied)
        decision[tied] = 1
        mask[at] = decision == 1
    return mask


def _check_repeats(job: _Job, parts: list[Part], kept: int, last: Path) -> None:
    """Raise if two kept rows have one id; where ids rise from row to row and from file to file, none can have."""
    spans = sorted(tuple(part.span.tolist()) for part in parts if part.rows)
    if all(spans) and all(one[1] < two[0] for one, two in pairwise(spans)):
        return
    files = [(job.run.kept / source.name, source) for source in job.sources] + [(last, job.sources[0])]
    pieces = ceil(kept / _ONE_BY_ONE)
    again = 0
    for piece in range(pieces):
        seen = []
        for path, source in files:
            there = replace(source, path=str(path))
            for batch in read_batches(there, [str(job.reading.id)], whole=False):
                ids = row_ids(batch, there, job.reading.id)
                seen.append(ids[ids.view(np.uint64) % np.uint64(pieces) == piece])
        ids = np.concatenate(seen)
        again += len(ids) - len(np.unique(ids))
    if again:
        what = f"{again} of the {kept} kept rows have the id of another, and so its uniform"
        raise InputError(f"{named(job.sources)}: {what}; make ids unique, or allow repeats to finish this run")
