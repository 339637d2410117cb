"""`obrs tune`: find the ratio by which a budget improves a pool of samples most, and keep 1 in K of them."""

import csv
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .._files import check_folder, check_not_input
from ..errors import InputError
from .app import Command, app

__all__ = ["tune"]

_SETS = "A folder of PNG and JPEG, a .npy, or a .npz, which may hold labels."


@app.command(
    cls=Command,
    epilog="""
        obrs tune --real real/ --fake fake/ --labels labels.csv --budget 4 -o tuned/
        obrs tune --real real.npy --fake fake.npy --budget 2 -o tuned/
    """,
)
def tune(
    real: Annotated[
        str, typer.Option(metavar="PATH", help=f"Samples of the target that the model did not see. {_SETS}")
    ],
    fake: Annotated[str, typer.Option(metavar="PATH", help=f"Samples of the model as they come. {_SETS}")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where scores.csv, tuned.json and page go.")],
    budget: Annotated[float, typer.Option(metavar="K", help="Keep 1 sample in K.")] = 4.0,
    labels: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A csv with columns file and label; files as seen from its folder."),
    ] = None,
    pixels: Annotated[
        str | None, typer.Option(metavar="B,W", help="Black and white of float images, such as 0,1; -1,1 by default.")
    ] = None,
    judge: Annotated[str | None, typer.Option(metavar="NAME", help="Features that decide, such as gradients.")] = None,
    lose_recall: Annotated[bool, typer.Option("--lose-recall", help="Take a choice even if recall falls.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="The same seed keeps the same samples.")] = 0,
) -> None:
    """Find the ratio that a judge confirms, and keep 1 sample in K by it."""
    from ..html.tuned import report_pool
    from ..tuning import tune_pool

    if out.exists() and not out.is_dir():
        raise InputError(f"results go into a folder, {out} is a file; choose another --out")
    check_folder(out)
    for name in ("tuned.json", "scores.csv", "tuned.html"):
        check_not_input(out / name, real, fake, labels)
    known = None if labels is None else _read_labels(labels)
    sets = [_read(path, known, labels, _ends(pixels)) for path in (real, fake)]
    found = tune_pool(sets[0][0], sets[1][0], budget=budget, judge=judge, keep_recall=not lose_recall, seed=seed)
    found.save(out, sets[1][1])
    kept = np.zeros(len(found.score), dtype=bool)
    kept[found.kept] = True
    page = report_pool(found, sets[1][0], kept, out=out / "tuned.html", title=f"{Path(fake).name}: 1 in {budget:g}")
    typer.echo(str(found))
    typer.echo(f"kept {len(found.kept):,} of {len(kept):,}: {out / 'scores.csv'}, {page}")


def _ends(pixels: str | None) -> tuple[float, float] | None:
    if pixels is None:
        return None
    try:
        black, white = map(float, pixels.split(","))
    except ValueError:
        raise InputError(f"--pixels must be two numbers with a comma between them, got {pixels!r}") from None
    return black, white


def _read_labels(path: str) -> dict[Path, int]:
    """Return the labels of files as numbers, by their absolute path."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    if not rows or not {"file", "label"} <= rows[0].keys():
        got = ", ".join(map(str, rows[0])) if rows else "no row"
        raise InputError(f"{path} must have the columns file and label, got {got}")
    names = {name: code for code, name in enumerate(sorted({row["label"] for row in rows}))}
    return {(Path(path).parent / row["file"]).resolve(): names[row["label"]] for row in rows}


def _read(path: str, known: Any, labels: str | None, ends: Any) -> tuple[Any, Any]:
    """Return samples, with labels if there are any, and the names of their files."""
    from ..metrics.images import image_files, read_file, read_images

    if Path(path).is_dir():
        images, files = read_images(path), image_files(path)
        x = images.floats(0, images.n)
        names = [file.relative_to(Path(path)).as_posix() for file in files]
        if known is None:
            return x, names
        found = [known.get(file.resolve()) for file in files]
        if None in found:
            missing = f"{found.count(None)} of {len(found)} images of {path}, such as {files[found.index(None)]}"
            raise InputError(f"{labels} has no label for {missing}; its files are as seen from its own folder")
        return (x, np.array(found)), names
    if known is not None:
        raise InputError(f"--labels is for folders; put the labels of {path} into an .npz as an array called labels")
    values, own = read_file(path)
    x = np.asarray(values, dtype=np.float32)
    if values.ndim > 2:
        images = read_images(values, pixels=ends, name=path)
        x = images.floats(0, images.n)
    return (x if own is None else (x, own)), None
