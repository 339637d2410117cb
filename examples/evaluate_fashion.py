"""What did the budget buy? A small GAN of clothes, a ratio fitted on features, and every metric at every budget.

Run:  obrs data fetch fashion_mnist
      obrs train examples/train-fashion.toml -o out/fashion
      python examples/evaluate_fashion.py out/fashion      (writes out/evaluate-fashion.json and .png)

The ratio is fitted on the features of a classifier, from training images. It is judged on test images, by features it
has not seen: oriented gradients. The last part gives each class a constant of its own.
"""

import argparse
from pathlib import Path

import numpy as np

import obrs
from obrs.data.images import load
from obrs.metrics.features import FEATURES
from obrs.ratios.refit import Network, refit
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
    parser.add_argument("--pool", type=int, default=10_000, help="proposals that are judged")
    parser.add_argument("--real", type=int, default=5_000, help="test images that they are judged by")
    options = parser.parse_args()
    run, clothes, see = load_trained(options.run), load("fashion_mnist"), FEATURES["fashion_classifier"]

    for_fit, _ = drawn(run, 10**6, 20_000)
    fitted = refit(see(clothes.train[:20_000]), see(for_fit), Network(width=64), steps=1500)
    print(fitted.report)

    pool, labels = drawn(run, 0, options.pool)
    log_ratio = fitted(see(pool))
    common = {"real": clothes.test[: options.real], "fake": pool, "log_ratio": log_ratio, "features": "gradients"}
    table = obrs.evaluate(**common, budgets=BUDGETS, fitted_on=clothes.train[:20_000])
    print(table)
    table.save(options.out, name="evaluate-fashion")
    by_class = obrs.evaluate(**common, budgets=BUDGETS, groups=labels, rules=["obrs"])
    print("\nOne constant per class:")
    print(by_class)
    by_class.save(options.out, name="evaluate-fashion-classes")


if __name__ == "__main__":
    main()
