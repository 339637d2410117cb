"""A fixed part of the adversary's cases, and each fault that it has found, by name.

`cd tests && python -m adversary` runs as many cases as one likes.
"""

import warnings

import numpy as np
import pytest

import obrs
from obrs import metrics
from obrs.errors import BudgetError, InputError, InputTypeError
from obrs.sampling.samples import Samples

torch = pytest.importorskip("torch")
pytest.importorskip("pyarrow")

from adversary.making import Maker  # noqa: E402
from adversary.rooms import ROOMS, SHARES  # noqa: E402
from adversary.running import run_case, run_room  # noqa: E402

CASES = {"evaluate": 15, "folders": 8, "looks": 40, "report": 8, "metrics": 150, "intervals": 60}


@pytest.mark.parametrize("room", ROOMS)
def test_cases_of_a_room_are_answered_rightly_or_refused(room):
    told, _ = run_room(room, range(CASES.get(room, 200)))
    assert set(told) == {door.__name__ for door in ROOMS[room]}
    assert sum(counts["answered"] for counts in told.values()) > 0  # not all may be refused


def test_a_case_is_made_from_its_number_alone():
    one, two, other = (Maker("groups", number).rng.random(3).tolist() for number in (7, 7, 8))
    assert one == two != other
    assert ROOMS.keys() == SHARES.keys()


def test_log_ratios_of_every_library_and_kind_are_made():
    pytest.importorskip("jax")
    made = []
    for number in range(1000):
        maker = Maker("groups", number)
        values = maker.log_ratio(3)
        made += [values.dtype.kind, type(maker.guise(values)).__module__.split(".")[0]]
    assert set(made) == {"f", "i", "u", "numpy", "torch", "jaxlib", "builtins"}


def test_the_adversary_sees_a_wrong_answer_a_warning_and_a_change(monkeypatch):
    def wrong(make):
        raise AssertionError

    def warned(make):
        warnings.warn("careless", RuntimeWarning, stacklevel=2)

    def changed(make):
        make.one = lambda *options: "plain"
        make.guise(np.zeros(3))[0] = 1.0

    for door, error in ((wrong, AssertionError), (warned, RuntimeWarning), (changed, AssertionError)):
        monkeypatch.setitem(ROOMS, "groups", [door])
        with pytest.raises(error):
            run_case("groups", 0)


# Faults that were found


def test_a_group_that_is_hardly_kept_adds_no_nan_to_a_plan():
    log_ratio = np.array([-750.0, 0.0, 1.0, 1.0, -5000.0])
    (row,) = obrs.Profile(log_ratio).plan([1e6], groups=[0, 0, 1, 1, 0], shares=[1.0, 1e300])
    assert not np.any(np.isnan([row[key] for key in ("kl", "rkl", "tv", "js", "chi2", "ess")]))


def test_a_label_that_is_a_dict_is_refused_also_where_it_is_the_only_one():
    with pytest.raises(InputTypeError, match="labels that can be sorted, such as integers or text, got dict"):
        obrs.Grouped.fit([0.0], 1, [{}], shares={"a": 1})
    with pytest.raises(InputTypeError, match="got dict"):
        obrs.select([0.0], 1, groups=[{}])


@pytest.mark.parametrize("n", [2**63, 10**30])
def test_a_number_beyond_64_bits_is_refused(n):
    for call in (
        lambda: obrs.select(np.zeros(3), n),
        lambda: obrs.select(np.zeros(3), {0: n}, groups=[0, 0, 0]),
    ):
        with pytest.raises(InputError, match=r"below 2\*\*63|a whole number"):
            call()


def test_costs_without_a_finite_sum_are_refused():
    with pytest.raises(InputError, match="from 0 to 1e290"):
        obrs.select(np.zeros(3), 1, design="priority", cost=[1e308, 1e308, 1.0])


def kept_with(log_weight):
    n = len(log_weight)
    weight = np.asarray(log_weight, dtype=np.float64)
    return Samples(np.zeros((n, 1)), np.arange(n), np.zeros(n), weight, n, n, next_id=n, fixed="proposals")


def test_averages_do_not_depend_on_the_scale_of_the_weights():
    kept = kept_with([5000.0, 0.0, 1.0])
    assert kept.mean(lambda x: x[:, 0] + 2.0) == 2.0
    assert kept_with([1e5, -1e5]).ess == 1.0


def test_a_broken_file_of_samples_is_refused_and_closed(tmp_path):
    path = tmp_path / "kept.npz"
    kept_with([0.0, 0.0]).save(path)
    content = path.read_bytes()
    assert len(Samples.load(path)) == 2
    for broken in (b"", b"text", content[: len(content) // 2], content[:-1], b"PK\x03\x04"):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"was not written by Samples\.save"):
            Samples.load(path)
    np.savez(path, other=np.zeros(3))
    with pytest.raises(InputError, match=r"was not written by Samples\.save"):
        Samples.load(path)


def test_a_log_ratio_or_groups_that_is_no_function_is_refused():
    def propose(ids):
        return obrs.normals(ids, 1, seed=0)

    with pytest.raises(InputTypeError, match="log_ratio must be a function"):
        obrs.sample(propose, None, 3, budget=2)
    with pytest.raises(InputTypeError, match="groups must be a function"):
        obrs.sample(propose, lambda x: x[:, 0], 3, budget=2, groups=[0, 1])


POINTS = np.random.default_rng(0).normal(size=(2, 30, 2))


def test_features_too_large_to_be_squared_are_refused():
    for metric in (metrics.kernel, metrics.frechet, metrics.neighbours):
        with pytest.raises(InputError, match=r"fake has values beyond 1e.12"):
            metric(real=POINTS[0], fake=1e200 * POINTS[1])


def test_a_pool_that_rests_on_one_row_is_extrapolated_to_a_number():
    weights = np.full(30, 1e-200)
    weights[:2] = 1.0
    assert np.isfinite(metrics.frechet_curve(real=POINTS[0], fake=POINTS[1], weights=weights[None]).value).all()


def test_labels_of_an_evaluation_that_cannot_be_sorted_are_refused():
    with pytest.raises(InputTypeError, match="labels of one kind"):
        obrs.evaluate(real=POINTS[0], fake=POINTS[1], log_ratio=np.zeros(30), groups=[None] * 30)


def test_rows_and_features_that_are_no_arrays_are_refused():
    with pytest.raises(InputTypeError, match="rows must be an array"):
        metrics.row_hashes([[1], [1, 2]])
    with pytest.raises(InputTypeError, match="features must return an array"):
        metrics.extract(np.zeros((2, 8, 8), np.uint8), lambda x: "a", keep=False)
    assert len(metrics.row_hashes(np.array([[1e300]]))) == 1


def test_a_budget_that_keeps_no_row_of_a_folder_is_refused(tmp_path):
    (tmp_path / "scores").mkdir()
    (tmp_path / "scores" / "a.csv").write_text("id,log_ratio\n1,0\n2,1\n")
    with pytest.raises(InputError, match="nothing would be kept of 2"):
        obrs.files.select(tmp_path / "scores", budget=4, id="id", out=tmp_path / "kept", progress=False)
    for where in (None, 3):
        with pytest.raises(InputTypeError, match="files must be a folder"):
            obrs.files.select(where, 1, out=tmp_path / "kept")
    for n in (1.5, [2], "x"):
        with pytest.raises(InputError, match="n must be a whole number"):
            obrs.files.select(tmp_path / "scores", n, out=tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_sparse_log_probs_and_ids_that_are_text_are_refused():
    x = torch.zeros(3, 2)
    with pytest.raises(InputTypeError, match="dense"):
        obrs.rollout(x.to_sparse(), x, x + 1, keep=1)
    with pytest.raises(InputTypeError, match="ids must be integers"):
        obrs.rollout(x, x, x + 1, keep=1, ids=["a", "b", "c"])


def test_metrics_of_a_rollout_are_numbers_where_one_sequence_is_left():
    train, mask = torch.tensor([[0.0], [-1e5]]), torch.tensor([[False], [True]])
    pick = obrs.rollout(train, torch.zeros(2, 1), mask, keep=1)
    assert not any(np.isnan(value) for value in pick.metrics.values())
    assert float(pick.metrics["ess"]) == pytest.approx(1)


def test_a_prompt_of_which_nothing_can_be_kept_is_refused_at_any_beta():
    with pytest.raises(InputError, match="only 0 have r > 0"):
        obrs.tilt([-np.inf, -np.inf, 1.0, 2.0], groups=["a", "a", "b", "b"], keep=1, beta=1.0)


def test_a_report_of_scores_far_from_0_is_written_and_a_page_without_a_name_is_refused(tmp_path):
    assert obrs.report(np.full(5, -1e5), out=tmp_path / "page.html").exists()
    for out in (None, 3):
        with pytest.raises(InputTypeError, match="a page is written to a file"):
            obrs.report(np.zeros(5), out=out)
    kept = kept_with([0.0, np.inf])
    with pytest.raises(InputError, match="without a log-ratio for each"):
        obrs.report(Samples(**{**vars(kept), "log_ratio": np.array([0.0, np.inf])}), out=tmp_path / "other.html")
    with pytest.raises(BudgetError):
        obrs.report(np.zeros(5), out=tmp_path / "other.html", budget=0.5)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
