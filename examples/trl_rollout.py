"""GRPO on a budget of backward passes, for TRL: train on `keep` of every batch, weighted so that nothing is biased.

Needs: `pip install trl`. `BudgetedGRPO` takes what `GRPOTrainer` takes, and `keep`:

    args = GRPOConfig(..., loss_type="dr_grpo", vllm_importance_sampling_correction=False)  # not corrected twice
    BudgetedGRPO(model, reward_funcs, args=args, train_dataset=data, keep=0.25).train()

Log-probs of the law that was sampled must be there: vLLM gives them, and so does a `rollout_func` with "logprobs".
"""

import torch
from trl import GRPOTrainer

import obrs

# The losses of TRL whose denominator is known: the rows of the batch it is given, or all tokens that were sampled.
ROWS, TOKENS = ("grpo", "dr_grpo"), ("dapo",)


class BudgetedGRPO(GRPOTrainer):
    """GRPO that gives a backward pass to a share (a float) or a number (an int) of each batch."""

    def __init__(self, *args, keep=0.25, **options):
        super().__init__(*args, **options)
        if self.args.loss_type not in (*ROWS, *TOKENS):
            raise ValueError(f"loss_type must be one of {', '.join((*ROWS, *TOKENS))}, got {self.args.loss_type!r}")
        self.keep = keep

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """Choose rollouts, and let TRL do the rest with them; advantages come from all of their group already."""
        mask, sampled = inputs["completion_mask"], inputs.get("sampling_per_token_logps")
        if sampled is None:
            raise ValueError("the law that was sampled is not known: use vLLM, or a rollout_func that returns logprobs")
        train = inputs.get("old_per_token_logps")
        train = self.log_probs(model, inputs) if train is None else train
        pick = obrs.rollout(train, sampled, mask, keep=self.keep, seed=self.state.global_step)
        rows = len(mask)
        kept = {k: v[pick.index] if torch.is_tensor(v) and v.shape[:1] == (rows,) else v for k, v in inputs.items()}
        # The estimate is a sum over the kept; TRL divides by rows or tokens, so what is not kept leaves that, too.
        scale = len(pick.index) if self.args.loss_type in ROWS else rows
        kept["advantages"] = kept["advantages"] * pick.weight * scale
        self.last_pick = pick  # its metrics say what was kept, and what thresholds would have dropped
        return super().compute_loss(model, kept, return_outputs, num_items_in_batch)

    @torch.no_grad()
    def log_probs(self, model, inputs):
        """Log-probs of the sampled tokens under the policy as it is now: a forward pass, no backward pass."""
        tokens = inputs["completion_ids"]
        whole = torch.cat([inputs["prompt_ids"], tokens], dim=1)
        seen = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        logits = model(input_ids=whole, attention_mask=seen).logits[:, -tokens.shape[1] - 1 : -1] / self.temperature
        return logits.gather(2, tokens[..., None])[..., 0] - logits.logsumexp(dim=-1)
