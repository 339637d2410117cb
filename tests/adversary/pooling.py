"""Rooms of looks at rows, their merges, and folders of files."""

import json
import os
import pickle
import tempfile

import numpy as np
import pyarrow
from pyarrow import csv, parquet

import obrs
from obrs import files
from obrs._keys import KeyCounts, Rows, find_threshold
from obrs.draws import priority_key

from .making import NO_COUNTS, host


def parts_of(make, n):
    """Cut n rows into parts, some of them empty."""
    at = np.sort(make.rng.integers(0, n + 1, make.count(0, 3)))
    return np.split(np.arange(n), at)


def looks(make):
    """Looks at parts merge, in any order, to the cut of all rows: those of `select`."""
    make.wild = False
    n, seed = make.size(200), make.seed()
    x, ids = np.clip(make.log_ratio(n).astype(np.float64), -1e6, 1e6), make.rng.permutation(n)
    cost, key = make.one(None, make.rng.integers(0, 5, n)), priority_key(x, ids, seed=seed)
    rows = Rows(key, ids, np.zeros(n, int), np.ones(n, int) if cost is None else cost)
    whole, parts = KeyCounts(1), parts_of(make, n)

    def scan(function):
        return (pickle.loads(pickle.dumps(function(rows.take(parts[i])))) for i in make.rng.permutation(len(parts)))

    for counted in scan(KeyCounts(1).count):
        whole.merge(counted)
    most = int(np.sum(key < np.inf) if cost is None else cost[key < np.inf].sum())
    if most == 0:
        return
    wanted = make.count(1, most)
    threshold, _ = find_threshold(whole, np.array([wanted]), scan)
    chosen = make.answer(obrs.select, x, wanted, design="priority", ids=ids, seed=seed, cost=cost)
    assert chosen is None or np.array_equal(np.flatnonzero(threshold.keeps(rows)), host(chosen))


def cells(make, x):
    """Numbers as a column: floats, or in a wild case with gaps, text or another type."""
    if make.wild and make.chance(0.15):
        rest = x[1:] if x.dtype.kind == "U" else x[1:].astype(np.float64)
        return make.one(
            pyarrow.array([None, *rest.tolist()]),
            pyarrow.array([f"v{i}" for i in range(len(x))]),
            pyarrow.array([[1.0]] * len(x)),
            pyarrow.array([True] * len(x)),
            pyarrow.nulls(len(x)),
        )
    return pyarrow.array(x)


def write(make, path, table):
    """Write a table as one of the formats."""
    if path.endswith(".parquet"):
        parquet.write_table(table, path, row_group_size=make.one(1, 3, 1000))
    elif path.endswith(".csv"):
        csv.write_csv(table, path)
    else:
        with open(path, "w", encoding="utf-8") as file:
            for row in table.to_pylist():
                file.write(json.dumps(row) + "\n")


def folders(make):
    """Exactly the rows that `select` takes, in whatever files they lie; or an error and no folder."""
    n = make.size(30)
    x = make.log_ratio(n).astype(np.float64)
    ids = make.ids(n)
    ids = np.arange(n) if ids is None or np.ndim(ids) != 1 or len(ids) != n else np.asarray(ids)
    labels = make.one(None, None, make.labels(n))
    labels = labels if labels is not None and np.ndim(labels) == 1 and len(labels) == n else None
    ending = make.one(".parquet", ".parquet", ".csv", ".jsonl")
    if ending != ".parquet" and not np.all(np.isfinite(x)):
        x = np.where(np.isfinite(x), x, 0.0)
    columns = {"id": cells(make, ids), "log_ratio": cells(make, x), "row": pyarrow.array(np.arange(n))}
    try:
        columns["label"] = pyarrow.array(np.asarray(["a"] * n if labels is None else labels).tolist())
        table = pyarrow.table(columns)
    except pyarrow.ArrowException:
        return
    seed, repeats = make.seed(), make.chance(0.5)
    budget, wanted = (make.budget(), None) if make.chance(0.4) else (None, make.arg(make.count(1, n), *NO_COUNTS))
    options = {"id": make.arg("id", "no", 3), "group": None if labels is None else "label", "seed": seed}
    options |= {"skip_bad": make.chance(0.2), "repeats": repeats, "column": make.arg("log_ratio", "no", "label")}
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/scores")
        for i, part in enumerate(parts_of(make, n)):
            try:
                write(make, f"{folder}/scores/part-{i}{ending}", table.take(pyarrow.array(part)))
            except pyarrow.ArrowException:  # a csv has no lists
                return
        if make.wild and make.chance(0.1):
            with open(f"{folder}/scores/part-9{ending}", "wb") as file:
                file.write(make.one(b"", b"\x00\xff", b"PAR1", b"a,b\n1\n"))
        where = make.arg(f"{folder}/scores", f"{folder}/none", [], f"{folder}/scores/*.no", 3, None)
        done = make.answer(files.select, where, wanted, budget=budget, out=f"{folder}/kept", progress=False, **options)
        if done is None:
            assert not os.path.exists(f"{folder}/kept"), "a folder in spite of an error"
            return
        assert done.rows + done.bad == n
        kept = []
        for name in sorted(os.listdir(done.out)):
            if name != files.MANIFEST:
                kept += read_rows(f"{done.out}/{name}")
        assert len(kept) == done.kept
        assert len(set(kept)) == len(kept)
        plan = make.answer(files.plan, f"{folder}/scores", [2.0], progress=False)
        assert plan is None or not np.isnan(plan[0]["tv"])
    if done.bad or labels is not None or len(np.unique(ids)) < n or columns["log_ratio"].type != pyarrow.float64():
        return
    if options["id"] == "id" and columns["id"].type == pyarrow.int64() and ending == ".parquet":
        number = int(wanted) if budget is None else int(n / budget)
        chosen = host(obrs.select(x, number, design="priority", ids=ids, seed=seed)).astype(int)
        assert sorted(kept) == chosen.tolist()


def read_rows(path):
    if path.endswith(".parquet"):
        return parquet.read_table(path).column("row").to_pylist()
    if path.endswith(".csv"):
        return csv.read_csv(path).column("row").to_pylist() if os.path.getsize(path) else []
    with open(path, encoding="utf-8") as file:
        return [json.loads(line)["row"] for line in file if line.strip()]


LOOKS = [looks]
FOLDERS = [folders]
