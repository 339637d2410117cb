"""Train the classifier of clothes that `obrs.metrics.features` ships, and measure what every extractor sees.

obrs data fetch fashion_mnist; obrs data fetch mnist
python tools/features.py train           # two minutes on one core; writes the weights into the package
python tools/features.py measure         # writes results/features.json: k-NN accuracy on labelled images
"""

import argparse
import json
from pathlib import Path

import numpy as np

from obrs.data.images import load
from obrs.metrics.features import FEATURES, extract

ROOT = Path(__file__).parents[1]
WEIGHTS = ROOT / "src/obrs/metrics/weights/fashion_classifier.safetensors"
SETS = {"digits": (1500, 297), "mnist": (2000, 1000), "fashion_mnist": (2000, 1000)}  # labelled, asked
NEIGHBOURS = 5


def train(epochs=6):
    import torch

    from obrs.fitting.tensors import write_tensors
    from obrs.models.classifier import fit_classifier, small_classifier

    images = load("fashion_mnist")
    torch.manual_seed(0)
    net = small_classifier(28, width=16, features=64)
    net = fit_classifier(images.train, images.train_labels, network=net, epochs=epochs, batch_size=128, seed=0)
    accuracy = net.accuracy(images.test, images.test_labels)
    facts = {"spec": net.spec, "data": "fashion_mnist", "epochs": epochs, "test accuracy": round(accuracy, 4)}
    write_tensors(WEIGHTS, net.state_dict(), facts)
    print(f"{WEIGHTS}: {WEIGHTS.stat().st_size:,} bytes, test accuracy {accuracy:.4f}")


def nearest(known, labels, asked):
    """The class that most of the nearest neighbours have, the smallest of several."""
    squares = (asked**2).sum(1)[:, None] + (known**2).sum(1) - 2 * asked @ known.T
    votes = labels[np.argsort(squares, axis=1, kind="stable")[:, :NEIGHBOURS]]
    return np.array([np.bincount(row).argmax() for row in votes])


def measure():
    maps = {"pixels": lambda x: x.reshape(len(x), -1)}
    maps |= {name: lambda x, name=name: extract(x, name) for name in FEATURES if name != "inception_v3"}
    rows = []
    for data, (labelled, asked) in SETS.items():
        images = load(data)
        for name, features in maps.items():
            known, queries = (features(x).astype(np.float64) for x in (images.train[:labelled], images.test[:asked]))
            found = nearest(known, images.train_labels[:labelled], queries)
            right = float(np.mean(found == images.test_labels[:asked]))
            rows.append({"data": data, "features": name, "dimension": known.shape[1], "right": right})
            print(rows[-1])
    record = {"neighbours": NEIGHBOURS, "labelled and asked": SETS, "rows": rows}
    (ROOT / "results/features.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["train", "measure"])
    {"train": train, "measure": measure}[parser.parse_args().what]()
