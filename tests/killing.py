"""Kill real runs at random moments, start them again until they end, and compare them with runs that nobody stopped.

Between two kills everything that is visible must be whole: a file with its final name can be read to its end. A name
that begins with a dot is hidden.

    python tests/killing.py --kind folder --kills 30 --rows 5000000
    python tests/killing.py --kind train --kills 20 --seed 1
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before libraries read it; runs are compared bit by bit
sys.path.insert(0, str(Path(__file__).parents[1]))  # where the package `paper` is

import numpy as np

STAGES = """
data = "grid25"
data_size = 500
generator = { name = "mlp_generator", width = 16 }
critic = { name = "mlp_critic", width = 16 }
batch_size = 16
budget = 2
ema = 0.9
loss = "exact"
constant_every = 3
save_every = 10
log_every = 5

[[stage]]
steps = 40
[[stage]]
steps = 40
critic = { name = "mlp_critic", width = 16, activation = "silu", waves = 64 }
new_critic = true
warm_up = 10
"""
PAPER = ("figure-1d", "figure-smooth", "figure-pr", "figure-25-samples", "figure-optimal-g")
LAST_STEP = "stage-2/checkpoints/step-00000090.safetensors"  # with the warm-up of the critic

RAY = """
import os, signal, sys
from pathlib import Path
import numpy as np, pyarrow as pa, ray, obrs

folder, rows = Path(sys.argv[1]), int(sys.argv[2])
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")

def die(batch):
    for path in folder.glob("kill-*"):  # who finds one is killed
        path.unlink(missing_ok=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return batch

table = pa.table({"id": np.arange(rows), "log_ratio": np.random.default_rng(0).normal(size=rows)})
dataset = ray.data.from_arrow([table.slice(i * rows // 20, rows // 20) for i in range(20)])
kept = obrs.ray.select(dataset.map_batches(die, batch_size=None), rows // 4, id="id").out.take_all()
np.save(folder / "kept.npy", np.sort([row["id"] for row in kept]))
"""


@dataclass(frozen=True)
class Kind:
    """A kind of run.

    Args:
        modules: What it needs: imported before, so that a kill finds work, not imports.
        prepare: Writes what the run reads into an empty folder; a function of the folder and the number of rows.
        run: Does the work in the folder that is the current one, and goes on if there is some work already.
        result: What runs in two folders must agree on; None as long as there is none.
        out: What a finished run has made.
    """

    modules: tuple[str, ...]
    prepare: Callable[[Path, int], object]
    run: Callable[[int], object]
    result: Callable[[Path], object]
    out: str


def write_scores(folder: Path, rows: int) -> None:
    """Write ten files of scores, with a text that makes writing them take a while."""
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    (folder / "scores").mkdir()
    for part, ids in enumerate(np.array_split(rng.permutation(rows), 10)):
        table = pa.table({"id": ids, "log_ratio": rng.normal(size=len(ids)), "text": [f"row {i}" for i in ids]})
        parquet.write_table(table, folder / "scores" / f"part-{part}.parquet")


def select_rows(rows: int) -> None:
    from obrs import files

    files.select("scores", rows // 4, id="id", out="kept", progress=False)
    files.select("scores/part-0.parquet", rows // 40, id="id", out="kept.parquet", progress=False)


def read_folder(folder: Path) -> object:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("kept*/*")) + sorted(folder.glob("kept.*"))}


def train(rows: int) -> None:
    assert import_module("paper.__main__").main(["train", "run.toml", "--out", "run"]) == 0


def read_training(folder: Path) -> object:
    last = folder / "run" / LAST_STEP
    if not last.exists():
        return None
    lines = [line for log in sorted(folder.glob("run/stage-*/log.jsonl")) for line in log.read_text().splitlines()]
    rows = [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]
    return last.read_bytes(), rows


def reproduce(rows: int) -> None:
    for name in PAPER:  # a record that is whole would be made anew
        if not Path("out", f"{name}.json").exists() or any(Path("out").glob(f"{name}.*.partial.json")):
            assert import_module("paper.__main__").main([name, "--preset", "smoke", "--out", "out"]) == 0


def read_records(folder: Path) -> object:
    files = {path.name: path.read_bytes() for path in sorted(folder.glob("out/[!.]*"))}
    rows = {name: json.loads(files.pop(f"{name}.json"))["rows"] for name in PAPER}
    return rows, files


KINDS = {
    "folder": Kind(("obrs.files", "pyarrow.parquet"), write_scores, select_rows, read_folder, "kept"),
    "train": Kind(
        ("paper.train", "obrs.training", "accelerate"),
        lambda folder, rows: (folder / "run.toml").write_text(STAGES),
        train,
        read_training,
        "run",
    ),
    "paper": Kind(
        ("paper.gan25", "paper.style", "matplotlib.pyplot"), lambda folder, rows: None, reproduce, read_records, "out"
    ),
}


def check_files(folder: Path) -> None:
    """Read to its end every file that is visible: no part of its path begins with a dot."""
    for path in sorted(folder.rglob("[!.]*.*")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if path.suffix == ".parquet":
            from pyarrow import parquet

            parquet.read_table(path)
        elif path.suffix == ".safetensors":
            from safetensors.numpy import load_file

            load_file(path)
        elif path.suffix in (".json", ".jsonl"):  # a log is appended to: only its last line may be on its way
            text = path.read_text()
            for one in [text] if path.suffix == ".json" else text.split("\n")[:-1]:
                json.loads(one)


def start(kind: Kind, folder: Path, rows: int) -> int:
    """Run in a process of its own, a fork of this one, and return its id."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.chdir(folder)
        log = os.open(".log", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        kind.run(rows)
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def kill_runs(name: str, kills: int, seed: int, rows: int, root: Path) -> dict[str, object]:
    """Kill so many runs of a kind, each at a random moment, and return how many came to their end in between."""
    kind, rng = KINDS[name], np.random.default_rng([seed, len(name)])
    for module in kind.modules:
        import_module(module)
    whole, broken = root / "whole", root / "killed"
    whole.mkdir()
    kind.prepare(whole, rows)
    shutil.copytree(whole, broken)  # with the times of its files
    begun = time.monotonic()
    assert os.waitpid(start(kind, whole, rows), 0)[1] == 0, (whole / ".log").read_text()
    usual, expected = time.monotonic() - begun, kind.result(whole)
    killed = ends = 0
    while killed < kills or not ends:
        pid = start(kind, broken, rows)
        if killed < kills:
            time.sleep(float(rng.uniform(0.02, 1.0)) * usual)
            os.kill(pid, signal.SIGKILL)  # a run that has ended waits for its parent: nothing happens to it
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code in (0, -signal.SIGKILL), (broken / ".log").read_text()
        killed += code != 0
        for half in broken.rglob(".obrs-*.tmp"):  # as if a minute had passed: the next run deletes it then
            os.utime(half, (0, 0))
        check_files(broken)
        if code == 0:
            ends += 1
            assert kind.result(broken) == expected, f"{name}: a run that was killed ends in another result"
            left = [path for path in broken.rglob(".*") if path.name != ".log"]
            assert not left, f"{name}: killed runs left {left}"
            if killed < kills:
                shutil.rmtree(broken / kind.out)
    return {"kind": name, "kills": killed, "ends": ends, "seconds of a run": round(usual, 1)}


def kill_workers(kills: int, seed: int, rows: int, root: Path) -> dict[str, object]:
    """Kill workers of Ray at random moments of one selection, and compare with one process."""
    import obrs

    begun, rng = time.monotonic(), np.random.default_rng(seed)
    driver = subprocess.Popen([sys.executable, "-c", RAY, str(root), str(rows)], stdout=sys.stderr)
    for number in range(kills):
        (root / f"kill-{number}").touch()
        while driver.poll() is None and (root / f"kill-{number}").exists():
            time.sleep(0.05)
        time.sleep(float(rng.uniform(0, 1)))
    assert driver.wait() == 0
    expected = obrs.select(
        np.random.default_rng(0).normal(size=rows), rows // 4, design="priority", ids=np.arange(rows)
    )
    np.testing.assert_array_equal(np.load(root / "kept.npy"), expected)
    left = len(list(root.glob("kill-*")))
    return {"kind": "ray", "kills": kills - left, "ends": 1, "seconds of a run": round(time.monotonic() - begun, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--kind", choices=[*KINDS, "ray"], default="folder")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        rest = (args.kills, args.seed, args.rows, Path(root))
        print(json.dumps(kill_workers(*rest) if args.kind == "ray" else kill_runs(args.kind, *rest)), flush=True)


if __name__ == "__main__":
    main()
