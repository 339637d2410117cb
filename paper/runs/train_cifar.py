"""Train the CIFAR-10 models of the image experiments, one unit of `QUEUE.md` at a time, on one thread.

`python -m paper.runs.train_cifar gan-0` trains for the CPU minutes of its unit and writes one file of weights below
`paper/weights`. A run that was stopped goes on from its checkpoint in the cache, which is OBRS_DATA or ~/.cache/obrs;
`--minutes` trains longer. `python -m paper fetch cifar10` gets the data.

The last 10 000 of the 50 000 training images are never shown to any model.
"""

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

import obrs
from obrs._files import cache_folder
from obrs.budget import solve_cut
from obrs.metrics.frechet import frechet
from obrs.training.losses import generator_loss

from ..data.images import load
from ..image_diffusion import Denoiser, heun, noise_levels
from ..nets import WEIGHTS
from ..nets.cifar import CLASSES, CifarClassifier, CifarUNet, build_gan, has_unit, load_unit, unit_facts

SHOWN = 40_000


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
    images = load("cifar10")
    x, y = torch.from_numpy(images.train.bytes), torch.from_numpy(images.train_labels)
    test = Images(torch.from_numpy(images.test.bytes), torch.from_numpy(images.test_labels))
    return {"shown": Images(x[:SHOWN], y[:SHOWN]), "held": Images(x[SHOWN:], y[SHOWN:]), "test": test}


class Run:
    """The state of a run, its clock in CPU minutes, and its checkpoint in the cache."""

    def __init__(self, name: str, seed: int, parts: dict[str, Any]) -> None:
        self.path, self.parts = cache_folder() / "cifar10-runs" / f"{name}.pt", parts
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
    name: str, seed: int, goal: float, data: dict[str, Images], *, loss: str = "hinge", start: str = "", size: int = 32
) -> Path:
    """Train a GAN; its critic learns a hinge score, and on a second head a logistic log-ratio.

    Args:
        name: Of the unit, which says what the networks are.
        seed: Of weights, batches and latents.
        goal: CPU minutes, or where losses are compared the steps of the generator, so that all see as many images.
        data: The parts of CIFAR-10.
        loss: Of the generator: the hinge score, or for K = 2 a loss of `obrs.training` on the log-ratio. The critic is
            trained in the same way for all.
        start: The unit whose weights to go on from, with half of its learning rates.
        size: Images in a batch of each kind.
    """
    torch.manual_seed(seed)
    generator, critic = (net.to(memory_format=torch.channels_last) for net in build_gan(name))
    if start:
        load_unit(start, {"generator": generator, "critic": critic})
    mean = copy.deepcopy(generator)
    rate = 1e-4 if start else 2e-4
    opt_g = torch.optim.Adam(generator.parameters(), rate, betas=(0.0, 0.99))
    opt_d = torch.optim.Adam(critic.parameters(), 2 * rate, betas=(0.0, 0.99))
    run = Run(name, seed, {"g": generator, "d": critic, "mean": mean, "opt_g": opt_g, "opt_d": opt_d})
    compared = name.startswith(("finetune", "scratch"))
    points, descend = 3 if start else 12, generator_loss(loss)
    many = 2 * size if compared else size  # c is solved for on one batch: a larger one makes it steadier

    def fakes(n: int) -> tuple[Tensor, Tensor]:
        y = torch.randint(CLASSES, (n,), generator=run.rng)
        return generator(torch.randn(n, generator.latent, generator=run.rng), y), y

    for step in run.steps(**{"most": int(goal)} if compared else {"minutes": goal}):
        x, y = data["shown"].batch(size, run.rng)
        with autocast():
            with torch.no_grad():
                fake, label = fakes(size)
            both = torch.cat([x, fake.float()]).contiguous(memory_format=torch.channels_last)
            score = critic(both, torch.cat([y, label])).float()
        real, fake_score = score[:size], score[size:]
        hinge = functional.relu(1 - real[:, 0]).mean() + functional.relu(1 + fake_score[:, 0]).mean()
        logistic = functional.softplus(-real[:, 1]).mean() + functional.softplus(fake_score[:, 1]).mean()
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
    if not name.startswith("plain") and has_unit("classifier-0"):
        facts["label_accuracy"] = label_accuracy(mean)
    show(lambda y: mean(torch.randn(len(y), mean.latent, generator=torch.Generator().manual_seed(0)), y), name)
    if compared:
        return write(name, {"generator": mean}, facts | {"curve": run.curve})
    return write(name, {"generator": mean, "critic": critic}, facts)


def judge() -> nn.Module:
    """Return the classifier that judges."""
    net = CifarClassifier()
    load_unit("classifier-0", {"classifier": net})
    return net.eval()


def distances(generator: nn.Module, critic: nn.Module, test: Images, n: int = 5000) -> list[float]:
    """Return the Fréchet distance by the classifier to the test images: of proposals, and of 1 in 2 by the critic.

    The critic's log-ratio as it is has one constant per class.
    """
    net, rng = judge(), torch.Generator().manual_seed(2)
    y = torch.arange(CLASSES).repeat(n // CLASSES)
    mode = generator.training, critic.training
    generator.eval()
    critic.eval()
    with torch.no_grad(), autocast():
        latents = [torch.randn(500, generator.latent, generator=rng) for _ in y.split(500)]
        x = torch.cat([generator(z, part).float() for z, part in zip(latents, y.split(500), strict=True)])
        fake = torch.cat([net.features(part).float() for part in x.split(500)]).numpy()
        real = torch.cat([net.features(scale(part)).float() for part in test.x[:n].split(500)]).numpy()
        log_ratio = torch.cat([critic(a, b)[:, 1] for a, b in zip(x.split(500), y.split(500), strict=True)]).numpy()
    generator.train(mode[0])
    critic.train(mode[1])
    kept = np.exp(obrs.Grouped.fit(log_ratio, 2.0, y.numpy())(log_ratio, y.numpy()))
    return [round(frechet(real=real, fake=fake, weights=w), 3) for w in (None, kept)]


def train_edm(seed: int, minutes: float, data: dict[str, Images], *, name: str, size: int = 32) -> Path:
    """Train the denoiser of EDM at log-normal noise levels (mean -1.2, deviation 1.2)."""
    torch.manual_seed(seed)
    net = CifarUNet().to(memory_format=torch.channels_last)
    mean, denoise = copy.deepcopy(net), Denoiser(net)
    optimiser = torch.optim.Adam(net.parameters(), 1e-3, betas=(0.9, 0.99))
    run = Run(f"edm-{seed}", seed, {"net": net, "mean": mean, "opt": optimiser})
    for step in run.steps(minutes):
        x, y = data["shown"].batch(size, run.rng)
        sigma = torch.exp(1.2 * torch.randn(size, generator=run.rng) - 1.2)
        with autocast():
            loss = denoise.loss(x, sigma, torch.randn(x.shape, generator=run.rng), y)
        optimiser.zero_grad()
        loss.backward()
        for group in optimiser.param_groups:
            group["lr"] = 1e-3 * min(1.0, (step + 1) / 500)
        optimiser.step()
        average(mean, net, run.step)
        run.log(loss=loss)
    noise = torch.randn(12 * CLASSES, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    show(lambda y: heun(Denoiser(mean.eval()), noise, noise_levels(18), y), name)
    return write(name, {"denoiser": mean}, {"steps": run.step, "cpu_minutes": round(run.minutes, 1)})


def train_classifier(seed: int, minutes: float, data: dict[str, Images], *, size: int = 64) -> Path:
    """Train the classifier that judges labels of conditional samples; its test accuracy is in the file."""
    torch.manual_seed(seed)
    net = CifarClassifier().to(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=5e-2)
    run = Run(f"classifier-{seed}", seed, {"net": net, "opt": optimiser})
    for _ in run.steps(minutes):
        x, y = data["shown"].batch(size, run.rng)
        down, across = torch.randint(-2, 3, (2,), generator=run.rng).tolist()
        x = torch.roll(x, (down, across), (2, 3))  # what leaves on one side comes in on the other
        with autocast():
            loss = functional.cross_entropy(net(x.contiguous(memory_format=torch.channels_last)), y)
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * max(0.01, 1 - run.minutes / minutes)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        run.log(loss=loss)
    accuracy = measure(net.eval(), scale(data["test"].x), data["test"].y)
    facts = {"steps": run.step, "cpu_minutes": round(run.minutes, 1), "test_accuracy": accuracy}
    return write(f"classifier-{seed}", {"classifier": net}, facts)


def measure(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of pictures that the classifier gives their label."""
    with torch.no_grad(), autocast():
        right = [net(a).argmax(1) == b for a, b in zip(x.split(500), y.split(500), strict=True)]
    return round(float(torch.cat(right).float().mean()), 4)


def label_accuracy(generator: nn.Module, n: int = 5000) -> float:
    """Return how often the classifier sees the intended label."""
    rng = torch.Generator().manual_seed(1)
    y = torch.randint(CLASSES, (n,), generator=rng)
    with torch.no_grad(), autocast():
        x = torch.cat([generator(torch.randn(500, generator.latent, generator=rng), part) for part in y.split(500)])
    return measure(judge(), x.float(), y)


def show(make: Callable[[Tensor], Tensor], name: str) -> None:
    """Write a sheet of 12 samples of each class beside the checkpoint."""
    from PIL import Image

    with torch.no_grad(), autocast():
        x = make(torch.arange(CLASSES).repeat_interleave(12))
    x = ((x.float().clamp(-1, 1) + 1) * 127.5).byte().numpy()
    sheet = x.reshape(CLASSES, 12, 3, 32, 32).transpose(0, 3, 1, 4, 2).reshape(CLASSES * 32, 12 * 32, 3)
    path = cache_folder() / "cifar10-runs" / f"{name}.png"
    Image.fromarray(sheet).resize((12 * 64, CLASSES * 64), Image.Resampling.NEAREST).save(path)
    print(f"samples: {path.name}, in the folder of the checkpoints", flush=True)


def write(name: str, modules: dict[str, nn.Module], facts: dict[str, Any]) -> Path:
    """Write half-precision weights with the facts of their run in the header."""
    path = WEIGHTS / f"cifar10-{name}.safetensors"
    tensors = {
        f"{part}.{key}": value.detach().to(torch.float16 if value.is_floating_point() else value.dtype).contiguous()
        for part, module in modules.items()
        for key, value in module.state_dict().items()
    }
    save_file(tensors, path, {"command": f"python -m paper.runs.train_cifar {name}", "facts": json.dumps(facts)})
    if path.stat().st_size > 4e6:
        sys.exit(f"{path} has more than 4 MB; make the networks smaller")
    print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB  {json.dumps(facts)}", flush=True)
    return path


LOSSES = ("hinge", "dual", "paper_raw", "exact")
WARM_UP = 150  # steps of the critic alone before a fine-tuning: its optimiser starts anew, and meets an average
UNITS: dict[str, tuple[float, Callable[[float, dict[str, Images]], Path]]] = {
    "classifier-0": (12, lambda m, d: train_classifier(0, m, d)),
    "edm-early-0": (30, lambda m, d: train_edm(0, m, d, name="edm-early-0")),
    "edm-0": (120, lambda m, d: train_edm(0, m, d, name="edm-0")),
}
"""Each unit with its goal, CPU minutes or steps; `edm-0` goes on from the checkpoint of `edm-early-0`."""


def _add_gan(name: str, goal: float, seed: int = 0, **options: Any) -> None:
    UNITS[name] = goal, lambda m, d: train_gan(name, seed, m, d, **options)


for _name, _minutes in (("gan-0", 65), ("gan-1", 65), ("gan-2", 65), ("plain-0", 65), ("biggan-0", 120)):
    _add_gan(_name, _minutes, int(_name[-1]))
for _seed in range(3):
    for _loss in LOSSES:
        _add_gan(f"finetune-{_loss}-{_seed}", 1650, _seed, loss=_loss, start=f"gan-{_seed}")
        _add_gan(f"scratch-{_loss}-{_seed}", 5400, _seed, loss=_loss)


def main() -> None:
    """Train a unit, or print what all files say of themselves."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("unit", choices=[*UNITS, "facts"], help="what to train, or `facts` of all that is trained")
    parser.add_argument("--minutes", type=float, help="CPU minutes in all; those of the unit unless given")
    args = parser.parse_args()
    if args.unit == "facts":
        for path in sorted(WEIGHTS.glob("cifar10-*.safetensors")):
            print(f"{path.name}: {json.dumps(unit_facts(path.stem.removeprefix('cifar10-')))}")
        return
    torch.set_num_threads(1)
    goal, train = UNITS[args.unit]
    train(args.minutes or goal, load_cifar10())


if __name__ == "__main__":
    main()
