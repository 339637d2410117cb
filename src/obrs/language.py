"""Language models: rollouts on a budget of backward passes, and completions chosen by reward on a budget of KL.

Rollouts are sampled from one law q (an engine that is quantised, stale, or another program) and used to train another,
p. The ratio of a sequence is r = p/q. Truncated importance sampling weighs by min(r, C) = C min(r/C, 1), which is what
OBRS with c = 1/C keeps on average: here a budget takes the place of the threshold C, and what is not kept needs no
backward pass.

Arrays of NumPy, torch or another library come in, and arrays of that library go out. What is kept is decided in NumPy,
in float64.

References:
    | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Sec. 3.1
    | A Generalization of Sampling without Replacement from a Finite Universe (Horvitz & Thompson, 1952)
    | Truncated Importance Sampling (Ionides, 2008)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from typing import Any

import numpy as np

from ._arrays import array_like, as_floats, check_same_device, detach, host_view, known_values, namespace
from ._checks import LIMIT, check_count, check_positive, count_bad, is_number
from ._text import lookup
from .draws import as_ids, priority_key
from .errors import BudgetError, InputError, InputTypeError, RatioError
from .groups import groups_of
from .root import brent, solve_groups, solve_pool
from .selection import draw_uniforms, inclusion_probability, lattice, random_order, select
from .types import Array

__all__ = ["Pick", "rollout", "tilt", "tilted_log_ratio"]

Floats = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]

# What frameworks do if they are not told otherwise, all of it with the ratio of the sequence.
TRL_MASK = 3.0  # vllm_importance_sampling_mode="sequence_mask", vllm_importance_sampling_clip_max
VERL_TRUNCATE = 2.0  # rollout_is="sequence", rollout_is_threshold
VERL_BAND = (0.999, 1.001)  # rollout_rs="seq_mean_k1", the preset rollout_rs_threshold="0.999_1.001"

LEVELS = ("sequence", "group", "token")
RATIOS = ("product", "geometric")
NORMALISE = ("batch", "none")
_BLOCK = 1 << 16  # numbers at a time
_SURE = 1e-6  # a token whose pi is so near to 1 is always kept
_SMALLEST = 5e-324  # temperature: that of rewards as near as floats can be rounds to 0
_LARGEST = 1e290  # of a reward, so that differences and temperatures are floats


@dataclass(frozen=True)
class Pick:
    """Kept rollouts, tokens or completions, with their weights; `len()` is how many.

    Args:
        index: Positions of the kept, ascending: rows, or for tokens positions in the flattened batch.
        mask: True for what is kept; `(B, T)` for rollouts, `(N,)` for rewards.
        log_weight: Log of the weight of each kept one, in the order of `index`; without gradient.
        metrics: Numbers by name.
    """

    index: Array
    mask: Array
    log_weight: Array
    metrics: dict[str, float]

    @property
    def weight(self) -> Array:
        """The weights: a sum over the kept with them estimates the average over all."""
        return namespace(self.log_weight).exp(self.log_weight)

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items())
        return f"Pick({len(self)} kept, mask of shape {tuple(self.mask.shape)}\n     {numbers})"


def rollout(
    logp_train: Array,
    logp_rollout: Array,
    mask: Array,
    *,
    keep: float | int,
    size: Array | None = None,
    cost: Array | None = None,
    total: float | None = None,
    level: str = "sequence",
    groups: Array | None = None,
    ids: Array | None = None,
    seed: int = 0,
    normalise: str = "batch",
    ratio: str = "product",
) -> Pick:
    """Choose what to train on: exactly so many of a batch of rollouts, each with probability `pi = min(c r size, 1)`.

    With weights `w = (r / pi) / sum of r over the batch`, a sum over the kept estimates the self-normalised average
    over the whole batch, without bias: for any f, `E[sum w f over the kept] = sum r f / sum r over the batch`. So
    advantages are computed before the selection, from all rollouts, and the loss is a sum, not a mean: what is not
    kept must not be in its denominator.

    Sequences are chosen by `select` with the design "systematic"; tokens by the same design, with the sequences in
    random order. The probabilities are exact, and who has pi = 1 is always kept.

    Args:
        logp_train: Log-probs of the sampled tokens under the policy that is trained, shape `(B, T)`. Its gradient is
            not used.
        logp_rollout: Log-probs of the same tokens under the law that they were sampled from.
        mask: True or 1 for tokens of the completion. Elsewhere log-probs may be anything. A row without a token is
            never kept and counts in no sum.
        keep: A share, as a float of at most 1, or a number, as an int. A share is one of the sequences (or tokens) that
            the mask has: padding is not counted. It is rounded, at least one is kept, and at most those with r > 0. A
            number is kept exactly, or it is an error. For groups it is what every group keeps; with a share, a group
            of which nothing can be kept keeps nothing.
        size: How much a sequence matters, shape `(B,)`, at least 0; by default all alike. With |advantage|, or any
            bound on the gradient, the error that is added to the gradient of the batch is smaller, and the weights are
            still without bias. Sequences of size 0 are never kept, which is right where the loss is proportional to the
            advantage; with a term for KL or entropy it is not. At most those of a size above 0 are kept.
        cost: What a sequence costs, shape `(B,)`, whole numbers such as its tokens: `keep` is then in these units, or
            a share of them. Sequences are taken by `priority_key` up to the first that does not fit.
        total: log of the sum of r that weights are divided by, if this is a part of a batch: `metrics["log_total"]`, of
            all parts together.
        level: "sequence" keeps sequences with one constant c. "group" keeps sequences, equally many (or the same
            share) of every group. "token" keeps tokens, with the ratio of each token alone: the law that is corrected
            is that of the next token given the text so far; that the text so far was sampled from q is not corrected.
        groups: The prompt of each row, for level "group": labels of any kind, shape `(B,)`.
        ids: An integer for each row, by default its position. The kept set is a pure function of the log-probs, the
            seed and the ids: rows in another order with their ids are kept or not as before.
        seed: Integer with `0 <= seed < 2**64`; give each step its own.
        normalise: "batch" as above, or "none": `w = r / pi / B`, which is also unbiased over batches if p and q are
            normalised, and of much larger variance if ratios are.
        ratio: "product" is p/q of the sequence. "geometric" is its T-th root, T the number of its tokens: then the
            target is not p any more but `q (p/q)^(1/T)`, close to q and the closer the longer the sequence. It is
            for those who want what geometric masks want, and has no meaning for tokens.

    Returns:
        The `Pick`, with arrays of the library and on the device of `logp_train`. Its metrics: `rate` (kept, of those
        with a token), `C` (the threshold of truncated importance sampling that keeps as many on average; for groups
        the median), `ess` (effective sample size per kept one, with the weights), `tv` and `kl` (left between the batch
        as p has it, times the size, and the kept without weights), `log_total` (log of the sum of r), and of
        frameworks' defaults on this batch: `trl_dropped`, `verl_truncated`, `verl_band_dropped`, shares of sequences.

    Raises:
        RatioError: A ratio is NaN or +inf, or its log is beyond 1e6.
        InputError: Fewer have a token and r > 0 than the number that is to be kept, or none at all.

    Example:
        >>> logp_rollout = -np.ones((4, 3))
        >>> logp_train = logp_rollout + np.array([[1.0], [0.0], [0.0], [-1.0]])
        >>> pick = rollout(logp_train, logp_rollout, np.ones((4, 3)), keep=2)
        >>> pick.index, pick.weight.round(4)
        (array([0, 1]), array([0.9074, 0.0926]))
        >>> pick.metrics["rate"]
        0.5
    """
    for value, known, name in ((level, LEVELS, "level"), (normalise, NORMALISE, "normalise"), (ratio, RATIOS, "ratio")):
        lookup(dict.fromkeys(known), value, name)
    if (level == "group") != (groups is not None):
        raise InputError("groups belong to level='group': give both, or neither")
    if level == "token" and (ratio == "geometric" or size is not None or cost is not None):
        raise InputError("ratio='geometric', size and cost are for sequences; leave them out for tokens")
    train, sampled, mask = _check_batch(logp_train, logp_rollout, mask)
    log_r, length, tokens = _log_ratios(train, sampled, mask, with_tokens=level == "token")
    has_token, log_size = length > 0, np.zeros(1)
    if tokens is not None:
        x, group, count = tokens.reshape(-1), None, int(length.sum())
        quota = _quotas(keep, np.array([count]), np.array([np.count_nonzero(x > -inf)]), ["tokens"])
        kept, thresholds = _choose_tokens(tokens, int(quota[0]), ids, seed)
        score = x
    else:
        x, count = np.where(has_token, log_r, -inf), int(has_token.sum())
        if ratio == "geometric":
            x = x / np.maximum(length, 1)
        labels, group, _ = groups_of(np.zeros(len(x), int) if groups is None else groups, x.shape)
        names = ["sequences"] if groups is None else [f"sequences of group {label!r}" for label in labels]
        units = has_token.astype(float)
        if size is not None:
            with np.errstate(divide="ignore"):
                log_size = np.log(_per_row(size, "size", len(x)))
        if cost is not None:
            units = _per_row(cost, "cost", len(x)) * has_token
        score = x + log_size
        quota = _quotas(
            keep, np.bincount(group, units), np.bincount(group, units * (score > -inf)), names, size is None
        )
        if cost is None:
            kept, thresholds = _choose_sequences(score, group, quota, ids, seed)
        else:
            kept, thresholds = _take_by_cost(score, group, quota, units, ids, seed)

    index = np.flatnonzero(kept)
    ends = thresholds[0] if group is None else thresholds[group]
    n = len(index) if cost is None else float(np.sum(np.exp(np.minimum(score - ends, 0.0))))  # kept, or expected
    log_total, left = _divergences(score, group, thresholds, n)
    if size is not None:
        log_total = float(np.logaddexp.reduce(x))
    threshold = thresholds[0] if group is None else thresholds[group[index]]
    log_weight = np.maximum(score[index], threshold) - np.broadcast_to(log_size, x.shape)[index]  # log(r / pi)
    log_weight -= log(count) if normalise == "none" else log_total if total is None else float(total)
    metrics = {"rate": len(index) / count} | left | {"log_total": log_total}
    metrics |= _framework_defaults(log_r[has_token], length[has_token])
    xp, home = namespace(train), as_floats(train[:0], "logp_train")
    mask = mask & array_like(kept.reshape(len(log_r), -1), train, dtype=xp.bool)
    return Pick(array_like(index, train, dtype=xp.int64), mask, array_like(log_weight, home), metrics)


def _check_batch(logp_train: Any, logp_rollout: Any, mask: Any) -> tuple[Array, Array, Array]:
    """Return both log-probs without gradient, and the mask as booleans."""
    given = logp_train, logp_rollout, mask
    batch = [detach(x) if hasattr(x, "ndim") else known_values(x, "log-probs and mask") for x in given]
    if any(getattr(x, "is_sparse", False) for x in batch):
        raise InputTypeError("log-probs and mask must be dense tensors; call .to_dense() first")
    shapes = [tuple(x.shape) for x in batch]
    if len(set(shapes)) > 1 or len(shapes[0]) != 2 or 0 in shapes[0]:
        text = ", ".join(str(shape) for shape in shapes)
        raise InputError(f"log-probs and mask must have one shape (sequences, tokens), and at least one, got {text}")
    train, sampled, mask = batch
    check_same_device(train, sampled, "logp_train", "logp_rollout")
    check_same_device(train, mask, "logp_train", "mask")
    if mask.dtype != namespace(mask).bool:
        given, mask = mask, mask == 1
        if bool(namespace(mask).any((given != 0) & ~mask)):
            raise InputError(
                "mask must be True or 1 for tokens of the completion, and 0 elsewhere; it has other numbers"
            )
    return train, sampled, mask


def _log_ratios(train: Array, sampled: Array, mask: Array, *, with_tokens: bool) -> tuple[Floats, Ints, Floats | None]:
    """Return log r of every sequence, the number of its tokens and, if asked for, log r of every token.

    Blocks of rows are brought to NumPy one by one, so that nothing is as large as the batch but the last of these. It
    has -inf where the mask is 0.
    """
    rows, width = train.shape
    log_r, length, tokens, bad = np.empty(rows), np.empty(rows, np.int64), None, 0
    for at in _blocks(rows, width):
        a, b, m = (_known_values(x[at]) for x in (train, sampled, mask))
        with np.errstate(invalid="ignore"):  # what is NaN is counted
            gap = np.where(m, a - b, 0.0)
            log_r[at], length[at] = gap.sum(axis=1, dtype=np.float64), m.sum(axis=1)
        if with_tokens:
            tokens = np.empty((rows, width), gap.dtype) if tokens is None else tokens
            tokens[at] = np.where(m, gap, -inf)
        bad += int(count_bad(gap if with_tokens else log_r[at]))
    if bad:
        what = "tokens" if with_tokens else "sequences"
        raise RatioError(
            f"logp_train - logp_rollout is NaN, +inf or beyond {LIMIT:g} for {bad} {what}; "
            "a sampled token cannot have logp_rollout = -inf, and log-probs that are not known must be masked"
        )
    return log_r, length, tokens


def _blocks(rows: int, width: int = 1) -> list[slice]:
    """Return rows in blocks of about so many numbers as stay in a core's cache."""
    step = max(1, _BLOCK // width)
    return [slice(i, i + step) for i in range(0, rows, step)]


def _known_values(x: Array) -> Floats:
    values = host_view(x if x.dtype == namespace(x).bool else as_floats(x, "log-probs"))
    if values is None:
        raise InputTypeError("log-probs must be known; choose rollouts outside jax.jit")
    return values


def _per_row(values: Any, name: str, rows: int) -> Floats:
    """Return numbers of at least 0, one for each row."""
    x = _known_values(as_floats(values, name)).astype(np.float64)
    if x.shape != (rows,) or not np.all((x >= 0) & (x < inf)):
        raise InputError(f"{name} must be a number of at least 0 for each of {rows} rows, got shape {x.shape}")
    return x


def _quotas(keep: Any, sizes: Floats, possible: Floats, names: Sequence[str], exact: bool = True) -> Ints:
    """Return how many to keep of each group, of which `possible` of `sizes` can be kept; if not `exact`, at most."""
    is_share = isinstance(keep, float | np.floating)
    if not is_number(keep) or not (0 < keep <= 1 if is_share else keep >= 1 and keep == int(keep)):
        what = "a share (a float above 0 and at most 1) or a number (an int of at least 1)"
        raise InputError(f"keep must be {what}, got {keep!r}")
    number = min(keep, 2**62)  # which nobody has
    share = np.minimum(np.maximum(np.rint(keep * sizes), 1), possible) if is_share else np.full(len(sizes), number)
    quotas = (share if exact else np.minimum(share, possible)).astype(np.int64)
    for short in np.flatnonzero((quotas > possible) | (quotas.sum() == 0))[:1]:
        few = f"only {possible[short]:.0f} have a token and r > 0"
        raise InputError(
            f"cannot keep {keep} of {sizes[short]:.0f} {names[short]}: {few}; leave them out, or keep fewer"
        )
    return quotas


def _choose_sequences(x: Floats, group: Ints, quota: Ints, ids: Any, seed: int) -> tuple[Ints, Floats]:
    """Choose `quota[g]` sequences of each group g; return which, and -log c of each group, +inf where none is kept."""
    kept = np.zeros(len(x), bool)
    kept[select(x, quota, design="systematic", ids=ids, groups=group, seed=seed)] = True
    return kept, -solve_groups(x, None, group, quota.astype(np.float64))


def _take_by_cost(x: Floats, group: Ints, quota: Ints, cost: Floats, ids: Any, seed: int) -> tuple[Ints, Floats]:
    """Take the smallest keys of each group up to the first that does not fit; return which, and minus its key."""
    ids = np.arange(len(x)) if ids is None else as_ids(ids)
    key = priority_key(x, ids, seed=seed)
    order = np.lexsort((ids, key, group))
    spent = np.cumsum(cost[order])
    spent -= np.append(0.0, spent)[np.searchsorted(group[order], group[order])]  # of the groups before
    over = order[(spent > quota[group[order]]) | (key[order] == inf)]
    ends = np.full(len(quota), inf)
    np.minimum.at(ends, group[over], key[over])
    kept = (key < ends[group]) & (key < inf)
    if not kept.any():
        raise InputError(f"nothing is kept: the first sequence costs more than {quota.max()}; keep more")
    return kept, np.where(ends < inf, -ends, -inf)


def _choose_tokens(x: Floats, n: int, ids: Any, seed: int) -> tuple[Ints, Floats]:
    """Choose n tokens of a batch, systematically: rows in random order, tokens in their order.

    A row is an interval as long as the sum of its pi: which points of the lattice lie in it is known before its tokens
    are looked at. So millions of tokens need neither random numbers nor a sort, and probabilities exist in blocks only.

    Returns:
        Which tokens, shape `(rows, length)`, and -log c.
    """
    ids = np.arange(len(x)) if ids is None else as_ids(ids)
    if ids.shape != x.shape[:1]:
        raise InputError(f"ids must be one integer for each of {len(x)} rows, got shape {ids.shape}")
    log_c = np.float64(solve_pool(x.reshape(-1), None, float(n)))
    blocks = _blocks(*x.shape)
    kept, length, free = np.zeros(x.shape, bool), np.empty(len(x)), np.empty(len(x), np.int64)

    def probabilities(rows: slice) -> tuple[Floats, Ints]:
        """Return pi of a block of rows, and which are neither 0 nor 1."""
        pi = np.exp(np.minimum(x[rows] + log_c, 0.0))
        return pi, (pi > 0) & (pi < 1 - _SURE)

    for rows in blocks:
        pi, is_free = probabilities(rows)
        kept[rows] = pi >= 1 - _SURE
        length[rows], free[rows] = np.sum(pi * is_free, axis=1), np.count_nonzero(is_free, axis=1)
    need = n - np.count_nonzero(kept)
    scale = need / max(length.sum(), 1e-300)  # c is rounded; so the lengths sum to a whole number
    order, start = random_order(ids, seed), 1 - draw_uniforms(1, seed)[0]
    end = np.cumsum(length[order]) * scale
    passed = np.clip(np.floor(end - start) + 1, 0, need).astype(np.int64)  # points of the lattice up to this end
    passed[end >= end[-1]] = need
    count, first = np.empty(len(x), np.int64), np.empty(len(x))
    count[order] = np.diff(passed, prepend=0)
    first[order] = start + (passed - count[order]) - np.concatenate([[0.0], end[:-1]])
    for rows in blocks:
        pi, is_free = probabilities(rows)
        places = lattice(pi[is_free] * scale, free[rows], count[rows], first[rows])
        kept[rows].reshape(-1)[np.flatnonzero(is_free)[places]] = True
    return kept.reshape(-1), np.array([-log_c])


def _divergences(x: Floats, group: Ints | None, thresholds: Floats, n: float) -> tuple[float, dict[str, float]]:
    """Return log of the sum of r, and what is left between the batch, weighted by r, and the kept.

    Kept i has the share pi_i / n, and r / pi = max(r, 1/c). ESS per kept one is (sum r)² / (n sum r² / pi); TV is half
    of sum |r / sum r - pi / n|; KL is from the target.
    """
    top, median = float(x.max()), float(np.median(thresholds[thresholds < inf]))
    finite = np.minimum(thresholds, top + log(len(x)))  # where nothing is kept all r are 0: any number will do
    total = second = nats = variation = 0.0
    blocks = _blocks(len(x))
    bounds = [finite[0] if group is None else finite[group[at]] for at in blocks]
    for at, bound in zip(blocks, bounds, strict=True):
        ratio = np.exp(x[at] - np.float64(top))
        total += float(ratio.sum())
        second += float(ratio @ np.maximum(ratio, np.exp(bound - top)))
        nats += float(ratio @ np.maximum(x[at], bound))
    for at, bound in zip(blocks, bounds, strict=True):
        pi = np.exp(np.minimum(x[at] - bound, 0.0))
        variation += float(np.abs(np.exp(x[at] - np.float64(top)) / total - pi / n).sum())
    log_total = top + log(total)
    with np.errstate(over="ignore"):
        threshold = float(np.exp(median))
    kl = max(nats / total - log_total + log(n), 0.0)
    return log_total, {"C": threshold, "ess": total**2 / (n * second), "tv": variation / 2, "kl": kl}


def _framework_defaults(log_r: Floats, length: Ints) -> dict[str, float]:
    """Return the shares of sequences that the defaults of frameworks drop or truncate."""
    mean, (low, high) = log_r / length, VERL_BAND
    return {
        "trl_dropped": float(np.mean(log_r > log(TRL_MASK))),
        "verl_truncated": float(np.mean(log_r > log(VERL_TRUNCATE))),
        "verl_band_dropped": float(np.mean((mean < log(low)) | (mean > log(high)))),
    }


def tilt(
    reward: Array,
    *,
    groups: Array | None = None,
    keep: int,
    kl: float | None = None,
    beta: float | None = None,
    seed: int = 0,
) -> Pick:
    """Choose exactly so many of every prompt's completions, better ones more often, on a budget of KL.

    The ratio is r = exp(R / beta), and completion i of a prompt is kept with probability `pi_i = min(c r_i, 1)`, so
    none is kept twice. The law of the kept is pi/n. Its KL to the pool, all completions of the prompt with equal
    shares, says how far the choice moves away from the model: best-of-n has log n - (n-1)/n.

    Args:
        reward: One per completion, shape `(N,)`, of any array library; -inf is never kept.
        groups: The prompt of each, labels of any kind, shape `(N,)`. None for one prompt.
        keep: How many to keep of each prompt.
        kl: The budget: the mean over prompts of KL(kept ‖ pool), in nats. One beta serves all prompts, which makes the
            mean reward the largest for a mean KL. No choice without copies has more than log(N/n); a budget that
            is not reached gives the best n.
        beta: The temperature instead of a budget.
        seed: Integer with `0 <= seed < 2**64`.

    Returns:
        The `Pick`. With its weights, a sum over the kept estimates the mean over prompts of the average under r, the
        pool tilted without a limit. Its metrics: `beta`; `kl`; `reward`, the mean under the law of the kept; `pool`,
        that of all completions; `best`, the largest that any law with this KL has, and `gap`, what is missing to it.

    Raises:
        InputError: A prompt has too few completions, or not exactly one of `kl` and `beta` is given.

    Example:
        >>> import numpy as np
        >>> reward = np.array([0.1, 0.5, 0.2, 0.9, 0.4, 0.3])
        >>> pick = tilt(reward, groups=["a", "a", "a", "b", "b", "b"], keep=1, kl=0.3)
        >>> pick.index
        array([1, 3])
        >>> {name: round(value, 3) for name, value in pick.metrics.items()}
        {'beta': 0.283, 'kl': 0.3, 'reward': 0.576, 'pool': 0.4, 'best': 0.576, 'gap': 0.0}

    References:
        | Theoretical guarantees on the best-of-n alignment policy (Beirami et al., 2024), its KL
        | Direct Preference Optimization (Rafailov et al., 2023), the target exp(R / beta)
    """
    x = as_floats(reward, "reward")
    values = host_view(x)
    if values is None or values.ndim != 1 or not values.size:
        raise InputError(f"reward must be one number per completion, got shape {tuple(x.shape)}")
    values = values.astype(np.float64)
    if bad := np.count_nonzero(~((np.abs(values) <= _LARGEST) | (values == -inf))):
        raise RatioError(f"reward has {bad} NaN, +inf or beyond {_LARGEST:g} among {values.size}; check the scorer")
    if (kl is None) == (beta is None):
        raise InputError("say how far to tilt: either kl, a budget in nats, or beta, a temperature")
    n = check_count(keep, "keep")
    labels, code, size = groups_of(np.zeros(len(values), np.int64) if groups is None else groups, values.shape)
    if kl is not None:
        log_r, beta, _ = tilted_log_ratio(values, code, n, kl, labels)
    else:
        beta = check_positive(beta, "beta")
        log_r = _tilt_rewards(values, code, beta)
    pi = inclusion_probability(log_r, n, groups=groups if groups is not None else code)
    index = select(log_r, n, seed=seed, groups=code)
    prompts, finite = len(labels), np.where(values > -inf, values, 0.0)
    spent = _kl(pi / n, size[code]) / prompts
    kept_reward, best = float(pi @ finite / n / prompts), _best_reward(values, code, spent)
    metrics = {"beta": beta, "kl": spent, "reward": kept_reward, "pool": float(np.sum(finite / size[code]) / prompts)}
    metrics |= {"best": best, "gap": max(best - kept_reward, 0.0)}
    total = np.bincount(code, np.exp(log_r))[code[index]]
    log_weight = log_r[index] - np.log(total * prompts) - np.log(pi[index])
    mask = np.zeros(len(values), bool)
    mask[index] = True
    xp = namespace(x)
    index, mask = array_like(index, x, dtype=xp.int64), array_like(mask, x, dtype=xp.bool)
    return Pick(index, mask, array_like(log_weight, x), metrics)


def tilted_log_ratio(
    reward: Floats, groups: Ints, keep: int, kl: float, labels: Sequence[Any] = ()
) -> tuple[Floats, float, float]:
    """Return R / beta, 0 for the best of each group, the beta at which the kept of `tilt` spend a budget, and their KL.

    KL falls as beta rises. A budget that even the best `keep` of each group do not spend gives a beta close to 0, and
    a budget of 0 gives infinity.

    Args:
        reward: One per completion, float64; -inf is never kept.
        groups: Numbers from 0.
        keep: How many of each group.
        kl: The budget, at least 0: the mean over groups.
        labels: What the groups are called, for errors.

    Example:
        >>> import numpy as np
        >>> log_ratio, beta, spent = tilted_log_ratio(np.array([0.0, 0.0, 1.0, 1.0]), np.zeros(4, int), 1, 0.3)
        >>> round(beta, 4), round(spent, 4), log_ratio.round(4)
        (0.5349, 0.3, array([-1.8696, -1.8696,  0.    ,  0.    ]))
    """
    if not is_number(kl) or not 0 <= float(kl) < inf:
        raise BudgetError(f"kl must be a budget of at least 0 nats, got {kl!r}")
    sizes, possible = np.bincount(groups), np.bincount(groups, reward > -inf)
    for short in np.flatnonzero(possible < keep)[:1]:
        where = f" of prompt {labels[short]!r}" if len(labels) > 1 else ""
        raise InputError(f"cannot keep {keep} of {sizes[short]} completions{where}: {possible[short]:.0f} can be kept")

    def spent(beta: float) -> float:
        pi = inclusion_probability(_tilt_rewards(reward, groups, beta), keep, groups=groups)
        return _kl(pi / keep, sizes[groups]) / len(sizes)

    beta = _temperature(spent, kl, reward, groups)
    return _tilt_rewards(reward, groups, beta), beta, spent(beta)


def _tilt_rewards(reward: Floats, groups: Ints, beta: float) -> Floats:
    """Return R / beta, relative to the largest of each group, and at least -1e6 where it is not -inf."""
    with np.errstate(over="ignore", invalid="ignore"):  # at an infinite beta, -inf is NaN
        below = (reward - _largest(reward, groups)[groups]) / max(beta, _SMALLEST)
    return np.where(reward > -inf, np.maximum(below, -LIMIT), -inf)


def _largest(x: Floats, groups: Ints) -> Floats:
    """Return the largest of each group."""
    top = np.full(groups.max() + 1, -inf)
    np.maximum.at(top, groups, x)
    return top


def _kl(law: Floats, sizes: Ints) -> float:
    """Return the sum over groups of KL(law ‖ equal shares)."""
    some = law > 0
    return float(np.sum(law[some] * np.log(law[some] * sizes[some])))


def _best_reward(reward: Floats, groups: Ints, kl: float) -> float:
    """Return the largest mean reward of any law with this mean KL: that of exp(R / beta) itself."""
    sizes = np.bincount(groups)

    def law(beta: float) -> Floats:
        r = np.exp(_tilt_rewards(reward, groups, beta))
        return np.asarray(r / np.bincount(groups, r)[groups])

    beta = _temperature(lambda b: _kl(law(b), sizes[groups]) / len(sizes), kl, reward, groups)
    return float(law(beta) @ np.where(reward > -inf, reward, 0.0)) / len(sizes)


def _temperature(spent: Callable[[float], float], kl: float, reward: Floats, groups: Ints) -> float:
    """Return the beta at which a KL, which falls in beta, meets the budget; the least one if it is always below.

    The least beta is a millionth of the largest difference of two rewards: nearer ones cannot be told apart.
    """
    possible = reward > -inf
    spread = _largest(reward, groups) + _largest(np.where(possible, -reward, -inf), groups)
    scale = float(spread.max())
    if kl <= 0 or scale == 0:
        return inf
    low, high = log(scale) - log(LIMIT), log(scale) + 20.0  # from the best n alone to all alike
    if spent(exp(low)) <= kl:
        return exp(low)
    return exp(high if spent(exp(high)) >= kl else brent(lambda log_beta: spent(exp(log_beta)) - kl, low, high))
