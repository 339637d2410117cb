"""OBRS in the place of verl's thresholds: a function with the signature of verl's own correction.

Needs: torch; verl only where it is used. In verl's configuration, `rollout_rs="obrs"` and `rollout_rs_threshold="0.25"`
(a share) or `"16"` (a number) then say how many of a batch are trained. To install it, before the trainer starts:

    from verl.trainer.ppo import rollout_corr_helper
    rollout_corr_helper.compute_rollout_correction_and_rejection_mask = obrs_correction

verl calls it once for the whole batch, on the driver, so the weights are those of the batch, and before it computes
advantages: GRPO's baseline is then still the mean of all completions of a prompt, as the rewards of rejected ones stay.
To choose by |advantage| as well, replace the function that has the rewards, which gives `obrs_correction` a size:

    rollout_corr_helper.compute_rollout_correction_and_add_to_batch = correct_batch

Without log-probs of the engine (`actor_rollout_ref.rollout.calculate_log_probs=False`) verl does not call either, and
every row gets a backward pass.

The mask that is returned has no token of what is not kept, so it leaves the denominators of verl's losses. With
`loss_agg_mode="seq-mean-token-sum"`, the mean over the kept sequences is then unbiased for the self-normalised mean
over the batch. Modes that divide by the number of kept tokens are close to it, not equal.
"""

from itertools import count

import numpy as np
import torch

import obrs

STEPS = count()  # verl tells no step, and ids are positions: one seed would favour the same positions for ever


def obrs_correction(
    old_log_prob,
    rollout_log_prob,
    response_mask,
    rollout_is=None,
    rollout_is_threshold=2.0,
    rollout_is_batch_normalize=False,
    rollout_rs="obrs",
    rollout_rs_threshold="0.25",
    *,
    size=None,
    seed=None,
):
    """Return weights (a DataProto where verl is installed, else a dict), the mask of the kept, and metrics.

    Without a `seed`, every call has the next one: 0, 1, 2, ... since the start of the process.
    `rollout_is`, its threshold and its normalisation are ignored: the weights belong to the selection. A `size` is how
    much each row matters, such as |advantage|: rows of size 0 are left out, so use it without terms for KL or entropy.
    """
    if rollout_rs != "obrs":
        raise ValueError(f"rollout_rs must be 'obrs', got {rollout_rs!r}; for others use verl's own function")
    text = str(rollout_rs_threshold)
    keep = int(text) if text.isdigit() else float(text)
    seed = next(STEPS) if seed is None else seed
    pick = obrs.rollout(old_log_prob, rollout_log_prob, response_mask, keep=keep, size=size, seed=seed)
    weight = torch.zeros_like(old_log_prob[:, :1])
    weight[pick.index, 0] = (pick.weight * len(pick.index)).to(weight.dtype)  # a mean over the kept is then their sum
    weights = {"rollout_is_weights": weight.expand_as(old_log_prob) * pick.mask}
    mask = response_mask * pick.mask
    metrics = {f"rollout_corr/obrs_{name}": float(value) for name, value in pick.metrics.items()}
    try:
        from verl import DataProto
    except ImportError:
        return weights, mask, metrics
    return DataProto.from_dict(tensors=weights), mask, metrics


def correct_batch(batch, config):
    """Correct a batch of verl with |reward - mean reward of the prompt| as size; metrics have keep rate and ESS."""
    reward = batch.batch["token_level_rewards"].sum(dim=-1).double().cpu().numpy()
    group = np.unique(batch.non_tensor_batch["uid"], return_inverse=True)[1]
    size = np.abs(reward - (np.bincount(group, reward) / np.bincount(group))[group])
    weights, mask, metrics = obrs_correction(
        *(batch.batch[name] for name in ("old_log_probs", "rollout_log_probs", "response_mask")),
        rollout_rs=config.get("rollout_rs"),
        rollout_rs_threshold=config.get("rollout_rs_threshold"),
        size=size if size.any() else None,
    )
    batch.batch["response_mask"] = mask
    return batch.union(weights), metrics


if __name__ == "__main__":
    generator = torch.Generator().manual_seed(0)
    sampled = -torch.rand(64, 20, generator=generator)
    trained = sampled + 0.2 * torch.randn(64, 20, generator=generator)
    weights, mask, metrics = obrs_correction(trained, sampled, torch.ones(64, 20))
    print(f"kept {int(mask.any(dim=1).sum())} of 64 sequences, as truncation at {metrics['rollout_corr/obrs_C']:.2f}")
