"""How much to raise the rate of a fit so that the true rate keeps the budget with a given probability.

Let c° be the constant whose true rate is exactly t = 1/K. Its a = min(c° r, 1) lies in [0, 1] and has mean t. If the
budget is overrun, then the constant in use is below c°. So find a test that refutes "c is c°" and is wrong about c°
with probability d at most, and use a constant above which every c is refuted: it is below c° with probability d at
most. The test is made at the one constant c° only; nothing must hold for all c at once. Which of two tests is used is
decided by n, t and d, before any ratio is seen.

**Few proposals: betting** (Waudby-Smith and Ramdas). A gambler with capital 1 bets again and again that a is above t.
With fixed bets b >= 0, mixed with weights w, the capital W = sum_b w_b prod_i (1 + b (a_i - t)) has mean 1 at c°, so by
Markov it reaches 1/d with probability d at most. More is true: W is linear in each a_i, so (W - h)_+ is convex in each,
so its mean is largest if every a_i is a coin, 0 or 1 (Hoeffding). With coins W is a function of a binomial count, and
its mean beyond the 1 - d quantile, min_h h + E(W - h)_+ / d, is a number that W exceeds with probability d at most,
whatever the distribution of a. It is well below 1/d. W increases in c, so if c is refuted, all above it are. Most is
bet for a variance near the largest, t (1 - t), and a little for much smaller ones.

**Many proposals: their mean**, if the variance v of a is known to lie in an interval. Two bounds on the probability
that the mean is above t + e are used; as it is the same probability, the smaller bound counts:

* Berry and Esseen, in the constants of Shevtsova: e = z sqrt(v/n) fails as often as a normal number is above z, plus a
  gap of order 1/sqrt(n). The gap is bounded by v, because E|a - t|^3 <= v max(t, 1 - t).
* Bentkus, for small v: the sum S satisfies P(S >= s) <= E(S - h)_+^2 / (s - h)^2 for every h < s, and that mean is
  largest if a takes two values only, 1 and t - v/(1 - t): a parabola above (x - h)_+^2 meets it in both.

As t is known, v is the mean of the bounded (a - t)^2, and Hoeffding's inequality gives the interval, for a few of the
permitted failures. To refute all constants above one, start at a rate that is refuted whatever v is, and go down in
steps: within a step each (a - t)^2 lies between its values at the two ends, or 0 if a crosses t.

References:
    | Estimating means of bounded random variables by betting (Waudby-Smith and Ramdas, 2024)
    | Probability inequalities for sums of bounded random variables (Hoeffding, 1963)
    | On Hoeffding's inequalities (Bentkus, 2004)
    | On the absolute constants in the Berry-Esseen inequality (Shevtsova, 2013)
"""

from collections.abc import Callable
from math import log, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from ._inputs import check_confidence
from .budget import Cut
from .errors import BudgetError
from .root import of_rows

__all__ = ["confident_budget"]

Floats = np.ndarray[Any, Any]

_VARIANCE = 0.02  # part of the failures for each end of the interval of the variance
_SMALL = 0.02  # weight of the bets for small variances
_BLOCK = 16  # factors multiplied before a logarithm is taken; each is between 0.1 and 1e16
_COLUMNS = 1 << 12  # blocks at a time: they stay in a core's cache


def confident_budget(log_ratio: Any, budget: float, confidence: float) -> float:
    """Return the budget to solve for, at most `budget`.

    Args:
        log_ratio: Log-ratios of independent proposals, 1-D NumPy.
        budget: The budget to keep.
        confidence: Probability with which to keep it.
    """
    share, failure = 1 / budget, 1 - check_confidence(confidence)
    if share == 1:
        return budget
    x = np.sort(log_ratio).astype(np.float64, copy=False)  # so that the order does not matter, not even to rounding
    excess_of = mean_excess if normal_is_sharp(share, x.size, failure) else betting_excess
    excess = excess_of(x, share, failure)
    if excess is None:
        if np.all(x > -np.inf):
            return 1.0
        raise BudgetError(
            f"budget {budget:g} cannot be kept with confidence {confidence:g} from {x.size} proposals: "
            "too many have r = 0; give more proposals or a larger budget"
        )
    return min(budget, 1 / min(1.0, share + excess))


def _deviation(x: Floats, share: float, excess: float) -> Floats:
    """Return a - share, with a = min(c r, 1) and c solved for the rate `share + excess`, not floored at 1/max r."""
    log_c = float(of_rows(x[None], None, np.array([min(1.0, share + excess)])).log_c[0])
    return np.asarray(np.exp(Cut(log_c, None).log_a(x)) - share)


# --- betting ------------------------------------------------------------------------------------------------


def betting_excess(x: Floats, share: float, failure: float) -> float | None:
    """Return the excess of the rate from which on all constants are refuted; None if not even c = inf is."""
    bets, weights = _bets(share, x.size)
    threshold = capital_threshold(share, x.size, failure)

    def lead(excess: float) -> float:
        """Return by how much the log-capital is above the threshold: nearly linear in the excess."""
        return _log_capital(_deviation(x, share, excess), bets, weights) - threshold

    room = np.count_nonzero(x > -np.inf) / x.size - share
    if room <= 0:
        return None
    high = min(room, 2 * sqrt(share * (1 - share) / x.size))
    while (at_high := lead(high)) < 0:
        if high == room:
            return None
        high = min(room, 2 * high)
    return _just_above_zero(lead, high, at_high)


def _just_above_zero(lead: Callable[[float], float], high: float, at_high: float) -> float:
    """Return a point up to `high` with a lead of 0 to about 0.01, which costs less than 1% of the excess."""
    low, at_low, side = 0.0, lead(0.0), 0
    for _ in range(40):  # regula falsi; an end that stays twice in a row counts half (Illinois)
        if at_high <= 0.01 or at_low >= 0:  # above 0 at both ends: log-ratios too large for floats to tell c apart
            break
        middle = low + (0.005 - at_low) * (high - low) / (at_high - at_low)
        at_middle = lead(middle)
        if at_middle >= 0:
            high, at_high, at_low, side = middle, at_middle, at_low / 2 if side > 0 else at_low, 1
        else:
            low, at_low, at_high, side = middle, at_middle, at_high / 2 if side < 0 else at_high, -1
    return high


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
    """Return the counts that have a chance worth counting, and their chances; all others have less than 1e-30."""
    spread = sqrt(n * p * (1 - p))
    k = np.arange(max(0, int(n * p - 12 * spread - 50)), min(n, int(n * p + 14 * spread + 60)) + 1.0)
    log_mass = np.append(0.0, np.cumsum(np.log((n - k[:-1]) / (k[:-1] + 1)) + log(p / (1 - p))))
    mass = np.exp(log_mass - log_mass.max())
    return k, mass / mass.sum()


# --- the mean -----------------------------------------------------------------------------------------------


def normal_is_sharp(share: float, n: int, failure: float) -> bool:
    """Return whether Berry and Esseen leave enough of the failures, judged by the largest variance of a."""
    return _normal_gap(share, share * (1 - share), n) < 0.3 * failure


def mean_excess(x: Floats, share: float, failure: float) -> float | None:
    """Return the excess of the rate from which on all constants are refuted; None if it is out of reach."""
    excess = bentkus_excess(share, share * (1 - share), x.size, failure * (1 - 2 * _VARIANCE))
    upper = _deviation(x, share, excess)
    for _ in range(5):  # each step goes as far as the variance at its start allows; they settle quickly
        goal = _excess_between(upper, upper, share, failure)
        if goal >= excess:
            break
        reached = max(goal, _excess_between(_deviation(x, share, goal), upper, share, failure))
        excess = min(excess, reached)
        if not 1.005 * goal < reached <= excess:
            break
        upper = _deviation(x, share, excess)
    return excess if share + excess <= np.count_nonzero(x > -np.inf) / x.size else None


def _excess_between(lower: Floats, upper: Floats, share: float, failure: float) -> float:
    """Return the excess that refutes all constants between two, given `a - share` at both."""
    n, bound, for_variance = upper.size, max(share, 1 - share) ** 2, failure * _VARIANCE
    farthest, nearest = np.maximum(-lower, upper), np.maximum(lower, np.minimum(upper, 0.0))
    most, least = (float(np.mean(np.square(y, out=y))) / bound for y in (farthest, nearest))
    high = min(bound * mean_limit(most, n, for_variance), share * (1 - share))
    low = bound * (1 - mean_limit(1 - least, n, for_variance))
    left = failure - 2 * for_variance
    return min(normal_excess(share, low, high, n, left), bentkus_excess(share, high, n, left))


def normal_excess(share: float, low: float, high: float, n: int, failure: float) -> float:
    """Return an e that the mean exceeds with probability `failure` at most, for a variance in `[low, high]`."""
    left = failure - _normal_gap(share, low, n) if low > 0 else 0.0
    return max(0.0, -NormalDist().inv_cdf(left) * sqrt(high / n)) if left > 0 else 1 - share


def _normal_gap(share: float, variance: float, n: int) -> float:
    third = max(share, 1 - share) / sqrt(variance)  # bounds E|a - t|^3 / v^1.5
    return min(0.4690 * third, 0.3322 * (third + 0.429), 0.3031 * (third + 0.646)) / sqrt(n)


def bentkus_excess(share: float, variance: float, n: int, failure: float) -> float:
    """Return an e that the mean exceeds with probability `failure` at most, for a variance of at most `variance`."""
    up, down = 1 - share, variance / (1 - share)
    count, mass = _binomial(n, down / (up + down))
    tail = _from_above(mass)
    beyond = _from_above(tail) - tail  # E(B - h)_+ at h = count
    square = 2 * _from_above(beyond) - beyond  # E(B - h)_+^2
    return float(min(np.min(count + np.sqrt(square / failure)) * (up + down) / n - down, up))


def _from_above(x: Floats) -> Floats:
    """Return the sums of each entry and all after it."""
    return np.cumsum(x[::-1])[::-1]


def mean_limit(mean: float, n: int, failure: float) -> float:
    """Return the largest expectation m in [0, 1] that an average of `mean` allows: `n kl(mean, m) = log(1/failure)`."""
    low, high = min(mean, 1.0), 1.0
    for _ in range(60):  # one number, to the last bit
        middle = (low + high) / 2
        distance = mean * log(mean / middle) if mean > 0 else 0.0
        distance += (1 - mean) * log((1 - mean) / (1 - middle)) if middle < 1 else 0.0
        low, high = (middle, high) if n * distance < log(1 / failure) else (low, middle)
    return high
