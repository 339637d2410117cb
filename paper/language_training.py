"""A short real fine-tuning: the last two layers of a language model, with all of its rollouts or a few of them.

Every step asks four questions, samples 16 completions of each at temperature 1.2, scores them, and takes one step of
policy gradient towards the policy at temperature 1. The arms differ in one thing: which rollouts get a backward pass.
Advantages are computed from all 64 before that. The frozen layers run once, in bfloat16, while sampling; what they made
is what is trained on.
"""

from copy import deepcopy
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import torch

from obrs import rollout, select
from obrs._progress import Tell

from .smollm import Policy, Rollouts, complete, log_probs

__all__ = ["ARMS", "Task", "fine_tuned", "in_bfloat16"]

ARMS = {"all": "all rollouts", "obrs": "OBRS", "random": "random"}
_MICRO = 16  # sequences of a backward pass
_EVALUATION = 1_000_000  # ids of completions that are judged begin here, those of training end below


class Task(NamedTuple):
    """What every arm is given.

    Attributes:
        questions: To choose from.
        scorer: From texts to rewards.
        steps, prompts, copies, length: Steps; questions of each, completions of each question, and tokens of each.
        keep: Rollouts with a backward pass, for the arms that choose.
        temperature: Of the law that is sampled.
        lr: Of Adam.
        judged: Completions of each question, at temperature 1, that the trained policy is judged by.
    """

    questions: tuple[str, ...]
    scorer: Any
    steps: int
    prompts: int
    copies: int
    length: int
    keep: int
    temperature: float
    lr: float
    judged: int


def in_bfloat16(policy: Policy) -> Policy:
    """Return the policy with a body in bfloat16, where nothing is trained; the head stays."""
    return Policy(deepcopy(policy.body).to(torch.bfloat16), policy.head, policy.tokenizer)


def fine_tuned(policy: Policy, task: Task, arm: str, seed: int, tell: Tell) -> dict[str, Any]:
    """Train a copy of the head, and return what happened.

    Returns:
        Curves over the steps: `reward`, the self-normalised estimate of the reward at temperature 1 from all rollouts
        of the step; `sampling`, `training`, CPU seconds. And `before`, `after`: rewards of fresh completions at
        temperature 1, with the standard errors over questions of `after - before`.
    """
    policy = Policy(policy.body, deepcopy(policy.head), policy.tokenizer)
    layers = policy.head.model.layers.requires_grad_(True)
    adam = torch.optim.Adam(layers.parameters(), task.lr)
    curves: dict[str, list[float]] = {name: [] for name in ("reward", "sampling", "training")}
    before = _judged(policy, task, seed)
    for step in range(task.steps):
        begun = process_time()
        asked = select(np.zeros(len(task.questions)), task.prompts, seed=1000 * seed + step)
        ids = np.arange(task.prompts * task.copies) + step * task.prompts * task.copies
        questions = [task.questions[i] for i in asked]
        found = complete(policy, questions, task.copies, task.length, ids=ids, seed=seed, temperature=task.temperature)
        reward = torch.tensor(task.scorer(policy.text(found.tokens)), dtype=torch.float32)
        groups = reward.reshape(task.prompts, task.copies)
        advantage = (groups - groups.mean(dim=1, keepdim=True)).reshape(-1)
        sampled = process_time()
        index, weight = _chosen(arm, found, task.keep, seed=1000 * seed + step, ids=ids)
        adam.zero_grad()
        for part, share in zip(index.split(_MICRO), weight.split(_MICRO), strict=True):
            some = Rollouts(*(x[part] for x in found))
            logp = (log_probs(policy, some) * some.mask).sum(dim=1)
            (-(share * advantage[part] * logp).sum()).backward()
        adam.step()
        law = torch.softmax(((found.logp_train - found.logp_rollout) * found.mask).sum(dim=1), dim=0)
        curves["reward"].append(float(law @ reward))
        curves["sampling"].append(sampled - begun)
        curves["training"].append(process_time() - sampled)
        tell(step + 1, f"reward {curves['reward'][-1]:.2f}")
    after = _judged(policy, task, seed)
    change = after - before
    return {name: np.asarray(values) for name, values in curves.items()} | {
        "before": float(before.mean()),
        "after": float(after.mean()),
        "change": float(change.mean()),
        "change_error": float(change.std(ddof=1) / np.sqrt(len(change))),
    }


def _chosen(arm: str, found: Rollouts, keep: int, *, seed: int, ids: Any) -> tuple[Any, Any]:
    """Return which rollouts get a backward pass, and their weights in the sum that is the loss."""
    log_r = ((found.logp_train - found.logp_rollout) * found.mask).sum(dim=1)
    if arm == "obrs":
        pick = rollout(found.logp_train, found.logp_rollout, found.mask, keep=keep, seed=seed, ids=ids)
        return pick.index, pick.weight
    index = torch.arange(len(log_r)) if arm == "all" else select(torch.zeros(len(log_r)), keep, seed=seed)
    return index, torch.softmax(log_r[index], dim=0)


def _judged(policy: Policy, task: Task, seed: int) -> Any:
    """Return the mean reward of fresh completions at temperature 1, by question; the same draws before and after."""
    rewards = []
    for first in range(0, len(task.questions), task.prompts):
        questions = task.questions[first : first + task.prompts]
        ids = np.arange(len(questions) * task.judged) + _EVALUATION + first * task.judged
        found = complete(policy, questions, task.judged, task.length, ids=ids, seed=seed)
        rewards.append(np.reshape(task.scorer(policy.text(found.tokens)), (len(questions), task.judged)).mean(axis=1))
    return np.concatenate(rewards)
