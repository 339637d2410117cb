"""The generators of the image experiments with their critics, and the parts of the data that each was trained on.

`python -m paper.image_gans fashion_mnist 0 FOLDER` trains a GAN of digits, MNIST or Fashion-MNIST again and writes two
files, of the generator and of the critic. The GANs of CIFAR-10 are units of `runs/train_cifar.py`. All are committed.
`celeba 0 FOLDER` trains the paper's BigGAN, on a machine with GPUs, of the faces in FOLDER/celeba.npz; the presets
`paper` of `figure-pretrained` and `table-finetune` read it with `--home FOLDER`.
"""

import argparse
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from obrs._checks import check_count
from obrs._text import lookup
from obrs.draws import normals, uniforms
from obrs.errors import InputError
from obrs.fitting.tensors import check_module, read_tensors, write_tensors
from obrs.models.registry import build

from .data.images import Pixels, load
from .harness import guard
from .image_training import CELEBA, Config, settings
from .nets import WEIGHTS
from .nets.cifar import build_gan, load_unit
from .train import train

__all__ = ["PARTS", "SEED", "SETTINGS", "ImageGan", "Labelled", "load_gan", "load_part", "parts", "train_gan"]

SEED = 100  # of proposals: no seed that a model was trained with
# How many training images each part gets, in this order. The real images of every measurement are the test set.
PARTS = {
    "digits": {"generator": 700, "ratio": 400, "features": 200, "judge": 200},
    "fashion_mnist": {"generator": 30_000, "ratio": 14_000, "features": 8_000, "judge": 8_000},
    "mnist": {"generator": 40_000, "ratio": 12_000, "features": 8_000},
    "cifar10": {"generator": 40_000, "ratio": 4_000, "features": 4_000, "judge": 2_000},
}
_HINGE: dict[str, Any] = {
    "classes": True,
    "generator": {"name": "conv_generator", "latent": 64, "width": 32},
    "critic": {"name": "conv_critic", "width": 32, "spectral_norm": True, "heads": 2},
    "loss": "hinge", "batch_size": 64, "lr": (2e-4, 4e-4), "ema": 0.999, "ema_start": 500,
}  # fmt: skip


def _plain(latent: int, width: int) -> dict[str, Any]:
    """Return three linear layers in each network, as in the landscape of the paper, which says no more about them."""
    sizes = {"width": width, "layers": 2, "activation": "leaky_relu"}
    return {
        "generator": {"name": "mlp_generator", "latent": latent, "output": "tanh", **sizes},
        "critic": {"name": "mlp_critic", **sizes},
        "loss": "non_saturating", "batch_size": 128, "lr": (2e-4, 2e-4), "ema": 0.999, "ema_start": 2_000,
    }  # fmt: skip


SETTINGS: dict[str, dict[str, Any]] = {
    "digits": _HINGE | {"data": "digits", "steps": 5_000},
    "fashion_mnist": _HINGE | {"data": "fashion_mnist", "steps": 8_000},
    "mnist_plain": _plain(64, 256) | {"data": "mnist", "steps": 20_000},
    "mnist_five": _plain(64, 256) | {"data": "mnist", "steps": 20_000},
    "digits_plain": _plain(16, 64) | {"data": "digits", "steps": 8_000},
    "celeba": settings(Config(("hinge",), **CELEBA), "hinge", 0) | {"data": "celeba"},
}
"""How each generator is trained, by name; the digits are also for the smoke presets."""
SHOWN = {"mnist_five": (1, 3, 4, 7, 9)}
"""The digits that a generator sees, where it is not all of them."""


class Labelled(NamedTuple):
    """Images in [-1, 1], shape `(n, channels, height, width)`, and their classes, None if there are none."""

    x: Any
    label: Any


@dataclass(frozen=True, eq=False)
class ImageGan:
    """A trained generator: the moving average of its weights, with the critic that it was trained against."""

    generator: Any  # maps latents and labels to images
    critic: Any  # two outputs an image: hinge score and log-ratio of the raw generator; None if it is not kept
    classes: int | None  # number of labels, each proposed equally often; None if the networks take no label
    half: bool = False  # compute in bfloat16, in which those of CIFAR-10 were trained; it takes half of the time

    def propose(self, ids: Any, *, seed: int = 0) -> tuple[Any, Any]:
        """Return the images with these ids and their labels, 0 for all if there are none."""
        like = next(self.generator.parameters())
        with torch.no_grad(), torch.autocast(like.device.type, torch.bfloat16, enabled=self.half):
            label = torch.from_numpy((uniforms(ids, seed=seed) * (self.classes or 1)).astype(np.int64))
            z = normals(ids, self.generator.latent, seed=seed, like=like.detach())
            images = self.generator(z, label.to(like.device)) if self.classes else self.generator(z)
            return images.float().cpu(), label


@cache
def parts(name: str, home: str = "") -> dict[str, Labelled]:
    """Return the disjoint parts of a data set: generator, ratio, features, judge and test.

    Args:
        name: A key of `PARTS`; with a `home` the name of a file there.
        home: A folder with NAME.npz, which holds `train` and `test`, images of shape `(n, channels, h, w)` in [-1, 1]
            or as bytes, and maybe `train_labels` and `test_labels`. They are cut as Fashion-MNIST is.
    """
    if home:
        images, sizes = _read_own(Path(home) / f"{name}.npz"), PARTS["fashion_mnist"]
    else:
        sizes = lookup(PARTS, name, "data set of the image experiments")
        images = vars(load(name))
    count, labels = len(images["train"]), images.get("train_labels")
    ends = (np.cumsum([0, *sizes.values()]) * count) // sum(sizes.values())
    cut = {
        part: Labelled(images["train"][low:high], None if labels is None else labels[low:high])
        for part, low, high in zip(sizes, ends[:-1], ends[1:], strict=True)
    }
    cut |= {"test": Labelled(images["test"], images.get("test_labels"))}
    # bytes stay bytes for the generator; of the others there are few
    return {part: one if part == "generator" else Labelled(np.asarray(one.x), one.label) for part, one in cut.items()}


def _read_own(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"there is no {path}; it must hold train and test, images of shape (n, channels, h, w)")
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    for key in ("train", "test"):
        shape = np.shape(arrays.get(key, ()))
        if len(shape) != 4:
            raise InputError(f"{path} must hold {key}, images of shape (n, channels, h, w), got shape {shape}")
        arrays[key] = Pixels(arrays[key]) if arrays[key].dtype == np.uint8 else arrays[key]
    return arrays


def train_gan(name: str, seed: int, out: Path) -> Path:
    """Train one generator, resumable in `out`, write its networks there in half precision, and return that folder."""
    settings = lookup(SETTINGS, name, "generator to train") | {"seed": check_count(seed, "seed", least=0)}
    data = settings["data"]
    mine = parts(data, "" if data in PARTS else str(out))["generator"]
    shown = np.isin(mine.label, SHOWN[name]) if name in SHOWN else slice(None)
    x = np.asarray(mine.x)[shown]
    done = train(settings, data=(x, mine.label[shown]) if settings.get("classes") else x, out=out / f"{name}-{seed}")
    for part, network in (("generator", done.generator), ("critic", done.critic)):
        facts = {"spec": network.spec, "data": data, "seed": seed, "steps": settings["steps"]}
        facts["command"] = f"python -m paper.image_gans {name} {seed} FOLDER"
        tensors = {key: x.half() if x.is_floating_point() else x for key, x in network.state_dict().items()}
        write_tensors(out / f"{name}-{seed}-{part}.safetensors", tensors, facts)
    return out


def load_gan(name: str, seed: int = 0, home: str = "") -> ImageGan:
    """Return a generator with its critic, in evaluation mode.

    Args:
        name: `digits` or `fashion_mnist`, or of CIFAR-10 `cifar10-gan`, `cifar10-plain`, `cifar10-biggan` and, without
            a critic, `cifar10-finetune-LOSS` and `cifar10-scratch-LOSS`; with a `home` that of a file there.
        home: A folder with generators of your own; "" for those that are committed.
    """
    if home or not name.startswith("cifar10-"):
        generator, critic = (load_part(name, seed, part, home) for part in ("generator", "critic"))
        return ImageGan(generator, critic, generator.classes)
    kind = name.removeprefix("cifar10-")
    generator, critic = (net.eval().requires_grad_(False) for net in build_gan(kind))
    alone = kind.startswith(("finetune", "scratch"))
    load_unit(f"{kind}-{seed}", {"generator": generator} | ({} if alone else {"critic": critic}))
    classes = None if kind == "plain" else generator.classes
    return ImageGan(generator, None if alone else critic, classes, half=True)


def load_part(name: str, seed: int = 0, part: str = "generator", home: str = "") -> Any:
    """Return one network of a model in evaluation mode, as `train_gan` left it; `home` as of `load_gan`."""
    folder = Path(home) if home else WEIGHTS
    path = folder / f"{name}-{seed}-{part}.safetensors"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in folder.glob(f"*-{part}.safetensors"))) or "none"
        raise InputError(f"there is no {name}-{seed}-{part} in {folder}; there are: {known}")
    tensors, facts = read_tensors(path, f"a {part} of the image experiments")
    network = build(facts["spec"]).eval().requires_grad_(False)
    check_module(network, tensors, part, path)
    network.load_state_dict(tensors)
    return network


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m paper.image_gans")
    for word, kind in (("name", str), ("seed", int), ("folder", Path)):
        parser.add_argument(word, type=kind)
    sys.exit(guard(lambda: print(train_gan(*vars(parser.parse_args()).values()))))
