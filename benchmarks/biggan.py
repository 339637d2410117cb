"""What a step of the paper's BigGANs computes, counted, and what one GPU-day would buy at an assumed speed.

    python benchmarks/biggan.py [--out FILE.json]

Networks and passes are real, tensors have shapes and no values (device "meta"), and torch's own counter adds up what
matrix products, convolutions and their gradients take: two operations for a product and its sum. Norms, activations and
the optimiser are left out. No GPU was used: days follow from a speed that is assumed, not measured, and say no more
than that. The assumption is a share of the peak that the makers give: 35 % of a V100 in float32, 10 % of an A100 in
bfloat16, whose peak such small convolutions are far from.
"""

import torch
from bench import options, write
from torch.utils.flop_counter import FlopCounterMode

from obrs.experiments.image_training import BIGGAN, CELEBA, CIFAR, IMAGENET
from obrs.models.biggan import BigGanCritic, BigGanGenerator

DAY = 86_400
SPEEDS = {"V100, float32": 0.35 * 15.7e12, "A100, bfloat16": 0.10 * 312e12}  # operations in a second, assumed
FINE_TUNED = {"steps": 11_000}  # a thousand of them are the critic's alone, and counted as the others
RUNS = {
    "CIFAR-10, training": (CIFAR, 32, 10),
    "CelebA, training": (CELEBA, 64, None),
    "CelebA, fine-tuning": (CELEBA | FINE_TUNED, 64, None),
    "ImageNet, fine-tuning": (IMAGENET | FINE_TUNED, 128, 1000),
}


def counted(run):
    """The operations of what is called."""
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def turns(generator, critic, latent, classes):
    """The operations of one image: forward, in the critic's turn, and in the generator's."""
    n = 64  # spectral norms are once per batch, whatever its size
    z = torch.zeros(n, latent)
    labels = () if classes is None else (torch.zeros(n, dtype=torch.int64),)
    twice = () if classes is None else (torch.zeros(2 * n, dtype=torch.int64),)

    def forward():
        with torch.no_grad():
            critic(generator(z, *labels), *labels)

    def of_critic():
        with torch.no_grad():
            fake = generator(z, *labels)
        critic(torch.cat([fake, fake]), *twice).sum().backward()

    def of_generator():
        critic.requires_grad_(False)
        critic(generator(z, *labels), *labels).sum().backward()
        critic.requires_grad_(True)

    return tuple(counted(run) / n for run in (forward, of_critic, of_generator))


def row(name, settings, size, classes):
    fields, width = BIGGAN[settings["data"]], settings["width"]
    shared = {"size": size, "width": width, "classes": classes, "attention": fields.get("attention", 0)}
    more = {"shared": fields.get("shared", 0), "hierarchical": fields.get("hierarchical", False)}
    with torch.device("meta"):
        generator = BigGanGenerator(settings["latent"], **shared, **more)
        critic = BigGanCritic(**shared, heads=2)
        forward, of_critic, of_generator = turns(generator, critic, settings["latent"], classes)
    ahead = forward if fields.get("parts", 1) > 1 else 0  # the parts of a batch share a c, which is solved first
    step = settings["batch_size"] * (settings["critic_steps"] * of_critic + of_generator + ahead)
    return {
        "run": name,
        "parameters": [sum(p.numel() for p in network.parameters()) for network in (generator, critic)],
        "forward": forward,
        "critic turn": of_critic,
        "generator turn": of_generator,
        "step": step,
        "steps": settings["steps"],
        "total": step * settings["steps"],
        "steps in a GPU-day": {gpu: DAY * speed / step for gpu, speed in SPEEDS.items()},
        "GPU-days": {gpu: step * settings["steps"] / speed / DAY for gpu, speed in SPEEDS.items()},
    }


def main():
    arguments = options(__doc__).parse_args()
    rows = [row(name, *about) for name, about in RUNS.items()]
    for found in rows:
        days = ", ".join(f"{gpu}: {value:.3g} days" for gpu, value in found["GPU-days"].items())
        print(f"{found['run']:22} {found['step'] / 1e12:9.3g} TFLOP a step, {found['steps']} steps; estimate: {days}")
    write(arguments.out, "biggan", {"assumed operations in a second": SPEEDS}, ("torch",), rows=rows)


if __name__ == "__main__":
    main()
