"""Train a generator and its critic for a budget: one stage, in one process or many."""

import atexit
import copy
import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from math import exp, inf, isfinite
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from .._checks import check_at_least, check_budget, check_count, check_seed
from .._files import as_path, hold, rewrite
from .._progress import bar
from .._text import lookup, one_line
from ..budget import Cut
from ..errors import InputError, InputTypeError, Interrupted, MissingLibraryError, NotFiniteError
from ..fitting.seeds import derive, own_noise
from ..fitting.tensors import fill_module, subset
from .data import Data, Draws, as_data
from .losses import CRITIC_LOSSES, GENERATOR_LOSSES, critic_loss, first_output, generator_loss
from .step import critic_step, generator_step
from .trained import State, Trained, checkpoints, read_log, read_state, write_state

__all__ = ["train"]

Rate = float | Callable[[float], float]


def train(
    generator: nn.Module,
    critic: nn.Module,
    data: Any,
    *,
    loss: Any = None,
    budget: float,
    steps: int,
    batch_size: int = 256,
    critic_steps: int = 1,
    warm_up: int = 0,
    lr: Rate | tuple[Rate, Rate] = (2e-4, 4e-4),
    betas: tuple[float, float] = (0.5, 0.999),
    ema: float | Callable[[int], float] = 0.999,
    noise: Rate = 0.0,
    r1: float = 0.0,
    gradient_penalty: float = 0.0,
    constant_every: int = 1,
    parts: int = 1,
    precision: str = "no",
    latent: int | None = None,
    start_from: Trained | str | Path | None = None,
    new_critic: bool = False,
    seed: int = 0,
    out: str | Path | None = None,
    log_every: int = 100,
    save_every: int = 1000,
    keep: int = 2,
    progress: bool | None = None,
) -> Trained:
    """Train a generator and a critic in place, on the CPU, on a GPU, or in the processes of torchrun or accelerate.

    Rows, latents and labels are functions of the seed and the step: a run that was killed and is called again with the
    same `out` ends with the same weights, on the CPU bit for bit. One call is one stage; a further stage is another
    call with `start_from`, whose steps and data go on where the first one ended.

    Args:
        generator: From latents `(n, latent)`, and labels, to samples.
        critic: From samples, and labels, to outputs of shape `(n,)`, or `(n, 2)`: the second is then a log-ratio.
        data: An array or tensor of samples, a tuple with labels, a Dataset or a DataLoader.
        loss: A key of `GENERATOR_LOSSES`, or a pair `(critic_loss(...), generator_loss(...))`. It has no default:
            'exact' won on points, none on images.
        budget: K, proposals per kept sample.
        steps, critic_steps: Steps of the generator, and steps of the critic for each of them.
        batch_size: Samples of a step, in all processes and parts together.
        warm_up: Steps of the critic alone before those of the generator.
        lr, betas: Of Adam; `lr` may be a pair `(generator, critic)`, and each a function of the share of steps done.
        ema: Decay of the generator's moving average, lower at first; 0 for none; or a function of the step.
        noise: Standard deviation of Gaussian noise on all that the critic sees; a number, or as `lr`.
        r1, gradient_penalty, parts: See `critic_step` and `generator_step`.
        constant_every: Steps between two solutions for c.
        precision: "no" for float32, or "bf16".
        latent: Length of the latent; by default `generator.latent`, or what its first linear layer takes.
        start_from, new_critic: A run, or its folder, to go on from; with a new critic both Adams start anew.
        seed: Decides order of the data, latents and noise; initial weights are the networks'.
        out: A folder for checkpoints and `log.jsonl`; a run that is there goes on.
        log_every, save_every, keep: Steps between rows of the log, and between checkpoints; how many of them to keep.
        progress: Show a bar; None shows one on a terminal.

    Raises:
        NotFiniteError: A loss or a weight is no longer finite; `.partial` is the last good state.
        Interrupted: Ctrl-C; says from which step the run goes on. Without `out`, `.partial` is a run to `start_from`.

    Example:
        >>> generator, critic = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 1), nn.Flatten(0))
        >>> run = train(generator, critic, torch.randn(100, 2), loss="exact", budget=2, steps=3, batch_size=16)
        >>> run.log[-1]["step"], run.sample(5, budget=2).x.shape
        (3, torch.Size([5, 2]))
    """
    # What is asked for
    for name, network in (("generator", generator), ("critic", critic)):
        if not isinstance(network, nn.Module):
            raise InputTypeError(f"{name} must be a torch.nn.Module, got {network!r:.60}")
    of_critic, of_generator = _choose_losses(loss)
    samples, rates = as_data(data), lr if isinstance(lr, tuple) else (lr, lr)
    counts = {"steps": steps, "batch_size": batch_size, "parts": parts, "critic_steps": critic_steps, "keep": keep}
    counts |= {"constant_every": constant_every, "log_every": log_every, "save_every": save_every}
    checked = (check_count(count, name) for name, count in counts.items())
    steps, batch_size, parts, critic_steps, keep, constant_every, log_every, save_every = checked
    warm_up = check_count(warm_up, "warm_up", least=0)
    latent = None if latent is None else check_count(latent, "latent")
    if len(rates) != 2 or not isinstance(betas, tuple | list) or len(betas) != 2:
        raise InputError(f"lr is one or a pair, betas are a pair, got {lr!r:.60} and {betas!r:.60}")
    betas = check_at_least(betas[0], "betas", below=1.0), check_at_least(betas[1], "betas", below=1.0)
    check_at_least(r1, "r1"), check_at_least(gradient_penalty, "gradient_penalty")
    for name, rate, below in (("lr", rates[0], inf), ("lr", rates[1], inf), ("noise", noise, inf), ("ema", ema, 1.0)):
        if not callable(rate):
            check_at_least(rate, name, below=below)
    lookup({"no": None, "bf16": None}, precision, "precision")
    settings = {"loss": [of_critic.name, of_generator.name], "budget": check_budget(budget), "seed": check_seed(seed)}
    settings |= {"batch_size": batch_size, "critic_steps": critic_steps, "warm_up": warm_up, "data": samples.digest}

    # Where, and from which step on
    place, average = _join_processes(batch_size, parts)
    group = torch.distributed.group.WORLD if place.num_processes > 1 else None
    networks = {"generator": generator.to(place.device), "critic": critic.to(place.device)}
    run = _Run(networks, out, averaged=bool(ema), betas=betas)
    latent = _check_networks(generator, critic, samples, latent)
    run.start(settings, start_from, new_critic)
    begin, end = run.first + warm_up, run.first + warm_up + steps
    if run.step > end:
        raise InputError(f"{out} has done {run.step - begin} steps already, got steps={steps}; ask for more")
    run.facts = {"settings": settings, "shape": samples.shape[1:], "latent": latent, "of_ratio": of_critic.of_ratio}
    run.facts["counts"] = [] if samples.labels is None else samples.labels.bincount().tolist()
    place.wait_for_everyone()  # all have read before the first one writes

    # Algorithm 2
    draws = Draws(seed, batch_size, place.process_index, place.num_processes, place.device)
    reals = samples.batches(draws.rows(samples.shape[0], run.seen))
    shared: Any = {"parts": parts, "process_group": group}

    def latents(step: int, turn: int) -> tuple[Tensor, ...]:
        z = draws.draw(torch.randn, "latent", step, turn, latent)
        if samples.labels is None:
            return (z,)
        rows = draws.draw(partial(torch.randint, len(samples.labels)), "fake labels", step, turn)
        return z, samples.labels.to(place.device)[rows]  # as frequent as in the data

    def noise_on(what: str, step: int, turn: int, sd: float) -> Any:
        return sd * draws.draw(torch.randn, f"noise on {what}", step, turn, *samples.shape[1:]) if sd else 0.0

    def train_critic(step: int, turn: int, sd: float) -> dict[str, Tensor]:
        x, *y = (part.to(place.device, non_blocking=True) for part in next(reals))
        z = latents(step, turn)
        with torch.no_grad():
            fake = torch.cat([generator(*part) for part in zip(*(each.chunk(parts) for each in z), strict=True)])
        real, fake = x + noise_on("real", step, turn, sd), fake + noise_on("fake", step, turn, sd)
        mix = draws.draw(torch.rand, "mix", step, turn) if gradient_penalty else None
        options: Any = {"loss": of_critic, "r1": r1, "gradient_penalty": gradient_penalty, "mix": mix, **shared}
        run.seen += batch_size
        return critic_step(critic, run.adams["critic"], (real, *y), (fake, *z[1:]), **options)

    def train_generator(step: int, sd: float) -> dict[str, Tensor]:
        cut, noise = run.cut if step % constant_every else None, noise_on("fake", step, -1, sd) if sd else None
        options: Any = {"loss": of_generator, "budget": budget, "cut": cut, "noise": noise, **shared}
        loss, _, run.cut = generator_step(generator, critic, run.adams["generator"], latents(step, -1), **options)
        if ema:
            run.average(ema(step) if callable(ema) else min(ema, (1 + step) / (10 + step)))
        return {"generator": loss}

    generator.train(), critic.train()
    try:
        with (
            hold(run.out / "checkpoints") if run.out is not None and place.is_main_process else nullcontext(),
            bar("training", end, progress if place.is_main_process else False) as tell,
            own_noise(place.device) as reseed,
            torch.autocast(place.device.type, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False),
        ):
            run.open_log(place.is_main_process, keep)
            for step in range(run.step, end):
                reseed(derive(seed, "noise", step, place.process_index))
                share = max(step - begin, 0) / steps
                sd = noise(share) if callable(noise) else noise
                for adam, rate in zip(run.adams.values(), rates, strict=True):
                    adam.param_groups[0]["lr"] = rate(share) if callable(rate) else rate
                for turn in range(critic_steps if step >= begin else 1):
                    losses = train_critic(step, turn, sd)
                if step >= begin:
                    losses |= train_generator(step, sd)
                run.step = step + 1
                run.losses.append(losses)
                saves = run.step % save_every == 0 or run.step == end
                if saves or run.step % log_every == 0 or run.step == begin:
                    tell(run.step, run.add_row(average, check_weights=saves))
                if saves:
                    run.save()
    except KeyboardInterrupt as error:
        again = "" if out is None else f"; call again with out={str(out)!r} to go on from its checkpoint"
        made = run.result(run.state()) if out is None else None
        raise Interrupted(f"interrupted after step {run.step}{again}", made) from error
    place.wait_for_everyone()  # the last checkpoint is there, whichever process asks for it
    return run.result(run.good)


class _Run:
    """The state of a run, its log and its checkpoints; all randomness is a function of the step."""

    def __init__(self, networks: dict[str, nn.Module], out: Any, *, averaged: bool, betas: Any) -> None:
        self.networks = networks
        self.adams = {name: torch.optim.Adam(net.parameters(), betas=betas) for name, net in self.networks.items()}
        if averaged:
            self.networks["ema"] = copy.deepcopy(networks["generator"]).requires_grad_(False).eval()
        self.out = None if out is None else as_path(out, "out")
        self.cut: Cut | None = None
        self.first = self.step = self.seen = 0
        self.facts: dict[str, Any] = {}
        self.losses: list[dict[str, Tensor]] = []  # of the steps since the last row of the log
        self.rows: list[dict[str, Any]] = []

    def start(self, settings: dict[str, Any], start_from: Any, new_critic: bool) -> None:
        """Go on with the run in the folder, from another run, or start afresh."""
        if self.out is not None and checkpoints(self.out):
            state = read_state(self.out)
            for key, value in settings.items():
                if (before := state.facts["settings"].get(key)) != value:
                    raise InputError(f"{self.out} was made with {key}={before!r}, got {value!r}; choose another folder")
            self.load(state)
            self.first = state.facts["first"]
        elif start_from is not None:
            self.load(start_from.state if isinstance(start_from, Trained) else read_state(start_from), new_critic)
            self.first, self.cut = self.step, None  # the budget may be another

    def open_log(self, writes: bool, keep: int) -> None:
        """Keep the rows of the log up to this step, and write the first checkpoint; one process writes files."""
        self.good, self.keep, self.folder = self.state(), keep, self.out if writes else None
        if self.folder is not None:
            self.rows = [row for row in read_log(self.folder) if row["step"] <= self.step]
            self.folder.mkdir(parents=True, exist_ok=True)
            with rewrite(self.folder / "log.jsonl") as file:
                file.write("".join(json.dumps(row) + "\n" for row in self.rows).encode())
            if self.step == self.first:
                write_state(self.folder, self.good, keep)
        self.begun = perf_counter() - (self.rows[-1]["seconds"] if self.rows else 0.0)

    def add_row(self, average: Callable[..., Tensor], *, check_weights: bool) -> str:
        """Add the mean losses since the last row to the log, and return them in a line; raise if one is not finite."""
        means = {name: torch.stack([each[name] for each in self.losses]).mean() for name in self.losses[-1]}
        means, self.losses = {name: float(average(value, "mean")) for name, value in means.items()}, []
        wrong = [f"the {name} loss" for name, value in means.items() if not isfinite(value)]
        weights = [x for name in ("generator", "critic") for x in self.networks[name].parameters()]
        if check_weights and not all(bool(x.isfinite().all()) for x in weights):
            wrong.append("a weight")
        if wrong:
            what = f"{wrong[0]} is not finite at step {self.step}"
            self.load(self.good)
            again = f"the networks are as after step {self.step} again; try a lower lr or another loss"
            raise NotFiniteError(f"{what}; {again}", self.result(self.good))
        if self.cut is not None:  # c is infinite at K = 1
            means |= {"log_c": min(float(self.cut.log_c), 1e6), "rate": exp(float(self.cut.log_rate))}
        self.rows.append({"step": self.step, "seconds": round(perf_counter() - self.begun, 3), **means})
        if self.folder is not None:
            with (self.folder / "log.jsonl").open("a") as file:
                file.write(json.dumps(self.rows[-1]) + "\n")
        return "  ".join(f"{name} {value:.3g}" for name, value in means.items())

    def save(self) -> None:
        """Take this step as the last good one, and write its checkpoint."""
        self.good = self.state()
        if self.folder is not None:
            write_state(self.folder, self.good, self.keep)

    def average(self, decay: float) -> None:
        """Move the averaged weights, and statistics of batch norms, towards the generator's; copy other buffers."""
        mean, module = self.networks["ema"], self.networks["generator"]
        with torch.no_grad():
            for old, new in zip(mean.parameters(), module.parameters(), strict=True):
                old.lerp_(new, 1 - decay)
            for (name, old), new in zip(mean.named_buffers(), module.buffers(), strict=True):
                moves = name.endswith(("running_mean", "running_var"))
                old.lerp_(new, 1 - decay) if moves else old.copy_(new)

    def load(self, state: State, new_critic: bool = False) -> None:
        """Take over networks and steps, and unless the critic is new both Adams and c."""
        for name, network in self.networks.items():
            if name != "critic" or not new_critic:
                stored = subset(state.tensors, name) or subset(state.tensors, "generator")  # which starts an average
                fill_module(network, stored, "critic" if name == "critic" else "generator", "the run")
        self.step, self.seen = state.facts["step"], state.facts["seen"]
        if new_critic:
            return
        for name, adam in self.adams.items():
            moments: dict[int, dict[str, Tensor]] = {}
            for key, value in subset(state.tensors, f"{name}_adam").items():
                moments.setdefault(int(key.split("/")[0]), {})[key.split("/")[1]] = value
            adam.load_state_dict({"state": moments, "param_groups": adam.state_dict()["param_groups"]})
        self.cut = Cut(**cut) if (cut := subset(state.tensors, "cut")) else None

    def state(self) -> State:
        """Return a copy of it all, on the CPU."""
        held = {name: network.state_dict() for name, network in self.networks.items()}
        for name, adam in self.adams.items():
            moments = adam.state_dict()["state"]
            held[f"{name}_adam"] = {f"{i}/{key}": x for i, values in moments.items() for key, x in values.items()}
        held["cut"] = {} if self.cut is None else vars(self.cut)
        tensors = {f"{name}/{key}": x.detach().cpu().clone() for name, part in held.items() for key, x in part.items()}
        return State(tensors, self.facts | {"first": self.first, "step": self.step, "seen": self.seen})

    def result(self, state: State) -> Trained:
        """Return the networks, in evaluation mode, with the state that a further run starts from."""
        modes = {name: network.eval() for name, network in self.networks.items()}
        return Trained(modes.get("ema", modes["generator"]), modes["critic"], self.rows, state, self.out)


def _choose_losses(loss: Any) -> tuple[Any, Any]:
    """Return the losses of critic and generator."""
    if loss is None:
        points = "'exact' for points, after a plain GAN (GAN divergence left at K = 2: 0.32, by plain GANs 0.51)"
        images = "'paper_raw', the paper's, for images, where none was ahead by more than its error"
        raise InputError(f"name a loss=: {points}, {images}; there are: {', '.join(GENERATOR_LOSSES)}")
    if isinstance(loss, str):
        return critic_loss(loss if loss in CRITIC_LOSSES else "gan"), generator_loss(loss)
    pair: Any = loss if isinstance(loss, tuple | list) and len(loss) == 2 else (None, None)
    of_critic, of_generator = pair
    if not hasattr(of_critic, "of_ratio") or not hasattr(of_generator, "rejects"):
        raise InputTypeError(f"loss must be a name or (critic_loss(...), generator_loss(...)), got {loss!r:.60}")
    if of_generator.rejects and not of_critic.of_ratio:
        raise InputError(f"{of_generator.name!r} needs a critic that returns a log-ratio, {of_critic.name!r} has none")
    return of_critic, of_generator


def _check_networks(generator: Any, critic: nn.Module, data: Data, latent: int | None) -> int:
    """Pass two latents through both networks; return the length of a latent."""
    linear = (layer.in_features for layer in generator.modules() if isinstance(layer, nn.Linear))
    if not (latent := latent or getattr(generator, "latent", None) or next(linear, None)):
        raise InputError("the generator does not tell the length of its latent; give latent=")
    device = next(generator.parameters()).device
    z = [torch.zeros(2, latent, device=device), *([] if data.labels is None else [data.labels[:2].to(device)])]
    try:
        with torch.no_grad():
            made = generator.eval()(*z)
            outputs = critic.eval()(made, *z[1:])
    except RuntimeError as error:
        why = f"generator and critic do not fit latents of length {latent}, or each other"
        raise InputError(f"{why}: {one_line(error)}") from error
    if made.shape[1:] != data.shape[1:]:
        raise InputError(f"the generator makes samples of {tuple(made.shape[1:])}, the data are {data.shape[1:]}")
    first_output(outputs, "the critic")
    return latent


def _join_processes(batch_size: int, parts: int) -> tuple[Any, Callable[..., Tensor]]:
    """Join the processes that torchrun or accelerate started, or be one alone; return it, and how to average."""
    try:
        from accelerate import PartialState
        from accelerate.utils import reduce
    except ImportError as error:
        raise MissingLibraryError("training needs accelerate: pip install 'obrs[torch]'") from error
    theirs = torch.distributed.is_available() and torch.distributed.is_initialized()
    gpu = torch.cuda.is_available() or torch.backends.mps.is_available()
    place = PartialState(cpu=not gpu)  # without a GPU many processes must be told to share
    if place.num_processes > 1 and not theirs:
        # while Python is whole, since gloo's threads hold tensors; a script may have left the group itself
        atexit.register(lambda: torch.distributed.is_initialized() and torch.distributed.destroy_process_group())
    if batch_size % (least := place.num_processes * parts):
        raise InputError(f"batch_size must be a multiple of processes times parts, {least}, got {batch_size}")
    return place, reduce
