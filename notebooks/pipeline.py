# %% [markdown]
# # A budget for a diffusers pipeline
#
# Reject images of a pipeline by a reward, first at the end and then half-way: previews that look bad are not
# finished. The pipeline is tiny and not trained, so nothing is downloaded; with your own, only `tiny_pipeline()`
# changes.

# %%
import sys

import matplotlib.pyplot as plt
import numpy as np
import torch

import obrs

sys.path.append("../examples")
import early_rejection as example
from early_rejection import make, preview, redness, tiny_pipeline

pipe = tiny_pipeline()  # yours: DiffusionPipeline.from_pretrained(...)


def propose(ids):
    """Run the whole pipeline on the latents of these ids."""
    return make(pipe, np.asarray(ids), lambda step, latents: None)


def show(images, title):
    figure, panels = plt.subplots(1, 12, figsize=(10, 1.2))
    for axes, image in zip(panels, images, strict=False):
        axes.imshow(image.permute(1, 2, 0).clamp(0, 1))
        axes.axis("off")
    figure.suptitle(title)


# %% [markdown]
# ## At the end
# A reward with a temperature is a log-ratio. The reward is the redness of an image; a pilot gives its scale.

# %%
pilot = redness(propose(range(256)))
log_ratio = obrs.critics.wrap_critic(lambda x: (redness(x) - pilot.mean()) / pilot.std(), "reward", beta=1.0)
kept = obrs.sample(propose, log_ratio, 64, budget=4, start=1000, batch_size=128)
show(propose(range(12)), f"proposals: mean reward {redness(propose(range(64))).mean():.3f}")
show(kept.x, f"kept, 1 in 4: mean reward {redness(kept.x).mean():.3f}")

# %% [markdown]
# ## Half-way
# The preview is what the latents of step 5 of 10 decode to. A regression on the pilot makes it an early log-ratio,
# and `Stages` fits both constants: 1 in 1.3 goes on, 1 in 1.55 of these is kept.

# %%
seen = []


def watch(step, latents):
    if step == example.AT - 1:
        seen.append(preview(pipe, latents))


rewards = torch.cat([redness(make(pipe, ids, watch)) for ids in np.split(np.arange(512), 4)])
final = (rewards - rewards.mean()) / rewards.std()
slope = torch.linalg.lstsq(torch.cat(seen), final).solution
early = torch.cat(seen) @ slope
stages = obrs.rules.Stages.fit([early, final], example.BUDGETS)
plt.figure(figsize=(4, 3))
plt.plot(early, final, ".", markersize=3)
plt.xlabel("log-ratio of the preview")
plt.ylabel("log-ratio of the image")
plt.title(f"correlation {np.corrcoef(early, final)[0, 1]:.2f}")
plt.show()

# %% [markdown]
# A callback of the pipeline drops the rows of rejected previews. The end decides on the others, by the same uniform.

# %%
ids, went_on = np.arange(10_000, 10_256), {}


def reject(step, latents):
    if step != example.AT - 1:
        return None
    scores = preview(pipe, latents) @ slope
    stays = obrs.accept(stages([scores]), ids)
    went_on.update(ids=ids[stays.numpy()], early=scores[stays])
    return stays


images = make(pipe, ids, reject)
scores = (redness(images) - rewards.mean()) / rewards.std()
keep = obrs.accept(stages([went_on["early"], scores]), went_on["ids"])
cost = (len(ids) / 2 + len(images) / 2) / int(keep.sum())
print(f"begun {len(ids)}, finished {len(images)}, kept {int(keep.sum())}: {cost:.2f} runs of the pipeline for each")
show(images[keep], f"kept after two stages: mean reward {redness(images[keep]).mean():.3f}")
