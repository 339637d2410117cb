"""Plant one fault after the other in a copy of the library: the tests beside each of them must notice.

python tools/mutants.py                   # all of them
python tools/mutants.py root losses       # those whose file or fault has one of these words

First the tests must pass without a fault. A fault that nothing notices is a hole: write the test that is missing. If
the code of a fault is no longer found, it has changed: plant the same fault in the new code, or another of its kind.
"""

import multiprocessing
import os
import resource
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"

import numpy  # noqa: F401  loaded once for all children, as is torch
import pytest
import torch  # noqa: F401

ROOT = Path(__file__).parents[1]
FORK = multiprocessing.get_context("fork")
LONGEST = 600  # seconds for a fault, which may make an endless loop
NO_CATCH = ("ImportError", "ModuleNotFoundError", "NameError", "SyntaxError")  # the mutant is wrong, not the library


class Mutant(NamedTuple):
    """A fault: in `file`, below src/obrs, `old` becomes `new`; `test`, below tests, must fail."""

    fault: str
    file: str
    old: str
    new: str
    test: str


# fmt: off
MUTANTS = [Mutant(*row) for row in (
    # the solver, budgets, rules and groups
    ("sums relative to the largest ratio", "root.py",
     "reference = values[:, first : first + 1]", "reference = values[:, -1:]",
     "test_root.py::test_ratios_far_above_the_threshold_overflow_without_harm"),
    ("sums of r without their weights", "root.py",
     "xp.cumulative_sum(masses * xp.exp(values - reference), axis=-1)",
     "xp.cumulative_sum(xp.exp(values - reference), axis=-1)",
     "test_budget.py::test_weights_are_repetitions"),
    ("c is not floored at 1/max r", "budget.py",
     "xp.where(log_c > -top, log_c, -top)", "xp.where(log_c > -top, log_c, log_c)",
     "test_budget.py::test_budget_above_the_largest_ratio_gives_exact_rejection"),
    ("c of a group is floored", "budget.py",
     "top = np.full(len(target), inf)", "top = np.full(len(target), x.max())",
     "test_groups.py::test_groups_keep_their_rates_at_every_budget"),
    ("the gradient of c has the wrong sign", "budget.py",
     "xp.astype(detached(lse) - lse,", "xp.astype(lse - detached(lse),",
     "test_budget.py::test_gradient_is_that_of_finite_differences"),
    ("r/a where the threshold is c, not 1/c", "budget.py",
     "threshold = namespace(log_ratio), -self.log_c", "threshold = namespace(log_ratio), self.log_c",
     "contracts/test_rules.py::test_weight_is_the_ratio_over_the_acceptance"),
    ("DRS shifts the other way", "rules.py",
     "-softplus(xp, shifted(_log1mexp(rho - self.eps), self.gamma)",
     "-softplus(xp, shifted(_log1mexp(rho - self.eps), -self.gamma)",
     "test_rules.py::test_drs_is_azadis_sigmoid"),
    ("shares p/q for q/p", "groups.py",
     "total * proposed / kept", "total * kept / proposed",
     "test_groups.py::test_shares_and_the_total_budget_are_met"),
    ("every group may fail as often as all", "groups.py",
     "(1 - float(confidence)) / len(budgets)", "(1 - float(confidence))",
     "test_groups.py::test_with_confidence_all_groups_keep_their_budgets_at_once"),
    # draws
    ("latents share the stream of acceptance", "draws.py",
     "purpose=Purpose.LATENT, like=like", "purpose=Purpose.ACCEPT, like=like",
     "test_draws.py::test_latents_are_independent_of_each_other_and_of_acceptance"),
    ("normals of half the variance", "draws.py",
     "xp.sqrt(-2.0 * xp.log(1.0 - u))", "xp.sqrt(-xp.log(1.0 - u))",
     "test_draws.py::test_normals_are_normal"),
    ("streams are shifted copies", "draws.py",
     "np.stack([state, _mix(state + GAMMA)])", "np.stack([state, 0 * state])",
     "test_draws.py::test_streams_are_no_shifted_copies_of_each_other"),
    ("the key is log u + log r", "draws.py",
     "key -= values", "key += values",
     "test_selection.py::TestPriority::test_is_the_rule_of_acceptance_but_for_the_last_rows"),
    # selection, signs, unweighting
    ("a duel with the wrong odds", "selection.py",
     "np.where(one_is_in, 1 - b, a)", "np.where(one_is_in, 1 - a, a)",
     "test_selection.py::TestEveryDesign::test_frequencies_over_seeds_are_the_probabilities"),
    ("the n-th key is cut off", "selection.py",
     "(before + most)[group]", "(before + most - 1)[group]",
     "test_selection.py::TestPriority::test_takes_the_n_smallest_keys"),
    ("what is sure is not taken off n", "selection.py",
     "np.maximum(need - pool.total(sure), 0.0)", "np.maximum(need, 0.0)",
     "test_selection.py::TestInclusionProbability::test_sums_to_n_for_every_n"),
    ("signs are not balanced", "selection.py",
     "2 * pool.group[order] + pool.negative[order]", "2 * pool.group[order]",
     "test_signed.py::test_of_each_sign_in_each_group_the_expected_number_is_kept_up_to_one"),
    ("the sign of a weight is lost", "selection.py",
     "sign[index] * np.maximum(size[index], max_weight)", "np.maximum(size[index], max_weight)",
     "test_signed.py::test_histograms_of_kept_events_are_unbiased"),
    ("ratios do not follow their ids", "selection.py",
     "pool = _Pool(values[order],", "pool = _Pool(values,",
     "test_selection.py::TestEveryDesign::test_with_ids_the_order_of_the_rows_does_not_matter"),
    ("every lattice starts at the same point", "selection.py",
     "1 - draw_uniforms(len(need), seed)", "np.full(len(need), 0.5)",
     "test_selection.py::TestDependence::test_systematic_draws_the_sets_of_its_lattices"),
    ("one is taken twice where sums are rounded", "selection.py",
     "np.maximum.accumulate(np.clip(skipped, bounds[owner], bounds[owner + 1]))", "skipped",
     "test_selection.py::test_a_lattice_takes_what_is_needed_whatever_the_sums_are"),
    # profiles, divergences, bounds
    ("errors about 0, not about the mean", "_influence.py",
     "moved = influence - float(self.mass @ influence)", "moved = influence",
     "test_plan.py::test_rate_interval_covers_the_rate_of_fresh_proposals"),
    ("the bound with M for M - 1", "profile.py",
     "(k - 1) / (m - 1))", "(k - 1) / m)",
     "test_profile.py::test_bounds_hold_and_are_tight_at_both_ends"),
    ("precision at the slope before rejection", "profile.py",
     "self.alpha(lam * rate) / rate", "self.alpha(lam) / rate",
     "test_profile.py::test_precision_is_k_fold_at_every_recall"),
    ("2 log 2 is dropped", "divergences.py",
     "-log1m_exp(xp, t) - 2 * log(2)", "-log1m_exp(xp, t)",
     "contracts/test_divergences.py::test_fenchel_equality"),
    # language
    ("weights that are not over pi", "language.py",
     "log_weight = np.maximum(score[index], threshold)", "log_weight = score[index]",
     "test_language.py::TestRollout::test_the_estimate_is_unbiased_for_the_whole_batch"),
    ("the lattice of tokens starts anew in each row", "language.py",
     "first[order] = start + (passed - count[order]) - np.concatenate([[0.0], end[:-1]])", "first[:] = start",
     "test_language.py::TestRollout::test_inclusion_probabilities_are_met_and_the_sure_are_always_kept"),
    ("the KL of all prompts, not their mean", "language.py",
     "return _kl(pi / keep, sizes[groups]) / len(sizes)", "return _kl(pi / keep, sizes[groups])",
     "test_language.py::TestTilt::test_the_kept_law_has_the_kl_that_was_asked_for"),
    # sampling
    ("the n-th kept is made again", "sampling/samples.py",
     "int(samples.ids[n - 1]) - start + 1", "int(samples.ids[n - 1]) - start",
     "sampling/test_rejection.py::test_a_run_stopped_anywhere_goes_on_where_it_was"),
    ("every batch has the same uniforms", "sampling/rejection.py",
     "accept(log_a, made.ids, seed=seed)", "accept(log_a, made.ids - made.ids[0], seed=seed)",
     "sampling/test_rejection.py::test_batch_size_does_not_matter"),
    ("the variance about 0, not about the mean", "sampling/samples.py",
     "(np.sum(y**2, axis=0) / size - mean**2)", "(np.sum(y**2, axis=0) / size)",
     "sampling/test_samples.py::test_formulas_by_hand"),
    ("the pilot is not judged", "sampling/rejection.py",
     "chain(made, run.make(end))", "run.make(end)",
     "sampling/test_rejection.py::test_a_run_goes_on_with_its_own_rule"),
    ("the second stage forgets the first", "stages.py",
     "np.where(possible, log_ratio, 0.0) + log_c, log_a)", "np.where(possible, log_ratio, 0.0) + log_c, 0.0)",
     "test_stages.py::test_the_cost_is_what_a_run_pays"),
    # rivals
    ("a chain that goes the other way", "rivals/mhgan.py",
     "np.minimum(new - current, 0.0)", "np.minimum(current - new, 0.0)",
     "rivals/test_mhgan.py::test_law_after_k_steps_is_that_of_the_transition_matrix"),
    ("noise of the size of the step", "rivals/refine.py",
     "(sqrt(self.step) if self.noise_std is None", "(self.step if self.noise_std is None",
     "rivals/test_refine.py::TestDDLS::test_draws_from_the_target_in_latent_space"),
    ("the T-th candidate may be rejected", "rivals/lars.py",
     "log_missed = (self.T - 1) *", "log_missed = self.T *",
     "rivals/test_lars.py::test_samples_follow_the_density"),
    # hard caps, split budgets, tuning
    ("blocks that are not pooled", "choice.py",
     "while starts and height[-1] * w >= b * width[-1]:", "while False:",
     "test_choice.py::test_no_law_that_choosing_can_have_covers_more_of_the_target"),
    ("a race among all proposals, not among those of the best block", "choice.py",
     "np.where(block == block.min(axis=1, keepdims=True), time, inf)", "time",
     "test_choice.py::test_atoms_are_blocks_of_their_own_or_together"),
    ("proposals go to what they improve least", "split.py",
     "np.argsort(-gain, axis=None", "np.argsort(gain, axis=None",
     "test_split.py::test_slsqp_finds_no_better_division"),
    ("a gain is confirmed by what it was chosen on", "tuning.py",
     "ids, half + ids)]", "ids, ids)]",
     "test_tuning.py::test_the_half_that_confirms_is_not_the_one_that_chose"),
    ("a fake is scored by the ratio that was fitted on it", "tuning.py",
     "(fold % 2 != i,", "(fold % 2 == i,",
     "test_tuning.py::test_fakes_that_are_there_are_scored_by_the_fold_that_did_not_see_them"),
    # files and databases
    ("the seed does not reach the keys", "files.py",
     "priority_key(log_ratio, id, seed=self.seed)", "priority_key(log_ratio, id, seed=0)",
     "test_sql.py::test_the_same_rows_of_a_million"),
    ("the last row that is kept is the first that is not", "_keys.py",
     "<= need[group]", "< need[group]",
     "test_keys.py::test_the_rows_below_the_threshold_are_those_of_a_sort"),
    ("weights of rows that were kept for sure", "files.py",
     "np.maximum(log_ratio, -end), np.sign", "log_ratio, np.sign",
     "test_files.py::test_weighted_sums_over_the_kept_rows_are_those_over_all"),
    ("scores that change in place go unnoticed", "files.py",
     "crc32(np.ascontiguousarray(rows.score).data)", "0",
     "test_files.py::test_scores_that_were_changed_in_place_are_noticed"),
    ("groups of parts are counted by their own numbers", "files.py",
     "group = np.array([labels[name] for name in names], np.int64)[codes]", "group = codes",
     "test_files.py::test_groups_have_thresholds_of_their_own"),
    ("the second key comes after the second turn", "sql.py",
     'word = _mix(f"xor({word}, {second}::UBIGINT)", steps)', 'word = f"xor({_mix(word, steps)}, {second}::UBIGINT)"',
     "test_sql.py::test_the_same_rows_of_a_million"),
    # ratios
    ("the prior with the wrong sign", "critics.py",
     "return x - log(check_positive", "return x + log(check_positive",
     "test_critics.py::test_a_classifier_on_unequal_numbers_has_the_prior_taken_out"),
    ("the doctor takes 1/r for r", "ratios/evidence.py",
     "log_fake = -np.logaddexp(0.0, scores + log(n / m))", "log_fake = -np.logaddexp(0.0, log(n / m) - scores)",
     "ratios/test_doctor.py::test_the_score_test_is_normal_and_counts_what_it_says"),
    ("p(y) / q(y) upside down", "ratios/evidence.py",
     "+ log(len(own) / len(fake)) - log(share)", "- log(len(own) / len(fake)) + log(share)",
     "ratios/test_doctor.py::test_class_means_are_the_quotients_of_the_shares"),
    # losses and steps
    ("1/K for K", "training/losses.py",
     "-torch.exp(-cut.log_rate) * of.dual", "-torch.exp(cut.log_rate) * of.dual",
     "training/test_losses.py::test_exact_loss_has_the_gradient_of_the_divergence_after_rejection"),
    ("<= for <: the largest ratio has a gradient", "budget.py",
     "~(log_ratio <= threshold)", "~(log_ratio < threshold)",
     "training/test_losses.py::test_the_exact_loss_has_no_gradient_beyond_exact_rejection"),
    ("the critic takes real for fake", "training/step.py",
     "zip((x, *y), (made, *z), strict=True)", "zip((made, *y), (x, *z), strict=True)",
     "training/test_step.py::test_a_critic_step_ascends_the_dual_bound_and_leaves_the_generator_alone"),
    # metrics
    ("covariances over n, not n - 1", "metrics/frechet.py",
     "scatter / (1 - float(w @ w) / total**2)", "scatter",
     "metrics/test_frechet.py::test_it_is_that_of_torchmetrics"),
    ("the second derivative at the sample, not of rows left out", "metrics/frechet.py",
     "(-np.log1p(-safe) - safe) / safe**2", "0.5 + 0 * safe",
     "metrics/test_frechet.py::test_excess_is_that_of_the_jackknife"),
    ("a row and itself are a pair", "metrics/kernel.py",
     "(among_fake - mass * own_fake) / pairs", "among_fake / pairs",
     "metrics/test_kernel.py::test_it_is_that_of_torchmetrics"),
    ("the radius is that of the next neighbour", "metrics/neighbours.py",
     "distance[:, k - 1]", "distance[:, k]",
     "metrics/test_neighbours.py::test_it_is_that_of_prdc_in_float64"),
    ("the constant does not move with the pool", "metrics/weightings.py",
     "mass[line, found.rows] * (unit - mean) + even[own] * mean", "mass[line, found.rows] * unit",
     "metrics/test_weightings.py::test_errors_know_that_constants_are_solved_for"),
)]
# fmt: on


class Watch:
    """What pytest says of the first test that fails."""

    test = reason = ""

    def pytest_sessionstart(self) -> None:
        """Let Hypothesis fail with the first example it finds: a smaller one takes longer and says no more here."""
        import hypothesis

        usual = hypothesis.settings.get_profile("fixed")
        quick = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile("first", usual, phases=quick)
        hypothesis.settings.load_profile("first")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.test:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.test, self.reason = report.nodeid.split("/")[-1], crash.message if crash else str(report.longrepr)


def run(tests: list[str], source: Path, said: Path, pipe) -> None:
    """In a process of its own, send the exit code of the tests on the library in `source`, and who failed."""
    sys.path.insert(0, str(source))
    os.environ["PYTHONPATH"] = str(source)
    with said.open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
        import obrs

        assert Path(obrs.__file__).is_relative_to(source), obrs.__file__
        watch = Watch()
        code = pytest.main(["-x", "-q", *tests], plugins=[watch])
        sys.stdout.flush()
    pipe.send((int(code), watch.test, watch.reason))


def ended(tests: list[str], source: Path, said: Path) -> tuple[int, str, str]:
    """Return what `run` sends, or -1 and why it did not."""
    here, there = FORK.Pipe(duplex=False)
    child = FORK.Process(target=run, args=(tests, source, said, there))
    child.start()
    there.close()
    try:
        found = here.recv() if here.poll(LONGEST) else (-1, "", f"no end within {LONGEST} seconds")
    except EOFError:
        found = (-1, "", f"the process died: {said.read_text()[-1000:]}")
    child.kill()  # it has nothing more to say
    child.join()
    return found


def tests_of(mutants: list[Mutant]) -> list[str]:
    return list(dict.fromkeys(f"tests/{mutant.test}" for mutant in mutants))


def verdict(mutant: Mutant, source: Path, said: Path) -> tuple[bool, str]:
    """Return whether a mutant was caught, and by what."""
    path = source / "obrs" / mutant.file
    text = path.read_text() if path.exists() else ""
    if (times := text.count(mutant.old)) != 1:
        return False, f"NO LONGER APPLIES: {mutant.old!r} is there {times} times"
    date = path.stat()
    path.write_text(text.replace(mutant.old, mutant.new))
    code, test, reason = ended(tests_of([mutant]), source, said)
    path.write_text(text)
    os.utime(path, ns=(date.st_atime_ns, date.st_mtime_ns))  # what was compiled of it is valid again
    if code == 1 and not reason.startswith(NO_CATCH):
        return True, f"caught by {test}"
    return False, f"SURVIVED {mutant.test}" if code == 0 else f"NOT TESTED, exit code {code}: {reason}"


def main(words: list[str]) -> int:
    chosen = [m for m in MUTANTS if not words or any(word in f"{m.file} {m.fault}" for word in words)]
    if not chosen:
        print(f"no file and no fault has one of the words {', '.join(words)}")
        return 1
    os.chdir(ROOT)
    with TemporaryDirectory() as folder:
        source, said = Path(folder) / "src", Path(folder) / "said"
        shutil.copytree(ROOT / "src", source)
        code, test, reason = ended(tests_of(chosen), source, said)
        if code:
            print(f"{said.read_text()[-4000:]}\nwithout a fault all tests must pass: {test}: {reason} (code {code})")
            return 1
        print(f"{used():5.1f} s  without a fault all tests pass", flush=True)
        sys.dont_write_bytecode = True  # two mutants of one second could be taken for each other
        caught = 0
        for mutant in chosen:
            before = used()
            good, what = verdict(mutant, source, said)
            caught += good
            print(f"{used() - before:5.1f} s  {mutant.file}: {mutant.fault}: {what}", flush=True)
    print(f"{caught} caught, {len(chosen) - caught} survived, in {used() / 60:.1f} CPU minutes")
    return int(caught < len(chosen))


def used() -> float:
    """Return the CPU seconds of all children so far."""
    times = resource.getrusage(resource.RUSAGE_CHILDREN)
    return times.ru_utime + times.ru_stime


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
