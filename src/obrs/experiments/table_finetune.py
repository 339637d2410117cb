"""The paper's fine-tuning table on images: trained generators, trained further with the rejection inside.

The paper fine-tunes pre-trained BigGANs on CelebA and ImageNet for K = 2. Here it is the committed hinge GANs of
Fashion-MNIST. Each is trained further for as many steps with each loss, `image_training` says how it is judged:

- `none`: as it is.
- `hinge`: with its own loss and its own critic, so that the others are not praised for mere training.
- `dual`, `paper_raw`, `exact`: with a new critic that says a log-ratio and trains alone at first. `dual` is plain,
  `paper_raw` is Algorithm 2 as printed, `exact` has the gradient of what is left after rejection.

The learning rates of the paper's table for CelebA are those of generator and critic swapped; its scripts have 1e-6 and
4e-6, which are those of the preset `paper`.
"""

from dataclasses import dataclass
from typing import Any

from .._inputs import check_count
from .._names import lookup
from ..errors import InputError
from .image_training import ImageTraining, compared, finals
from .record import Record, Rows
from .style import caption, figure, tidy

__all__ = ["KINDS", "PAPER", "PRESETS", "Config", "plot", "render", "run", "settings"]

PAPER = {"table": "fine-tuning with OBRS inside, CelebA and ImageNet, BigGAN, K = 2"}
KINDS = {
    "none": "as it is",
    "hinge": "hinge, further",
    "dual": "f-GAN dual",
    "paper_raw": "Tw/OBRS",
    "exact": "exact",
}
"""Ways to train further, and what they are called."""


@dataclass(frozen=True)
class Config(ImageTraining):
    """What to train further; see `ImageTraining` for the other fields.

    Args:
        kinds: Keys of `KINDS`.
        alone: Steps of the critic alone before the others.
    """

    width: int = 32
    steps: int = 600
    generator_lr: float = 1e-4
    ema_start: int = 0
    kinds: tuple[str, ...] = tuple(KINDS)
    alone: int = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.alone, "alone", least=0)
        for kind in self.kinds:
            lookup(KINDS, kind, "kind of training")
        if not self.kinds:
            raise InputError("table-finetune needs at least one kind of training")


_SMOKE = Config(
    data="digits",
    seeds=1,
    steps=3,
    batch_size=16,
    pool=300,
    neighbours=200,
    fakes=300,
    fit_steps=20,
    epochs=1,
    kinds=("none", "exact"),
    alone=3,
)
_PAPER = Config(
    data="celeba",
    home="celeba",
    seeds=1,
    width=64,
    latent=128,
    steps=10_000,
    batch_size=128,
    generator_lr=1e-6,
    critic_lr=4e-6,
    ema_decay=0.9999,
    pool=50_000,
    neighbours=10_000,
    judged=10_000,
    second="inception_v3",
    fakes=50_000,
    fit_steps=5000,
    alone=1000,
)
PRESETS = {"smoke": _SMOKE, "cpu": Config(), "paper": _PAPER}


def run(config: Config, rows: Rows) -> None:
    """Train each generator further and judge it, a row for each kind and seed."""
    from .image_gans import load_gan
    from .image_training import Judges, follow

    seeds = range(config.seed, config.seed + config.seeds)
    judges = Judges(config, rows.progress)
    for name, (kind, seed) in rows.todo({f"{k}, seed {s}": (k, s) for s in seeds for k in config.kinds}):
        gan, seconds = load_gan(config.data, seed, config.home), 0.0
        if kind != "none":
            generator = gan.generator.requires_grad_(True)
            critic = gan.critic.requires_grad_(True) if kind == "hinge" else None
            ((_, gan, seconds),) = follow(
                settings(config, kind, seed, classes=gan.classes), config, generator=generator, critic=critic
            )
        rows.add(name, {"kind": kind, "seed": seed, "cpu_seconds": round(seconds, 1)} | judges.judge(gan, seed))


def settings(config: Config, kind: str, seed: int, *, classes: int | None = 10) -> Any:
    """Return the configuration of a training run.

    Example:
        >>> tuned = settings(Config(), "exact", 0)
        >>> tuned.generator_loss, tuned.warm_up, tuned.steps, tuned.spectral_norm
        ('exact', 200, 600, False)
    """
    from ..training.config import TrainConfig
    from .image_training import training

    shared = training(config, seed, labelled=bool(classes)) | {"generator_loss": kind, "warm_up": config.alone}
    if kind == "hinge":
        return TrainConfig(**shared, two_heads=True)
    return TrainConfig(**(shared | {"spectral_norm": False, "r1": 0.1, "generator_decay_from": 0.4}))


def render(record: Record) -> str:
    """Return the distances before and after rejection: means over the seeds, and gains seed by seed."""
    kinds = record.config["kinds"]
    after, before, near = (finals(record, kinds, key) for key in ("after", "before", "near_after"))
    first = next(iter(after))
    title = f"{record.config['data']}, K = {record.config['budget']:g}, {record.config['seeds']} generators"
    lines = [f"{title}, {record.config['steps']} steps further: Fréchet distance"]
    lines.append(f"  {'training':16}{'before':>16}{'after rejection':>18}{'gain':>18}{'precision':>11}{'recall':>8}")
    for kind, values in after.items():
        mean, error, gain, of_gain, seeds = compared(values, after[first])
        plain, plain_error, *_ = compared(before[kind], before[kind])
        pair = [sum(cells[at] for cells in near[kind].values()) / len(near[kind]) for at in (0, 1)]
        text = f"  {KINDS[kind]:16}{f'{plain:.2f} ± {plain_error:.2f}':>16}{f'{mean:.2f} ± {error:.2f}':>18}"
        text += f"{f'{gain:+.2f} ± {of_gain:.2f}' if kind != first and seeds else '':>18}"
        lines.append(f"{text}{pair[0]:>11.3f}{pair[1]:>8.3f}")
    return "\n".join([*lines, f"  gain: over {KINDS[first]}, seed by seed; ± is the standard error over seeds"])


def plot(record: Record) -> Any:
    """Draw the distance of every run before and after rejection."""
    drawn = figure(9, 1.8 + 0.45 * len(record.config["kinds"]))
    axes = drawn.subplots()
    after, before = (finals(record, record.config["kinds"], key) for key in ("after", "before"))
    for height, kind in enumerate(after):
        for values, colour, label in ((before, "#999999", "before"), (after, "#0072B2", "after rejection")):
            own = list(values[kind].values())
            axes.plot(
                own, [height] * len(own), "o", color=colour, alpha=0.7, mew=0, label=label if not height else None
            )
            axes.plot([sum(own) / len(own)] * 2, [height - 0.3, height + 0.3], color=colour, lw=2)
    axes.set(yticks=range(len(after)), yticklabels=[KINDS[kind] for kind in after], ylim=(len(after) - 0.4, -0.6))
    axes.set_xlabel(f"Fréchet distance, rejection at K = {record.config['budget']:g}")
    tidy(axes)
    caption(drawn, record.experiment, "Each dot is a generator, bars are means. The ratios were fitted from scratch.")
    return drawn
