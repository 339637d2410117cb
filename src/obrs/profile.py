"""The profile of a sampler: what each budget buys, from the distribution of its log-ratio under the model.

alpha(l) = E_Q[min(l r, 1)] is the precision of the model at slope l, beta(l) = alpha(l)/l its recall, and the budget
solver is its inverse, alpha(c) = 1/K. What is left after rejection is summed in `_prefix`, how sure it is in
`_influence`.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import exp, inf, log
from typing import Any, NamedTuple

import numpy as np

from . import looks
from ._arrays import as_floats, known_values
from ._checks import as_log_ratio, as_sign, as_weights, check_budget, check_count, check_list, check_ratios, is_number
from ._influence import PLANNED, Pilot
from ._prefix import Prefix
from ._text import html_table, paragraph, text_table
from .choice import check_cap, divergence_left
from .divergences import DIVERGENCES, FDivergence, divergence, divergence_between
from .errors import BudgetError, InputError
from .groups import Grouped, any_labels, groups_of
from .root import brent
from .types import Array

__all__ = ["Curve", "Frontier", "Plan", "Profile"]

Row = dict[str, Any]

GOALS = (*DIVERGENCES, "ess", "truncation", "precision")
"""The goals of `Profile.budget_for`."""
_NOTHING = 1e-300  # beside a weight of 1: without such weights M is a float
_COLUMNS = {key: key for key in ("rate", *PLANNED, "ess", "precision")}


class Curve(NamedTuple):
    """A precision-recall curve: arrays of slopes `lam = precision / recall`, precision and recall."""

    lam: Any
    precision: Any
    recall: Any


class Frontier(NamedTuple):
    """D_inf(R||Q) = -log precision and D_inf(R||P) = -log recall of the part R shared by P and Q, in nats."""

    lam: Any
    from_model: Any
    from_target: Any


class Plan(list[Row]):
    """Rows of `Profile.plan`: a list of dicts, ready for a DataFrame, that prints as a table with `notes` below."""

    def __init__(self, rows: Iterable[Row], notes: Iterable[str] = ()) -> None:
        super().__init__(rows)
        self.notes = [note for note in notes if note]

    def table(self, titles: Mapping[str, str], cell: Callable[[Row, str], str]) -> tuple[list[str], list[list[str]]]:
        """Return header and rows: the budget, the columns of `titles` in this plan, and proposals if n is known."""
        keys = [key for key in titles if self and key in self[0]]
        rows = [[f"{row['budget']:g}", *(cell(row, key) for key in keys)] for row in self]
        if counts := [f"{row['proposals']:,.0f}" for row in self if row["proposals"] is not None]:
            rows = [[*cells, count] for cells, count in zip(rows, counts, strict=True)]
        return ["budget", *(titles[key] for key in keys), *["proposals"] * bool(counts)], rows

    def __str__(self) -> str:
        """Return the plan as aligned text, with its notes; `~` marks what is unreliable."""
        return "\n".join([text_table(*self.table(_COLUMNS, _write), left=0), *self.notes])

    def _repr_html_(self) -> str:
        """Return the plan as a table for notebooks, each value with its 95 % interval."""
        return html_table(*self.table(_COLUMNS, _write_interval), notes=self.notes)


def _write(row: Row, key: str) -> str:
    return f"{'~' if key in row.get('unreliable', '').split() else ''}{row[key]:.4g}"


def _write_interval(row: Row, key: str) -> str:
    low, high = (row.get(f"{key}_{end}", row[key]) for end in ("low", "high"))
    return _write(row, key) if low == high else f"{_write(row, key)} ({low:.3g} to {high:.3g})"


class Profile:
    """The distribution of the log-ratio of samples from the model, sorted once.

    Args:
        log_ratio: Log-ratios of proposals from the model, any shape; -inf means r = 0.
        weights: Masses of the proposals, as in `solve_log_c`; `plan` takes them as importance weights of a sample.
        sign: +1 or -1 beside each log-ratio, for events with weights of both signs: r is |w|. The effective sample
            size is then that of the net sum, which cancellation makes smaller. Nothing else depends on it.
        calibrated: Whether these are log-ratios; False for scores whose scale is unknown, such as those of
            `obrs.ratios.combine`: plans and reports then show rates only.

    Attributes:
        log_ratio: The log-ratios as given, flat, in float64.
        size: How many there are, without those of weight 0.
        possible: Share of the proposals with r > 0; budgets below 1 over it cannot be met.
        log_mean_ratio: log E_Q[r], by which r is divided. Far from 0 the ratio is not calibrated, or misses modes.
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

    def __init__(
        self, log_ratio: Array, weights: Array | None = None, *, sign: Array | None = None, calibrated: bool = True
    ) -> None:
        x = as_log_ratio(log_ratio)
        given, masses = known_values(x, "log_ratio"), as_weights(weights, x, relative=True)
        self._shape, self.log_ratio = given.shape, given.reshape(-1).astype(np.float64)
        values, mass = self.log_ratio, None if masses is None else known_values(masses, "weights").reshape(-1)
        signs = None if sign is None else as_sign(sign, given).reshape(-1)
        check_ratios(values, mass)
        if mass is not None:
            if not mass.any():
                raise InputError("weights must not all be 0")
            some = mass > _NOTHING
            values, mass, signs = values[some], mass[some].astype(np.float64), None if signs is None else signs[some]
        self.calibrated, self._prefix = bool(calibrated), Prefix(values, mass)
        self.size, self.possible = self._prefix.count, self._prefix.possible
        self.log_mean_ratio, self.max_budget = self._prefix.log_mean, self._prefix.max_budget
        self.net, self._net_error = 1.0, 0.0
        if signs is not None:
            r = np.exp(values - values.max()) * (1.0 if mass is None else mass)
            self.net = float(np.sum(signs * r) / np.sum(r))
            self._net_error = float(np.linalg.norm(r * (signs - self.net)) / np.sum(r))

    @property
    def sorted_log_ratio(self) -> tuple[Any, Any]:
        """The given log-ratios with r > 0, in ascending order, and their masses."""
        value, mass = self._prefix.positive
        return value + self.log_mean_ratio, mass

    def alpha(self, lam: Array) -> Any:
        """Return the precision E_Q[min(lam r, 1)] at each slope `lam` in [0, inf]."""
        slope = known_values(as_floats(lam, "lam"), "lam").astype(np.float64)
        if not np.all(slope >= 0):
            raise InputError("lam must be at least 0, a slope precision/recall")
        with np.errstate(divide="ignore"):
            position = np.searchsorted(self._prefix.value, -np.log(slope))  # from there on lam r is at least 1
        below = self._prefix.sum_below[position]
        alpha = np.minimum(self._prefix.mass_above[position], self.possible) + below * np.where(below > 0, slope, 0.0)
        return float(alpha) if alpha.ndim == 0 else alpha

    def beta(self, lam: Array) -> Any:
        """Return the recall E_P[min(1, 1/(lam r))] = alpha(lam)/lam at each slope; at 0 it is 1."""
        alpha, slope = np.asarray(self.alpha(lam)), known_values(lam, "lam")
        beta = np.divide(alpha, slope, where=np.asarray(slope) > 0, out=np.ones(alpha.shape))
        return float(beta) if beta.ndim == 0 else beta

    @np.errstate(divide="ignore")  # at slope 0
    def curve(self, budget: float = 1.0, points: int = 257) -> Curve:
        """Return the precision-recall curve after rejection with this budget; 1 is the model itself.

        For every recall the precision is K times that of the model, at most 1 (K = M if the budget is larger).
        """
        lam, rate = np.tan(np.linspace(0, np.pi / 2, check_count(points, "points", 2))), self.rate(budget)
        lam[-1] = inf
        return Curve(lam, np.minimum(self.alpha(lam * rate) / rate, 1.0), np.minimum(self.beta(lam * rate), 1 / lam))

    @np.errstate(divide="ignore")
    def frontier(self, budget: float = 1.0, points: int = 257) -> Frontier:
        """Return the information-divergence frontier of order infinity after rejection with this budget.

        Rejection moves it towards the target by log K, until it touches.
        """
        lam, precision, recall = self.curve(budget, points)
        return Frontier(lam, -np.log(precision), -np.log(recall))

    def log_c(self, budget: float) -> float:
        """Return log c for r as given, the same as `solve_log_c`; at budget 1, the model itself, +inf."""
        return float(self._prefix.cut(self._prefix.check(budget)).log_c) - self.log_mean_ratio

    def rate(self, budget: float) -> float:
        """Return the share that is kept: 1/budget, or 1/M if the budget is beyond M."""
        return self._prefix.rate(self._prefix.check(budget))

    def ess(self, budget: float = 1.0) -> float:
        """Return the effective sample size per kept sample, E_Q[r]² / (Z E_Q[r²/a]), in (0, 1].

        With signs the numerator is the square of the net mean, E_Q[sign r]²: no budget lifts it above `net`².
        """
        return self.net**2 / (1 + self.divergence("chi2", budget))

    @np.errstate(over="ignore")
    def truncation(self, budget: float = 1.0) -> float:
        """Return the share of the total weight that cutting off at 1/c would lose: E_Q[(r - 1/c)+] / E_Q[r].

        It falls with the budget, from 1 - min r / E_Q[r] to 0 at M; 1 minus it is the recall at slope c.

        Example:
            >>> p = Profile(np.log([0.4, 0.8, 1.2, 1.6]))
            >>> round(p.truncation(1.25), 4), round(p.truncation(1.6), 4)
            (0.2, 0.0)
        """
        cut = self._prefix.cut(self._prefix.check(budget))
        c = np.exp(min(cut.log_c, -self._prefix.value[0]))  # at budget 1 the smallest that keeps all
        return max(1 - float(self.beta(c)), 0.0)

    def divergence(self, key_or_record: str | FDivergence, budget: float = 1.0, *, cap: bool = False) -> float:
        """Return D_f(P||kept), the divergence that is left after rejection; at budget 1, that of the model.

        With `cap` the budget is a hard cap: what is left by the best choice of 1 among exactly K, `obrs.rules.Choice`.
        """
        if cap:
            value, mass, zeros = *self._prefix.positive, self._prefix.mass[: self._prefix.first]
            return divergence_left(divergence(key_or_record), value, mass, float(zeros.sum()), check_cap(budget))
        return self._prefix.divergence_left(divergence(key_or_record), self._prefix.check(budget))

    def bound(self, key_or_record: str | FDivergence, budget: float) -> float:
        """Return an upper bound on the divergence left, for this pair: of samples, the M of the empirical pair.

        In general it is D (1 - (K - 1)/(M - 1)), from a mixture with the target; the paper has (K - 1)/M. For kl it is
        also (1 - b) KL + b log M - log K, from the path p^b q^(1-b), with the b at which M^b = K E_Q[r^b]. The page on
        theory has the proofs.

        References:
            | Optimal Budgeted Rejection Sampling for Generative Models (Verine et al., 2024), Theorem 3.2, corrected
        """
        div, k, prefix = divergence(key_or_record), self._prefix.check(budget), self._prefix
        if k >= (m := self.max_budget):
            return 0.0
        bound = self.divergence(div) * (1 - (k - 1) / (m - 1))
        if div is not DIVERGENCES["kl"] or prefix.first:
            return bound

        def excess(b: float) -> float:  # log M^b / E_Q[r^b] over log K
            return -log(float(prefix.mass @ np.exp(b * (prefix.value - log(m))))) - log(k)

        b = brent(excess, 0.0, 1.0) if excess(0.0) < 0 < excess(1.0) else float(excess(1.0) <= 0)  # ends are rounded
        return min(bound, max((1 - b) * self.divergence(div) + b * log(m) - log(k), 0.0))

    def plan(
        self,
        budgets: Iterable[Any],
        *,
        n: int | None = None,
        groups: Array | None = None,
        shares: Mapping[Any, float] | Array | None = None,
        cap: bool = False,
        recall: float = 0.9,
    ) -> Plan:
        """Return one row per budget: what is kept, what is left, and how sure that is.

        Each column (rate, kl, rkl, tv, js, chi2, ess, precision at `recall`) comes with a 95 % interval, `…_low` and
        `…_high`. It allows for what a pilot of n cannot rule out, a Q-mass of 3/n at the largest ratio it has seen, or
        as far beyond as its tail suggests. `unreliable` names the columns whose interval should not be believed: the
        tail of r is too heavy for the moments behind it, or the budget is close to the largest ratio of the sample. How
        often the others held the truth in repeated pilots is in the guide.

        With groups the rows are those of a `Grouped` rule: no intervals and no precision, but `exact`, whether
        rejection is exact within every group, and `groups`, a `Group` for each. With the exact ratio one constant for
        all is best, and equal rates or shares cost divergence. They buy balance, which a wrong ratio destroys.

        Args:
            budgets: Budgets K; with groups as for `Grouped.fit`, numbers or, without shares, dicts by label.
            n: Samples wanted; gives the column `proposals`.
            groups: A label for each log-ratio, which are without weights and signs then.
            shares: The shares of the groups among the kept, as for `Grouped.fit`. Above K* the row is that of K*.
            cap: The budgets are hard caps, as for `divergence`; without intervals.
            recall: Where to read the precision.

        Example:
            >>> rows = Profile(np.random.default_rng(0).normal(size=10_000) / 2).plan([1, 2], n=100)
            >>> round(rows[1]["kl"], 3), rows[1]["proposals"], rows[1]["unreliable"]
            (0.005, 200.0, '')
            >>> profile, groups = Profile(np.log([2.0, 1.0, 0.6, 0.4])), ["cat", "cat", "dog", "dog"]
            >>> (equal_rates,) = profile.plan([2], groups=groups)
            >>> (real_shares,) = profile.plan([2], groups=groups, shares={"cat": 3, "dog": 1})
            >>> round(equal_rates["kl"], 3), round(real_shares["kl"], 3)
            (0.131, 0.0)
        """
        number, wanted = None if n is None else check_count(n, "n"), check_list(budgets, "budgets")
        if groups is not None or shares is not None:
            if cap:
                raise InputError("a hard cap has no groups; leave out groups and shares, or cap")
            plan = self._plan_groups(wanted, groups, shares)
        elif cap:
            plan = Plan([])
            for k in map(check_cap, wanted):
                left = {key: self.divergence(key, k, cap=True) for key in PLANNED}
                plan.append({"budget": k, "rate": 1 / k, **left, "ess": self.net**2 / (1 + left["chi2"])})
        else:
            pilot = Pilot(self._prefix, recall, self.net, self._net_error)
            note = "~: do not rely on it. Beyond a mass of 3/n at the largest ratio seen, nothing is promised."
            rows = [pilot.row(self._prefix.check(k)) for k in wanted]
            plan = Plan(rows, [removable_kl(self.divergence("kl"), wanted), note])
        for row in plan:
            row["proposals"] = None if number is None else number / row["rate"]
        if self.calibrated:
            return plan
        kept = ("budget", "rate", "rate_low", "rate_high", "proposals")
        note = "scores, not ratios: fit their scale with .calibrate(real, fake) for divergences and weights"
        return Plan(({key: row[key] for key in kept if key in row} for row in plan), [note])

    def _plan_groups(self, budgets: Iterable[Any], groups: Any, shares: Any) -> Plan:
        """Return what one constant per group leaves, also of the target where nothing is kept."""
        if groups is None or not (self._prefix.even and self._net_error == 0):
            raise InputError("shares need groups, and groups log-ratios without weights and signs")
        groups_of(labels := any_labels(groups), self._shape)  # checks the shape
        values, labels = self.log_ratio, labels.reshape(-1)
        log_p, plan = values - self.log_mean_ratio - log(self.size), Plan([])
        for rule in [Grouped.fit(values, budget, labels, shares=shares) for budget in budgets]:
            rate = 1 / float(rule.budget or 1.0)
            log_kept = rule(values, labels) - log(rate * self.size)
            left = {key: max(divergence_between(divergence(key), log_p, log_kept), 0.0) for key in PLANNED}
            row = {"budget": 1 / rate, "rate": rate, **left, "ess": 1 / (1 + left["chi2"])}
            plan.append(row | {"exact": rule.exact, "groups": rule.groups})
            exact = [f"{group.label!r} (M = {group.max_budget:.4g})" for group in rule.groups if group.exact]
            which = "every group" if rule.exact else ", ".join(exact[:5]) + ", …" * (len(exact) > 5)
            plan.notes += [f"budget {rule.budget:.4g}: exact rejection in {which}"] * bool(exact)
        return plan

    def budget_for(
        self,
        *,
        kl: float | None = None,
        rkl: float | None = None,
        gan: float | None = None,
        js: float | None = None,
        tv: float | None = None,
        chi2: float | None = None,
        neyman: float | None = None,
        hellinger: float | None = None,
        ess: float | None = None,
        truncation: float | None = None,
        precision: float | None = None,
        recall: float = 0.9,
    ) -> float:
        """Return the smallest budget K that reaches exactly one goal; a BudgetError says if none does.

        Everything a profile says gets better with the budget, from the model itself at K = 1 to the target at M. Of a
        sample, M is the largest ratio of the sample, and a K close to it says little: `plan([K])` marks such rows.

        Args:
            kl, rkl, gan, js, tv, chi2, neyman, hellinger: At most this divergence left between target and kept samples.
            ess: At least this effective sample size per kept sample, in (0, 1]; of the net sum if there are signs.
            truncation: At most this share of the total weight above 1/c, as `truncation` has it.
            precision: At least this precision at `recall`, as in the plan.
            recall: Where the precision is read.

        Example:
            >>> profile = Profile(np.log([0.4, 0.8, 1.2, 1.6]))
            >>> round(profile.budget_for(kl=0.005), 4), profile.budget_for(kl=0.2)
            (1.4072, 1.0)
            >>> round(profile.budget_for(truncation=0.05), 4)
            1.4737
        """
        goals = {"kl": kl, "rkl": rkl, "gan": gan, "js": js, "tv": tv, "chi2": chi2, "neyman": neyman}
        goals |= {"hellinger": hellinger, "ess": ess, "truncation": truncation, "precision": precision}
        asked = {key: goal for key, goal in goals.items() if goal is not None}
        if len(asked) != 1:
            names = " and ".join(asked) or "none"
            raise InputError(f"budget_for takes exactly one goal, got {names}; choose from {', '.join(GOALS)}")
        ((key, goal),) = asked.items()
        rises, most = key in ("ess", "precision"), inf if key in DIVERGENCES else 1.0
        if not is_number(goal) or not 0 <= float(goal) <= most or (rises and float(goal) == 0):
            ends = "at least 0" if most == inf else "above 0 and at most 1" if rises else "from 0 to 1"
            raise InputError(f"{key} must be a number {ends}, got {goal!r:.60}")
        measures: dict[str, Callable[[float], float]] = {"ess": self.ess, "truncation": self.truncation}
        # The precision is not cut off at 1, so that it rises.
        measures["precision"] = lambda k: self._prefix.precision_at(recall) / self.rate(k)
        measure = measures.get(key, partial(self.divergence, key))

        def shortfall(budget: float) -> float:
            return (measure(budget) - float(goal)) * (-1 if rises else 1)

        least = self._prefix.least_budget  # between 1 and this one no budget can be met
        last = max(least, self.max_budget)
        for budget in (1.0, least, exp(log(least))):  # the search begins at the last one
            if goal == inf or shortfall(budget) <= 0:
                return budget
        if (short := shortfall(last)) > 1e-12:  # less is rounding: rejection is exact there
            best = f"the best is {measure(last):.4g}, at budget {last:.4g}"
            raise BudgetError(f"{key}={float(goal):g} is not reached at any budget: {best}")
        if short >= 0 or shortfall(exp(log(last))) > 0:
            return last
        root = exp(brent(lambda log_k: shortfall(exp(log_k)), log(least), log(last)))
        while shortfall(root) > 0:  # by rounding
            root *= 1 + 1e-15
        return min(root, last)

    def plot(self, budgets: Iterable[float] = (2.0, 4.0)) -> Any:
        """Draw ratios, acceptance, precision and recall, and divergence left, for a few budgets.

        Returns:
            The figure of matplotlib, which a notebook shows.

        Example:
            >>> len(Profile(np.random.default_rng(0).normal(size=1000)).plot([2, 8]).axes)
            4
        """
        shown = [check_budget(k) for k in check_list(budgets, "budgets")]
        figure = looks.figure(10, 7, who="Profile.plot")
        with looks.restyle():
            self._draw(shown, *figure.subplots(2, 2).flatten())
        return figure

    def _draw(self, budgets: list[float], ratios: Any, acceptance: Any, curves: Any, left: Any) -> None:
        model, exact = looks.LOOKS["model"], looks.LOOKS["exact"]
        value, mass = self.sorted_log_ratio
        x = np.linspace(value[0], value[-1], 500)
        first = self._prefix.least_budget * (1 + 1e-9)  # below this too few proposals have r > 0
        last = max(max(budgets, default=2.0) * 1.5, first * 1.01)
        grid = np.geomspace(first, last, 60)
        ratios.hist(value, bins=80, weights=mass, density=True, color=model.colour, alpha=0.3, label="proposals")
        acceptance.plot(x, np.exp(x - value[-1]), color=exact.colour, ls=exact.line, label="exact rejection, r/M")
        _, precision, recall = self.curve()
        curves.plot(recall, precision, color=model.colour, label="model")
        for name, style in (("kl", "-"), ("tv", "--"), ("js", ":")):
            left.plot(grid, [self.divergence(name, k) for k in grid], color="black", ls=style, label=f"{name} left")
        for k, colour in zip(budgets, looks.budget_colours(budgets), strict=True):
            log_c, (_, precision, recall) = self.log_c(k), self.curve(k)
            if log_c < inf:
                ratios.axvline(-log_c, color=colour, label=f"1/c at K = {k:g}")
            keeps = f"K = {k:g}, keeps {100 * self.rate(k):.3g} %"
            acceptance.plot(x, np.exp(np.minimum(x + log_c, 0)), color=colour, label=keeps)
            curves.plot(recall, precision, color=colour, label=f"K = {k:g}")
            left.axvline(k, color=colour, lw=1)
        if self.max_budget <= last:
            left.axvline(self.max_budget, color="0.45", ls="-.", lw=1, label="M of this sample: exact")
        ratios.set(title="proposals: kept for sure beyond 1/c", xlabel="log r", ylabel="density")
        ratios.set_ylim(0, 1.3 * ratios.get_ylim()[1])  # leaves space for the legend
        acceptance.set(title="acceptance min(c r, 1)", xlabel="log r", ylabel="chance of being kept", ylim=(0, 1.03))
        curves.set(title="precision and recall", xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.03))
        left.set(title="divergence left against the budget", xlabel="K, proposals per kept sample", ylim=(0, None))
        for panel in (ratios, acceptance, curves, left):
            panel.legend(fontsize=8)

    def __repr__(self) -> str:
        log_mean = round(self.log_mean_ratio, 3) + 0.0
        return f"Profile({self.size:,} log-ratios, M = {self.max_budget:.4g}, log E[r] = {log_mean:.4g})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the line, and a plan of the usual budgets that can be met."""
        usual = [k for k in (1.0, 1.5, 2.0, 4.0, 8.0) if k == 1 or k >= self._prefix.least_budget]
        return f"{paragraph(repr(self))}\n{self.plan(usual)._repr_html_()}"


def removable_kl(nats: float, budgets: Iterable[float]) -> str:
    """Return a line on how much of an estimated KL(P||Q) budgets can remove, at most log K; "" if there is none.

    Example:
        >>> print(removable_kl(17.2, [2.6]))
        K = 2.6 removes at most 0.96 of an estimated 17 nats: choose what it is spent on
        >>> print(removable_kl(0.3, [2, 4]))
        an estimated 0.3 nats, and K = 2 could remove 0.69
    """
    known = sorted({float(k) for k in budgets if k > 1})
    if not known or not nats > 1e-9:  # less is rounding
        return ""
    total = f"an estimated {nats:.2g} nats" if nats < 100 else f"an estimated {nats:.0f} nats"
    short = [k for k in known if log(k) < nats]
    if not short:
        return f"{total}, and K = {known[0]:.3g} could remove {log(known[0]):.2g}"
    each, most = ", ".join(f"{k:.3g}" for k in short), ", ".join(f"{log(k):.2g}" for k in short)
    return f"K = {each} remove{'s' * (len(short) == 1)} at most {most} of {total}: choose what it is spent on"
