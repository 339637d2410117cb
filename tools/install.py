"""Build wheel and sdist, install each extra alone in an empty environment, try it, and weigh it.

python tools/install.py                                  # all extras; the record is results/install.json
python tools/install.py --python python3.13 --only core  # with another Python, which tries but records nothing
python tools/install.py --only torch jax                 # anew what is named, beside what the record has

What needs torch is tried with the Python that runs this, and with no other: the torch of constraints.txt is pinned, as
its wheel is small, and other versions of Python may get one with all libraries of GPUs.
"""

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results" / "install.json"
POINTS = "import numpy as np; rng = np.random.default_rng(0); real = rng.normal(size=(2000, 2)); import obrs;"
PROPOSE = "propose = lambda ids: 2 * obrs.normals(ids, 2, seed=0);"
SCORES = (
    "import random; open('s.csv', 'w').write('log_ratio\\n' + '\\n'.join(str(random.gauss(0, 1)) for _ in range(1000)))"
)
TINY = "generator_loss='paper_raw', steps=2, batch_size=8, data_size=64"
SCRIPTS = {
    "core": ["examples/log_densities.py", "examples/signed_weights.py"],
    "torch": ["examples/torch_gan.py", "examples/verl_rollout.py"],
    "jax": ["examples/jit_accept.py"],
    "plot": [f"-c {POINTS} obrs.plot_profile(obrs.Profile(real[:, 0])).savefig('p.png')"],
    "cli": [f"-c {SCORES}", "-m obrs plan s.csv", "-m obrs select s.csv -n 100 -o kept.parquet"],
    "flows": [
        "-c import zuko; from obrs.sampling.lars import BudgetedBase, with_base;"
        "with_base(zuko.flows.NICE(2), BudgetedBase(2, 3))().sample((5,))"
    ],
    "ratios": [f"-c {POINTS} {PROPOSE} print(obrs.refit(real, propose).report)"],
    "training": [f"-c from obrs.training import TrainConfig, train; train(TrainConfig({TINY}), out='run')"],
    "features": [
        "-c import numpy as np; from obrs.metrics.features import extract;"
        "x = np.zeros((4, 32, 32, 3), np.uint8); print(extract(x, 'efficientnet_lite0', keep=False).shape)"
    ],
    "ray": [
        "-c import numpy as np, obrs, ray; ray.init(num_cpus=1, include_dashboard=False);"
        "data = ray.data.from_numpy(np.zeros(100)).add_column('id', lambda batch: np.arange(len(batch)));"
        "print(obrs.ray.select(data, n=10, column='data', id='id').dataset.count())"
    ],
    "diffusion": [
        "-c import torch, obrs; from diffusers import DDIMPipeline, DDIMScheduler, UNet2DModel;"
        "net = UNet2DModel(8, block_out_channels=(32, 64), down_block_types=('DownBlock2D',) * 2,"
        "up_block_types=('UpBlock2D',) * 2); pipe = DDIMPipeline(net, DDIMScheduler());"
        "print(obrs.adapters.from_pipeline(pipe, arguments={'num_inference_steps': 2})(range(2)).shape)"
    ],
    "language": ["-c import trl, transformers, gguf, obrs.experiments.smollm", "examples/verl_rollout.py"],
    "tensorboard": ["-c import tensorboard"],
    "experiments": ["-m obrs reproduce figure-1d --preset smoke --out out"],
    "report": [f"-c {SCORES}", "-m obrs report s.csv -o report.html"],
    "browser": ["-c import playwright.sync_api"],
    "docs": ["-m mkdocs --version"],
}
"""What an extra is for, as arguments of Python that must succeed with nothing else installed."""
NEEDS_TORCH = ("torch", "flows", "ratios", "training", "features", "diffusion", "language", "experiments")


def run(*command, **options):
    """Run a command that must succeed, and return what it prints."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def build(folder):
    """Build both kinds of package, check what is in them, and return the wheel that the sdist makes."""
    run(sys.executable, "-m", "venv", folder / "build")
    python = folder / "build" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "build")
    run(python, "-m", "build", "--outdir", folder, ROOT)  # the wheel is made from the sdist
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*") if path.is_file()}
    missing = {name for name in sources if "__pycache__" not in name} - set(names)
    if missing:
        raise SystemExit(f"the wheel lacks {sorted(missing)[:5]}")
    print(f"{sdist.name} {sdist.stat().st_size / 1e6:.1f} MB, {wheel.name} {wheel.stat().st_size / 1e6:.1f} MB")
    return sdist, wheel


def megabytes(folder):
    """Return the size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def install(extra, wheel, python, folder):
    """Install the wheel with one extra in an empty environment, try it, and return a row of the record."""
    place = folder / f"{Path(python).name}-{extra}"
    run(python, "-m", "venv", place)
    own = place / "bin" / "python"
    (packages,) = place.glob("lib/python*/site-packages")
    before = megabytes(packages)
    start = perf_counter()
    wanted = str(wheel) if extra == "core" else f"{wheel}[{extra}]"
    run(own, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wanted)
    seconds = perf_counter() - start
    weight = megabytes(packages) - before  # compiled files of modules are part of it, as pip makes them
    scratch = folder / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(ROOT / "examples", scratch / "examples")
    for script in SCRIPTS[extra]:
        words = ["-c", script[3:]] if script.startswith("-c ") else script.split()
        run(own, "-W", "ignore", *words, cwd=scratch)
    found = run(own, "-m", "pip", "list", "--format", "json")
    count = len([each for each in json.loads(found) if each["name"] not in ("pip", "setuptools", "wheel", "obrs")])
    version = re.sub(r"\s+", " ", run(own, "--version")).split()[1]
    shutil.rmtree(place)
    return {"extra": extra, "python": version, "MB": round(weight), "packages": count, "seconds": round(seconds)}


def main(argv=None):
    """Try what was asked for; with this Python, keep the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="the interpreter to try it with")
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, metavar="EXTRA", help="the extras to try; core is none")
    args = parser.parse_args(argv)
    other = args.python != sys.executable
    extras = args.only or [extra for extra in SCRIPTS if not (other and extra in NEEDS_TORCH)]
    known = (
        {} if other or not RECORD.exists() else {row["extra"]: row for row in json.loads(RECORD.read_text())["rows"]}
    )
    with tempfile.TemporaryDirectory() as scratch:
        sdist, wheel = build(Path(scratch))
        failed = []
        for extra in extras:
            try:
                row = known[extra] = install(extra, wheel, args.python, Path(scratch))
            except RuntimeError as error:
                failed.append(extra)
                print(f"{extra} failed:\n{error}", flush=True)
                continue
            print(
                f"{row['python']:8} {extra:12} {row['MB']:5} MB {row['packages']:4} packages {row['seconds']:4} s",
                flush=True,
            )
            if not other:
                sizes = {"wheel": round(wheel.stat().st_size / 1e6, 1), "sdist": round(sdist.stat().st_size / 1e6, 1)}
                rows = [known[name] for name in SCRIPTS if name in known]
                record = {"tool": "install", "MB": sizes, "rows": rows, "platform": platform.platform(terse=True)}
                RECORD.write_text(json.dumps(record, indent=2) + "\n")
    print(f"failed: {', '.join(failed)}" if failed else "all can be installed alone, and used")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
