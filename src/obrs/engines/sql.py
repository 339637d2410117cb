"""A cut as a condition in SQL: a database keeps the rows that this library would keep.

The uniform of an id is integer arithmetic, so that an expression of a few hundred characters computes it, bit by bit:
SplitMix64 twice, as `draws` has it. The condition is `u < exp(min(log r + t, 0))`, t being where the cut is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from .._names import lookup
from ..draws import Purpose, mixer
from ..errors import InputError, InputTypeError
from ..sketch import SketchCut

__all__ = ["DIALECTS", "sql"]


def sql(cut: SketchCut, dialect: str = "duckdb", *, id: str = "id", log_ratio: str = "log_ratio") -> str:
    """Return the condition that keeps the rows of an exact cut, for a WHERE clause.

    Args:
        cut: From `SketchCut.finish`, `obrs.files.select` or `obrs.ray.select`.
        dialect: `duckdb`, or `spark`. Spark must not be in ANSI mode (`SET spark.sql.ansi.enabled = false`), where
            integers do not wrap around: it would stop with an overflow, and never keep other rows.
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
    words = lookup(DIALECTS, dialect, "dialect")
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
    row, score = words.quoted(id), words.quoted(log_ratio)
    value, infinity = words.as_double(score), words.as_double("'Infinity'")
    if cut.sure == inf:  # whatever has r > 0
        return f"({value} > -{infinity} AND {value} < {infinity} AND {row} IS NOT NULL)"
    # NaN counts as larger than infinity, and least() passes over NULL: neither may get there.
    bound = f"exp(least({value} + {words.double(cut.sure)}, 0))"
    return f"({value} < {infinity} AND {words.uniform(row, cut.seed)} < {bound})"


@dataclass(frozen=True)
class _Dialect:
    """How a database writes what is needed.

    Args:
        quote: What encloses a name; it is doubled inside.
        word: From the name of a column to 64 bits, plus a constant modulo 2**64.
        times: (64 bits, constant) -> their product modulo 2**64.
        xor: Of two 64 bits, the second of which may be a constant.
        shift: To the right, with zeros.
        let: (value, expression of x) -> the expression where x is the value.
        as_double: A cast.
        suffix: Of a literal that is a double.
        constant: A literal of 64 bits.
    """

    quote: str
    word: Callable[[str, int], str]
    times: Callable[[str, int], str]
    xor: Callable[[str, str], str]
    shift: Callable[[str, int], str]
    let: Callable[[str, str], str]
    as_double: Callable[[str], str]
    constant: Callable[[int], str]
    suffix: str

    def quoted(self, name: str) -> str:
        if not isinstance(name, str) or not name or "\0" in name:
            raise InputTypeError(f"a column must be a name, got {name!r:.60}")
        return self.quote + name.replace(self.quote, 2 * self.quote) + self.quote

    def double(self, value: float) -> str:
        return repr(value) + (self.suffix if "e" not in repr(value) or self.suffix == "D" else "")

    def uniform(self, row: str, seed: int) -> str:
        """Return the uniform in [0, 1) by which acceptance decides on an id."""
        first, second, steps, last = mixer(seed, Purpose.ACCEPT)
        word = self.word(row, first)
        for turn in range(2):
            for by, factor in steps:
                word = self.let(word, self.times(self.xor("x", self.shift("x", by)), factor))
            if not turn:
                word = self.xor(word, self.constant(second))
        word = self.let(word, self.shift(self.xor("x", self.shift("x", last)), 11))
        return f"({self.as_double(word)} / {self.as_double('9007199254740992')})"


def _signed(word: int) -> int:
    """Return 64 bits as a number with a sign, as Spark has them."""
    return word - 2**64 if word >= 2**63 else word


_MASK = f"{2**64 - 1}"

DIALECTS = {
    "duckdb": _Dialect(
        quote='"',
        word=lambda row, plus: f"(({row}::HUGEINT + {plus}::HUGEINT) & {_MASK}::HUGEINT)::UBIGINT",
        times=lambda a, b: f"({a}::UHUGEINT * {b}::UHUGEINT & {_MASK}::UHUGEINT)::UBIGINT",
        xor=lambda a, b: f"xor({a}, {b})",
        shift=lambda a, by: f"({a} >> {by})",
        let=lambda value, body: f"list_transform([{value}], lambda x: {body})[1]",
        as_double=lambda value: f"{value}::DOUBLE",
        constant=lambda word: f"{word}::UBIGINT",
        suffix="e0",
    ),
    "spark": _Dialect(
        quote="`",
        word=lambda row, plus: f"(CAST({row} AS BIGINT) + {_signed(plus)}L)",
        times=lambda a, b: f"({a} * {_signed(b)}L)",
        xor=lambda a, b: f"({a} ^ {b})",
        shift=lambda a, by: f"shiftrightunsigned({a}, {by})",
        let=lambda value, body: f"transform(array({value}), x -> {body})[0]",
        as_double=lambda value: f"CAST({value} AS DOUBLE)",
        constant=lambda word: f"{_signed(word)}L",
        suffix="D",
    ),
}
