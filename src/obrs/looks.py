"""The style of all pictures: one colour, line and marker per rule, one colour per budget, one font.

The colours are those of Okabe and Ito: colour-blind readers can tell them apart. Each rule also has its own line and
marker. Matplotlib is imported when something is drawn.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any

from .errors import MissingLibraryError

__all__ = ["LOOKS", "PALETTE", "Look", "budget_colours", "figure", "restyle"]

PALETTE = {
    "blue": "#0072B2",
    "green": "#009E73",
    "red": "#D55E00",
    "sky": "#56B4E9",
    "black": "#000000",
    "dark": "#4D4D4D",
}
"""Colours by name, of Okabe and Ito but for the grey."""

_BLUES = ["#7cc0ee", "#2b8cc9", "#0b4f8a", "#06264a"]


@dataclass(frozen=True)
class Look:
    """Label, colour, line and marker of a method in every figure."""

    label: str
    colour: str
    line: str = "-"
    marker: str = "o"


LOOKS = {
    "target": Look("target P", PALETTE["dark"], "-", "."),
    "model": Look("model Q", PALETTE["red"], "-", "X"),
    "obrs": Look("OBRS", PALETTE["blue"], "-", "o"),
    "drs": Look("DRS", PALETTE["green"], "--", "^"),
    "topk": Look("top-k", PALETTE["sky"], "-.", "s"),
    "exact": Look("unbudgeted", PALETTE["black"], ":", "*"),
}
"""Looks by name: the two distributions, and the rules."""

_RC = {
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "lines.linewidth": 2.0,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "image.cmap": "cividis",
    "figure.dpi": 100,
    "savefig.dpi": 150,
    "savefig.facecolor": "white",
}


def budget_colours(budgets: Iterable[float]) -> list[str]:
    """Return a colour per budget: that of the model for K = 1, else blues, the darker the larger.

    Example:
        >>> budget_colours([1, 2])
        ['#D55E00', '#0b4f8a']
    """
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    budgets = list(budgets)
    blues = LinearSegmentedColormap.from_list("budgets", _BLUES)
    above = sorted({k for k in budgets if k > 1})
    shades = [2 / 3] if len(above) == 1 else np.linspace(0, 1, len(above))
    colours = {k: to_hex(blues(float(shade))) for k, shade in zip(above, shades, strict=True)}
    return [colours.get(k, LOOKS["model"].colour) for k in budgets]


def figure(width: float = 9.0, height: float = 6.0, *, who: str = "the figure") -> Any:
    """Return an empty figure that lays itself out; nine inches are the width of a README.

    A notebook shows it where it is what a cell returns, whether pyplot is loaded or not.

    Args:
        width, height: In inches.
        who: Names the function in the error raised without matplotlib.

    Example:
        >>> figure(9, 4).get_size_inches().tolist()
        [9.0, 4.0]
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingLibraryError(f"{who} needs matplotlib: pip install 'obrs[cli]'") from error
    drawn: Any = Figure(figsize=(width, height), layout="constrained")
    drawn._repr_png_ = partial(_png, drawn)
    return drawn


def _png(figure: Any) -> bytes:
    """Return what a notebook shows of a figure; only figures of pyplot are shown without."""
    file = BytesIO()
    figure.savefig(file, format="png", dpi=100)
    return file.getvalue()


@contextmanager
def restyle() -> Iterator[None]:
    """Draw in our style, whatever the user's settings are.

    Example:
        >>> with restyle():
        ...     import matplotlib
        ...     print(matplotlib.rcParams["savefig.dpi"])
        150.0
    """
    from matplotlib import style

    with style.context(_RC, after_reset=True):
        yield
