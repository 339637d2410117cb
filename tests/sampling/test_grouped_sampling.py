"""Sampling with groups: a constant for each label, shares, exact numbers, and pilots that are thick enough."""

import warnings
from collections import Counter

import numpy as np
import pytest

import obrs
from obrs import Grouped, normals
from obrs.errors import BudgetError, ExhaustedError, InputError, InputTypeError
from obrs.sampling.averages import Run
from obrs.sampling.rejection import sample, sample_pool, sample_proposals

NAMES = np.array(["cat", "dog", "eel"])


def propose(ids):
    """Cats and dogs are 4 of 10 each, eels 2."""
    return {"x": normals(ids, 1, seed=1)[:, 0], "kind": NAMES[np.minimum(ids % 10 // 4, 2)]}


def log_ratio(batch):
    return batch["x"] - 0.5 - 4.0 * (batch["kind"] == "dog")  # dogs are badly made


def kind(batch):
    return batch["kind"]


def counts(kept):
    return Counter(kept.x["kind"].tolist())


def near(found, expected, sigmas=5):
    return all(abs(found[name] - n) < sigmas * np.sqrt(n) for name, n in expected.items())


def test_with_one_constant_a_class_vanishes_and_with_groups_it_does_not():
    assert counts(sample(propose, log_ratio, 3000, budget=4))["dog"] < 100
    kept = sample(propose, log_ratio, 3000, budget=4, groups=kind)
    assert len(kept) == 3000
    assert near(counts(kept), {"cat": 1200, "dog": 1200, "eel": 600})
    assert isinstance(kept.rule, Grouped)
    assert [group.label for group in kept.rule.groups] == ["cat", "dog", "eel"]
    np.testing.assert_array_equal(kept.x["kind"], propose(kept.ids)["kind"])


@pytest.mark.parametrize("budget", [{"cat": 2, "dog": 4, "eel": 8}, [2, 4, 8], np.array([2.0, 4.0, 8.0])])
@pytest.mark.parametrize("n", [400, 4000])
def test_budgets_of_groups(budget, n):
    kept = sample(propose, log_ratio, n, budget=budget, groups=kind)
    rates = {"cat": 0.4 / 2, "dog": 0.4 / 4, "eel": 0.2 / 8}
    assert len(kept) == n
    assert near(counts(kept), {name: n * rate / sum(rates.values()) for name, rate in rates.items()})


@pytest.mark.parametrize("shares", [{"cat": 1, "dog": 2, "eel": 1}, [0.25, 0.5, 0.25]])
def test_shares_of_what_is_kept(shares):
    kept = sample(propose, log_ratio, 3000, budget=6, groups=kind, shares=shares)
    assert near(counts(kept), {"cat": 750, "dog": 1500, "eel": 750})
    assert abs(kept.proposed - 18_000) < 5 * np.sqrt(18_000 * 6)
    few = sample(propose, log_ratio, 201, budget=20, groups=kind, shares=shares)
    assert counts(few) == {"cat": 50, "dog": 101, "eel": 50}
    assert few.proposed == 4020


def test_small_pools_have_exact_numbers():
    kept = sample(propose, log_ratio, 300, budget=10, groups=kind)
    assert (counts(kept), kept.proposed) == ({"cat": 120, "dog": 120, "eel": 60}, 3000)
    pool = sample_pool(propose, log_ratio, 100, pool=2000, groups=kind, shares={"cat": 1, "dog": 1, "eel": 2})
    assert counts(pool) == {"cat": 25, "dog": 25, "eel": 50}
    assert pool.runs == (Run("pool", 100, 2000),)


def test_weights_undo_the_groups():
    """The average of r-weighted groups is that of one constant: weights count what each group was given."""
    every = propose(np.arange(40_000))
    r = np.exp(log_ratio(every))
    true = np.array([np.average(every["x"], weights=r), np.average(every["kind"] == "eel", weights=r)])

    def g(batch):
        return np.stack([batch["x"], batch["kind"] == "eel"], axis=1)

    fixed = sample_proposals(propose, log_ratio, 40_000, budget=4, groups=kind, shares=[1, 2, 1])
    pool = sample_pool(propose, log_ratio, 2000, pool=8000, groups=kind, shares=[1, 2, 1])
    for kept in (fixed, pool):
        found = kept.mean(g, confidence=0.95)
        assert np.all(np.abs(found.value - true) < 4 * found.standard_error + 4 * found.standard_error.max() / 3)
        assert np.all(np.abs(kept.mean(g, "plain") - true) > 4 * found.standard_error)


def test_the_pilot_grows_until_each_group_has_two_hundred():
    def rare(ids):
        return {"x": normals(ids, 1, seed=1)[:, 0], "kind": np.where(ids % 50 == 0, "eel", "cat")}

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = sample(rare, log_ratio, 5000, budget=4, groups=kind)
    assert kept.rule.proposed[1] == pytest.approx(205 / 10_240)  # ten batches of 1024, the first with so many
    assert near(counts(kept), {"eel": 100})


@pytest.mark.parametrize(
    "call",
    [
        lambda **o: sample(propose, log_ratio, 40, budget=4, groups=kind, **o),
        lambda **o: sample(propose, log_ratio, 2000, budget=4, groups=kind, calibrate=160, **o),
        lambda **o: sample_pool(propose, log_ratio, 40, pool=160, groups=kind, **o),
        lambda **o: sample_proposals(propose, log_ratio, 160, budget=4, groups=kind, **o),
        lambda **o: sample(propose, log_ratio, 30, budget=[4, 4, 4], groups=kind, max_proposed=160, **o),
    ],
)
def test_thin_groups_are_named(call):
    message = r"fewer than 200 proposals .*: 'cat' \(64\), 'dog' \(64\), 'eel' \(32\); 1000 proposals would be enough"
    with pytest.warns(UserWarning, match=message) as caught:
        call()
    assert len(caught) == 1


def test_the_record_says_where_a_smaller_budget_would_do():
    def flat(batch):
        return np.where(batch["kind"] == "eel", 0.1 * batch["x"].clip(-1, 1), log_ratio(batch))

    kept = sample(propose, flat, 3000, budget=4, groups=kind)
    exact = {group.label: group.exact for group in kept.rule.groups}
    assert exact == {"cat": False, "dog": False, "eel": True}
    assert kept.rule.groups[2].max_budget < 1.2


def test_a_run_with_groups_goes_on(tmp_path):
    whole = sample(propose, log_ratio, 3000, budget=4, groups=kind)
    with pytest.raises(ExhaustedError) as caught:
        sample(propose, log_ratio, 3000, budget=4, groups=kind, max_proposed=7000)
    caught.value.partial.save(tmp_path / "head.npz")
    head = obrs.Samples.load(tmp_path / "head.npz")  # the rule has forgotten where the labels are
    options = {"calibrate": head.rule, "groups": kind, "start": head.next_id}
    tail = sample(propose, log_ratio, 3000 - len(head), budget=4, **options)
    np.testing.assert_array_equal((head + tail).ids, whole.ids)


RULE = obrs.Budgeted(-1.0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda o: o(groups=np.arange(3)), InputTypeError, "groups must be a function .* got ndarray"),
        (lambda o: o(groups=None, shares={"cat": 1}), InputError, "shares are of groups: say which"),
        (lambda o: o(groups=None, budget={"cat": 2}), BudgetError, "budget must be one number"),
        (lambda o: o(groups=lambda batch: kind(batch)[1:]), InputError, "groups must have the shape of log_ratio"),
        (lambda o: o(budget={"cat": 2, "dog": 2}), InputError, "budget must name every group, 'eel' is missing"),
        (lambda o: o(budget=[2, 2]), InputError, "an array of 3 numbers, one per group"),
        (lambda o: o(budget={"cat": 0.5, "dog": 2, "eel": 2}), BudgetError, "did you mean budget=2"),
        (lambda o: o(budget="much"), BudgetError, "budget must be one number"),
        (lambda o: o(shares={"cat": 1}), InputError, "shares must name every group, 'dog' is missing"),
        (lambda o: o(shares=[1, -1, 1]), InputError, "shares must be finite numbers of at least 0"),
        (lambda o: o(shares=[0, 0, 1]), BudgetError, "smallest feasible budget is 5"),
        (lambda o: o(shares=[1, 1, 1], budget={"cat": 2}), BudgetError, "one number for all groups together"),
        (lambda o: o(calibrate=RULE), InputError, "groups are for a rule that is still to be fitted"),
    ],
)
def test_bad_input_gets_one_clear_line(call, error, message):
    def options(**given):
        options = {"budget": 2, "groups": kind, **given}
        return sample(propose, log_ratio, 4000, **options)

    with pytest.raises(error, match=message) as caught:
        call(options)
    assert "\n" not in str(caught.value)


def test_a_failing_groups_function_is_named():
    with pytest.raises(KeyError, match="label") as caught:
        sample(propose, log_ratio, 4000, budget=2, groups=lambda batch: batch["label"])
    if hasattr(caught.value, "__notes__"):
        assert "raised by groups" in caught.value.__notes__[0]
