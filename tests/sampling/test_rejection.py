"""Rejection: exact counts, decisions that depend on nothing but the id, limits, groups, and nothing lost on the way."""

import sys
import time
import tracemalloc
import warnings
from collections import Counter

import numpy as np
import pytest
from scipy import stats

import obrs
from obrs import Budgeted, collect, normals, sample, stream
from obrs.errors import ExhaustedError, InputError, InputTypeError, ObrsError
from obrs.sampling.proposals import length, proposal
from obrs.sampling.samples import Calls, join

SHIFT = 1.0  # target N(SHIFT, 1), model N(0, 1)


def propose(ids):
    return normals(ids, 1, seed=1)[:, 0]


def log_ratio(x):
    return SHIFT * x - SHIFT**2 / 2


def rule_of(number, budget=4, start=0):
    return Budgeted.fit(log_ratio(propose(np.arange(start, start + number))), budget)


RULE = rule_of(50_000, 2.6)


def judge(stop, rule=RULE, **options):
    options = {"batch_size": 100, **options}
    return join(list(stream(propose, log_ratio, rule, stop=stop, **options)))


# --- exactly n --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "budget"), [(1, 1), (16, 4), (1000, 2.6), (3000, 2.6), (2000, 1), (5000, 1.2)])
def test_exactly_n_are_kept_at_about_the_budget(n, budget):
    kept = sample(propose, log_ratio, n, budget=budget)
    assert len(kept) == n == length(kept.x)
    error = np.sqrt(n * budget * (budget - 1)) + n * budget * 0.02  # negative binomial, and a fitted c
    assert abs(kept.proposed - n * budget) <= 5 * error + 1
    assert kept.executed >= kept.proposed
    np.testing.assert_array_equal(kept.x, propose(kept.ids))
    np.testing.assert_allclose(kept.log_ratio, log_ratio(kept.x))
    if n * budget <= 4096:  # nobody pays thousands of calls for sixteen images
        assert kept.executed == kept.calls.generator == kept.calls.critic == np.ceil(n * budget)


def test_a_number_of_proposals_is_made_whatever_is_kept():
    kept = sample(propose, log_ratio, proposed=5000, rule=RULE, start=700)
    np.testing.assert_array_equal(kept.ids, judge(5700, start=700).ids)
    assert (kept.proposed, kept.executed, kept.next_id, kept.fixed) == (5000, 5000, 5700, "proposals")
    assert sample(propose, log_ratio, proposed=9000, budget=4).rule == rule_of(4096)
    assert sample(propose, log_ratio, proposed=9000, budget=4, pilot=500).rule == rule_of(500)
    assert sample(propose, log_ratio, proposed=100, budget=4).rule == rule_of(100)


def test_kept_samples_follow_the_accepted_density():
    """P~ has density q min(c r, 1)/Z; compare its distribution function."""
    kept = sample(propose, log_ratio, 20_000, rule=RULE)
    grid = np.linspace(-6, 7, 20_001)
    density = stats.norm.pdf(grid) * np.exp(RULE(log_ratio(grid)))
    cdf = np.cumsum(density) / np.sum(density)
    assert stats.kstest(kept.x, lambda x: np.interp(x, grid, cdf)).pvalue > 1e-3


def test_cost_is_counted_to_the_last_kept_and_as_executed():
    kept = collect(stream(propose, log_ratio, RULE, batch_size=1000), 700)
    assert kept.proposed == kept.ids[-1] + 1 == kept.next_id
    assert kept.calls == Calls(generator=kept.proposed, critic=kept.proposed)
    assert kept.executed == 1000 * -(-kept.proposed // 1000)
    assert kept.executed_calls == Calls(generator=kept.executed, critic=kept.executed)
    assert kept.rate == 700 / kept.proposed
    assert kept.seconds > 0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n": 5, "budget": 2, "rule": RULE},
        {"n": 5, "rule": RULE, "pilot": 3},
        {"proposed": 9, "budget": 2, "max_proposed": 5},
    ],
)
def test_other_combinations_are_one_error_that_lists_what_is_allowed(options):
    with pytest.raises(InputError, match=r"one of \(n, budget\), .* got \("):
        sample(propose, log_ratio, **options)


# --- decisions depend on the id alone ---------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 7, 4999, 10_000])
def test_batch_size_does_not_matter(batch_size):
    ids = np.arange(16_200, 16_500 if batch_size == 1 else 20_000)  # uniforms are drawn by 16384
    kept = judge(20_000 if batch_size > 1 else 16_500, batch_size=batch_size, start=16_200)
    np.testing.assert_array_equal(kept.ids, ids[obrs.accept(RULE(log_ratio(propose(ids))), ids, seed=0)])


def test_a_larger_budget_keeps_a_subset():
    sets = [set(judge(5000, rule_of(5000, k)).ids) for k in (1.5, 2.6, 6)]
    assert sets[2] < sets[1] < sets[0]


@pytest.mark.parametrize("backend", ["torch", "jax.numpy"])
def test_backend_does_not_matter(backend):
    library = pytest.importorskip(backend)
    if backend == "jax.numpy":
        sys.modules["jax"].config.update("jax_enable_x64", True)
    like = library.zeros(0, dtype=library.float64)
    batches = stream(lambda i: normals(i, 1, seed=1, like=like)[:, 0], log_ratio, RULE, batch_size=100, stop=5000)
    there = join(list(batches))
    np.testing.assert_array_equal(there.ids, judge(5000).ids)
    assert type(there.x) is type(like)


def test_shards_make_what_one_worker_would():
    parts = [judge(5000, shard=(worker, 3)).ids.tolist() for worker in range(3)]
    assert sorted(i for part in parts for i in part) == judge(5000).ids.tolist()


# --- a run that stops goes on -----------------------------------------------------------------------------------------


def test_a_run_stopped_anywhere_goes_on_where_it_was():
    whole, head = (collect(stream(propose, log_ratio, RULE, batch_size=100), n) for n in (1000, 333))
    both = head + collect(stream(propose, log_ratio, RULE, batch_size=64, start=head.next_id), 667)
    np.testing.assert_array_equal(both.ids, whole.ids)
    assert (both.proposed, both.next_id, both.rule) == (whole.proposed, whole.next_id, RULE)


def test_a_run_goes_on_with_its_own_rule():
    whole = sample(propose, log_ratio, 3000, budget=4)
    with pytest.raises(ExhaustedError) as caught:
        sample(propose, log_ratio, 3000, budget=4, max_proposed=6000)
    head = caught.value.partial
    tail = sample(propose, log_ratio, 3000 - len(head), rule=head.rule, start=head.next_id)
    np.testing.assert_array_equal((head + tail).ids, whole.ids)
    assert (head + tail).proposed == whole.proposed
    later = sample(propose, log_ratio, 3000, budget=4, start=5000)
    assert later.rule == rule_of(4096, start=5000)
    np.testing.assert_array_equal(later.ids, judge(later.next_id, later.rule, start=5000).ids)
    assert later.proposed == later.next_id - 5000


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [100, 4096, 5000, 9001])
def test_proposals_are_not_overrun_and_all_are_used(most):
    with pytest.raises(ExhaustedError, match=rf"kept \d+ of 9000 samples in {most} proposals; allow more") as caught:
        sample(propose, log_ratio, 9000, budget=4, max_proposed=most)
    partial = caught.value.partial
    assert (partial.executed, partial.next_id, partial.fixed) == (most, most, "")
    np.testing.assert_array_equal(partial.ids, judge(most, rule_of(min(most, 4096))).ids)


def test_a_pool_that_is_cut_short_keeps_its_share():
    for options in ({"budget": 4}, {"pool": 200}):
        with pytest.raises(ExhaustedError, match="kept 25 of 50 samples in 100 proposals") as caught:
            sample(propose, log_ratio, 50, max_proposed=100, **options)
        partial = caught.value.partial
        np.testing.assert_array_equal(partial.ids, sample(propose, log_ratio, 25, pool=100).ids)
        assert len(partial + sample(propose, log_ratio, 25, pool=100, start=partial.next_id)) == 50


@pytest.mark.parametrize(
    "options", [{"n": 9000, "budget": 4}, {"n": 500, "pool": 9000}, {"proposed": 90_000, "rule": RULE}]
)
def test_seconds_run_out_in_the_pilot_in_a_pool_and_later(options):
    def slow(ids):
        time.sleep(0.02)
        return propose(ids)

    with pytest.raises(ExhaustedError, match=r"kept \d+ .*in the seconds allowed") as caught:
        sample(slow, log_ratio, max_seconds=0.1, batch_size=200, **options)
    partial = caught.value.partial
    assert 0 < len(partial) < partial.executed == partial.next_id


def test_memory_is_that_of_a_batch_and_of_what_is_kept():
    """2000 proposals of 80 kB would be 160 MB; 40 kept and a batch of 50 are 7."""

    def large(ids):
        return propose(ids)[:, None] * np.ones((1, 10_000))

    tracemalloc.start()
    kept = collect(stream(large, lambda x: log_ratio(x[:, 0]), rule_of(20_000, 50), batch_size=50), 40)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept.proposed > 1000
    assert peak < 20e6


# --- batches of several arrays ----------------------------------------------------------------------------------------


def test_labels_stay_with_their_images():
    def pairs(ids):
        return {"image": propose(ids)[:, None, None] * np.ones((1, 2, 2)), "label": ids % 10}

    kept = sample(pairs, lambda batch: log_ratio(batch["image"][:, 0, 0]), 2000, budget=3)
    np.testing.assert_array_equal(kept.x["label"], kept.ids % 10)
    np.testing.assert_array_equal(kept.x["image"][:, 1, 1], propose(kept.ids))
    as_tuple = sample(lambda ids: (propose(ids), ids), lambda batch: log_ratio(batch[0]), 10, budget=2)
    np.testing.assert_array_equal(as_tuple.x[1], as_tuple.ids)


# --- groups -----------------------------------------------------------------------------------------------------------

NAMES = np.array(["cat", "dog", "eel"])


def animals(ids):
    """Cats and dogs are 4 of 10 each, eels 2."""
    return {"x": propose(ids), "kind": NAMES[np.minimum(ids % 10 // 4, 2)]}


def score(batch):
    return batch["x"] - 0.5 - 4.0 * (batch["kind"] == "dog")  # dogs are badly made


def kind(batch):
    return batch["kind"]


def counts(kept):
    return Counter(kept.x["kind"].tolist())


def are_near(observed, expected, sigmas=5):
    return all(abs(observed[name] - n) < sigmas * np.sqrt(n) for name, n in expected.items())


def test_with_one_constant_a_class_vanishes_and_with_groups_it_does_not():
    assert counts(sample(animals, score, 3000, budget=4))["dog"] < 100
    kept = sample(animals, score, 3000, budget=4, groups=kind)
    assert len(kept) == 3000
    assert are_near(counts(kept), {"cat": 1200, "dog": 1200, "eel": 600})
    assert [group.label for group in kept.rule.groups] == ["cat", "dog", "eel"]


def test_weights_undo_the_groups():
    """The average of r-weighted groups is that of one constant: weights count what each group was given."""
    every = animals(np.arange(40_000))
    true = np.average(every["kind"] == "eel", weights=np.exp(score(every)))
    fixed = sample(animals, score, proposed=40_000, budget=4, groups=kind, shares=[1, 2, 1])
    pool = sample(animals, score, 2000, pool=8000, groups=kind, shares=[1, 2, 1])
    for kept in (fixed, pool):
        share = kept.mean(lambda batch: batch["kind"] == "eel", confidence=0.95)
        assert abs(share.value - true) < 5 * share.standard_error
        assert abs(np.mean(kept.x["kind"] == "eel") - true) > 4 * share.standard_error


def test_the_pilot_grows_until_each_group_has_two_hundred():
    def rare(ids):
        return {"x": propose(ids), "kind": np.where(ids % 50 == 0, "eel", "cat")}

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = sample(rare, score, 5000, budget=4, groups=kind)
    assert kept.rule.proposed[1] == pytest.approx(205 / 10_240)  # ten batches of 1024, the first with so many
    assert are_near(counts(kept), {"eel": 100})


# --- the user's callables ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function", [lambda n: np.arange(1e4)[:n] / 1e4, lambda n: sys.modules["torch"].randn(n, 2)[:, 0]]
)
def test_a_function_of_a_number_is_recognised_and_can_be_wrapped(function):
    pytest.importorskip("torch")
    with pytest.raises(InputTypeError, match=r"wrap it: obrs.proposal\(fn\)"):
        sample(function, log_ratio, 50, budget=2)
    assert len(sample(proposal(function), log_ratio, 50, budget=2)) == 50


def test_torch_modules_handed_in_directly():
    torch = pytest.importorskip("torch")
    generator = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2), torch.nn.Flatten(0))
    like, seen = torch.empty(0), []
    critic = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Dropout(), torch.nn.Flatten(0))

    def make(ids):
        seen.append(torch.is_grad_enabled())
        return normals(ids, 2, seed=0, like=like)

    with pytest.raises(InputTypeError, match=r"wrap it: lambda ids: G\(obrs.normals\(ids, dim, seed=0, like="):
        sample(generator.eval(), critic.eval(), 5, budget=2)
    with pytest.warns(UserWarning, match="Sequential is in train mode") as caught:
        sample(make, critic.train(), 3000, budget=2)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert not any(seen)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample(make, critic.eval(), 10, budget=2)


# --- a hard cap, and scores without weights ---------------------------------------------------------------------------


def test_with_a_cap_each_k_proposals_give_one_sample():
    kept = sample(propose, lambda x: x - 0.5, 3000, budget=4, cap=True, pilot=2000)
    assert (len(kept), kept.proposed, kept.next_id) == (3000, 12_000, 12_000)
    np.testing.assert_array_equal(kept.ids // 4, np.arange(3000))
    assert kept.x.mean() == pytest.approx(1, abs=0.15), "nearly N(1, 1)"
    assert abs(kept.mean(lambda x: x, confidence=0.99).value - 1) < 0.1
    more = sample(propose, lambda x: x - 0.5, 100, rule=kept.rule, start=kept.next_id)
    whole = sample(propose, lambda x: x - 0.5, 3100, rule=kept.rule, batch_size=7)
    np.testing.assert_array_equal(whole.ids, np.append(kept.ids, more.ids))


def test_a_cap_that_meets_nothing_has_what_was_chosen_before():
    calls = []

    def score_most(x):
        return np.where(np.arange(len(x)) < len(x) - 8 * (calls.append(1) or len(calls) > 1), x, -np.inf)

    with pytest.raises(ExhaustedError, match="up to id 4088, and the next 4 all have r = 0; raise") as caught:
        sample(propose, score_most, 1024, budget=4, cap=True, batch_size=2048, pilot=2048)
    assert (len(caught.value.partial), caught.value.partial.next_id) == (1022, 4088)
    with pytest.raises(ExhaustedError, match="4 proposals are one row, and fewer are allowed"):
        sample(propose, lambda x: x, 100, budget=4, cap=True, max_proposed=3)
    with pytest.raises(ExhaustedError, match="kept 2 of 100 samples in 8 proposals"):
        sample(propose, lambda x: x, 100, budget=4, cap=True, max_proposed=10)
    for options, message in (
        ({"budget": 2.5}, "a hard cap is a whole number"),
        ({"budget": 2, "start": 3}, "start must be a multiple"),
        ({"budget": 2, "groups": lambda x: x > 0}, "leave out groups"),
    ):
        with pytest.raises(ObrsError, match=message):
            sample(propose, lambda x: x, 10, cap=True, **options)
    with pytest.raises(InputError, match="a hard cap is for n samples, not for a stream"):
        stream(propose, lambda x: x, obrs.rules.Choice.fit(np.zeros(4), budget=2), batch_size=4)


def test_an_error_has_what_the_outer_run_kept():
    def two_runs(ids):
        return propose(ids) if ids[0] < 400 else sample(propose, lambda x: x, len(ids), budget=2, max_proposed=10).x

    with pytest.raises(ExhaustedError) as caught:
        sample(two_runs, lambda x: x, 1000, rule=RULE, batch_size=100)
    assert caught.value.partial.executed == 400


def test_a_score_that_is_no_ratio_leaves_no_weights(tmp_path):
    def score(x):
        return 2 * log_ratio(x)

    score.calibrated = False
    kept = sample(propose, score, proposed=5000, budget=2)
    assert "no weights" in kept.notes[0]
    with pytest.raises(ExhaustedError) as caught:
        sample(propose, score, 5000, budget=2, start=5000, max_proposed=5000)
    both = kept + caught.value.partial
    both.save(tmp_path / "kept.npz")
    for each in (kept, caught.value.partial, obrs.Samples.load(tmp_path / "kept.npz")):
        assert np.isnan(each.log_weight).all()
        assert np.isnan(each.ess)
        with pytest.raises(InputError, match="take the plain mean"):
            each.mean(log_ratio)
