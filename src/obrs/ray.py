"""Plan and select on Ray Data, and sample with a model in each of many actors.

Rows stay where they are. Each block is counted where it lies (`files.Survey`), the counts are added up, and the last
pass is one filter. The rows that are kept do not depend on blocks, their order, or workers that die on the way: they
are those of `obrs.files.select` and of `obrs.select(..., design="priority", ids=...)`.
"""

import pickle
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from itertools import cycle
from typing import Any

import numpy as np

from ._checks import check_count, check_seed
from ._keys import Counts, KeyCounts, Sample
from .errors import InputTypeError, MissingLibraryError, ObrsError
from .files import Profiles, Reading, Selected, Survey, check_sizes, choose, kept_rows
from .profile import Plan
from .sampling import rejection
from .sampling.model import Model
from .sampling.proposals import concatenate, move
from .sampling.samples import Samples
from .scores import Source

try:
    import pyarrow as pa
    import ray.data
except ImportError as error:
    raise MissingLibraryError("obrs.ray needs Ray: pip install 'obrs[ray]'", name="ray") from error

__all__ = ["plan", "sample", "select"]

_SAMPLED = 1 << 14  # rows of a block that checks look at


def _find_columns(dataset: Any, column: str | None = None, kind: str | None = None, **more: Any) -> Reading:
    schema = dataset.schema() if isinstance(dataset, ray.data.Dataset) else None
    if schema is None:
        raise InputTypeError(f"dataset must be a ray.data.Dataset with rows, got {type(dataset).__name__}")
    return Reading.find(
        [Source("the dataset", "dataset", "parquet", table=pa.table({name: [] for name in schema.names}))],
        column,
        kind,
        **more,
    )


def _block(table: Any) -> Source:
    return Source("a block of the dataset", "block", "parquet", table=table)


def _count(dataset: Any, reading: Reading, total: Survey, new: bool = True) -> Survey:
    """Count every block where it lies, and add up what was counted."""
    start = deepcopy(total)
    start.sample = Sample(min(_SAMPLED, total.sample.most))

    def count(table: Any) -> Any:
        survey: Any = deepcopy(start)
        try:
            for part in reading.read(_block(table), survey.labels, new=new) if table.num_rows else []:
                survey.add(part._replace(rows=part.rows._replace(place=np.zeros_like(part.rows.place))))
        except ObrsError as error:  # one line, which Ray would bury
            survey = error
        return pa.table({"survey": [pickle.dumps(survey)]})

    columns = dataset.select_columns([*dict.fromkeys(reading.names)])
    blocks = columns.map_batches(count, batch_format="pyarrow", batch_size=None, zero_copy_batch=True)
    for row in blocks.iter_rows():
        survey = pickle.loads(row["survey"])
        if isinstance(survey, ObrsError):
            raise survey
        total.merge(survey)
    if new:
        total.check("the dataset", reading)
    return total


def plan(
    dataset: Any, budgets: Iterable[float] = (1.5, 2.0, 4.0, 8.0), *, n: int | None = None, **options: Any
) -> Plan:
    """Show what each budget buys on the rows of a `ray.data.Dataset`, from one pass over one column.

    Arguments are those of `obrs.files.plan`, and `options` column, kind, beta and skip_bad.
    """
    reading = _find_columns(dataset, **options)
    return Profiles.build("the dataset", reading, _count(dataset, reading, Survey({}, Counts()))).plan(budgets, n=n)


def select(
    dataset: Any,
    n: int | Mapping[str, int] | None = None,
    *,
    id: str,
    budget: float | None = None,
    group: str | None = None,
    shares: Mapping[str, float] | str | None = None,
    at_most: bool = False,
    weights: bool = False,
    seed: int = 0,
    repeats: bool = False,
    **options: Any,
) -> Selected:
    """Keep exactly n rows of a dataset, or 1 in K: those that `obrs.files.select` would keep.

    Args:
        dataset: A `ray.data.Dataset`. It is read three times, twice by the columns that decide only; materialise one
            that is expensive to compute first.
        n, id, budget, group, shares, at_most, weights, seed, repeats: As for `obrs.files.select`, but that ids are
            needed, as rows of a dataset have no place.
        options: As for `obrs.files.select`: column, kind, beta, cost, skip_bad.

    Returns:
        A `Selected` whose `out` is the dataset of the kept rows, which is computed when it is used.
    """
    asked = check_sizes(n, budget, shares, at_most, group)
    reading = _find_columns(dataset, id=id, group=group, seed=check_seed(seed), **options)
    first = KeyCounts()
    first.held = None  # rows stay where they are; the next pass holds those that matter
    survey = _count(dataset, reading, Survey({} if group else {"": 0}, first))
    if not repeats:
        survey.check_repeats()

    def count(counts: KeyCounts) -> Any:
        again = Survey(dict(survey.labels), counts)
        again.sample = Sample(1)  # there is nothing more to check
        return _count(dataset, reading, again, new=False).counts

    manifest, _ = choose(survey, reading, asked, weights, count)

    def keep(table: Any) -> Any:
        if not table.num_rows:
            return table
        _, masks, columns = zip(*kept_rows(manifest, _block(table)), strict=True)
        rows = table.filter(pa.array(np.concatenate(masks)))
        for name in columns[0]:
            rows = rows.append_column(name, pa.array(np.concatenate([part[name] for part in columns])))
        return rows

    out = dataset.map_batches(keep, batch_format="pyarrow", batch_size=None, zero_copy_batch=True)
    return Selected(out, manifest)


def sample(
    make_model: Callable[[], Any],
    n: int,
    *,
    budget: Any = None,
    workers: int | None = None,
    batch_size: int = 1024,
    actor_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Samples:
    """Keep exactly `n` samples at `budget` proposals each, made and scored by actors: what `obrs.sample` would keep.

    The samples do not depend on the number of actors. One that dies is started again, and does its batch again. All
    proposals come to the process that calls, which judges them.

    Args:
        make_model: Called in each actor; returns `(propose, log_ratio)`, or a `Model`. Proposals must depend on ids
            alone, and for a split budget on their group: draw latents with `normals(ids, …)`.
        n, budget, options: As for `obrs.sample`.
        workers: How many actors; by default as many as there are CPUs.
        batch_size: Proposals that an actor makes at a time.
        actor_options: Options of Ray for each actor, such as `{"num_gpus": 1}`.
    """
    size, scores = check_count(batch_size, "batch_size"), list[Any]()
    if not ray.is_initialized():
        ray.init()
    count = max(int(ray.cluster_resources().get("CPU", 1)), 1) if workers is None else check_count(workers, "workers")
    actor = ray.remote(_Actor).options(**{"max_restarts": -1, "max_task_retries": -1, **(actor_options or {})})
    actors = [actor.remote(make_model) for _ in range(count)]

    def propose(ids: Any, *group: Any) -> Any:
        parts = np.split(ids, np.flatnonzero(np.diff(ids // size)) + 1)  # the same ones for any number of actors
        promises = [actor.make.remote(part, *group) for part, actor in zip(parts, cycle(actors), strict=False)]
        try:
            x, scores[:] = zip(*ray.get(promises), strict=True)
        except ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, ObrsError) else error.as_instanceof_cause()) from None
        return concatenate(x)

    options |= {"budget": budget, "batch_size": 2 * count * size}
    try:
        return rejection.sample(propose, lambda x: np.concatenate(scores), n, **options)  # scores come with proposals
    finally:
        for one in actors:
            ray.kill(one)


class _Actor:
    """A model, which is made in the first task: Ray shows the errors of tasks."""

    def __init__(self, make_model: Callable[[], Any]) -> None:
        self.make_model = make_model
        self.model: Any = None

    def make(self, ids: Any, *group: Any) -> tuple[Any, Any]:
        """Return the proposals with these ids, of a group if one is named, on the CPU, and their log-ratios."""
        if self.model is None:
            made = self.make_model()
            self.model = (made.propose, made.score) if isinstance(made, Model) else made
        propose, log_ratio = self.model
        batch = rejection.score_proposals(lambda some: propose(some, *group), log_ratio, ids)
        return move(batch.x, "cpu"), batch.log_ratio
