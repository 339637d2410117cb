"""Exactly n rows of files that may be larger than memory, with all their columns; and what each budget buys.

The rows are those of `obrs.select(..., design="priority", ids=...)`: the n smallest keys log u(id) - log r, which do
not depend on how the rows are spread over files. Two passes over the columns that decide find the threshold (`_keys`),
and a third one writes the rows below it. Memory does not grow with the rows.
"""

import json
import os
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from ._checks import check_budget, check_count, check_ratios, check_seed
from ._files import as_path, check_not_input, check_out, hold, rewrite
from ._keys import MOST_GROUPS, BottomK, Cells, Columns, Rows, add_up, find_threshold, tally
from ._progress import bar
from ._text import name_in_errors
from .critics import check_scores, to_log_ratio
from .draws import priority_key, scramble
from .errors import InputError
from .groups import counts_of, shares_of, sizes_of
from .profile import Plan, Profile
from .scores import Batch, Paths, Source, find_sources, format_of, read_columns, to_arrow

__all__ = ["KINDS", "MANIFEST", "Reading", "Selected", "decide", "plan", "read"]
__all__ += ["plan_sample", "read_manifest", "sample_profile", "scan_files", "select"]

Array = np.ndarray[Any, Any]
Scan = Callable[[Sequence[str], Callable[[Batch], Any]], Iterable[Any]]
"""Makes a pass: reads columns and calls a function on all batches."""

KINDS = ("log_ratio", "logit", "probability", "reward", "weight")
"""What a column of scores may hold; a column with one of these names needs no `kind`."""
MANIFEST = ".manifest.json"
"""What is added to the name of a folder for the file beside it; inside, Polars would take it for a file of rows."""
SAMPLED = 1 << 17  # rows of the sample in which scores and ids are checked
PLANNED = 1 << 20  # rows of the sample that a plan is made of
HELD = 1 << 18  # rows of the smallest keys that the first pass holds: where they are enough, there is no second one
_ADDED = ("inclusion_probability", "log_weight", "sign")  # to a kept row, the last one for weights of either sign
_CHOOSE = "choose another output, or delete it first"
_NO_PLAN = "here, a plan has no costs, groups or signs; use the command obrs plan, or Profile(sign=)"


@dataclass(frozen=True)
class Reading:
    """Which columns decide, and what they mean."""

    column: str  # the scores
    kind: str  # what they are, one of `KINDS`; a weight may have either sign, and r is its size
    beta: float | None = None  # the temperature of a reward
    id: str | None = None  # None for the name of the file and the number of the row
    cost: str | None = None  # None for 1
    group: str | None = None  # None for one pool
    skip_bad: bool = False  # leave out rows whose score is no number, instead of stopping
    seed: int = 0  # of the uniforms in the keys
    weights: bool = False  # add the columns `additions`

    @property
    def additions(self) -> tuple[str, ...]:
        """The columns that are added to what is kept."""
        return _ADDED[: self.weights * (3 if self.kind == "weight" else 2)]

    @property
    def names(self) -> list[str]:
        """The columns to read."""
        return [name for name in (self.column, self.id, self.cost, self.group) if name is not None]

    @classmethod
    def find(
        cls, sources: Sequence[Source], column: str | None = None, kind: str | None = None, **more: Any
    ) -> "Reading":
        """Return which columns decide; the one of scores, and what it holds, if there is only one choice."""
        known, where = sources[0].columns, sources[0].path
        if not known:
            raise InputError(f"{where} has no column of scores; an array of scores has one axis")
        if column is None:
            others = (more.get("id"), more.get("cost"), more.get("group"), *_ADDED)
            free = [name for name in known if name not in others]
            named = [name for name in free if name == "score" or (name in KINDS and kind not in KINDS)]
            choices = [name for name in free if name == (kind or "log_ratio")] or named or free
            if len(choices) != 1:
                why = f"{where}: which column has the scores? one of {' '.join(', '.join(known).split())}; give"
                raise InputError(why, give={"column": None})
            column = choices[0]
        sources[0].check_columns([column])
        kind = column if kind is None and column in KINDS else kind
        if kind not in KINDS:
            got = "" if kind is None else f", got {kind}"
            why = f"{where}: what are the numbers in column {column!r}? one of {', '.join(KINDS)}{got}; give"
            raise InputError(why, give={"kind": None})
        if (kind == "reward") != (more.get("beta") is not None):
            todo = "give" if kind == "reward" else "leave out"
            raise InputError(f"a reward has a temperature, no other kind has: {todo}", give={"beta": None})
        reading = cls(column, kind, **more)
        check_seed(reading.seed)
        for source in sources:
            source.check_columns(reading.names)
            for name in [name for name in reading.additions if name in source.columns]:
                raise InputError(f"{source.path} has a column {name!r} already, of an earlier selection? rename it")
        return reading

    def scores(self, batch: Batch) -> tuple[Array, Array]:
        """Return scores, NaN where there is none, and their log-ratios, which are -inf there."""
        score = batch.numbers(self.column, skip_bad=self.skip_bad)
        bad = np.isnan(score)
        with name_in_errors(f"{batch.source.path}, column {self.column!r}"):
            log_ratio = to_log_ratio(np.where(bad, 0.5, score), self.kind, beta=self.beta)
            log_ratio[bad] = -inf
            check_ratios(log_ratio)
        return score, log_ratio

    def rows(self, batch: Batch, labels: Mapping[str, int]) -> tuple[Rows, Array, Array]:
        """Return what decides about the rows of a batch, with these numbers of the groups; scores; and log-ratios."""
        score, log_ratio = self.scores(batch)
        id, cost, group = batch.ids(self.id), (~np.isnan(score)).astype(np.int64), np.zeros(len(batch), np.int64)
        if self.group is not None:
            codes, names = batch.labels(self.group)
            if not labels.keys() >= {*names}:
                raise InputError(f"{batch.source.path} has a group that it had not before; start again")
            group = np.array([labels[name] for name in names], np.int64)[codes]
        if self.cost is not None:
            given = batch.numbers(self.cost)
            wrong = ~((given >= 0) & (given < 2**32) & (given == np.floor(given)))
            if wrong.any():
                raise batch.error(wrong, self.cost, "a cost is a whole number, such as tokens")
            cost *= given.astype(np.int64)
        return Rows(priority_key(log_ratio, id, seed=self.seed), id, group, cost), score, log_ratio


class Survey(NamedTuple):
    """What a first pass finds."""

    counts: Columns  # the cells in which keys lie, how many do, and what their rows cost
    sums: Array  # how many rows have a score, how many have none, a checksum of the scores, and the cost of each group
    sample: Columns  # hashes of ids, and scores, of the rows with the smallest hashes
    held: Columns  # of `Rows`, those with the smallest keys


def survey(
    scan: Scan, where: str, reading: Reading, labels: Mapping[str, int], cells: Cells, *, sampled: int, most: int = 0
) -> Survey:
    """Make a first pass, and hold so many rows, those with the smallest keys; none for a plan, which takes no signs.

    Scores that are all alike are an error, and scores that are hardly of their kind a warning.
    """
    sums = np.zeros(3 + len(labels), np.int64)
    sample, held = BottomK(sampled, 2**63 - 1), BottomK(most, np.finfo(float).max)  # all with r = 0 would be tied

    def count(batch: Batch) -> Survey:
        rows, score, _ = reading.rows(batch, labels)
        if not most and reading.kind == "weight" and np.any(score < 0):
            raise InputError(_NO_PLAN)
        bad = np.isnan(score)
        number = np.count_nonzero(bad)
        known = ~bad if number else slice(None)
        facts = len(score) - number, number, crc32(np.ascontiguousarray(score).data)
        found = Survey(
            cells.locate(rows),
            np.array([*facts, *np.bincount(rows.group, rows.cost, len(labels))]).astype(np.int64),
            (scramble(rows.id)[known], score[known]),
            rows if most and batch.source.table is None else rows.take(slice(0)),
        )
        if batch.source.table is None:
            return found
        few = BottomK(sampled, 2**63 - 1)  # Ray sends what is found
        few.add(found.sample)
        return found._replace(counts=add_up(found.counts), sample=few.columns())

    def parts() -> Iterator[Columns]:
        for part in scan(reading.names, count):
            np.add(sums, part.sums, out=sums)
            sample.add(part.sample)
            held.add(part.held)
            yield part.counts

    counts = tally(parts())
    where = f"{where}, column {reading.column!r}"
    if not sums[0]:
        raise InputError(f"{where}: no row has a score")
    with name_in_errors(where):
        doubt = check_scores(sample.columns()[1], reading.kind)
    if doubt:
        warnings.warn(f"{where} read as {reading.kind}: {doubt}", stacklevel=4)
    return Survey(counts, sums, sample.columns(), held.columns())


def scan_files(sources: Sequence[Source], progress: bool | None = None) -> Scan:
    """Return what makes passes over files."""

    def scan(names: Sequence[str], function: Callable[[Batch], Any]) -> Iterator[Any]:
        with bar("reading", len(sources), progress) as update:
            for number, source in enumerate(sources):
                for batch in source.batches(names):
                    yield function(batch)
                    update(number, f"{source.name}, {batch.first + len(batch):,} rows")
                update(number + 1, source.name)

    return scan


def _open(
    where: Paths, *, delimiter: str | None = None, header: bool = True, progress: bool | None = None, **columns: Any
) -> tuple[list[Source], Reading, Scan]:
    """Return files, which of their columns decide, and what makes passes over them."""
    sources = find_sources(where, delimiter=delimiter, header=header)
    return sources, Reading.find(sources, **columns), scan_files(sources, progress)


def _check_sizes(n: Any, budget: float | None, shares: Any, at_most: bool, group: str | None) -> dict[str, Any]:
    """Return how much to keep, if it is clear how much, and of what; labels become text."""
    if (n is None) == (budget is None):
        raise InputError("say how many rows to keep: either n or budget")
    if group is None and (shares is not None or isinstance(n, Mapping)):
        raise InputError("shares, and n by label, need to know the label of each row: give group")
    if isinstance(shares, str) and shares != "equal":
        raise InputError(f"shares is a number for each label, or 'equal', got {shares!r}")
    if budget is not None:
        check_budget(budget)
    elif not isinstance(n, Mapping):
        check_count(n, "n")
    sizes = {"n": n, "budget": budget, "shares": shares, "at_most": bool(at_most)}
    for name in [name for name, given in sizes.items() if isinstance(given, Mapping)]:
        sizes[name] = type(sizes[name])({str(label): value for label, value in sizes[name].items()})
    return sizes


def divide(
    labels: list[str], available: Array, total: Array, n: Any, budget: float | None, shares: Any, at_most: bool
) -> Array:
    """Return what to keep of each group, given what its rows with r > 0, and all its rows, cost."""
    if shares is not None:
        if shares == "equal":
            shares = dict.fromkeys(labels, 1)
        elif isinstance(shares, Counter):  # a label that real samples do not have is not kept
            shares = dict.fromkeys(labels, 0) | shares
        need = sizes_of(n if budget is None else int(total.sum() / budget), shares_of(shares, tuple(labels)))
    elif budget is not None:
        need = (total / budget).astype(np.int64)
    else:
        need = counts_of(n, tuple(labels)) if isinstance(n, Mapping) else np.full(len(labels), n)
    for short in np.flatnonzero(need > available)[: not at_most]:
        few = f"{available[short]} of {total[short]} have r > 0"
        where = f" of group {labels[short]!r}" if labels[short] else ""
        raise InputError(f"cannot keep {need[short]}{where}: {few}; ask for fewer, or give", give={"at_most": True})
    if not np.minimum(need, available).any():
        raise InputError(f"nothing would be kept of {total.sum()}; lower the budget, or ask for more")
    return np.asarray(np.minimum(need, available))


def decide(
    scan: Scan, where: str, reading: Reading, *, n: Any, repeats: bool = False, **sizes: Any
) -> tuple[dict[str, Any], Callable[[Batch], Any]]:
    """Find which rows are kept, in one pass or two; groups, and many rows, take one more.

    Returns:
        The manifest, as JSON has it: what was asked for and chosen, all that is needed to keep the same rows again. And
        a function that returns the rows of a batch that are kept, with the columns that are added.
    """
    sizes, labels = _check_sizes(n, **sizes, group=reading.group), {"": 0}
    if (group := reading.group) is not None:
        known = {label for part in scan([group], lambda batch: batch.labels(group)[1]) for label in part}
        order = int if all(label.removeprefix("-").isdecimal() for label in known) else None  # as `obrs.select` has it
        labels = {label: number for number, label in enumerate(sorted(known, key=order))}
    if len(labels) > MOST_GROUPS:
        raise InputError(f"at most {MOST_GROUPS:,} groups can be told apart, got {len(labels):,}")
    cells = Cells(np.zeros(len(labels), np.uint64))
    seen = survey(scan, where, reading, labels, cells, sampled=SAMPLED, most=HELD)
    if reading.id is not None and not repeats:
        _check_unique(scan, reading.id, seen.sample[0])
    code, _, cost = seen.counts
    possible = np.bincount(code >> cells.bits, cost, len(labels)).astype(np.int64)
    need = divide([*labels], possible, seen.sums[3:], **sizes)

    def again(function: Callable[[Rows], Any]) -> Iterable[Any]:
        return scan(reading.names, lambda batch: function(reading.rows(batch, labels)[0]))

    ends, last, (kept, units) = find_threshold(cells, seen.counts, need, Rows(*seen.held), again)
    if not kept:
        raise InputError(f"nothing is kept: the first row costs more than {need.sum()} units; ask for more")

    def keep(batch: Batch) -> Any:
        rows, score, log_ratio = reading.rows(batch, labels)
        mask = rows.precede(ends, last)
        table = batch.rows.filter(to_arrow(mask))
        if reading.additions:
            log_ratio, end = log_ratio[mask], ends[rows.group[mask]]
            weights = np.exp(np.minimum(log_ratio + end, 0.0)), np.maximum(log_ratio, -end), np.sign(score[mask])
            for name, values in zip(reading.additions, weights, strict=False):
                table = table.append_column(name, to_arrow(values))
        return table

    rows, bad, checksum = seen.sums[:3]
    manifest = {"version": version("obrs"), "checksum": checksum, **vars(reading), **sizes}
    manifest |= {"rows": rows, "bad": bad, "kept": kept, "units": reading.cost and units}
    manifest["cut"] = {label: [None if ends[i] == inf else ends[i], last[i]] for label, i in labels.items()}
    return dict(json.loads(json.dumps(manifest, default=np.generic.item))), keep


def _check_unique(scan: Scan, id: str, hashes: Array) -> None:
    """Raise if hashes of the ids of a sample are repeated, with one of these ids."""
    _, first, times = np.unique(hashes, return_index=True, return_counts=True)
    if len(first) < len(hashes):
        same = hashes[first[np.argmax(times)]]
        texts = scan([id], lambda batch: batch.columns[id].filter(to_arrow(scramble(batch.ids(id)) == same)))
        example, share = next(filter(len, texts))[0], 100 * (1 - len(first) / len(hashes))
        why = f"about {min(share, 99):.2g} % of the rows have the id of another, as {example}; make ids unique, or give"
        raise InputError(why, give={"repeats": True})


@dataclass(frozen=True)
class Selected:
    """The result of `select`."""

    out: Any  # the folder or the file that was written, or None; on Ray the dataset of the kept rows
    manifest: Mapping[str, Any] = field(repr=False)  # what was asked for and chosen
    new: bool = True  # whether this call wrote the rows; if not, they were there already

    kept = property(lambda self: int(self.manifest["kept"]), doc="Rows that were kept.")
    rows = property(lambda self: int(self.manifest["rows"]), doc="Rows that were read; those without a score aside.")
    bad = property(lambda self: int(self.manifest["bad"]), doc="Rows that were left out because they have no score.")
    units = property(lambda self: self.manifest["units"], doc="What the kept rows cost, if they have a cost.")

    @property
    def threshold(self) -> float | dict[str, float]:
        """The key of the first row that was not kept, by label if there are groups.

        A row was kept with probability min(r exp(threshold), 1), and max(log r, -threshold) is its log-weight.
        """
        keys = {label: inf if key is None else float(key) for label, (key, _) in self.manifest["cut"].items()}
        return keys if self.manifest["group"] else keys[""]

    def __len__(self) -> int:
        return int(self.kept)

    def __repr__(self) -> str:
        where = f"{'in' if self.new else 'already in'} {self.out}" if isinstance(self.out, Path) else "not written"
        ends = f", threshold {self.threshold:.4g}" if isinstance(self.threshold, float) else ""
        return f"Selected({self.kept:,} of {self.rows:,} rows{ends}; {where})"


def select(
    where: Paths,
    n: int | Mapping[str, int] | None = None,
    *,
    out: str | os.PathLike[str] | None,
    budget: float | None = None,
    shares: Mapping[str, float] | str | None = None,
    at_most: bool = False,
    repeats: bool = False,
    **options: Any,
) -> Selected:
    """Keep exactly n rows of files that may be larger than memory, or 1 in K, with all their columns.

    The rows kept of a file go to a file of its name, in their order. The folder appears when everything is in it, and
    beside it is a file `….manifest.json` that says how the rows were chosen. A run that was killed or failed goes on
    with the files that are not done if it is started again.

    Args:
        where: A folder, a glob, a file or a list of files: parquet, csv, tsv or jsonl; text also as .gz or .zst.
        n: Rows to keep; with `cost` units, with `group` of each group or by label, with `shares` in all.
        out: The folder to make, or for a single file a file. It must not lie inside the folder that is read. None finds
            where to cut and writes nothing, as for `obrs.sql.condition`.
        budget: Keep 1 row in K instead: of N rows floor(N / K), of N units as many.
        shares: The shares of the groups among the kept rows, by label, or "equal". Of a `Counter` of real labels, a
            label that it does not have has share 0.
        at_most: Keep all rows of a group that has too few, instead of stopping.
        repeats: Allow ids that are repeated. Rows of one id share their uniform.
        options: What the columns are: `column`, the scores, by default the only one that can be meant; `kind`, one of
            `KINDS`, by default what the column is called; `beta`, the temperature of a reward; `id`, integers or text,
            by which the same rows are kept however they are spread over files, by default the name of a file and the
            number of a row in it; `cost`, whole numbers such as tokens: taking stops at the first row that does not
            fit; `group`, labels, each with a threshold of its own.
            `weights=True` adds the columns `inclusion_probability` and `log_weight`: with these weights, sums over the
            kept rows are without bias sums over all rows with weights r. For a kind of weight also `sign`.
            `skip_bad=True` leaves out rows whose score is empty, NaN or +inf, and counts them, instead of stopping.
            `seed`: rows that were selected before, by another score, need another one.
            `delimiter` and `header` of a csv: without one, its columns are called 0, 1, …
            `progress`: True or False; None shows a bar on a terminal.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> rows = [f"{i},{i % 7}\\n" for i in range(700)]
        >>> _ = (folder / "a.csv").write_text("id,log_ratio\\n" + "".join(rows))
        >>> select(folder / "a.csv", 70, id="id", out=folder / "kept.csv").kept
        70
    """
    sources, reading, scan = _open(where, **options)
    target = Path("unnamed") if out is None else as_path(out, "out")
    is_file = len(sources) == 1 and target.suffix and not target.is_dir() and not str(out).endswith("/")
    note = Path(f"{target}{MANIFEST}")
    if out is not None:
        if not target.name:
            raise InputError(f"rows go to a file or a folder that has a name, got {str(out)!r}")
        given = [where] if isinstance(where, str | os.PathLike) else where
        check_not_input(target, *given, *(source.path for source in sources))
        check_out(target if is_file else note)
        if sources[0].format in ("npy", "npz"):
            raise InputError(f"{sources[0].path}: arrays are only read; take x[obrs.select(log_ratio, n)] in Python")
        if is_file and format_of(target) != sources[0].format:
            raise InputError(f"rows keep their format: out is a .{sources[0].format} file or a folder/, got {out}")
        taken = target.is_file() or target.is_symlink() or (_has_files(target) and not note.exists())
        if not is_file and taken:
            raise InputError(f"{target} is a file, a link, or not empty; choose a folder that is empty or not there")
    inputs = {source.name: _facts(source) for source in sources}
    sizes = {"n": n, "budget": budget, "shares": shares, "at_most": at_most}
    chosen, keep = decide(scan, sources[0].path, reading, repeats=repeats, **sizes)
    manifest = {"inputs": inputs, "header": sources[0].header, **chosen}

    def write(source: Any, path: Path) -> None:
        def tables() -> Iterator[Any]:
            with source.name_errors():
                yield from filter(len, map(keep, source.batches(reading.names, rows=True)))
            if _facts(source) != inputs[source.name]:
                raise InputError(f"{source.path} has changed since it was counted; start again")

        path.parent.mkdir(parents=True, exist_ok=True)
        source.write(path, tables(), reading.additions)

    if out is None:
        return Selected(None, manifest)
    if is_file:
        write(sources[0], target)
        return Selected(target, manifest)
    goes_on = "the same command goes on with the files that are not done"
    try:
        with hold(target) as work, bar("writing", len(sources), options.get("progress")) as update:
            for folder in filter(_has_files, (target, work)):
                _check_same(folder, note, manifest)
            if _has_files(target):
                for name in [name for name in inputs if not (target / name).exists()]:
                    raise InputError(f"{target} had a file {name}, which is gone; {_CHOOSE}")
                return Selected(target, manifest, new=False)
            with rewrite(note) as file:
                file.write((json.dumps(manifest, indent=2) + "\n").encode())
            try:
                for number, source in enumerate(sources):
                    if not (work / source.name).exists():
                        write(source, work / source.name)
                    update(number + 1)
            finally:
                if not any(map(Path.is_file, work.rglob("*"))):
                    shutil.rmtree(work)
                    note.unlink()
            os.replace(work, target)  # which is not there, or empty
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(f"stopped; {goes_on}") from error
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}; {goes_on}", error.filename) from error
    return Selected(target, manifest)


def _facts(source: Source) -> list[int]:
    """Return the size of a file, and when it was changed."""
    facts = os.stat(source.path)
    return [facts.st_size, facts.st_mtime_ns]


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def read_manifest(where: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the manifest beside a folder, or the one that is this file."""
    path = as_path(where, "where")
    path = Path(f"{path}{MANIFEST}") if path.is_dir() else path
    with suppress(ValueError, RecursionError, FileNotFoundError):
        match manifest := json.loads(path.read_bytes()):
            case {"cut": dict()} if isinstance(manifest.get("inputs", {}), dict):
                return dict(manifest)
    raise InputError(f"{path} is no manifest of a selection")


def _check_same(folder: Path, note: Path, manifest: Mapping[str, Any]) -> None:
    """Raise if a folder has rows that were chosen otherwise, or of other files, by the manifest that is there."""
    both = read_manifest(note), manifest
    old, new = ({**known.get("inputs", {}), **known, "inputs": 0, "version": 0} for known in both)
    for name in [name for name in {**old, **new} if old.get(name) != new.get(name)]:
        what = f"was {old.get(name)!r:.60} and is {new[name]!r:.60} now" if name in manifest else "is not what it was"
        raise InputError(f"{folder} has rows of another run: {name} {what}; {_CHOOSE}")


def read(where: Paths, **options: Any) -> Array:
    """Return the log-ratios of a file, a glob or a folder of scores, in memory.

    Options are those of `select`: column, kind, beta, skip_bad, delimiter, header; npy and npz are read, too.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "scores.csv")
        >>> _ = path.write_text("id,logit\\n1,0.5\\n2,-1.5\\n")
        >>> read(path)
        array([ 0.5, -1.5])
    """
    sources, reading, _ = _open(where, **options)
    score, log_ratio = reading.scores(read_columns(sources, [reading.column]))
    return log_ratio[~np.isnan(score)]


def sample_profile(scan: Scan, where: str, reading: Reading) -> tuple[Profile, int, int]:
    """Return the profile of 2**20 rows, or of all; and how many rows have a score, and how many have none."""
    if reading.cost or reading.group:
        raise InputError(_NO_PLAN)
    seen = survey(scan, where, reading, {"": 0}, Cells(np.zeros(1, np.uint64)), sampled=PLANNED)
    if not len(seen.counts[0]):
        raise InputError(f"{where}, column {reading.column!r}: no row has r > 0")
    return Profile(to_log_ratio(seen.sample[1], reading.kind, beta=reading.beta)), int(seen.sums[0]), int(seen.sums[1])


def plan_sample(profile: Profile, size: int, budgets: Iterable[float], n: int | None) -> Plan:
    """Return the plan of a profile; if that is of a sample of `size` rows, the plan says so."""
    rows = profile.plan(budgets, n=n)
    if profile.size < size:
        rows.notes.insert(0, f"of a sample of {profile.size:,} of {size:,} rows")
    return rows


def plan(
    where: Paths, budgets: Iterable[float] = (1.5, 2.0, 4.0, 8.0), *, n: int | None = None, **options: Any
) -> Plan:
    """Show what each budget buys on files that may be larger than memory; only the scores are read.

    The numbers are of all rows if they are at most 2**20, else of a sample of so many.

    Args:
        where: As for `select`; npy and npz are read, too.
        budgets, n: As for `Profile.plan`.
        options: As for `select`: column, kind, beta, skip_bad, delimiter, header, progress; id, which decides on the
            rows of the sample. No weight may be negative.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.csv")
        >>> _ = path.write_text("log_ratio\\n" + "\\n".join(str(i % 7) for i in range(700)))
        >>> [round(row["rate"], 3) for row in plan(path, [2, 4], progress=False)]
        [0.5, 0.25]
    """
    sources, reading, scan = _open(where, **options)
    profile, size, _ = sample_profile(scan, sources[0].path, reading)
    return plan_sample(profile, size, budgets, n)
