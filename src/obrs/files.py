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
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from ._checks import check_budget, check_count, check_ratios, check_seed
from ._files import check_not_input, check_out, replacing
from ._keys import Counts, KeyCounts, Rows, Sample, Threshold, find_threshold
from ._progress import bar
from .critics import check_scores, to_log_ratio
from .draws import priority_key
from .errors import InputError, ObrsError
from .groups import counts_of, shares_of, sizes_of
from .profile import Plan, Profile
from .scores import Batch, Paths, Source, find_sources, format_of, read_columns, to_arrow

__all__ = ["KINDS", "MANIFEST", "Part", "Profiles", "Reading", "Selected", "Survey", "check_added", "check_sizes"]
__all__ += ["decide", "kept_rows", "load_profiles", "plan", "read", "read_manifest", "select"]

Array = np.ndarray[Any, Any]

KINDS = ("log_ratio", "logit", "probability", "reward", "weight")
"""What a column of scores may hold; a column with one of these names needs no `kind`."""
ADDED = ("inclusion_probability", "log_weight", "sign")
"""Columns that a selection with weights adds; the last one for weights of either sign."""
MANIFEST = ".manifest.json"
"""What is added to the name of a folder for the file beside it; inside, Polars would take it for a file of rows."""
_HELD = 1 << 20  # rows whose keys stay in memory, so that they are read once
_WIDTH = 1 / 256  # of a cell in which log-ratios are counted, in nats


class Part(NamedTuple):
    """Some rows of a file. One without a score has score NaN, r = 0 and cost 0."""

    batch: Batch
    score: Array
    log_ratio: Array
    rows: Rows
    labels: list[str]  # of the groups, by their number

    def number(self, labels: Mapping[str, int]) -> "Part":
        """Return the part with other numbers of its groups."""
        if len(labels) == 1 and "" in labels:
            return self
        if not labels.keys() >= {*self.labels}:
            raise InputError(f"{self.batch.source.path} has a group that it had not before; start again")
        groups = np.array([labels[label] for label in self.labels], np.int64)
        return self._replace(rows=self.rows._replace(group=groups[self.rows.group]))


Scan = Callable[[Callable[[Part], Any]], Iterable[Any]]  # makes a pass: calls a function on all parts


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

    @classmethod
    def find(
        cls, sources: Sequence[Source], column: str | None = None, kind: str | None = None, **more: Any
    ) -> "Reading":
        """Return which columns decide; the one of scores, and what it holds, if there is only one choice."""
        known, where = sources[0].columns, sources[0].path
        if column is None:
            others = (more.get("id"), more.get("cost"), more.get("group"), *ADDED)
            free = [name for name in known if name not in others]
            named = [name for name in free if name == "score" or (name in KINDS and kind not in KINDS)]
            choices = [name for name in free if name == (kind or "log_ratio")] or named or free
            if len(choices) != 1:
                why = f"{where}: which column has the scores? one of {', '.join(known)}; give"
                raise InputError(why, give={"column": None})
            column = choices[0]
        sources[0].check_columns([column])
        kind = kind or (column if column in KINDS else None)
        if kind not in KINDS:
            why = f"{where}: what are the numbers in column {column!r}? one of {', '.join(KINDS)}, got {kind}; give"
            raise InputError(why, give={"kind": None})
        if (kind == "reward") != (more.get("beta") is not None):
            todo = "give" if kind == "reward" else "leave out"
            raise InputError(f"a reward has a temperature, no other kind has: {todo}", give={"beta": None})
        reading = cls(column, kind, **more)
        for source in sources:
            source.check_columns(reading.names)
        return reading

    @property
    def names(self) -> list[str]:
        """The columns to read."""
        return [name for name in (self.column, self.id, self.cost, self.group) if name is not None]

    def log_ratio(self, batch: Batch, scores: Array) -> Array:
        """Return the log-ratios of scores of a batch."""
        try:
            log_ratio = np.asarray(to_log_ratio(scores, self.kind, beta=self.beta))
            check_ratios(log_ratio)
        except ObrsError as error:
            raise error.prefixed(f"{batch.source.path}, column {self.column!r}") from error
        return log_ratio

    def read(self, source: Source, rows: bool = False) -> Iterator[Part]:
        """Read what decides, batch by batch; with `rows`, what is written as well."""
        for batch in source.batches(self.names, rows=rows):
            score = batch.numbers(self.column, skip_bad=self.skip_bad)
            good, id = ~np.isnan(score), batch.ids(self.id)
            cost = good.astype(np.int64)
            if good.all():
                log_ratio = self.log_ratio(batch, score)
            else:
                log_ratio = np.full(len(batch), -inf)
                log_ratio[good] = self.log_ratio(batch, score[good])
            group, labels = (0 * cost, [""]) if self.group is None else batch.labels(self.group)
            if self.cost is not None:
                given = batch.numbers(self.cost)
                wrong = ~((given >= 0) & (given < 2**32) & (given == np.floor(given)))
                if wrong.any():
                    raise batch.error(wrong, self.cost, "a cost is a whole number, such as tokens")
                cost *= given.astype(np.int64)
            key = priority_key(log_ratio, id, seed=self.seed)
            yield Part(batch, score, log_ratio, Rows(key, id, group, cost), labels)


class Survey:
    """What a first pass counts, of keys or, with plain `Counts`, of log-ratios; surveys of parts add up.

    Scores that are all alike are an error; scores that are unlikely to be of the given kind cause a warning.
    """

    def __init__(self, scan: Scan, where: str, reading: Reading, counts: Counts) -> None:
        self.counts, self.sample = counts, Sample()
        self.rows = self.bad = 0  # with and without a score
        where = f"{where}, column {reading.column!r}"
        for part, sample, rows, bad in scan(partial(_count, deepcopy(counts), reading)):
            self.counts.merge(part)
            self.sample.add(*sample.columns, limit=sample.limit)
            self.rows, self.bad = self.rows + rows, self.bad + bad
        if not self.rows:
            raise InputError(f"{where}: no row has a score")
        try:
            doubt = check_scores(self.sample.columns[1], reading.kind)
        except InputError as error:
            raise error.prefixed(where) from error
        if doubt:
            warnings.warn(f"{where} read as {reading.kind}: {doubt}", stacklevel=4)


def _count(counts: Counts, reading: Reading, part: Part) -> tuple[Counts, Sample, int, int]:
    """Return counts and a sample of the rows of a part, and how many there are with and without a score."""
    sample, good = Sample(), ~np.isnan(part.score)
    sample.add(part.rows.id[good], part.score[good])
    if isinstance(counts, KeyCounts):
        found: Counts = counts.count(part.rows)
    elif reading.cost or reading.group or (reading.kind == "weight" and np.any(part.score < 0)):
        raise InputError("here, a plan has no costs, groups or signs; use the command obrs plan, or Profile(sign=)")
    else:  # the number of log-ratios in each cell, and the sum of their ratios, relative to the cell
        x = part.log_ratio[part.log_ratio > -inf]
        cell = np.floor(x / _WIDTH)
        found = Counts()
        found.add(cell.astype(np.int64), np.ones_like(x), np.exp(x - cell * _WIDTH))
    return found, sample, int(good.sum()), int((~good).sum())


class _Files:
    """Passes over files; what decides of few rows stays in memory."""

    def __init__(self, sources: list[Source], reading: Reading, progress: bool | None) -> None:
        self.sources, self.reading, self.progress = sources, reading, progress
        self.inputs: dict[str, list[int]] = {}  # size and last change of each file, and checksum of its scores
        self.held: dict[str, list[Part]] = {}

    def scan(self, function: Callable[[Part], Any]) -> Iterator[Any]:
        """Make a pass."""
        if self.inputs:
            for source in self.sources:
                yield from map(function, self.held.get(source.name) or self.reading.read(source))
            return
        rows = 0
        with bar("counting", len(self.sources), self.progress) as tell:
            for number, source in enumerate(self.sources):
                facts, checksum, held = os.stat(source.path), 0, self.held.setdefault(source.name, [])
                for part in self.reading.read(source):
                    checksum = crc32(np.ascontiguousarray(part.score).data, checksum)
                    rows += len(part.score)
                    if rows <= _HELD:
                        held.append(part)
                    tell(number, f"{rows:,} rows")
                    yield function(part)
                self.inputs[source.name] = [facts.st_size, facts.st_mtime_ns, checksum]
                if rows > _HELD:
                    self.held.clear()

    def write(self, source: Source, manifest: Mapping[str, Any], path: Path) -> None:
        """Write the rows of a file that are kept."""

        def kept() -> Iterator[tuple[Batch, Array, dict[str, Array]]]:
            parts = kept_rows(manifest, self.reading.read(source, rows=True))
            yield from (part for part in parts if part[1].any())
            facts = os.stat(source.path)
            if [facts.st_size, facts.st_mtime_ns] != self.inputs[source.name][:2]:
                raise InputError(f"{source.path} has changed since it was counted; start again")

        source.write(path, kept(), manifest["weights"])


def check_sizes(n: Any, budget: float | None, shares: Any, at_most: bool, group: str | None) -> dict[str, Any]:
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
    sizes = {"n": n, "budget": budget, "shares": shares, "at_most": at_most}
    for name in [name for name, given in sizes.items() if isinstance(given, Mapping)]:
        sizes[name] = type(sizes[name])({str(label): value for label, value in sizes[name].items()})
    return sizes


def check_added(where: str, columns: Iterable[str], kind: str, weights: bool) -> None:
    """Raise if columns that are to be added are there already; warn if those of an earlier selection are copied."""
    for name in sorted({*columns} & {*ADDED[: 3 if weights and kind == "weight" else 2]})[:1]:
        what = f"{where} has a column {name!r} already, of an earlier selection?"
        if weights:
            raise InputError(f"{what} rename it first")
        warnings.warn(f"{what} it is copied as it is; this selection has other weights", stacklevel=3)


def _warn_of_seed(where: Any, sources: Sequence[Source], reading: Reading) -> None:
    """Warn if the rows are those that another score kept by the same uniforms, which are then not uniform."""
    is_folder = isinstance(where, str | os.PathLike) and os.path.isdir(where)
    folder = os.path.abspath(where if is_folder else os.path.dirname(sources[0].path))
    with suppress(InputError, OSError):
        before = read_manifest(folder)
        same = {name for name in ("id", "seed", "column", "beta") if before.get(name) == getattr(reading, name)}
        if reading.id is not None and {"id", "seed"} <= same and len(same) < 4:
            what = f"was selected by column {before.get('column')!r} with the same seed"
            warnings.warn(f"{folder} {what}; by another score, give another seed=", stacklevel=3)


def divide(labels: list[str], costs: Array, n: Any, budget: float | None, shares: Any, at_most: bool) -> Array:
    """Return what to keep of each group, given what its rows with r > 0, and below that those with r = 0, cost."""
    available, total = costs[0], costs.sum(0)
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


def _sort_labels(parts: Iterable[list[str]]) -> dict[str, int]:
    """Return the numbers of all labels, in the order in which `obrs.select` has them."""
    labels = {label for part in parts for label in part}
    integers = all(label.removeprefix("-").isdecimal() for label in labels)
    return {label: number for number, label in enumerate(sorted(labels, key=int if integers else None))}


def decide(
    parts: Scan, where: str, reading: Reading, sizes: dict[str, Any], *, weights: bool, repeats: bool
) -> dict[str, Any]:
    """Find which rows are kept, in two passes; groups, and many rows, take one more.

    Returns:
        The manifest, as JSON has it: what was asked for and chosen, all that is needed to keep the same rows again.
    """
    labels = {"": 0} if reading.group is None else _sort_labels(parts(lambda part: part.labels))

    def scan(function: Callable[[Part], Any]) -> Iterable[Any]:
        return parts(lambda part: function(part.number(labels)))

    survey = Survey(scan, where, reading, counts := KeyCounts(len(labels)))
    ids, times = np.unique(survey.sample.columns[0], return_counts=True)
    if (id := reading.id) is not None and np.any(times > 1) and not repeats:
        share, same = 100 * (1 - len(ids) / times.sum()), ids[np.argmax(times)]
        cells = scan(lambda part: part.batch.columns[id].filter(to_arrow(part.rows.id == same)))
        example = next(some[0] for some in cells if len(some))
        why = f"about {share:.2g} % of the rows have the id of another, as {example}; make ids unique, or give"
        raise InputError(why, give={"repeats": True})
    need = divide([*labels], counts.costs(), **sizes)
    threshold, (kept, units) = find_threshold(counts, need, lambda call: scan(lambda part: call(part.rows)))
    if not kept:
        raise InputError(f"nothing is kept: the first row costs more than {need.sum()} units; ask for more")
    ends = zip(labels, threshold.key.tolist(), threshold.id.tolist(), strict=True)
    facts = {"rows": survey.rows, "bad": survey.bad, "kept": kept, "units": reading.cost and units}
    facts |= {"cut": {label: [None if key == inf else key, id] for label, key, id in ends}}
    facts |= {"weights": ADDED[: (3 if reading.kind == "weight" else 2) * weights]}
    manifest: dict[str, Any] = {"version": version("obrs"), **vars(reading), **sizes, **facts}
    return dict(json.loads(json.dumps(manifest, default=np.generic.item)))


def kept_rows(manifest: Mapping[str, Any], parts: Iterable[Part]) -> Iterator[tuple[Batch, Array, dict[str, Array]]]:
    """Yield batches, which of their rows to keep, and the columns to add."""
    keys, ids = zip(*manifest["cut"].values(), strict=True)
    threshold = Threshold(np.array([inf if key is None else key for key in keys]), np.array(ids, np.int64))
    labels = {label: number for number, label in enumerate(manifest["cut"])}
    for part in parts:
        rows = part.number(labels).rows
        keep = threshold.keeps(rows)
        log_ratio, end = part.log_ratio[keep], threshold.key[rows.group[keep]]
        weights = np.exp(np.minimum(log_ratio + end, 0.0)), np.maximum(log_ratio, -end), np.sign(part.score[keep])
        yield part.batch, keep, dict(zip(manifest["weights"], weights, strict=False))


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
    column: str | None = None,
    kind: str | None = None,
    beta: float | None = None,
    id: str | None = None,
    cost: str | None = None,
    group: str | None = None,
    shares: Mapping[str, float] | str | None = None,
    at_most: bool = False,
    weights: bool = False,
    seed: int = 0,
    skip_bad: bool = False,
    repeats: bool = False,
    delimiter: str | None = None,
    header: bool = True,
    progress: bool | None = None,
) -> Selected:
    """Keep exactly n rows of files that may be larger than memory, or 1 in K, with all their columns.

    The rows kept of a file go to a file of its name, in their order. The folder appears when everything is in it, and
    beside it a file `….manifest.json` that says how the rows were chosen. A run that was killed or failed goes on with
    the files that are not done if it is started again.

    Args:
        where: A folder, a glob, a file or a list of files: parquet, csv, tsv or jsonl; text also as .gz or .zst.
        n: Rows to keep; with `cost` units, with `group` of each group or by label, with `shares` in all.
        out: The folder to make, or for a single file a file. It must not lie inside the folder that is read. None finds
            where to cut and writes nothing, as for `obrs.sql.condition`.
        budget: Keep 1 row in K instead: of N rows floor(N / K), of N units as many.
        column: The scores; by default the only column that can be meant.
        kind: What they are, one of `KINDS`; by default what the column is called.
        beta: The temperature of a reward.
        id: The column of ids, integers or text: the same ids and seed keep the same rows, however they are spread over
            files. By default the name of a file, below the folder that is given, and the number of a row in it.
        cost: The column of what rows cost, whole numbers such as tokens: n is then in units, and taking stops at the
            first row that does not fit.
        group: The column of labels; each group has its own threshold.
        shares: The shares of the groups among the kept rows, by label, or "equal". Of a `Counter` of real labels, a
            label that it does not have has share 0.
        at_most: Keep all rows of a group that has too few, instead of stopping.
        weights: Add the columns `inclusion_probability` and `log_weight`: with these weights, sums over the kept rows
            are without bias sums over all rows with weights r. For a kind of weight also `sign`.
        seed: Integer with `0 <= seed < 2**64`. Rows that were selected before, by another score, need another seed.
        skip_bad: Leave out rows whose score is empty, NaN or +inf, and count them, instead of stopping.
        repeats: Allow ids that are repeated. Rows of one id share their uniform.
        delimiter, header: Between the cells of a csv; whether its first line names the columns, which are called 0, 1,
            … otherwise.
        progress: True or False; None shows a bar on a terminal.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> rows = [f"{i},{i % 7}\\n" for i in range(700)]
        >>> _ = (folder / "a.csv").write_text("id,log_ratio\\n" + "".join(rows))
        >>> select(folder / "a.csv", 70, id="id", out=folder / "kept.csv").kept
        70
    """
    sizes = check_sizes(n, budget, shares, at_most, group)
    target = Path(out or "")
    if out is not None and not target.name:
        raise InputError(f"rows go to a file or a folder that has a name, got {str(out)!r}")
    sources = find_sources(where, delimiter=delimiter, header=header)
    if out is not None and sources[0].format in ("npy", "npz"):
        raise InputError(f"{sources[0].path}: of arrays, take x[obrs.select(log_ratio, n)] in Python")
    columns = {"beta": beta, "id": id, "cost": cost, "group": group}
    reading = Reading.find(sources, column, kind, **columns, skip_bad=skip_bad, seed=check_seed(seed))
    check_added(sources[0].path, [name for source in sources for name in source.columns], reading.kind, weights)
    _warn_of_seed(where, sources, reading)
    files = _Files(sources, reading, progress)
    work = target.with_name(f".{target.name}.obrs") if out is not None else target
    is_file = len(sources) == 1 and target.suffix and not target.is_dir() and not str(out).endswith("/")
    if out is not None:
        given = [where] if isinstance(where, str | os.PathLike) else where
        check_not_input(target, *given, *(source.path for source in sources))
        check_out(target if is_file else work / MANIFEST if work.exists() else work)
        if is_file and format_of(target) != sources[0].format:
            raise InputError(f"rows keep their format: out is a .{sources[0].format} file or a folder/, got {out}")
        full = target.is_file() or (target.is_dir() and any(target.iterdir()))
        if full and not is_file and not os.path.exists(f"{target}{MANIFEST}"):
            raise InputError(f"{target} is a file, or not empty; choose a folder that is empty or not there")
    chosen = decide(files.scan, sources[0].path, reading, sizes, weights=weights, repeats=repeats)
    manifest = {"inputs": files.inputs, "header": header, **chosen}
    if out is None:
        return Selected(None, manifest)
    if is_file:
        files.write(sources[0], manifest, target)
        return Selected(target, manifest)
    if target.is_dir() and any(target.iterdir()):
        _check_same(target, target, manifest)
        for name in [name for name in files.inputs if not (target / name).exists()]:
            raise InputError(f"{target} had a file {name}, which is gone; choose another output, or delete it first")
        return Selected(target, manifest, new=False)
    with _hold(work):
        if any(work.iterdir()):  # a run that was killed at its end has moved its manifest already
            before = work / MANIFEST
            _check_same(work, before if before.exists() else Path(f"{target}{MANIFEST}"), manifest)
        with replacing(work / MANIFEST) as file:
            file.write((json.dumps(manifest, indent=2) + "\n").encode())
        with bar("writing", len(sources), progress) as tell:
            for number, source in enumerate(sources):
                if not (work / source.name).exists():
                    files.write(source, manifest, work / source.name)
                tell(number + 1)
        os.replace(work / MANIFEST, f"{target}{MANIFEST}")
        os.replace(work, target)  # which is not there, or empty
    return Selected(target, manifest)


@contextmanager
def _hold(work: Path) -> Iterator[None]:
    """Hold the hidden folder in which files are written until all of them are whole."""
    work.mkdir(exist_ok=True)
    handle, ours = os.open(work, os.O_RDONLY), False
    try:
        if os.name == "posix":
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it ends with the process, however that ends
        ours = True
        for half in work.rglob(".obrs-*.tmp"):  # what a run was writing when it was killed
            half.unlink()
        yield
    except BlockingIOError as error:
        raise InputError(f"another run is writing {work} at the moment") from error
    except (OSError, KeyboardInterrupt) as error:
        goes_on = "the same command goes on with the files that are not done"
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(f"stopped; {goes_on}") from error
        raise OSError(error.errno, f"{error.strerror}; {goes_on}", error.filename) from error
    finally:
        if ours and work.exists() and {path.name for path in work.iterdir()} <= {MANIFEST}:
            shutil.rmtree(work)  # no file is whole
        os.close(handle)


def read_manifest(where: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the manifest beside a folder, or the one that is this file."""
    path = f"{Path(where)}{MANIFEST}" if os.path.isdir(where) else where
    try:
        manifest = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError, FileNotFoundError):
        manifest = None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("cut"), dict):
        raise InputError(f"{path} is no manifest of a selection")
    return manifest


def _check_same(folder: Path, where: Path, manifest: Mapping[str, Any]) -> None:
    """Raise if a folder has rows that were chosen otherwise, or of other files, by the manifest that is there."""
    before = read_manifest(where)
    old, new = before.get("inputs") or {}, manifest["inputs"]
    files = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    what = [f"{name} {'is new' if name not in old else 'has changed' if name in new else 'is gone'}" for name in files]
    for key in [key for key in manifest if key not in ("version", "inputs") and before.get(key) != manifest[key]]:
        what.append(f"{key} was {before.get(key)!r:.60} and is {manifest[key]!r:.60} now")
    if what:
        raise InputError(f"{folder} has rows of another run: {what[0]}; choose another output, or delete it first")


def read(where: Paths, *, delimiter: str | None = None, header: bool = True, **columns: Any) -> Array:
    """Return the log-ratios of a file, a glob or a folder of scores, in memory.

    Arguments are those of `select`: delimiter, header, column, kind, beta, skip_bad; npy and npz are read, too.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "scores.csv")
        >>> _ = path.write_text("id,logit\\n1,0.5\\n2,-1.5\\n")
        >>> read(path)
        array([ 0.5, -1.5])
    """
    sources = find_sources(where, delimiter=delimiter, header=header)
    reading = Reading.find(sources, **columns)
    batch = read_columns(sources, [reading.column])
    scores = batch.numbers(reading.column, skip_bad=reading.skip_bad)
    return reading.log_ratio(batch, scores[~np.isnan(scores)])


class Profiles(NamedTuple):
    """Profiles of files."""

    reading: Reading
    rows: int  # with a score
    bad: int  # without
    whole: Profile  # of all rows, counted in cells of 1/256 nat if they are more than 2**18
    sample: Profile  # of 2**17 to 2**18 rows, or of all if they are fewer

    @classmethod
    def build(cls, where: str, reading: Reading, survey: Survey) -> "Profiles":
        """Return the profiles of rows of which log-ratios were counted.

        The mean ratio of a cell is exact, and log r varies by at most 1/256 in it: KL is off by less than 1e-5.
        """
        cell, count, ratio = survey.counts.total()
        if not len(cell):
            raise InputError(f"{where}, column {reading.column!r}: no row has r > 0")
        sample = Profile(to_log_ratio(survey.sample.columns[1], reading.kind, beta=reading.beta))
        if survey.sample.limit == 2**64 - 1:
            return cls(reading, survey.rows, survey.bad, sample, sample)
        ratios, counts = cell * _WIDTH + np.log(ratio / count), survey.rows - count.sum()
        whole = Profile(np.append(ratios, -inf), np.append(count, counts))
        return cls(reading, survey.rows, survey.bad, whole, sample)

    def plan(self, budgets: Iterable[float], *, n: int | None = None, recall: float = 0.9) -> Plan:
        """Return what each budget buys: numbers of all rows, with the intervals of the sample."""
        plan = self.sample.plan(budgets, n=n, recall=recall)
        if self.whole is self.sample:
            return plan
        for row, exact in zip(plan, self.whole.plan([row["budget"] for row in plan], n=n, recall=recall), strict=True):
            for key in [key for key in row if f"{key}_low" in row]:
                ends = min(row[f"{key}_low"], exact[key]), max(row[f"{key}_high"], exact[key])
                row[key], row[f"{key}_low"], row[f"{key}_high"] = exact[key], *ends
            row["proposals"] = exact["proposals"]
        return plan


def load_profiles(
    where: Paths, *, delimiter: str | None = None, header: bool = True, progress: bool | None = None, **columns: Any
) -> Profiles:
    """Count the log-ratios of all rows of files, however many there are; arguments as for `select`."""
    sources = find_sources(where, delimiter=delimiter, header=header)
    reading = Reading.find(sources, **columns)
    survey = Survey(_Files(sources, reading, progress).scan, sources[0].path, reading, Counts())
    return Profiles.build(sources[0].path, reading, survey)


def plan(
    where: Paths, budgets: Iterable[float] = (1.5, 2.0, 4.0, 8.0), *, n: int | None = None, **options: Any
) -> Plan:
    """Show what each budget buys on files that may be larger than memory; only the scores are read.

    The numbers are of all rows, counted in cells of 1/256 nat if they are more than 2**18, which changes KL by less
    than 1e-5. The intervals are those of a sample of 2**17 to 2**18 rows, so they are wider than need be.

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
    return load_profiles(where, **options).plan(budgets, n=n)
