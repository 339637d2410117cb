"""Measure what it costs to keep rows of a folder that is larger than memory.

    python benchmarks/scale.py [--out benchmarks/results/scale.json] [--rows 20000000 50000000] [--only select plan]
    python benchmarks/scale.py --ray 20000000 --out benchmarks/results/scale.json

Every contestant runs in a process of its own, with one thread. What counts is the CPU time of that process beyond its
start, and the most memory it had. All read the same Parquet files (id in random order, log_ratio, a text; default
compression) and write n rows with all columns: a quarter of them, and 100 000.

- read-filter-write: batch by batch, every so many rows. Nobody can be cheaper.
- select, plan: `obrs.files.select`, and `obrs.files.plan`, which only reads scores.
- duckdb, polars: the n smallest of a key of the same form, the uniforms being those of their own hash of the id.

`--ray` measures the last pass of `obrs.ray.select`, filter and write, beside Ray's own read, slice and write, on one
worker: CPU seconds of all processes of Ray, several times in turn, medians.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from bench import exit_code, memory, options, write

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
FILE = 500_000  # rows
FEW = 100_000  # rows to keep
TARGETS = {"select": 2.2, "ray": 1.5}  # times read-filter-write
MEMORY = 400  # MB, of ours
LIMIT = 8 << 30  # bytes of address space for those that sort


def write_pool(folder: Path, rows: int) -> None:
    """Write the pool: normal log-ratios, ids in random order, and a text."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import parquet

    folder.mkdir(parents=True)
    for part, ids in enumerate(np.array_split(np.random.default_rng(0).permutation(rows), -(-rows // FILE))):
        rng = np.random.default_rng(part)
        text = pc.binary_join_element_wise("text number", pc.cast(pa.array(ids), pa.string()), "of many", " ")
        columns = {"id": ids, "log_ratio": rng.standard_normal(len(ids), np.float32), "text": text}
        parquet.write_table(pa.table(columns), folder / f"part-{part:03}.parquet")


def read_filter_write(pool: Path, n: int, out: Path) -> None:
    """Keep every so many rows."""
    import pyarrow as pa
    from pyarrow import parquet

    step = sum(parquet.read_metadata(path).num_rows for path in pool.iterdir()) // n
    out.mkdir()
    for path in sorted(pool.iterdir()):
        file = parquet.ParquetFile(path)
        with parquet.ParquetWriter(out / path.name, file.schema_arrow) as writer:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, use_threads=False)
                writer.write_table(table.filter(pa.array(np.arange(len(table)) % step == 0)))


def select(pool: Path, n: int, out: Path) -> None:
    """Select by the looks of this library."""
    import obrs

    assert obrs.files.select(pool, n, id="id", out=out, progress=False).kept == n


def plan(pool: Path, n: int, out: Path) -> None:
    """Plan."""
    import obrs

    obrs.files.plan(pool, [2, 4, 8], progress=False)


def duckdb(pool: Path, n: int, out: Path) -> None:
    """Sort by a key."""
    import duckdb as library

    key = "ln((hash(id) >> 11)::DOUBLE / 9007199254740992) - log_ratio"
    query = f"SELECT * FROM read_parquet('{pool}/*.parquet') ORDER BY {key} LIMIT {n}"
    base = library.connect(config={"threads": 1, "memory_limit": "2GB", "temp_directory": f"{out}.tmp"})
    out.mkdir()
    base.execute(f"COPY ({query}) TO '{out}/kept.parquet' (FORMAT parquet)")


def polars(pool: Path, n: int, out: Path) -> None:
    """Take the smallest keys."""
    import polars as pl

    out.mkdir()
    key = (pl.col("id").hash(0).cast(pl.Float64) / 2.0**64).log() - pl.col("log_ratio")
    rows = pl.scan_parquet(f"{pool}/*.parquet").with_columns(key=key).bottom_k(n, by="key").drop("key")
    rows.sink_parquet(out / "kept.parquet")


CONTESTANTS = {f.__name__.replace("_", "-"): f for f in (read_filter_write, select, plan, duckdb, polars)}


def run_alone(name: str, pool: Path, n: int, out: Path) -> dict[str, Any]:
    """Run a contestant in this process, after a small run that imports what it needs."""
    import resource

    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    with tempfile.TemporaryDirectory() as folder:
        write_pool(Path(folder, "pool"), 4000)
        CONTESTANTS[name](Path(folder, "pool"), 1000, Path(folder, "kept"))
    if name in ("duckdb", "polars"):
        resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    start = process_time()
    CONTESTANTS[name](pool, n, out)
    return {"cpu_seconds": process_time() - start, "peak_mb": memory() / 2**20}


def measure(rows: int, names: list[str], folder: Path) -> list[dict[str, Any]]:
    """Run the contestants on a pool of so many rows, to keep a quarter of them, and few."""
    write_pool(folder / "pool", rows)
    results = []
    for n, title in ((rows // 4, "{}"), (FEW, "{}, n = 10⁵")):
        for name in names:
            (folder / "run").mkdir()
            where = [str(folder / "pool"), str(n), str(folder / "run/kept")]
            command = [sys.executable, __file__, "--child", name, *where]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | ONE_THREAD)
            row: dict[str, Any] = {"rows": rows, "contestant": title.format(name), "n": n}
            if done.returncode:
                row["failed"] = (done.stderr.strip().splitlines() or [f"signal {-done.returncode}"])[-1][:120]
            else:
                row |= json.loads(done.stdout)
            base = next((other for other in results if other["contestant"] == title.format("read-filter-write")), row)
            if "cpu_seconds" in row:
                row["times"] = row["cpu_seconds"] / base["cpu_seconds"]
            if name == "select" and n > FEW and rows >= 10_000_000 and row is not base:  # below it, a start costs more
                row["met"] = "failed" not in row and row["times"] <= TARGETS[name] and row["peak_mb"] <= MEMORY
            results.append(row)
            cost = row.get("failed") or "{cpu_seconds:8.2f} s {times:6.2f} times {peak_mb:6.0f} MB".format(**row)
            print(f"{rows:>11,}  {row['contestant']:28} {cost}", flush=True)
            shutil.rmtree(folder / "run")
    shutil.rmtree(folder / "pool")
    return results


def family_seconds() -> float:
    """Return the CPU seconds so far of this process and of all below it, such as the workers of Ray."""
    parents, seconds = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        parents[int(path.parent.name)] = int(fields[1])
        seconds[int(path.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_mine(process: int) -> bool:
        return process == os.getpid() or (process in parents and is_mine(parents[process]))

    return sum(cost for process, cost in seconds.items() if is_mine(process))


def measure_ray(rows: int, repeat: int = 5) -> dict[str, Any]:
    """Compare the filter pass with a slice, in turn."""
    import pyarrow as pa
    import ray

    import obrs

    os.environ |= ONE_THREAD | {"RAY_DATA_DISABLE_PROGRESS_BARS": "1"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pool(folder / "pool", rows)
        ray.init(num_cpus=1, include_dashboard=False, logging_level="ERROR", object_store_memory=1 << 30)
        dataset = ray.data.read_parquet(str(folder / "pool"))
        begun = family_seconds()
        kept = obrs.ray.select(dataset, rows // 4, id="id").out
        looks = family_seconds() - begun

        def cut_slice(batch: Any) -> Any:
            return batch.filter(pa.array(np.arange(batch.num_rows) % 4 == 0))

        sliced = dataset.map_batches(cut_slice, batch_format="pyarrow", batch_size=None, zero_copy_batch=True)
        times: dict[str, list[float]] = {"slice": [], "filter": []}
        for turn in range(repeat + 1):
            for what, passed in (("slice", sliced), ("filter", kept)):
                before = family_seconds()
                passed.write_parquet(str(folder / f"{what}-{turn}"))
                times[what].append(family_seconds() - before)
                shutil.rmtree(folder / f"{what}-{turn}")
        ray.shutdown()
    slice_, filter_ = (float(np.median(times[what][1:])) for what in ("slice", "filter"))
    facts = {"rows": rows, "looks_seconds": looks, "slice_seconds": slice_, "filter_seconds": filter_}
    print(f"ray, {rows:,} rows: looks {looks:.2f} s, filter {filter_:.2f} s, slice {slice_:.2f} s")
    print(f"filter is {filter_ / slice_:.2f} times slice, aimed at {TARGETS['ray']}")
    return {**facts, "times": filter_ / slice_, "met": filter_ / slice_ <= TARGETS["ray"], "turns": repeat}


def main(argv: list[str] | None = None) -> int:
    """Print what each contestant takes, write JSON if asked to; return 1 if a target is missed."""
    parser = options(__doc__)  # rows of other sizes that the JSON file has stay
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000_000])
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--ray", type=int, metavar="ROWS", help="measure Ray instead, and add that to the JSON file")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        name, pool, n, out = args.child
        print(json.dumps(run_alone(name, Path(pool), int(n), Path(out))))
        return 0
    record = json.loads(args.out.read_text()) if args.out and args.out.exists() else {"rows": []}
    rows, ray = [], record.get("ray")
    if args.ray:
        ray = measure_ray(args.ray)
    else:
        with tempfile.TemporaryDirectory() as folder:
            rows = [row for size in args.rows for row in measure(size, args.only, Path(folder))]
    known = {(row["rows"], row["contestant"]) for row in rows}
    kept = [row for row in record["rows"] if (row["rows"], row["contestant"]) not in known]
    config = {"rows_per_file": FILE, "targets": TARGETS, "memory_mb": MEMORY}
    every = sorted(kept + rows, key=lambda row: row["rows"])
    write(args.out, "scale", config, ("numpy", "pyarrow", "duckdb", "polars", "ray"), rows=every, ray=ray)
    return exit_code([*rows, *([ray] if args.ray else [])])


if __name__ == "__main__":
    raise SystemExit(main())
