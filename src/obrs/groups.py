"""Groups of samples: labels, budgets and shares by label, and the rule `Grouped` with one constant per group.

A label is whatever `np.unique` can sort: an integer, a text, a bool. What is given per group (budgets, shares, counts)
may be a dict by label, or an array in the order of the sorted labels.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite, nan
from typing import Any, NamedTuple

import numpy as np

from ._arrays import as_floats, host_values, host_view
from ._checks import check_budget, check_confidence, check_count, is_number, out_of_reach, round_up
from ._confidence import confident_budget
from .budget import Cut, limit_constant
from .divergences import DIVERGENCES, divergence
from .errors import BudgetError, InputError, InputTypeError
from .root import slack_of, solve_segments, stable_order
from .rules import RULES, known_ratios, never_nan
from .split import left_after, split_budget
from .types import Array

__all__ = ["Group", "Grouped"]

Floats = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]

_KINDS = {kind: number for number, kinds in enumerate(("biuf", "U", "S", "O")) for kind in kinds}


class Groups(NamedTuple):
    """Labels, numbered.

    Attributes:
        labels: The different labels, ascending, as plain Python values.
        code: The number of each sample's label, flat.
        size: How many samples each label has.
    """

    labels: tuple[Any, ...]
    code: Ints
    size: Ints

    def arrange(self, values: Any) -> Floats:
        """Return float64 numbers, one for each sample, group after group."""
        return np.asarray(values.reshape(-1)[stable_order(self.code)], dtype=np.float64)


def any_labels(labels: Any, name: str = "groups") -> Any:
    """Return labels of one kind as a NumPy array, whatever library they come from.

    Example:
        >>> any_labels(["cat", "dog"]), any_labels([3, 1])
        (array(['cat', 'dog'], dtype='<U3'), array([3, 1]))
        >>> any_labels(["cat", 1])
        Traceback (most recent call last):
        obrs.errors.InputTypeError: groups must be labels of one kind, such as integers or text, got int and str
    """
    try:
        values = host_values(labels)
    except Exception as error:  # each library raises its own
        raise InputTypeError(f"{name} must be an array of labels, got {type(labels).__name__}") from error
    if values is None:
        raise InputTypeError(f"{name} must be known when the function is traced; pass them as a NumPy array")
    if values.dtype.kind == "O" or (values.dtype.kind == "U" and isinstance(labels, list | tuple)):
        cells = values if values.dtype.kind == "O" else np.array(labels, dtype=object)
        kinds = {type(label) for label in cells.reshape(-1)}
        is_mixed = len({str if issubclass(kind, str) else kind for kind in kinds}) > 1 or type(None) in kinds
        if is_mixed or any(kind.__hash__ is None for kind in kinds):
            what = "labels of one kind" if is_mixed else "labels that can be sorted"
            found = " and ".join(sorted(kind.__name__ for kind in kinds))
            raise InputTypeError(f"{name} must be {what}, such as integers or text, got {found}")
        if kinds <= {str, np.str_, int, float, bool}:
            values = np.asarray(values.tolist()).reshape(values.shape)
    if values.dtype.kind not in _KINDS:
        raise InputTypeError(f"{name} must be labels such as integers or text, got dtype {values.dtype}")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise InputError(f"{name} must be labels, {np.count_nonzero(np.isnan(values))} of {values.size} are NaN")
    return values


def groups_of(groups: Any, shape: tuple[int, ...]) -> Groups:
    """Number the labels of log-ratios of this shape.

    Example:
        >>> groups_of(["b", "a", "b"], (3,))
        Groups(labels=('a', 'b'), code=array([1, 0, 1]), size=array([1, 2]))
    """
    values = any_labels(groups)
    if tuple(values.shape) != tuple(shape):
        raise InputError(f"groups must have the shape of log_ratio {tuple(shape)}, got {tuple(values.shape)}")
    if values.dtype.kind in "iu" and int(values.max()) - (least := int(values.min())) < values.size:
        code = values.reshape(-1).astype(np.intp) - values.min().astype(np.intp)  # counting beats sorting
        sizes = np.bincount(code)
        present = np.flatnonzero(sizes)
        code = code if len(present) == len(sizes) else (np.cumsum(sizes > 0) - 1)[code]
        return Groups(tuple(least + number for number in present.tolist()), code, sizes[present])
    try:
        known, code = np.unique(values.reshape(-1), return_inverse=True)
    except TypeError as error:
        kind = type(values.reshape(-1)[0]).__name__
        raise InputTypeError(
            f"groups must be labels that can be sorted, such as integers or text, got {kind}"
        ) from error
    code = code.reshape(-1)
    return Groups(tuple(known.tolist()), code, np.bincount(code, minlength=len(known)))


def _group_codes(found: Any, labels: tuple[Any, ...]) -> Ints:
    """Return the number of each label among the sorted ones of a fit, or raise for an unknown label."""
    known = np.empty(len(labels), object)
    known[:] = labels
    known = any_labels(known)
    if not found.size:
        return np.zeros(found.shape, np.intp)
    alike = _KINDS[known.dtype.kind] == _KINDS[found.dtype.kind]
    at = np.minimum(np.searchsorted(known, found), len(known) - 1) if alike else np.zeros(found.shape, np.intp)
    strange = known[at] != found if alike else np.ones(found.shape, bool)
    if np.any(strange):
        stranger = found.reshape(-1)[int(np.argmax(strange.reshape(-1)))].tolist()
        raise InputError(f"group {stranger!r} was not in the fit; fit again with log-ratios of all groups")
    return np.asarray(at)


def _group_budgets(budget: Any, labels: tuple[Any, ...]) -> Floats:
    """Return one budget per group.

    Example:
        >>> _group_budgets(4, ("a", "b")), _group_budgets({"b": 2, "a": 3}, ("a", "b"))
        (array([4., 4.]), array([3., 2.]))
    """
    if is_number(budget):
        return np.full(len(labels), check_budget(budget))
    return np.array([check_budget(k) for k in _per_group(budget, labels, "budget")], dtype=np.float64)


def counts_of(n: Any, labels: tuple[Any, ...]) -> Ints:
    """Return how many are wanted of each group, from a dict or an array; 0 of some, but not of all.

    Example:
        >>> counts_of({"b": 2, "a": 0}, ("a", "b"))
        array([0, 2])
    """
    counts = np.array([check_count(k, "n of a group", least=0) for k in _per_group(n, labels, "n")], dtype=np.int64)
    if not counts.any():
        raise InputError("n must not be 0 for all groups")
    return counts


def _check_total(budget: Any) -> float:
    """Return the one budget that shares need."""
    if isinstance(budget, Mapping):
        raise BudgetError("with shares or split, budget is one number for all groups together, got a dict")
    return check_budget(budget)


def shares_of(shares: Any, labels: tuple[Any, ...]) -> Floats:
    """Return one share per group, divided by their sum: numbers of samples do as well.

    Example:
        >>> shares_of({"a": 1, "b": 3}, ("a", "b"))
        array([0.25, 0.75])
    """
    if isinstance(shares, Mapping):  # of a group that is not there, none can be wanted
        known = set(labels)
        is_zero = {label: is_number(share) and float(share) == 0 for label, share in shares.items()}
        shares = {label: share for label, share in shares.items() if label in known or not is_zero[label]}
    given = _per_group(shares, labels, "shares")
    for share in given:
        if not is_number(share) or not 0 <= float(share) < np.inf:
            raise InputError(f"shares must be finite numbers of at least 0, got {share!r:.60}")
    values = np.array(given, dtype=np.float64)
    if not values.any():
        raise InputError("shares must not all be 0")
    values /= values.max()
    return np.asarray(values / values.sum())


def _per_group(values: Any, labels: tuple[Any, ...], name: str) -> list[Any]:
    """Return the value of each label, from a dict or from an array in their order."""
    if isinstance(values, Mapping):
        for label in values:
            if label not in labels:
                some = ", ".join([*map(repr, labels[:5]), *["…"] * (len(labels) > 5)])
                raise InputError(f"{name} names group {label!r:.60}, which has no proposals; there are {some}")
        for label in labels:
            if label not in values:
                rest = "; give it 0 to keep none of it" if name != "budget" else ""
                raise InputError(f"{name} must name every group, {label!r:.60} is missing{rest}")
        return [values[label] for label in labels]
    what = f"{name} must be a dict by label or an array of {len(labels)} numbers, one per group"
    if isinstance(values, str | bytes) or is_number(values):
        raise InputError(f"{what}, got {values!r:.60}")
    try:
        numbers = host_view(as_floats(values, name))
    except (InputTypeError, InputError) as error:
        raise InputTypeError(f"{what}, got {type(values).__name__}") from error
    if numbers is None or numbers.shape != (len(labels),):
        raise InputError(f"{what}, got shape {None if numbers is None else numbers.shape}")
    return list(numbers.tolist())


def sizes_of(n: int, shares: Floats) -> Ints:
    """Return whole numbers that sum to n, as near to `n * shares` as can be: by largest remainder, first label first.

    Example:
        >>> sizes_of(10, np.array([0.55, 0.25, 0.2]))
        array([6, 2, 2])
    """
    wanted = n * shares
    size = np.floor(wanted * (1 + 1e-12)).astype(np.int64)
    rest = np.where(shares > 0, wanted - size, -1.0)
    size[np.argsort(-rest.round(9), kind="stable")[: max(n - int(size.sum()), 0)]] += 1
    return size


ROUNDING = slack_of(1, weighted=False)


class Reach(NamedTuple):
    """How far budgets can go in each group: the share with r > 0, and M_g (infinite where no r is above 0)."""

    possible: Any
    max_budget: Any

    @classmethod
    def measure(cls, values: Floats, size: Ints) -> "Reach":
        """Measure log-ratios that lie group after group."""
        starts, possible = np.cumsum(size) - size, values > -inf
        top = np.maximum.reduceat(values, starts)
        with np.errstate(all="ignore"):  # a group of r = 0 alone: -inf less -inf
            relative = np.where(possible, np.exp(values - np.repeat(top, size)), 0.0)
            most = size / np.add.reduceat(relative, starts)
        return cls(np.add.reduceat(possible, starts, dtype=np.int64) / size, most)

    def check(self, budgets: Any, labels: tuple[Any, ...]) -> None:
        """Raise if a group cannot keep 1 in its budget."""
        short = self.possible < (1 - ROUNDING) / budgets
        if short.any():
            first = int(np.argmax(short))
            raise out_of_reach(1 / budgets[first], float(self.possible[first]), f" in group {labels[first]!r}")

    def total(self, budget: float, shares: Any, proposed: Any, labels: tuple[Any, ...]) -> float:
        """Return the budget for all groups, at most K*; raise if it is below the smallest feasible one."""
        wanted = shares > 0
        for nothing in np.flatnonzero(wanted & (self.possible == 0))[:1]:
            raise BudgetError(f"no proposal has r > 0 in group {labels[nothing]!r}: its share cannot be kept")
        ratio = shares[wanted] / proposed[wanted]
        needs = ratio / self.possible[wanted]
        if budget < needs.max() * (1 - ROUNDING):
            label = np.flatnonzero(wanted)[int(np.argmax(needs))]
            reason = (
                f"share {shares[label]:.3g} of group {labels[label]!r}, {100 * proposed[label]:.3g} % of the proposals"
            )
            raise BudgetError(
                f"budget {budget:g} cannot be met with these shares ({reason}); "
                f"the smallest feasible budget is {round_up(float(needs.max())):g}"
            )
        return min(budget, float(np.max(ratio * self.max_budget[wanted])))


def _confident_budgets(parts: list[Floats], labels: tuple[Any, ...], budgets: Floats, confidence: float) -> Floats:
    """Return the budgets to solve for, so that those asked for are kept in all groups at once."""
    check_confidence(confidence)
    each = 1 - (1 - float(confidence)) / len(budgets)
    found = []
    for label, part, k in zip(labels, parts, budgets.tolist(), strict=True):
        try:
            found.append(confident_budget(part, k, each))
        except BudgetError as error:
            raise BudgetError(f"group {label!r}: {error}") from error
    return np.array(found)


def _split(
    parts: list[Floats], labels: tuple[Any, ...], shares: Floats, budget: float, goal: str
) -> tuple[Floats, float]:
    """Return budgets split by every other proposal of each group, and what they leave of the others."""
    if goal not in (*DIVERGENCES, "minimax"):
        raise InputError(f"split must be minimax or a divergence, {', '.join(DIVERGENCES)}, got {goal!r}")
    div = None if goal == "minimax" else divergence(goal)
    kept = np.flatnonzero(shares > 0)
    halves = [[parts[i][start::2] for i in kept] for start in (0, 1)]
    for i, *pair in zip(kept, *halves, strict=True):
        if not all(np.any(half > -inf) for half in pair):
            raise BudgetError(f"too few proposals with r > 0 in group {labels[i]!r} to split a budget by")
    budgets = np.full(len(parts), inf)
    budgets[kept] = split_budget(halves[0], shares[kept], budget, div)
    left = left_after(halves[1], budgets[kept], div or DIVERGENCES["kl"])
    return budgets, float(left.max() if div is None else shares[kept] @ left)


class Group(NamedTuple):
    """What a `Grouped` rule does to one group.

    Attributes:
        label: Its label.
        budget: K_g, proposals per kept sample of the group; infinite if none is kept.
        rate: 1/K_g, the share of the group that was accepted in the fit.
        max_budget: M_g = max r / mean r, from which on rejection within the group is exact.
        exact: Whether K_g reached M_g. If it is above, a smaller budget would keep the same distribution.
        share: The group's share of all that is kept.
    """

    label: Any
    budget: float
    rate: float
    max_budget: float
    exact: bool
    share: float


@dataclass(frozen=True)
class Grouped:
    """OBRS with one constant per class, prompt or any other label: by a budget for each, or by shares of what is kept.

    No constant is floored at 1/max r: each group keeps its rate at every budget. Beyond its M_g a group gets no better,
    and `groups` says which have reached theirs.

    Args:
        labels: The labels of the fit, ascending: integers, text, or whatever can be sorted.
        log_c: The constant of each; -inf keeps nothing.
        budgets: Proposals per kept sample of each group, K_g; infinite where nothing is kept.
        max_budgets: M_g = max r / mean r of each group.
        proposed: The share of each group among the proposals of the fit, q_g.
        shares: The share of each group among the kept, p_g, if they were asked for.
        left: The divergence that a `split` budget leaves, by the half of the sample that the split did not see.
        of: Finds the labels in a batch, `of(batch) -> labels`; without it the batch is the labels. It is not saved.

    Example:
        >>> log_ratio, groups = np.log([4.0, 1.0, 2.0, 2.0]), ["cat", "cat", "dog", "dog"]
        >>> rule = Grouped.fit(log_ratio, budget=1.5, groups=groups)
        >>> np.exp(rule(log_ratio, batch=groups)).round(3)
        array([1.   , 0.333, 0.667, 0.667])
        >>> [(group.label, group.max_budget, group.exact) for group in rule.groups]
        [('cat', 1.6, False), ('dog', 1.0, True)]
        >>> rule = Grouped.fit(log_ratio, budget=2, groups=groups, shares={"cat": 3, "dog": 1})
        >>> np.exp(rule(log_ratio, batch=groups)).round(3), rule.budget
        (array([1.  , 0.5 , 0.25, 0.25]), 2.0)
    """

    labels: tuple[Any, ...]
    log_c: tuple[float, ...]
    budgets: tuple[float, ...] | None = field(default=None, kw_only=True)
    max_budgets: tuple[float, ...] | None = field(default=None, kw_only=True)
    proposed: tuple[float, ...] | None = field(default=None, kw_only=True)
    shares: tuple[float, ...] | None = field(default=None, kw_only=True)
    left: float | None = field(default=None, kw_only=True)
    of: Callable[[Any], Any] | None = field(default=None, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("log_c", "budgets", "max_budgets", "proposed", "shares"):
            each = getattr(self, name)
            if name != "log_c" and each is None:
                continue
            numbers = np.asarray(each)
            if numbers.shape != (len(self.labels),) or numbers.dtype.kind not in "iuf" or np.isnan(numbers).any():
                raise InputError(f"a Grouped rule has one number {name} per label")
        try:
            ascending = list(self.labels) == sorted(set(self.labels))
        except TypeError:
            ascending = False
        if not ascending:
            raise InputError(f"the labels of a Grouped rule must be of one kind and ascending, got {self.labels!r:.60}")

    @classmethod
    def fit(
        cls,
        log_ratio: Array,
        budget: float | Mapping[Any, float] | Array,
        groups: Array,
        *,
        shares: Mapping[Any, float] | Array | None = None,
        split: str | None = None,
        confidence: float | None = None,
        of: Callable[[Any], Any] | None = None,
    ) -> "Grouped":
        """Choose one `log_c` per group from log-ratios with labels.

        With shares p_g, group g is kept at K_g = K q_g / p_g, where q_g is its share of the proposals: 1 in K is kept
        of them all, and of that p_g is of group g. No other rule with these shares and this rate comes closer to the
        target, in any f-divergence. The smallest feasible budget is max_g p_g / (q_g Q(r > 0 | g)). The largest that
        buys anything is K* = max_g p_g M_g / q_g, where rejection is exact within every group: above it, K* is used.

        Args:
            log_ratio: Log-ratios of a calibration sample from the model.
            budget: Proposals per kept sample of each group: a number, a dict by label, or an array in the order of the
                sorted labels. With `shares` one number, for all groups together.
            groups: The labels, of the shape of `log_ratio`: integers, text, or whatever `np.unique` sorts.
            shares: The shares of the groups among the kept, as a dict by label or an array in the order of the sorted
                labels. They are divided by their sum, so counts will do. A group of share 0 is never kept. They hold
                for the calibration sample, and for others as well as it tells how often each group is proposed.
            split: For proposals that are made group by group: "kl" or another divergence divides the budget among the
                groups so that its mean over the kept is least, "minimax" so that the largest KL is. The shares are then
                those of the sample by default, and `budgets` says how often each group is to be proposed. Not for rows
                that are there already.
            confidence: With this probability over the calibration sample, given how many proposals it has of each
                group, no group overruns its budget: the true rate of each is at least 1/K_g, of all at once. So each of
                the G groups is solved for a failure of (1 - confidence)/G. Not with `shares`.
            of: Finds the labels in a batch.
        """
        values = known_ratios(log_ratio)
        found = groups_of(groups, values.shape)
        values, labels, size = found.arrange(values), found.labels, found.size
        parts = [] if split is None and confidence is None else np.split(values, np.cumsum(size)[:-1])
        proposed, reach = size / len(values), Reach.measure(values, size)
        left = None
        if split is not None:
            if confidence is not None:
                raise InputError("confidence is for budgets of groups, not for a split: leave out one of them")
            kept = proposed if shares is None else shares_of(shares, labels)
            budgets, left = _split(parts, labels, kept, _check_total(budget), split)
            proposed = np.multiply(kept, budgets, where=kept > 0, out=np.zeros(len(kept)))
            proposed = proposed / proposed.sum()
        elif shares is None:
            budgets, kept = _group_budgets(budget, labels), None
            reach.check(budgets, labels)
            if confidence is not None:
                budgets = _confident_budgets(parts, labels, budgets, confidence)
        elif confidence is not None:
            raise InputError("confidence is for budgets of groups, not for shares: leave out one of them")
        else:
            kept = shares_of(shares, labels)
            total = reach.total(_check_total(budget), kept, proposed, labels)
            with np.errstate(divide="ignore"):
                budgets = np.maximum(total * proposed / kept, 1.0)  # below 1 only by rounding, as the total is feasible
        log_c = limit_constant(solve_segments(values, None, size, size / budgets), inf, 1 / budgets)
        each = {"budgets": budgets, "max_budgets": reach.max_budget, "proposed": proposed, "shares": kept}
        each = {name: None if v is None else tuple(v.tolist()) for name, v in each.items()}
        return cls(labels, tuple(log_c.tolist()), **each, left=left, of=of)

    @property
    def budget(self) -> float | None:
        """Proposals per kept sample, of all groups together; with shares K, or K* if that is less."""
        if self.budgets is None or self.proposed is None:
            return None
        return float(1 / np.sum(np.divide(self.proposed, self.budgets)))

    @property
    def groups(self) -> tuple[Group, ...]:
        """What the rule does to each group, and where rejection is exact already."""
        if self.budgets is None or self.max_budgets is None or self.proposed is None:
            return ()
        kept = np.divide(self.proposed, self.budgets)
        kept = kept / kept.sum() if self.shares is None else np.asarray(self.shares)
        rows = zip(self.labels, self.budgets, self.max_budgets, kept.tolist(), strict=True)
        return tuple(
            Group(label, k, 1 / k, most, isfinite(k) and k >= most * (1 - ROUNDING), share)
            for label, k, most, share in rows
        )

    @property
    def exact(self) -> bool:
        """Whether rejection is exact within every group that is kept: a larger budget would buy nothing."""
        return bool(self.groups) and all(group.exact for group in self.groups if group.rate > 0)

    def __call__(self, log_ratio: Array, batch: Any = None) -> Array:
        """Return `log min(c r, 1)` with the constant of each sample's group."""
        x = as_floats(log_ratio, "log_ratio")
        return never_nan(self._cut(x, batch).log_a(x))

    def log_weight(self, log_ratio: Array, batch: Any = None) -> Array:
        """Return `max(log r, -log c)` with the constant of each sample's group; +inf where nothing is ever kept."""
        x = as_floats(log_ratio, "log_ratio")
        return self._cut(x, batch).log_weight(x)

    def _cut(self, x: Array, batch: Any) -> Cut:
        """Return the cut with the constant of each sample's group."""
        if batch is None:
            raise InputError("a Grouped rule needs the batch, to find the group of each sample")
        if self.of is None and isinstance(batch, dict | tuple):
            remedy = "give sample groups=lambda batch: …, or Grouped.fit of=lambda batch: …"
            raise InputError(f"a Grouped rule must know where a batch has its labels; {remedy}")
        found = any_labels(batch if self.of is None else self.of(batch), "the labels of a batch")
        if tuple(found.shape) != tuple(x.shape):
            raise InputError(f"a batch of {tuple(x.shape)} log-ratios has labels of shape {tuple(found.shape)}")
        return Cut(np.asarray(self.log_c)[_group_codes(found, self.labels)], nan)


RULES["grouped"] = Grouped
