"""The threshold of a selection as a condition of SQL, with which a database keeps the same rows.

The uniform of an id, and the id of a text, are integer arithmetic, which DuckDB computes bit by bit.
"""

import os
from collections.abc import Mapping
from math import inf
from typing import Any

from .draws import GAMMA, Purpose, mixer
from .errors import InputError, InputTypeError
from .files import Selected, read_manifest

__all__ = ["condition"]

_BITS = f"{2**64 - 1}::UHUGEINT"
_RATIOS = {  # of scores, by their kind; NULL where r = 0
    "log_ratio": "{x}",
    "logit": "{x}",
    "reward": "{x} / {beta}",
    "probability": "(ln(nullif({x}, 0)) - ln(nullif(1 - {x}, 0)))",
    "weight": "ln(nullif(abs({x}), 0))",
}


def condition(cut: Selected | Mapping[str, Any] | str | os.PathLike[str]) -> str:
    """Return the condition that keeps the rows of a selection, for a WHERE clause of DuckDB 1.3 or later.

    Args:
        cut: What `obrs.files.select` or `obrs.ray.select` returned; or its manifest, as a mapping, a file or the folder
            that has it.

    Returns:
        A condition, which rows without a score, and those of other groups, do not satisfy. Ids must be unique.
        Logarithms of two libraries may differ in the last bit, which could matter for one row in 10**12 or so.

    Example:
        >>> cut = {"kind": "logit", "column": "x", "id": "i", "group": None, "seed": 0, "cut": {"": [-1.0, 7]}}
        >>> condition(cut)[-83:]
        'exp(least("x"::DOUBLE + CASE k WHEN 7 THEN -1.000000001e0 ELSE -1.0e0 END, 0)))[1])'
    """
    if isinstance(cut, str | os.PathLike):
        cut = read_manifest(cut)
    manifest = cut.manifest if isinstance(cut, Selected) else cut
    if not isinstance(manifest, Mapping):
        raise InputTypeError(f"cut must be what select returned, or its manifest, got {manifest!r:.60}")
    match {"beta": None, **manifest}:  # a file of others may hold anything, also SQL where a number should be
        case {"id": None}:
            raise InputError("these rows were selected without a column of ids; select them with id, or write them")
        case {"kind": str(kind), "column": str(column), "id": str(id), "group": str() | None as label, "seed": seed,
              "beta": float() | int() | None as beta, "cut": dict(cuts)} if kind in _RATIOS and cuts:  # fmt: skip
            ratio = _RATIOS[kind].format(x=f"{_quote(column)}::DOUBLE", beta=_double(beta or 1.0))
        case _:
            raise InputError("the manifest is not one of a selection")
    ends = {name: _end(cut) for name, cut in cuts.items()}
    # NaN counts as larger than infinity, and least() passes over NULL: neither may get there.
    known = f"{ratio} > {_double(-inf)} AND {ratio} < {_double(inf)}"
    end = ends.get("", "")
    if label is not None:
        text = f"{_quote(label)}::VARCHAR"
        if ends.keys() <= {"True", "False"}:  # DuckDB writes booleans in small letters
            text, ends = f"lower({text})", {name.lower(): end for name, end in ends.items()}
        labels = {f"'{name.replace(chr(39), 2 * chr(39))}'": end for name, end in ends.items()}
        known += f" AND {text} IN ({', '.join(labels)})"
        cases = " ".join(f"WHEN {name} THEN {end}" for name, end in labels.items())
        end = f"CASE {text} {cases} END"
    kept = f"{_uniform(seed)} < exp(least({ratio} + {end}, 0))"
    return f"({known} AND {_let('k', _word(_quote(id)), kept)})"


def _end(cut: Any) -> str:
    """Return the key at which a group is cut; for the row that has it, of id k, a little less."""
    match cut:
        case [None, int()]:
            return _double(inf)
        case [float() | int() as key, int(id)]:
            return f"CASE k WHEN {id % 2**64} THEN {_double(key - 1e-9 * max(1.0, abs(key)))} ELSE {_double(key)} END"
    raise InputError(f"a cut is a key and an id, got {cut!r:.60}; the manifest is not one of a selection")


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _double(value: float) -> str:
    if abs(value) == inf:
        return f"'{value}'::DOUBLE"
    return repr(value) if "e" in repr(value) else f"{value!r}e0"


def _let(name: str, value: str, body: str) -> str:
    """Return the expression `body`, in which the value has a name."""
    return f"list_transform([{value}], lambda {name}: {body})[1]"


def _mix(word: str, steps: tuple[tuple[int, int], ...]) -> str:
    for by, factor in steps:
        word = _let("x", word, f"((xor(x, x >> {by})::UHUGEINT * {factor}::UHUGEINT) & {_BITS})::UBIGINT")
    return word


def _uniform(seed: int) -> str:
    """Return the uniform in [0, 1) by which acceptance decides on the id k."""
    first, second, steps, last = mixer(seed, Purpose.ACCEPT)
    word = _mix(f"((k::UHUGEINT + {first}::UHUGEINT) & {_BITS})::UBIGINT", steps)
    word = _mix(f"xor({word}, {second}::UBIGINT)", steps)
    return f"{_let('x', word, f'xor(x, x >> {last}) >> 11')}::DOUBLE / {_double(2.0**53)}"


def _word(id: str) -> str:
    """Return the 64 bits of an id: an integer, also in text, or else the hash of `scores`, which scrambles twice."""
    _, _, steps, last = mixer(0, Purpose.ACCEPT)
    scramble = [_let("x", _mix(f"(({word} + {GAMMA % 2**64}) & {_BITS})::UBIGINT", steps), f"xor(x, x >> {last})")
                for word in ("j::UHUGEINT", "s::UHUGEINT")]  # fmt: skip
    byte = f"('0x' || substr(hex(encode({id}::VARCHAR)), 2 * j + 1, 2))::UHUGEINT"
    term = f"((({byte} + 1) * ({scramble[0]} | 1)::UHUGEINT) & {_BITS})::UBIGINT"
    total = f"list_sum(list_transform(range(strlen({id}::VARCHAR)), lambda j: {term}))"
    text = _let("s", f"(coalesce({total}, 0) & {2**64 - 1}::HUGEINT)", scramble[1])
    integer = f"(TRY_CAST({id} AS HUGEINT) & {2**64 - 1}::HUGEINT)::UBIGINT"
    is_text = f"typeof({id}) = 'VARCHAR' AND NOT regexp_full_match({id}::VARCHAR, '0|-?[1-9][0-9]{{0,17}}')"
    return f"CASE WHEN {is_text} THEN {text} ELSE {integer} END"
