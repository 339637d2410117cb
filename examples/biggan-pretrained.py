"""A public BigGAN checkpoint in, what every acceptance rate buys out: with a ratio on features, and the critic's own.

    PYTHONPATH=. python examples/biggan-pretrained.py G_ema.pth D.pth --data celeba --home faces

Run it from the repository: the networks and the experiment are those of its package `paper`. The checkpoints are in the
layout of github.com/ajbrock/BigGAN-PyTorch, `.pth` or better `.safetensors`. The folder `home` has the pictures of
CelebA or ImageNet, or DATA.npz with `train` and `test`, images in [-1, 1]. Other options are fields of the experiment:
`--pool 2000 --judged 2000 --second efficientnet_lite0` is smaller than the paper.
"""

import argparse
import sys
from pathlib import Path

from obrs.errors import ObrsError
from obrs.fitting.tensors import write_tensors
from paper import figure_pretrained
from paper.harness import run_files
from paper.nets.biggan import BigGanCritic, BigGanGenerator, load_checkpoint

# the sizes of a checkpoint: change them if yours has others
SHARED = {
    "celeba": {"size": 64, "width": 32, "attention": 32},
    "imagenet": {"size": 128, "width": 96, "attention": 64, "classes": 1000},
}
GENERATOR = {"celeba": {"latent": 128}, "imagenet": {"latent": 120, "shared": 128, "hierarchical": True}}


def convert(generator: str, critic: str, data: str, home: Path) -> int:
    """Write both networks as the experiments read them; return how many classes there are."""
    networks = {
        "generator": load_checkpoint(generator, BigGanGenerator(**SHARED[data], **GENERATOR[data])),
        "critic": load_checkpoint(critic, BigGanCritic(**SHARED[data], heads=2)),
    }
    for part, network in networks.items():
        facts = {"spec": network.spec, "data": data}
        write_tensors(home / f"{data}-0-{part}.safetensors", network.state_dict(), facts)
    return networks["generator"].classes or 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("generator")
    parser.add_argument("critic")
    parser.add_argument("--data", default="celeba", choices=SHARED)
    parser.add_argument("--home", type=Path, default=Path("celeba"))
    parser.add_argument("--out", type=Path, default=Path("out"))
    known, others = parser.parse_known_args()

    classes = convert(known.generator, known.critic, known.data, known.home)
    # with labels the features are those of a classifier, and classes have constants of their own
    ratios, constants = ("own,tuned,outputs", "global,class") if classes > 1 else ("own,tuned,gradients", "global")
    changes = {"generators": f"{known.data}-0", "home": str(known.home), "ratios": ratios, "constants": constants}
    changes |= {name.removeprefix("--"): value for name, value in zip(others[::2], others[1::2], strict=True)}
    record = run_files("figure-pretrained", "paper", changes, out=known.out)
    print(figure_pretrained.table(record))
    print(f"result: {known.out}/figure-pretrained.json\npicture: {known.out}/figure-pretrained.png")


if __name__ == "__main__":
    try:
        main()
    except (ObrsError, OSError) as error:  # a file that is missing, or is no checkpoint
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
