"""Rejection in stages: what is kept, what it costs, what is left, and where it is as exact as OBRS."""

from math import log

import numpy as np
import pytest

from obrs import Budgeted, Grouped, Profile, accept, normals
from obrs.errors import InputError
from obrs.rules import Stages
from paper.early import divergence_left, plan_stages

N = 20_000
Z = normals(range(N), 3, seed=5)
EARLY = 0.7 * Z[:, 0] - 0.245  # log-ratios of mean ratio 1: log-normal
FINAL = EARLY + 0.3 * Z[:, 1] - 0.045
LOOKS = [EARLY, FINAL]


def test_with_the_same_ratio_in_both_stages_it_is_obrs_at_the_product_of_the_budgets():
    stages = Stages.fit(iter([FINAL, FINAL]), iter([1.5, 2.0]))
    np.testing.assert_allclose(stages([FINAL, FINAL]), Budgeted.fit(FINAL, 3.0)(FINAL), atol=1e-10)
    assert stages.rates == pytest.approx((1 / 1.5, 1 / 3))


def test_the_second_constant_is_the_root_of_its_equation():
    """E[min(c r, a1)] = 1/(K1 K2), by bisection of that sum itself."""
    stages = Stages.fit(LOOKS, [1.4, 1.8])
    first = np.exp(stages([EARLY]))
    low, high = 1e-9, 1e9
    for _ in range(200):
        c = (low * high) ** 0.5
        low, high = (c, high) if np.minimum(c * np.exp(FINAL), first).mean() < 1 / (1.4 * 1.8) else (low, c)
    assert stages.log_c[1][0] == pytest.approx(log(c), abs=1e-9)


def test_two_stages_compose_to_the_law_of_obrs_where_the_first_is_not_too_strict():
    """Four values, all by hand: q = 1/4 each, p = (3, .6, .3, .1)/4, a1 = (1, .75, .375, .375)."""
    early, final = np.log([2.0, 1.0, 0.5, 0.5]), np.log([3.0, 0.6, 0.3, 0.1])
    stages = Stages.fit([early, final], [1.6, 1.25])  # E[min(c r, a1)] = .5 at c = 1
    ids = np.arange(200_000)
    which = ids % 4
    goes_on = accept(stages([early[which]]), ids, seed=3)
    kept = accept(stages([early[which], final[which]]), ids, seed=3)
    assert not np.any(kept & ~goes_on)
    share = np.bincount(which[kept], minlength=4) / kept.sum()
    error = np.sqrt(share * (1 - share) / kept.sum())
    obrs = np.minimum(np.exp(final) * 1.0, 1.0)  # OBRS at K = 2: c = 1
    assert np.exp(Budgeted.fit(final, 2.0)(final)) == pytest.approx(obrs)
    assert np.all(np.abs(share - obrs / obrs.sum()) < 4 * error)
    assert goes_on.mean() == pytest.approx(1 / 1.6, abs=4 * (0.24 / len(ids)) ** 0.5)


def test_weights_that_are_left_make_averages_right_even_if_the_early_ratio_is_nonsense():
    """The first stage sees noise alone, and wrongly; the sum of kept weights is still that of all ratios."""
    nonsense = 2 * Z[:, 2]
    looks = [nonsense, FINAL]
    stages = Stages.fit(looks, [1.5, 1.5])
    kept = accept(stages(looks), np.arange(N), seed=1)
    weight = np.where(kept, np.exp(stages.log_weight(looks)), 0.0)
    for g in (np.ones(N), Z[:, 0], Z[:, 1] ** 2):
        terms = weight * g - np.exp(FINAL) * g
        assert abs(terms.mean()) < 4 * terms.std() / np.sqrt(N)


def test_where_a_first_stage_is_lenient_the_weight_is_constant():
    stages = Stages.fit(LOOKS, [1.2, 2.0])
    c, first = np.exp(stages.log_c[1][0]), np.exp(stages([EARLY]))
    lenient = c * np.exp(FINAL) <= first
    assert 0.5 < lenient.mean() < 1
    np.testing.assert_allclose(np.exp(stages.log_weight(LOOKS))[lenient], 1 / c)
    np.testing.assert_allclose(np.exp(stages.log_weight(LOOKS))[~lenient], (np.exp(FINAL) / first)[~lenient])


def test_the_cost_is_what_a_run_pays():
    stages = Stages.fit([Z[:, 2], *LOOKS], [1.1, 1.3, 1.5])
    spent = kept = 0.0
    ids = np.arange(N)
    for share, looks in ((0.3, [Z[:, 2]]), (0.7 - 0.3, [Z[:, 2], EARLY]), (1 - 0.7, [Z[:, 2], EARLY, FINAL])):
        spent += share * len(ids)
        ids = ids[accept(stages([x[ids] for x in looks]), ids, seed=2)]
        kept = len(ids)
    assert spent / kept == pytest.approx(stages.cost([0.3, 0.7]), rel=4 / np.sqrt(kept))


def test_with_groups_every_group_keeps_its_rate_and_one_stage_is_the_grouped_rule():
    groups = np.where(Z[:, 2] > 0.3, "cat", "dog")
    stages = Stages.fit(LOOKS, [1.3, 2.0], groups=groups)
    a = np.exp(stages(LOOKS, groups))
    for label in ("cat", "dog"):
        assert a[groups == label].mean() == pytest.approx(1 / 2.6)
    alone = Stages.fit([FINAL], [2.0], groups=groups)
    np.testing.assert_allclose(alone([FINAL], groups), Grouped.fit(FINAL, 2.0, groups)(FINAL, groups), atol=1e-10)
    inner = [divergence_left(Stages.fit([r], [2.0]), [r]) for r in (FINAL[groups == g] for g in ("cat", "dog"))]
    share = np.mean(groups == "cat")
    assert divergence_left(alone, [FINAL], groups) == pytest.approx(share * inner[0] + (1 - share) * inner[1])


def test_a_plan_spends_what_it_may_and_leaves_no_more_than_the_end_alone():
    for cost in (1.2, 2.0, 4.0):
        stages = plan_stages(LOOKS, 0.7, cost)
        assert stages.cost([0.7]) == pytest.approx(cost)
        assert stages.budgets[0] > 1
        assert divergence_left(stages, LOOKS) < Profile(FINAL).divergence("kl", cost)


def test_slack_rejects_less_early_and_gives_up_no_more_than_it_may():
    best, eased = (plan_stages(LOOKS, 0.7, 2.0, slack=slack) for slack in (0.0, 0.4))
    assert 1 < eased.budgets[0] < best.budgets[0]
    assert eased.cost([0.7]) == pytest.approx(2.0)
    alone = divergence_left(Stages.fit([FINAL], [2.0]), [FINAL])
    assert 0.6 <= (alone - divergence_left(eased, LOOKS)) / (alone - divergence_left(best, LOOKS)) < 1
    with pytest.raises(InputError, match=r"a slack in \[0, 1\)"):
        plan_stages(LOOKS, 0.7, 2.0, slack=1)


def test_a_plan_does_not_use_an_early_look_that_sees_nothing():
    assert plan_stages([Z[:, 2], FINAL], 0.7, 2.0).budgets == pytest.approx((1.0, 2.0))
