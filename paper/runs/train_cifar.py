"""Train the CIFAR-10 models of the image experiments, one unit of `QUEUE.md` at a time, on one thread.

`python -m paper.runs.train_cifar gan-0` trains for the CPU minutes of its unit and writes one file of weights below
`paper/weights`; a GAN from scratch for Figure 6 is judged, and writes its curve beside this file. A run that was
stopped goes on from its checkpoint in the cache, which is OBRS_DATA or ~/.cache/obrs; `--minutes` trains longer.
`python -m paper fetch cifar10` gets the data.

The last 10 000 of the 50 000 training images are never shown to any model.
"""

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

import obrs
from obrs._files import cache_folder
from obrs.metrics.frechet import frechet
from obrs.training import critic_step, generator_step

from ..figure_training import PRESETS
from ..image_diffusion import Denoiser, heun, noise_levels
from ..image_gans import ImageGan, parts
from ..image_training import Judges
from ..nets import WEIGHTS
from ..nets.cifar import CLASSES, RUNS, CifarClassifier, CifarUNet, build_gan, has_unit, load_unit, unit_facts

LOSSES = ("hinge", "dual", "paper_raw", "exact")
_HALF = any(torch.cpu.get_capabilities().get(name) for name in ("amx_bf16", "avx512_bf16"))
WARM_UP = 150  # steps of the critic alone before a fine-tuning: its optimiser starts anew, and meets an average
UNITS: dict[str, float] = {"classifier-0": 12, "edm-early-0": 30, "edm-0": 120, "gan-0": 65, "gan-1": 65, "gan-2": 65}
UNITS |= {"plain-0": 65, "biggan-0": 30}
UNITS |= {f"finetune-{loss}-{seed}": 1650 for loss in LOSSES for seed in range(3)}
UNITS |= {f"scratch-{loss}-{seed}": 5400 for loss in LOSSES for seed in range(3)}
"""Each unit with its goal: CPU minutes, or where losses are compared the steps, so that all see as many images.

`edm-0` goes on from the checkpoint of `edm-early-0`.
"""


class Run:
    """The state of a run, its clock in CPU minutes, and its checkpoint in the cache."""

    def __init__(self, name: str, modules: dict[str, Any]) -> None:
        self.path, self.modules = cache_folder() / "cifar10-runs" / f"{name}.pt", modules
        self.rng = torch.Generator().manual_seed(int(name.rpartition("-")[2]))
        self.step, self.before, self.clock = 0, 0.0, time.process_time()
        self.curve: list[list[float]] = []
        self.shown = parts("cifar10")["generator"]
        if self.path.exists():
            state = torch.load(self.path, weights_only=True)
            for key, module in modules.items():
                module.load_state_dict(state[key])
            self.rng.set_state(state["rng"])
            self.step, self.before, self.curve = state["step"], state["minutes"], state.get("curve", [])
            print(f"{name} goes on from step {self.step}, {self.before:.1f} CPU minutes", flush=True)

    @property
    def minutes(self) -> float:
        """CPU minutes of training so far, those before a restart among them."""
        return self.before + (time.process_time() - self.clock) / 60

    @property
    def facts(self) -> dict[str, Any]:
        """What a file says of its training."""
        return {"steps": self.step, "cpu_minutes": round(self.minutes, 1), "bfloat16": _HALF}

    def batch(self, size: int) -> tuple[Tensor, Tensor]:
        """Return `size` pictures in [-1, 1], half of them mirrored, and their labels."""
        index = torch.randint(len(self.shown.x), (size,), generator=self.rng).numpy()
        x = torch.from_numpy(self.shown.x[index])
        mirrored = torch.rand(size, 1, 1, 1, generator=self.rng) < 0.5
        x = torch.where(mirrored, x.flip(-1), x).contiguous(memory_format=torch.channels_last)
        return x, torch.from_numpy(self.shown.label[index])

    def latents(self, size: int, length: int) -> tuple[Tensor, Tensor]:
        """Return latents and labels of fakes."""
        y = torch.randint(CLASSES, (size,), generator=self.rng)
        return torch.randn(size, length, generator=self.rng), y

    def save(self) -> None:
        """Write the checkpoint whole, or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        state = {key: module.state_dict() for key, module in self.modules.items()}
        state |= {"rng": self.rng.get_state(), "step": self.step, "minutes": self.minutes, "curve": self.curve}
        part = self.path.with_suffix(".part")
        torch.save(state, part)
        part.rename(self.path)

    def steps(self, minutes: float = np.inf, most: float = np.inf) -> Iterator[int]:
        """Yield the number of each step until the clock stands at `minutes`, or `most` are done; save now and then."""
        saved = self.minutes
        if saved > minutes + 1:
            sys.exit(f"{self.path} has {saved:.0f} CPU minutes, more than {minutes:g}; move it away to start anew")
        while self.minutes < minutes and self.step < most:
            yield self.step
            self.step += 1
            if self.minutes > saved + 5:
                saved = self.minutes
                self.save()
        self.save()

    def descend(self, optimiser: torch.optim.Optimizer, loss: Tensor, rate: float) -> None:
        """Take a step at a learning rate."""
        optimiser.param_groups[0]["lr"] = rate
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        self.log(loss)

    def log(self, loss: Tensor) -> None:
        """Print a line every 500 steps."""
        if self.step % 500 == 0:
            print(f"{self.step:7d}  {self.minutes:6.1f} min  loss {float(loss.detach()):.3f}", flush=True)


def average(into: nn.Module, module: nn.Module, step: int, decay: float = 0.999) -> None:
    """Move the average toward the module's weights; young averages move faster."""
    weight = max(1 - decay, 1 / (step + 1) ** 0.8)
    with torch.no_grad():
        for a, b in zip(into.parameters(), module.parameters(), strict=True):
            a.lerp_(b, weight)
        for a, b in zip(into.buffers(), module.buffers(), strict=True):
            a.copy_(b)


def autocast() -> torch.autocast:
    """Compute in bfloat16 where that is safe and the processor supports it: emulated, it takes thrice as long."""
    return torch.autocast("cpu", torch.bfloat16, enabled=_HALF)


def outputs(net: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Return what a network says of inputs, block by block."""
    with torch.no_grad(), autocast():
        blocks = zip(*(x.split(500) for x in inputs), strict=True)
        return torch.cat([net(*block).float() for block in blocks])


def train_gan(name: str, goal: float, size: int = 32) -> None:
    """Train a GAN; its critic learns a hinge score, and on a second head a logistic log-ratio.

    `finetune-LOSS-SEED` and `scratch-LOSS-SEED` compare losses of the generator: the hinge score, or for K = 2 a loss
    of `obrs.training` on the log-ratio. The critic is trained in the same way for all. The first go on from the GAN of
    that seed, with half of its learning rates.

    Args:
        name: Of the unit, which says what the networks are.
        goal: See `UNITS`.
        size: Images in a batch of each kind.
    """
    kind, *named, seed = name.split("-")
    loss, compared, further = (*named, "hinge")[0], kind in ("finetune", "scratch"), kind == "finetune"
    torch.manual_seed(int(seed))
    generator, critic = (net.to(memory_format=torch.channels_last) for net in build_gan(name))
    if further:
        load_unit(f"gan-{seed}", {"generator": generator, "critic": critic})
    mean = copy.deepcopy(generator)
    rate = 1e-4 if further else 2e-4
    opt_g = torch.optim.Adam(generator.parameters(), rate, betas=(0.0, 0.99))
    opt_d = torch.optim.Adam(critic.parameters(), 2 * rate, betas=(0.0, 0.99))
    run = Run(name, {"g": generator, "d": critic, "mean": mean, "opt_g": opt_g, "opt_d": opt_d})
    every = goal // (3 if further else 12)
    many = 2 * size if compared else size  # c is solved for on one batch: a larger one makes it steadier

    def score(x: Tensor, y: Tensor) -> Tensor:
        return critic(x, y)[:, 0 if loss == "hinge" else 1]

    for step in run.steps(**{"most": goal} if compared else {"minutes": goal}):
        real, (z, y) = run.batch(size), run.latents(size, generator.latent)
        with autocast():  # one for each step: it keeps what it has rounded until it ends, and a step moves the weights
            with torch.no_grad():
                fake = generator(z, y).float()
            run.log(critic_step(critic, opt_d, real, (fake, y), loss="hinge")["critic"])
        if further and step < WARM_UP:
            continue
        with autocast():
            generator_step(generator, score, opt_g, run.latents(many, generator.latent), loss=loss, budget=2.0)
        average(mean, generator, run.step)
        if compared and (step + 1) % every == 0:
            run.curve.append([step + 1, *distances(mean, critic)])
            print(f"{step + 1:7d}  distance {run.curve[-1][1]:.2f}, after rejection {run.curve[-1][2]:.2f}", flush=True)

    mean.eval()
    facts, latent = run.facts, torch.Generator().manual_seed(0)
    show(lambda y: outputs(mean, torch.randn(len(y), mean.latent, generator=latent), y), name)
    if kind != "plain" and has_unit("classifier-0"):
        facts["label_accuracy"] = label_accuracy(mean)
    if compared:
        facts["curve"] = run.curve
    if kind == "scratch":
        verdict = Judges(PRESETS["default"]).judge(ImageGan(mean, None, CLASSES, half=True), int(seed))
        write_facts(name, facts | {"judged": verdict})
    else:
        write(name, {"generator": mean} if compared else {"generator": mean, "critic": critic}, facts)


def judge() -> nn.Module:
    """Return the classifier that judges."""
    net = CifarClassifier()
    load_unit("classifier-0", {"classifier": net})
    return net.eval()


def distances(generator: nn.Module, critic: nn.Module, n: int = 5000) -> list[float]:
    """Return the Fréchet distance by the classifier to the test images: of proposals, and of 1 in 2 by the critic.

    The critic's log-ratio as it is has one constant per class.
    """
    net, rng, mode = judge(), torch.Generator().manual_seed(2), (generator.training, critic.training)
    generator.eval(), critic.eval()
    y = torch.arange(CLASSES).repeat(n // CLASSES)
    x = outputs(generator, torch.randn(n, generator.latent, generator=rng), y)
    real, fake = (outputs(net.features, of).numpy() for of in (torch.from_numpy(parts("cifar10")["test"].x[:n]), x))
    log_ratio = outputs(critic, x, y)[:, 1].numpy()
    generator.train(mode[0]), critic.train(mode[1])
    kept = np.exp(obrs.Grouped.fit(log_ratio, 2.0, y.numpy())(log_ratio, y.numpy()))
    return [round(frechet(real=real, fake=fake, weights=w), 3) for w in (None, kept)]


def label_accuracy(generator: nn.Module, n: int = 5000) -> float:
    """Return how often the classifier sees the intended label."""
    rng = torch.Generator().manual_seed(1)
    y = torch.randint(CLASSES, (n,), generator=rng)
    return share_right(judge(), outputs(generator, torch.randn(n, generator.latent, generator=rng), y), y)


def share_right(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of pictures that the classifier gives their label."""
    return round(float((outputs(net, x).argmax(1) == y).float().mean()), 4)


def train_edm(name: str, minutes: float, size: int = 32) -> None:
    """Train the denoiser of EDM at log-normal noise levels (mean -1.2, deviation 1.2)."""
    seed = name.rpartition("-")[2]
    torch.manual_seed(int(seed))
    net = CifarUNet().to(memory_format=torch.channels_last)
    mean, denoise = copy.deepcopy(net), Denoiser(net)
    optimiser = torch.optim.Adam(net.parameters(), 1e-3, betas=(0.9, 0.99))
    run = Run(f"edm-{seed}", {"net": net, "mean": mean, "opt": optimiser})
    for step in run.steps(minutes):
        x, y = run.batch(size)
        sigma = torch.exp(1.2 * torch.randn(size, generator=run.rng) - 1.2)
        with autocast():
            loss = denoise.loss(x, sigma, torch.randn(x.shape, generator=run.rng), y)
        run.descend(optimiser, loss, 1e-3 * min(1.0, (step + 1) / 500))
        average(mean, net, run.step)
    noise = torch.randn(12 * CLASSES, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    show(lambda y: heun(Denoiser(mean.eval()), noise, noise_levels(18), y), name)
    write(name, {"denoiser": mean}, run.facts)


def train_classifier(name: str, minutes: float, size: int = 64) -> None:
    """Train the classifier that judges labels of conditional samples; its test accuracy is in the file."""
    torch.manual_seed(int(name.rpartition("-")[2]))
    net = CifarClassifier().to(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=5e-2)
    run = Run(name, {"net": net, "opt": optimiser})
    for _ in run.steps(minutes):
        x, y = run.batch(size)
        shift = torch.randint(-2, 3, (2,), generator=run.rng).tolist()
        with autocast():  # what leaves on one side comes in on the other
            loss = functional.cross_entropy(net(torch.roll(x, shift, (2, 3))), y)
        run.descend(optimiser, loss, 2e-3 * max(0.01, 1 - run.minutes / minutes))
    test = parts("cifar10")["test"]
    accuracy = share_right(net.eval(), torch.from_numpy(test.x), torch.from_numpy(test.label))
    write(name, {"classifier": net}, run.facts | {"test_accuracy": accuracy})


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


def write(name: str, modules: dict[str, nn.Module], facts: dict[str, Any]) -> None:
    """Write half-precision weights with the facts of their run in the header."""
    path = WEIGHTS / f"cifar10-{name}.safetensors"
    tensors = {
        f"{part}.{key}": value.detach().to(torch.float16 if value.is_floating_point() else value.dtype).contiguous()
        for part, module in modules.items()
        for key, value in module.state_dict().items()
    }
    save_file(tensors, path, {"command": _command(name), "facts": json.dumps(facts)})
    if path.stat().st_size > 4e6:
        sys.exit(f"{path} has more than 4 MB; make the networks smaller")
    print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB  {json.dumps(facts)}", flush=True)


def write_facts(name: str, facts: dict[str, Any]) -> None:
    """Write the facts of a run whose weights nobody needs."""
    path = RUNS / f"{name}.json"
    path.write_text(json.dumps({"command": _command(name)} | facts) + "\n")
    print(f"{path.name}: {json.dumps(facts)}", flush=True)


def _command(name: str) -> str:
    return f"python -m paper.runs.train_cifar {name}"


def main() -> None:
    """Train a unit, or print the facts of all files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("unit", choices=[*UNITS, "facts"], help="what to train, or `facts` of all that is trained")
    parser.add_argument("--minutes", type=float, help="CPU minutes in all; those of the unit unless given")
    args = parser.parse_args()
    if args.unit == "facts":
        for unit in filter(has_unit, UNITS):
            print(f"{unit}: {json.dumps(unit_facts(unit))}")
        return
    torch.set_num_threads(1)
    train = {"classifier": train_classifier, "edm": train_edm}.get(args.unit.partition("-")[0], train_gan)
    train(args.unit, args.minutes or UNITS[args.unit])


if __name__ == "__main__":
    main()
