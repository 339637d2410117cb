# %% [markdown]
# # Rollouts of a language model
#
# Which rollouts are worth a backward pass? The policy is a table of logits here, so that the true gradient is known
# and the notebook runs in seconds; with a language model only the three arrays change.

# %%
import matplotlib.pyplot as plt
import torch

import obrs

torch.manual_seed(0)
B, T, V = 64, 12, 50
policy = torch.randn(T, V, requires_grad=True)
engine = torch.log_softmax(policy.detach() / 1.2, dim=-1)  # the engine samples at temperature 1.2
mask = torch.arange(T) < torch.randint(4, T + 1, (B, 1))
tokens = torch.distributions.Categorical(logits=engine).sample((B,))
reward = (tokens % 7 == 0).float().mean(dim=1)
advantage = reward - reward.mean()


def token_logp(law, rows):
    return law.expand(len(rows), T, V).gather(2, rows[..., None])[..., 0]


logp_rollout, logp_train = token_logp(engine, tokens), token_logp(torch.log_softmax(policy, -1), tokens)

# %% [markdown]
# Keep a quarter. The weights contain their denominator, so the loss is a sum.

# %%
pick = obrs.rollout(logp_train, logp_rollout, mask, keep=0.25, seed=0)
pick


# %% [markdown]
# How far is the gradient of the kept rollouts from that of all 64 with weights r/Σr? `size=` prefers rows that
# matter.


# %%
def gradient(index, weight):
    logp = (token_logp(torch.log_softmax(policy, -1), tokens[index]) * mask[index]).sum(1)
    return torch.autograd.grad(-(weight * advantage[index] * logp).sum(), policy)[0]


log_r = ((logp_train - logp_rollout) * mask).sum(1).detach()
whole = gradient(torch.arange(B), torch.softmax(log_r, 0))


def error(n, seed, how):
    if how == "random":
        index = torch.randperm(B, generator=torch.Generator().manual_seed(seed))[:n]
        weight = torch.softmax(log_r[index], 0)
    else:
        size = advantage.abs() if how == "OBRS, by size" else None
        chosen = obrs.rollout(logp_train, logp_rollout, mask, keep=n, size=size, seed=seed)
        index, weight = chosen.index, chosen.weight
    return float((gradient(index, weight) - whole).norm() / whole.norm())


for how in ("random", "OBRS", "OBRS, by size"):
    numbers = [4, 8, 16, 32, 48]
    plt.plot(numbers, [sum(error(n, seed, how) for seed in range(100)) / 100 for n in numbers], "o-", label=how)
plt.xlabel("rollouts with a backward pass, of 64")
plt.ylabel("error of the gradient")
plt.ylim(0)
plt.legend()
plt.show()

# %% [markdown]
# Rewards on a budget of KL: exactly 4 of 16 completions of every prompt, better ones more often.

# %%
scores = torch.randn(8 * 16)
prompt = torch.arange(8).repeat_interleave(16)
kls = [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9]
picks = [obrs.tilt(scores, groups=prompt, keep=4, kl=kl) for kl in kls]
plt.plot(kls, [pick.metrics["reward"] for pick in picks], "o-", label="kept")
plt.plot(kls, [pick.metrics["best"] for pick in picks], "--", label="best possible at this KL")
plt.xlabel("KL to the pool, nats")
plt.ylabel("mean reward")
plt.legend()
plt.show()
