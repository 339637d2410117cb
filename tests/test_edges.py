"""Behaviour at the edges of the input, one test for each row of the table in the design."""

import numpy as np
import pytest

import obrs
from obrs import Budgeted, Grouped, Profile, sample, select, solve_log_c
from obrs.budget import solve_cut
from obrs.critics import check_scores
from obrs.errors import BudgetError, ExhaustedError, InputError, Interrupted, ObrsError, RatioError
from obrs.rules import DRS, RULES, Unbudgeted

LOG_RATIO = np.random.default_rng(0).normal(size=400)
HALF = np.where(np.arange(400) % 2, LOG_RATIO, -np.inf)
VERBS = {
    "solve_log_c": solve_log_c,
    "axis": lambda x, k: solve_log_c(np.stack([x, x]), k, axis=1),
    "groups": lambda x, k: solve_log_c(x, k, groups=np.arange(len(x)) // 2 % 2),
    "Budgeted": Budgeted.fit,
    "confidence": lambda x, k: Budgeted.fit(x, k, confidence=0.9),
    "DRS": DRS.fit,
    "Grouped": lambda x, k: Grouped.fit(x, k, np.arange(len(x)) // 2 % 2),
    "Profile": lambda x, k: Profile(x).divergence("kl", k),
    "plan": lambda x, k: Profile(x).plan([k]),
    "sample": lambda x, k: sample(lambda ids: x[ids % len(x)], lambda x: x, 50, budget=k),
}
each_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)


def refuse(error, words, call, *arguments, **options):
    """The call raises this error, in one line."""
    with pytest.raises(error, match=words) as caught:
        call(*arguments, **options)
    assert isinstance(caught.value, ObrsError)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@each_verb
def test_a_budget_below_1_or_no_number_is_refused_with_its_value(verb):
    for budget in (0.5, 0, -1, np.nan, np.inf):
        refuse(BudgetError, "budget must be", verb, LOG_RATIO, budget)
    refuse(BudgetError, r"did you mean budget=4 \(keep 25 %\)\?", verb, LOG_RATIO, 0.25)


def test_a_budget_of_1_keeps_all_that_is_possible(xp):
    assert float(solve_log_c(xp.asarray(LOG_RATIO), 1)) == np.inf
    assert np.all(Budgeted.fit(LOG_RATIO, 1)(LOG_RATIO) == 0)
    refuse(BudgetError, "smallest feasible budget is 2", solve_log_c, xp.asarray(HALF), 1)


def test_a_budget_above_m_is_exact_rejection_and_reports_say_so(xp):
    assert float(solve_log_c(xp.asarray(LOG_RATIO), 1e6)) == -LOG_RATIO.max()
    exact = np.exp(LOG_RATIO - LOG_RATIO.max())
    rule = Budgeted.fit(LOG_RATIO, 1e6)
    assert (rule.budget, rule.rate) == (1e6, pytest.approx(exact.mean()))
    np.testing.assert_allclose(np.exp(Unbudgeted.fit(LOG_RATIO)(LOG_RATIO)), exact)
    assert float(solve_cut(LOG_RATIO, 1e6).log_rate) == pytest.approx(np.log(exact.mean()))
    assert Profile(LOG_RATIO).plan([1e6])[0]["rate"] == pytest.approx(exact.mean())
    kept = sample(lambda ids: obrs.uniforms(ids, seed=0), lambda x: np.log1p(x), 3000, budget=50)
    assert kept.rate > 0.5
    assert any("exact rejection" in note for note in kept.notes)


@each_verb
def test_too_few_with_r_above_0_name_the_smallest_budget_which_works(verb):
    if verb is VERBS["confidence"]:
        refuse(BudgetError, "too many have r = 0", verb, HALF, 1.9)
        return
    text = refuse(BudgetError, "smallest feasible budget is", verb, HALF, 1.9)
    assert verb(HALF, float(text.split(" is ")[-1].split()[0])) is not None


@pytest.mark.parametrize("design", obrs.selection.DESIGNS)
def test_any_n_up_to_the_number_with_r_above_0_is_selected(design):
    possible = np.flatnonzero(-np.inf < HALF)
    for n in (1, 2, 199, 200):
        assert len(select(HALF, n, design=design)) == n
        assert obrs.selection.inclusion_probability(HALF, n).sum() == pytest.approx(n, rel=1e-12)
    np.testing.assert_array_equal(select(HALF, 200, design=design), possible)
    refuse(InputError, "cannot select 201 of the 400 candidates: only 200", select, HALF, 201, design=design)
    refuse(InputError, "n must be a whole number of at least 1", select, HALF, 0, design=design)


@each_verb
def test_what_is_no_log_ratio_is_counted(verb):
    for value, words in ((np.nan, "NaN"), (np.inf, r"\+inf"), (1.1e6, r"beyond 1e\+06"), (-1.1e6, r"beyond 1e\+06")):
        x = LOG_RATIO.copy()
        x[:4] = value
        assert " among " in refuse(RatioError, rf"\d+ {words}", verb, x, 2)
    assert float(solve_log_c(np.array([-1e6, 1e6]), 4)) == -1e6


def test_without_checks_nan_is_never_accepted_and_infinity_always(xp):
    log_c = solve_log_c(xp.asarray(np.array([0.0, np.nan, np.inf, 1.0])), 2, check=False)
    kept = np.exp(np.minimum(np.array([0.0, -np.inf, 1e6, 1.0]) + float(log_c), 0))
    assert kept.mean() == pytest.approx(0.5)


@pytest.mark.parametrize("name", RULES)
def test_r_of_0_is_never_accepted_and_more_than_m_always(name):
    options = {"unbudgeted": [], "grouped": [2.6, np.zeros(400, int)]}.get(name, [2.6])
    rule, x, batch = RULES[name].fit(LOG_RATIO, *options), np.array([-np.inf, 5000.0, np.inf]), np.zeros(3, int)
    np.testing.assert_array_equal(np.exp(rule(x, batch)).round(5), [0, 1, 1])
    assert rule.log_weight(x[:1], batch[:1])[0] == -np.inf
    refuse(ObrsError, "r > 0", RULES[name].fit, np.full(400, -np.inf), *options)


def propose(ids):
    return obrs.normals(ids, 1, seed=1)[:, 0]


def fail_with(error):
    def propose_or_fail(ids):
        if ids[0] >= 6000:
            raise error
        return propose(ids)

    return propose_or_fail


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_proposed": 6144}, ExhaustedError),
        ({"propose": fail_with(ZeroDivisionError("mine"))}, ZeroDivisionError),
        ({"propose": fail_with(KeyboardInterrupt())}, Interrupted),
    ],
    ids=["proposals run out", "a callable fails", "Ctrl-C"],
)
def test_what_was_kept_is_carried_by_the_error_and_the_run_goes_on(options, error):
    whole = sample(propose, lambda x: x, 4000, budget=4)
    options = {"propose": propose} | options
    with pytest.raises(error) as caught:
        sample(options.pop("propose"), lambda x: x, 4000, budget=4, **options)
    head = caught.value.partial
    assert head.next_id == 6144
    tail = sample(propose, lambda x: x, 4000 - len(head), rule=head.rule, start=head.next_id)
    np.testing.assert_array_equal((head + tail).ids, whole.ids)


def test_nothing_that_exists_is_overwritten_by_a_selection_and_no_half_file_is_left(tmp_path):
    pytest.importorskip("pyarrow")
    scores, kept = tmp_path / "scores.csv", tmp_path / "kept"
    scores.write_text("id,log_ratio\n" + "".join(f"{i},{x}\n" for i, x in enumerate(LOG_RATIO)))
    before = scores.read_bytes()
    options = {"id": "id", "progress": False}
    refuse(InputError, "scores", obrs.files.select, scores, 10, out=scores, **options)
    obrs.files.select(scores, 10, out=kept, **options)
    first = {path.name: path.read_bytes() for path in kept.iterdir()}
    refuse(InputError, "kept", obrs.files.select, scores, 20, out=kept, **options)
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == first
    assert scores.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "kept.manifest.json", "scores.csv"]


@pytest.mark.parametrize(
    ("scores", "doubt"),
    [
        (LOG_RATIO - 3, ""),
        (np.append(LOG_RATIO, -np.inf), ""),
        (1 / (1 + np.exp(-LOG_RATIO)), "if they are probabilities"),
        (np.exp(LOG_RATIO), "if they are ratios"),
        (100 / (1 + np.exp(-LOG_RATIO)), "if they are percentages"),
        (LOG_RATIO - 500, "if they are log-densities"),
    ],
)
def test_scores_of_another_kind_are_doubted_and_constant_ones_refused(scores, doubt):
    for kind in ("log_ratio", "logit"):
        answer = check_scores(scores, kind)
        assert doubt in answer if doubt else answer == ""
    assert check_scores(scores, "reward") == ""
    refuse(InputError, "all scores are 0.5: there is nothing to choose by", check_scores, [0.5, 0.5], "probability")
