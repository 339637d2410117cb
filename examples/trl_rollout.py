"""GRPO on a budget of backward passes, for TRL: train on `keep` of every batch, weighted so that nothing is biased.

Needs: `pip install trl`. `BudgetedGRPO` takes what `GRPOTrainer` takes, and `keep`:

    args = GRPOConfig(..., loss_type="dr_grpo", vllm_importance_sampling_correction=False)  # not corrected twice
    BudgetedGRPO(model, reward_funcs, args=args, train_dataset=data, keep=0.25).train()

Rows are chosen once for all that TRL generates at a time, before it is split into micro-batches: weights that are
divided by the sum of a micro-batch are not those of the batch. A row is kept with probability min(c r |advantage|, 1);
advantages come from all completions of a prompt. With many processes each chooses of its own rows, and all divide by
the sum of r over all.

vLLM and a `rollout_func` with "logprobs" say what the law that was sampled gave to each token. Without them the policy
samples itself: r is taken for 1, and rows are chosen by |advantage| alone. That is right only for plain sampling (no
top_p, top_k, min_p or repetition penalty) and one update per generation.
"""

import torch
from trl import GRPOTrainer

import obrs

# The losses of TRL whose denominator is known: the rows of the batch it is given, or all tokens that were sampled.
ROWS, TOKENS = ("grpo", "dr_grpo"), ("dapo",)


class BudgetedGRPO(GRPOTrainer):
    """GRPO that gives a backward pass to a share (a float) or a number (an int) of what each process generates."""

    def __init__(self, *args, keep=0.25, **options):
        super().__init__(*args, **options)
        if self.args.loss_type not in (*ROWS, *TOKENS):
            raise ValueError(f"loss_type must be one of {', '.join((*ROWS, *TOKENS))}, got {self.args.loss_type!r}")
        if self.beta:  # weights reach the loss through the advantages, and rows of advantage 0 are left out
            raise ValueError(f"beta must be 0: a KL term would not be weighted, got {self.beta}")
        self.keep = keep

    def _generate_and_score_completions(self, inputs):
        """Choose rows of what was generated; advantages come from all of their group already."""
        batch = super()._generate_and_score_completions(inputs)
        if not self.model.training:
            return batch
        mask, size = batch["completion_mask"], batch["advantages"].abs()
        rows, parts, process = len(mask), self.args.steps_per_generation, self.accelerator.process_index
        train, sampled = self.log_probs(batch), batch.get("sampling_per_token_logps")
        sampled = train if sampled is None else sampled
        # TRL splits what is left into equal parts, and only rows with an advantage can be kept
        n = round(self.keep * rows) if isinstance(self.keep, float) else self.keep
        size = size if int((size > 0).sum()) >= parts else torch.ones_like(size)  # all alike: no gradient anyway
        n = max(min(n, int((size > 0).sum())) // parts, 1) * parts
        log_ratio = torch.where(mask > 0, train - sampled, 0.0).sum(dim=1)
        total = float(torch.logsumexp(self.accelerator.gather(log_ratio), dim=0))
        ids = rows * process + torch.arange(rows)
        pick = obrs.rollout(
            train, sampled, mask, keep=n, size=size, total=total, ids=ids, seed=self.state.global_step
        )  # fmt: skip
        kept = {k: v[pick.index] if torch.is_tensor(v) and v.shape[:1] == (rows,) else v for k, v in batch.items()}
        # The estimate is a sum over the kept of all processes; TRL divides by kept rows, or by all tokens.
        scale = (n if self.args.loss_type in ROWS else rows) * self.accelerator.num_processes
        kept["advantages"] = kept["advantages"] * pick.weight * scale
        for name in ("rate", "ess"):
            self._metrics["train"][f"obrs/{name}"].append(pick.metrics[name])
        self.last_pick = pick  # its metrics also say what thresholds would have dropped
        return kept

    @torch.no_grad()
    def log_probs(self, batch):
        """Log-probs of the sampled tokens under the policy as it is now: forward passes, no backward pass."""
        if batch.get("sampling_per_token_logps") is None:
            return torch.zeros_like(batch["completion_mask"], dtype=torch.float32)
        if batch.get("old_per_token_logps") is not None:
            return batch["old_per_token_logps"]
        parts = []
        whole = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        seen = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        length, some = batch["completion_ids"].shape[1], self.args.per_device_train_batch_size
        for ids, visible in zip(whole.split(some), seen.split(some), strict=True):
            logits = self.model(input_ids=ids, attention_mask=visible).logits[:, -length - 1 : -1] / self.temperature
            parts.append(logits.gather(2, ids[:, -length:, None])[..., 0] - logits.logsumexp(dim=-1))
        return torch.cat(parts)
