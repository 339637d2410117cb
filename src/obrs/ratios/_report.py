"""A diagnosis as rows, as JSON and as a page of text."""

import json
import textwrap
from math import isfinite, isnan, log, nan
from typing import TYPE_CHECKING, Any

from .evidence import ERRORS, TOLERATED, Estimate, Mean

if TYPE_CHECKING:
    from .doctor import Diagnosis

__all__ = ["as_json", "as_rows", "as_text"]

_WIDTH = 80
_RATIO, _BUDGET, _LEFT = "the log-ratio", "at this budget", "divergence between target and kept"
_LEFT_SAYS = {
    "promised": "by the profile of the fakes",
    "held_out": "as far as real samples show",
    "repaired": "the same with the repair",
}


def as_rows(d: "Diagnosis") -> list[dict[str, Any]]:
    """Return one flat dict per finding."""
    at, curve = d.at_budget, d.reliability
    rows = [
        _row(_RATIO, "E_Q[r]", d.mean_ratio.estimate, _mark(d.mean_ratio), "≤ 1; below 1: missing support"),
        _row(_RATIO, "E_P[1/r]", d.mean_inverse.estimate, _mark(d.mean_inverse), "≤ 1; below 1: fakes off the data"),
        _missing(d),
        _row(_RATIO, "above all fakes", d.above_all_fakes, "", "of the real scores"),
        _row(_RATIO, "Turner's Z", curve.z, _if(abs(curve.z) > ERRORS), "labels against claims; within 3"),
        _row(_RATIO, "Z of the bins", curve.z_bins, _if(curve.z_bins > ERRORS), "the same bin by bin; below 3"),
        _row(_RATIO, "error of log r", curve.rms, _if(curve.off), "nats; 0.05 is tolerated"),
        _row(_RATIO, "AUC", d.auc, _if(d.auc.high < 0.5), "0.5: cannot tell real from fake"),
        _row(_RATIO, "log-loss", d.log_loss, _if(d.log_loss.low > log(2)), "0.693 is that of a coin"),
        _row(_RATIO, "tail index", d.mean_ratio.tail_index, "", "of r, by Hill; above 2 wanted"),
        _maximum(d),
        _row(_RATIO, "ESS", d.ess, "", "per fake, without rejection"),
        _row(_BUDGET, "log 1/c", -at.log_c, "", "beyond it: kept for sure"),
        _row(_BUDGET, "sure, real", at.sure_real, "", "of the real scores lie beyond"),
        _row(_BUDGET, "sure, fake", at.sure_fake, "", "of the fake scores lie beyond"),
        _row(_BUDGET, "rate", at.rate, "", "that a fresh sample would keep"),
        _row(_BUDGET, "ESS, kept", at.ess, "", "per kept sample, with weights"),
        _row(_BUDGET, "error where a < 1", at.error, _if(at.off), "nats of log a; 0 where a = 1"),
        _row(_BUDGET, "misjudged", at.misjudged, _if(at.misjudged > TOLERATED), "decided otherwise if calibrated"),
    ]
    for key, left in at.left.items():
        apart = left.promised.low > left.held_out.high or left.promised.high < left.held_out.low
        for kind, says in _LEFT_SAYS.items():
            value = getattr(left, kind)
            if value is not None:
                mark = _if(kind == "held_out" and apart)
                rows.append(_row(_LEFT, f"{key}, {kind.replace('_', ' ')}", value, mark, says))
    return rows


def _row(about: str, name: str, value: float | Estimate, mark: str, says: str) -> dict[str, Any]:
    estimate = value if isinstance(value, Estimate) else Estimate(value, nan, nan)
    return {"about": about, "name": name, **estimate._asdict(), "mark": mark, "says": says}


def _if(wrong: bool) -> str:
    return "!" if wrong else ""


def _mark(mean: Mean) -> str:
    return "!" if mean.z > ERRORS else "" if mean.trusted else "~"


def _missing(d: "Diagnosis") -> dict[str, Any]:
    name = "missing support"
    if d.missing_support is not None:
        return _row(_RATIO, name, d.missing_support, "!", "of the target is never made")
    if d.verdict == "unfit" or not d.mean_repaired.trusted:
        return _row(_RATIO, name, nan, "~", "cannot be told from this ratio")
    return _row(_RATIO, name, 0.0, "", "none was found")


def _maximum(d: "Diagnosis") -> dict[str, Any]:
    if d.max_growth <= 1.1:
        return _row(_RATIO, "M", d.max_budget, "", "max r / E[r]: it exists")
    grows = f"×{d.max_growth:.2g} with 10× the fakes" if d.max_growth < 99 else "it grows with the fakes"
    return _row(_RATIO, "M", d.max_budget, "~", f"so far; {grows}")


def as_json(d: "Diagnosis") -> str:
    """Return the diagnosis as JSON, with null for what is infinite or NaN."""
    whole = {key: getattr(d, key) for key in ("verdict", "reason", "repair", "notes", "budget", "n_real", "n_fake")}
    curve = {key: getattr(d.reliability, key).tolist() for key in ("claimed", "observed", "error", "real", "fake")}
    return json.dumps(_plain({**whole, "health": d.health._asdict(), "rows": d.rows(), "curve": curve}), indent=2)


def _plain(x: Any) -> Any:
    if isinstance(x, dict):
        return {key: _plain(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [_plain(value) for value in x]
    return None if isinstance(x, float) and not isfinite(x) else x


def as_text(d: "Diagnosis") -> str:
    """Return a page of at most 80 columns."""
    lines = [f"{d.verdict.upper()} at a budget of {d.budget:g}, by {d.n_real:,} real and {d.n_fake:,} fake scores"]
    lines += _wrapped("because  ", d.reason)
    if d.repair:
        lines += _wrapped("repair   ", d.repair)
    for note in d.notes:
        lines += _wrapped("note     ", note)
    about = ""
    for row in d.rows():
        if row["about"] != about:
            about = row["about"]
            lines += ["", about]
        between = f"{_short(row['low'])} … {_short(row['high'])}" if not isnan(row["low"]) else ""
        cells = f"{row['mark']:1} {row['name']:18}{_short(row['value']):>7} {between:>17}"
        lines.append(f"{cells}  {row['says']}".rstrip())
    return "\n".join(lines)


def _wrapped(title: str, text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=title, subsequent_indent=" " * len(title))


def _short(x: float) -> str:
    if isnan(x):
        return "?"
    if abs(x) >= 1e4 or 1e-9 < abs(x) < 5e-4:  # below that it is rounding
        return f"{x:.0e}" if isfinite(x) else str(x)
    return f"{x + 0.0:.3f}" if abs(x) < 10 else f"{x:.4g}"
