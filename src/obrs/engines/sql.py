"""A cut as a condition in the SQL of DuckDB: a database keeps the rows that this library would keep.

The uniform of an id is integer arithmetic, so that an expression of a few hundred characters computes it, bit by bit:
SplitMix64 twice, as `draws` has it. The condition is `u < exp(min(log r + t, 0))`, t being where the cut is.
"""

from math import inf

from ..draws import Purpose, mixer
from ..errors import InputError, InputTypeError
from ..sketch import SketchCut

__all__ = ["sql"]

_MASK = 2**64 - 1


def sql(cut: SketchCut, *, id: str = "id", log_ratio: str = "log_ratio") -> str:
    """Return the condition that keeps the rows of an exact cut, for a WHERE clause of DuckDB.

    Args:
        cut: From `SketchCut.finish`, `obrs.files.select` or `obrs.ray.select`.
        id: The column of ids, integers of 64 bits.
        log_ratio: The column of log-ratios.

    Returns:
        A condition. A row without an id or a log-ratio, or with r = 0, does not satisfy it. Logarithms of two
        libraries may differ in the last bit, which could matter for one row in 10**12 or so.

    Example:
        >>> import numpy as np
        >>> from obrs import Sketch
        >>> x, ids = np.log([4.0, 1.0, 0.5, 0.5]), np.arange(4)
        >>> cut = Sketch().add(x, ids).solve(budget=2)
        >>> sql(cut.finish(cut.judge(ids, x).open))[-51:]
        't("log_ratio"::DOUBLE + -0.6931471805599453e0, 0)))'
    """
    if not isinstance(cut, SketchCut):
        raise InputTypeError(
            f"cut must be a SketchCut, as Sketch.solve(…) and finish return it, got {type(cut).__name__}"
        )
    if not cut.exact:
        raise InputError("the cut leaves rows undecided; finish it first: cut.finish(…)")
    if cut.last is not None:
        raise InputError(
            "the last key of the cut is tied, which SQL cannot resolve; use an n that is larger or smaller"
        )
    row, value, infinity = _quoted(id), f"{_quoted(log_ratio)}::DOUBLE", "'Infinity'::DOUBLE"
    if cut.sure == inf:  # whatever has r > 0
        return f"({value} > -{infinity} AND {value} < {infinity} AND {row} IS NOT NULL)"
    # NaN counts as larger than infinity, and least() passes over NULL: neither may get there.
    bound = f"exp(least({value} + {_double(cut.sure)}, 0))"
    return f"({value} < {infinity} AND {_uniform(row, cut.seed)} < {bound})"


def _quoted(name: str) -> str:
    if not isinstance(name, str) or not name or "\0" in name:
        raise InputTypeError(f"a column must be a name, got {name!r:.60}")
    return '"' + name.replace('"', '""') + '"'


def _double(value: float) -> str:
    return repr(value) if "e" in repr(value) else f"{value!r}e0"


def _uniform(row: str, seed: int) -> str:
    """Return the uniform in [0, 1) by which acceptance decides on an id."""
    first, second, steps, last = mixer(seed, Purpose.ACCEPT)
    word = f"(({row}::HUGEINT + {first}::HUGEINT) & {_MASK}::HUGEINT)::UBIGINT"
    for turn in range(2):
        for by, factor in steps:
            product = f"xor(x, (x >> {by}))::UHUGEINT * {factor}::UHUGEINT"
            word = _let(word, f"({product} & {_MASK}::UHUGEINT)::UBIGINT")
        if not turn:
            word = f"xor({word}, {second}::UBIGINT)"
    word = _let(word, f"(xor(x, (x >> {last})) >> 11)")
    return f"({word}::DOUBLE / 9007199254740992::DOUBLE)"


def _let(value: str, body: str) -> str:
    """Return the expression `body` of x, where x is the value."""
    return f"list_transform([{value}], lambda x: {body})[1]"
