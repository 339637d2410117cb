"""A folder of images with a score for each: a proposal is the number of a file, and pixels are read when wanted."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .._checks import is_number
from ..critics import to_log_ratio
from ..errors import InputError, InputTypeError
from ..metrics.images import ImageSet, image_files, read_images

__all__ = ["ScoredFolder", "from_folder", "match_names"]

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class ScoredFolder:
    """The images of a folder, in the order of their names, and their log-ratios; the id of an image is its number.

    `sample_pool(folder.propose, folder.log_ratio, n, pool=len(folder))` keeps n of them.

    Args:
        path: The folder.
        files: Its images, in the order of their names.
        scores: Their log-ratios, in this order: what `obrs.select` and `obrs.evaluate(fake=path, ...)` take.
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
            raise InputError(
                f"{self.path} has {len(self)} images, numbers 0 to {len(self) - 1}, got id {wrong[0]}; say "
                f"pool={len(self)} or max_proposed={len(self)}"
            )
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
        """The images, which must be of one size; the first use looks at the head of every file."""
        found = read_images(self.path)
        if found.n != len(self):
            raise InputError(f"{self.path} had {len(self)} images and now has {found.n}; call from_folder again")
        return found


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
        scores: One score for each image, by its name within the folder: a dict, or a file of scores (csv, jsonl,
            parquet).
        file: The column of names in a file of scores.
        column: The column of scores; None for the only choice.
        kind: What a score is, a key of `obrs.critics.KINDS`. None takes the numbers of a dict for log-ratios, and those
            of a file for what their column is called.
        beta: The temperature of a "reward".

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> path = Path(tempfile.mkdtemp())
        >>> for i in range(3):
        ...     Image.new("L", (8, 8), 100 * i).save(path / f"{i}.png")
        >>> folder = from_folder(path, {"0.png": 0.0, "1.png": -1.0, "2.png": 1.0})
        >>> folder.log_ratio(folder.propose([2, 0])), folder.read([1]).shape
        (array([1., 0.]), (1, 1, 8, 8))
    """
    home = Path(path).expanduser()
    if isinstance(scores, Mapping):
        given, source, kind = list(scores), "scores", kind or "log_ratio"
        for name, score in scores.items():
            if not is_number(score):
                raise InputTypeError(f"scores must have a number for each image, {name} has {score!r:.40}")
        unordered = np.array([float(score) for score in scores.values()])
    elif isinstance(scores, str | os.PathLike):
        given, unordered, kind = _from_table(scores, file, column, kind, beta)
        source = os.fspath(scores)
    else:
        raise InputTypeError(f"scores must be a dict of names and scores, or a file, got {type(scores).__name__}")
    files = image_files(home)
    values = unordered[match_names(given, home, source)]
    names = [each.relative_to(home).as_posix() for each in files]
    for wrong, what in ((np.isnan(values), "NaN"), (values == np.inf, "+inf")):
        if count := int(np.count_nonzero(wrong)):
            first = names[int(np.argmax(wrong))]
            raise InputError(f"{source} has the score {what} for {count} of {len(names)} images, the first is {first}")
    return ScoredFolder(home, tuple(files), to_log_ratio(values, kind, beta=beta))


def match_names(names: Sequence[str], folder: str | os.PathLike[str], source: str) -> Numbers:
    """Return, for each image of a folder in the order of their names, the position of its name in a list.

    Args:
        names: Names within the folder, each once, in any order.
        folder: With an image for each name, and no other.
        source: What an error calls the list.
    """
    home = Path(folder).expanduser()
    images = [each.relative_to(home).as_posix() for each in image_files(home)]
    place = {name: i for i, name in enumerate(names)}
    if len(place) < len(names):
        twice = next(name for i, name in enumerate(names) if place[name] != i)
        raise InputError(f"{source} has more than one score for {twice}; keep one of them")
    without = [name for name in images if name not in place]
    if without:
        raise InputError(
            f"{source} has no score for {len(without)} of {len(images)} images of {home}, the first is {without[0]}; "
            "names are those within the folder"
        )
    if len(place) > len(images):
        extra = next(name for name in names if name not in set(images))
        raise InputError(f"{source} has a score for {extra}, which is not an image of {home}; leave it out")
    return np.array([place[name] for name in images])


def _from_table(
    path: str | os.PathLike[str], file: str, column: str | None, kind: str | None, beta: float | None
) -> tuple[list[str], Numbers, str]:
    """Return names and scores of a file, and their kind."""
    from ..files import Reading
    from ..scores import find_sources, read_columns

    sources = find_sources(path)
    reading = Reading.find(sources, column, kind, beta=beta, group=file)
    batch = read_columns(sources, reading.names)
    codes, names = batch.labels(file)
    return [names[code] for code in codes], batch.numbers(reading.column), reading.kind
