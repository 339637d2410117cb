"""A conditional GAN: kept digits as frequent as real ones, whatever the ratio thinks of each class.

Run from the repository, whose package `paper` has the GAN:  PYTHONPATH=. python examples/conditional_shares.py

The GAN makes digits of 8x8 pixels. Its ratio is fitted on features of a small classifier. With one constant
for all, classes that are easy to tell from real nearly vanish. With `shares=` they are kept as often as they are in the
data, at the same price. Generator, features, ratio and judge were trained on different images, and the distance is that
between features of the test images and of what is kept, as the judge sees them.
"""

import numpy as np
import torch

import obrs
from obrs.metrics import frechet
from obrs.models.classifier import fit_classifier
from obrs.ratios.refit import Network, classifier_features, refit
from paper.data.images import load
from paper.image_gans import load_gan, parts

BUDGET, N = 4, 2_000


def main():
    torch.set_num_threads(1)  # sums of several threads round in another order, and training makes much of it
    gan, data = load_gan("digits"), parts("digits")
    features = classifier_features(data["features"].x, data["features"].label, epochs=10)
    fakes = gan.propose(np.arange(2**40, 2**40 + 4_000))
    ratio = refit(data["ratio"], fakes, Network(width=96, waves=0), features=features, steps=200, held_out=0.2, fits=3)

    judge = fit_classifier(*data["judge"], epochs=10, seed=1)

    def distance(images):  # between what the judge sees of them and of the test images
        with torch.no_grad():
            seen = [judge.features(torch.as_tensor(x)) for x in (data["test"].x, images)]
        return frechet(real=seen[0], fake=seen[1])

    labels = load("digits").train_labels
    shares = np.bincount(labels) / len(labels)
    by_label = {"groups": lambda batch: batch[1]}
    ways = {"one constant": {}, "one per class": by_label, "shares": by_label | {"shares": dict(enumerate(shares))}}
    kept = {name: obrs.sample(gan.propose, ratio, N, budget=BUDGET, **options).x for name, options in ways.items()}
    print("digit           " + "".join(f"{digit:5}" for digit in range(10)) + "  distance")
    print("real, %         " + "".join(f"{100 * share:5.1f}" for share in shares))
    for name, (images, labels) in {"no rejection": gan.propose(np.arange(N)), **kept}.items():
        percent = 100 * np.bincount(labels, minlength=10) / N
        print(f"{name + ', %':16}" + "".join(f"{share:5.1f}" for share in percent) + f"{distance(images):10.1f}")


if __name__ == "__main__":
    main()
