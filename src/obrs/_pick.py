"""Which sequences or tokens a rollout keeps: exactly n, by systematic sampling in a random order.

The probabilities `pi = min(c r, 1)` are laid end to end, and who covers one of n marks at distance 1 is kept. They are
whole numbers here, of 2**-40 each: sums are exact, so n are kept, never one more, and who has pi = 1 always is.

The decision is taken on the host, in NumPy: `torch.compile` does not look into it.

References:
    | On the Theory of Systematic Sampling, II (Madow, 1949)
"""

from typing import Any

import numpy as np
import torch

from .draws import Purpose, words
from .draws import as_ids as whole_numbers
from .errors import InputError, InputTypeError, RatioError
from .groups import groups_of
from .root import solve_pool
from .selection import inclusion_probability

__all__ = ["as_ids", "pick_sequences", "pick_tokens", "quotas", "token_count"]

Ints = np.ndarray[Any, Any]
Floats = np.ndarray[Any, Any]

_BITS = 40  # of a probability: they may sum to 2**23
_ONE = 1 << _BITS
_ORDER, _START = range(2)  # columns of the random numbers
_BLOCK = 1 << 16  # tokens at a time: what is computed of them stays in a core's cache


def as_ids(ids: Any, rows: int) -> torch.Tensor:
    """Return one whole number per row, on the host."""
    if ids is None:
        return torch.arange(rows)
    try:
        found = ids.cpu() if isinstance(ids, torch.Tensor) else torch.tensor(whole_numbers(ids))
    except InputTypeError as error:
        raise InputError(f"ids must be {rows} whole numbers, one per row, got {type(ids).__name__}") from error
    if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool or tuple(found.shape) != (rows,):
        raise InputError(f"ids must be {rows} whole numbers, one per row, got {found.dtype} of {tuple(found.shape)}")
    return found.to(torch.int64)


def _is_share(keep: Any) -> bool:
    """Tell a share from a number."""
    if isinstance(keep, bool) or not isinstance(keep, int | float | np.integer | np.floating):
        raise InputTypeError(f"keep must be a share (a float of at most 1) or a number (an int), got {keep!r}")
    if isinstance(keep, int | np.integer):
        return False
    if not 0 < keep <= 1:
        raise InputError(f"keep must be a share above 0 and at most 1, or a whole number as an int, got {keep!r}")
    return True


def _number(keep: Any, size: int, what: str) -> int:
    if not 1 <= keep <= size:
        raise InputError(f"cannot keep {keep} of {size} {what}; keep is at least 1 of them and at most all")
    return int(keep)


def _part(keep: Any, size: int, possible: int) -> int:
    """Return a share of the size, at least 1 and at most what is possible."""
    return min(max(round(float(keep) * size), 1), possible)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def token_count(keep: Any, tokens: torch.Tensor, log_ratio: torch.Tensor) -> int:
    """Return how many tokens to keep."""
    size, is_share = int(tokens), _is_share(keep)
    if size and not is_share:
        return _number(keep, size, "tokens")
    # Of none, one is asked for: the choice itself says what is wrong with them.
    return max(_part(keep, size, int(torch.count_nonzero(log_ratio > -torch.inf))), 1)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def quotas(
    keep: Any, groups: Any, log_ratio: torch.Tensor, has_token: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the group of each row as a number, and how many each keeps; a share is one of the rows with a token."""
    if groups is not None:
        return _group_quotas(keep, groups, log_ratio, has_token)
    rows = len(log_ratio)
    if _is_share(keep):
        size, possible = (int(torch.count_nonzero(at)) for at in (has_token, log_ratio > -torch.inf))
        n = max(_part(keep, size, possible), 1)
    else:
        n = _number(keep, rows, "sequences")
    return torch.zeros(rows, dtype=torch.int64), torch.full((1,), n)


def _group_quotas(
    keep: Any, groups: Any, log_ratio: torch.Tensor, has_token: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    x, some = log_ratio.cpu().numpy(), has_token.cpu().numpy()
    found, is_share = groups_of(groups, x.shape), _is_share(keep)
    _check(x, "sequences")
    count = len(found.labels)
    size, possible = (np.bincount(found.code[at], minlength=count) for at in (some, x > -np.inf))
    if is_share:
        quota = [_part(keep, *each) for each in zip(size, possible, strict=True)]
        if not any(quota):
            raise InputError(_nothing(len(x), "sequences"))
    else:
        names = [f"sequences of group {label!r}" for label in found.labels]
        quota = [_number(keep, int(rows), name) for rows, name in zip(found.size, names, strict=True)]
        for short in np.flatnonzero(possible < quota)[:1]:
            raise InputError(_too_few(quota[short], found.size[short], names[short], possible[short]))
    return torch.from_numpy(found.code.astype(np.int64)), torch.tensor(quota)


def _too_few(n: Any, size: Any, what: str, possible: Any) -> str:
    return f"cannot keep {n} of {size} {what}: only {possible} have a token and r > 0; keep fewer, or a share"


def _nothing(size: int, what: str) -> str:
    return f"nothing can be kept: none of {size} {what} has a token and r > 0; leave this batch out"


@torch.compiler.disable  # type: ignore[untyped-decorator]
def pick_sequences(
    log_ratio: torch.Tensor, group: torch.Tensor, quota: torch.Tensor, ids: torch.Tensor, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose `quota[g]` sequences of each group g.

    Args:
        log_ratio: One per sequence, float64; -inf for what must not be chosen.
        group: Numbers from 0.
        quota: How many of each group.
        ids: One number per sequence; with the seed they decide.
        seed: Integer with `0 <= seed < 2**64`.

    Returns:
        Positions of the chosen, ascending, and the inclusion probability of every sequence.
    """
    x, code, need, key = (a.detach().cpu().numpy() for a in (log_ratio, group, quota, ids))
    _check(x, "sequences")
    if len(need) > 1:
        pi = inclusion_probability(x, need, groups=code)
    else:
        if (have := np.count_nonzero(x > -np.inf)) < need[0]:
            few = _too_few(need[0], len(x), "sequences", have)
            raise InputError(few if have else _nothing(len(x), "sequences"))
        pi = inclusion_probability(x, int(need[0]))
    random = words(key, range(2), seed=seed, purpose=Purpose.ROLLOUT)
    order = np.lexsort((random[:, _ORDER], code))
    width = _widths(pi)
    lacking = need * _ONE
    np.subtract.at(lacking, code, width)
    for g in np.flatnonzero(lacking):
        free = np.flatnonzero((code == g) & _is_free(width))
        width[free] += _spread(lacking[g], len(free), 0, len(free))
    start = np.zeros(len(need), np.uint64)
    np.add.at(start, code, random[:, _START])  # modulo 2**64: the sum of uniforms modulo 1 is uniform
    shift = (start >> np.uint64(64 - _BITS)).astype(np.int64)[code[order]]
    kept = np.zeros(len(x), bool)
    kept[order] = _marked(width[order], shift)
    return _to(np.flatnonzero(kept), log_ratio), _to(pi, log_ratio)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def pick_tokens(log_ratio: torch.Tensor, n: int, ids: torch.Tensor, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose n tokens of a batch: rows in random order, tokens in their order.

    Args:
        log_ratio: Shape `(rows, length)`; -inf for what must not be chosen.
        n: How many.
        ids, seed: As for `pick_sequences`; one id for each row.

    Returns:
        Positions of the chosen in the flattened batch, ascending, and log c, on the host: the probabilities themselves
        would be one more copy of the batch.
    """
    x, key = log_ratio.detach().cpu().numpy(), ids.cpu().numpy()
    _check(x, "tokens")
    have = int(np.count_nonzero(x > -np.inf))
    if have < n:
        if not have:
            raise InputError(f"nothing can be kept: none of {x.size} tokens is unmasked and has r > 0; leave them out")
        raise InputError(f"cannot keep {n} of {x.size} tokens: only {have} are unmasked and have r > 0; keep fewer")
    log_c = solve_pool(x.reshape(-1), None, float(n))
    random = words(key, range(2), seed=seed, purpose=Purpose.ROLLOUT)
    shift = int(np.add.reduce(random[:, _START]) >> np.uint64(64 - _BITS))
    rows, step = np.argsort(random[:, _ORDER], kind="stable"), max(1, _BLOCK // x.shape[1])
    blocks = [rows[i : i + step] for i in range(0, len(rows), step)]

    def probabilities(at: Ints) -> Floats:
        a: Floats = np.exp(np.minimum(x[at] + log_c, 0.0))
        return a

    kept = np.zeros(x.shape, bool)
    lacking, free, passed, seen = n * _ONE, 0, shift, 0
    for at in blocks:
        width = _widths(probabilities(at))
        lacking -= int(width.sum())
        free += int(np.count_nonzero(_is_free(width)))
    for at in blocks:  # the widths are made twice: whole numbers of 40 bits would take twice the room of the input
        width = _widths(probabilities(at)).reshape(-1)
        if lacking:
            here = np.flatnonzero(_is_free(width))
            width[here] += _spread(lacking, free, seen, len(here))
            seen += len(here)
        kept[at] = _marked(width, passed).reshape(len(at), -1)
        passed += int(width.sum())
    return _to(np.flatnonzero(kept), log_ratio), torch.tensor(log_c, dtype=torch.float64)


def _check(x: Floats, what: str) -> None:
    if not x.max() < np.inf:  # true for NaN, too
        bad = np.count_nonzero(~(x < np.inf))
        raise RatioError(
            f"logp_train - logp_rollout is NaN or +inf in {bad} of {x.size} {what}; "
            "a sampled token cannot have logp_rollout = -inf, and log-probs that are not known must be masked"
        )


def _widths(pi: Floats) -> Ints:
    return np.asarray(np.rint(pi * float(_ONE)).astype(np.int64))


def _is_free(width: Ints) -> Ints:
    return np.asarray((width > 0) & (width < _ONE))


def _spread(lacking: int, free: int, first: int, count: int) -> Ints:
    """Return what `count` of the free ones, from the `first` on, get of what rounding lacks: a unit or none."""
    each, rest = divmod(int(lacking), max(free, 1))
    return np.asarray(each + (np.arange(first, first + count) < rest))


def _marked(width: Ints, shift: Any) -> Ints:
    """Tell who covers a mark; the marks lie at the multiples of 1, and `shift` comes before the first width."""
    end = np.cumsum(width) + shift
    return np.asarray((end >> _BITS) > ((end - width) >> _BITS))


def _to(x: Any, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x).to(like.device)
