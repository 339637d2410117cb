# %% [markdown]
# # A GAN on two moons
#
# Train a small GAN for a few seconds, let `tune` find a ratio and confirm it, sample with it, and measure what the
# budget bought. Half a minute on a CPU.

# %%
import sys

import matplotlib.pyplot as plt
import torch
from torch import nn

import obrs

sys.path.append("..")  # where the package `paper` of the repository is
from paper.toys import two_moons

torch.manual_seed(0)
data = torch.as_tensor(two_moons().sample(14_000, seed=0), dtype=torch.float32)
train, real, test = data[:4000], data[4000:12_000], data[12_000:]

# %%
G = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
D = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
adams = [torch.optim.Adam(net.parameters(), 1e-3, (0.5, 0.9)) for net in (G, D)]
for _ in range(1000):
    x, fake = train[torch.randint(len(train), (256,))], G(torch.randn(256, 4))
    loss = nn.functional.softplus(-D(x)).mean() + nn.functional.softplus(D(fake.detach())).mean()
    adams[1].zero_grad(), loss.backward(), adams[1].step()
    adams[0].zero_grad(), nn.functional.softplus(-D(fake)).mean().backward(), adams[0].step()


def propose(ids):
    """Make the latents from the ids, so that sample 7 is the same in any batch."""
    with torch.no_grad():
        return G(obrs.normals(ids, 4, seed=0, like=torch.empty(0)))


# %% [markdown]
# `tune` fits candidates, chooses by a judge that none of them saw, and confirms the choice on other samples.

# %%
tuned = obrs.tune(real, propose, budget=4, critic=D, pool=6000)
tuned

# %%
kept = tuned.sample(2000)
figure, panels = plt.subplots(1, 3, figsize=(10, 3.2), sharex=True, sharey=True)
shown = {"target": test, "model": propose(range(2000)), "kept, 1 in 4": kept.x}
for axes, (name, x) in zip(panels, shown.items(), strict=True):
    axes.plot(*x[:2000].T, ".", markersize=2)
    axes.set_title(name)
    axes.set_aspect("equal")

# %% [markdown]
# What did it buy? `evaluate` weighs one fresh pool by the chance of being kept. `*` marks changes that are not 0.
# This GAN has means and covariances nearly right, so the Fréchet distance hardly moves; density and coverage do.

# %%
pool = propose(range(500_000, 504_000))
log_ratio = tuned.log_ratio(pool)
table = obrs.evaluate(real=test, fake=pool, log_ratio=log_ratio, budgets=[1, 2, 4, 8], rules=["obrs", "drs"])
table

# %%
table.plot()
