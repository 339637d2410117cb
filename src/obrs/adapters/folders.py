"""A folder of images with a score for each: a proposal is the number of a file, and pixels are read on demand."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .._arrays import as_floats
from .._checks import check_ratios
from .._files import as_path
from ..critics import to_log_ratio
from ..errors import InputError
from ..metrics.images import ImageSet, image_files, match_names, read_images

__all__ = ["ScoredFolder", "from_folder"]

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class ScoredFolder:
    """The images of a folder in the order of their names, and their log-ratios; the id of an image is its number.

    `sample(folder.propose, folder.log_ratio, n, pool=len(folder))` keeps n of them. `scores` are what `obrs.select` and
    `obrs.evaluate(fake=path, ...)` take.
    """

    path: Path
    files: tuple[Path, ...]
    scores: Numbers

    def __len__(self) -> int:
        return len(self.files)

    def propose(self, ids: Any) -> Numbers:
        """Return the numbers of the images with these ids, which are the ids themselves; no file is read."""
        numbers: Numbers = np.asarray(ids)
        if len(wrong := numbers[(numbers < 0) | (numbers >= len(self))]):
            raise InputError(f"{self.path} has {len(self)} images, got id {wrong[0]}; say pool={len(self)}")
        return numbers

    def log_ratio(self, numbers: Any) -> Numbers:
        """Return the log-ratios of the images with these numbers."""
        return np.asarray(self.scores[self.propose(numbers)])

    def read(self, numbers: Any) -> Numbers:
        """Return the images with these numbers: float32 in [-1, 1], shape `(n, channels, height, width)`."""
        rows = [self.images.floats(i, i + 1) for i in self.propose(numbers).tolist()]
        return np.concatenate(rows) if rows else np.empty((0, *self.images.shape), np.float32)

    @cached_property
    def images(self) -> ImageSet:
        """All images, which must have one size; the first use reads the header of every file."""
        images = read_images(self.path)
        if images.n != len(self):
            raise InputError(f"{self.path} had {len(self)} images and now has {images.n}; call from_folder again")
        return images


def from_folder(
    path: str | os.PathLike[str],
    scores: Mapping[str, float] | str | os.PathLike[str],
    *,
    file: str = "file",
    column: str | None = None,
    kind: str | None = None,
    beta: float | None = None,
) -> ScoredFolder:
    """Return the images of a folder with their log-ratios, as a finite pool of proposals.

    Args:
        path: A folder with PNG and JPEG files, also in folders inside it.
        scores: One score for each image by its name within the folder: a dict, or a file (csv, jsonl, parquet).
        file, column: The columns of names and of scores in a file; None for the only choice.
        kind, beta: What a score is, a key of `obrs.critics.KINDS`, and the temperature of a "reward". None takes the
            numbers of a dict for log-ratios, and those of a file for what their column is called.
    """
    home = as_path(path, "path").expanduser()
    if isinstance(scores, Mapping):
        given, values = list(scores), as_floats([*scores.values()], "scores")
        kind = "log_ratio" if kind is None else kind
    else:
        from ..files import Reading
        from ..scores import find_sources, read_columns

        sources = find_sources(scores)
        reading = Reading.find(sources, column, kind, beta=beta, group=file)
        batch = read_columns(sources, reading.names)
        codes, labels = batch.labels(file)
        given, values, kind = [labels[i] for i in codes], batch.numbers(reading.column), reading.kind
    order = match_names(given, home, "scores" if isinstance(scores, Mapping) else os.fspath(scores))
    log_ratio = to_log_ratio(values[order], kind, beta=beta)
    check_ratios(log_ratio)
    return ScoredFolder(home, tuple(image_files(home)), log_ratio)
