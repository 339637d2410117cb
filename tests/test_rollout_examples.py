"""The examples for trainers of language models: what verl calls, and GRPO of TRL with the real model."""

import math
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from language_model import need_language_model

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[1]


def test_the_function_for_verl_keeps_an_unbiased_mean_and_every_call_has_its_own_seed():
    correct = runpy.run_path(str(ROOT / "examples" / "verl_rollout.py"))["obrs_correction"]
    rng = np.random.default_rng(4)
    sampled = torch.tensor(-rng.exponential(size=(16, 5)))
    train = sampled + 0.5 * torch.tensor(rng.normal(size=(16, 5)))
    f, estimates = torch.tensor(rng.normal(size=16)), []
    for seed in range(400):
        weights, mask, metrics = correct(train, sampled, torch.ones(16, 5), rollout_rs_threshold="4", seed=seed)
        kept = mask[:, 0] > 0
        estimates.append(float((weights["rollout_is_weights"][:, 0] * f)[kept].mean()))
        assert int(kept.sum()) == 4
    truth = float(torch.softmax((train - sampled).sum(dim=1), dim=0) @ f)
    assert abs(np.mean(estimates) - truth) < 4 * np.std(estimates) / math.sqrt(400)
    assert metrics["rollout_corr/obrs_rate"] == 0.25
    law = torch.zeros(64, 5)
    first, second = (correct(law, law, torch.ones(64, 5))[1] for _ in range(2))
    assert not first.equal(second)
    for seed, mask in enumerate((first, second)):
        assert correct(law, law, torch.ones(64, 5), seed=seed)[1].equal(mask)


def test_a_batch_of_verl_is_corrected_by_the_size_of_advantages_from_all_siblings():
    correct = runpy.run_path(str(ROOT / "examples" / "verl_rollout.py"))["correct_batch"]
    rng = np.random.default_rng(5)
    sampled = torch.tensor(-rng.exponential(size=(16, 5)))
    train = sampled + 0.3 * torch.tensor(rng.normal(size=(16, 5)))
    reward = torch.zeros(16, 5, dtype=torch.float64)
    reward[::3, -1] = 1.0  # of each four, some have a reward; the last four have none
    reward[12:] = 0.0
    uid = np.repeat(["a", "b", "c", "d"], 4)
    advantage = (reward.sum(dim=1).reshape(4, 4) - reward.sum(dim=1).reshape(4, 4).mean(dim=1, keepdim=True)).reshape(
        -1
    )
    f, estimates = torch.tensor(rng.normal(size=16)), []
    for _ in range(400):
        tensors = {"old_log_probs": train, "rollout_log_probs": sampled, "response_mask": torch.ones(16, 5)}
        batch = SimpleNamespace(batch=tensors | {"token_level_rewards": reward}, non_tensor_batch={"uid": uid})
        batch.union = batch.batch.update
        _, metrics = correct(batch, {"rollout_rs": "obrs", "rollout_rs_threshold": "6"})
        kept = batch.batch["response_mask"][:, 0] > 0
        assert not kept[12:].any()
        estimates.append(float((batch.batch["rollout_is_weights"][:, 0] * advantage * f)[kept].mean()))
    truth = float(torch.softmax((train - sampled).sum(dim=1), dim=0) @ (advantage * f))
    assert abs(np.mean(estimates) - truth) < 4 * np.std(estimates) / math.sqrt(400)
    assert {"rollout_corr/obrs_rate", "rollout_corr/obrs_ess"} <= set(metrics)


# In a process of its own: TRL warns much, and warnings are errors here. The rollouts come from an engine that is too
# hot, and their log-probs with them.
TRL = """
import sys
sys.path.insert(0, {examples!r})
import torch
torch.set_num_threads(1)
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer
from trl_rollout import BudgetedGRPO
from paper.smollm import folder

tokenizer = AutoTokenizer.from_pretrained(folder())
model = AutoModelForCausalLM.from_pretrained(folder(), dtype=torch.float32)
model.requires_grad_(False)
model.model.layers[-1].requires_grad_(True)
analyser = SentimentIntensityAnalyzer()

def engine(prompts, trainer):
    asked = [tokenizer(text)["input_ids"] for text in prompts]
    out = {{"prompt_ids": asked, "completion_ids": [], "logprobs": []}}
    for ids in asked:
        made = trainer.model.generate(
            torch.tensor([ids]), max_new_tokens=6, do_sample=True, temperature=1.3, top_k=0,
            output_scores=True, return_dict_in_generate=True,
        )
        tokens = made.sequences[0, len(ids):]
        logs = torch.cat(made.scores).log_softmax(dim=-1).gather(1, tokens[:, None])[:, 0]
        out["completion_ids"].append(tokens.tolist())
        out["logprobs"].append(logs.tolist())
    return out

def reward(completions, **_):
    return [analyser.polarity_scores(text)["compound"] + 0.01 * len(text) for text in completions]

args = GRPOConfig(
    output_dir={out!r}, per_device_train_batch_size=4, gradient_accumulation_steps=2, num_generations=4,
    max_steps=2, max_completion_length=6,
    loss_type="dr_grpo", learning_rate=1e-4, report_to=[], use_cpu=True, logging_steps=1, save_strategy="no",
    temperature=1.0, bf16=False, vllm_importance_sampling_correction=False, gradient_checkpointing=False,
)
data = Dataset.from_dict({{"prompt": ["My neighbour is", "The sea at night is"] * 4}})
before = model.model.layers[-1].mlp.up_proj.weight.clone()
trainer = BudgetedGRPO(
    model, reward, args=args, train_dataset=data, processing_class=tokenizer, rollout_func=engine, keep=0.25
)
trainer.train()
moved = not torch.equal(before, trainer.model.model.layers[-1].mlp.up_proj.weight)
pick = trainer.last_pick
print(f"steps {{trainer.state.global_step}}, kept {{len(pick.index)}} of {{len(pick.mask)}}, moved {{moved}}")
print("logged", *sorted(name for name in trainer.state.log_history[0] if name.startswith("obrs/")))
"""


@pytest.mark.slow
def test_grpo_of_trl_takes_two_steps_on_a_budget(tmp_path):
    need_language_model()
    code = TRL.format(examples=str(ROOT / "examples"), out=str(tmp_path))
    where = {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": str(ROOT)}}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=1200, **where)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "steps 2, kept 2 of 8, moved True" in done.stdout
    assert "logged obrs/ess obrs/rate" in done.stdout
