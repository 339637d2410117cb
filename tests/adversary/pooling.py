"""Rooms of sketches, their merges, and folders of files."""

import json
import os
import tempfile

import numpy as np
import pyarrow
from pyarrow import csv, parquet

import obrs
from obrs.draws import priority_key
from obrs.engines import files
from obrs.errors import BracketError
from obrs.sketch import Sketch, SketchCut, seed_for

from .making import NO_ARRAYS, NO_BUDGETS, NO_COUNTS, NO_SEEDS, close, host


def parts_of(make, n):
    """Cut n rows into parts, some of them empty."""
    at = np.sort(make.rng.integers(0, n + 1, make.count(0, 3)))
    return np.split(np.arange(n), at)


def filled(make, x, ids, seed, cost):
    sketches = []
    for part in parts_of(make, len(x)):
        sketch = make.answer(
            Sketch().add,
            make.guise(x[part]),
            None if ids is None else ids[part],
            seed,
            cost=None if cost is None else cost[part],
        )
        if sketch is None:
            return None
        sketches.append(sketch)
    merged = make.answer(sketches[0].merge, *sketches[1:])
    if merged is None:
        return None
    turned = [sketches[i] for i in make.rng.permutation(len(sketches))]
    assert turned[0].merge(*turned[1:]).to_json() == merged.to_json()
    assert Sketch.from_json(merged.to_json()).to_json() == merged.to_json()
    return merged


def exact_cut(make, cut, x, ids, cost, pieces):
    """Judge all parts and finish, with one zoom if chance wants it."""
    if make.chance(0.3) and not cut.exact:
        zoom = cut.zoom()
        for part in pieces:
            zoom = zoom.add(x[part], ids[part], cut.seed, cost=None if cost is None else cost[part])
        cut = cut.narrow(zoom)
    opens = [cut.judge(ids[part], x[part], cost=None if cost is None else cost[part]).open for part in pieces]
    return cut.finish(*opens)


def solved_and_finished(make):
    """The cut of parts is that of all rows: the constant of `solve_log_c`, the rows of `select`."""
    n = make.size(200)
    x, ids, seed = make.log_ratio(n), make.ids(n), make.seed()
    if x.dtype.kind in "iu" and np.abs(x.astype(np.float64)).max(initial=0) > 2**24:
        x = x.astype(np.float64)  # torch and JAX hold integers as float32, in which these are others
    ids = np.arange(n) if ids is None else ids
    cost = make.one(None, None, make.rng.integers(0, 5, n)) if not make.wild else make.one(None, make.weights(n), [1])
    if cost is not None and not hasattr(cost, "dtype"):
        cost = np.asarray(cost)
    if np.ndim(ids) != 1 or len(ids) != n or (cost is not None and len(cost) != n):
        make.answer(Sketch().add, x, ids, seed, cost=cost)
        return
    ids = np.asarray(ids)
    sketch = filled(make, x, ids, seed, cost)
    if sketch is None:
        return
    budget, wanted = (make.budget(), None) if make.chance(0.5) else (None, make.arg(make.count(1, n), *NO_COUNTS))
    cut = make.answer(sketch.solve, budget=budget, n=wanted, margin=make.arg(6.0, 0, -1, np.nan, "m", 100.0))
    if cut is None:
        return
    assert SketchCut.from_json(cut.to_json()) == cut
    try:
        exact = exact_cut(make, cut, x, ids, cost, parts_of(make, n))
    except BracketError:
        return  # repeated ids may cause it, and a small margin
    assert SketchCut.from_json(exact.to_json()) == exact
    decision = exact.keep(ids, x)
    if budget is not None:
        if cost is None:
            log_c = float(host(obrs.solve_log_c(host(x), budget)))
            assert exact.log_c == log_c or close(exact.log_c, log_c, rtol=1e-12, atol=1e-9)
        key = priority_key(x, ids, seed=seed)
        with np.errstate(over="ignore", invalid="ignore"):
            far = np.abs(key - exact.log_c) > 1e-9 * max(1.0, abs(exact.log_c))
        clear = far if np.isfinite(exact.log_c) else key < np.inf
        assert np.array_equal((decision == 1)[clear], (key < exact.log_c)[clear])
        return
    chosen = host(obrs.select(host(x), int(wanted), design="priority", ids=ids, seed=seed, cost=cost)).astype(int)
    kept = np.flatnonzero(decision == 1)
    if exact.spare < 0:
        assert np.array_equal(kept, chosen)
    elif cost is None:
        assert len(kept) + exact.spare == len(chosen)
    assert make.answer(obrs.sql, exact, id=make.arg("id", 'a"b')) != ""


def plans_of_sketches(make):
    """The plan of a sketch is that of its rows up to the width of its bins."""
    n = make.size(100)
    x = make.log_ratio(n)
    sketch = make.answer(Sketch().add, make.array(x))
    if sketch is None or sketch.rows != n:
        return
    budget = make.budget()
    plan = make.answer(sketch.plan, [budget], n=make.arg(5, *NO_COUNTS), recall=make.arg(0.9, 0, "r", np.nan, 2))
    if plan is None:
        return
    assert not any(isinstance(value, float) and np.isnan(value) for value in plan[0].values())
    assert str(plan)
    profile = obrs.Profile(host(x))
    if np.abs(x[np.isfinite(x)].astype(np.float64)).max(initial=0) < 20:  # the smallest integer is its own negative
        for key in ("kl", "tv", "js"):
            left = profile.divergence(key, budget)
            assert close(plan[0][key], left, rtol=1e-3, atol=2e-3)


def strange_sketches(make):
    """Saved sketches that are broken, sketches that do not go together, arguments that are none."""
    make.wild = True
    good = Sketch().add([0.0, 1.0, -np.inf], [1, 2, 3], 0)
    text = good.to_json()
    data = json.loads(text)
    key = make.one(*data)
    data[key] = make.one(None, "x", [], {}, -1, 1.5, [1], {"level": 0}, True, "nan")
    found = make.answer(
        Sketch.from_json, make.one(json.dumps(data), text[: make.count(0, len(text))], "", "[]", "3", "{}")
    )
    if found is not None:
        make.answer(found.solve, n=1)
        make.answer(found.merge, good)
    make.answer(good.merge, make.one(Sketch().add([0.0], seed=1), Sketch().add([0.0], cost=[1]), None, 3, Sketch()))
    make.answer(Sketch().add, make.one(*NO_ARRAYS, [0.0]), make.one(None, [1], ["a"]), make.one(0, *NO_SEEDS))
    make.answer(Sketch().solve, n=1)
    make.answer(good.solve, n=make.one(1, None, *NO_COUNTS), budget=make.one(None, *NO_BUDGETS))
    make.answer(seed_for, make.one("a", None, 3, ""), make.one(0, *NO_SEEDS))
    cut = json.loads(good.solve(n=1).to_json())
    cut[make.one(*cut)] = make.one(None, "x", [], -1, {}, True)
    broken = make.answer(SketchCut.from_json, make.one(json.dumps(cut), "", "{}", "[]"))
    if broken is not None:
        make.answer(broken.keep, [1, 2, 3], [0.0, 1.0, -np.inf])


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
            if name != "manifest.json":
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


SKETCHES = [solved_and_finished, solved_and_finished, plans_of_sketches, strange_sketches]
FOLDERS = [folders]
