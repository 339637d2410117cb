"""Language models: rollouts on a budget of backward passes, top-k log-probs, rewards on a budget of KL.

Rollouts are sampled from one law q (an engine that is quantised, stale, or another program) and used to train
another, p. The ratio of a sequence is r = p/q. Truncated importance sampling weighs by min(r, C) = C min(r/C, 1), which
is what OBRS with c = 1/C keeps on average: here a budget takes the place of the threshold C, and what is not kept
needs no backward pass.

The functions of log-probs are pure functions of torch tensors; torch is imported when they are called. `tilt` takes
arrays of any library.

References:
    | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Sec. 3.1
    | A Generalization of Sampling without Replacement from a Finite Universe (Horvitz & Thompson, 1952)
    | Truncated Importance Sampling (Ionides, 2008)
"""

from collections.abc import Sequence
from math import exp, inf, isfinite, log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace

from ._arrays import as_floats, host_view, like
from ._checks import LIMIT, check_count, check_positive, check_seed, is_number
from ._text import lookup
from .errors import BudgetError, InputError, InputTypeError, MissingLibraryError, RatioError
from .groups import groups_of
from .root import brent
from .selection import inclusion_probability, select
from .types import Array

if TYPE_CHECKING:
    import torch

__all__ = ["Pick", "TokenRate", "rollout", "tilt", "tilted_log_ratio", "token_rate"]

Floats = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]

# What frameworks do if they are not told otherwise, all of it with the ratio of the sequence.
TRL_MASK = 3.0  # vllm_importance_sampling_mode="sequence_mask", vllm_importance_sampling_clip_max
VERL_TRUNCATE = 2.0  # rollout_is="sequence", rollout_is_threshold
VERL_BAND = (0.999, 1.001)  # rollout_rs="seq_mean_k1", the preset rollout_rs_threshold="0.999_1.001"

LEVELS = ("sequence", "group", "token")
RATIOS = ("product", "geometric")
NORMALISE = ("batch", "none")
_BLOCK = 1 << 18  # tokens at a time: bounds what is kept in between
_LARGEST = 1e300  # difference of two rewards over beta; it must stay a float


class Pick(NamedTuple):
    """What is kept.

    Attributes:
        index: Positions of the kept, ascending: rows, or for tokens positions in the flattened batch.
        mask: True for what is kept; `(B, T)` for rollouts, `(N,)` for rewards.
        weight: One per kept one, in the order of `index`; without gradient.
        metrics: Numbers by name, each an array without axes.
    """

    index: Array
    mask: Array
    weight: Array
    metrics: dict[str, Array]

    def __repr__(self) -> str:
        found = ", ".join(f"{name} {float(value):.4g}" for name, value in self.metrics.items())
        return f"Pick({len(self.index)} kept, mask of shape {tuple(self.mask.shape)}\n     {found})"


def rollout(
    logp_train: "torch.Tensor",
    logp_rollout: "torch.Tensor",
    mask: "torch.Tensor",
    *,
    keep: float | int,
    level: str = "sequence",
    groups: Array | None = None,
    ids: Array | None = None,
    seed: int = 0,
    normalise: str = "batch",
    ratio: str = "product",
) -> Pick:
    """Choose what to train on: exactly so many of a batch of rollouts, each with probability `pi = min(c r, 1)`.

    With weights `w = (r / pi) / sum of r over the batch`, a sum over the kept estimates the self-normalised average
    over the whole batch, without bias: for any f, `E[sum w f over the kept] = sum r f / sum r over the batch`. So
    advantages are computed before the selection, from all rollouts, and the loss is a sum, not a mean: what is not
    kept must not be in its denominator.

    Sampling is systematic, in a random order: the probabilities are exact, and who has pi = 1 is always kept.

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
        level: "sequence" keeps sequences with one constant c. "group" keeps sequences, equally many (or the same
            share) of every group. "token" keeps tokens, with the ratio of each token alone: the law that is corrected
            is that of the next token given the text so far; that the text so far was sampled from q is not corrected.
        groups: The prompt of each row, for level "group": labels of any kind, shape `(B,)`.
        ids: A number for each row, by default its position. The kept set is a pure function of the log-probs, the
            seed and the ids: rows in another order with their ids are kept or not as before.
        seed: Integer with `0 <= seed < 2**64`; give each step its own.
        normalise: "batch" as above, or "none": `w = r / pi / B`, which is also unbiased over batches if p and q are
            normalised, and of much larger variance if ratios are.
        ratio: "product" is p/q of the sequence. "geometric" is its T-th root, T the number of its tokens: then the
            target is not p any more but `q (p/q)^(1/T)`, close to q and the closer the longer the sequence. It is
            for those who want what geometric masks want, and has no meaning for tokens.

    Returns:
        The `Pick`. Its metrics: `rate` (kept, of those with a token), `C` (the threshold of truncated importance
        sampling that keeps as many on average; for groups the median), `ess` (effective sample size per kept one, with
        the weights), `tv` and `kl` (left between the batch as p has it and the kept without weights), and of
        frameworks' defaults on this batch: `trl_dropped`, `verl_truncated`, `verl_band_dropped`, shares of sequences.

    Raises:
        RatioError: A ratio is NaN or infinite.
        InputError: Fewer have a token and r > 0 than the number that is to be kept, or none at all.

    Example:
        >>> import torch
        >>> logp_rollout = -torch.ones(4, 3)
        >>> logp_train = logp_rollout + torch.tensor([[1.0], [0.0], [0.0], [-1.0]])
        >>> pick = rollout(logp_train, logp_rollout, torch.ones(4, 3), keep=2)
        >>> pick.index, pick.weight
        (tensor([0, 1]), tensor([0.9074, 0.0926]))
        >>> round(float(pick.metrics["rate"]), 3)
        0.5
    """
    torch, ops = _libraries("rollout")
    for value, known, name in ((level, LEVELS, "level"), (normalise, NORMALISE, "normalise"), (ratio, RATIOS, "ratio")):
        lookup(dict.fromkeys(known), value, name)
    if (level == "group") != (groups is not None):
        raise InputError("groups belong to level='group': give both, or neither")
    if level == "token" and ratio == "geometric":
        raise InputError("ratio='geometric' is for sequences; a token has one ratio")
    train, sampled, mask = _check_tensors(logp_train, logp_rollout, mask)
    key, seed = ops.as_ids(ids, len(mask)), check_seed(seed)

    log_r, length = _sequence_ratios(train, sampled, mask)
    if level == "token":
        narrow = torch.promote_types(train.dtype, torch.float32)
        x, code, size = (train.to(narrow) - sampled.to(narrow)).float(), None, length.sum()
        x.masked_fill_(~mask, -inf)
        count = ops.token_count(keep, size, x)
        index, log_c = ops.pick_tokens(x, count, key, seed)
        x, log_c = x.flatten(), log_c.to(log_r)
        chosen, blocks = _accepted(x[index].to(log_c), log_c), (_accepted(part, log_c) for part in x.split(_BLOCK))
        kept = torch.zeros_like(mask).flatten().index_fill_(0, index, True).reshape(mask.shape)
    else:
        per_token = length.clamp(min=1) if ratio == "geometric" else 1
        x, size = torch.where(length > 0, log_r / per_token, -inf), (length > 0).sum()
        code, quota = ops.quotas(keep, groups, x, length > 0)
        index, pi = ops.pick_sequences(x, code, quota, key, seed)
        chosen, blocks, count = pi[index], pi.split(_BLOCK), quota.sum()
        kept = mask & torch.zeros_like(mask[:, 0]).index_fill(0, index, True)[:, None]

    top = x.max()
    total = sum(torch.exp(part - top).sum(dtype=log_r.dtype) for part in x.split(_BLOCK))
    weight = torch.exp((x[index] - top).to(log_r.dtype)) / chosen
    weight = weight / total if normalise == "batch" else weight * (top.to(log_r.dtype).exp() / size)
    metrics = {"rate": count / size} | _left(x, blocks, top, total, count, code) | _defaults(log_r, length)
    return Pick(index, kept, weight.to(torch.promote_types(train.dtype, torch.float32)), metrics)


def _libraries(name: str) -> tuple[Any, Any]:
    try:
        import torch

        from . import _pick
    except ModuleNotFoundError as error:
        raise MissingLibraryError(f"{name} needs torch: pip install 'obrs[torch]'") from error
    return torch, _pick


def _check_tensors(logp_train: Any, logp_rollout: Any, mask: Any) -> tuple[Any, Any, Any]:
    """Return both log-probs without gradient, and the mask as booleans."""
    import torch

    given = {"logp_train": logp_train, "logp_rollout": logp_rollout, "mask": mask}
    for name, x in given.items():
        if not isinstance(x, torch.Tensor):
            raise InputTypeError(f"{name} must be a tensor of torch, got {type(x).__name__}")
        if x.layout != torch.strided:
            raise InputTypeError(f"{name} must be a dense tensor, got {x.layout}; call .to_dense() first")
        if x.ndim != 2 or x.shape != logp_train.shape:
            shapes = ", ".join(f"{key} {tuple(a.shape)}" for key, a in given.items() if hasattr(a, "shape"))
            raise InputError(f"log-probs and mask must have one shape (sequences, tokens), got {shapes}")
        if name != "mask" and not x.is_floating_point():
            raise InputTypeError(f"{name} must be log-probs, got {x.dtype}")
        if x.device != logp_train.device:
            raise InputError(f"{name} must be on the device of logp_train {logp_train.device}, got {x.device}")
    if logp_train.numel() == 0:
        raise InputError(f"a batch must have a sequence and a token, got shape {tuple(logp_train.shape)}")
    return logp_train.detach(), logp_rollout.detach(), mask if mask.dtype == torch.bool else mask != 0


def _sequence_ratios(train: Any, sampled: Any, mask: Any) -> tuple[Any, Any]:
    """Return log r of every sequence, in float64 where there is one, and the number of its tokens."""
    import torch

    narrow = torch.promote_types(train.dtype, torch.float32)
    wide = torch.float32 if train.device.type == "mps" else torch.float64
    rows = max(1, _BLOCK // train.shape[1])
    parts = zip(train.split(rows), sampled.split(rows), mask.split(rows), strict=True)
    found = [
        (torch.where(m, a.to(narrow) - b.to(narrow), 0.0).sum(dim=1, dtype=wide), m.sum(dim=1)) for a, b, m in parts
    ]
    sums, lengths = zip(*found, strict=True)
    return torch.cat(sums), torch.cat(lengths)


def _accepted(x: Any, log_c: Any) -> Any:
    """Return pi = min(c r, 1) in the dtype of x; log c may be large, so it is added in its own."""
    return (x.to(log_c.dtype) + log_c).clamp(max=0.0).to(x.dtype).exp()


def _left(x: Any, blocks: Any, top: Any, total: Any, count: Any, code: Any) -> dict[str, Any]:
    """Return what is left between the batch, weighted by r, and the kept: kept i has the share pi_i / count.

    The probabilities pi come in blocks, which for tokens are made one by one.
    ESS per kept one is (sum r)^2 / (n sum r^2 / pi); TV is half of sum |r / sum r - pi / n|; KL is from the target.
    """
    import torch

    second, nats, variation, least = 0.0, 0.0, 0.0, []
    for l, p in zip(x.split(_BLOCK), blocks, strict=True):
        r = torch.exp(l - top)
        threshold = torch.where(p > 0, l - p.log(), inf)  # log(r / pi) = max(log r, -log c)
        possible = torch.where(p > 0, threshold, top)  # where r = 0 anything finite
        second = second + (r * torch.exp(possible - top)).sum(dtype=total.dtype)
        nats = nats + (r * possible).sum(dtype=total.dtype)
        variation = variation + (r / total.to(r.dtype) - p / count).abs().sum(dtype=total.dtype)
        least.append(threshold if code is not None else threshold.min()[None])
    log_c = -torch.cat(least).min()
    if code is not None:
        lowest = torch.full_like(x, inf).scatter_reduce(0, code.to(x.device), torch.cat(least), "amin")
        log_c = -torch.nanmedian(torch.where(lowest < inf, lowest, torch.nan))
    return {
        "C": torch.exp(-log_c),
        "ess": total**2 / (count * second),
        "tv": 0.5 * variation,
        "kl": torch.clamp(nats / total - torch.log(total / count) - top, min=0.0),
    }


def _defaults(log_r: Any, length: Any) -> dict[str, Any]:
    """Return the shares of sequences that the defaults of frameworks drop or truncate."""
    some = length > 0
    mean, (low, high) = log_r / length.clamp(min=1), VERL_BAND
    found = {
        "trl_dropped": log_r > log(TRL_MASK),
        "verl_truncated": log_r > log(VERL_TRUNCATE),
        "verl_band_dropped": (mean < log(low)) | (mean > log(high)),
    }
    return {name: (some & hit).sum() / some.sum() for name, hit in found.items()}


class TokenRate(NamedTuple):
    """What is known of `Z = sum min(q, c p)`, the share of tokens that OBRS keeps; arrays of one shape.

    Attributes:
        low: Z is at least this: the sum over the stored tokens.
        high: Z is at most this.
        width: `high - low`.
        estimate: Unbiased for Z over sampled tokens; None if none were given.
        missing: The least share of p on tokens that could not be sampled, because sampling was truncated. No weight and
            no selection brings these back: it is the bias of the support, a lower bound on the TV that is left.
    """

    low: Any
    high: Any
    width: Any
    estimate: Any
    missing: Any


def token_rate(
    topk_rollout: "torch.Tensor",
    logp_train: "torch.Tensor",
    log_c: float,
    *,
    ids: "torch.Tensor | None" = None,
    sampled: "tuple[torch.Tensor, torch.Tensor] | None" = None,
    top_k: int | None = None,
    top_p: float | None = None,
) -> TokenRate:
    """Bracket the rate at which OBRS keeps the next token, from the few log-probs that an engine returns.

    Engines store the k largest log-probs of q, not the whole vocabulary. With T the stored tokens and q_k the smallest
    stored probability, `sum over T <= Z <= sum over T + min(1 - q(T), sum outside T of min(q_k, c p))`. The last sum
    needs log-probs of p for the whole vocabulary, which the forward pass of training has, and `ids`. Without them
    `c (1 - p(T))` takes its place.

    Args:
        topk_rollout: The k largest log-probs of the law that was sampled, shape `(..., k)`; -inf fills what is missing.
        logp_train: Log-probs of the trained policy: of the same tokens, shape `(..., k)`, or with `ids` of the whole
            vocabulary, shape `(..., V)`.
        log_c: The constant; 0 says c = 1, the rate of lossless speculative decoding.
        ids: Which tokens are stored, shape `(..., k)`.
        sampled: Log-probs of the sampled token under q and p, each of shape `(...)`. A sampled token that is not stored
            has q below all that are. Then `sum over T + min(1, c p/q)` if it is not stored, and the sum alone if it
            is, has mean Z.
        top_k: Sampling took one of so many most likely tokens, while the stored log-probs are of the law before that;
            they are renormalised. Not needed if the engine returns what it sampled from.
        top_p: As `top_k`, for nucleus sampling: the smallest set of probability at least `top_p`.

    Returns:
        The `TokenRate`.

    Example:
        >>> import torch
        >>> q, p = torch.tensor([0.5, 0.3, 0.1, 0.1]).log(), torch.tensor([0.25, 0.25, 0.25, 0.25]).log()
        >>> token_rate(q[:2], p[:2], 0.0)[:3]
        (tensor(0.5000), tensor(0.7000), tensor(0.2000))
        >>> round(float(torch.minimum(q, p).exp().sum()), 4)
        0.7
    """
    torch, _ = _libraries("token_rate")
    q, p = (_as_log_probs(x, name) for x, name in ((topk_rollout, "topk_rollout"), (logp_train, "logp_train")))
    log_c = _constant(log_c)
    if not q.ndim or not q.shape[-1]:
        raise InputError(f"topk_rollout must have at least one log-prob along its last axis, got {tuple(q.shape)}")
    if ids is None and q.shape != p.shape:
        raise InputError(f"logp_train must have the shape of topk_rollout {tuple(q.shape)}, or come with ids")
    if ids is not None:
        ids = _as_tokens(ids, q, p)
    stored = p if ids is None else p.gather(-1, ids)
    support = _support(q, top_k, top_p)
    q, least_of_q = torch.where(support.inside, q, -inf), torch.where(support.inside, q, inf).amin(dim=-1)

    def over_stored(norm: Any) -> Any:
        return torch.where(support.inside, torch.minimum(q - norm[..., None], stored + log_c), -inf).exp().sum(dim=-1)

    low = over_stored(support.most).clamp(max=1.0)
    if ids is None:
        outside = _exp(log_c) * (1 - torch.where(support.inside, stored, -inf).exp().sum(dim=-1)).clamp(min=0.0)
    else:
        every = torch.minimum(p + log_c, (least_of_q - support.least)[..., None]).exp()
        outside = (every.sum(dim=-1) - every.gather(-1, ids).sum(dim=-1)).clamp(min=0.0)
    high = (over_stored(support.least) + torch.minimum(support.beyond, outside)).clamp(max=1.0)  # both at their largest
    missing = 1 - torch.where(support.inside, stored, -inf).exp().sum(dim=-1)
    missing = torch.where(support.is_whole, missing.clamp(min=0.0), 0.0)
    estimate = None
    if sampled is not None:
        if not isinstance(sampled, tuple | list) or len(sampled) != 2:
            raise InputTypeError(f"sampled must be two tensors, log-probs under q and p, got {type(sampled).__name__}")
        log_q, log_p = (_as_log_probs(x, "sampled") for x in sampled)
        if not log_q.shape == log_p.shape == q.shape[:-1]:
            got = f"{tuple(log_q.shape)} under q and {tuple(log_p.shape)} under p"
            raise InputError(f"sampled must be two tensors of shape {tuple(q.shape[:-1])}, got {got}")
        alone = torch.clamp(log_p + log_c - (log_q - support.most), max=0.0).exp()
        estimate = low + torch.where(log_q < least_of_q, alone, 0.0)
        estimate = torch.where(support.most == support.least, estimate, torch.nan)
    return TokenRate(low, high, high - low, estimate, missing)


class _Support(NamedTuple):
    """Which stored tokens could be sampled, and what is known of the mass that all of those have before truncation."""

    inside: Any
    least: Any  # log of the least mass that they may have
    most: Any  # log of the largest
    beyond: Any  # the largest share of samples that are not stored
    is_whole: Any  # whether all tokens that could be sampled are stored


def _support(q: Any, top_k: int | None, top_p: float | None) -> _Support:
    """Top-k first, then top-p of what is left of it, as engines do."""
    import torch

    mass, inside = q.exp(), q > -inf
    whole, is_whole = torch.ones_like(mass[..., 0]), ~inside.all(dim=-1)
    rank = q.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
    if top_k is not None:
        if check_count(top_k, "top_k") > q.shape[-1]:
            raise InputError(f"top_k={top_k} needs as many stored log-probs, got {q.shape[-1]}")
        inside, is_whole = inside & (rank < top_k), torch.ones_like(is_whole)
        whole = torch.where(inside, mass, 0.0).sum(dim=-1)
    goal = whole
    if top_p is not None:
        if not 0 < check_positive(top_p, "top_p") <= 1:
            raise InputError(f"top_p must be a probability, got {top_p!r}")
        goal = top_p * whole
        upto = torch.where(inside, mass, 0.0).sort(dim=-1, descending=True).values.cumsum(dim=-1)
        is_whole = is_whole | (upto[..., -1] >= goal)
        inside = inside & (upto.gather(-1, rank) - mass < goal[..., None])
    kept = torch.where(inside, mass, 0.0).sum(dim=-1)
    if top_k is None and top_p is None:
        return _Support(inside, torch.zeros_like(kept), torch.zeros_like(kept), (1 - kept).clamp(min=0.0), is_whole)
    smallest = torch.where(inside, mass, inf).amin(dim=-1)
    least = torch.where(is_whole, kept, torch.maximum(goal, kept))
    most = torch.where(is_whole, kept, torch.minimum(whole, goal + smallest))
    return _Support(inside, least.log(), most.log(), (1 - kept / most).clamp(min=0.0), is_whole)


def _as_log_probs(x: Any, name: str) -> Any:
    import torch

    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        raise InputTypeError(f"{name} must be a tensor of log-probs, got {getattr(x, 'dtype', type(x).__name__)}")
    if x.layout != torch.strided:
        raise InputTypeError(f"{name} must be a dense tensor, got {x.layout}; call .to_dense() first")
    if bad := int((~(x < inf)).sum()):
        raise RatioError(f"{name} has {bad} NaN or +inf among {x.numel()} log-probs")
    return x.detach()


def _as_tokens(ids: Any, q: Any, p: Any) -> Any:
    """Return which tokens are stored, as numbers within the vocabulary."""
    import torch

    if not isinstance(ids, torch.Tensor) or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise InputTypeError(f"ids must be a tensor of whole numbers, got {getattr(ids, 'dtype', type(ids).__name__)}")
    if ids.shape != q.shape or p.ndim != q.ndim or p.shape[:-1] != q.shape[:-1]:
        shapes = f"{tuple(ids.shape)}, {tuple(q.shape)} and {tuple(p.shape)}"
        raise InputError(f"ids, topk_rollout and logp_train must agree in all but the vocabulary, got {shapes}")
    ids = ids.long()
    if not p.shape[-1] or bool(((ids < 0) | (ids >= p.shape[-1])).any()):
        raise InputError(f"ids must be tokens from 0 to {p.shape[-1] - 1}, the vocabulary of logp_train")
    return ids


def _constant(log_c: Any) -> float:
    if not is_number(log_c) or not isfinite(float(log_c)):
        raise InputError(f"log_c must be a finite number, got {log_c!r}")
    return float(log_c)


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
    shares, says how far the choice moves away from what the model says by itself: best-of-n has log n - (n-1)/n.

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
        >>> {name: round(float(value), 3) for name, value in pick.metrics.items()}
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
    if bad := np.count_nonzero(~(values < inf)):
        raise RatioError(f"reward has {bad} NaN or +inf among {values.size} values; check the scorer")
    found = groups_of(np.zeros(len(values), np.int64) if groups is None else groups, values.shape)
    n, code, count = check_count(keep, "keep"), found.code, len(found.labels)
    if (kl is None) == (beta is None):
        raise InputError("say how far to tilt: either kl, a budget in nats, or beta, a temperature")
    if kl is not None:
        log_r, beta, _ = tilted_log_ratio(values, code, n, kl, found.labels)
    else:
        beta = check_positive(beta, "beta")
        log_r = _tilted(values, code, beta)
    pi = inclusion_probability(log_r, n, groups=code)
    index = select(log_r, n, seed=seed, groups=code)
    mask = np.zeros(len(values), bool)
    mask[index] = True
    share = np.exp(log_r) / np.bincount(code, np.exp(log_r))[code] / count
    spent = _kl(pi / n, found.size[code]) / count
    finite = np.where(pi > 0, values, 0.0)
    law, pool = pi / n / count, np.where(values > -inf, 1 / found.size[code] / count, 0.0)
    best = _best(values, code, spent)
    figures = {"beta": beta, "kl": spent, "reward": law @ finite, "pool": pool @ np.where(pool > 0, values, 0.0)}
    with np.errstate(over="ignore"):
        figures |= {"best": best, "gap": max(best - figures["reward"], 0.0)}
    xp = array_namespace(x)
    return Pick(
        like(index, x, dtype=xp.int64),
        like(mask, x, dtype=xp.bool),
        like((share / np.maximum(pi, 1e-300))[index], x),
        {name: like(np.asarray(value), x) for name, value in figures.items()},
    )


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
    count, sizes = int(groups.max()) + 1, np.bincount(groups)
    possible = np.bincount(groups[reward > -inf], minlength=count)
    for short in np.flatnonzero(possible < keep)[:1]:
        where = f" of prompt {labels[short]!r}" if len(labels) > 1 else ""
        raise InputError(f"cannot keep {keep} of {sizes[short]} completions{where}: {possible[short]} can be kept")

    def spent(log_ratio: Floats) -> float:
        pi = inclusion_probability(log_ratio, keep, groups=groups)
        return _kl(pi / keep, sizes[groups]) / count

    def at(log_beta: float) -> float:
        return spent(_tilted(reward, groups, _exp(log_beta)))

    beta = _falling_root(at, kl, _spread(reward, groups))
    log_ratio = _tilted(reward, groups, beta)
    return log_ratio, beta, spent(log_ratio)


def _spread(reward: Floats, groups: Ints) -> float:
    """Return the largest difference between two rewards of a group."""
    finite = reward > -inf
    top, low = np.full(groups.max() + 1, -inf), np.full(groups.max() + 1, inf)
    np.maximum.at(top, groups[finite], reward[finite])
    np.minimum.at(low, groups[finite], reward[finite])
    with np.errstate(over="ignore"):
        return min(float(np.max(top - low)), _LARGEST)


def _tilted(reward: Floats, groups: Ints, beta: float) -> Floats:
    """Return R / beta, relative to the largest of each group, so that nothing overflows."""
    top = np.full(groups.max() + 1, -inf)
    np.maximum.at(top, groups, reward)
    possible = reward > -inf
    if beta == inf:
        return np.where(possible, 0.0, -inf)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a beta below all floats is 0
        below = np.maximum((reward - top[groups]) / beta, -LIMIT)
    return np.where(possible, np.where(below < 0, below, 0.0), -inf)


def _kl(law: Floats, sizes: Ints) -> float:
    """Return the sum over groups of KL(law ‖ equal shares)."""
    some = law > 0
    return float(np.sum(law[some] * np.log(law[some] * sizes[some])))


def _best(reward: Floats, groups: Ints, kl: float) -> float:
    """Return the largest mean reward of any law with this mean KL: that of exp(R / beta) itself."""
    sizes, count = np.bincount(groups)[groups], groups.max() + 1

    def law(beta: float) -> Floats:
        r = np.exp(_tilted(reward, groups, beta))
        return r / np.bincount(groups, r)[groups]

    beta = _falling_root(lambda log_beta: _kl(law(_exp(log_beta)), sizes) / count, kl, _spread(reward, groups))
    share = law(beta) if beta < inf else 1 / sizes
    return float(np.sum(share / count * np.where(share > 0, reward, 0.0)))


def _falling_root(f: Any, goal: float, scale: float) -> float:
    """Return the beta at which f(log beta), which falls to 0, meets the goal; the least one if f is always below it.

    The least beta is a millionth of the scale: rewards that are nearer to each other cannot be told apart.
    """
    if goal <= 0 or scale == 0:
        return inf
    low, high = log(scale) - log(LIMIT), log(scale) + 20.0  # from the best n alone to all alike
    if f(low) <= goal:
        return _exp(low)
    return _exp(high if f(high) >= goal else brent(lambda log_beta: f(log_beta) - goal, low, high))


def _exp(x: float) -> float:
    """Return exp of a number, or exp(709) if that is less: about the largest float, and still one."""
    return exp(min(x, 709.0))
