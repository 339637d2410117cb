"""The tables about rollouts, from log-ratios, gradients and rewards: pure functions of arrays.

A pool of rollouts is taken for the truth: its self-normalised average is what a batch of 64 estimates, with all 64 or
with fewer. Errors are those of the gradient, relative to its length, over many batches of the pool.
"""

from typing import Any, NamedTuple

import numpy as np

from obrs import rollout, select
from obrs.language import TRL_MASK, VERL_BAND, VERL_TRUNCATE

__all__ = ["Pool", "advantages", "baseline_table", "gradient_table"]

Floats = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]

_Z = 1.96  # standard errors of an interval of 95 %


class Pool(NamedTuple):
    """All rollouts of one kind; rows are completions.

    Attributes:
        logp_train, logp_rollout: Log-probs, shape `(N, T)`.
        mask: Which of them are tokens of a completion.
        slope: Gradient of each log-prob, shape `(N, d)`.
        prompt: Number of the prompt of each.
    """

    logp_train: Floats
    logp_rollout: Floats
    mask: Floats
    slope: Floats
    prompt: Ints

    @property
    def log_ratio(self) -> Floats:
        """The log-ratio of each completion."""
        gap = np.where(self.mask, self.logp_train - self.logp_rollout, 0.0)
        return np.asarray(np.sum(gap, axis=1, dtype=np.float64))

    def rows(self, at: Ints) -> tuple[Floats, Floats, Floats]:
        """Return both log-probs and the mask of some completions."""
        return self.logp_train[at], self.logp_rollout[at], self.mask[at]


def advantages(reward: Floats, prompt: Ints) -> Floats:
    """Return rewards minus the mean of their prompt.

    Example:
        >>> advantages(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 1]))
        array([-1.,  1.,  0.])
    """
    return np.asarray(reward - (np.bincount(prompt, reward) / np.maximum(np.bincount(prompt), 1))[prompt])


def gradient_table(
    pool: Pool, reward: Floats, *, batch: int, keep: tuple[int, ...], batches: int, seed: int
) -> dict[str, dict[str, Any]]:
    """Return by method how far the gradient of a batch is from that of the pool.

    A size is |advantage| √length. The length of a rollout's own gradient, which nobody knows before its backward pass,
    is there as the best size that there can be.

    Returns:
        What `_errors` says of each method. For those that keep n, `better` is the difference of squared errors to a
        random n, with its interval.
    """
    x, a = pool.log_ratio, advantages(reward, pool.prompt)
    f = pool.slope * a[:, None]
    truth = _average(x, f)
    size, bound = np.abs(a) * np.sqrt(pool.mask.sum(axis=1)), np.linalg.norm(f, axis=1)
    mean = x / np.maximum(pool.mask.sum(axis=1), 1)
    found: dict[str, list[tuple[float, Floats]]] = {}

    def add(method: str, at: Ints, weight: Floats, total: float | None = None) -> None:
        """Keep the estimate of a batch; weights are divided by their sum or by another."""
        total = weight.sum() if total is None else total
        estimate = weight @ f[at] / total if total > 0 else np.zeros_like(truth)
        found.setdefault(method, []).append((np.count_nonzero(weight) / batch, estimate))

    for number in range(batches):
        at = select(np.zeros(len(x)), batch, seed=seed + number, design="systematic")
        r = np.exp(x[at])
        add(f"all {batch}", at, r)
        add("no correction", at, np.ones(batch))
        for n in keep:
            for name, matters in (("", None), (" by size", size), (" by gradient", bound)):
                known = None if matters is None else matters[at]
                pick = rollout(*pool.rows(at), keep=n, size=known, ids=at, seed=seed + number)
                add(f"OBRS {n}{name}", at[pick.index], pick.weight, 1.0)
            for name, score in (("r", r), ("r size", r * size[at])):
                top = np.argsort(-score)[:n]
                add(f"top {n} by {name}", at[top], r[top], r.sum())
            some = select(np.zeros(batch), n, seed=seed + batches + number)
            add(f"random {n}", at[some], r[some])
            add(f"random {n}, unbiased", at[some], r[some] * batch / n, r.sum())
        add(f"truncate at {VERL_TRUNCATE:g}", at, np.minimum(r, VERL_TRUNCATE))
        add(f"drop above {TRL_MASK:g}", at, r * (r <= TRL_MASK))
        low, high = np.log(VERL_BAND)
        add(f"band {VERL_BAND[0]:g} to {VERL_BAND[1]:g}", at, ((mean[at] >= low) & (mean[at] <= high)).astype(float))
    whole = found[f"all {batch}"]
    table = {method: _errors(estimates, truth, whole) for method, estimates in found.items()}
    for n in keep:
        squares = [_squares(found[f"{name} {n}"], truth) / (truth @ truth) for name in ("OBRS", "random")]
        table[f"OBRS {n}"]["better"] = _interval(squares[1] - squares[0])
    return table


def baseline_table(
    pool: Pool, reward: Floats, *, prompts: int, copies: int, keep: int, batches: int, seed: int
) -> dict[str, dict[str, float]]:
    """Return what the gradient of a batch is worth, by the siblings that the advantage of a rollout is computed from.

    A batch has some completions of a few prompts, and `keep` of them are chosen by `obrs.rollout`. Its gradient is
    compared with that of all completions of these prompts.

    Returns:
        For each way: `error`, the root of the mean squared error over that of the true gradients; `length`, that of the
        mean estimate along the true gradient; `variance` around this, as a share of squared gradients; and `scaled`,
        the error of estimates that are divided by `length`.
    """
    true_advantage, count = advantages(reward, pool.prompt), int(pool.prompt.max()) + 1
    goals, found = list[Floats](), dict[str, list[Floats]]()
    for number in range(batches):
        rng = np.random.default_rng([seed, number])
        asked = rng.permutation(count)[:prompts]
        at = np.concatenate([rng.permutation(np.flatnonzero(pool.prompt == one))[:copies] for one in asked])
        everyone = np.flatnonzero(np.isin(pool.prompt, asked))
        goals.append(_average(pool.log_ratio[everyone], pool.slope[everyone] * true_advantage[everyone, None]))
        pick = rollout(*pool.rows(at), keep=keep, ids=at, seed=seed + number)
        some, siblings = at[pick.index], advantages(reward[at], pool.prompt[at])
        ways = {
            "all, no rejection": _average(pool.log_ratio[at], pool.slope[at] * siblings[:, None]),
            "all siblings": (pick.weight * siblings[pick.index]) @ pool.slope[some],
            "kept siblings": (pick.weight * advantages(reward[some], pool.prompt[some])) @ pool.slope[some],
        }
        for way, estimate in ways.items():
            found.setdefault(way, []).append(estimate)
    truth, table = np.array(goals), {}
    for way, made in found.items():
        scale, estimates = np.mean(np.sum(truth**2, axis=1)), np.array(made)
        length = np.mean(np.sum(estimates * truth, axis=1)) / scale
        error, variance = (np.mean(np.sum((estimates - k * truth) ** 2, axis=1)) / scale for k in (1.0, length))
        table[way] = {"error": np.sqrt(error), "length": length, "variance": variance}
        table[way]["scaled"] = np.sqrt(variance) / length
    return table


def _average(log_ratio: Floats, f: Floats) -> Floats:
    """Return the self-normalised average."""
    r = np.exp(log_ratio - log_ratio.max())
    return np.asarray(r @ f / r.sum())


def _squares(estimates: list[tuple[float, Floats]], truth: Floats) -> Floats:
    return np.array([np.sum((estimate - truth) ** 2) for _, estimate in estimates])


def _errors(estimates: list[tuple[float, Floats]], truth: Floats, whole: list[tuple[float, Floats]]) -> dict[str, Any]:
    """Return errors relative to the length of the true gradient.

    `trained` is the mean share of the batch with a backward pass; `error` is the root of the mean squared error, with
    its interval `low` to `high`; `added` that of the difference to the whole batch; `bias` that of the mean; `empty` is
    the share of batches of which nothing is left, which take no step.
    """
    size = float(truth @ truth)
    mean, low, high = _interval(_squares(estimates, truth) / size)
    gap = np.mean([estimate for _, estimate in estimates], axis=0) - truth
    added = [np.sum((one - all_) ** 2) for (_, one), (_, all_) in zip(estimates, whole, strict=True)]
    return {
        "trained": float(np.mean([trained for trained, _ in estimates])),
        "error": float(np.sqrt(mean)),
        "low": float(np.sqrt(max(low, 0.0))),
        "high": float(np.sqrt(high)),
        "added": float(np.sqrt(np.mean(added) / size)),
        "bias": float(np.sqrt(gap @ gap / size)),
        "empty": float(np.mean([trained == 0 for trained, _ in estimates])),
    }


def _interval(values: Floats) -> list[float]:
    """Return mean, low and high of an interval of 95 %."""
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
    return [mean, mean - _Z * error, mean + _Z * error]
