"""A diffusers pipeline with a scorer: fours from a model of all digits, without training it again.

Run:  python examples/diffusers_scorer.py

A DDPM of 8x8 digits is trained here for seconds, so its images are rough. The scorer is a classifier of digits. By
Bayes, p(x | four) / p(x) is proportional to p(four | x), so log p(four | x) is the log-ratio. Another classifier,
trained on other images, judges what is kept: 1 in 8, where about 1 in 8 images is a four.
"""

import numpy as np
import torch
from diffusers import DDIMPipeline, DDIMScheduler, UNet2DModel
from sklearn.datasets import load_digits

import obrs
from obrs.adapters import from_pipeline
from obrs.models.classifier import fit_classifier

DIGIT, BUDGET, N = 4, 8, 32
SHAPE = {"down_block_types": ["DownBlock2D"] * 2, "up_block_types": ["UpBlock2D"] * 2, "block_out_channels": [16, 32]}


def train(images, steps=120, batch=32):
    """Return a pipeline whose network predicts the noise in these images."""
    torch.manual_seed(0)
    small = {"layers_per_block": 1, "norm_num_groups": 8, "add_attention": False}
    unet = UNet2DModel(8, in_channels=1, out_channels=1, **SHAPE, **small)
    noising = DDIMScheduler(beta_schedule="squaredcos_cap_v2")
    adam = torch.optim.AdamW(unet.parameters())
    rate = torch.optim.lr_scheduler.OneCycleLR(adam, 6e-3, total_steps=steps)
    for _ in range(steps):
        x = images[torch.randint(len(images), (batch,))]
        noise, t = torch.randn_like(x), torch.randint(1000, (batch,))
        adam.zero_grad()
        torch.mean((unet(noising.add_noise(x, noise, t), t).sample - noise) ** 2).backward()
        adam.step()
        rate.step()
    pipe = DDIMPipeline(unet.eval(), noising)  # yours: DiffusionPipeline.from_pretrained(...)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def main():
    digits, order = load_digits(), np.random.default_rng(0).permutation(1797)
    images, labels = (digits.images[order, None] / 8 - 1).astype(np.float32), digits.target[order]
    pipe = train(torch.from_numpy(images[:1500]))
    propose = from_pipeline(pipe, arguments={"num_inference_steps": 8}, batch_size=128)
    scorer = fit_classifier(images[:750], labels[:750], epochs=10)
    judge = fit_classifier(images[750:1500], labels[750:1500], epochs=10, seed=1)

    kept = obrs.sample(propose, lambda x: scorer(x).log_softmax(1)[:, DIGIT], N, budget=BUDGET)
    print(f"the judge is right about {100 * judge.accuracy(images[1500:], labels[1500:]):.0f} % of the test images")
    for name, x in (("proposed", propose(range(10**6, 10**6 + 128))), (f"kept, 1 in {1 / kept.rate:.0f}", kept.x)):
        print(f"{name:12} {100 * float((judge.predict(x) == DIGIT).float().mean()):3.0f} % of {len(x)} are fours")


if __name__ == "__main__":
    main()
