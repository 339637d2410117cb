"""All that can be known about a sampler, read from the distribution of its log-ratio under the model.

alpha(l) = E_Q[min(l r, 1)] is the precision of the model at slope l, beta(l) = alpha(l)/l its recall, the
budget solver is its inverse (alpha(c) = 1/K), and what is left after rejection has the ratio u = r Z/a with
Z = E_Q[a]: constant where a < 1, r Z where a = 1. So each divergence left is one sum over the saturated
proposals and one closed term.
"""

from collections.abc import Iterable
from math import exp, inf, isfinite, isnan, log, nan
from typing import Any, NamedTuple

import numpy as np

from . import bounds
from ._arrays import host_view
from ._checks import (
    as_log_ratio,
    as_sign,
    as_weights,
    check_budget,
    check_count,
    check_ratios,
    is_number,
    out_of_reach,
)
from ._influence import Influence, precision_interval, strata_of, tail_index
from ._prefix import SEPARABLE, Prefix
from ._text import html_table, paragraph, plan_table, text_table
from .budget import Cut
from .divergences import DIVERGENCES, FDivergence, divergence
from .errors import InputError, InputTypeError
from .root import slack_of
from .types import Array

__all__ = ["Curve", "Frontier", "Plan", "Profile"]

_EPS = np.finfo(np.float64).eps
_DIVERGENCES = ("kl", "rkl", "tv", "js", "chi2")
_COLUMNS = ("rate", *_DIVERGENCES, "ess", "precision")
_COARSE = 1e6  # log c beyond it is known to less than 10 digits of c
_UNSEEN = 3.0  # times 1/n: the 95 % upper bound of the mass of what a pilot of n did not show
# What the lower bound of the tail index must exceed for a column to be promised. Behind tv and precision is the mean
# of r, behind kl that of r log r, behind chi2 that of r²; the figures are from repeated pilots.
_LEAST_INDEX = {"tv": 1.15, "precision": 1.25, "kl": 1.25, "rkl": 1.25, "js": 1.25, "chi2": 2.25, "ess": 2.25}
_FEW, _LEAST_INDEX_OF_FEW = 500, 1.4  # for the precision of a small pilot
# Pilots below these sizes that missed a tail cannot be told from those of light ratios.
_LEAST_SIZE = {"kl": 500, "rkl": 500, "js": 500, "chi2": 10_000, "ess": 10_000}
_SATURATED = 30  # different ratios with a = 1; with fewer, the budget is close to the largest ratio of the sample


_quiet = np.errstate(all="ignore")  # sums that leave the range are infinite, and a log of 0 is meant


class Curve(NamedTuple):
    """A precision-recall curve: arrays of slopes `lam = precision / recall`, precision and recall."""

    lam: Any
    precision: Any
    recall: Any


class Frontier(NamedTuple):
    """An information-divergence frontier: how far the part shared by P and Q is from each, in nats.

    `from_model` is D_inf(R||Q) = -log precision, `from_target` is D_inf(R||P) = -log recall.
    """

    lam: Any
    from_model: Any
    from_target: Any


class Profile:
    """The distribution of the log-ratio of samples from the model, sorted once.

    `log_c`, `rate`, `alpha`, `beta`, `ess` and the divergences kl, rkl, tv, chi2, neyman and hellinger then take
    O(log n) per budget, other divergences one pass.

    Args:
        log_ratio: Log-ratios of proposals from the model, any shape; -inf means r = 0.
        weights: Masses of the proposals, as in `solve_log_c`; `plan` takes them as importance weights of a sample.
        normalise: Divide r by its mean, which is kept as `log_mean_ratio`. If not, E_Q[r] < 1 is taken at its word:
            1 - E_Q[r] of the target lies where the model never goes, which caps the recall and adds
            f'(inf) (1 - E_Q[r]) to each divergence. E_Q[r] > 1, which no two distributions have, is divided out.
        sign: +1 or -1 beside each log-ratio, for events with weights of both signs: r is |w|. The effective sample
            size is then that of the net sum, which cancellation makes smaller. Nothing else depends on it.

    Attributes:
        log_mean_ratio: log E_Q[r] as given. Far from 0 the ratio is not calibrated, or misses modes.
        max_budget: M = max r / E_Q[r], beyond which rejection is exact. Of a sample, it is the largest of a sample.
        net: E_Q[sign r] / E_Q[r], what cancellation leaves: 1 - 2f, f the negative share of |w|; 1 without signs.

    Example:
        >>> p = Profile(np.log([0.4, 0.8, 1.2, 1.6]))
        >>> p.max_budget, round(p.divergence("kl"), 4), round(p.divergence("kl", budget=1.4), 4)
        (1.6, 0.1064, 0.0054)
        >>> p.rate(2.0)
        0.625
        >>> Profile(np.log([0.4, 0.8, 1.2, 1.6]), sign=[1, 1, -1, 1]).net
        0.4

    References:
        | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Sec. 3
    """

    @_quiet
    def __init__(
        self,
        log_ratio: Array,
        weights: Array | None = None,
        *,
        normalise: bool = True,
        sign: Array | None = None,
    ) -> None:
        x = as_log_ratio(log_ratio)
        values, masses = host_view(x), None
        if weights is not None:
            masses = host_view(as_weights(weights, x))
        if values is None or (weights is not None and masses is None):
            raise InputTypeError("a profile is taken outside jax.jit: it sorts the log-ratios")
        signs = None if sign is None else as_sign(sign, values).reshape(-1)
        values = values.reshape(-1).astype(np.float64)
        mass = None if masses is None else masses.reshape(-1).astype(np.float64)
        check_ratios(values, mass)
        if mass is not None:
            signs = None if signs is None else signs[mass > 0]
            values, mass = values[mass > 0], mass[mass > 0]
            if not values.size:
                raise InputError("weights must not all be 0")
            mass = mass / mass.max()
            mass /= np.sum(mass)
            signs = None if signs is None else signs[mass > 0]
            values, mass = values[mass > 0], mass[mass > 0]  # some are nothing beside the largest
        possible = values > -inf
        if not np.any(possible if mass is None else mass[possible] > 0):  # or masses too small to be told from 0
            raise out_of_reach(1.0, 0.0)
        self._prefix = Prefix(values, mass)
        self._cuts: dict[float, Cut] = {}
        self.log_mean_ratio = self._prefix.log_mean
        self.max_budget = float(np.exp(self._prefix.value[-1]))
        self.size = int(values.size)
        self.normalised = normalise or self.log_mean_ratio > 0
        self._offset = 0.0 if self.normalised else self.log_mean_ratio  # what to add to speak of r itself
        self._mean = float(np.exp(self._offset))
        rounding = 8 * _EPS * self.size**0.5
        self._missing = 1 - self._mean if 1 - self._mean > rounding else 0.0
        self.net, self._net_error = (1.0, 0.0) if signs is None else _net(signs, values, mass)

    @property
    def possible(self) -> float:
        """Share of the proposals with r > 0; budgets below 1 over it cannot be met."""
        return float(self._prefix.mass_above[0])

    @property
    def sorted_log_ratio(self) -> tuple[Any, Any]:
        """The log-ratios with r > 0 as given, ascending, and their masses."""
        return self._prefix.value + self.log_mean_ratio, self._prefix.mass

    @_quiet
    def alpha(self, lam: Array) -> Any:
        """Return the precision E_Q[min(lam r, 1)] at each slope `lam` in [0, inf]."""
        log_lam, above, below = self._at_slope(lam)
        inner = np.where(np.isneginf(below), 0.0, np.exp(below + log_lam))
        return _plain(above + inner)

    @_quiet
    def beta(self, lam: Array) -> Any:
        """Return the recall E_P[min(1, 1/(lam r))] = alpha(lam)/lam at each slope."""
        log_lam, above, below = self._at_slope(lam)
        outer = np.where(above > 0, above * np.exp(-log_lam), 0.0)
        return _plain((outer + np.exp(below)) * self._mean)

    def curve(self, budget: float = 1.0, points: int = 257) -> Curve:
        """Return the precision-recall curve after rejection with this budget; 1 is the model itself.

        For every recall the precision is K times that of the model, at most 1 (K = M if the budget is larger).
        """
        lam, rate = _slopes(points), self.rate(budget)
        precision = np.minimum(self.alpha(lam * rate) / rate, 1.0)
        with np.errstate(divide="ignore"):
            recall = np.minimum(self.beta(lam * rate), 1 / lam)
        return Curve(lam, precision, recall)

    def frontier(self, budget: float = 1.0, points: int = 257) -> Frontier:
        """Return the information-divergence frontier of order infinity after rejection with this budget.

        Rejection moves it towards the target by log K, until it touches.
        """
        lam, precision, recall = self.curve(budget, points)
        with np.errstate(divide="ignore"):
            return Frontier(lam, -np.log(precision), -np.log(recall))

    def log_c(self, budget: float) -> float:
        """Return log c for r as given, the same as `solve_log_c`; at budget 1, the model itself, +inf."""
        return float(self.cut(budget).log_c)

    def cut(self, budget: float) -> Cut:
        """Return log c and the log of the rate, for r as given; it also tells a, the weight and what is left.

        Example:
            >>> float(np.exp(Profile(np.log([4.0, 1.0, 0.5, 0.5])).cut(2).log_a(np.log(1.0))).round(3))
            0.5
        """
        cut = self._cut(budget)
        return Cut(cut.log_c - self.log_mean_ratio, cut.log_rate)

    def rate(self, budget: float) -> float:
        """Return the share that is kept: 1/budget, or 1/M if the budget is beyond M."""
        log_rate = self._cut(budget).log_rate
        return 1 / float(budget) if log_rate == log(1 / float(budget)) else exp(log_rate)

    @_quiet
    def ess(self, budget: float = 1.0) -> float:
        """Return the effective sample size per kept sample, E_Q[r]² / (Z E_Q[r²/a]), in (0, 1].

        With signs the numerator is the square of the net mean, E_Q[sign r]²: no budget lifts it above `net`².
        """
        return self.net**2 / (1 + self._spread(budget))

    @_quiet
    def truncated(self, budget: float = 1.0) -> float:
        """Return the share of the mass in weights above one: E_Q[(r - 1/c)+] / E_Q[r].

        Divided by 1/c, the weights that are left are 1, and above 1 only for what was sure to be kept. This is what
        cutting them off at 1 would lose of the total; event generators call it truncation. It falls with the budget,
        from 1 - min r / E_Q[r] to 0 at M, and 1 minus it is the recall at slope c.

        Example:
            >>> p = Profile(np.log([0.4, 0.8, 1.2, 1.6]))
            >>> round(p.truncated(1.25), 4), p.truncated(1.6)
            (0.2, 0.0)
        """
        cut, prefix = self._cut(budget), self._prefix
        log_c = cut.log_c
        if float(budget) >= self.max_budget:
            return 0.0
        if log_c == inf and not prefix.impossible:  # the smallest c that keeps all of them
            log_c = -float(prefix.value[0])
        position = int(prefix.position(-log_c))
        excess = prefix.sum_above("r", position) - prefix.mass_above[position] * np.exp(-log_c)
        return min(max(float(excess), 0.0), 1.0)

    @_quiet
    def divergence(self, key_or_record: str | FDivergence, budget: float = 1.0) -> float:
        """Return D_f(P||kept), the divergence that is left after rejection; at budget 1, that of the model."""
        div, cut, prefix = divergence(key_or_record), self._cut(budget), self._prefix
        position, rate, log_z = self._position(cut), self.rate(budget), cut.log_rate + self._offset
        saturated = nan
        if div is DIVERGENCES.get(div.name) and div.name in SEPARABLE:
            saturated = SEPARABLE[div.name](prefix, position, log_z)
        if isnan(saturated):  # or running sums are beyond the range of floats
            saturated = float(np.sum(prefix.mass[position:] * div.f(prefix.value[position:] + log_z)))
        left = saturated / rate
        if position and (free := self._free(cut, position)) > 0:
            left += float(free / rate * div.f(log_z - cut.log_c))
        elif prefix.impossible and cut.log_c == inf:
            left += prefix.impossible * float(div.f(-inf))
        if self._missing:
            left += self._missing * float(div.critic(inf))
        return max(float(left), 0.0)  # below 0 only by rounding

    @_quiet
    def bound(self, key_or_record: str | FDivergence, budget: float) -> float:
        """Return an upper bound on the divergence left: `bounds.general_bound`, for kl also `bounds.kl_bound`."""
        if not self.normalised:
            raise InputError("bounds are between probability measures; use Profile(..., normalise=True)")
        div, k = divergence(key_or_record), check_budget(budget)
        self._cut(k)  # the budget must be one that can be met
        bound = bounds.general_bound(self.divergence(div), k, self.max_budget)
        if div is DIVERGENCES["kl"] and not self._prefix.impossible:
            bound = min(bound, bounds.kl_bound(self._prefix.value, self._prefix.mass, k))
        return bound

    @_quiet
    def precision_at(self, recall: float, budget: float = 1.0) -> float:
        """Return the precision after rejection at a recall in (0, E_Q[r]]."""
        return min(self._slope_at(recall) * recall / self._mean / self.rate(budget), 1.0)

    @_quiet
    def plan(self, budgets: Iterable[float], *, n: int | None = None, recall: float = 0.9) -> "Plan":
        """Return one row per budget: what is kept, what is left, and how sure that is.

        Each column (rate, kl, rkl, tv, js, chi2, ess, precision at `recall`) comes with a 95 % interval, as
        `…_low` and `…_high`. They allow for what a pilot of n cannot rule out, a Q-mass of 3/n at the largest ratio
        it has seen, or as far beyond as its tail suggests. If more lies out there, nothing is promised.

        `unreliable` names the columns whose interval should not be believed: the tail of r is too heavy for the
        moments behind it (Hill's index), or the budget is close to the largest ratio of the sample. How often
        the others held the truth in repeated pilots, and where less often than in 90 %, is in the guide.

        Args:
            budgets: Budgets K.
            n: Samples wanted; gives the column `proposals`.
            recall: Where to read the precision.

        Example:
            >>> rows = Profile(np.random.default_rng(0).normal(size=10_000) / 2).plan([1, 2], n=100)
            >>> round(rows[1]["kl"], 3), rows[1]["proposals"], rows[1]["unreliable"]
            (0.005, 200.0, '')
        """
        number = None if n is None else check_count(n, "n")
        if isinstance(budgets, str | bytes) or not isinstance(budgets, Iterable):
            raise InputTypeError(f"budgets must be a list of budgets, got {budgets!r:.60}")
        pilot = _Pilot(self, recall)
        plan = Plan(pilot.row(check_budget(k), number) for k in budgets)
        plan.room = bounds.room(self.divergence("kl"), [row["budget"] for row in plan])
        return plan

    @property
    def _facts(self) -> str:
        return (
            f"{self.size:,} log-ratios, M = {self.max_budget:.4g}, log E[r] = {round(self.log_mean_ratio, 3) + 0.0:.4g}"
        )

    def _usual(self) -> list[float]:
        """Return the usual budgets that can be met."""
        return [k for k in (1.0, 1.5, 2.0, 4.0, 8.0) if k == 1 or k * self.possible >= 1]

    def __repr__(self) -> str:
        return f"Profile({self._facts})"

    def __str__(self) -> str:
        """Return how many scores, M, the mean ratio, and the KL that the usual budgets leave, in two lines."""
        left = ", ".join(f"{self.divergence('kl', k):.4g} at K = {k:g}" for k in self._usual())
        return f"{self!r}\nKL left: {left}"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: how many scores, M, the mean ratio, and a plan of the usual budgets."""
        plan = self.plan(self._usual(), recall=0.9 * min(self._mean, 1.0))
        return f"{paragraph(self._facts, strong='Profile')}\n{plan._repr_html_()}"

    def _left(self, budget: float, keys: Iterable[str] = (*_DIVERGENCES, "spread")) -> dict[str, float]:
        """Return divergences, and the spread of the weights that are left; a budget that is out of reach rises."""
        budget = budget if budget == 1 else max(budget, 1 / self.possible)
        return {key: self._spread(budget) if key == "spread" else self.divergence(key, budget) for key in keys}

    def _spread(self, budget: float) -> float:
        """Return the variance over the squared mean of the weights that are left, Z E[r²/a]/E[r]² - 1."""
        cut, prefix = self._cut(budget), self._prefix
        position = self._position(cut)
        free = np.exp(prefix.log_sum_below[position] - cut.log_c) if position else 0.0
        return max(float(self.rate(budget) * (prefix.sum_above("r²", position) + free)) - 1, 0.0)

    def _cut(self, budget: float) -> Cut:
        """Return the cut of r over its mean."""
        k = check_budget(budget)
        if k not in self._cuts:
            self._cuts[k] = self._solve(1 / k)
        return self._cuts[k]

    def _solve(self, share: float) -> Cut:
        prefix = self._prefix
        if share == 1:  # no rejection: also what has r = 0 is kept
            return Cut(inf, 0.0)
        reached = float(prefix.mass_above[0])
        if reached < share * (1 - slack_of(len(prefix.value), not prefix.even)):
            raise out_of_reach(share, reached)
        exact = -float(prefix.value[-1])  # c = 1/max r, whose rate is the mean of r over its largest
        log_c = prefix.log_c(share)
        return Cut(log_c, log(share)) if log_c > exact else Cut(exact, exact)

    def _free(self, cut: Cut, position: int) -> float:
        """Return the sum of w c r over the proposals before a position."""
        prefix = self._prefix
        if abs(cut.log_c) < _COARSE:
            return float(np.exp(cut.log_c + prefix.log_sum_below[position]))
        return max(exp(cut.log_rate) - float(prefix.mass_above[position]), 0.0)

    def _position(self, cut: Cut) -> int:
        """Return how many proposals are free: those before it have a = c r, those from it on a = 1."""
        position = int(self._prefix.position(-cut.log_c))
        if _COARSE <= abs(cut.log_c) < inf:  # c has no digits left to tell: those kept for sure have no more than Z
            position = max(position, int(np.searchsorted(-self._prefix.mass_above, -exp(cut.log_rate) * (1 + 1e-12))))
        return position

    def _at_slope(self, lam: Any) -> tuple[Any, Any, Any]:
        try:
            slope = np.asarray(lam, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputTypeError(f"lam must be a number or an array of numbers, got {lam!r:.60}") from error
        if not np.all(slope >= 0):
            raise InputError("lam must be at least 0, a slope precision/recall")
        log_lam = _log(slope) + self._offset
        position = self._prefix.position(-log_lam)
        return log_lam, self._prefix.mass_above[position], self._prefix.log_sum_below[position]

    def _slope_at(self, recall: float) -> float:
        """Return the largest slope whose recall is `recall`, before rejection and for r over its mean."""
        if not is_number(recall) or not 0 < float(recall) <= self._mean * (1 + 8 * _EPS):
            raise InputError(f"recall must be above 0 and at most E_Q[r] = {self._mean:.6g}, got {recall!r}")
        prefix, share = self._prefix, float(recall) / self._mean
        at_value = prefix.recall_at  # with the threshold at each value; it rises
        position = min(int(np.searchsorted(at_value, share * (1 - 4 * _EPS))), len(prefix.value) - 1)
        gap = share - float(np.exp(prefix.log_sum_below[position]))
        if gap <= 0:  # a recall of 1, up to rounding: the slope of the largest ratio
            return float(np.exp(-prefix.value[position]))
        return float(prefix.mass_above[position] / gap)


class _Pilot:
    """What a pilot says, and cannot rule out: a Q-mass of 3/n at the largest ratio seen, or in a tail beyond."""

    def __init__(self, profile: Profile, recall: float) -> None:
        slope = profile._slope_at(recall)
        recall /= profile._mean
        self.profile, self.precision, self.strata = profile, slope * recall, strata_of(profile._prefix)
        least = tail_index(profile._prefix)[1]
        # A tail that begins far out, as between Student distributions, shows in the very largest alone.
        outer = min(least, tail_index(profile._prefix, 0.4)[1])
        self.least_index = dict.fromkeys(_LEAST_INDEX, least) | {"chi2": outer, "ess": outer}
        unseen, top = _UNSEEN * float(np.sum(self.strata.square)), float(self.strata.value[-1])
        # In a tail of index h beyond the largest ratio, the mean of r is h/(h - 1) times as large, that of r² h/(h - 2)
        # times its square. Of the heaviest tail that is not ruled out; 0.8 and 2.25 have held in repeated pilots.
        mean = top + (log(least / (least - 0.8)) if 1 < least < inf else 0.0)
        square = top + (log(outer / (outer - 2.25)) / 2 if 2.25 < outer < inf else 0.0)
        samples = [self.strata, *(self.strata.with_atom(x, unseen, _UNSEEN) for x in (top, mean, square))]
        self.base, self.with_top, self.with_mean, self.with_square = (
            Profile(s.value + profile.log_mean_ratio, s.mass, normalise=profile.normalised) for s in samples
        )
        self.unseen = unseen * exp(min(mean, 700.0))  # its mass under the target
        ends = [precision_interval(s, recall, profile.normalised) for s in samples[:2]]
        self.precision_low, self.precision_high = min(low for low, _ in ends), max(high for _, high in ends)

    def row(self, budget: float, n: int | None) -> dict[str, Any]:
        """Return one row of a plan."""
        cut, rate = self.profile._cut(budget), self.profile.rate(budget)
        row: dict[str, Any] = {"budget": budget}
        doubtful = []
        for key, (value, low, high) in self._estimates(budget, cut).items():
            largest = inf if key in ("kl", "rkl", "js", "chi2") else 1.0
            for name, end in ((key, value), (f"{key}_low", min(low, value)), (f"{key}_high", max(high, value))):
                row[name] = min(max(end, 0.0), largest)
            if key != "rate" and (self._heavy(key) or self._at_the_end(key, cut, low, high)):
                doubtful.append(key)
        net, off = abs(self.profile.net), 1.96 * self.profile._net_error
        for name, share in (("ess", net), ("ess_low", max(net - off, 0.0)), ("ess_high", min(net + off, 1.0))):
            row[name] *= share**2
        row["proposals"] = None if n is None else n / rate
        row["unreliable"] = " ".join(doubtful)
        return row

    def _estimates(self, budget: float, cut: Cut) -> dict[str, tuple[float, float, float]]:
        """Return each column and its interval: from the spread of the sample, and what the unseen could change."""
        profile, chi2 = self.profile, divergence("chi2")
        rate = profile.rate(budget)
        influence = Influence(self.strata, cut, profile._offset, profile.normalised)
        errors = {key: influence.on_divergence(divergence(key)) for key in _DIVERGENCES}
        # The effective sample size does not know of E[r]; else the spread of the weights is chi2.
        alone = errors["chi2"] if profile.normalised else Influence(self.strata, cut, 0.0, True).on_divergence(chi2)
        values, base, top = (p._left(budget) for p in (profile, self.base, self.with_top))
        beyond = self.with_mean._left(budget, ("kl", "rkl", "tv", "js"))
        beyond |= self.with_square._left(budget, ("chi2", "spread"))
        found = {"rate": (rate, *influence.on_rate().interval(rate))}
        for key, error in (errors | {"spread": alone}).items():
            changes = [0.0, *(other[key] - base[key] for other in (top, beyond) if isfinite(other[key]))]
            low, high = error.interval(values[key])
            found[key] = values[key], low + min(changes), high + max(changes)
        value, low, high = found["tv"]
        found["tv"] = value, low, max(high, self.unseen)  # all of the unseen may be out of reach
        found["ess"] = _inverse(*found.pop("spread"))
        # The true rate is at least 1/K, also where no ratio of this sample is that large.
        found["precision"] = self.precision / rate, self.precision_low / rate, self.precision_high * budget
        return found

    def _heavy(self, key: str) -> bool:
        """Whether the tail may be too heavy for the column, or the pilot too small to tell."""
        size = self.profile.size
        least = _LEAST_INDEX_OF_FEW if key == "precision" and size < _FEW else _LEAST_INDEX[key]
        return size < _LEAST_SIZE.get(key, 0) or self.least_index[key] <= least

    def _at_the_end(self, key: str, cut: Cut, low: float, high: float) -> bool:
        """Whether the budget comes so close to the largest ratio that the column cannot be told from that of P."""
        if key in ("tv", "precision"):
            return False
        prefix = self.profile._prefix
        above = prefix.value[self.profile._position(cut) :]
        saturated = 1 + np.count_nonzero(np.diff(above))  # different ratios: those of a few atoms tell little of a tail
        perfect = high >= 1 if key == "ess" else low <= 0
        return bool(perfect or cut.log_c == -prefix.value[-1] or saturated < min(_SATURATED, self.profile.size))


def _inverse(spread: float, low: float, high: float) -> tuple[float, float, float]:
    """Return the effective sample size per sample, and its interval, from those of the spread of the weights."""
    return 1 / (1 + spread), 1 / (1 + max(high, 0.0)), 1 / (1 + max(low, 0.0))


class Plan(list[dict[str, Any]]):
    """Rows of `Profile.plan`: a list of flat dicts, ready for a DataFrame, that prints as a table.

    `room` says in a line how much of the KL divergence its budgets remove at most.
    """

    room = ""
    note = "~: do not rely on it. Beyond a mass of 3/n at the largest ratio seen, nothing is promised."

    def _repr_html_(self) -> str:
        """Return the plan as a table for notebooks, each value with its 95 % interval."""
        cells = [[_with_interval(row, key) for key in _COLUMNS] for row in self]
        return html_table(*plan_table(self, _COLUMNS, cells), notes=[self.room, self.note])

    def __str__(self) -> str:
        """Return the plan as aligned text, with its note; `~` marks what is unreliable."""
        cells = []
        for row in self:
            marks = {key: "~" if key in row["unreliable"].split() else "" for key in _COLUMNS}
            cells.append([f"{marks[key]}{row[key]:.4g}" for key in _COLUMNS])
        drawn = text_table(*plan_table(self, _COLUMNS, cells), left=0)
        return "\n".join([drawn, *filter(None, [self.room]), self.note])


def _with_interval(row: dict[str, Any], key: str) -> str:
    """Return a value of a plan with its interval, marked if it is unreliable."""
    mark = "~" if key in row["unreliable"].split() else ""
    low, value, high = (row[name] + 0.0 for name in (f"{key}_low", key, f"{key}_high"))  # never -0
    return f"{mark}{value:.4g}" if low == value == high else f"{mark}{value:.4g} ({low:.3g} to {high:.3g})"


def _net(signs: Any, values: Any, mass: Any) -> tuple[float, float]:
    """Return the net share of the mass and its standard error."""
    log_share = values if mass is None else values + np.log(mass)
    r = np.exp(log_share - log_share.max())
    net = float(np.sum(signs * r) / np.sum(r))
    return net, float(np.sqrt(np.sum((r * (signs - net)) ** 2)) / np.sum(r))


def _log(x: Any) -> Any:
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(x, dtype=np.float64))


def _plain(x: Any) -> Any:
    return float(x) if np.ndim(x) == 0 else x


def _slopes(points: int) -> Any:
    """Return slopes from 0 to inf, evenly spread in angle."""
    if isinstance(points, bool) or not isinstance(points, int | np.integer) or points < 2:
        raise InputError(f"points must be a whole number of at least 2, got {points!r}")
    lam = np.tan(np.linspace(0, np.pi / 2, int(points)))
    lam[-1] = inf
    return lam
