"""Exactly n rows of files that may be larger than memory, with all their columns; and what each budget buys.

The rows are those of `obrs.select(..., design="priority", ids=...)`: the n smallest keys log u(id) - log r, which do
not depend on how the rows are spread over files. One or two passes over the columns that decide find the threshold
(`_keys`), and one more writes the rows below it. Memory does not grow with the rows.
"""

import json
import os
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from ._checks import check_budget, check_count, check_ratios, check_seed
from ._files import check_not_input, check_out, replacing
from ._keys import Counts, KeyCounts, Rows, Sample, Threshold, count_ratios, mean_ratios
from ._progress import bar
from .critics import check_scores, to_log_ratio
from .draws import priority_key
from .errors import InputError, ObrsError
from .groups import counts_of, shares_of, sizes_of
from .profile import Plan, Profile
from .scores import Batch, Paths, Source, find_sources, format_of, read_columns

__all__ = ["KINDS", "MANIFEST", "Part", "Profiles", "Reading", "Selected", "Survey", "check_sizes", "choose"]
__all__ += ["kept_rows", "load_profiles", "plan", "read", "read_manifest", "select"]

Array = np.ndarray[Any, Any]

KINDS = ("log_ratio", "logit", "probability", "reward", "weight")
"""What a column of scores may hold; a column with one of these names needs no `kind`."""
ADDED = ("inclusion_probability", "log_weight", "sign")
"""Columns that a selection with weights adds; the last one for weights of either sign."""
MANIFEST = ".manifest.json"
"""What is added to the name of a folder of kept rows for the file beside it that says how they were chosen.

Inside the folder, Polars and `datasets` would take it for a file of rows.
"""


class Part(NamedTuple):
    """A batch, the mask of its rows that have a score, and the scores, log-ratios and keys of those rows."""

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
    def find(
        cls, sources: Sequence[Source], column: str | None = None, kind: str | None = None, **more: Any
    ) -> "Reading":
        """Return which columns decide; the one of scores, and what it holds, if there is only one choice."""
        known, where = sources[0].columns, sources[0].shown
        if column is None:
            others = (more.get("id"), more.get("cost"), more.get("group"), *ADDED)
            free = [name for name in known if name not in others]
            named = [name for name in known if name in (*KINDS, "score")]
            choices = ([name for name in known if name == (kind or "log_ratio")], named, free)
            column = next((choice[0] for choice in choices if len(choice) == 1), None)
        if column is None:
            why = f"{where}: which column has the scores? one of {', '.join(known)}; give"
            raise InputError(why, give={"column": None})
        sources[0].check_columns([column])
        kind = kind or (column if column in KINDS else None)
        if kind not in KINDS:
            got = "" if kind is None else f", not {kind!r}"
            why = f"{where}: what are the numbers in column {column!r}? one of {', '.join(KINDS)}{got}; give"
            raise InputError(why, give={"kind": None})
        if (kind == "reward") != (more.get("beta") is not None):
            raise InputError("a reward has a temperature, no other kind has: give", give={"beta": None})
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
            log_ratio = to_log_ratio(scores, self.kind, beta=self.beta)
            check_ratios(log_ratio)
        except ObrsError as error:
            raise error.prefixed(f"{batch.source.shown}, column {self.column!r}") from error
        return np.asarray(log_ratio)

    def read(
        self, source: Source, labels: dict[str, int], before: int = 0, *, new: bool = False, rows: bool = False
    ) -> Iterator[Part]:
        """Read what decides, batch by batch.

        Args:
            source: The file.
            labels: The number of each group.
            before: How many rows come before those of the file.
            new: Whether there may be other groups, which get the next numbers.
            rows: Whether the rows will be written.
        """
        for batch in source.batches(self.names, rows=rows):
            score, place = batch.numbers(self.column, skip_bad=self.skip_bad), np.arange(len(batch)) + before
            group, cost = np.broadcast_to(0, len(batch)), np.broadcast_to(1, len(batch))
            if self.group is not None:
                codes, names = batch.labels(self.group)
                if not (new or labels.keys() >= {*names}):
                    raise InputError(f"{source.shown} has a group that it had not before: it has changed; start again")
                group = np.array([labels.setdefault(name, len(labels)) for name in names], np.int64)[codes]
            if self.cost is not None:
                cost = batch.numbers(self.cost)
                wrong = ~((cost >= 0) & (cost < 2**32) & (cost == np.floor(cost)))
                if wrong.any():
                    raise batch.error(int(np.argmax(wrong)), self.cost, "a cost is a whole number, such as tokens")
                cost = cost.astype(np.int64)
            rest, good = Rows(score, batch.ids(self.id), place, group, cost), ~np.isnan(score)
            rest = rest if good.all() else rest.take(good)
            log_ratio = self.log_ratio(batch, rest.key)
            key = priority_key(log_ratio, rest.id, seed=self.seed)
            yield Part(batch, good, rest.key, log_ratio, rest._replace(key=key))
            before += len(batch)


class Survey:
    """Counts and checks of a first pass over rows; surveys of batches, files and workers add up.

    Args:
        labels: The numbers of the groups that are known.
        counts: Where keys or, if they are plain `Counts`, log-ratios are counted.

    Attributes:
        rows, bad: Rows with and without a score.
        sample: Ids, scores and places of some rows.
        inputs: Size and last change of each file, checksum of its scores, and how many rows come before, by its name.
    """

    def __init__(self, labels: dict[str, int], counts: KeyCounts | Counts) -> None:
        self.labels, self.counts, self.sample = labels, counts, Sample()
        self.rows = self.bad = 0
        self.inputs: dict[str, list[int]] = {}

    def add(self, part: Part) -> None:
        """Count the rows of a batch."""
        if isinstance(self.counts, KeyCounts):
            self.counts.add(part.rows)
        else:
            count_ratios(self.counts, part.log_ratio)
        self.sample.add(part.rows.id, part.score, part.rows.place)
        self.rows, self.bad = self.rows + len(part.score), self.bad + len(part.batch) - len(part.score)

    def merge(self, other: "Survey") -> None:
        """Add what was learned of other rows, whose groups may have other numbers."""
        groups = [self.labels.setdefault(label, len(self.labels)) for label in other.labels]
        self.counts.merge(other.counts, np.array(groups, np.int64))  # type: ignore[arg-type]
        self.sample.merge(other.sample)
        self.rows, self.bad = self.rows + other.rows, self.bad + other.bad

    def read(self, sources: list[Source], reading: Reading, progress: bool | None) -> "Survey":
        """Count the rows of files, and check them."""
        with bar("counting", len(sources), progress) as tell:
            for number, source in enumerate(sources):
                facts, checksum, before = os.stat(source.path), 0, self.rows + self.bad
                for part in reading.read(source, self.labels, before, new=True):
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
            doubt = check_scores(self.sample.columns[1], reading.kind)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        if doubt:
            warnings.warn(f"{where} read as {reading.kind}: {doubt}", stacklevel=4)

    def check_repeats(self) -> None:
        """Raise if rows of the sample have one id."""
        id, _, place = self.sample.columns
        ids, times = np.unique(id, return_counts=True)
        if np.any(times > 1):
            share = f"about {100 * (1 - len(ids) / len(id)):.2g} % of the rows have the id of another"
            same = ids[np.argmax(times)]
            starts = {before: name for name, (*_, before) in self.inputs.items()}  # none on Ray
            rows = [(row, max(start for start in starts if start <= row)) for row in place[id == same] if starts]
            places = " and ".join(f"row {row - start + 1} of {starts[start]}" for row, start in sorted(rows)[:2])
            why = f"{share}, as {places or f'id {same}'}; make ids unique, or give"
            raise InputError(why, give={"repeats": True})


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
    for name, given in sizes.items():
        if isinstance(given, Mapping):
            kind = Counter if isinstance(given, Counter) else dict
            sizes[name] = kind({str(label): value for label, value in given.items()})
    return sizes


def divide(labels: list[str], costs: Array, n: Any, budget: float | None, shares: Any, at_most: bool) -> Array:
    """Return what to keep of each group, given what its rows with r > 0, and below that those with r = 0, cost."""
    are_integers = all(label.removeprefix("-").isdecimal() for label in labels)
    order = sorted(range(len(labels)), key=lambda i: int(labels[i]) if are_integers else labels[i])
    names, available, total = tuple(labels[i] for i in order), costs[0], costs.sum(0)
    if isinstance(shares, str):
        shares = dict.fromkeys(names, 1.0)
    elif isinstance(shares, Counter):  # of real samples: what they do not have is not kept
        shares = {**dict.fromkeys(names, 0), **shares}
    need = np.empty(len(labels), np.int64)
    if shares is not None:
        need[order] = sizes_of(n if budget is None else int(total.sum() / budget), shares_of(shares, names))
    elif budget is not None:
        need[:] = total / budget  # rounded down
    else:
        need[order] = counts_of(n, names) if isinstance(n, Mapping) else n
    for short in np.flatnonzero(need > available)[: not at_most]:
        where = f" of group {labels[short]!r}" if labels[short] else ""
        few = f"{available[short]} of {total[short]} have r > 0"
        why = f"cannot keep {need[short]}{where}: {few}; ask for fewer, or give"
        raise InputError(why, give={"at_most": True})
    need = np.minimum(need, available)
    if not need.any():
        raise InputError(f"nothing would be kept of {total.sum()}; lower the budget, or ask for more")
    return np.asarray(need)


def choose(
    survey: Survey, reading: Reading, sizes: dict[str, Any], weights: bool, count: Callable[[KeyCounts], KeyCounts]
) -> tuple[dict[str, Any], Array]:
    """Find which rows are kept, in as many passes as it takes: one if those that matter are few, nearly always two.

    Args:
        survey: Of the first pass.
        reading: Which columns decide.
        sizes: How much to keep, as `check_sizes` returns it.
        weights: Whether weights are added.
        count: Counts all rows inside the cells that matter.

    Returns:
        The manifest, as JSON has it: what was asked for and chosen, all that is needed to keep the same rows again. And
        the places of the rows to keep that the last pass holds.
    """
    counts, labels = survey.counts, list(survey.labels)
    assert isinstance(counts, KeyCounts)
    wanted = need = divide(labels, counts.costs(len(labels)), **sizes)
    while counts.held is None:
        counts, need = counts.narrow(need)
        counts = count(counts)
    threshold, (kept, units), places = counts.find_threshold(need)
    if not kept:
        raise InputError(f"nothing is kept: the first row costs more than {wanted.sum()} units; ask for more")
    rows = zip(labels, *(column.tolist() for column in threshold), strict=True)
    cut = {label: [None if key == inf else key, *row] for label, key, *row in rows}
    added = ADDED[: (3 if reading.kind == "weight" else 2) * weights]
    facts = {"inputs": survey.inputs, "rows": survey.rows, "bad": survey.bad, "kept": int(kept), "cut": cut}
    facts |= {"units": None if reading.cost is None else int(units), "weights": added}
    manifest = {"version": version("obrs"), **vars(reading), **sizes, **facts}
    return json.loads(json.dumps(manifest, default=np.generic.item)), places


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
    if places is not None and not manifest["weights"]:
        for batch in source.batches([], rows=True):
            first, last = np.searchsorted(places, [before, before + len(batch)])
            mask = np.zeros(len(batch), bool)
            mask[places[first:last] - before] = True
            yield batch, mask, {}
            before += len(batch)
        return
    reading = Reading(**{name: manifest[name] for name in Reading.__dataclass_fields__})
    labels = {label: number for number, label in enumerate(manifest["cut"])}
    key, id, place = zip(*manifest["cut"].values(), strict=True)
    threshold = Threshold(np.array([inf if end is None else end for end in key]), np.array(id), np.array(place))
    for part in reading.read(source, labels, before, rows=True):
        keep = threshold.keeps(part.rows)
        mask = part.good.copy()
        mask[mask] = keep
        log_ratio, end = part.log_ratio[keep], threshold.key[part.rows.group[keep]]
        probability = np.exp(np.minimum(log_ratio + end, 0.0))
        weights = np.maximum(log_ratio, -end), np.sign(part.score[keep])
        yield part.batch, mask, dict(zip(manifest["weights"], (probability, *weights), strict=False))


@dataclass(frozen=True)
class Selected:
    """The result of `select`: the rows that were written or, on Ray, the dataset of kept rows.

    Args:
        out: The folder, or the file; on Ray the dataset; None if nothing was written.
        manifest: What was asked for and chosen, and the threshold of each group; `obrs.sql.condition` makes a WHERE
            clause of it.
        new: Whether this call wrote the rows; if not, they were there already.
    """

    out: Any
    manifest: Mapping[str, Any] = field(repr=False)
    new: bool = True

    kept = property(lambda self: int(self.manifest["kept"]), doc="Rows that were kept.")
    rows = property(lambda self: int(self.manifest["rows"]), doc="Rows that were read; those without a score aside.")
    bad = property(lambda self: int(self.manifest["bad"]), doc="Rows that were left out because they have no score.")
    units = property(lambda self: self.manifest["units"], doc="What the kept rows cost, if they have a cost.")

    @property
    def threshold(self) -> float | dict[str, float]:
        """The key of the first row that was not kept, by label if there are groups.

        A row was kept with probability min(r exp(threshold), 1), and max(log r, -threshold) is its log-weight.
        """
        keys = {label: inf if key is None else float(key) for label, (key, *_) in self.manifest["cut"].items()}
        return keys if self.manifest["group"] else keys[""]

    def __len__(self) -> int:
        return int(self.kept)

    def __repr__(self) -> str:
        each = list(self.threshold.values()) if isinstance(self.threshold, dict) else [self.threshold]
        ends = f"{each[0]:.4g}" if len(each) == 1 else f"{min(each):.4g} to {max(each):.4g} in {len(each)} groups"
        more = [f"{getattr(self, name):,} {name}" for name in ("bad", "units") if getattr(self, name)]
        where = f"{'in' if self.new else 'already in'} {self.out}" if isinstance(self.out, Path) else "not written"
        return f"Selected({', '.join([f'{self.kept:,} of {self.rows:,} rows', *more])}, threshold {ends}; {where})"


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
    sizes = check_sizes(n, budget, shares, at_most, group)
    sources = find_sources(where, format=format, delimiter=delimiter, header=header)
    columns = {"id": id, "cost": cost, "group": group}
    reading = Reading.find(sources, column, kind, beta=beta, **columns, skip_bad=skip_bad, seed=check_seed(seed))

    target = None if out is None else Path(out)
    is_folder = len(sources) > 1 or target is None or target.is_dir() or not target.suffix
    is_folder = is_folder or os.fspath(out or "").endswith(("/", os.sep))
    if out is not None:
        if os.fspath(out) == "-":
            raise InputError("out is a file or a folder; only the command line writes to standard output")
        check_not_input(out, *([where] if isinstance(where, str | os.PathLike) else where), *(s.path for s in sources))
        if not is_folder and format_of(os.fspath(out)) != sources[0].format:
            raise InputError(f"rows keep their format: out is a .{sources[0].format} file or a folder/, got {out}")
        if not is_folder:
            check_out(out)
    with _hold(target) if target is not None and is_folder else nullcontext() as work:
        counts = KeyCounts(most=n if group is None and isinstance(n, int) else None)
        survey = Survey({"": 0} if group is None else {}, counts).read(sources, reading, progress)
        if not repeats:
            survey.check_repeats()

        def count(counts: KeyCounts) -> KeyCounts:
            for source in sources:
                for part in reading.read(source, survey.labels, survey.inputs[source.name][-1]):
                    counts.add(part.rows)
            return counts

        manifest, held = choose(survey, reading, sizes, weights, count)
        manifest |= {"header": header}
        places = held if len(held) == manifest["kept"] else None
        if target is None:
            return Selected(None, manifest)
        if work is None:
            _write_rows(manifest, sources[0], target, places)
            return Selected(target, manifest)
        if target.is_dir() and any(target.iterdir()):
            _check_same(target, manifest)
            return Selected(target, manifest, new=False)
        if (work / MANIFEST).exists():
            _check_same(work / MANIFEST, manifest)
        with replacing(work / MANIFEST) as file:
            file.write((json.dumps(manifest, indent=2) + "\n").encode())
        with bar("writing", len(sources), progress) as tell:
            for number, source in enumerate(sources):
                if not (work / source.name).exists():
                    _write_rows(manifest, source, work / source.name, places)
                tell(number + 1)
        if target.is_dir():
            target.rmdir()  # it is empty
        os.replace(work / MANIFEST, f"{target}{MANIFEST}")
        os.replace(work, target)
    return Selected(target, manifest)


def _write_rows(manifest: Mapping[str, Any], source: Source, path: Path, places: Array | None) -> None:
    """Write the rows of a file that are kept."""
    size, changed, _, before = manifest["inputs"][source.name]

    def parts() -> Iterator[tuple[Batch, Array, dict[str, Array]]]:
        yield from (part for part in kept_rows(manifest, source, before, places) if part[1].any())
        facts = os.stat(source.path)
        if (facts.st_size, facts.st_mtime_ns) != (size, changed):
            raise InputError(f"{source.shown} has changed since it was counted; start again")

    source.write(path, parts(), manifest["weights"])


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

    def whole() -> int:
        return sum(path.is_file() and path.name != MANIFEST for path in work.rglob("*"))

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
        goes_on = f"{whole()} files are whole, and the same command goes on with the rest"
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(f"stopped; {goes_on}") from error
        raise OSError(error.errno, f"{error.strerror}; {goes_on}", error.filename) from error
    finally:
        os.close(handle)
        if work.exists() and not whole():
            shutil.rmtree(work)


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


def _check_same(where: Path, manifest: Mapping[str, Any]) -> None:
    """Raise if other rows were chosen before, or of other files."""
    before = read_manifest(where)
    for key in [key for key in manifest if before.get(key) != manifest[key] and key != "version"]:
        old, new = before.get(key), manifest[key]
        what = f"{key} was {old!r:.60} and is {new!r:.60} now"
        if key == "inputs" and isinstance(old, dict):
            what = f"{next(name for name in {**old, **new} if old.get(name) != new.get(name))} has changed since"
        folder = where if where.is_dir() else where.parent
        raise InputError(f"{folder} has rows of another run: {what}; choose another output, or delete it first")


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
        """Return the profiles of rows of which log-ratios were counted."""
        assert isinstance(survey.counts, Counts)
        ratios, counts = mean_ratios(survey.counts)
        if not len(ratios):
            raise InputError(f"{where}, column {reading.column!r}: no row has r > 0")
        sample = Profile(to_log_ratio(survey.sample.columns[1], reading.kind, beta=reading.beta))
        every = Profile(np.append(ratios, -inf), np.append(counts, survey.rows - counts.sum()))
        return cls(reading, survey.rows, survey.bad, sample if survey.sample.complete else every, sample)

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
    progress: bool | None = None,
    format: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    **scores: Any,
) -> Profiles:
    """Count the log-ratios of all rows of files, however many there are; arguments as for `plan`."""
    sources = find_sources(where, format=format, delimiter=delimiter, header=header)
    reading = Reading.find(sources, **scores)
    return Profiles.build(sources[0].shown, reading, Survey({}, Counts()).read(sources, reading, progress))


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
