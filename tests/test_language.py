"""Rollouts on a budget, brackets of token rates and tilts of rewards, against independent routes."""

import itertools
import json
import math
import subprocess
import sys

import numpy as np
import pytest

import obrs
from obrs import language
from obrs.cli import main
from obrs.errors import BudgetError, InputError, InputTypeError, RatioError, UnknownNameError

torch = pytest.importorskip("torch")

B, T = 24, 7


@pytest.fixture
def batch():
    """Log-probs of 24 sequences of up to 7 tokens, with a mask; what is masked is NaN."""
    rng = np.random.default_rng(0)
    sampled = -rng.exponential(size=(B, T))
    train = sampled + 0.5 * rng.normal(size=(B, T))
    mask = np.arange(T) < rng.integers(1, T + 1, size=(B, 1))
    train, sampled = (torch.tensor(np.where(mask, x, np.nan)) for x in (train, sampled))
    return train, sampled, torch.tensor(mask)


@pytest.fixture
def log_ratio(batch):
    train, sampled, mask = (x.numpy() for x in batch)
    return np.array(
        [sum(a - b for a, b, m in zip(*row, strict=True) if m) for row in zip(train, sampled, mask, strict=True)]
    )


def standard_errors(estimates, truth):
    """How many standard errors the mean of estimates is off, at most, over their columns."""
    estimates = np.asarray(estimates, dtype=np.float64)
    error = estimates.std(axis=0, ddof=1) / np.sqrt(len(estimates))
    return np.max(np.abs(estimates.mean(axis=0) - truth) / error)


class TestRollout:
    def test_exactly_so_many_are_kept(self, batch):
        for keep, n in ((0.25, 6), (1, 1), (24, 24), (0.001, 1), (1.0, 24), (np.float64(0.5), 12)):
            pick = obrs.rollout(*batch, keep=keep)
            assert pick.index.tolist() == sorted(set(pick.index.tolist()))
            assert len(pick.index) == len(pick.weight) == n
            assert pick.mask[pick.index].equal(batch[2][pick.index])
            assert int(pick.mask.sum()) == int(batch[2][pick.index].sum())

    def test_a_pick_prints_in_two_lines(self, batch):
        pick = obrs.rollout(*batch, keep=6)
        first, second = str(pick).splitlines()
        assert first == "Pick(6 kept, mask of shape (24, 7)"
        assert second.startswith("     rate 0.25, C ")
        tilted = obrs.tilt(np.arange(40.0), groups=np.arange(40) // 8, keep=2, kl=0.5)
        assert str(tilted).startswith("Pick(10 kept, mask of shape (40,)\n     beta ")

    @pytest.mark.parametrize("normalise", ["batch", "none"])
    def test_the_estimate_is_unbiased_for_the_whole_batch(self, batch, log_ratio, normalise):
        r = np.exp(log_ratio)
        f = np.stack([np.cos(np.arange(B)), np.arange(B) / B, np.arange(B) % 2], axis=1)
        truth = r @ f / (r.sum() if normalise == "batch" else B)
        estimates = []
        for seed in range(1000):
            pick = obrs.rollout(*batch, keep=5, seed=seed, normalise=normalise)
            estimates.append(pick.weight.numpy() @ f[pick.index])
        assert standard_errors(estimates, truth) < 4

    def test_inclusion_probabilities_are_met_and_the_sure_are_always_kept(self, batch, log_ratio):
        pi = obrs.inclusion_probability(log_ratio, 12)
        counts = np.zeros(B)
        for seed in range(2000):
            counts[obrs.rollout(*batch, keep=12, seed=seed).index] += 1
        assert (pi == 1).any()
        assert np.all(counts[pi == 1] == 2000)
        free = (pi > 0) & (pi < 1)
        error = np.sqrt(pi * (1 - pi) / 2000)[free]
        assert np.max(np.abs(counts / 2000 - pi)[free] / error) < 4

    def test_weights_are_ratios_over_probabilities(self, batch, log_ratio):
        pick = obrs.rollout(*batch, keep=12)
        pi, r = obrs.inclusion_probability(log_ratio, 12), np.exp(log_ratio)
        np.testing.assert_allclose(pick.weight, (r / pi / r.sum())[pick.index], rtol=1e-12)
        plain = obrs.rollout(*batch, keep=12, normalise="none")
        np.testing.assert_allclose(plain.weight, (r / pi / B)[pick.index], rtol=1e-12)

    def test_keeping_all_gives_the_self_normalised_weights(self, batch, log_ratio):
        pick = obrs.rollout(*batch, keep=1.0)
        np.testing.assert_allclose(pick.weight, np.exp(log_ratio) / np.exp(log_ratio).sum(), rtol=1e-12)

    def test_truncated_importance_sampling_is_the_expected_mask(self, batch, log_ratio):
        pick = obrs.rollout(*batch, keep=12)
        c = 1 / float(pick.metrics["C"])
        np.testing.assert_allclose(obrs.inclusion_probability(log_ratio, 12), np.minimum(c * np.exp(log_ratio), 1))

    def test_the_gradient_of_the_kept_is_on_average_that_of_the_batch(self, batch, log_ratio):
        """With respect to a shift of the policy, against finite differences of the self-normalised objective."""
        train, mask = batch[0].numpy(), batch[2].numpy()
        direction = np.sin(np.arange(B * T)).reshape(B, T) * mask
        reward = np.cos(np.arange(B))
        weight = np.exp(log_ratio) / np.exp(log_ratio).sum()

        def objective(step):
            return np.sum(weight * reward * np.nansum(np.where(mask, train + step * direction, 0.0), axis=1))

        slope = (objective(1e-4) - objective(-1e-4)) / 2e-4
        estimates = []
        for seed in range(800):
            step = torch.zeros((), dtype=torch.float64, requires_grad=True)
            moved = torch.where(batch[2], batch[0], 0.0) + step * torch.tensor(direction)
            pick = obrs.rollout(moved, *batch[1:], keep=6, seed=seed)
            assert not pick.weight.requires_grad
            logp = (moved * batch[2]).sum(dim=1)[pick.index]
            (pick.weight * torch.tensor(reward)[pick.index] * logp).sum().backward()
            estimates.append([float(step.grad)])
        assert standard_errors(estimates, slope) < 4

    def test_tokens_are_kept_by_their_own_ratios(self, batch):
        train, sampled, mask = batch
        x = torch.where(mask, train - sampled, -torch.inf).float().flatten().numpy()
        pi, r = obrs.inclusion_probability(x, 20), np.exp(x.astype(np.float64))
        f = np.cos(np.arange(x.size))
        counts, estimates = np.zeros(x.size), []
        for seed in range(1500):
            pick = obrs.rollout(*batch, keep=20, level="token", seed=seed)
            assert pick.mask.flatten().nonzero()[:, 0].equal(pick.index)
            counts[pick.index] += 1
            estimates.append([float(pick.weight.double().numpy() @ f[pick.index])])
        free = (pi > 0) & (pi < 1)
        assert np.max(np.abs(counts / 1500 - pi)[free] / np.sqrt(pi * (1 - pi) / 1500)[free]) < 4
        assert np.all(counts[pi == 1] == 1500)
        assert np.all(counts[~mask.flatten().numpy()] == 0)
        assert standard_errors(estimates, r @ f / r.sum()) < 4

    @pytest.mark.parametrize("shape", [(3, 200_000), (600, 700)])
    def test_many_tokens_are_kept_in_exact_number(self, shape):
        """In several blocks; what rounding lacks is spread."""
        x = 0.3 * torch.randn(shape, generator=torch.Generator().manual_seed(0))
        for keep in (7, 100_001):
            pick = obrs.rollout(x, torch.zeros(shape), torch.ones(shape), keep=keep, level="token")
            assert len(pick.index) == int(pick.mask.sum()) == keep
            pi = obrs.inclusion_probability(x.flatten().double(), keep)
            assert bool(pick.mask.flatten()[pi == 1].all())
            share = torch.softmax(x.flatten().double(), dim=0)
            np.testing.assert_allclose(pick.weight.double() * pi[pick.index], share[pick.index], rtol=1e-5)

    def test_every_group_keeps_its_number_with_its_own_constant(self, batch, log_ratio):
        groups = np.array(["long", "short", "b"])[np.arange(B) % 3]
        r, f, estimates = np.exp(log_ratio), np.cos(np.arange(B)), []
        for seed in range(1000):
            pick = obrs.rollout(*batch, keep=2, level="group", groups=groups, seed=seed)
            assert {name: int(np.sum(groups[pick.index] == name)) for name in set(groups)} == dict.fromkeys(groups, 2)
            estimates.append([float(pick.weight.numpy() @ f[pick.index])])
        assert standard_errors(estimates, r @ f / r.sum()) < 4
        share = obrs.rollout(*batch, keep=0.25, level="group", groups=torch.arange(B) % 3)
        assert len(share.index) == 6

    def test_what_is_kept_depends_on_seed_and_ids_alone(self, batch):
        ids = np.arange(B) * 17 + 3
        picks = {seed: set(ids[obrs.rollout(*batch, keep=6, seed=seed, ids=ids).index]) for seed in range(4)}
        assert len({frozenset(kept) for kept in picks.values()}) > 1
        order = np.random.default_rng(1).permutation(B)
        for level in ("sequence", "group"):
            groups = {"groups": np.arange(B) % 2} if level == "group" else {}
            first = obrs.rollout(*batch, keep=6, seed=2, ids=ids, level=level, **groups)
            moved = {name: x[order] for name, x in groups.items()}
            second = obrs.rollout(*(x[order] for x in batch), keep=6, seed=2, ids=ids[order], level=level, **moved)
            assert set(ids[first.index]) == set(ids[order][second.index])
        assert obrs.rollout(*batch, keep=6, seed=2**64 - 1).index.shape == (6,)

    def test_metrics_are_those_of_the_profile(self, batch, log_ratio):
        metrics = obrs.rollout(*batch, keep=12).metrics
        profile = obrs.Profile(log_ratio)
        assert float(metrics["rate"]) == pytest.approx(12 / B)
        assert float(metrics["ess"]) == pytest.approx(float(profile.ess(2.0)))
        assert float(metrics["tv"]) == pytest.approx(float(profile.divergence("tv", 2.0)))
        assert float(metrics["kl"]) == pytest.approx(float(profile.divergence("kl", 2.0)))

    def test_frameworks_masks_are_those_of_their_formulas(self, batch, log_ratio):
        """TRL masks what exceeds 3, verl truncates at 2, its preset keeps a geometric mean in 0.999 to 1.001."""
        metrics = obrs.rollout(*batch, keep=8).metrics
        ratio, length = np.exp(log_ratio), batch[2].sum(dim=1).numpy()
        assert float(metrics["trl_dropped"]) == pytest.approx(np.mean(ratio > 3.0))
        assert float(metrics["verl_truncated"]) == pytest.approx(np.mean(np.minimum(ratio, 2.0) < ratio))
        geometric = np.exp(log_ratio / length)
        assert float(metrics["verl_band_dropped"]) == pytest.approx(np.mean((geometric < 0.999) | (geometric > 1.001)))

    def test_geometric_ratios_are_the_roots_of_the_products(self, batch, log_ratio):
        pick = obrs.rollout(*batch, keep=1.0, ratio="geometric")
        r = np.exp(log_ratio / batch[2].sum(dim=1).numpy())
        np.testing.assert_allclose(pick.weight, r / r.sum(), rtol=1e-12)

    def test_rows_without_a_token_count_in_nothing(self, batch):
        train, sampled, mask = (torch.cat([x, torch.zeros_like(x[:4])]) for x in batch)
        train[B:] = math.nan
        for level in ("sequence", "token"):
            pick = obrs.rollout(train, sampled, mask, keep=6, level=level, ids=np.arange(B + 4))
            same = obrs.rollout(*batch, keep=6, level=level)
            assert int(pick.mask[B:].sum()) == 0
            for name in ("ess", "tv", "C", "trl_dropped", "verl_band_dropped", "rate"):
                assert float(pick.metrics[name]) == pytest.approx(float(same.metrics[name])), name

    def test_a_share_is_one_of_the_rows_with_a_token(self, batch):
        for keep, filled, n in ((1.0, 23, 23), (0.25, 8, 2), (0.5, 3, 2), (0.01, 3, 1), (0.25, 24, 6)):
            train, sampled, mask = (x.clone() for x in batch)
            mask[filled:] = False
            pick = obrs.rollout(train, sampled, mask, keep=keep)
            assert len(pick.index) == n
            assert int(pick.index.max()) < filled
            assert float(pick.metrics["rate"]) == pytest.approx(n / filled)
            tokens = obrs.rollout(train, sampled, mask, keep=keep, level="token")
            assert len(tokens.index) == max(1, round(keep * int(mask.sum())))

    @pytest.mark.parametrize("level", ["sequence", "group", "token"])
    def test_a_share_keeps_at_most_what_can_be_kept(self, batch, level):
        train, sampled, mask = batch
        train[4:] = -math.inf
        groups = {"groups": np.zeros(B)} if level == "group" else {}
        pick = obrs.rollout(train, sampled, mask, keep=0.5, level=level, **groups)
        possible = mask & (train > -math.inf)
        assert pick.index.equal((possible.flatten() if level == "token" else possible.any(dim=1)).nonzero()[:, 0])
        assert float(pick.weight.sum()) == pytest.approx(1)
        assert all(torch.as_tensor(x).isfinite() for x in pick.metrics.values())

    def test_a_group_without_a_token_keeps_nothing_and_the_others_go_on(self, batch):
        train, sampled, mask = batch
        groups = np.array(["a", "b", "c", "d"])[np.arange(B) // 6]
        mask[6:12] = False  # all of b
        mask[13:18] = False  # all but one of c
        train[19:24, 0] = -math.inf  # r = 0 for all but one of d
        for keep, n in ((1.0, [6, 0, 1, 1]), (0.5, [3, 0, 1, 1]), (0.01, [1, 0, 1, 1])):
            pick = obrs.rollout(train, sampled, mask, keep=keep, level="group", groups=groups)
            assert [int(np.sum(groups[pick.index] == name)) for name in "abcd"] == n
            assert all(torch.as_tensor(x).isfinite() for x in pick.metrics.values())

    @pytest.mark.parametrize("level", ["sequence", "group", "token"])
    def test_with_padding_a_share_estimates_the_whole_batch(self, batch, level):
        train, sampled, mask = batch
        mask[6:12] = False
        train[19, 0] = -math.inf
        groups = {"groups": np.arange(B) // 6} if level == "group" else {}
        x = torch.where(mask, train - sampled, -math.inf if level == "token" else 0.0).double()
        x = x.flatten() if level == "token" else torch.where(mask.any(dim=1), x.sum(dim=1), -math.inf)
        f = torch.cos(torch.arange(len(x), dtype=torch.float64))
        estimates = []
        for seed in range(1000):
            pick = obrs.rollout(train, sampled, mask, keep=0.3, level=level, seed=seed, **groups)
            estimates.append([float(pick.weight.double() @ f[pick.index])])
        assert standard_errors(estimates, float(torch.softmax(x, dim=0) @ f)) < 4

    def test_an_impossible_sequence_is_never_kept_and_weighs_nothing(self, batch):
        batch[0][3, 0] = -math.inf
        for seed in range(50):
            pick = obrs.rollout(*batch, keep=12, seed=seed)
            assert 3 not in pick.index.tolist()
            assert pick.weight.isfinite().all()
            assert all(torch.as_tensor(x).isfinite() for x in pick.metrics.values())

    def test_log_ratios_may_span_thousands(self):
        train = torch.tensor([[-3000.0], [0.0], [-1.0], [-5000.0]])
        pick = obrs.rollout(train, torch.zeros(4, 1) - 700.0, torch.ones(4, 1), keep=2)
        assert pick.index.tolist() == [1, 2]
        np.testing.assert_allclose(pick.weight, [1 / (1 + math.exp(-1)), 1 / (1 + math.e)], rtol=1e-5)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_weights_are_at_least_float32_and_masks_of_any_dtype(self, batch, dtype):
        train, sampled, mask = batch
        for kind in (torch.bool, torch.int64, torch.float32):
            pick = obrs.rollout(train.to(dtype), sampled.to(dtype), mask.to(kind), keep=3)
            assert pick.weight.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
            assert pick.mask.dtype == torch.bool

    @pytest.mark.parametrize(("level", "keep"), [("sequence", 0.25), ("token", 0.25), ("group", 0.5)])
    def test_compiled_it_keeps_the_same(self, batch, level, keep):
        groups = {"groups": torch.arange(B) % 3} if level == "group" else {}

        def step(train, sampled, mask, seed):
            return obrs.rollout(train, sampled, mask, keep=keep, level=level, seed=seed, **groups)

        compiled = torch.compile(step, backend="aot_eager")
        batch[2][B // 2 :: 3] = False
        for seed in (0, 7):
            batch[2][seed] = False  # a share is then of fewer rows
            plain, same = step(*batch, seed), compiled(*batch, seed)
            assert plain.index.equal(same.index)
            assert plain.mask.equal(same.mask)
            assert torch.allclose(plain.weight, same.weight)
            assert plain.metrics.keys() == same.metrics.keys()


class TestBadRollouts:
    @pytest.mark.parametrize(
        ("change", "error", "says"),
        [
            ({"keep": 0}, InputError, "cannot keep 0 of 24 sequences"),
            ({"keep": 25}, InputError, "cannot keep 25 of 24 sequences"),
            ({"keep": 1.5}, InputError, "share above 0 and at most 1"),
            ({"keep": math.nan}, InputError, "share above 0"),
            ({"keep": True}, InputTypeError, "a share"),
            ({"keep": "all"}, InputTypeError, "a share"),
            ({"level": "word"}, UnknownNameError, "unknown level 'word'"),
            ({"normalise": "mean"}, UnknownNameError, "unknown normalise"),
            ({"ratio": "mean"}, UnknownNameError, "unknown ratio"),
            ({"level": "group"}, InputError, "give both, or neither"),
            ({"groups": np.zeros(B)}, InputError, "give both, or neither"),
            ({"level": "group", "groups": np.zeros(3)}, InputError, "shape"),
            ({"level": "group", "groups": np.arange(B) % 12, "keep": 3}, InputError, "3 of 2 sequences of group 0"),
            ({"level": "token", "ratio": "geometric"}, InputError, "for sequences"),
            ({"level": "token", "keep": 10**6}, InputError, "cannot keep 1000000 of"),
            ({"seed": -1}, InputError, "seed must be"),
            ({"seed": 0.5}, InputError, "seed must be"),
            ({"ids": np.arange(3)}, InputError, "ids must be 24 whole numbers"),
            ({"ids": np.zeros(B)}, InputError, "ids must be 24 whole numbers"),
        ],
    )  # fmt: skip
    def test_a_wrong_option_is_told_in_one_line(self, batch, change, error, says):
        with pytest.raises(error, match=says) as told:
            obrs.rollout(*batch, **{"keep": 4} | change)
        assert "\n" not in str(told.value)

    @pytest.mark.parametrize("level", ["sequence", "token"])
    def test_nan_and_impossible_samples_are_told(self, batch, level):
        train, sampled, mask = batch
        for at, value in ((train, math.nan), (sampled, -math.inf)):
            before = at[0, 0].clone()
            at[0, 0] = value
            with pytest.raises(RatioError, match=r"NaN or \+inf in 1 of"):
                obrs.rollout(train, sampled, mask, keep=4, level=level)
            at[0, 0] = before

    def test_too_few_candidates_are_told(self, batch):
        train, sampled, mask = batch
        train[:22] = -math.inf
        with pytest.raises(InputError, match="cannot keep 4 of 24 sequences: only 2 have a token and r > 0"):
            obrs.rollout(train, sampled, mask, keep=4)
        with pytest.raises(InputError, match=r"cannot keep 17 of 168 tokens: only \d+ are unmasked and have r > 0"):
            obrs.rollout(train, sampled, mask, keep=17, level="token")
        groups = np.array(["a", "b"])[np.arange(B) // 12]
        with pytest.raises(InputError, match="cannot keep 4 of 12 sequences of group 'a': only 0 have a token"):
            obrs.rollout(train, sampled, mask, keep=4, level="group", groups=groups)

    @pytest.mark.parametrize("keep", [4, 0.25, 1.0])
    @pytest.mark.parametrize("level", ["sequence", "group", "token"])
    def test_a_batch_of_which_nothing_can_be_kept_is_told_in_one_line(self, batch, level, keep):
        train, sampled, mask = batch
        groups = {"groups": np.arange(B) % 2} if level == "group" else {}
        impossible = torch.full_like(train, -math.inf), sampled, mask
        for wrong in ((train, sampled, torch.zeros_like(mask)), impossible):
            with pytest.raises(InputError, match=r"nothing can be kept|cannot keep 4 of 12 seq.*only 0 have") as told:
                obrs.rollout(*wrong, keep=keep, level=level, **groups)
            assert "\n" not in str(told.value)

    def test_wrong_tensors_are_told(self, batch):
        train, sampled, mask = batch
        for wrong, error in (
            ((train.numpy(), sampled, mask), InputTypeError),
            ((train.long(), sampled, mask), InputTypeError),
            ((train[:, 0], sampled, mask), InputError),
            ((train, sampled[:3], mask), InputError),
            ((train[:0], sampled[:0], mask[:0]), InputError),
        ):
            with pytest.raises(error):
                obrs.rollout(*wrong, keep=1)


def laws(vocabulary, rows, seed=0):
    """Two laws over a small vocabulary, as log-probs."""
    made = np.random.default_rng(seed).normal(size=(2, rows, vocabulary)) * 2
    return (torch.log_softmax(torch.tensor(x), dim=-1) for x in made)


class TestTokenRate:
    @pytest.mark.parametrize("log_c", [-1.0, 0.0, 1.5])
    @pytest.mark.parametrize("k", [1, 3, 9])
    def test_the_bracket_holds_the_sum_over_the_vocabulary(self, k, log_c):
        p, q = laws(9, 200)
        whole = torch.minimum(q, p + log_c).exp().sum(dim=-1)
        top, ids = q.topk(k, dim=-1)
        loose = obrs.token_rate(top, p.gather(-1, ids), log_c)
        tight = obrs.token_rate(top, p, log_c, ids=ids)
        for found in (loose, tight):
            assert torch.all(found.low <= whole + 1e-12)
            assert torch.all(whole <= found.high + 1e-12)
            assert torch.allclose(found.width, found.high - found.low)
            assert torch.all(found.missing == 0)
        assert torch.all(tight.high <= loose.high + 1e-12)
        if k == 9:
            assert float(tight.width.max()) == pytest.approx(0, abs=1e-12)

    def test_the_upper_end_is_the_formula_by_brute_force(self):
        p, q = laws(6, 20, seed=1)
        top, ids = q.topk(2, dim=-1)
        found = obrs.token_rate(top, p, 0.3, ids=ids)
        for row in range(20):
            inside = set(ids[row].tolist())
            c, smallest = math.exp(0.3), float(top[row].exp().min())
            stored = sum(min(float(q[row, t].exp()), c * float(p[row, t].exp())) for t in inside)
            rest = sum(min(smallest, c * float(p[row, t].exp())) for t in range(6) if t not in inside)
            beyond = 1 - sum(float(q[row, t].exp()) for t in inside)
            assert float(found.high[row]) == pytest.approx(stored + min(beyond, rest))

    def test_the_single_sample_term_is_unbiased(self):
        """Its mean over all tokens, weighted by their probability, is the rate."""
        p, q = laws(8, 30, seed=2)
        top, ids = q.topk(3, dim=-1)
        mean = torch.zeros(30, dtype=torch.float64)
        for token in range(8):
            sampled = (q[:, token], p[:, token])
            mean += q[:, token].exp() * obrs.token_rate(top, p.gather(-1, ids), 0.2, sampled=sampled).estimate
        assert torch.allclose(mean, torch.minimum(q, p + 0.2).exp().sum(dim=-1))

    def test_truncated_sampling_has_an_exact_rate_and_a_support_bias(self):
        p, q = laws(8, 30, seed=3)
        top, ids = q.topk(5, dim=-1)
        stored = p.gather(-1, ids)
        for options in ({"top_k": 2}, {"top_p": 0.6}, {"top_k": 4, "top_p": 0.7}):
            found = obrs.token_rate(top, stored, 0.0, **options)
            for row in range(30):
                support, reached = [], 0.0
                raw = top[row].exp().tolist()[: options.get("top_k", 5)]
                whole = sum(raw) if "top_k" in options else 1.0
                for place, mass in enumerate(raw):
                    if reached >= options.get("top_p", 1.0) * whole:
                        break
                    support.append(place)
                    reached += mass
                if "top_k" not in options and reached < options["top_p"]:
                    continue  # more tokens than are stored: the bracket is open, see below
                law = [raw[place] / reached for place in support]
                rate = sum(min(a, float(stored[row, place].exp())) for a, place in zip(law, support, strict=True))
                assert float(found.low[row]) == pytest.approx(rate)
                assert float(found.width[row]) == pytest.approx(0, abs=1e-12)
                assert float(found.missing[row]) == pytest.approx(1 - float(stored[row, support].exp().sum()))

    def test_what_the_engine_has_truncated_itself_needs_no_option(self):
        q = torch.tensor([0.6, 0.4, 0.0]).log()
        p = torch.tensor([0.3, 0.3, 0.2]).log()
        found = obrs.token_rate(q, p, 0.0)
        assert (float(found.low), float(found.width)) == (pytest.approx(0.6), 0.0)
        assert float(found.missing) == pytest.approx(0.4)

    def test_a_nucleus_larger_than_what_is_stored_is_bracketed(self):
        p, q = laws(12, 300, seed=4)
        order = q.argsort(dim=-1, descending=True)
        mass = q.exp().gather(-1, order)
        inside = mass.cumsum(dim=-1) - mass < 0.9
        nucleus = torch.where(inside, mass, 0.0) / torch.where(inside, mass, 0.0).sum(dim=-1, keepdim=True)
        rate = torch.minimum(nucleus, p.exp().gather(-1, order)).sum(dim=-1)
        top, ids = q.topk(3, dim=-1)
        for found in (
            obrs.token_rate(top, p.gather(-1, ids), 0.0, top_p=0.9),
            obrs.token_rate(top, p, 0.0, ids=ids, top_p=0.9, sampled=(q[:, 0], p[:, 0])),
        ):
            assert torch.all((found.low <= rate + 1e-12) & (rate <= found.high + 1e-12))
        assert bool(found.estimate.isnan().any())  # the normaliser is not known there

    def test_no_rows_have_no_rates(self):
        q, p, ids = torch.zeros(0, 2), torch.zeros(0, 5), torch.zeros(0, 2, dtype=torch.int64)
        for found in (
            obrs.token_rate(q, q, 0.0, top_k=1, top_p=0.5),
            obrs.token_rate(q, p, 0.0, ids=ids, sampled=(q[:, 0], q[:, 0])),
        ):
            assert all(part is None or part.shape == (0,) for part in found)

    def test_wrong_input_is_told(self):
        q = torch.zeros(4, 2)
        for wrong, says in (
            (lambda: obrs.token_rate(q, torch.zeros(4, 3), 0.0), "come with ids"),
            (lambda: obrs.token_rate(q, q, math.nan), "finite number"),
            (lambda: obrs.token_rate(q, q, 0.0, top_k=3), "needs as many stored"),
            (lambda: obrs.token_rate(q, q, 0.0, top_p=1.5), "probability"),
            (
                lambda: obrs.token_rate(q, q, 0.0, sampled=(q[:, 0], q)),
                r"\(4,\), got \(4,\) under q and \(4, 2\) under p",
            ),
            (lambda: obrs.token_rate(np.zeros((4, 2)), q, 0.0), "tensor"),
        ):
            with pytest.raises((InputError, InputTypeError), match=says):
                wrong()


@pytest.fixture
def rewards():
    """Rewards of 5 prompts with 12 completions each."""
    rng = np.random.default_rng(5)
    return rng.normal(size=60).round(2), np.arange(60) % 5


class TestTilt:
    @pytest.mark.parametrize("kl", [0.05, 0.4, 0.9])
    def test_the_kept_law_has_the_kl_that_was_asked_for(self, rewards, kl):
        reward, groups = rewards
        pick = obrs.tilt(reward, groups=groups, keep=3, kl=kl)
        beta = float(pick.metrics["beta"])
        pi = obrs.inclusion_probability(reward / beta, 3, groups=groups)
        spent = [np.sum(pi[groups == g] / 3 * np.log(pi[groups == g] / 3 * 12)) for g in range(5)]
        assert np.mean(spent) == pytest.approx(kl, abs=1e-9)
        assert float(pick.metrics["kl"]) == pytest.approx(kl, abs=1e-9)
        assert float(pick.metrics["reward"]) == pytest.approx(np.sum(pi / 3 / 5 * reward))
        assert np.bincount(groups[pick.index]).tolist() == [3] * 5
        assert len(set(pick.index.tolist())) == 15
        assert pick.mask.nonzero()[0].tolist() == pick.index.tolist()

    def test_kl_falls_with_the_temperature(self, rewards):
        reward, groups = rewards
        spent = [
            float(obrs.tilt(reward, groups=groups, keep=3, beta=b).metrics["kl"]) for b in np.geomspace(0.01, 99, 30)
        ]
        assert np.all(np.diff(spent) <= 1e-12)

    def test_no_law_with_this_kl_has_a_larger_reward(self, rewards):
        """Against the dual: max E[R] subject to KL <= k is min over beta of beta (k + mean log mean exp(R / beta))."""
        reward, groups = rewards
        metrics = obrs.tilt(reward, groups=groups, keep=3, kl=0.4).metrics
        by_prompt = np.stack([reward[groups == g] for g in range(5)])
        dual = min(
            b * (0.4 + np.mean(np.log(np.mean(np.exp(by_prompt / b), axis=1)))) for b in np.geomspace(0.05, 50, 4000)
        )
        assert float(metrics["best"]) == pytest.approx(dual, abs=1e-5)
        assert 0 <= float(metrics["gap"]) == pytest.approx(float(metrics["best"]) - float(metrics["reward"]))

    def test_keeping_one_is_the_exponential_tilt_itself(self, rewards):
        reward, groups = rewards
        assert float(obrs.tilt(reward, groups=groups, keep=1, kl=0.5).metrics["gap"]) == pytest.approx(0, abs=1e-9)

    def test_weights_make_the_kept_estimate_the_tilted_mean(self, rewards):
        reward, groups = rewards
        f = np.cos(np.arange(60))
        r = np.exp(reward / 0.7)
        truth = np.mean([np.average(f[groups == g], weights=r[groups == g]) for g in range(5)])
        picks = [obrs.tilt(reward, groups=groups, keep=3, beta=0.7, seed=seed) for seed in range(800)]
        assert standard_errors([[pick.weight @ f[pick.index]] for pick in picks], truth) < 4

    def test_a_budget_that_cannot_be_spent_gives_the_best(self, rewards):
        reward, groups = rewards
        reward = reward + np.arange(60) * 1e-6  # no ties
        pick = obrs.tilt(reward, groups=groups, keep=3, kl=50.0)
        best = {i for g in range(5) for i in sorted(np.flatnonzero(groups == g), key=lambda i: -reward[i])[:3]}
        assert set(pick.index.tolist()) == best
        assert float(pick.metrics["kl"]) == pytest.approx(math.log(12 / 3))

    def test_rewards_without_a_difference_and_no_budget_keep_at_random(self, rewards):
        _, groups = rewards
        for reward, kl in ((np.ones(60), 0.5), (rewards[0], 0.0)):
            metrics = obrs.tilt(reward, groups=groups, keep=3, kl=kl).metrics
            assert float(metrics["kl"]) == pytest.approx(0, abs=1e-12)
            assert float(metrics["reward"]) == pytest.approx(reward.mean())

    def test_what_is_minus_infinity_is_never_kept(self):
        reward = np.array([-np.inf, 1.0, 0.5, -np.inf, 0.1])
        for seed in range(20):
            assert not {0, 3} & set(obrs.tilt(reward, keep=2, kl=0.3, seed=seed).index.tolist())

    def test_every_library_gets_its_own_arrays_back(self, xp, rewards):
        reward, groups = rewards
        pick = obrs.tilt(xp.asarray(reward), groups=groups, keep=2, kl=0.4)
        plain = obrs.tilt(reward, groups=groups, keep=2, kl=0.4)
        assert type(pick.index) is type(pick.weight) is type(xp.asarray(reward))
        assert [int(i) for i in pick.index] == plain.index.tolist()
        assert float(pick.metrics["beta"]) == pytest.approx(float(plain.metrics["beta"]))

    @pytest.mark.parametrize(
        ("change", "error", "says"),
        [
            ({}, InputError, "either kl"),
            ({"kl": 0.5, "beta": 1.0}, InputError, "either kl"),
            ({"kl": -1.0}, BudgetError, "at least 0 nats"),
            ({"kl": math.nan}, BudgetError, "at least 0 nats"),
            ({"beta": 0.0}, InputError, "beta must be"),
            ({"kl": 0.5, "keep": 13}, InputError, "cannot keep 13 of 12 completions of prompt 0"),
            ({"beta": 0.5, "keep": 13}, InputError, "cannot select 13 of the 12"),
            ({"kl": 0.5, "keep": 0}, InputError, "keep must be"),
        ],
    )
    def test_a_wrong_option_is_told_in_one_line(self, rewards, change, error, says):
        reward, groups = rewards
        with pytest.raises(error, match=says):
            obrs.tilt(reward, groups=groups, **{"keep": 3} | change)

    def test_wrong_rewards_are_told(self):
        for wrong, error in (([math.nan, 1.0], RatioError), ([], InputError), ([[1.0]], InputError)):
            with pytest.raises(error):
                obrs.tilt(np.array(wrong), keep=1, kl=0.1)


class TestSelectByReward:
    @pytest.fixture
    def file(self, tmp_path):
        rng = np.random.default_rng(6)
        rows = [{"prompt_id": f"p{i % 4}", "text": str(i), "reward": round(float(rng.normal()), 3)} for i in range(64)]
        path = tmp_path / "data.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        return path, rows

    def test_the_command_keeps_what_tilt_says(self, file, tmp_path, capsys):
        path, rows = file
        command = ["select", str(path), "--column", "reward", "--reward", "--kl", "0.5", "--group", "prompt_id"]
        assert main([*command, "-n", "4", "-o", str(tmp_path / "kept.jsonl")]) == 0
        kept = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
        reward, groups = np.array([row["reward"] for row in rows]), [row["prompt_id"] for row in rows]
        pick = obrs.tilt(reward, groups=groups, keep=4, kl=0.5)
        assert [row["text"] for row in kept] == [rows[i]["text"] for i in pick.index]
        pi = obrs.inclusion_probability(reward / float(pick.metrics["beta"]), 4, groups=groups)
        np.testing.assert_allclose([row["inclusion_probability"] for row in kept], pi[pick.index], rtol=1e-9)
        assert f"(1 in 4), beta {float(pick.metrics['beta']):.4g}, KL 0.5: " in capsys.readouterr().err

    def test_a_budget_that_cannot_be_spent_is_told(self, file, tmp_path, capsys):
        """The best 4 of 16 completions have log 4 nats."""
        path, _ = file
        command = ["select", str(path), "--column", "reward", "--reward", "--kl", "5", "--group", "prompt_id"]
        assert main([*command, "-n", "4", "-o", str(tmp_path / "kept.jsonl")]) == 0
        told = capsys.readouterr().err
        assert f", KL {math.log(4):.4g} (of 5, more cannot be spent): " in told
        assert len(told.splitlines()) == 1

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            (["--reward", "--kl", "0.5", "--beta", "1", "-n", "4"], "either --kl or --beta"),
            (["--reward", "-n", "4"], "--kl, a budget in nats, or --beta, the temperature"),
            (["--log-ratio", "--kl", "0.5", "-n", "4"], "rewards"),
            (["--reward", "--kl", "0.5", "--budget", "4"], "-n"),
            (["--reward", "--kl", "-1", "-n", "4"], "at least 0 nats"),
            (["--reward", "--kl", "0.5", "-n", "17"], "cannot keep 17"),
        ],
    )
    def test_wrong_options_are_told_in_one_line(self, file, tmp_path, capsys, options, says):
        path, _ = file
        options = ["--column", "reward", "--group", "prompt_id", *options]
        assert main(["select", str(path), *options, "-o", str(tmp_path / "kept.jsonl")]) != 0
        told = capsys.readouterr().err.strip()
        assert says in told
        assert len(told.splitlines()) == 1


def test_tilt_and_the_command_need_no_torch():
    code = "import sys, numpy, obrs; obrs.tilt(numpy.arange(4.0), keep=1, kl=.1); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_best_of_n_has_the_kl_of_the_paper():
    """log n - (n - 1)/n, on a large pool without ties: what `tilt` is compared with."""
    pool, n = 4000, 4
    rank = np.arange(1, pool + 1)
    law = (rank / pool) ** n - ((rank - 1) / pool) ** n
    kl = np.sum(law * np.log(law * pool))
    assert kl == pytest.approx(math.log(n) - (n - 1) / n, abs=1e-3)
    pick = obrs.tilt(rank / pool, keep=pool // 16, kl=float(kl))
    assert float(pick.metrics["reward"]) > law @ (rank / pool)


def test_every_choice_is_listed():
    assert set(language.__all__) >= {"rollout", "token_rate", "tilt"}
    assert all(name in obrs.__all__ for name in ("rollout", "token_rate", "tilt"))
    assert list(itertools.islice(language.LEVELS, 3)) == ["sequence", "group", "token"]
