"""The evidence on language models: its tables by other routes, and with the real model in the slow tests."""

import math

import numpy as np
import pytest
import torch
from language_model import need_language_model

from paper import language as tables
from paper.language import TOPICS, question


@pytest.fixture(scope="module")
def pool():
    """Rollouts with a known law: log-ratios of sd 1, gradients that depend on them."""
    rng = np.random.default_rng(0)
    mask = np.arange(6) < rng.integers(1, 7, size=(240, 1))
    sampled = -rng.exponential(size=(240, 6))
    train = sampled + 0.6 * rng.normal(size=(240, 6))
    slope = rng.normal(size=(240, 5)) + rng.normal(size=5)
    return tables.Pool(train, sampled, mask, slope, np.arange(240) % 6)


def test_gradients_of_a_whole_batch_of_obrs_and_of_rows_at_random_are_judged_rightly(pool):
    reward = np.cos(np.arange(240)) + pool.slope[:, 0]
    table = tables.gradient_table(pool, reward, batch=32, keep=(8,), batches=120, seed=0)
    assert table["all 32"]["trained"] == table["no correction"]["trained"] == table["truncate at 2"]["trained"] == 1
    assert table["OBRS 8"]["trained"] == table["random 8"]["trained"] == 0.25
    assert all(row["low"] <= row["error"] <= row["high"] for row in table.values())
    assert table["all 32"]["error"] < table["OBRS 8"]["error"] < table["random 8"]["error"]
    assert table["OBRS 8"]["better"][1] > 0
    assert table["OBRS 8 by size"]["added"] < table["OBRS 8"]["added"] < table["random 8, unbiased"]["added"]
    assert table["top 8 by r size"]["added"] < table["OBRS 8 by size"]["added"]
    assert table["all 32"]["added"] == 0
    assert table["band 0.999 to 1.001"]["empty"] > 0.5
    # by fresh batches and plain sums; the interval of one holds the other
    f, r = pool.slope * tables.advantages(reward, pool.prompt)[:, None], np.exp(pool.log_ratio)
    truth = np.average(f, axis=0, weights=r)
    rng, errors = np.random.default_rng(1), []
    for _ in range(800):
        at = rng.permutation(240)[:32]
        errors.append(np.sum((np.average(f[at], axis=0, weights=r[at]) - truth) ** 2) / np.sum(truth**2))
    assert table["all 32"]["low"] < math.sqrt(np.mean(errors)) < table["all 32"]["high"]


def test_a_baseline_of_kept_siblings_makes_the_gradient_shorter(pool):
    reward = pool.slope[:, 0] + np.random.default_rng(4).normal(size=240)
    table = tables.baseline_table(pool, reward, prompts=3, copies=8, keep=6, batches=2000, seed=0)
    # a rollout is in its own baseline with weight 1/8, so 7/8 is left of 1 - 1/40, where the truth has 40 siblings
    assert table["all, no rejection"]["length"] == pytest.approx((7 / 8) / (39 / 40), abs=0.05)
    assert table["all siblings"]["length"] == pytest.approx(table["all, no rejection"]["length"], abs=0.05)
    assert table["kept siblings"]["length"] < 0.8 * table["all siblings"]["length"]
    assert table["kept siblings"]["scaled"] > table["all siblings"]["scaled"] > table["all, no rejection"]["scaled"]


@pytest.mark.slow
def test_completions_of_the_real_model_are_functions_of_ids_and_are_read_as_they_were_written():
    need_language_model()
    from paper.smollm import complete, load_policy, read, round_weights

    torch.set_num_threads(1)
    policy, prompt = load_policy(), question(TOPICS[0])
    text = complete(policy, prompt, 5, ids=range(6), seed=0, temperature=1.2)
    few = complete(policy, prompt, 5, ids=[4, 1], seed=0, temperature=1.2)
    assert few["tokens"].equal(text["tokens"][[4, 1]])
    whole = torch.cat([policy.prompt(prompt).expand(6, -1), text["tokens"]], dim=1)
    gain = policy.model.model.norm.weight.requires_grad_(True)
    logits = policy.model(input_ids=whole).logits[:, -6:-1]
    for name, temperature in (("logp_train", 1.0), ("logp_rollout", 1.2)):
        text |= read(policy, prompt, text["tokens"], text["mask"])
        logs = torch.log_softmax(logits / temperature, dim=-1).gather(2, text["tokens"][..., None])[..., 0]
        assert torch.allclose(text[name], logs, atol=1e-4)
    by_autograd = torch.autograd.grad((logits.log_softmax(-1).gather(2, text["tokens"][..., None])[5, :, 0]
                                       * text["mask"][5]).sum(), gain)[0]  # fmt: skip
    assert torch.allclose(by_autograd, text["slope"][5], atol=1e-3 * float(by_autograd.abs().max()))
    gain.requires_grad_(False)
    text = complete(round_weights(policy), prompt, 6, ids=range(8), seed=0)
    log_ratio = ((read(policy, prompt, text["tokens"], text["mask"])["logp_train"] - text["logp_rollout"])
                 * text["mask"]).sum(dim=1)  # fmt: skip
    assert 0.005 < float(log_ratio.std()) < 1.5, "rounded weights are close and not equal"
