"""What did the budget buy? A small GAN of clothes, a ratio fitted on features, and every metric at every budget.

Run:  obrs data fetch fashion_mnist
      obrs train examples/train-fashion.toml -o out/fashion
      python examples/evaluate_fashion.py out/fashion      (writes three JSON and three PNG into out/)

The ratio is a logistic regression on the features of a classifier, fitted on training images; test images judge.
Three tables: one constant for all classes; one per class; and the latter by features that the ratio never saw.
"""

import argparse
from pathlib import Path

import numpy as np

import obrs
from obrs.data.images import load
from obrs.metrics.features import FEATURES
from obrs.ratios.refit import Head, refit
from obrs.training.trained import load_trained

BUDGETS = [1, 1.5, 2, 4, 8]


def drawn(run, start, n, block=500):
    """Proposals of the generator's moving average with ids from `start`: images and labels."""
    parts = [
        run.propose(np.arange(i, min(i + block, start + n)), network="ema") for i in range(start, start + n, block)
    ]
    images, labels = zip(*parts, strict=True)
    return np.concatenate([x.numpy() for x in images]), np.concatenate([y.numpy() for y in labels])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of the trained GAN")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for what is written")
    parser.add_argument("--pool", type=int, default=6_000, help="proposals that are judged")
    parser.add_argument("--real", type=int, default=4_000, help="test images that they are judged by")
    options = parser.parse_args()
    run, clothes, see = load_trained(options.run), load("fashion_mnist"), FEATURES["fashion_classifier"]

    train, (for_fit, _) = clothes.train[:20_000], drawn(run, 10**6, 20_000)
    fitted = refit(see(train), see(for_fit), Head(lambda features: features), steps=1000)
    print(fitted.report)

    pool, labels = drawn(run, 0, options.pool)
    common = {"real": clothes.test[: options.real], "fake": pool, "log_ratio": fitted(see(pool)), "fitted_on": train}
    for name, about, chosen in (
        ("evaluate-fashion", "One constant", {"features": "fashion_classifier"}),
        ("evaluate-fashion-classes", "One per class", {"features": "fashion_classifier", "groups": labels}),
        ("evaluate-fashion-gradients", "One per class, another judge", {"features": "gradients", "groups": labels}),
    ):
        table = obrs.evaluate(**common, **chosen, budgets=BUDGETS)
        print(f"\n{about}:\n{table}")
        table.save(options.out, name=name)


if __name__ == "__main__":
    main()
