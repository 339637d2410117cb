"""What sampling costs beyond the networks: `collect` against the bare forward passes of the same proposals.

    python benchmarks/sampling.py [--out FILE.json] [--repeats 20]

The contestants take turns in one run; the median of the ratios of neighbours is reported. Targets: at most 1.05
for a DCGAN-size model, at most 1.15 for a 4x128 MLP at batch 2500. The other methods are reported as multiples
of n bare generator calls. The walk of a call of `obrs.sample` is the list of modules of the library that it enters, in
the order of their first call, by `sys.setprofile`; private modules, whose names begin with _, are counted apart.
"""

import os
import sys
from dataclasses import replace

import numpy as np
import torch
from bench import options, seconds, write
from torch import nn

import obrs
from obrs import collect, stream
from obrs.models.mlp import mlp
from obrs.rivals import SAMPLERS, Model, compare, fit_latent_weights_to_ratio


def perceptrons():
    """A generator and a critic for points."""
    return tuple(mlp((2, *[128] * 4, outputs)).eval() for outputs in (2, 1))


def dcgan(channels=32):
    """A generator and a critic for 32x32 images, of the size of DCGAN's smallest."""
    c = channels
    generator = nn.Sequential(
        nn.Unflatten(1, (64, 1, 1)),
        nn.ConvTranspose2d(64, 4 * c, 4),
        nn.ReLU(),
        nn.ConvTranspose2d(4 * c, 2 * c, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(2 * c, c, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(c, 1, 4, 2, 1),
        nn.Tanh(),
    )
    critic = nn.Sequential(
        nn.Conv2d(1, c, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(c, 2 * c, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(2 * c, 4 * c, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(4 * c, 1, 4),
        nn.Flatten(),
    )
    return generator.eval(), critic.eval()


def overhead(name, generator, critic, dim, batch_size, proposals, target, repeats):
    """Time `collect` and the bare passes over the same proposals in the same batches, in turns."""
    like = torch.empty(0)
    latents = [
        obrs.normals(np.arange(at, at + batch_size), dim, seed=0, like=like) for at in range(0, proposals, batch_size)
    ]

    def bare():
        with torch.no_grad():
            for z in latents:
                critic(generator(z))[:, 0]

    def propose(ids):
        return generator(latents[ids[0] // batch_size])

    def log_ratio(x):
        return critic(x)[:, 0]

    with torch.no_grad():
        pilot = log_ratio(generator(latents[0]))
    rule = obrs.Budgeted.fit(pilot, 2.6)
    total = sum(len(part) for part in stream(propose, log_ratio, rule, batch_size=batch_size, stop=proposals))

    def ours():
        collect(stream(propose, log_ratio, rule, batch_size=batch_size, stop=proposals), total)

    times = {"bare": [], "ours": []}
    for turn in range(repeats + 1):
        pair = (("bare", bare), ("ours", ours))
        for key, function in pair if turn % 2 else reversed(pair):  # neither always comes second
            took = seconds(function)
            if turn:
                times[key].append(took)
    ratio = float(np.median(np.divide(times["ours"], times["bare"])))  # of neighbours in time: drift cancels
    return {
        "model": name,
        "batch": batch_size,
        "proposals": proposals,
        "bare seconds": float(np.median(times["bare"])),
        "collect seconds": float(np.median(times["ours"])),
        "ratio": ratio,
        "target": target,
        "met": ratio <= target,
    }


def methods(repeats):
    """Every method at K = 2.6, as a multiple of n bare generator calls; latent weights are fitted beforehand."""
    torch.manual_seed(0)
    generator, critic = perceptrons()
    with torch.no_grad():
        raw = critic(generator(torch.randn(10_000, 2)))[:, 0]
    # An untrained critic is nearly flat; stretched to a log-sd of 1 it has something to reject.
    model = Model(
        generator,
        lambda x: (critic(x)[:, 0] - raw.mean()) / raw.std(),
        dim=2,
        real=torch.randn(4000, 2),
        like=torch.empty(0),
    )
    weights = fit_latent_weights_to_ratio(model, steps=200)
    samplers = {name: kind.at_budget(2.6) for name, kind in SAMPLERS.items()}
    for name in ("latent_rs", "latent_obrs"):
        samplers[name] = replace(samplers[name], weights=weights)
    table = compare(model, 2.6, samplers=samplers.values(), n=2500, repeats=repeats)
    for row, name in zip(table, samplers, strict=True):
        row["sampler"] = name
    return table


def walk(**options):
    """Modules that a call of `obrs.sample` enters, private ones apart, and how often it changes between them."""

    def call():
        obrs.sample(lambda ids: obrs_free(len(ids)), lambda x: x - 0.5, progress=False, **options)

    def obrs_free(n):
        return np.random.default_rng(n).normal(size=n)

    entered, last, changes = {}, "", 0

    def trace(frame, event, argument):
        nonlocal last, changes
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("obrs."):
            entered[name] = entered.get(name, 0) + 1
            changes += name != last
            last = name

    call()  # what is imported or cached at the first time
    sys.setprofile(trace)
    try:
        call()
    finally:
        sys.setprofile(None)
    private = [name for name in entered if name.split(".")[-1].startswith("_")]
    return {"modules": [name for name in entered if name not in private], "private": private, "changes": changes}


def main():
    parser = options(__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    generator, critic = dcgan()
    rows = [
        overhead("DCGAN 32x32, ch 32", generator, critic, 64, 256, 1024, 1.05, arguments.repeats),
        overhead("MLP 4x128", *perceptrons(), 2, 2500, 10_000, 1.15, arguments.repeats),
    ]
    for row in rows:
        verdict = "met" if row["met"] else "MISSED"
        print(f"{row['model']:20} collect / bare {row['ratio']:.3f} (target {row['target']}, {verdict})")
    table = methods(repeats=3)
    print(f"\n2500 samples at K = 2.6; time in bare generator passes over 2500\n{table}")
    walks = {"n=3000, budget=4": walk(n=3000, budget=4), "n=100, budget=4": walk(n=100, budget=4)}
    for name, facts in walks.items():
        private, changes = len(facts["private"]), facts["changes"]
        print(f"\nsample({name}) walks {len(facts['modules'])} modules and {private} private ones, {changes} changes")
        print(", ".join(facts["modules"]), "and", ", ".join(facts["private"]))
    config = {"repeats": arguments.repeats, "threads": torch.get_num_threads(), "cores": os.cpu_count()}
    write(arguments.out, "sampling", config, ("torch",), rows=rows, methods=list(table), walks=walks)


if __name__ == "__main__":
    main()
