"""Kill real runs at random moments, start them again until they end, and compare them with runs that nobody stopped.

Between two kills everything that is visible must be whole: a file with its final name can be read to its end. A name
that begins with a dot is hidden.

    python tests/killing.py --kills 60 --seed 0
    python tests/killing.py --kind select --kills 20
"""

import argparse
import contextlib
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
generator_width = 16
critic_width = 16
batch_size = 16
budget = 2
ema_decay = 0.9
generator_loss = "exact"
constant_every = 3
save_every = 10
log_every = 5

[[stage]]
steps = 40
[[stage]]
steps = 40
critic_network = "fourier"
new_critic = true
warm_up = 10
[[stage]]
steps = 40
"""

LAST_STEP = 140  # with the warm-up of the critic, which the third stage repeats


def fit_again() -> int:
    """Fit a ratio with a checkpoint, and write what it says of 50 points."""
    import torch

    import obrs
    from obrs.ratios.methods import Network

    real = np.random.default_rng(0).normal([1.0, -0.5], 1.0, (3000, 2))
    propose, method = (lambda ids: obrs.normals(ids, 2, seed=5)), Network(width=32)
    fitted = obrs.refit(real, propose, method, steps=400, batch_size=64, checkpoint="fit.safetensors")
    Path(".fitted").write_text(repr(fitted(torch.from_numpy(real[:50]).float()).tolist()))
    os.replace(".fitted", "fitted.txt")
    return 0


RAY = """
import os, sys
import numpy as np
import ray
import obrs

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")

def make():
    import os, signal, time
    from pathlib import Path
    from obrs import normals

    def propose(ids):
        for path in sorted(Path("{folder}").glob("kill-*")):  # the first process that comes by is killed, once for each
            if ids[0] >= int(path.name[5:]):
                try:
                    path.unlink()
                except FileNotFoundError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)
        return normals(ids, 2, seed=1)

    return propose, lambda x: 0.8 * x[:, 0] - 0.3 * x[:, 1]

kept = obrs.ray.sample(make, 3000, budget=3, batch_size=250, workers=2, progress=False)
kept.save("kept.npz")
ray.shutdown()
"""


@dataclass(frozen=True)
class Kind:
    """A kind of run.

    Args:
        prepare: Writes what the run reads into an empty folder.
        command: `obrs` or `paper` with arguments, as they are the next time; or a function that does the work itself.
        check: Raises unless all that is visible in the folder is whole.
        result: What runs in two folders must agree on; None as long as there is none.
        clear: Removes what a finished run has left, so that it begins again.
    """

    prepare: Callable[[Path], None]
    command: Callable[[Path], "list[str] | Callable[[], int]"]
    check: Callable[[Path], None]
    result: Callable[[Path], object]
    clear: Callable[[Path], None]


def visible(folder: Path) -> list[Path]:
    """Return the files whose names, and those of whose folders, do not begin with a dot."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def check_files(folder: Path) -> None:
    """Read every visible file to its end."""
    for path in visible(folder):
        if path.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(path, "np") as file:
                assert all(file.get_tensor(key) is not None for key in file.keys())  # noqa: SIM118
        elif path.suffix == ".parquet":
            from pyarrow import parquet

            parquet.read_table(path)
        elif path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".jsonl":  # a log is appended to: only its last line may be on its way
            lines = path.read_text().split("\n")
            for line in lines[:-1]:
                json.loads(line)
        elif path.suffix == ".npz":
            with np.load(path) as file:
                assert all(file[key] is not None for key in file)
        elif path.suffix == ".png":
            content = path.read_bytes()
            assert content.startswith(b"\x89PNG")
            assert content.endswith(b"IEND\xaeB`\x82")


def without(*names: str) -> Callable[[dict[str, object]], dict[str, object]]:
    return lambda row: {key: value for key, value in row.items() if key not in names}


def prepare_train(folder: Path) -> None:
    (folder / "run.toml").write_text(STAGES)


def train_command(folder: Path) -> list[str]:
    again = any((folder / "run" / "checkpoints").glob("step-*.safetensors")) if (folder / "run").exists() else False
    return ["paper", "train", "run.toml", "--out", "run", *(["--resume"] if again else [])]


def train_result(folder: Path) -> object:
    ends = sorted((folder / "run" / "checkpoints").glob(f"step-{LAST_STEP:08}.safetensors"))
    if not ends:
        return None
    (last,) = ends
    log = [json.loads(line) for line in (folder / "run" / "log.jsonl").read_text().splitlines()]
    return last.read_bytes(), [without("seconds")(row) for row in log]


def record_result(folder: Path) -> object:
    path = folder / "out" / f"{EXPERIMENT}.json"
    if not path.exists():
        return None
    content = json.loads(path.read_text())
    rows = [without("seconds", "time", "ms")(row) for row in content["rows"]]
    return content["config"], rows


EXPERIMENT = "figure-smooth"


def prepare_select(folder: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    rng, rows = np.random.default_rng(0), 4000
    (folder / "scores").mkdir()
    for part in range(40):
        ids = np.arange(part * rows, (part + 1) * rows)
        table = pyarrow.table({"id": ids, "log_ratio": rng.normal(size=rows), "text": [f"row {i}" for i in ids]})
        parquet.write_table(table, folder / "scores" / f"part-{part:02}.parquet", row_group_size=500)


def folder_content(folder: Path) -> object:
    kept = folder / "kept"
    if not kept.exists():
        return None
    return {path.name: path.read_bytes() for path in sorted(kept.iterdir())}


def refit_result(folder: Path) -> object:
    path = folder / "fitted.txt"
    return path.read_text() if path.exists() else None


def clear_refit(folder: Path) -> None:
    for path in folder.glob("fit*"):
        path.unlink()


KINDS = {
    "train": Kind(
        prepare_train, train_command, check_files, train_result, lambda folder: shutil.rmtree(folder / "run")
    ),
    "reproduce": Kind(
        lambda folder: None,
        lambda folder: ["paper", EXPERIMENT, "--preset", "smoke"],
        check_files,
        record_result,
        lambda folder: shutil.rmtree(folder / "out"),
    ),
    "select": Kind(
        prepare_select,
        lambda folder: ["obrs", "select", "scores/", "--id", "id", "-n", "40000", "-o", "kept/"],
        check_files,
        folder_content,
        lambda folder: shutil.rmtree(folder / "kept"),
    ),
    "refit": Kind(lambda folder: None, lambda folder: fit_again, check_files, refit_result, clear_refit),
}


def start(kind: Kind, folder: Path) -> int:
    """Run the command in a process of its own, and return its id.

    It is a fork of this one, in which the libraries are imported: a kill then finds work, not imports.
    """
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.chdir(folder)
        log = os.open(".log", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        command = kind.command(folder)
        code = main_of(*command) if isinstance(command, list) else command()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def main_of(package: str, *arguments: str) -> int:
    return import_module({"obrs": "obrs.cli.app", "paper": "paper.__main__"}[package]).main(list(arguments))


def has_ended(pid: int, folder: Path) -> bool:
    """Tell whether a process has ended by itself; raise if it failed."""
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        assert os.waitstatus_to_exitcode(status) == 0, (folder / ".log").read_text()
    return bool(done)


def run_to_end(kind: Kind, folder: Path) -> float:
    begun, pid = time.monotonic(), start(kind, folder)
    while not has_ended(pid, folder):
        time.sleep(0.05)
    return time.monotonic() - begun


def kill_runs(name: str, kills: int, seed: int, root: Path) -> dict[str, object]:
    """Kill so many runs of a kind, each at a random moment, and return how many ends there were in between."""
    kind, rng = KINDS[name], np.random.default_rng([seed, len(name)])
    whole, broken = root / f"{name}-whole", root / f"{name}-killed"
    for folder in (whole, broken):
        folder.mkdir()
        kind.prepare(folder)
    usual = run_to_end(kind, whole)
    wanted = kind.result(whole)
    assert wanted is not None
    killed, ends = 0, 0
    while killed < kills:
        pid = start(kind, broken)
        time.sleep(float(rng.uniform(0.02, 1.0)) * usual)
        ended = has_ended(pid, broken)
        if not ended:
            os.kill(pid, signal.SIGKILL)
            ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0  # it may have ended in between
            killed += not ended
        kind.check(broken)
        if ended:
            assert kind.result(broken) == wanted, f"{name}: a run that was killed ends in another result"
            kind.clear(broken)
            ends += 1
        print(f"{name}: {killed} killed, {ends} ended", file=sys.stderr, flush=True)
    run_to_end(kind, broken)
    kind.check(broken)
    assert kind.result(broken) == wanted, f"{name}: a run that was killed ends in another result"
    return {"kind": name, "kills": killed, "ends": ends + 1, "seconds of a run": round(usual, 1)}


def kill_actors(kills: int, seed: int, root: Path) -> dict[str, object]:
    """Kill actors of Ray at random moments of one run, and the run itself once; compare with one process."""
    import obrs

    alone = obrs.sample(
        lambda ids: obrs.normals(ids, 2, seed=1),
        lambda x: 0.8 * x[:, 0] - 0.3 * x[:, 1],
        3000,
        budget=3,
        calibrate=4096,
        batch_size=250,
    )
    folder, rng = root / "ray", np.random.default_rng(seed)
    folder.mkdir()
    script = RAY.replace("{folder}", str(folder))

    def check() -> None:
        kept = obrs.Samples.load(folder / "kept.npz")
        assert np.array_equal(kept.ids, alone.ids)
        assert np.array_equal(kept.x, alone.x)
        check_files(folder)

    def start_driver() -> "subprocess.Popen[bytes]":
        with open(folder / ".log", "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-c", script], cwd=folder, stdout=log, stderr=log, start_new_session=True
            )

    begun, driver = time.monotonic(), start_driver()
    assert driver.wait(timeout=900) == 0, (folder / ".log").read_text()[-2000:]
    usual = time.monotonic() - begun
    check()
    (folder / "kept.npz").unlink()

    driver = start_driver()
    time.sleep(float(rng.uniform(0.3, 0.9)) * usual)
    was_running = driver.poll() is None
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)  # what the driver had started
    check_files(folder)

    for at in rng.choice(8000, kills - 1, replace=False):
        (folder / f"kill-{at}").touch()
    driver = start_driver()
    assert driver.wait(timeout=900) == 0, (folder / ".log").read_text()[-2000:]
    check()
    assert not list(folder.glob("kill-*")), "an actor was not killed"
    return {"kind": "ray sample", "kills": kills - 1 + was_running, "ends": 2, "seconds of a run": round(usual, 1)}


SHARES = {"train": 0.3, "reproduce": 0.2, "refit": 0.2, "select": 0.2, "ray": 0.1}


PRELOADED = {
    "train": ("paper.train", "paper.named", "obrs.training.loop", "accelerate"),
    "reproduce": ("paper.figure_smooth", "matplotlib.pyplot"),
    "select": ("obrs.engines.files", "pyarrow.parquet"),
    "refit": ("obrs.ratios.refit", "obrs.ratios.methods"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=60, help="in all, or of the kind that is named")
    parser.add_argument("--kind", choices=[*KINDS, "ray"])
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    for name in [asked.kind] if asked.kind else SHARES:
        number = asked.kills if asked.kind else max(5, round(asked.kills * SHARES[name]))
        with tempfile.TemporaryDirectory() as root:
            for module in PRELOADED.get(name, ()):
                import_module(module)
            kill = kill_actors if name == "ray" else lambda *more, name=name: kill_runs(name, *more)
            print(json.dumps(kill(number, asked.seed, Path(root))), flush=True)


if __name__ == "__main__":
    main()
