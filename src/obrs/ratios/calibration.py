"""Calibration: which map makes a log-ratio of a score, chosen by cross-fitted log-loss, and saved.

The maps themselves are in `maps.py`; `CALIBRATIONS` lists them, the simplest first.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import inf, isfinite
from typing import Any

import numpy as np

from .._inputs import check_count
from .._names import lookup
from ..errors import InputError, InputTypeError, RatioError
from ..types import Array
from .held_out import held_out, losses, mean_of_means
from .maps import Beta, Calibration, Identity, Isotonic, Platt, Shift, Temperature

__all__ = [
    "CALIBRATIONS",
    "Beta",
    "Calibration",
    "CalibrationChoice",
    "CalibrationRow",
    "Identity",
    "Isotonic",
    "Platt",
    "Shift",
    "Temperature",
    "cross_fitted",
    "fit_calibration",
    "from_json",
    "to_json",
]

Floats = np.ndarray[Any, Any]

CALIBRATIONS: dict[str, Any] = {
    "identity": Identity,
    "shift": Shift,
    "temperature": Temperature,
    "platt": Platt,
    "beta": Beta,
    "isotonic": Isotonic,
}
"""The calibrations by name, the simplest first."""


def to_json(calibration: Calibration) -> str:
    """Return a calibration as JSON.

    Example:
        >>> to_json(Platt(slope=0.5, intercept=-1.0))
        '{"calibration": "platt", "slope": 0.5, "intercept": -1.0}'
        >>> from_json(to_json(Shift(offset=2.0)))
        Shift(offset=2.0)
    """
    name = next((name for name, kind in CALIBRATIONS.items() if type(calibration) is kind), None)
    if name is None:
        known = ", ".join(CALIBRATIONS)
        raise InputTypeError(f"only the calibrations {known} can be saved, got {type(calibration).__name__}")
    return json.dumps(
        {"calibration": name} | {f.name: getattr(calibration, f.name) for f in fields(CALIBRATIONS[name])}
    )


def from_json(text: str) -> Any:
    """Return the calibration that `to_json` saved."""
    try:
        data = dict(json.loads(text))
        name = data.pop("calibration")
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"a saved calibration must be a JSON object with a field 'calibration', got {text!r:.60}"
        ) from error
    kind = lookup(CALIBRATIONS, name, "calibration")
    wanted = [f.name for f in fields(kind)]
    if sorted(data) != sorted(wanted):
        raise InputError(f"a saved {name} calibration has the fields {', '.join(wanted)}, got {', '.join(data)}")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in data.items()})


@dataclass(frozen=True)
class CalibrationRow:
    """What one calibration costs on samples that it was not fitted on.

    Args:
        name: Key of `CALIBRATIONS`.
        log_loss: Mean held-out log-loss, both kinds of samples weighing one half; inf if it could not be fitted.
        standard_error: Of the log-loss.
        excess: Log-loss above that of the best row.
        excess_error: Standard error of the excess, from the same samples: far below that of the log-loss.
        note: Why it could not be fitted, or nothing.
    """

    name: str
    log_loss: float
    standard_error: float
    excess: float
    excess_error: float
    note: str = ""


@dataclass(frozen=True)
class CalibrationChoice:
    """The calibration that was chosen, fitted on all samples, and how all did; printed, it is a table.

    Args:
        name: Key of `CALIBRATIONS`.
        calibration: The map.
        rows: One per candidate, in their order.
    """

    name: str
    calibration: Calibration
    rows: tuple[CalibrationRow, ...]

    def __call__(self, log_ratio: Array) -> Array:
        """Apply the chosen calibration."""
        return self.calibration(log_ratio)

    def __str__(self) -> str:
        lines = ["  calibration  held-out log-loss     above the best"]
        for row in self.rows:
            mark = "*" if row.name == self.name else " "
            numbers = f"{row.log_loss:8.5f} ± {row.standard_error:.5f}  {row.excess:8.5f} ± {row.excess_error:.5f}"
            lines.append(f"{mark} {row.name:12} {numbers if isfinite(row.log_loss) else row.note}")
        return "\n".join(lines)


def fit_calibration(
    log_ratio_real: Array,
    log_ratio_fake: Array,
    *,
    candidates: Sequence[str] = tuple(CALIBRATIONS),
    folds: int = 5,
    seed: int = 0,
) -> CalibrationChoice:
    """Choose a calibration by cross-fitted log-loss, and fit it on all scores.

    Each candidate is fitted on all folds but one and judged on that one, in turn. The first in the order of the
    candidates that is not worse than the best by more than one standard error of the difference is taken: a simpler
    map varies less from sample to sample, and keeps apart what a step function would tie.

    Args:
        log_ratio_real: Scores of real samples that the critic was not trained on, shape `(n,)` or `(n, 1)`.
        log_ratio_fake: Scores of fresh fake samples, likewise.
        candidates: Keys of `CALIBRATIONS`, the simplest first.
        folds: In how many parts each kind of samples is split.
        seed: Decides the split.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> real, fake = 3 * (rng.normal(size=4000) + 0.5), 3 * (rng.normal(size=4000) - 0.5)  # thrice the truth
        >>> choice = fit_calibration(real, fake)
        >>> choice.name, round(choice.calibration.slope, 1)
        ('temperature', 0.3)

    References:
        | The Elements of Statistical Learning (Hastie et al., 2009), Sec. 7.10, the one-standard-error rule
    """
    names = [candidates] if isinstance(candidates, str) else list(candidates)
    kinds = {name: lookup(CALIBRATIONS, name, "calibration") for name in names}
    if not kinds:
        raise InputError(f"candidates is empty; choose from {', '.join(CALIBRATIONS)}")
    if check_count(folds, "folds") < 2:
        raise InputError(f"folds must be at least 2, got {folds}")
    neediest = max(kinds, key=lambda name: kinds[name].needs)
    least = max(int(np.ceil(kinds[neediest].needs * folds / (folds - 1))), 2 * folds)
    what = f"choosing among calibrations up to {neediest} in {folds} folds"
    real, fake = held_out(log_ratio_real, log_ratio_fake, least=least, what=what)
    rng = np.random.default_rng(seed)
    split = rng.permutation(np.arange(len(real)) % folds), rng.permutation(np.arange(len(fake)) % folds)
    costs: dict[str, tuple[Floats, Floats]] = {}
    fitted, notes = {}, dict.fromkeys(kinds, "")
    for name, kind in kinds.items():
        try:
            fitted[name] = kind.fit(real, fake)
            costs[name] = losses(*cross_fitted(kind, real, fake, split))
        except (InputError, RatioError) as error:  # such as scores that separate the two kinds
            notes[name] = str(error)
    if not costs:
        raise InputError(f"no candidate can be fitted; {names[0]}: {notes[names[0]]}")
    best = costs[min(costs, key=lambda name: mean_of_means(*costs[name]).value)]
    rows = tuple(_row(name, costs.get(name), best, notes[name]) for name in kinds)
    chosen = next(row.name for row in rows if row.excess <= row.excess_error)
    return CalibrationChoice(chosen, fitted[chosen], rows)


def cross_fitted(kind: Any, real: Floats, fake: Floats, split: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Return each score under the map that was fitted on the other folds.

    Args:
        kind: A value of `CALIBRATIONS`.
        real, fake: Scores, float64.
        split: The fold of each, from 0 on.

    Example:
        >>> folds = np.asarray([0, 1])
        >>> cross_fitted(Shift, np.asarray([2.0, 3.0]), np.asarray([0.0, 1.0]), (folds, folds))
        (array([1., 3.]), array([-1.,  1.]))
    """
    mapped = np.empty_like(real), np.empty_like(fake)
    for fold in range(int(split[0].max()) + 1):
        tested = split[0] == fold, split[1] == fold
        fitted = kind.fit(real[~tested[0]], fake[~tested[1]])
        for scores, test, out in zip((real, fake), tested, mapped, strict=True):
            out[test] = fitted(scores[test])
    return mapped


def _row(name: str, costs: tuple[Floats, Floats] | None, best: tuple[Floats, Floats], note: str) -> CalibrationRow:
    if costs is None:
        return CalibrationRow(name, inf, inf, inf, 0.0, note)
    excess = mean_of_means(costs[0] - best[0], costs[1] - best[1])
    return CalibrationRow(name, *mean_of_means(*costs), *excess)
