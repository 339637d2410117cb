# %% [markdown]
# # Quick start
#
# A model N(0, 2²), a target N(1, 1), and a budget. Seconds on a CPU, NumPy only (and matplotlib for the pictures).

# %%
import matplotlib.pyplot as plt
import numpy as np

import obrs


def propose(ids):
    """Return one sample of the model per id."""
    return 2 * obrs.normals(ids, 1, seed=0)[:, 0]


def log_ratio(x):
    """Return log p(x) - log q(x)."""
    return -((x - 1) ** 2) / 2 + (x / 2) ** 2 / 2 + np.log(2)


# %% [markdown]
# What would each budget buy? A profile of a few thousand log-ratios answers before you pay for it.

# %%
profile = obrs.Profile(log_ratio(propose(np.arange(10_000))))
profile.plan([1, 1.5, 2, 4], n=5000)

# %%
profile.plot([1.5, 2])

# %% [markdown]
# Keep 5000 samples at K = 2, and compare them with the target.

# %%
kept = obrs.sample(propose, log_ratio, 5000, budget=2)
kept

# %%
x = np.linspace(-5, 5, 400)
figure, axes = plt.subplots(figsize=(7, 3))
axes.hist(propose(np.arange(5000)), 60, range=(-6, 6), density=True, alpha=0.4, label="model")
axes.hist(kept.x, 60, range=(-6, 6), density=True, alpha=0.6, label="kept, 1 in 2")
axes.plot(x, np.exp(-((x - 1) ** 2) / 2) / np.sqrt(2 * np.pi), "k", label="target")
axes.legend()
plt.show()

# %% [markdown]
# Averages under the target use the weights that are left, and come with an interval. E[x²] is 2.

# %%
print("without weights", np.mean(kept.x**2).round(3))
print("with weights   ", kept.mean(lambda x: x**2, confidence=0.95))

# %% [markdown]
# From a pool that exists already, keep exactly n:

# %%
scores = log_ratio(propose(np.arange(6500)))
index = obrs.select(scores, 2500)
len(index), index[:8]
