"""Rollouts on a budget and tilts of rewards, against independent routes."""

import json
import math

import numpy as np
import pytest

import obrs
from obrs.cli import main
from obrs.errors import InputError

torch = pytest.importorskip("torch")

B, T = 24, 7
LEVELS = ("sequence", "group", "token")


@pytest.fixture
def batch():
    """Log-probs of 24 sequences of up to 7 tokens, with a mask; what is masked is NaN."""
    rng = np.random.default_rng(0)
    sampled = -rng.exponential(size=(B, T))
    train = sampled + 0.5 * rng.normal(size=(B, T))
    mask = np.arange(T) < rng.integers(1, T + 1, size=(B, 1))
    return np.where(mask, train, np.nan), np.where(mask, sampled, np.nan), mask


@pytest.fixture
def log_ratio(batch):
    rows = zip(*batch, strict=True)
    return np.array([sum(a - b for a, b, m in zip(*row, strict=True) if m) for row in rows])


def z_score(estimates, truth):
    """How many standard errors the mean of estimates is off, at most, over their columns."""
    estimates = np.asarray(estimates, dtype=np.float64).reshape(len(estimates), -1)
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    return np.max(np.abs(estimates.mean(axis=0) - truth) / error)


def options_of(level, rows=B):
    return {"level": level} | ({"groups": np.arange(rows) // 6} if level == "group" else {})


class TestRollout:
    @pytest.mark.parametrize("normalise", ["batch", "none"])
    @pytest.mark.parametrize("level", LEVELS)
    def test_the_estimate_is_unbiased_for_the_whole_batch(self, batch, level, normalise):
        """With rows without a token and a sequence with r = 0."""
        train, sampled, mask = batch
        mask[6:12] = False
        train[19, 0] = -math.inf
        gap = np.where(mask, train - sampled, 0.0 if level != "token" else -math.inf)
        x = gap.reshape(-1) if level == "token" else np.where(mask.any(axis=1), gap.sum(axis=1), -math.inf)
        r, size = np.exp(x), mask.sum() if level == "token" else mask.any(axis=1).sum()
        f = np.stack([np.cos(np.arange(len(x))), np.arange(len(x)) / len(x), np.arange(len(x)) % 2], axis=1)
        estimates = []
        for seed in range(1000):
            pick = obrs.rollout(*batch, keep=0.3, seed=seed, normalise=normalise, **options_of(level))
            estimates.append(pick.weight @ f[pick.index])
        assert z_score(estimates, r @ f / (r.sum() if normalise == "batch" else size)) <= 3

    @pytest.mark.parametrize("choice", ["size", "size by group", "cost", "size and cost"])
    def test_rows_that_matter_are_kept_more_often_and_the_estimate_stays_unbiased(self, batch, log_ratio, choice):
        rng = np.random.default_rng(3)
        advantage = rng.normal(size=B) * (rng.random(B) < 0.7)
        f, r = rng.normal(size=(B, 12)) * advantage[:, None], np.exp(log_ratio)
        options = {"size": np.abs(advantage)} if "size" in choice else {}
        options |= {"cost": batch[2].sum(axis=1)} if "cost" in choice else {}
        options |= options_of("group") if "group" in choice else {}
        keep = 40 if "cost" in choice else 2 if "group" in choice else 6
        picks = [obrs.rollout(*batch, keep=keep, seed=seed, **options) for seed in range(3000)]
        assert z_score([pick.weight @ f[pick.index] for pick in picks], r @ f / r.sum()) <= 3
        for pick in picks[:50]:
            assert np.all(advantage[pick.index] != 0) or "size" not in options
            assert batch[2].sum(axis=1)[pick.index].sum() <= 40 or "cost" not in options
            assert 0 < pick.metrics["ess"] <= 1 + 1e-9

    def test_choosing_by_size_adds_less_error_than_by_the_ratio_alone(self, batch, log_ratio):
        rng = np.random.default_rng(0)
        advantage = rng.integers(0, 2, B) - 0.5 * rng.integers(0, 2, B)
        f, r = rng.normal(size=(B, 50)) * advantage[:, None], np.exp(log_ratio)
        error = {}
        for name, size in (("r", None), ("r size", np.abs(advantage))):
            picks = [obrs.rollout(*batch, keep=8, seed=seed, size=size) for seed in range(400)]
            error[name] = np.mean([np.sum((p.weight @ f[p.index] - r @ f / r.sum()) ** 2) for p in picks])
        assert error["r size"] < 0.75 * error["r"]

    @pytest.mark.parametrize("level", LEVELS)
    def test_inclusion_probabilities_are_met_and_the_sure_are_always_kept(self, batch, log_ratio, level):
        x, keep, options = log_ratio, 12, options_of(level)
        if level == "token":
            x, keep = np.where(batch[2], batch[0] - batch[1], -np.inf).reshape(-1), 50
        elif level == "group":
            keep = 3
        pi = obrs.selection.inclusion_probability(x, keep, groups=options.get("groups"))
        counts = np.zeros(len(x))
        for seed in range(1000):
            counts[obrs.rollout(*batch, keep=keep, seed=seed, **options).index] += 1
        assert (pi == 1).any()
        assert np.all(counts[pi == 1] == 1000)
        assert np.all(counts[pi == 0] == 0)
        free = (pi > 0) & (pi < 1)
        assert np.max(np.abs(counts / 1000 - pi)[free] / np.sqrt(pi * (1 - pi) / 1000)[free]) < 4

    def test_sequences_are_those_of_a_systematic_selection(self, batch, log_ratio):
        ids, groups = np.arange(B)[::-1] * 17, np.array(["long", "short", "b"])[np.arange(B) % 3]
        pick = obrs.rollout(*batch, keep=6, seed=5, ids=ids)
        assert pick.index.tolist() == obrs.select(log_ratio, 6, design="systematic", seed=5, ids=ids).tolist()
        pick = obrs.rollout(*batch, keep=2, level="group", groups=groups)
        assert pick.index.tolist() == obrs.select(log_ratio, 2, design="systematic", groups=groups).tolist()

    @pytest.mark.parametrize("shape", [(3, 20_000), (30_000, 2)])
    def test_many_tokens_are_kept_in_exact_number(self, shape):
        """In several blocks, of rows that are short or long."""
        x = 0.3 * np.random.default_rng(0).normal(size=shape).astype(np.float32)
        for keep in (7, 10_001):
            pick = obrs.rollout(x, np.zeros(shape), np.ones(shape), keep=keep, level="token")
            assert len(pick) == int(pick.mask.sum()) == keep
            pi = obrs.selection.inclusion_probability(x.reshape(-1).astype(np.float64), keep)
            assert pick.mask.reshape(-1)[pi == 1].all()
            share = np.exp(x.reshape(-1), dtype=np.float64)
            share /= share.sum()
            np.testing.assert_allclose(pick.weight * pi[pick.index], share[pick.index], rtol=1e-5)

    @pytest.mark.parametrize("level", LEVELS)
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
    def test_tensors_keep_what_arrays_keep(self, batch, level, dtype):
        """Also with a gradient, rows of any layout, masks of any dtype, and in half precision."""
        tensors = [torch.tensor(x).to(dtype) for x in batch[:2]]
        arrays = [x.double().numpy() if dtype == torch.float64 else x.float().numpy() for x in tensors]
        tensors[0] = tensors[0].T.contiguous().T.requires_grad_()
        plain = obrs.rollout(*arrays, batch[2], keep=0.25, **options_of(level))
        pick = obrs.rollout(*tensors, torch.tensor(batch[2]).long(), keep=0.25, **options_of(level))
        assert pick.index.tolist() == plain.index.tolist()
        assert pick.metrics == plain.metrics
        assert not pick.weight.requires_grad
        np.testing.assert_array_equal(pick.mask, plain.mask)
        np.testing.assert_array_equal(pick.log_weight, plain.log_weight)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        assert (pick.index.dtype, pick.mask.dtype, pick.log_weight.dtype) == (torch.int64, torch.bool, wide)

    @pytest.mark.parametrize("level", LEVELS)
    def test_with_ids_the_order_of_the_rows_does_not_matter(self, batch, level):
        ids, order, options = np.arange(B) * 17 + 3, np.random.default_rng(1).permutation(B), options_of(level)
        first = obrs.rollout(*batch, keep=0.25, seed=2, ids=ids, **options)
        moved = options | {name: x[order] for name, x in options.items() if name == "groups"}
        second = obrs.rollout(*(x[order] for x in batch), keep=0.25, seed=2, ids=ids[order], **moved)
        np.testing.assert_array_equal(first.mask[order], second.mask)
        other = obrs.rollout(*batch, keep=0.25, seed=3, ids=ids, **options)
        assert not np.array_equal(first.mask, other.mask)

    def test_metrics_are_those_of_the_profile_and_of_the_frameworks_formulas(self, batch, log_ratio):
        """TRL masks what exceeds 3, verl truncates at 2, its preset keeps a geometric mean in 0.999 to 1.001."""
        metrics, profile = obrs.rollout(*batch, keep=12).metrics, obrs.Profile(log_ratio)
        ratio, root = np.exp(log_ratio), np.exp(log_ratio / batch[2].sum(axis=1))
        expected = {"rate": 12 / B, "C": np.exp(-profile.log_c(2.0)), "ess": float(profile.ess(2.0))}
        expected |= {name: float(profile.divergence(name, 2.0)) for name in ("tv", "kl")}
        expected |= {"trl_dropped": np.mean(ratio > 3.0), "verl_truncated": np.mean(np.minimum(ratio, 2.0) < ratio)}
        expected |= {"log_total": np.log(ratio.sum())}
        expected |= {"verl_band_dropped": np.mean((root < 0.999) | (root > 1.001))}
        assert metrics == pytest.approx(expected)

    @pytest.mark.parametrize("level", LEVELS)
    def test_rows_without_a_token_count_in_nothing(self, batch, level):
        padded = [np.concatenate([x, np.full_like(x[:6], bool(i < 2) and np.nan)]) for i, x in enumerate(batch)]
        pick = obrs.rollout(*padded, keep=0.25, **options_of(level, B + 6))
        same = obrs.rollout(*batch, keep=0.25, **options_of(level))
        assert not pick.mask[B:].any()
        np.testing.assert_array_equal(pick.mask[:B], same.mask)
        assert pick.metrics == pytest.approx(same.metrics)

    def test_a_share_is_one_of_what_can_be_kept(self, batch):
        train, _, mask = batch
        groups = np.array(["a", "b", "c", "d"])[np.arange(B) // 6]
        mask[6:12] = False  # all of b
        mask[13:18] = False  # all but one of c
        train[19:24, 0] = -math.inf  # r = 0 for all but one of d
        for keep, n in ((1.0, [6, 0, 1, 1]), (0.5, [3, 0, 1, 1]), (0.01, [1, 0, 1, 1])):
            pick = obrs.rollout(*batch, keep=keep, level="group", groups=groups)
            assert [int(np.sum(groups[pick.index] == name)) for name in "abcd"] == n
            assert all(math.isfinite(value) for value in pick.metrics.values())
        assert [len(obrs.rollout(*batch, keep=keep)) for keep in (1.0, 0.5, 0.01, np.float64(0.25))] == [8, 6, 1, 3]
        with pytest.raises(InputError, match="mask must be True or 1"):
            obrs.rollout(train, train, np.where(mask, 0.5, 0.0), keep=0.5)


@pytest.fixture
def rewards():
    """Rewards of 5 prompts with 12 completions each."""
    rng = np.random.default_rng(5)
    return rng.normal(size=60).round(2), np.arange(60) % 5

    def test_ratios_at_the_end_of_floats_do_not_move_the_weights_of_others(self):
        """The least sequence has a probability with no digits left; c must not be read from it."""
        x = np.array([[0.0], [0.0], [-743.9]])
        np.testing.assert_allclose(obrs.rollout(x, 0 * x, np.ones_like(x), keep=1).weight, [1.0])


class TestTilt:
    @pytest.mark.parametrize("kl", [0.05, 0.4, 0.9])
    def test_the_kept_law_has_the_kl_that_was_asked_for(self, rewards, kl):
        reward, groups = rewards
        pick = obrs.tilt(reward, groups=groups, keep=3, kl=kl)
        pi = obrs.selection.inclusion_probability(reward / pick.metrics["beta"], 3, groups=groups)
        spent = [np.sum(pi[groups == g] / 3 * np.log(pi[groups == g] / 3 * 12)) for g in range(5)]
        assert np.mean(spent) == pytest.approx(kl, abs=1e-9)
        assert pick.metrics["kl"] == pytest.approx(kl, abs=1e-9)
        assert pick.metrics["reward"] == pytest.approx(np.sum(pi / 3 / 5 * reward))
        assert np.bincount(groups[pick.index]).tolist() == [3] * 5
        assert pick.mask.nonzero()[0].tolist() == pick.index.tolist()

    def test_no_law_with_this_kl_has_a_larger_reward(self, rewards):
        """Against the dual: max E[R] subject to KL <= k is min over beta of beta (k + mean log mean exp(R / beta))."""
        reward, groups = rewards
        metrics = obrs.tilt(reward, groups=groups, keep=3, kl=0.4).metrics
        by_prompt = np.stack([reward[groups == g] for g in range(5)])
        dual = min(
            b * (0.4 + np.mean(np.log(np.mean(np.exp(by_prompt / b), axis=1)))) for b in np.geomspace(0.05, 50, 4000)
        )
        assert metrics["best"] == pytest.approx(dual, abs=1e-5)
        assert 0 <= metrics["gap"] == pytest.approx(metrics["best"] - metrics["reward"])
        assert obrs.tilt(reward, groups=groups, keep=1, kl=0.5).metrics["gap"] == pytest.approx(0, abs=1e-9)

    def test_weights_make_the_kept_estimate_the_tilted_mean(self, rewards):
        reward, groups = rewards
        f, r = np.cos(np.arange(60)), np.exp(reward / 0.7)
        truth = np.mean([np.average(f[groups == g], weights=r[groups == g]) for g in range(5)])
        picks = [obrs.tilt(reward, groups=groups, keep=3, beta=0.7, seed=seed) for seed in range(800)]
        assert z_score([pick.weight @ f[pick.index] for pick in picks], truth) <= 3

    def test_a_budget_that_cannot_be_spent_gives_the_best_and_none_gives_chance(self, rewards):
        reward, groups = rewards
        reward = reward + np.arange(60) * 1e-6  # no ties
        pick = obrs.tilt(reward, groups=groups, keep=3, kl=50.0)
        best = {i for g in range(5) for i in sorted(np.flatnonzero(groups == g), key=lambda i: -reward[i])[:3]}
        assert set(pick.index.tolist()) == best
        assert pick.metrics["kl"] == pytest.approx(math.log(12 / 3))
        for values, kl in ((np.ones(60), 0.5), (reward, 0.0)):
            metrics = obrs.tilt(values, groups=groups, keep=3, kl=kl).metrics
            assert metrics["kl"] == pytest.approx(0, abs=1e-12)
            assert metrics["reward"] == pytest.approx(values.mean())

    def test_what_is_minus_infinity_is_never_kept(self):
        reward = np.array([-np.inf, 1.0, 0.5, -np.inf, 0.1])
        for seed in range(20):
            assert not {0, 3} & set(obrs.tilt(reward, keep=2, kl=0.3, seed=seed).index.tolist())


class TestSelectByReward:
    @pytest.fixture
    def file(self, tmp_path):
        rng = np.random.default_rng(6)
        rows = [{"prompt_id": f"p{i % 4}", "text": str(i), "reward": round(float(rng.normal()), 3)} for i in range(64)]
        path = tmp_path / "data.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        return path, rows

    def test_the_command_keeps_by_the_temperature_that_tilt_finds(self, file, tmp_path, capsys):
        path, rows = file
        command = ["select", str(path), "--kind", "reward", "--kl", "0.5", "--group", "prompt_id"]
        assert main([*command, "-n", "4", "--weights", "-o", str(tmp_path / "kept.jsonl")]) == 0
        kept = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
        reward, groups = np.array([row["reward"] for row in rows]), [row["prompt_id"] for row in rows]
        beta = obrs.tilt(reward, groups=groups, keep=4, kl=0.5).metrics["beta"]
        assert sorted(row["prompt_id"] for row in kept) == sorted(4 * sorted(set(groups)))
        left = [row["log_weight"] + np.log(row["inclusion_probability"]) for row in kept]
        np.testing.assert_allclose(left, [row["reward"] / beta for row in kept], rtol=1e-9)
        assert f"(1 in 4), beta {beta:.4g}, KL 0.5: " in capsys.readouterr().err
