"""Plant one fault after the other in a copy of the library: the tests beside each of them must notice.

python tools/mutants.py                   # all of them
python tools/mutants.py root losses       # those whose file or fault has one of these words

First the tests must pass without a fault. A fault that nothing notices is a hole: write the test that is missing. If
the code of a fault is no longer found, it has changed: plant the same fault in the new code, or another of its kind.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
LONGEST = 600  # seconds for a fault, which may make an endless loop
FAILED = re.compile(r"^(?:FAILED|ERROR) tests/(.*?)(?: - (.*))?$", re.MULTILINE)  # a line of pytest's summary
NO_CATCH = ("ImportError", "ModuleNotFoundError", "NameError", "SyntaxError")  # the mutant is wrong, not the library


class Mutant(NamedTuple):
    """A fault: in `file`, below src/obrs, `old` becomes `new`; `test` must fail."""

    fault: str
    test: str  # in the tests of the file, unless it names others
    file: str
    old: str
    new: str

    @property
    def node(self) -> str:
        """The test as pytest is asked for it."""
        file = Path(self.file)
        prefix = "" if ".py::" in self.test else f"{file.with_name('test_' + file.name.lstrip('_'))}::"
        return f"tests/{prefix}{self.test}"


# fmt: off
MUTANTS = [Mutant(*row) for row in (
    ("sums relative to the largest ratio", "test_ratios_far_above_the_threshold_overflow_without_harm",
     "root.py", "reference = values[:, first : first + 1]", "reference = values[:, -1:]"),
    ("sums of r without their weights", "test_budget.py::test_weights_are_repetitions",
     "root.py", "masses * xp.exp(values - reference)", "xp.exp(values - reference)"),
    ("c is not floored at 1/max r", "test_budget_above_the_largest_ratio_gives_exact_rejection",
     "budget.py", "xp.where(log_c > -top, log_c, -top)", "xp.where(log_c > -top, log_c, log_c)"),
    ("c of a group is floored", "test_groups.py::test_groups_keep_their_rates_at_every_budget",
     "groups.py", "size / budgets), inf, 1", "size / budgets), values.max(), 1"),
    ("the gradient of c has the wrong sign", "test_gradient_is_that_of_finite_differences",
     "budget.py", "xp.astype(detach(lse) - lse,", "xp.astype(lse - detach(lse),"),
    ("r/a where the threshold is c, not 1/c", "contracts/test_rules.py::test_weight_is_the_ratio_over_the_acceptance",
     "budget.py", "threshold = namespace(log_ratio), -self.log_c", "threshold = namespace(log_ratio), self.log_c"),
    ("DRS shifts the other way", "test_drs_is_azadis_sigmoid",
     "rules.py", "_log1mexp(rho - self.eps), self.gamma) - rho", "_log1mexp(rho - self.eps), -self.gamma) - rho"),
    ("shares p/q for q/p", "test_shares_and_the_total_budget_are_met",
     "groups.py", "total * proposed / kept", "total * kept / proposed"),
    ("every group may fail as often as all", "test_with_confidence_all_groups_keep_their_budgets_at_once",
     "groups.py", "(1 - float(confidence)) / len(budgets)", "(1 - float(confidence))"),
    ("latents share the stream of acceptance", "test_latents_are_independent_of_each_other_and_of_acceptance",
     "draws.py", "purpose=Purpose.LATENT, like=like", "purpose=Purpose.ACCEPT, like=like"),
    ("normals of half the variance", "test_normals_are_normal",
     "draws.py", "xp.sqrt(-2.0 * xp.log(1.0 - u))", "xp.sqrt(-xp.log(1.0 - u))"),
    ("streams are shifted copies", "test_streams_are_no_shifted_copies_of_each_other",
     "draws.py", "np.stack([state, _mix(state + GAMMA)])", "np.stack([state, 0 * state])"),
    ("the key is log u + log r",
     "test_selection.py::TestPriority::test_is_the_rule_of_acceptance_but_for_the_last_rows",
     "draws.py", "key -= values", "key += values"),
    ("a duel with the wrong odds", "TestEveryDesign::test_frequencies_over_seeds_are_the_probabilities",
     "selection.py", "np.where(one_is_in, 1 - b, a)", "np.where(one_is_in, 1 - a, a)"),
    ("the n-th key is cut off", "TestGroups::test_ragged_groups_in_any_order_get_n_each",
     "selection.py", "(before + most)[group]", "(before + most - 1)[group]"),
    ("what is sure is not taken off n", "TestInclusionProbability::test_sums_to_n_for_every_n",
     "selection.py", "np.maximum(need - pool.total(sure), 0.0)", "np.maximum(need, 0.0)"),
    ("signs are not balanced", "test_signed.py::test_of_each_sign_in_each_group_the_expected_number_is_kept_up_to_one",
     "selection.py", "2 * pool.group + pool.negative", "2 * pool.group"),
    ("the sign of a weight is lost", "test_signed.py::test_histograms_of_kept_events_are_unbiased",
     "selection.py", "sign[index] * np.maximum(size[index], max_weight)", "np.maximum(size[index], max_weight)"),
    ("ratios do not follow their ids", "TestEveryDesign::test_with_ids_the_order_of_the_rows_does_not_matter",
     "selection.py", "pool = _Pool(values[order],", "pool = _Pool(values,"),
    ("every lattice starts at the same point", "TestDependence::test_systematic_draws_the_sets_of_its_lattices",
     "selection.py", "1 - draw_uniforms(len(need), seed)", "np.full(len(need), 0.5)"),
    ("one is taken twice where sums are rounded", "test_a_lattice_takes_what_is_needed_whatever_the_sums_are",
     "selection.py", "np.maximum.accumulate(np.clip(skipped, bounds[owner], bounds[owner + 1]))", "skipped"),
    ("errors about 0, not about the mean", "test_plan.py::test_rate_interval_covers_the_rate_of_fresh_proposals",
     "_influence.py", "moved = influence - float(self.mass @ influence)", "moved = influence"),
    ("the bound with M for M - 1", "test_bounds_hold_and_are_tight_at_both_ends",
     "profile.py", "(k - 1) / (m - 1))", "(k - 1) / m)"),
    ("precision at the slope before rejection", "test_precision_is_k_fold_at_every_recall",
     "profile.py", "self.alpha(lam * rate) / rate", "self.alpha(lam) / rate"),
    ("2 log 2 is dropped", "contracts/test_divergences.py::test_fenchel_equality",
     "divergences.py", "-log1m_exp(xp, t) - 2 * log(2)", "-log1m_exp(xp, t)"),
    ("weights that are not over pi", "TestRollout::test_the_estimate_is_unbiased_for_the_whole_batch",
     "language.py", "log_weight = np.maximum(score[index], threshold)", "log_weight = score[index]"),
    ("the lattice of tokens starts anew in each row",
     "TestRollout::test_inclusion_probabilities_are_met_and_the_sure_are_always_kept",
     "language.py", "start + (passed - count[order]) - np.concatenate([[0.0], end[:-1]])", "start"),
    ("the KL of all prompts, not their mean", "TestTilt::test_the_kept_law_has_the_kl_that_was_asked_for",
     "language.py", "return _kl(pi / keep, sizes[groups]) / len(sizes)", "return _kl(pi / keep, sizes[groups])"),
    ("the n-th kept is made again", "sampling/test_rejection.py::test_a_run_stopped_anywhere_goes_on_where_it_was",
     "sampling/samples.py", "int(samples.ids[n - 1]) - start + 1", "int(samples.ids[n - 1]) - start"),
    ("every batch has the same uniforms", "test_batch_size_does_not_matter",
     "sampling/rejection.py", "low, high = int(ids[0]), int(ids[-1]) + 1", "low, high = 0, len(ids)"),
    ("a batch across two blocks of uniforms repeats the first", "test_batch_size_does_not_matter",
     "sampling/rejection.py", "max(low - start, 0) : high - start", "low % _BLOCK : low % _BLOCK + len(ids)"),
    ("the variance about 0, not about the mean", "test_formulas_by_hand",
     "sampling/samples.py", "(np.sum(y**2, axis=0) / size - mean**2)", "(np.sum(y**2, axis=0) / size)"),
    ("the pilot is not judged", "test_a_run_goes_on_with_its_own_rule",
     "sampling/rejection.py", "chain([made], run.make(made.next_id))", "run.make(made.next_id)"),
    ("the second stage forgets the first", "test_the_cost_is_what_a_run_pays",
     "stages.py", "log_ratio, 0.0) + log_c, log_a)", "log_ratio, 0.0) + log_c, 0.0)"),
    ("a chain that goes the other way", "test_law_after_k_steps_is_that_of_the_transition_matrix",
     "rivals/mhgan.py", "np.minimum(new - current, 0.0)", "np.minimum(current - new, 0.0)"),
    ("noise of the size of the step", "TestDDLS::test_draws_from_the_target_in_latent_space",
     "rivals/refine.py", "(sqrt(self.step) if self.noise_std is None", "(self.step if self.noise_std is None"),
    ("the T-th candidate may be rejected", "test_samples_follow_the_density",
     "rivals/lars.py", "log_missed = (self.T - 1) *", "log_missed = self.T *"),
    ("blocks that are not pooled", "test_no_law_that_choosing_can_have_covers_more_of_the_target",
     "choice.py", "while starts and height[-1] * w >= b * width[-1]:", "while False:"),
    ("a race among all proposals, not among those of the best block", "test_atoms_are_blocks_of_their_own_or_together",
     "choice.py", "np.where(block == block.min(axis=1, keepdims=True), time, inf)", "time"),
    ("proposals go to what they improve least", "test_slsqp_finds_no_better_division",
     "split.py", "np.argsort(-gain, axis=None", "np.argsort(gain, axis=None"),
    ("a gain is confirmed by what it was chosen on", "test_the_half_that_confirms_is_not_the_one_that_chose",
     "tuning.py", "ids, half + ids)]", "ids, ids)]"),
    ("a fake is scored by the ratio that was fitted on it",
     "test_fakes_that_are_there_are_scored_by_the_fold_that_did_not_see_them",
     "tuning.py", "(fold % 2 != i,", "(fold % 2 == i,"),
    ("the seed does not reach the keys", "test_sql.py::test_the_same_rows_of_a_million",
     "files.py", "priority_key(log_ratio, id, seed=self.seed)", "priority_key(log_ratio, id, seed=0)"),
    ("the last row that is kept is the first that is not", "test_the_rows_below_the_threshold_are_those_of_a_sort",
     "_keys.py", "<= need[group]", "< need[group]"),
    ("weights of rows that were kept for sure", "test_weighted_sums_over_the_kept_rows_are_those_over_all",
     "files.py", "np.maximum(log_ratio, -end), np.sign", "log_ratio, np.sign"),
    ("scores that change in place go unnoticed", "test_scores_that_were_changed_in_place_are_noticed",
     "files.py", "crc32(np.ascontiguousarray(score).data)", "0"),
    ("groups of parts are counted by their own numbers", "test_groups_have_thresholds_of_their_own",
     "files.py", "group = np.array([labels[name] for name in names], np.int64)[codes]", "group = codes"),
    ("the second key comes after the second turn", "test_the_same_rows_of_a_million",
     "sql.py", 'word = _mix(f"xor({word}, {second}::UBIGINT)", steps)',
     'word = f"xor({_mix(word, steps)}, {second}::UBIGINT)"'),
    ("the prior with the wrong sign", "test_a_classifier_on_unequal_numbers_has_the_prior_taken_out",
     "critics.py", "return x - log(check_positive", "return x + log(check_positive"),
    ("the doctor takes 1/r for r", "ratios/test_doctor.py::test_the_score_test_is_normal_and_counts_what_it_says",
     "ratios/evidence.py", "-np.logaddexp(0.0, scores + log(n / m))", "-np.logaddexp(0.0, log(n / m) - scores)"),
    ("p(y) / q(y) upside down", "ratios/test_doctor.py::test_class_means_are_the_quotients_of_the_shares",
     "ratios/evidence.py", "+ log(len(part) / len(fake)) - log(share)", "- log(len(part) / len(fake)) + log(share)"),
    ("1/K for K", "test_exact_loss_has_the_gradient_of_the_divergence_after_rejection",
     "training/losses.py", "-torch.exp(-cut.log_rate) * of.f", "-torch.exp(cut.log_rate) * of.f"),
    ("<= for <: the largest ratio has a gradient",
     "training/test_losses.py::test_the_exact_loss_has_no_gradient_beyond_exact_rejection",
     "budget.py", "~(log_ratio <= threshold)", "~(log_ratio < threshold)"),
    ("the critic takes real for fake", "test_a_critic_step_ascends_the_dual_bound_and_leaves_the_generator_alone",
     "training/step.py", "zip((x, *y), (made, *z), strict=True)", "zip((made, *y), (x, *z), strict=True)"),
    ("covariances over n, not n - 1", "test_it_is_that_of_torchmetrics",
     "metrics/frechet.py", "scatter / (1 - float(w @ w) / total**2)", "scatter"),
    ("the second derivative at the sample, not of rows left out", "test_excess_is_that_of_the_jackknife",
     "metrics/frechet.py", "(-np.log1p(-safe) - safe) / safe**2", "0.5 + 0 * safe"),
    ("a row and itself are a pair", "test_it_is_that_of_torchmetrics",
     "metrics/kernel.py", "(among_fake - mass * own_fake) / pairs", "among_fake / pairs"),
    ("the radius is that of the next neighbour", "test_it_is_that_of_prdc_in_float64",
     "metrics/neighbours.py", "distance[:, k - 1]", "distance[:, k]"),
    ("the constant does not move with the pool", "test_errors_know_that_constants_are_solved_for",
     "metrics/weightings.py", "influence.rows] * (unit - mean) + even[codes] * mean", "influence.rows] * unit"),
)]
# fmt: on


def run(mutants: list[Mutant], source: Path) -> tuple[int, str, str]:
    """Return the exit code of the tests on the library in `source`, which of them failed first, and why."""
    tests = dict.fromkeys(mutant.node for mutant in mutants)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--hypothesis-profile=first", *tests]
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "COLUMNS": "1000"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, timeout=LONGEST, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return -1, "", f"no end within {LONGEST} seconds"
    test, reason = (FAILED.findall(done.stdout) or [("", "")])[0]
    return done.returncode, test, reason or f"{done.stdout[-4000:]}{done.stderr[-1000:]}"


def verdict(mutant: Mutant, source: Path) -> tuple[bool, str]:
    """Return whether a mutant was caught, and by what."""
    path = source / "obrs" / mutant.file
    text = path.read_text() if path.exists() else ""
    if (times := text.count(mutant.old)) != 1:
        return False, f"NO LONGER APPLIES: {mutant.old!r} is there {times} times"
    path.write_text(text.replace(mutant.old, mutant.new))
    code, test, reason = run([mutant], source)
    path.write_text(text)
    if code == 1 and not reason.startswith(NO_CATCH):
        return True, f"caught by {test}"
    return False, f"SURVIVED {mutant.node}" if code == 0 else f"NOT TESTED, exit code {code}: {reason}"


def main(words: list[str]) -> int | str:
    """Return 0, the number of faults that survived, or what is wrong."""
    chosen = [m for m in MUTANTS if not words or any(word in f"{m.file} {m.fault}" for word in words)]
    if not chosen:
        return f"no file and no fault has one of the words {', '.join(words)}"
    caught = 0
    with TemporaryDirectory() as folder:
        source = Path(folder)
        shutil.copytree(ROOT / "src", source, dirs_exist_ok=True)
        code, test, reason = run(chosen, source)
        if code:
            return f"without a fault all tests must pass: {test}: {reason} (exit code {code})"
        print(f"{child_seconds():5.1f} s  without a fault all tests pass", flush=True)
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # two mutants of one second could be taken for each other
        for mutant in chosen:
            before = child_seconds()
            good, what = verdict(mutant, source)
            caught += good
            print(f"{child_seconds() - before:5.1f} s  {mutant.file}: {mutant.fault}: {what}", flush=True)
    print(f"{caught} caught, {len(chosen) - caught} survived, in {child_seconds() / 60:.1f} CPU minutes")
    return len(chosen) - caught


def child_seconds() -> float:
    """Return the CPU seconds of all children so far."""
    times = os.times()
    return times.children_user + times.children_system


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
