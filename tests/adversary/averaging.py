"""Rooms of intervals, joined runs and goals."""

import os
import tempfile
import warnings

import numpy as np

import obrs
from obrs.metrics.curve import GROUPS, Curve
from obrs.profile import GOALS
from obrs.rules import from_json, to_json
from obrs.sampling.samples import Samples

from .making import NO_ARRAYS, NO_SHARES, close, finite, host


def kept_by_chance(make, n, start=0, form=None):
    """Samples as a run may leave them: any weights, any way to stop."""
    x, log_ratio, other = (
        np.nan_to_num(host(make.floats(*shape)), posinf=1e6, neginf=-1e6).clip(-1e6, 1e6)
        for shape in ((n, 2), (n,), (n,))
    )
    x = x.astype(np.float64)
    log_weight = np.maximum(log_ratio, other[0] if n else 0.0) if make.chance(0.7) else other
    proposed = n * make.count(1, 5) + make.count(0, 3)
    ids = start + np.sort(make.rng.choice(max(proposed, 1), n, replace=False))
    fixed = make.one("", "proposals", "pool")
    form = make.arg(form, None) or make.one("array", "tuple", "dict")
    batch = x if form == "array" else (x, np.arange(n)) if form == "tuple" else {"x": x, "label": np.arange(n)}
    return Samples(batch, ids, log_ratio, log_weight, proposed, proposed, next_id=start + proposed, fixed=fixed)


def first(x):
    return x if not isinstance(x, tuple | dict) else x[0] if isinstance(x, tuple) else x["x"]


def averages(make):
    """A mean by hand, and an interval around it."""
    kept = kept_by_chance(make, make.size(30))
    unbiased = make.chance(0.5) and kept.fixed != "" and kept.log_weight.max() < 300  # beyond it, floats end
    confidence = make.one(None, make.confidence())
    wrong = (lambda x: 1.0, lambda x: np.zeros(len(kept) + 1), lambda x: ["a"] * len(kept))
    g = make.arg(make.one(lambda x: first(x), lambda x: first(x)[:, 0], lambda x: first(x)[:, :1] > 0), *wrong)
    found = make.answer(kept.mean, g, confidence, unbiased=unbiased)
    assert 0 <= kept.ess <= len(kept) * (1 + 1e-9)
    assert repr(kept)
    assert kept._repr_html_()
    if found is None:
        return
    value = host(found.value if confidence is not None else found)
    with np.errstate(all="ignore"):
        w = np.exp(kept.log_weight - kept.log_weight.max())
        rows = host(g(kept.x)).reshape(len(kept), -1).astype(np.float64)
        if not unbiased:
            top = max(np.abs(rows).max(), 1e-300)
            assert close(value.reshape(-1) / top, (w[:, None] * (rows / top)).sum(0) / w.sum(), rtol=1e-6)
    assert not np.any(np.isnan(value))
    if confidence is not None:
        assert np.all((host(found.low) <= value) & (value <= host(found.high)))
        assert not np.any(np.isnan(host(found.standard_error)))
        assert str(found)


def confident_rules(make):
    """A rule with confidence keeps at least as much, and is one of the same family."""
    n = make.size(200)
    x, budget, confidence = make.log_ratio(n), make.budget(), make.confidence()
    rule = make.answer(obrs.Budgeted.fit, x := make.array(x), budget, confidence=confidence)
    if rule is not None:
        plain = obrs.Budgeted.fit(x, budget)
        assert rule.log_c == np.inf or rule.log_c >= plain.log_c - 1e-6 * max(1.0, abs(plain.log_c))
        assert 1 <= rule.budget <= budget
        assert from_json(to_json(rule)) == rule
    groups = make.labels(n)
    grouped = make.answer(obrs.Grouped.fit, x, budget, groups, confidence=confidence)
    if grouped is not None:
        plain = obrs.Grouped.fit(x, budget, groups)
        assert all(1 <= k <= most * (1 + 1e-12) for k, most in zip(grouped.budgets, plain.budgets, strict=True))


def normal_intervals(make):
    value = make.arg(float(host(make.floats(1))[0]), *make.one((np.nan,), (np.inf,)))
    error = abs(float(host(make.floats(1))[0]))
    with np.errstate(over="ignore"):
        found = make.answer(obrs.estimate.Estimate.around, value, error, make.confidence())
    if found is not None and np.isfinite(value):
        assert found.low <= found.value <= found.high
        assert str(found)


def left_out(make):
    """Jackknife intervals contain their value and stay in their range."""
    budgets = make.count(1, 3)
    value = make.rng.random(budgets)
    left = np.clip(value + 0.1 * make.one(0.0, 1.0) * make.rng.normal(size=(GROUPS, budgets)), 0, 1)
    curve = Curve.from_groups(value, left, (0.0, 1.0))
    i, j = make.count(0, budgets - 1), make.count(0, budgets - 1)
    found = make.answer(curve.estimate, i, make.confidence())
    assert found is None or 0 <= found.low <= found.high <= 1
    other = make.answer(curve.difference, i, j, make.confidence())
    assert other is None or not np.isnan(host(other.low)).any()


def joined(make):
    """Joined runs have all samples in order, added costs, and the mean of all."""
    form = make.one("array", "tuple", "dict")
    one = kept_by_chance(make, make.arg(make.size(20), 0), form=form)
    start = make.arg(one.next_id, 0, one.next_id - 1)
    two = kept_by_chance(make, make.arg(make.size(20), 0), start, form)
    both = make.answer(lambda: one + two)
    if both is None:
        return
    assert len(both) == len(one) + len(two)
    assert np.array_equal(both.ids, np.concatenate([one.ids, two.ids]))
    assert both.proposed == one.proposed + two.proposed
    assert both.next_id == max(one.next_id, two.next_id)
    third = kept_by_chance(make, 3, both.next_id, form)
    rest = make.answer(lambda: both + third)
    again = make.answer(lambda: one + (two + third)) if rest is not None else None
    if again is not None:
        assert np.array_equal(rest.ids, again.ids)
        assert rest.fixed == again.fixed
    if make.chance(0.2):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kept.npz")
            both.save(path)
            back = Samples.load(path)
            assert np.array_equal(back.ids, both.ids)
            assert np.array_equal(first(back.x), first(both.x), equal_nan=True)
            assert back.fixed == both.fixed
            if make.chance(0.5):  # a file that is cut short, or something else
                with open(path, "rb") as file:
                    content = file.read()
                with open(path, "wb") as file:
                    file.write(make.one(content[: make.count(0, len(content) - 1)], b"", b"text", b"PK\x03\x04"))
                assert make.answer(Samples.load, path) is None


def sampled(make):
    """Exactly n, whatever the limits; or an error with the part that was made."""
    spread = make.one(0.0, 0.5, 2.0)
    labels = make.one(None, lambda x: (x[:, 0] > 0).astype(int), lambda x: np.zeros(len(x), int))
    n, budget = make.count(1, 40), make.arg(make.one(1, 1.5, 3, 10.0), 0.5, "x", None)
    options = {"seed": make.seed(), "start": make.arg(make.one(0, 7, 2**40), -1, 1.5, "s", 2**63)}
    options |= {"batch_size": make.arg(make.one(None, 1, 7, 1000), 0, -1, 1.5, "b"), "progress": False}
    options["max_proposed"] = make.arg(None, 1, 5, 0, "m", p=0.3)
    wrong = (lambda x: x, lambda x: np.full(len(x), np.nan), lambda x: np.full(len(x), -np.inf), lambda x: "a", None)
    log_ratio = make.arg(lambda x: spread * x[:, 0], *wrong)
    propose = make.arg(lambda ids: obrs.normals(ids, 2, seed=3), lambda ids: np.zeros((len(ids) + 1, 2)), None)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "groups with fewer than")  # it says so on purpose
        kept = make.answer(obrs.sample, propose, log_ratio, n, budget=budget, groups=labels, **options)
    if kept is None:
        return
    assert len(kept) == n
    assert np.all(kept.ids >= options["start"])
    assert kept.next_id >= kept.ids.max() + 1
    assert np.array_equal(kept.x, obrs.normals(kept.ids, 2, seed=3))
    assert finite(kept.log_ratio, kept.log_weight)


def smallest_budget(make):
    """The goal is met at K, and not much below it."""
    weights = make.one(None, None, "some")
    x = make.log_ratio(make.size())
    weights = None if weights is None else make.weights(len(x))
    profile = make.answer(obrs.Profile, make.array(x), weights)
    if profile is None:
        return
    key = make.one(*GOALS)
    goal = make.arg(make.one(0.0, 1e-12, 1e-3, 0.05, 0.5, 0.9, 1.0, 3.0), *NO_SHARES, *NO_ARRAYS[:4])
    recall = make.arg(0.9, *NO_SHARES)
    budget = make.answer(profile.budget_for, **{key: goal}, recall=recall)
    if budget is None:
        return
    assert 1 <= budget < np.inf

    def gap(k):
        """By how much the goal is missed."""
        if key == "precision":
            return goal - profile.precision_at(recall, k)
        if key == "ess":
            return goal - profile.ess(k)
        return (profile.truncated(k) if key == "truncated" else profile.divergence(key, k)) - goal

    assert gap(budget) <= 1e-9
    least = max(1.0, 1 / profile.possible)
    if budget > least * (1 + 1e-6):
        assert gap(max(budget * (1 - 1e-7), least)) > -1e-6


INTERVALS = [averages, confident_rules, normal_intervals, left_out]
JOINS = [joined, averages, sampled]
BUDGETS = [smallest_budget]
