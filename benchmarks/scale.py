"""Measure what it costs to keep a quarter of a folder that is larger than memory.

    python benchmarks/scale.py [--out benchmarks/results/scale.json] [--rows 1000000 20000000] [--only pilot sketch]
    python benchmarks/scale.py --ray 20000000 --out benchmarks/results/scale.json
    python benchmarks/scale.py --plot benchmarks/results/scale.json

Every contestant runs in a process of its own, with one thread. What counts is the CPU time of that process and the
most memory it had; the clock on the wall is not looked at, so that other work on the machine matters little. All read
the same Parquet files (id, log_ratio and one more column; not compressed, no dictionaries: the cheapest to read and to
write, and so the hardest to compare with) and write a quarter of the rows with all columns.

- read-filter-write: row group by row group, every fourth row. Nobody can be cheaper.
- pilot, sketch: `obrs.files.select`, with the pilot, and with the pass over all rows that it falls back to.
- plan: `obrs.files.plan`, which only reads scores.
- duckdb, polars: the n smallest of a key of the same form, the uniforms being those of their own hash of the id.

`--ray` measures the last pass of `obrs.ray.select`, filter and write, beside Ray's own read, slice and write, on one
worker: CPU seconds of all processes of Ray, several times in turn, medians.
"""

import argparse
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from bench import memory, missed, options, write

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
FILE = 5_000_000  # rows
GROUP = 1 << 17  # rows, about as many as DuckDB writes
TARGETS = {"pilot": 2.5, "sketch": 4.5}  # times read-filter-write
RAY_TARGET = 1.5  # times read-slice-write
MEMORY = 512  # MB, of ours
SORTS_UP_TO = 8 << 30  # bytes of address space for those that sort


def write_pool(folder: Path, rows: int, group: int = GROUP) -> None:
    """Write the pool: normal log-ratios, in rising order of ids."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir(parents=True)
    for part, ids in enumerate(np.array_split(np.arange(rows), -(-rows // FILE))):
        rng = np.random.default_rng(part)
        columns = {
            "id": ids,
            "log_ratio": rng.standard_normal(len(ids), np.float32),
            "x": rng.random(len(ids), np.float32),
        }
        path = folder / f"part-{part:02d}.parquet"
        parquet.write_table(pa.table(columns), path, row_group_size=group, compression="none", use_dictionary=False)


def read_filter_write(pool: Path, n: int, out: Path) -> None:
    """Keep every fourth row."""
    import pyarrow as pa
    from pyarrow import parquet

    out.mkdir()
    for path in sorted(pool.iterdir()):
        file = parquet.ParquetFile(path)
        with parquet.ParquetWriter(
            out / path.name, file.schema_arrow, compression="none", use_dictionary=False
        ) as writer:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, use_threads=False)
                mask = np.zeros(len(table), bool)
                mask[::4] = True
                writer.write_table(table.filter(pa.array(mask)))


def pilot(pool: Path, n: int, out: Path) -> None:
    """Select, with a pilot."""
    from obrs.engines import files

    files.select(pool, n, id="id", out=out, progress=False)  # of few row groups it makes a sketch


def sketch(pool: Path, n: int, out: Path) -> None:
    """Select, with a look at all rows."""
    from obrs.engines import files

    files.by_pilot = lambda question: None
    assert files.select(pool, n, id="id", out=out, progress=False).way == "sketch"


def plan(pool: Path, n: int, out: Path) -> None:
    """Plan."""
    from obrs.engines import files

    files.plan(pool, [2, 4, 8], progress=False)


def duckdb(pool: Path, n: int, out: Path) -> None:
    """Sort by a key."""
    import duckdb as library

    key = "ln((hash(id) >> 11)::DOUBLE / 9007199254740992) - log_ratio"
    query = f"SELECT * FROM read_parquet('{pool}/*.parquet') ORDER BY {key} LIMIT {n}"
    base = library.connect(config={"threads": 1, "memory_limit": "2GB", "temp_directory": str(out) + ".tmp"})
    out.mkdir()
    base.execute(f"COPY ({query}) TO '{out}/kept.parquet' (FORMAT parquet, COMPRESSION uncompressed)")


def polars(pool: Path, n: int, out: Path) -> None:
    """Take the smallest keys."""
    import polars as pl

    out.mkdir()
    key = (pl.col("id").hash(0).cast(pl.Float64) / 2.0**64).log() - pl.col("log_ratio")
    rows = pl.scan_parquet(f"{pool}/*.parquet").with_columns(key=key).bottom_k(n, by="key").drop("key")
    rows.sink_parquet(out / "kept.parquet", compression="uncompressed")


CONTESTANTS = {f.__name__.replace("_", "-"): f for f in (read_filter_write, pilot, sketch, plan, duckdb, polars)}


def child(name: str, pool: Path, n: int, out: Path) -> dict[str, Any]:
    """Run a contestant in this process, after a small run that imports what it needs: a second that does not count."""
    import resource

    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    with tempfile.TemporaryDirectory() as folder:
        write_pool(Path(folder, "pool"), 40_000, group=100)
        CONTESTANTS[name](Path(folder, "pool"), 10_000, Path(folder, "kept"))
    if name in ("duckdb", "polars"):
        resource.setrlimit(resource.RLIMIT_AS, (SORTS_UP_TO, SORTS_UP_TO))
    start = process_time()
    CONTESTANTS[name](pool, n, out)
    cpu = process_time() - start
    return {"cpu_seconds": cpu, "peak_mb": memory() / 2**20, **kept(out)}


def kept(out: Path) -> dict[str, Any]:
    """Count what was written, and sum its ids: equal sums are equal rows."""
    from pyarrow import parquet

    ids = [parquet.read_table(path, columns=["id"])["id"].to_numpy() for path in sorted(out.glob("*.parquet"))]
    return {"kept": sum(map(len, ids)), "sum_of_ids": int(sum(int(part.sum()) for part in ids))}


def measure(rows: int, names: list[str], folder: Path) -> list[dict[str, Any]]:
    """Run the contestants on a pool of so many rows."""
    pool = folder / f"pool-{rows}"
    write_pool(pool, rows)
    found = []
    for name in names:
        out = folder / "kept"
        command = [sys.executable, __file__, "--child", name, str(pool), str(rows // 4), str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | ONE_THREAD)
        row: dict[str, Any] = {"rows": rows, "contestant": name}
        if done.returncode == 0:
            row |= json.loads(done.stdout)
        else:
            lines = done.stderr.strip().splitlines()
            why = next(
                (line for line in lines if "memory" in line.lower()), (lines or [f"signal {-done.returncode}"])[-1]
            )
            row |= {"failed": why[:120]}
        found.append(row)
        print(told(row), flush=True)
        for path in folder.glob("kept*"):
            shutil.rmtree(path)
        shutil.rmtree(folder / ".kept.obrs", ignore_errors=True)
    shutil.rmtree(pool)
    return found


def told(row: dict[str, Any]) -> str:
    """Return a line for a row."""
    start = f"{row['rows']:>11,}  {row['contestant']:18}"
    if "failed" in row:
        return start + row["failed"]
    each = 1e9 * row["cpu_seconds"] / row["rows"]
    return f"{start}{row['cpu_seconds']:9.2f} s{each:8.1f} ns a row{row['peak_mb']:8.0f} MB"


def with_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add how many times read-filter-write each took, and whether that is what was aimed at."""
    base = {row["rows"]: row["cpu_seconds"] for row in rows if row["contestant"] == "read-filter-write"}
    for row in rows:
        if "failed" in row or row["rows"] not in base:
            continue
        row["times"] = row["cpu_seconds"] / base[row["rows"]]
        if row["contestant"] in TARGETS and row["rows"] >= 20_000_000:  # below it, a start costs as much as the rows
            row["met"] = row["times"] <= TARGETS[row["contestant"]] and row["peak_mb"] <= MEMORY
    return rows


def constants() -> dict[str, Any]:
    """Return what the arithmetic for more rows needs: how large a sketch is, and what a row costs to add and judge."""
    from obrs.sketch import Sketch

    rng = np.random.default_rng(0)
    log_ratio, ids, tile = rng.standard_normal(1 << 21), np.arange(1 << 21), 1 << 17
    parts = [slice(start, start + tile) for start in range(0, len(ids), tile)]
    start, pool = process_time(), Sketch()
    for part in parts:
        pool = pool.add(log_ratio[part], ids[part])
    add = process_time() - start
    cut = pool.solve(n=len(ids) // 4)
    start = process_time()
    held = sum(len(cut.judge(ids[part], log_ratio[part]).open.ids) for part in parts)
    judge = process_time() - start
    start = process_time()
    for _ in range(20):
        pool.merge(pool)
    merge = (process_time() - start) / 20
    wide = Sketch().add(rng.standard_normal(1 << 21) * 8, ids)
    return {
        "sketch_bytes": len(pickle.dumps(pool)),
        "sketch_bytes_wide": len(pickle.dumps(wide)),
        "add_ns": 1e9 * add / len(ids),
        "judge_ns": 1e9 * judge / len(ids),
        "merge_ms": 1e3 * merge,
        "open_rows": held,
        "open_of_rows": len(ids),
    }


def family_seconds() -> float:
    """Return the CPU seconds so far of this process and of all below it, such as the workers of Ray."""
    parents, seconds = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        process = int(path.parent.name)
        parents[process] = int(fields[1])
        seconds[process] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_mine(process: int) -> bool:
        while process not in (0, os.getpid()):
            process = parents.get(process, 0)
        return process != 0

    return sum(seconds[process] for process in list(parents) if is_mine(process))


def measure_ray(rows: int, repeat: int = 5) -> dict[str, Any]:
    """Compare the filter pass with a slice, in turn."""
    import pyarrow as pa
    import ray

    import obrs

    os.environ |= ONE_THREAD | {"RAY_DATA_DISABLE_PROGRESS_BARS": "1"}
    times: dict[str, list[float]] = {"slice": [], "filter": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pool(folder / "pool", rows)
        ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", object_store_memory=1 << 30)

        def sliced(batch: Any) -> Any:
            mask = np.zeros(batch.num_rows, bool)
            mask[::4] = True
            return batch.filter(pa.array(mask))

        dataset = ray.data.read_parquet(str(folder / "pool"))
        kept = obrs.ray.select(dataset, n=rows // 4).dataset
        passes = {
            "slice": dataset.map_batches(sliced, batch_format="pyarrow", batch_size=None, zero_copy_batch=True),
            "filter": kept,
        }
        for turn in range(repeat + 1):
            for name, rows_of in passes.items():
                before = family_seconds()
                rows_of.write_parquet(str(folder / f"{name}-{turn}"))
                times[name].append(family_seconds() - before)
                shutil.rmtree(folder / f"{name}-{turn}")
        ray.shutdown()
    slice_, filter_ = (float(np.median(times[name][1:])) for name in ("slice", "filter"))
    found = {"rows": rows, "slice_seconds": slice_, "filter_seconds": filter_, "times": filter_ / slice_}
    print(f"ray, {rows:,} rows: filter {filter_:.2f} s, slice {slice_:.2f} s, {found['times']:.2f} times")
    return {**found, "target": RAY_TARGET, "met": found["times"] <= RAY_TARGET, "turns": repeat}


def draw(record: dict[str, Any], path: Path) -> None:
    """Draw cost against rows."""
    from matplotlib.figure import Figure

    from obrs.looks import PALETTE

    figure = Figure(figsize=(9, 4), layout="constrained")
    costs, memory = figure.subplots(1, 2)
    for colour, name in zip(("0.4", *PALETTE.values()), record["config"]["contestants"], strict=False):
        rows = [row for row in record["rows"] if row["contestant"] == name and "failed" not in row]
        at = [row["rows"] for row in rows]
        style = {"color": colour, "marker": "o", "markersize": 4, "label": name}
        costs.loglog(at, [row["cpu_seconds"] for row in rows], **style)
        memory.loglog(at, [row["peak_mb"] for row in rows], **style)
    memory.axhline(MEMORY, color="0.7", linestyle=":")
    memory.annotate(
        f"{MEMORY} MB", (1.0, MEMORY), xycoords=("axes fraction", "data"), ha="right", va="bottom", color="0.4"
    )
    memory.set_yticks([100, 200, 500, 1000, 2000, 4000], labels=["100", "200", "500", "1000", "2000", "4000"])
    memory.minorticks_off()
    costs.set(xlabel="rows", ylabel="CPU seconds, one thread", title="keep a quarter of a folder, all columns")
    memory.set(xlabel="rows", ylabel="most memory, MB", title="memory")
    for axes in (costs, memory):
        axes.spines[["top", "right"]].set_visible(False)
    costs.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def main(argv: list[str] | None = None) -> int:
    """Print what each contestant takes, write JSON and picture if asked to; return 1 if a target is missed."""
    parser = options(__doc__)  # rows of other sizes that the JSON file has stay
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 5_000_000, 20_000_000])
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--plot", type=Path, help="draw this JSON file instead")
    parser.add_argument("--ray", type=int, metavar="ROWS", help="measure Ray instead, and add that to the JSON file")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        name, pool, n, out = args.child
        print(json.dumps(child(name, Path(pool), int(n), Path(out))))
        return 0
    if args.plot:
        draw(json.loads(args.plot.read_text()), args.plot.with_suffix(".png"))
        return 0
    if args.ray:
        found = measure_ray(args.ray)
        if args.out:
            record = json.loads(args.out.read_text()) | {"ray": found}
            args.out.write_text(json.dumps(record, indent=2) + "\n")
        return int(not found["met"])

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in args.rows:
            rows += measure(size, args.only, Path(folder))
    known = {(row["rows"], row["contestant"]) for row in rows}
    before: dict[str, Any] = {}
    if args.out and args.out.exists():
        before = json.loads(args.out.read_text())
        rows += [row for row in before["rows"] if (row["rows"], row["contestant"]) not in known]
    rows = with_ratios(sorted(rows, key=lambda row: (row["rows"], list(CONTESTANTS).index(row["contestant"]))))
    for row in rows:
        if row["contestant"] in TARGETS and "times" in row:
            goal = f"<= {TARGETS[row['contestant']]}: {'met' if row['met'] else 'MISSED'}" if "met" in row else ""
            start = f"{row['rows']:>11,}  {row['contestant']:18}{row['times']:9.2f}"
            print(f"{start} times read-filter-write  {goal}".rstrip())
    if args.out:
        config = {
            "rows_per_file": FILE,
            "rows_per_group": GROUP,
            "kept": 0.25,
            "contestants": list(CONTESTANTS),
            "targets": TARGETS,
        }
        ray = {"ray": before["ray"]} if "ray" in before else {}
        libraries = ("numpy", "pyarrow", "duckdb", "polars")
        write(args.out, "scale", config, libraries, rows=rows, constants=constants(), **ray)
        draw(json.loads(args.out.read_text()), args.out.with_suffix(".png"))
    return missed(rows)


if __name__ == "__main__":
    raise SystemExit(main())
