"""How much to raise the rate of a fit so that the true rate keeps the budget with a given probability.

Let c° be the constant whose true rate is exactly t = 1/K. Its a = min(c° r, 1) lies in [0, 1] and has mean t. If the
budget is overrun, then the constant in use is below c°. So find a test that refutes "c is c°" and is wrong about c°
with probability d at most, and use a constant above which every c is refuted: it is below c° with probability d at
most. The test is made at the one constant c° only; nothing must hold for all c at once.

The test is a bet (Waudby-Smith and Ramdas). A gambler with capital 1 bets again and again that a is above t. With fixed
bets b >= 0, mixed with weights w, the capital W = sum_b w_b prod_i (1 + b (a_i - t)) has mean 1 at c°, so by Markov it
reaches 1/d with probability d at most. More is true: W is linear in each a_i, so (W - h)_+ is convex in each, so its
mean is largest if every a_i is a coin, 0 or 1 (Hoeffding). With coins W is a function of a binomial count, and its mean
beyond the 1 - d quantile, min_h h + E(W - h)_+ / d, is a number that W exceeds with probability d at most, whatever the
distribution of a. It is well below 1/d. W increases in c, so if c is refuted, all above it are. Most is bet for a
variance near the largest, t (1 - t), and a little for much smaller ones.

References:
    | Estimating means of bounded random variables by betting (Waudby-Smith and Ramdas, 2024)
    | Probability inequalities for sums of bounded random variables (Hoeffding, 1963)
"""

from math import log, sqrt
from typing import Any

import numpy as np

from ._checks import check_confidence
from .errors import BudgetError
from .root import brent, solve_pool

Floats = np.ndarray[Any, Any]

_SMALL = 0.02  # weight of the bets for small variances
_BLOCK = 16  # factors multiplied before a logarithm is taken; each is between 0.1 and 1e16
_COLUMNS = 1 << 12  # blocks at a time: they stay in a core's cache


def confident_budget(log_ratio: Any, budget: float, confidence: float) -> float:
    """Return the budget to solve for, at most `budget`, so that with this probability `budget` is not overrun.

    Args:
        log_ratio: Log-ratios of independent proposals, 1-D NumPy.
        budget: The budget to keep.
        confidence: Probability with which to keep it.
    """
    share, failure = 1 / budget, 1 - check_confidence(confidence)
    if share == 1:
        return budget
    x = np.sort(log_ratio).astype(np.float64, copy=False)  # so that the order does not matter, not even to rounding
    excess = _excess(x, share, failure)
    if excess is None:
        if np.all(x > -np.inf):
            return 1.0
        raise BudgetError(
            f"budget {budget:g} cannot be kept with confidence {confidence:g} from {x.size} proposals: "
            "too many have r = 0; give more proposals or a larger budget"
        )
    return min(budget, 1 / min(1.0, share + excess))


def _excess(x: Floats, share: float, failure: float) -> float | None:
    """Return the least excess of the rate whose constant is refuted, or None if even c = inf is not."""
    bets, weights = _bets(share, x.size)
    threshold = capital_threshold(share, x.size, failure)

    def lead(excess: float) -> float:
        """Return by how much the log-capital is above the threshold: nearly linear in the excess."""
        log_c = solve_pool(x, None, min(1.0, share + excess) * x.size)
        return _log_capital(np.exp(np.minimum(x + log_c, 0.0)) - share, bets, weights) - threshold

    room = np.count_nonzero(x > -np.inf) / x.size - share
    high = min(room, 2 * sqrt(share * (1 - share) / x.size))
    while room > 0 and lead(high) < 0 and high < room:
        high = min(room, 2 * high)
    if room <= 0 or lead(high) < 0:
        return None
    near = 1e-3 * high  # a thousandth more costs nothing, and is on the safe side
    return high if lead(0.0) >= 0 else min(brent(lead, 0.0, high, tolerance=near) + near, high)


def capital_threshold(share: float, n: int, failure: float) -> float:
    """Return the log of a capital that is reached with probability `failure` at most."""
    bets, weights = _bets(share, n)
    count, mass = _binomial(n, share)
    tail = np.cumsum(mass[::-1])[::-1]
    at = max(0, int(np.count_nonzero(tail >= failure)) - 1)  # the quantile
    count, mass, last_count = count[: at + 1, None], mass[: at + 1], float(count[at])
    wins, losses = np.log1p(bets * (1 - share)), np.log1p(-bets * share)
    capital = np.exp(count * wins + (n - count) * losses) @ weights
    beyond = sum(
        weight * _chance_above(n, share * (1 + bet * (1 - share)), last_count)
        for bet, weight in zip(bets, weights, strict=True)
    )
    last = float(capital[-1])
    mean_beyond = last + (beyond - last * float(np.sum(tail[at + 1 : at + 2]))) / failure
    return log(min(1 / failure, mean_beyond)) + 1e-9  # it must be exceeded: the mean may be the largest value


def _chance_above(n: int, p: float, limit: float) -> float:
    """Return P(B > limit): weighted by the capital of one bet b, a count is binomial with p = t (1 + b (1 - t)).

    It is summed as it is. As 1 minus the rest it would lose all its digits for small failures.
    """
    count, mass = _binomial(n, p)
    return float(np.sum(mass[count > limit]))


def _bets(share: float, n: int) -> tuple[Floats, Floats]:
    """Return the bets and their weights: one for a variance near the largest, others for less and less."""
    spread = sqrt(n * share * (1 - share))
    largest = min(0.9 / share, 1e15)  # at 1/share one a = 0 would ruin the gambler
    small = 6 / spread * 3.0 ** np.arange(40)
    small = np.minimum(small[: np.count_nonzero(small < largest) + 1], largest)
    weights = np.arange(1, small.size + 1) ** -1.5
    return np.append(min(2 / spread, largest), small), np.append(1 - _SMALL, _SMALL * weights / weights.sum())


def _log_capital(deviation: Floats, bets: Floats, weights: Floats) -> float:
    blocks = np.append(deviation, np.zeros(-deviation.size % _BLOCK)).reshape(_BLOCK, -1)
    logs = np.log(weights)
    for start in range(0, blocks.shape[1], _COLUMNS):
        part = blocks[:, start : start + _COLUMNS]
        logs += [np.sum(np.log(np.prod(1 + bet * part, axis=0))) for bet in bets]
    return float(np.logaddexp.reduce(logs))


def _binomial(n: int, p: float) -> tuple[Floats, Floats]:
    """Return the counts that matter, and their probabilities; all others have less than 1e-30."""
    spread = sqrt(n * p * (1 - p))
    k = np.arange(max(0, int(n * p - 12 * spread - 50)), min(n, int(n * p + 14 * spread + 60)) + 1.0)
    log_mass = np.append(0.0, np.cumsum(np.log((n - k[:-1]) / (k[:-1] + 1)) + log(p / (1 - p))))
    mass = np.exp(log_mass - log_mass.max())
    return k, mass / mass.sum()
