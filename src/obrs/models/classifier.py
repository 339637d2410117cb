"""A small classifier of images: an independent judge of what a generator makes, and features to compare it by."""

from math import ceil
from typing import Any

import numpy as np
import torch
from torch import nn

from .._checks import check_count, check_labels, check_seed
from ..errors import InputError, InputTypeError
from ..fitting.loop import fit
from ..fitting.seeds import own_noise
from ..types import Array

__all__ = ["Classifier", "as_classes", "fit_classifier"]

_BLOCK = 1024  # images at a time, where no gradient is wanted
_BATCH = 64  # images a step
_RATE = 3e-3  # highest learning rate of Adam; it rises and falls once


class Classifier(nn.Module):  # type: ignore[misc]
    """Convolutions, a layer of features, and one logit per class, for images `(n, channels, size, size)`.

    Args:
        size, channels: Pixels a side, at least 8, and 1 for grey or 3 for colour.
        classes: Logits out.
        width, features: Channels of the first convolution, and units of the layer before the logits.

    Example:
        >>> net = Classifier(8)
        >>> net(torch.zeros(5, 1, 8, 8)).shape, net.features(torch.zeros(5, 1, 8, 8)).shape
        (torch.Size([5, 10]), torch.Size([5, 64]))
    """

    def __init__(self, size: int, channels: int = 1, classes: int = 10, *, width: int = 16, features: int = 64) -> None:
        super().__init__()
        self.spec = {"name": "classifier", "size": size, "channels": channels, "classes": classes, "width": width}
        self.spec |= {"features": features}
        if check_count(size, "size") < 8:
            raise InputError(f"size must be at least 8 pixels, got {size}; pad the images")
        self.classes = check_count(classes, "classes")
        self.body = nn.Sequential(
            nn.Conv2d(check_count(channels, "channels"), check_count(width, "width"), 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=1 if size < 16 else 2, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(4),
            nn.Flatten(),
            nn.Dropout(0.25),
            nn.Linear(32 * width, check_count(features, "features")),
            nn.ReLU(),
        )
        self.head = nn.Linear(features, classes)

    def features(self, x: Array, label: Array | None = None) -> Array:
        """Return what the last layer sees, shape `(n, features)`; a label is ignored, as below."""
        return self.body(x)

    def forward(self, x: Array, label: Array | None = None) -> Array:
        """Return the logits of shape `(n, classes)`; a label, as features of labelled samples get it, is ignored."""
        return self.head(self.features(x))

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def predict(self, x: Array) -> Array:
        """Return the most probable class of each image, shape `(n,)`, in the library of x."""
        like = self.head.weight
        labels = [self(torch.as_tensor(part).to(like)).argmax(dim=1) for part in _blocks(x)]
        classes = torch.cat(labels)
        return classes.cpu().numpy() if isinstance(x, np.ndarray) else classes

    def accuracy(self, x: Array, labels: Array) -> float:
        """Return the share of images whose most probable class is their label."""
        classes = torch.as_tensor(self.predict(x))
        return float((classes == torch.as_tensor(labels).to(classes.device)).double().mean())


def fit_classifier(
    real: Any,
    labels: Any,
    *,
    network: nn.Module | None = None,
    epochs: int = 15,
    seed: int = 0,
    progress: bool | None = None,
) -> Any:
    """Train a classifier of images by cross-entropy, and return it in evaluation mode.

    Args:
        real: Images, shape `(n, channels, size, size)`, NumPy or torch.
        labels: Classes from 0 on, shape `(n,)`.
        network: What to train, in place; None makes a `Classifier`.
        epochs: Passes over the images.
        seed: Decides the initial weights, the order and the dropout.
        progress: Show a bar; None shows one on a terminal.
    """
    try:
        x, seed = torch.as_tensor(real), check_seed(seed)
    except (TypeError, RuntimeError) as error:
        raise InputTypeError(f"real must be an array of images, got {type(real).__name__}") from error
    if x.ndim != 4 or not len(x) or not x.is_floating_point() or not torch.isfinite(x).all():
        expected = "finite float images of shape (n, channels, size, size)"
        raise InputError(f"real must be {expected}, got {tuple(x.shape)} {x.dtype}")
    y = as_classes(labels, len(x))
    generator = torch.Generator().manual_seed(seed)
    steps = check_count(epochs, "epochs") * ceil(len(x) / _BATCH)
    with own_noise("cpu" if network is None else next(network.parameters()).device) as reseed:
        reseed(seed)
        net = Classifier(x.shape[2], x.shape[1], int(y.max()) + 1) if network is None else network
        like = next(net.parameters())
        optimiser = torch.optim.Adam(net.parameters(), lr=_RATE)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, _RATE, total_steps=steps)
        order = (index for _ in range(epochs) for index in torch.randperm(len(x), generator=generator).split(_BATCH))

        def loss(step: int) -> Array:
            index = next(order)
            return nn.functional.cross_entropy(net(x[index].to(like)), y[index].to(like.device))

        net.train()
        fit(loss, optimiser, steps, schedule=schedule, progress=progress)
    return net.eval()


def as_classes(labels: Any, n: int) -> torch.Tensor:
    """Return n labels as integers from 0 on, on the CPU."""
    classes = np.asarray(check_labels(labels, "labels"))
    if classes.shape != (n,) or classes.min(initial=0) < 0:
        raise InputError(f"labels must be classes from 0 on, shape ({n},), got {classes.shape}: {classes.flat[:3]}")
    return torch.from_numpy(classes.astype(np.int64))


def _blocks(x: Array) -> list[Array]:
    return [x[at : at + _BLOCK] for at in range(0, len(x), _BLOCK)]
