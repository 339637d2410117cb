"""A torch generator with a discriminator needs no adapter but `Model`: images by id, whatever the batch."""

import numpy as np
import torch

import obrs
from obrs.rivals import Model
from paper.image_gans import load_gan


def test_images_of_a_generator_with_labels_do_not_depend_on_the_batch():
    gan = load_gan("digits")
    model = Model(gan.generator, lambda x, y: gan.critic(x, y)[:, 1], dim=64, labels=10, like=torch.empty(0))
    order = np.random.default_rng(0).permutation(60)
    with torch.no_grad():
        x, y = model.propose(np.arange(60))
        for ids in np.array_split(order, 7):
            part, labels = model.propose(ids)
            assert torch.equal(labels, y[ids])
            assert torch.equal(model.latent(ids), model.latent(np.arange(60))[ids])
            torch.testing.assert_close(part, x[ids], rtol=0, atol=1e-5)  # images are in [-1, 1]
    one, other = (
        obrs.sample(model.propose, model.score, 40, budget=3, batch_size=size, max_proposed=120) for size in (32, 120)
    )
    np.testing.assert_array_equal(one.ids, other.ids)
    torch.testing.assert_close(one.x[0], other.x[0], rtol=0, atol=1e-5)
