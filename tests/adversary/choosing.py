"""Rooms of groups, shares, selection and signs."""

import numpy as np

import obrs
from obrs.draws import priority_key
from obrs.rules import from_json, to_json
from obrs.selection import DESIGNS

from .making import NO_COUNTS, NO_SHARES, close, host, kept_rate


def as_array(labels):
    return np.asarray(labels.tolist() if hasattr(labels, "tolist") else labels)


def by_label(make, labels, values):
    """What is said per group, as a dict or an array in the order of the sorted labels."""
    known = np.unique(as_array(labels))
    numbers = [values() for _ in known]
    return dict(zip(known.tolist(), numbers, strict=True)) if make.chance(0.5) else np.array(numbers)


def budgets(make, labels):
    """One budget, or one per group."""
    try:
        return by_label(make, labels, make.budget) if make.chance(0.3) else make.budget()
    except (ValueError, TypeError):  # labels or budgets that are none
        return make.budget()


def shares(make, labels):
    wrong = ("equal", 0.5, {"a": 1}, {0: "x"}, [np.nan, 1], [])
    try:
        some = by_label(make, labels, lambda: make.one(0, 1, 1, 2.5, make.rng.random(), 1e300 if make.extreme else 3))
    except (ValueError, TypeError):
        some = [1]
    return make.arg(some, *wrong)


def slack(*arrays):
    """How far a rate may be off: log-ratios that are large have few digits after the point."""
    most = max((float(np.max(np.abs(x[np.isfinite(x)]), initial=1.0)) for x in map(host, arrays)), default=1.0)
    return 16 * most * 2.3e-16


def one_constant_per_group(make):
    x = make.log_ratio(make.size())
    groups = make.labels(len(x))
    budget = budgets(make, groups)
    confidence = make.arg(None, 0.9, 2, "x")
    rule = make.answer(obrs.Grouped.fit, x := make.array(x), budget, groups, confidence=confidence)
    if rule is None:
        return
    assert from_json(to_json(rule)) == rule
    code = as_array(groups)
    log_a, weight = host(rule(x, groups)), host(rule.log_weight(x, groups))
    assert np.all(log_a <= 0)
    assert not np.any(np.isnan(weight))
    for group in rule.groups:
        some = host(x)[code == group.label]
        rate = kept_rate(some, dict(zip(rule.labels, rule.log_c, strict=True))[group.label])
        assert close(rate, group.rate, rtol=slack(some) + 1e-7) or slack(some) > 0.1
        assert group.max_budget >= 1 - 1e-9


def shares_of_what_is_kept(make):
    x = make.log_ratio(make.size())
    groups = make.labels(len(x))
    given, budget = shares(make, groups), make.budget()
    rule = make.answer(obrs.Grouped.fit, x := make.array(x), budget, groups, shares=given)
    n = make.arg(7, *NO_COUNTS)
    plan = make.answer(lambda: obrs.Profile(x).plan([budget, budget], n=n, groups=groups, shares=given))
    if rule is None:
        return
    code, a = as_array(groups), np.exp(host(rule(host(x), groups)))
    kept = np.array([a[code == label].sum() for label in rule.labels])
    if slack(x) < 1e-3:
        assert close(kept / kept.sum(), rule.shares, rtol=1e-6, atol=1e-9)
        assert close(len(a) / kept.sum(), rule.budget, rtol=1e-6)
    if plan is not None:
        assert all(0 <= row["rate"] <= 1 and row["tv"] >= 0 and not np.isnan(row["kl"]) for row in plan)
        assert str(plan)


def solver_by_groups(make):
    x = make.log_ratio(make.size())
    groups = make.arg(np.unique(make.rng.integers(0, 3, len(x)), return_inverse=True)[1], make.labels(len(x)))
    budget = make.budget()
    weights = make.arg(None, make.weights(len(x)), p=0.5)
    log_c = make.answer(obrs.solve_log_c, x := make.array(x), budget, groups=groups, weights=weights)
    if log_c is None:
        return
    assert not np.any(np.isnan(host(log_c)))
    if weights is None and slack(x) < 1e-11 and host(log_c).shape == (groups.max() + 1,):
        for g, (c, k) in enumerate(np.broadcast(host(log_c), budget)):
            some = host(x)[groups == g]
            assert close(kept_rate(some, c), 1 / k, rtol=1e-4 + 1e9 * slack(some))


def wanted(make, n, groups, given):
    """How many to select of the pool, or of each group."""
    few = make.one(1, make.count(1, max(n, 1)), make.count(1, max(n // 3, 1)))
    if groups is None or given is not None or make.chance(0.4):
        return make.arg(few, *NO_COUNTS)
    try:
        return by_label(make, groups, lambda: make.count(0, 2))
    except (ValueError, TypeError):
        return few


def check_probabilities(x, pi, total):
    """Are these min(c r, 1) of one constant, with this sum?"""
    x, pi = host(x), host(pi)
    tight = 1e-9 if np.asarray(x).dtype == np.float64 else 1e-5
    assert np.all((pi >= 0) & (pi <= 1))
    assert np.all(pi[x == -np.inf] == 0)
    assert close(pi.sum(), total, rtol=1e-5, atol=1e-5)
    order = np.argsort(x, kind="stable")
    assert np.all(np.diff(pi[order]) >= -tight)
    free = (pi > 1e-290) & (pi < 1 - 1e-6)
    if free.sum() > 1 and slack(x[free]) < 1e-3:
        log_c = np.log(pi[free]) - x[free]
        assert np.ptp(log_c) < 1e-3


def exactly_n(make):
    x = make.log_ratio(make.size(60))
    design = make.arg(make.one(*DESIGNS), "no", 3, None)
    groups = make.arg(None, p=0) if make.chance(0.5) else make.labels(len(x))
    given = None if groups is None or make.chance(0.6) else shares(make, groups)
    options = {"seed": make.seed(), "design": design, "groups": groups, "shares": given}
    n = wanted(make, len(x), groups, given)
    if make.chance(0.2):
        options["sign"] = make.arg(np.where(make.rng.random(len(x)) < 0.4, -1, 1), np.zeros(len(x)), "s", [1])
    if make.chance(0.5):
        options["ids"] = make.ids(len(x))
    chosen = make.answer(obrs.select, x := make.array(x), n, **options)
    if chosen is None:
        return
    x, chosen = host(x), host(chosen).astype(int)
    assert np.all(np.diff(chosen) > 0)
    assert np.all(x[chosen] > -np.inf)
    pi = host(obrs.inclusion_probability(x, n, groups=groups, shares=given))
    code = np.zeros(len(x), int) if groups is None else np.unique(as_array(groups), return_inverse=True)[1]
    sizes = np.bincount(code[chosen], minlength=code.max() + 1)
    for g in range(code.max() + 1):
        of_group = np.bincount(code, pi)[g]
        check_probabilities(x[code == g], pi[code == g], np.round(of_group))
        assert sizes[g] == np.round(of_group)
    if design != "priority":
        assert np.all(np.isin(np.flatnonzero(pi == 1), chosen))
    if "sign" in options:
        negative = host(options["sign"]) < 0
        for g in range(code.max() + 1):
            some = negative & (code == g)
            number = np.count_nonzero(some[chosen])
            assert np.floor(pi[some].sum() - 1e-6) <= number <= np.ceil(pi[some].sum() + 1e-6)


def smallest_keys(make):
    """Priority: the n smallest keys, in any order of the rows, and nested in n."""
    x = make.log_ratio(make.size(60))
    ids, seed, n = make.ids(len(x)), make.seed(), make.count(1, len(x))
    chosen = make.answer(obrs.select, x := make.array(x), n, design="priority", ids=ids, seed=seed)
    if chosen is None or ids is None:
        return
    x, chosen = host(x), host(chosen).astype(int)
    key = priority_key(x, ids, seed=seed)
    order = np.lexsort((np.asarray(ids).astype(np.int64), key))
    assert np.all(np.sort(key[chosen]) == key[order[:n]])
    more = min(n + 1, int(np.sum(host(x) > -np.inf)))
    assert np.all(np.isin(chosen, host(obrs.select(x, more, design="priority", ids=ids, seed=seed))))
    turn = make.rng.permutation(len(x))
    again = host(obrs.select(x[turn], n, design="priority", ids=np.asarray(ids)[turn], seed=seed)).astype(int)
    assert np.all(np.sort(key[turn[again]]) == np.sort(key[chosen]))


def units_of_cost(make):
    """Priority with costs: never above n, and short of it by less than one candidate."""
    x = make.log_ratio(make.size(60))
    cost = make.arg(make.weights(len(x)), np.full(len(x), np.nan), [1], "c", -np.ones(len(x)), np.zeros(len(x)))
    most = min(float(np.sum(host(cost) * 1e-3)), 1e15) if np.ndim(cost) and np.all(host(cost) >= 0) else 9
    n = make.arg(max(1, int(make.rng.random() * 1e3 * most)), *NO_COUNTS)
    chosen = make.answer(obrs.select, x := make.array(x), n, design="priority", cost=cost, seed=make.seed())
    if chosen is None:
        return
    pi = make.answer(obrs.inclusion_probability, x, n, cost=cost)
    x, chosen, cost = host(x), host(chosen).astype(int), host(cost)
    spent, dearest = cost[chosen].sum(), cost[x > -np.inf].max()
    assert n - dearest * (1 + 1e-9) - 1e-9 * cost.sum() <= spent <= n + 1e-9 * cost.sum()
    if pi is not None:
        assert np.all((host(pi) >= 0) & (host(pi) <= 1))
        assert close((host(pi) * cost).sum(), n, rtol=1e-4, atol=1e-5) or cost.max() > 1e20


def events_of_both_signs(make):
    """Unweighting: exactly n, weights sign max(|w|, 1/c), their sum that of the pool up to 2/c."""
    n = make.size(60)
    w = make.arg(make.scores(n), make.log_ratio(n), np.zeros(n))
    wanted = make.arg(make.count(1, n), *NO_COUNTS)
    kept = make.answer(obrs.unweight, w := make.array(w), wanted, seed=make.seed(), design=make.one(*DESIGNS))
    if kept is None:
        return
    values, index, left = host(w), host(kept.index).astype(int), host(kept.weight)
    assert len(index) == wanted
    assert np.all(np.diff(index) > 0)
    assert np.all(np.sign(left) == np.sign(values[index]))
    assert 0 <= kept.truncated <= 1
    assert not np.any(np.isnan(left))
    assert np.all(np.abs(left) >= kept.max_weight * (1 - 1e-6))


def profile_with_signs(make):
    n = make.size()
    x = make.log_ratio(n)
    sign = make.arg(np.where(make.rng.random(n) < 0.3, -1.0, 1.0), np.zeros(n), [1], "s", np.full(n, np.nan))
    weights = make.arg(None, make.weights(n), p=0.5)
    profile = make.answer(obrs.Profile, x := make.array(x), weights, sign=sign, normalise=make.chance(0.8))
    if profile is None:
        return
    assert -1 - 1e-9 <= profile.net <= 1 + 1e-9
    budget = make.budget()
    rows = make.answer(profile.plan, [budget], n=make.arg(5, *NO_COUNTS), recall=make.arg(0.9, *NO_SHARES))
    for row in rows or ():
        assert not any(isinstance(value, float) and np.isnan(value) for value in row.values())
        assert str(rows)
    share = make.answer(profile.truncated, budget)
    assert share is None or 0 <= share <= 1 + 1e-9
    ess = make.answer(profile.ess, budget)
    assert ess is None or 0 <= ess <= 1 + 1e-9


GROUPS = [one_constant_per_group, solver_by_groups]
SHARED = [shares_of_what_is_kept, exactly_n]
SELECTION = [exactly_n, smallest_keys, units_of_cost]
SIGNS = [events_of_both_signs, profile_with_signs]
