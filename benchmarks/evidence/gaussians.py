"""25 Gaussians with the GAN of Table 2, whose density is known."""

import numpy as np
import torch

import obrs
from paper import gan25


def check_density(exact, generator, *, n=20_000):
    """Compare the histogram with the change of variables, another route to the same density.

    A latent's own branch is a lower bound of the density, and the density itself where no other latent maps to the
    same place. So the differences must hardly ever be below 0, and their lower quartile is near 0.
    """
    z = obrs.normals(np.arange(n), 2, seed=77, like=gan25.LIKE)
    with torch.no_grad():
        x = generator(z).numpy()
    gap = exact.log_density(x) - gan25.branch_log_density(generator, z)
    log_ratio = exact(x)
    good = np.isfinite(gap)
    return {
        "quartiles of log q (histogram) - log q (one branch)": np.quantile(gap[good], [0.25, 0.5, 0.75]).tolist(),
        "share below -0.5": float(np.mean(gap[good] < -0.5)),
        "mean of the ratio": float(np.mean(np.exp(log_ratio))),
        "its standard error": float(np.std(np.exp(log_ratio)) / np.sqrt(n)),
    }


def score(x):
    """The columns of the table."""
    found = gan25.score(x)
    return {"high quality": found["precision"], "recall": found["recall"], "kl": found["kl"]}
