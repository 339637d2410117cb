"""Train the classifier of clothes that `obrs.metrics.features` ships, and write its weights into the package.

obrs data fetch fashion_mnist
python tools/features.py                 # two minutes on one core
"""

import argparse
from pathlib import Path

from obrs.data.images import load
from obrs.fitting.tensors import write_tensors
from obrs.models.classifier import fit_classifier, small_classifier

WEIGHTS = Path(__file__).parents[1] / "src/obrs/metrics/weights/fashion_classifier.safetensors"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    options = parser.parse_args()
    import torch

    images = load("fashion_mnist")
    torch.manual_seed(0)
    net = small_classifier(28, width=16, features=64)
    net = fit_classifier(images.train, images.train_labels, network=net, epochs=options.epochs, batch_size=128, seed=0)
    accuracy = net.accuracy(images.test, images.test_labels)
    facts = {"spec": net.spec, "data": "fashion_mnist", "epochs": options.epochs, "test accuracy": round(accuracy, 4)}
    write_tensors(options.out, net.state_dict(), facts)
    print(f"{options.out}: {options.out.stat().st_size:,} bytes, test accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
