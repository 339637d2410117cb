"""Plan and select on Ray Data, and sample from a model with actors: `obrs.ray`.

Rows stay where they are. `select` makes a pass over two columns that fills sketches, merges them in a tree, makes a
second one that sends back the rows which the sketch leaves open, and returns the dataset with one filter. The driver
sees nothing else. The rows that are kept do not depend on blocks, order or workers: they are those of
`obrs.select(…, design="priority")`, and of `obrs.files.select`.

`sample` has actors make and judge proposals by id. An actor that dies is started again, or does without; what it was
to do is done again, by itself or by another, with the same result.
"""

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from .._checks import bad_ratios, check_budget, check_count
from .._progress import reporting
from ..errors import BracketError, ExhaustedError, InputError, InputTypeError, MissingLibraryError
from ..profile import Plan
from ..rules import Budgeted
from ..sampling.model import Model
from ..sampling.pilot import PILOT, Course
from ..sampling.proposals import Proposals, move, score_proposals
from ..sampling.samples import Samples
from ..sampling.streams import Limits, blocks, collect_within, deciding_uniforms, judge, reported
from ..sketch import MEMORY, Open, Sketch, SketchCut
from ..types import Rule

__all__ = ["Selected", "plan", "sample", "select"]

_ROWS = 1 << 20  # rows per task
_SKETCHES = 32  # that one task merges
_MARGINS = (6.0, 40.0, 300.0, 1e9)  # standard deviations, one after the other if a bracket missed
_AHEAD = 2  # blocks that wait at each actor


class Selected(NamedTuple):
    """What `select` chose.

    Attributes:
        dataset: The rows that are kept, with all their columns; like any dataset it is computed when it is used.
        cut: The exact cut. `cut.log_c` is the constant: `Budgeted(cut.log_c).log_weight(log_ratio)` are the weights
            that are left, and `obrs.sql(cut)` keeps the same rows in a database.
        repeated: Estimated share of the rows whose id came before.
    """

    dataset: Any
    cut: SketchCut
    repeated: float

    def __repr__(self) -> str:
        return (
            f"Selected({self.cut.target:,.0f} of {self.cut.mass:,}, log c {self.cut.log_c:.4g}; dataset, cut, repeated)"
        )


def plan(
    dataset: Any, budgets: Iterable[float], *, column: str = "log_ratio", n: int | None = None, recall: float = 0.9
) -> Plan:
    """Return what each budget buys on the rows of a dataset, from one pass over one column; see `Sketch.plan`.

    Args:
        dataset: A `ray.data.Dataset`.
        budgets: Budgets K.
        column: The column of log-ratios.
        n, recall: As in `Profile.plan`.
    """
    _check_columns(dataset, {column: "fi"})
    return _sketched(dataset, Sketch(), [column]).plan(budgets, n=n, recall=recall)


def select(
    dataset: Any,
    *,
    n: int | None = None,
    budget: float | None = None,
    id: str = "id",
    column: str = "log_ratio",
    cost: str | None = None,
    seed: int = 0,
    memory: int = MEMORY,
) -> Selected:
    """Keep exactly `n` rows of a dataset, or 1 in `budget`: those that one process would keep.

    Args:
        dataset: A `ray.data.Dataset`. It is read three times, twice by two columns only; one that is expensive to
            compute should be materialised first.
        n: How many to keep, as in `obrs.select(…, design="priority")`; with `cost`, how many units.
        budget: Or K, as in `solve_log_c`: a row is kept with probability min(c r, 1).
        id: The column of ids, integers. Give each row its own: rows of one id share their uniform.
        column: The column of log-ratios.
        cost: The column of costs, whole numbers such as tokens.
        seed: Integer with `0 <= seed < 2**64`. To select again from what was kept, by another score, use another seed
            (`obrs.sketch.seed_for`).
        memory: Bytes of open rows that the driver may hold; if there were more, the bin of c is sketched again.
    """
    _check_columns(dataset, {column: "fi", id: "i"} | ({} if cost is None else {cost: "fi"}))
    columns = [column, id] if cost is None else [column, id, cost]
    sketch = _sketched(dataset, Sketch(), columns, seed)
    for margin in _MARGINS:
        cut = sketch.solve(budget=budget) if n is None else sketch.solve(budget=budget, n=n, margin=margin)
        while cut.held_bytes > memory and cut.crossing:
            narrower = cut.narrow(_sketched(dataset, cut.zoom(), columns, seed))
            if narrower.held_bytes >= cut.held_bytes:
                break
            cut = narrower
        try:
            exact = cut.finish(*_opened(dataset, cut, columns))
            break
        except BracketError:
            if margin == _MARGINS[-1]:
                raise
    if exact.spare >= 0:
        raise InputError(
            f"rows with id {exact.last} and one log-ratio are tied for the last place, and only {exact.spare} of them "
            "fit; drop repeated rows first, or change n"
        )

    def keep(batch: Any) -> Any:
        x, ids = _column(batch, column), _column(batch, id)
        return batch.filter(_mask(exact.keep(ids, x) == 1)) if batch.num_rows else batch

    kept = dataset.map_batches(keep, batch_format="pyarrow", batch_size=None, zero_copy_batch=True)
    return Selected(kept, exact, sketch.repeated)


def sample(
    make_model: Callable[[], Any],
    n: int,
    *,
    budget: float,
    workers: int | None = None,
    calibrate: "int | Rule | None" = None,
    batch_size: int | None = None,
    seed: int = 0,
    start: int = 0,
    max_proposed: int | None = None,
    max_seconds: float | None = None,
    progress: bool | None = None,
    actor_options: Mapping[str, Any] | None = None,
) -> Samples:
    """Keep exactly `n` samples at `budget` proposals each, with many actors: what `obrs.sample` would keep.

    Each actor calls `make_model` once. The first proposals fit the rule: each actor sketches its part, and the merged
    sketch gives the constant. Then each judges every so many ids, and the samples come back in the order of the ids.
    With the same model, seed and batch size they are those of `obrs.sample(…, calibrate=4096)`, whatever the number of
    actors, and whether one of them died in between.

    Args:
        make_model: Called in each actor; returns `(propose, log_ratio)`, or a `Model`. Proposals must depend on ids
            alone: draw latents with `normals(ids, …)`.
        n: Samples wanted.
        budget: Proposals per kept sample.
        workers: How many actors; by default as many as there are CPUs.
        calibrate: How many proposals to fit the rule on, by default 4096 or n·K if that is less; or a fitted rule.
        batch_size, seed, start, max_proposed, max_seconds, progress: As for `obrs.sample`.
        actor_options: Options of Ray for each actor, such as `{"num_gpus": 1}`.

    Raises:
        ExhaustedError: Proposals or seconds ran out, or no actor is left; `.partial` has what was kept.
    """
    n, k = check_count(n, "n"), check_budget(budget)
    course = Course(batch_size, seed, start, max_proposed, max_seconds, progress)
    if not callable(make_model):
        raise InputTypeError(f"make_model must be a function that returns a model, got {type(make_model).__name__}")
    ray = _ray()
    if not ray.is_initialized():
        ray.init()
    count = int(ray.cluster_resources().get("CPU", 1)) if workers is None else check_count(workers, "workers")
    pilot = min(PILOT, ceil(n * k)) if calibrate is None else calibrate
    options = {"max_restarts": -1, "max_task_retries": -1, **(actor_options or {})}
    pool = _Pool(ray, [ray.remote(_Worker).options(**options).remote(make_model) for _ in range(max(count, 1))])
    try:
        with reporting(n, progress) as report:
            if callable(pilot):
                rule: Rule = pilot
            else:
                rule = _calibrated(pool, k, course, check_count(pilot, "calibrate"))
            judged = pool.in_order("judge", blocks(course.size, start, course.stop), rule, seed)
            limits = Limits(None, max_seconds, course.limits.begun)
            remedy = "let the stream go on" if course.stop is None else "raise max_proposed"
            return collect_within(limits, reported(judged, report), n, remedy=remedy)
    finally:
        pool.end()


def _calibrated(pool: "_Pool", budget: float, course: Course, pilot: int) -> Budgeted:
    """Fit the rule to the first proposals, by the merged sketches of the actors."""
    stop = course.start + pilot if course.stop is None else min(course.start + pilot, course.stop)
    grid = list(blocks(course.size, course.start, stop))
    sketch = Sketch().merge(*pool.in_order("sketch", grid, course.seed))
    cut = sketch.solve(budget=budget)
    cut = cut.finish(*pool.in_order("open", grid, cut))
    rate = sketch.profile().rate(budget) if cut.log_c == -cut.top else 1 / budget
    return Budgeted(cut.log_c, budget, rate)


class _Worker:
    """An actor: the model, and the part of the pilot that it has made."""

    def __init__(self, make_model: Callable[[], Any]) -> None:
        model = make_model()
        if isinstance(model, Model):
            model = (model.propose, model.score)
        try:
            self.propose, self.log_ratio = model
        except (TypeError, ValueError):
            raise InputTypeError(
                f"make_model must return (propose, log_ratio) or a Model, got {type(model).__name__}"
            ) from None
        self.pilot: dict[tuple[int, int], Proposals] = {}

    def sketch(self, block: tuple[int, int], seed: int) -> Sketch:
        made = self.pilot[block] = self._made(block)
        return Sketch().add(made.log_ratio, made.ids, seed)

    def open(self, block: tuple[int, int], cut: SketchCut) -> Open:
        made = self.pilot[block] = self._made(block)
        return cut.judge(made.ids, made.log_ratio).open

    def judge(self, block: tuple[int, int], rule: Rule, seed: int) -> Samples:
        made = self._made(block)
        self.pilot.pop(block, None)
        kept = judge(made, rule, deciding_uniforms(made.ids, seed))
        return replace(kept, x=move(kept.x, "cpu"))  # the driver may have no accelerator

    def _made(self, block: tuple[int, int]) -> Proposals:
        """Make the proposals of a block, which depend on their ids alone; those of the pilot are at hand."""
        return self.pilot.get(block) or score_proposals(self.propose, self.log_ratio, np.arange(*block))


class _Pool:
    """Actors that work on blocks of ids; a block whose actor is gone is given to another."""

    def __init__(self, ray: Any, actors: list[Any]) -> None:
        self.ray, self.actors = ray, actors
        self._given: dict[tuple[int, int], Any] = {}  # who has a block of the pilot

    def in_order(self, task: str, grid: Iterable[tuple[int, int]], *arguments: Any) -> Iterator[Any]:
        """Yield what each block gives, in the order of the blocks."""
        ahead = iter(grid)
        waiting: deque[tuple[tuple[int, int], Any, Any]] = deque()  # block, actor, its promise

        def send(block: tuple[int, int]) -> tuple[tuple[int, int], Any, Any]:
            busy = [actor for _, actor, _ in waiting]
            actor = self._given.get(block)
            if actor not in self.actors:
                actor = self._given[block] = min(self.actors, key=busy.count)
            return block, actor, getattr(actor, task).remote(block, *arguments)

        try:
            yield from self._results(waiting, ahead, send, task)
        finally:
            for _, _, promise in waiting:
                self.ray.cancel(promise)

    def _results(self, waiting: Any, ahead: Iterator[tuple[int, int]], send: Callable[..., Any], task: str) -> Any:
        while True:
            while len(waiting) < _AHEAD * len(self.actors) and (block := next(ahead, None)) is not None:
                waiting.append(send(block))
            if not waiting:
                return
            block, actor, promise = waiting.popleft()
            while True:
                try:
                    result = self.ray.get(promise)
                    break
                except self.ray.exceptions.RayActorError as error:
                    self.actors = [other for other in self.actors if other is not actor]
                    if not self.actors:
                        raise ExhaustedError(f"no actor is left: {str(error).splitlines()[0]}", None) from error
                    block, actor, promise = send(block)
                except self.ray.exceptions.RayTaskError as error:
                    raise error.as_instanceof_cause() from None
            if task == "judge":
                self._given.pop(block, None)
            yield result

    def end(self) -> None:
        for actor in self.actors:
            self.ray.kill(actor)


def _sketched(dataset: Any, empty: Sketch, columns: list[str], seed: int = 0) -> Sketch:
    """Fill sketches batch by batch, merge them in a tree, and return the one that is left."""
    column, *rest = columns
    id, cost = (*rest, None, None)[:2]

    ray = _ray()

    def fill(batch: Any) -> dict[str, Any]:
        x = _column(batch, column)
        bad = np.isnan(x) | (x == np.inf)
        if bad.any():
            found: Any = (int(bad.sum()), int(np.isnan(x).sum()), len(x))
        else:
            ids, units = (None if name is None else _column(batch, name) for name in (id, cost))
            found = empty.add(x, ids, seed, cost=units)
        return {"sketch": np.array([pickle.dumps(found)], object)}

    def merge(*tables: Any) -> Any:
        import pyarrow

        parts = [part for table in tables for part in table.column("sketch").to_pylist()]
        return pyarrow.table({"sketch": [pickle.dumps(_merged(parts, empty))]})

    filled = dataset.select_columns(columns).map_batches(fill, batch_format="pyarrow", batch_size=_ROWS)
    tables = filled.materialize().to_arrow_refs()
    while len(tables) > 1:  # sketches go from worker to worker; the last one comes here
        tables = [
            ray.remote(merge).remote(*tables[first : first + _SKETCHES]) for first in range(0, len(tables), _SKETCHES)
        ]
    merged = _merged((part for table in ray.get(tables) for part in table.column("sketch").to_pylist()), empty)
    if not isinstance(merged, Sketch):
        raise bad_ratios(merged[0], merged[2], merged[1])
    if not merged.rows:
        raise InputError("the dataset has no rows")
    return merged


def _merged(pickled: Iterable[bytes], empty: Sketch) -> Any:
    """Merge sketches; where a batch had log-ratios that are no numbers, add up how many."""
    parts = [pickle.loads(bytes(part)) for part in pickled]
    bad = [part for part in parts if not isinstance(part, Sketch)]
    if bad:
        seen = sum(part.rows for part in parts if isinstance(part, Sketch))
        return sum(b[0] for b in bad), sum(b[1] for b in bad), sum(b[2] for b in bad) + seen
    return empty.merge(*parts)


def _opened(dataset: Any, cut: SketchCut, columns: list[str]) -> list[Open]:
    """Return what a cut leaves open in each batch."""
    column, id, *rest = columns

    def look(batch: Any) -> dict[str, Any]:
        units = _column(batch, rest[0]) if rest else None
        found = cut.judge(_column(batch, id), _column(batch, column), cost=units).open
        return {"open": np.array([pickle.dumps(found)], object)}

    looked = dataset.select_columns(columns).map_batches(look, batch_format="pyarrow", batch_size=_ROWS)
    return [pickle.loads(bytes(row["open"])) for row in looked.iter_rows()]


def _column(batch: Any, name: str) -> Any:
    """Return a column of an Arrow table in NumPy; a log-ratio that is missing is NaN."""
    found = batch.column(name).to_numpy()
    if found.dtype.kind == "f" and batch.schema.field(name).type.__str__().startswith(("int", "uint")):
        raise InputError(f"column {name!r} has {batch.column(name).null_count} rows without a value")
    return found if found.dtype.kind in "iuf" else found.astype(np.float64)


def _mask(keep: Any) -> Any:
    import pyarrow

    return pyarrow.array(keep)


def _check_columns(dataset: Any, kinds: Mapping[str, str]) -> None:
    """Raise if the dataset has no such columns of numbers."""
    _ray()
    if not hasattr(dataset, "map_batches") or not hasattr(dataset, "schema"):
        raise InputTypeError(f"dataset must be a ray.data.Dataset, got {type(dataset).__name__}")
    schema = dataset.schema()
    if schema is None:
        raise InputError("the dataset has no rows")
    types = dict(zip(schema.names, map(str, schema.types), strict=True))
    for name, kind in kinds.items():
        if name not in types:
            raise InputError(f"the dataset has no column {name!r}; it has {', '.join(types)}")
        wanted = ("int", "uint") if kind == "i" else ("int", "uint", "float", "double", "halffloat")
        if not types[name].startswith(wanted):
            what = "integers" if kind == "i" else "numbers"
            raise InputTypeError(f"column {name!r} must be {what}, got {types[name]}")


def _ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingLibraryError("obrs.ray needs Ray: pip install 'obrs[ray]'") from error
    return ray
