"""Exactly n rows of files that may be larger than memory, with all their columns; and what each budget buys.

The rows are those of `obrs.select(..., design="priority", ids=...)`: the n smallest keys log u(id) - log r, which do
not depend on how the rows are spread over files. One or two looks at the columns that decide find where to cut, and one
more pass writes the rows before the cut (`_keys`). Memory does not grow with the rows.
"""

import json
import os
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from ._checks import check_budget, check_count, check_ratios, check_seed
from ._files import check_not_input, check_out, replacing
from ._keys import Cut, Look, RatioCounts, Rows, Sample
from ._progress import bar
from .critics import check_scores, to_log_ratio
from .draws import priority_key
from .errors import InputError, ObrsError
from .groups import counts_of, shares_of, sizes_of
from .profile import Plan, Profile
from .scores import Batch, Paths, Source, find_sources, format_of, read_columns

__all__ = ["KINDS", "MANIFEST", "Part", "Profiles", "Reading", "Selected", "Sizes", "Survey", "find_cut", "kept_rows"]
__all__ += ["load_profiles", "plan", "read", "read_manifest", "select"]

Array = np.ndarray[Any, Any]

KINDS = ("log_ratio", "logit", "probability", "reward", "weight")
"""What a column of scores may hold; a column with one of these names needs no `kind`."""
MANIFEST = ".manifest.json"
"""What is added to the name of a folder of kept rows for the file beside it that says how they were chosen.

Inside the folder, Polars and `datasets` would take it for a file of rows.
"""


class Part(NamedTuple):
    """A batch, which of its rows have a score, and of these the scores, log-ratios and what decides on them."""

    batch: Batch
    good: Array
    score: Array
    log_ratio: Array
    rows: Rows


@dataclass(frozen=True)
class Reading:
    """Which columns decide, and what they mean.

    Args:
        column: The scores.
        kind: What they are, one of `KINDS`; a weight may have either sign, and r is its size.
        beta: The temperature of a reward.
        id: The ids, or None for the name of the file and the number of the row.
        cost: What a row costs, or None for 1.
        group: The labels, or None for one pool.
        skip_bad: Leave out rows whose score is no number, instead of stopping.
        seed: Of the uniforms in the keys.
    """

    column: str
    kind: str
    beta: float | None = None
    id: str | None = None
    cost: str | None = None
    group: str | None = None
    skip_bad: bool = False
    seed: int = 0

    @classmethod
    def find(cls, sources: Sequence[Source], column: str | None, kind: str | None, **more: Any) -> "Reading":
        """Return which columns decide; the one of scores, and what it holds, if there is only one choice."""
        known, where = sources[0].columns, sources[0].shown
        if column is None:
            free = [name for name in known if name not in (more.get("id"), more.get("cost"), more.get("group"))]
            named = [name for name in known if name in (*KINDS, "score")]
            choices = ([name for name in known if name == (kind or "log_ratio")], named, free)
            column = next((choice[0] for choice in choices if len(choice) == 1), None)
        if column is None:
            raise InputError(f"{where}: which column has the scores? --column (column=) is one of {', '.join(known)}")
        sources[0].check_columns([column])
        kind = kind or (column if column in KINDS else None)
        if kind not in KINDS:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in KINDS[:-1])
            hint = f"say one of {flags} (kind=)" if kind is None else f"kind is one of {', '.join(KINDS)}, got {kind!r}"
            raise InputError(f"{where}: what are the numbers in column {column!r}? {hint}")
        if (kind == "reward") != (more.get("beta") is not None):
            raise InputError("a reward needs --beta (beta=), its temperature, and no other kind of score has one")
        reading = cls(column, kind, **more)
        for source in sources:
            source.check_columns(reading.names)
        return reading

    @property
    def names(self) -> list[str]:
        """The columns to read."""
        return [name for name in (self.column, self.id, self.cost, self.group) if name is not None]

    def log_ratio(self, batch: Batch | None, scores: Array) -> Array:
        """Return the log-ratios of scores."""
        try:
            log_ratio = to_log_ratio(scores, self.kind, beta=self.beta)
            check_ratios(log_ratio)
        except ObrsError as error:
            raise error if batch is None else batch.error(None, self.column, str(error)) from error
        return np.asarray(log_ratio)

    def read(
        self,
        sources: Iterable[Source],
        labels: dict[str, int],
        before: int = 0,
        *,
        new: bool = False,
        rows: bool = False,
    ) -> Iterator[Part]:
        """Read what decides, batch by batch.

        Args:
            sources: The files.
            labels: The number of each group.
            before: How many rows come before these.
            new: Whether there may be other groups, which get the next numbers.
            rows: Whether the rows will be written.
        """
        for source in sources:
            for batch in source.batches(self.names, rows=rows):
                score, place = batch.numbers(self.column, skip_bad=self.skip_bad), np.arange(len(batch)) + before
                group, cost = np.broadcast_to(0, len(batch)), np.broadcast_to(1, len(batch))
                if self.group is not None:
                    codes, names = batch.labels(self.group)
                    if not (new or labels.keys() >= {*names}):
                        raise InputError("a group is new since the first look: rows have changed; start again")
                    group = np.array([labels.setdefault(name, len(labels)) for name in names], np.int64)[codes]
                if self.cost is not None:
                    cost = batch.numbers(self.cost)
                    wrong = ~((cost >= 0) & (cost < 2**32) & (cost == np.floor(cost)))
                    if wrong.any():
                        raise batch.error(int(np.argmax(wrong)), self.cost, "a cost is a whole number, such as tokens")
                    cost = cost.astype(np.int64)
                rest = Rows(score, batch.ids(self.id), place, group, cost)
                good = ~np.isnan(score)
                rest = rest if good.all() else rest.take(good)
                log_ratio = self.log_ratio(batch, rest.key)
                key = priority_key(log_ratio, rest.id, seed=self.seed)
                yield Part(batch, good, rest.key, log_ratio, rest._replace(key=key))
                before += len(batch)


@dataclass(frozen=True)
class Sizes:
    """How much to keep: `n`, or 1 in `budget`; of each group, or in all with `shares` of the groups."""

    n: Any
    budget: float | None = None
    shares: Any = None
    at_most: bool = False

    def check(self, group: str | None) -> "Sizes":
        """Return these sizes, unless it is not clear how much to keep, or of what."""
        if (self.n is None) == (self.budget is None):
            raise InputError("say how many rows to keep: either n or budget")
        if group is None and (self.shares is not None or isinstance(self.n, Mapping)):
            raise InputError("shares, and n by label, need to know the label of each row: give group")
        if isinstance(self.shares, str) and self.shares != "equal":
            raise InputError(f"shares is a number for each label, or 'equal', got {self.shares!r}")
        if self.budget is not None:
            check_budget(self.budget)
        elif not isinstance(self.n, Mapping):
            check_count(self.n, "n")
        return self

    def divide(self, labels: list[str], available: Array, zero: Array) -> Array:
        """Return what to keep of each group, given what its rows with r > 0 and with r = 0 cost."""
        are_integers = all(label.removeprefix("-").isdecimal() for label in labels)
        order = sorted(range(len(labels)), key=lambda i: int(labels[i]) if are_integers else labels[i])
        names, total, need = tuple(labels[i] for i in order), available + zero, np.empty(len(labels), np.int64)
        if self.shares is not None:
            n = self.n if self.budget is None else int(total.sum() / self.budget)
            shares = dict.fromkeys(names, 1.0) if isinstance(self.shares, str) else _by_text(self.shares)
            if isinstance(self.shares, Counter):  # of real samples: what they do not have is not kept
                shares = {**dict.fromkeys(names, 0), **shares}
            need[order] = sizes_of(n, shares_of(shares, names))
        elif self.budget is not None:
            need[:] = total / self.budget  # rounded down
        else:
            need[order] = counts_of(_by_text(self.n), names) if isinstance(self.n, Mapping) else self.n
        for short in np.flatnonzero(need > available)[:1]:
            if not self.at_most:
                where = f" of group {labels[short]!r}" if labels[short] else ""
                few = f"{available[short]} of {total[short]} have r > 0"
                raise InputError(f"cannot keep {need[short]}{where}: {few}; ask for fewer, or --at-most (at_most=True)")
        if not np.any(np.minimum(need, available)):
            raise InputError(f"nothing would be kept of {total.sum()}; lower the budget, or ask for more")
        return np.minimum(need, available)


def _by_text(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(label): value for label, value in values.items()}


class Survey:
    """What a look learns of rows, added up over batches, files and workers.

    Args:
        labels: The numbers of the groups that are known.
        counts: Where keys or log-ratios are counted.

    Attributes:
        rows, bad: Rows with and without a score.
        sample: Ids and scores of some rows.
        inputs: Size and last change of each file, checksum of its scores, and how many rows come before, by its name.
    """

    def __init__(self, labels: dict[str, int], counts: Look | RatioCounts) -> None:
        self.labels, self.counts, self.sample = labels, counts, Sample()
        self.rows = self.bad = 0
        self.ends = [inf, -inf]
        self.inputs: dict[str, list[int]] = {}

    def add(self, part: Part) -> None:
        """Count the rows of a batch."""
        if isinstance(self.counts, Look):
            self.counts.add(part.rows)
        else:
            self.counts.add(part.log_ratio)
        self.sample.add(part.rows.id, part.score)
        self.rows, self.bad = self.rows + len(part.score), self.bad + len(part.batch) - len(part.score)
        self.ends = [part.score.min(initial=self.ends[0]), part.score.max(initial=self.ends[1])]

    def merge(self, other: "Survey") -> None:
        """Add what was learned of other rows, whose groups may have other numbers."""
        groups = [self.labels.setdefault(label, len(self.labels)) for label in other.labels]
        self.counts.merge(other.counts, np.array(groups, np.int64))  # type: ignore[arg-type]
        self.sample.merge(other.sample)
        self.rows, self.bad = self.rows + other.rows, self.bad + other.bad
        self.ends = [min(self.ends[0], other.ends[0]), max(self.ends[1], other.ends[1])]

    def read(self, sources: list[Source], reading: Reading, progress: bool | None) -> "Survey":
        """Count the rows of files, and check them."""
        with bar("looking", len(sources), progress) as tell:
            for number, source in enumerate(sources):
                facts, checksum, before = os.stat(source.path), 0, self.rows + self.bad
                for part in reading.read([source], self.labels, before, new=True):
                    self.add(part)
                    checksum = crc32(np.ascontiguousarray(part.score).data, checksum)
                    tell(number, f"{self.rows + self.bad:,} rows")
                self.inputs[source.name] = [facts.st_size, facts.st_mtime_ns, checksum, before]
        self.check(sources[0].shown, reading)
        return self

    def check(self, where: str, reading: Reading) -> None:
        """Raise if scores are all alike, and warn if they are hardly of their kind."""
        where = f"{where}, column {reading.column!r}"
        if not self.rows:
            raise InputError(f"{where}: no row has a score")
        try:
            scores = self.sample.columns[2]
            doubt = check_scores(scores if self.sample.complete else np.append(scores, self.ends), reading.kind)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        if doubt:
            warnings.warn(f"{where} read as {reading.kind}: {doubt}", stacklevel=5)

    def check_repeats(self, find_places: Callable[[int], list[str]]) -> None:
        """Raise if rows of the sample have one id; a function of it finds where."""
        ids, times = np.unique(self.sample.columns[1], return_counts=True)
        if np.any(times > 1):
            share = f"about {100 * (1 - len(ids) / times.sum()):.2g} % of the rows have the id of another"
            places = " and ".join(find_places(int(ids[np.argmax(times)]))[:2])
            raise InputError(f"{share}, as {places}; make ids unique, or give --repeats (repeats=True)")


def find_cut(survey: Survey, sizes: Sizes, count: Callable[[Look], Look]) -> tuple[Cut, int, Array]:
    """Find where to cut, in as many looks as it takes: one if the rows that matter are few, nearly always two.

    Args:
        survey: Of the first look.
        sizes: How much to keep.
        count: Counts all rows in a narrower look.

    Returns:
        The cut, how much is kept, and the places of the rows before it that the last look holds.
    """
    look, labels = survey.counts, list(survey.labels)
    assert isinstance(look, Look)
    need = sizes.divide(labels, *look.sums(len(labels)))
    kept = int(need.sum())
    while look.held is None:
        look, need = look.narrow(need)
        look = count(look)
    cut, places = look.cut(need)
    if look is survey.counts and not len(places):
        raise InputError(f"nothing is kept: the first row costs more than {need.sum()} units; ask for more")
    return cut, kept, places


def kept_rows(
    manifest: Mapping[str, Any], source: Source, before: int = 0, places: Array | None = None
) -> Iterator[tuple[Batch, Array, dict[str, Array]]]:
    """Yield the batches of a file, which rows to keep, and the columns to add.

    Args:
        manifest: Of the selection.
        source: The file.
        before: How many rows come before it.
        places: Of the rows to keep, if they are known: then no key needs to be computed again.
    """
    reading = Reading(**{name: manifest[name] for name in Reading.__dataclass_fields__})
    if places is not None and not manifest["weights"]:
        for batch in source.batches([reading.column], rows=True):
            first, last = np.searchsorted(places, [before, before + len(batch)])
            mask = np.zeros(len(batch), bool)
            mask[places[first:last] - before] = True
            yield batch, mask, {}
            before += len(batch)
        return
    labels = {label: number for number, label in enumerate(manifest["cut"])}
    key, id, place = zip(*manifest["cut"].values(), strict=True)
    cut = Cut(np.array([inf if end is None else end for end in key]), np.array(id), np.array(place))
    for part in reading.read([source], labels, before, rows=True):
        keep = cut.keeps(part.rows)
        mask = part.good.copy()
        mask[mask] = keep
        log_ratio, end = part.log_ratio[keep], cut.key[part.rows.group[keep]]
        probability = np.exp(np.minimum(log_ratio + end, 0.0))
        weights = np.maximum(log_ratio, -end), np.sign(part.score[keep])
        yield part.batch, mask, dict(zip(_added(manifest), (probability, *weights), strict=False))


def _added(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the columns that weights add to the kept rows."""
    names = ("inclusion_probability", "log_weight", "sign")[: 3 if manifest["kind"] == "weight" else 2]
    return names if manifest["weights"] else ()


@dataclass(frozen=True)
class Selected:
    """What `select` has written, or on Ray chosen.

    Args:
        out: The folder, or the file; on Ray the dataset; None if nothing was written.
        kept: Rows that were kept; with a cost, None as long as nothing is written.
        manifest: What was asked for, and where each group was cut; `obrs.sql.condition` makes a WHERE clause of it.
        units: What the kept rows cost, if they have a cost; as long as nothing is written, at most.
        new: Whether this call wrote them; if not, they were there already.
    """

    out: Any
    kept: int | None
    manifest: Mapping[str, Any] = field(repr=False)
    units: int | None = None
    new: bool = True

    @classmethod
    def build(cls, reading: Reading, survey: Survey, cut: Cut, kept: int, asked: Mapping[str, Any]) -> "Selected":
        """Return what was asked for and found, as JSON has it: all that is needed to keep the same rows again."""
        ends = zip(survey.labels, *(column.tolist() for column in cut), strict=True)
        cuts = {label: [None if key == inf else key, *row] for label, key, *row in ends}
        facts = {"rows": survey.rows, "bad": survey.bad, "inputs": survey.inputs, "cut": cuts}
        manifest = json.loads(json.dumps({"version": version("obrs"), **vars(reading), **asked, **facts}))
        return cls(None, *((kept, manifest) if reading.cost is None else (None, manifest, kept)))

    @property
    def rows(self) -> int:
        """Rows that were read; those without a score are not counted."""
        return int(self.manifest["rows"])

    @property
    def bad(self) -> int:
        """Rows that were left out because they have no score."""
        return int(self.manifest["bad"])

    @property
    def threshold(self) -> float | dict[str, float]:
        """The key of the first row that was not kept, by label if there are groups.

        A row was kept with probability min(r exp(threshold), 1), and max(log r, -threshold) is its log-weight.
        """
        keys = {label: inf if key is None else float(key) for label, (key, *_) in self.manifest["cut"].items()}
        return keys if self.manifest["group"] else keys[""]

    def __len__(self) -> int:
        return self.kept or 0

    def __repr__(self) -> str:
        each = list(self.threshold.values()) if isinstance(self.threshold, dict) else [self.threshold]
        ends = f"{each[0]:.4g}" if len(each) == 1 else f"{min(each):.4g} to {max(each):.4g} in {len(each)} groups"
        more = [f"{getattr(self, name):,} {name}" for name in ("bad", "units") if getattr(self, name)]
        rows = ", ".join([f"{'some' if self.kept is None else f'{self.kept:,}'} of {self.rows:,} rows", *more])
        where = f"{'in' if self.new else 'already in'} {self.out}" if isinstance(self.out, Path) else "not written"
        return f"Selected({rows}, threshold {ends}; {where})"


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
    format: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
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
        format, delimiter, header: Of files whose extension says nothing; between the cells of a csv; whether its first
            line names the columns, which are called 0, 1, … otherwise.
        progress: True or False; None shows a bar on a terminal.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "scores").mkdir()
        >>> rows = [f"{i},{i % 7}\\n" for i in range(700)]
        >>> _ = (folder / "scores" / "a.csv").write_text("id,log_ratio\\n" + "".join(rows))
        >>> done = select(folder / "scores", 70, id="id", out=folder / "kept")
        >>> done.rows, done.kept, sorted(os.listdir(done.out))
        (700, 70, ['a.csv'])
    """
    sizes = Sizes(n, budget, shares, at_most).check(group)
    sources = find_sources(where, format=format, delimiter=delimiter, header=header)
    columns = {"id": id, "cost": cost, "group": group}
    reading = Reading.find(sources, column, kind, beta=beta, **columns, skip_bad=skip_bad, seed=check_seed(seed))
    search = _Search(sources, reading, sizes, weights, repeats, progress)
    if out is None:
        return search.run()[0]
    roots = [where] if isinstance(where, str | os.PathLike) else where
    check_not_input(out, *roots, *(source.path for source in sources))
    target = Path(out)
    if os.fspath(out) == "-":
        raise InputError("out is a file or a folder; only the command line writes to standard output")
    if len(sources) == 1 and target.suffix and not os.fspath(out).endswith(("/", os.sep)) and not target.is_dir():
        if format_of(os.fspath(out)) != sources[0].format:
            raise InputError(f"rows keep their format: out is a .{sources[0].format} file or a folder/, got {out}")
        check_out(out)
        done, places = search.run()
        _write_rows(done.manifest, sources[0], target, places)
        return _count_rows(replace(done, out=target), [replace(sources[0], path=os.fspath(out))])
    with _hold(target) as work:
        done, places = search.run()
        new = _begin(target, work, done.manifest)
        with bar("writing", len(sources), progress) as tell:
            for number, source in enumerate(sources if new else []):
                if not (work / source.name).exists():
                    _write_rows(done.manifest, source, work / source.name, places)
                tell(number + 1)
        if new:
            _finish(target, work, done.manifest)
    written = [replace(source, path=os.fspath(target / source.name)) for source in sources]
    return _count_rows(replace(done, out=target, new=new), written)


class _Search(NamedTuple):
    """Where to cut files: what was asked for."""

    sources: list[Source]
    reading: Reading
    sizes: Sizes
    weights: bool
    repeats: bool
    progress: bool | None

    def run(self) -> tuple[Selected, Array | None]:
        """Return what is kept, of which nothing is written, and the places of these rows if they are few."""
        whole = self.reading.group is None and not isinstance(self.sizes.n, Mapping)
        survey = Survey({"": 0} if self.reading.group is None else {}, Look(most=self.sizes.n if whole else None))
        survey.read(self.sources, self.reading, self.progress)
        if not self.repeats:
            survey.check_repeats(lambda again: _find_id(self.sources, self.reading.id, again))

        def count(look: Look) -> Look:
            for part in self.reading.read(self.sources, survey.labels):
                look.add(part.rows)
            return look

        cut, kept, places = find_cut(survey, self.sizes, count)
        asked = {**vars(self.sizes), "weights": self.weights, "header": self.sources[0].header}
        return Selected.build(self.reading, survey, cut, kept, asked), places if len(places) == kept else None


def _find_id(sources: Sequence[Source], id: str | None, again: int) -> list[str]:
    """Return the rows that have this id."""
    return [
        f"row {batch.first + row + 1} of {source.shown}"
        for source in sources
        for batch in source.batches([str(id)])
        for row in np.flatnonzero(batch.ids(id) == again).tolist()
    ]


def _write_rows(manifest: Mapping[str, Any], source: Source, path: Path, places: Array | None) -> None:
    """Write the rows of a file that are kept."""
    size, changed, _, before = manifest["inputs"][source.name]
    with source.write(path, _added(manifest)) as write:
        for batch, mask, columns in kept_rows(manifest, source, before, places):
            if mask.any():
                write(batch, mask, columns)
        facts = os.stat(source.path)
        if (facts.st_size, facts.st_mtime_ns) != (size, changed):
            raise InputError(f"{source.shown} has changed since it was looked at; start again")


def _count_rows(done: Selected, written: Sequence[Source]) -> Selected:
    """Return what was selected with what it costs, which is known only from what was written."""
    cost = done.manifest["cost"]
    if cost is None:
        return done
    costs = [batch.numbers(cost) for source in written for batch in source.batches([cost])]
    return replace(done, kept=sum(map(len, costs)), units=int(sum(map(np.sum, costs))))


@contextmanager
def _hold(out: Path) -> Iterator[Path]:
    """Hold the hidden folder beside `out` in which its files are written; it stays if some are whole."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; the rows of several files go to a folder")
    if out.is_dir() and not os.path.exists(f"{out}{MANIFEST}") and any(out.iterdir()):
        raise InputError(f"{out} is not empty; choose a folder that is empty or not there")
    work = out.with_name(f".{out.name}.obrs")
    check_out(work / MANIFEST if work.exists() else work)
    work.mkdir(exist_ok=True)
    handle = os.open(work, os.O_RDONLY)
    try:
        if os.name == "posix":
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it ends with the process, however that ends
        for half in work.rglob(".obrs-*.tmp"):  # what a run was writing when it was killed
            half.unlink()
        yield work
    except BlockingIOError as error:
        raise InputError(f"another run is writing {out} at the moment") from error
    except (OSError, KeyboardInterrupt) as error:
        goes_on = f"{_count_files(work)} files are whole, and the same command goes on with the rest"
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(f"stopped; {goes_on}") from error
        raise OSError(error.errno, f"{error.strerror}; {goes_on}", error.filename) from error
    finally:
        os.close(handle)
        if work.exists() and not _count_files(work):
            shutil.rmtree(work)


def _count_files(work: Path) -> int:
    return sum(path.is_file() and path.name != MANIFEST for path in work.rglob("*"))


def _write_json(path: Path, content: Any) -> None:
    with replacing(path) as file:
        file.write((json.dumps(content, indent=2) + "\n").encode())


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


def _begin(target: Path, work: Path, manifest: Mapping[str, Any]) -> bool:
    """Begin a run, or go on with it; return whether there is anything to do."""
    done = target.is_dir() and any(target.iterdir())
    if done:
        _compare(
            Path(f"{target}{MANIFEST}"), manifest, f"{target} has the result of another run", "choose another folder"
        )
    elif (work / MANIFEST).exists():
        hint = f"finish that one first, or delete {work}"
        _compare(work / MANIFEST, manifest, f"{target} has an unfinished run", hint)
    else:
        _write_json(work / MANIFEST, manifest)
    return not done


def _finish(target: Path, work: Path, manifest: Mapping[str, Any]) -> None:
    """Let the folder appear, and beside it the manifest."""
    if target.is_dir():
        target.rmdir()  # it is empty
    _write_json(Path(f"{target}{MANIFEST}"), manifest)
    os.replace(work, target)
    (target / MANIFEST).unlink()


def _compare(where: Path, manifest: Mapping[str, Any], what: str, hint: str) -> None:
    """Raise if there is another manifest."""
    before = read_manifest(where)
    for key in [key for key in manifest if before.get(key) != manifest[key] and key != "version"]:
        old: Any = before.get(key)
        new = manifest[key]
        if key == "inputs" and isinstance(old, dict):
            name = next(name for name in {**old, **new} if old.get(name) != new.get(name))
            raise InputError(f"{what}: {name} has changed since; {hint}")
        raise InputError(f"{what}: {key} was {old!r:.60} and is {new!r:.60} now; {hint}")


def read(
    where: Paths, *, column: str | None = None, kind: str | None = None, beta: float | None = None, **options: Any
) -> Array:
    """Return the log-ratios of a file, a glob or a folder of scores, in memory.

    Args:
        where, column, kind, beta: As for `select`; npy and npz are read, too.
        options: As for `select`: format, delimiter, header.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "scores.csv")
        >>> _ = path.write_text("id,logit\\n1,0.5\\n2,-1.5\\n")
        >>> read(path)
        array([ 0.5, -1.5])
    """
    sources = find_sources(where, **options)
    reading = Reading.find(sources, column, kind, beta=beta)
    batch = read_columns(sources, [reading.column])
    return reading.log_ratio(batch, batch.numbers(reading.column))


class Profiles(NamedTuple):
    """Profiles of files.

    Attributes:
        reading: Which column has the scores.
        rows, bad: Rows with and without a score.
        whole: Of all rows, counted in cells of 1/256 nat if they are more than 2**18.
        sample: Of 2**17 to 2**18 rows, or of all if they are fewer.
    """

    reading: Reading
    rows: int
    bad: int
    whole: Profile
    sample: Profile

    @classmethod
    def build(cls, where: str, reading: Reading, survey: Survey) -> "Profiles":
        """Return the profiles of rows that were looked at once."""
        assert isinstance(survey.counts, RatioCounts)
        ratios, counts = survey.counts.total()
        if len(ratios) == 1:
            raise InputError(f"{where}, column {reading.column!r}: no row has r > 0")
        sample = Profile(reading.log_ratio(None, survey.sample.columns[2]))
        whole = sample if survey.sample.complete else Profile(ratios, counts)
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
    where: Paths,
    *,
    column: str | None = None,
    kind: str | None = None,
    beta: float | None = None,
    skip_bad: bool = False,
    progress: bool | None = None,
    **options: Any,
) -> Profiles:
    """Look at all rows of files once, however many there are; arguments as for `plan`."""
    sources = find_sources(where, **options)
    reading = Reading.find(sources, column, kind, beta=beta, skip_bad=skip_bad)
    survey = Survey({}, RatioCounts()).read(sources, reading, progress)
    return Profiles.build(sources[0].shown, reading, survey)


def plan(
    where: Paths, budgets: Iterable[float] = (1.5, 2.0, 4.0, 8.0), *, n: int | None = None, **options: Any
) -> Plan:
    """Show what each budget buys on files that may be larger than memory; only the scores are read.

    The numbers are of all rows, counted in cells of 1/256 nat if they are more than 2**18, which changes KL by less
    than 1e-5. The intervals are those of a sample of 2**17 to 2**18 rows, so they are wider than need be.

    Args:
        where: As for `select`; npy and npz are read, too.
        budgets, n: As for `Profile.plan`.
        options: As for `select`: column, kind, beta, skip_bad, format, delimiter, header, progress.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.csv").write_text("log_ratio\\n" + "\\n".join(str(i % 7) for i in range(700)))
        >>> [round(row["rate"], 3) for row in plan(folder, [2, 4], progress=False)]
        [0.5, 0.25]
    """
    return load_profiles(where, **options).plan(budgets, n=n)
