"""`obrs tune`: find the ratio by which a budget improves a pool of samples most, and keep 1 in K of them."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InputError
from .app import SETS, command, option, parse_ends

__all__ = ["tune"]


@command(
    """
        obrs tune --real real/ --fake fake/ --labels labels.csv --budget 4 -o tuned/
        obrs tune --real real.npy --fake fake.npy --budget 2 -o tuned/
    """,
    "seed",
)
def tune(
    real: Annotated[str, option("PATH", f"Samples of the target that the model did not see. {SETS}")],
    fake: Annotated[str, option("PATH", f"Samples of the model as they come. {SETS}")],
    out: Annotated[Path, option("DIR", "Where scores.csv, tuned.json and page go.", "--out", "-o")],
    budget: Annotated[float, option("K", "Keep 1 sample in K; default 4.")] = 4.0,
    labels: Annotated[str | None, option("FILE", "Columns file, as seen from its folder, and label.")] = None,
    pixels: Annotated[str | None, option("B,W", "Black and white of float images; default -1,1.")] = None,
    judge: Annotated[str | None, option("NAME", "Features that decide, such as gradients.")] = None,
    lose_recall: Annotated[bool, option(None, "Take a choice even if recall falls.", "--lose-recall")] = False,
    **shared: Any,
) -> None:
    """Find the ratio that a judge confirms, and keep 1 in K by it."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import csv

    from .. import report, tune
    from .._files import rewrite
    from ..metrics.evaluate import check_not_one_file
    from .reading import check_results

    check_results(out, ("tuned.json", "scores.csv", "tuned.html"), real, fake, labels)
    known, ends = None if labels is None else _read_labels(labels), parse_ends(pixels)
    check_not_one_file(real, fake)
    (target, _), (pool, names) = (_read(path, known, labels, ends) for path in (real, fake))
    result = tune(target, pool, budget=budget, judge=judge, keep_recall=not lose_recall, **shared)
    result.save(out)
    position = np.arange(len(result.score))
    columns = {"id": position} if names is None else {"file": names}
    columns |= {"score": result.score, "kept": np.isin(position, result.kept).astype(np.int8)}
    with rewrite(out / "scores.csv") as file:
        csv.write_csv(pa.table(columns), file)
    page = report(result, samples=pool, out=out / "tuned.html", title=f"{Path(fake).name}: 1 in {budget:g}")
    typer.echo(str(result))
    typer.echo(f"kept {len(result.kept):,} of {len(position):,}: {out / 'scores.csv'}, {page}")


def _read_labels(path: str) -> dict[Path, int]:
    """Return the labels of files as numbers, by their absolute path."""
    from ..scores import find_sources, read_columns

    batch = read_columns(find_sources(path), ["file", "label"])
    codes, _ = batch.labels("label")
    files = [(Path(path).parent / str(name)).resolve() for name in batch.columns["file"].to_pylist()]
    return dict(zip(files, codes.tolist(), strict=True))


def _read(path: str, known: Any, labels: str | None, ends: Any) -> tuple[Any, Any]:
    """Return samples, with labels if there are any, and the names of their files."""
    import numpy as np

    from ..metrics.evaluate import read_samples
    from ..metrics.images import image_files

    if not Path(path).is_dir():
        if known is not None:
            raise InputError(f"--labels is for folders; put labels of {path} into an .npz as an array called labels")
        return read_samples(path, ends), None
    files = image_files(path)
    names = [file.relative_to(Path(path)).as_posix() for file in files]
    if known is None:
        return read_samples(path), names
    labelled = [known.get(file.resolve()) for file in files]
    if None in labelled:
        missing = f"{labelled.count(None)} of {len(labelled)} images of {path}, such as {files[labelled.index(None)]}"
        raise InputError(f"{labels} has no label for {missing}; its files are as seen from its own folder")
    return (read_samples(path), np.array(labelled)), names
