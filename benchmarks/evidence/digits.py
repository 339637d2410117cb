"""scikit-learn's digits with an under-trained convolutional GAN, judged by a classifier of real digits.

Two set-ups. The plain one; and, as the digits have 17 grey levels that no generator hits, one where normal noise of a
grey level is a part of both, the target and the model, so that no critic can go by the levels alone.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn.functional import softmax

import obrs
from obrs.fitting.seeds import own_noise
from obrs.models.classifier import fit_classifier
from obrs.models.conv import ConvCritic
from paper.data.images import load
from paper.gan25 import gan_step
from paper.nets.conv import ConvGenerator
from paper.scores import jensen_shannon

CONFIDENT = 0.95
LATENT = 32
LIKE = torch.empty(0)


@dataclass(frozen=True)
class Setup:
    """How the data look and how long the GAN is trained.

    Args:
        steps: Of the GAN.
        rates: Learning rates of critic and generator; with equal ones the critic never gets ahead.
        noise: Standard deviation of the noise in images and model; a grey level is 1/8.
    """

    steps: int
    rates: tuple[float, float]
    noise: float = 0.0

    @property
    def latents(self):
        """Latents of an image, those of its noise included."""
        return LATENT + (64 if self.noise else 0)


SETUPS = {"digits": Setup(1500, (2e-3, 5e-4)), "noisy digits": Setup(600, (1e-3, 2e-4), noise=1 / 8)}


def train_gan(real, setup, *, seed=0, batch=64):
    """Train with the non-saturating loss, one step each, Adam with betas 0.5 and 0.999."""
    with own_noise() as reseed:
        reseed(seed)
        generator, critic = ConvGenerator(LATENT, size=8, width=32), ConvCritic(size=8, width=32)
    rates = zip((critic, generator), setup.rates, strict=True)
    optimisers = [torch.optim.Adam(net.parameters(), rate, (0.5, 0.999)) for net, rate in rates]
    random = torch.Generator().manual_seed(seed)
    for _ in range(setup.steps):
        x = real[torch.randint(len(real), (batch,), generator=random)]
        fake = make(generator, torch.randn(batch, setup.latents, generator=random), setup)
        gan_step(critic, x, fake, *optimisers)
    return generator.eval(), critic.eval()


def make(generator, z, setup):
    """An image from the first latents, and its noise from the others."""
    image = generator(z[:, :LATENT])
    return image + setup.noise * z[:, LATENT:].reshape(image.shape) if setup.noise else image


def proposal(generator, seed, setup):
    """Make proposals whose latents are a function of the seed and their id."""

    def propose(ids):
        with torch.no_grad():
            return make(generator, obrs.normals(ids, setup.latents, seed=seed, like=LIKE), setup)

    return propose


class Judge:
    """A classifier trained on real digits that sees neither the GAN nor any ratio."""

    def __init__(self, images, *, epochs):
        self.net = fit_classifier(images.train, images.train_labels, epochs=epochs, seed=5, progress=False)
        self.accuracy = self.net.accuracy(images.test, images.test_labels)
        self.real = torch.as_tensor(np.concatenate([images.train, images.test]))
        features, probabilities = self._look(self.real)
        self.moments = features.mean(axis=0), np.cov(features.T)
        self.classes = np.bincount(probabilities.argmax(axis=1), minlength=10) / len(probabilities)

    def _look(self, x):
        with torch.no_grad():
            features = self.net.features(x)
            return features.double().numpy(), softmax(self.net.head(features), dim=1).double().numpy()

    def score(self, x):
        """The columns of the table."""
        features, probabilities = self._look(torch.as_tensor(x))
        classes = np.bincount(probabilities.argmax(axis=1), minlength=10) / len(probabilities)
        return {
            "confident": float(np.mean(probabilities.max(axis=1) >= CONFIDENT)),
            "class jsd": jensen_shannon(classes, self.classes),
            "fd": frechet(self.moments, (features.mean(axis=0), np.cov(features.T))),
        }


def frechet(real, fake):
    """The squared Fréchet distance of two Gaussians, each a mean and a covariance."""
    values, axes = np.linalg.eigh(real[1])
    root = (axes * np.sqrt(values.clip(0))) @ axes.T
    cross = np.sqrt(np.linalg.eigvalsh(root @ fake[1] @ root).clip(0)).sum()
    return float(np.sum((real[0] - fake[0]) ** 2) + np.trace(real[1]) + np.trace(fake[1]) - 2 * cross)


def digits(setup):
    """The images with their noise, and how many of those to train on are held out from the GAN."""
    images, random = load("digits"), np.random.default_rng(0)
    if setup.noise:
        parts = {"train": images.train, "test": images.test}
        noisy = {k: x + setup.noise * random.standard_normal(x.shape, dtype=np.float32) for k, x in parts.items()}
        images = replace(images, **noisy)
    return images, len(images.train) // 5
