"""Plan and select on Ray Data, and sample with a model in each of many actors.

Rows stay where they are. Each block is counted where it lies, the counts are added up, and the last pass is one filter.
The rows that are kept do not depend on blocks, their order, or workers that die on the way: they are those of
`obrs.files.select` and of `obrs.select(..., design="priority", ids=...)`.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from array_api_compat import is_torch_array

from ._checks import check_count
from .errors import InputTypeError, MissingLibraryError, ObrsError
from .files import Reading, Scan, Selected, decide, plan_sample, sample_profile
from .profile import Plan
from .rivals.model import Model
from .sampling import rejection
from .sampling.proposals import concatenate, map_leaves
from .sampling.samples import Samples
from .scores import Batch, Source

try:
    import pyarrow as pa
    import ray.data
except ImportError as error:
    raise MissingLibraryError("obrs.ray needs Ray: pip install 'obrs[ray]'", name="ray") from error

__all__ = ["plan", "sample", "select"]


def _open(dataset: Any, **columns: Any) -> tuple[Reading, Scan]:
    """Return which columns of a dataset decide, and what makes passes over its blocks."""
    schema = dataset.schema() if isinstance(dataset, ray.data.Dataset) else None
    if schema is None:
        raise InputTypeError(f"dataset must be a ray.data.Dataset with rows, got {type(dataset).__name__}")
    empty = pa.table({name: [] for name in schema.names})
    reading = Reading.find([Source("the dataset", "dataset", table=empty)], **columns)

    def scan(names: Sequence[str], function: Callable[[Batch], Any]) -> Iterator[Any]:
        def work(table: Any) -> Any:
            found: Any
            try:
                found = [function(batch) for batch in _batches(table, names)]
            except ObrsError as error:  # one line, which Ray would bury
                found = error
            return pa.table({"found": [pickle.dumps(found)]})

        few = dataset.select_columns([*dict.fromkeys(names)])
        blocks = few.map_batches(work, batch_format="pyarrow", batch_size=None, zero_copy_batch=True)
        for row in blocks.iter_rows():
            found = pickle.loads(row["found"])
            if isinstance(found, ObrsError):
                raise found
            yield from found

    return reading, scan


def _batches(table: Any, names: Sequence[str]) -> Iterator[Batch]:
    first = table.select([*dict.fromkeys(names)]).slice(0, 8).to_pylist()  # tells blocks, whose rows have no ids, apart
    return Source("a block of the dataset", f"block of {first}", table=table).batches(names)


def plan(
    dataset: Any, budgets: Iterable[float] = (1.5, 2.0, 4.0, 8.0), *, n: int | None = None, **options: Any
) -> Plan:
    """Show what each budget buys on the rows of a `ray.data.Dataset`, from one pass over one column.

    Arguments are those of `obrs.files.plan`, and `options` column, kind, beta, id and skip_bad.
    """
    reading, scan = _open(dataset, **options)
    profile, size, _ = sample_profile(scan, "the dataset", reading)
    return plan_sample(profile, size, budgets, n)


def select(dataset: Any, n: int | Mapping[str, int] | None = None, *, id: str, **options: Any) -> Selected:
    """Keep exactly n rows of a dataset, or 1 in K: those that `obrs.files.select` would keep.

    Args:
        dataset: A `ray.data.Dataset`. It is read three times, twice by the columns that decide only; materialise one
            that is expensive to compute first.
        n, options: As for `obrs.files.select`: budget, column, kind, beta, cost, group, shares, at_most, weights, seed,
            skip_bad, repeats.
        id: The column of ids, which is required: rows of a dataset have no position.

    Returns:
        A `Selected` whose `out` is the dataset of the kept rows, which is computed when it is used.
    """
    sizes = {name: options.pop(name, None) for name in ("budget", "shares", "at_most", "repeats")}
    reading, scan = _open(dataset, id=id, **options)
    manifest, keep = decide(scan, "the dataset", reading, n=n, **sizes)

    def filter_rows(table: Any) -> Any:
        return next(map(keep, _batches(table, reading.names)), table)

    out = dataset.map_batches(filter_rows, batch_format="pyarrow", batch_size=None, zero_copy_batch=True)
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
        return map_leaves(lambda leaf: leaf.cpu() if is_torch_array(leaf) else leaf, batch.x), batch.log_ratio
