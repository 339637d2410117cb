"""Language models: what a budget of backward passes is worth, and what a budget of KL is worth.

A real model of 135 million parameters completes 24 prompts, 64 times each, with up to 32 tokens. Rollouts come from two
laws that are not the policy that is trained: one is sampled at temperature 1.2, the other has weights that are rounded
to 8 bits. Four questions are asked of them:

- How far is the gradient of a batch of 64 from that of the pool, with all 64 trained, 16 or 32 of them kept by OBRS, as
  many at random, or what the thresholds of frameworks leave? The gradient is that of the gain of the last norm, 576
  numbers, known in closed form.
- How well do 20 stored log-probs bracket the rate of tokens?
- Which reward does a budget of KL buy, by OBRS, best-of-n, top-k and multinomial resampling?
- Does a short fine-tuning with 16 backward passes per step get as far as one with 64?

The paper has none of this. Rewards are the sentiment of VADER, and for the third question also how clean a text is,
by the classifier of alt-profanity-check. Rollouts are kept in the cache, and the record has their hash.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from time import process_time
from typing import Any

import numpy as np

from obrs._checks import check_count, check_positive
from obrs._files import cache_folder
from obrs._progress import bar
from obrs.errors import InputError, MissingLibraryError

from .record import Record
from .resumable import Checkpoint
from .style import LOOKS, canvas, caption, page_table, section, tidy

__all__ = ["PAPER", "PRESETS", "Config", "figure", "markdown", "run", "table"]

PAPER = {"table": "none: the paper has no language model"}
KINDS = {"hot": "temperature 1.2", "int8": "weights rounded to 8 bits"}
ARMS = {"all": "all 64", "obrs": "16 by OBRS", "random": "16 at random"}
TOPICS = (
    "a rainy Monday", "my new phone", "the local restaurant", "a long train journey", "a broken bicycle",
    "last winter", "a visit to the dentist", "my grandmother", "an old dog", "the first day at school",
    "a football match", "a lost wallet", "the sea at night", "my neighbour", "a birthday party",
    "losing a job", "a slow computer", "the city park", "a bad night's sleep", "a cup of coffee",
    "a surprise letter", "the weather tomorrow", "a difficult exam", "moving to a new house",
)  # fmt: skip

_DECIDES = ("model", "completions", "length", "temperature", "seed")  # what decides the rollouts of a prompt


@dataclass(frozen=True)
class Config:
    """What to measure.

    Args:
        model: "smollm2", or the name or folder of any other model that transformers loads.
        prompts, completions, length: Prompts, completions of each, tokens of each completion at most.
        temperature: Of the rollouts that are too hot.
        batch, keep: Rollouts of a batch, and how many of them are kept.
        batches: Batches that errors are averaged over.
        draws: Groups of 16 completions, of each prompt, for the table of rewards; 4 of each are kept.
        kls: Budgets of KL for its curve, beside that of best-of-4.
        steps, seeds: Steps of the fine-tunings, and how many of each.
        asked, copies, tokens: Prompts of a step, completions of each, tokens of each.
        lr: Of Adam.
        judged: Completions of each prompt that a trained policy is judged by.
        seed: Decides all randomness.
    """

    model: str = "smollm2"
    prompts: int = 24
    completions: int = 64
    length: int = 32
    temperature: float = 1.2
    batch: int = 64
    keep: tuple[int, ...] = (16, 32)
    batches: int = 2000
    draws: int = 1000
    kls: tuple[float, ...] = (0.1, 0.3, 1.0)
    steps: int = 40
    seeds: int = 3
    asked: int = 4
    copies: int = 16
    tokens: int = 16
    lr: float = 5e-5
    judged: int = 8
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("completions", "length", "batches", "draws", "steps", "asked", "copies", "tokens", "judged"):
            check_count(getattr(self, name), name)
        check_count(self.seeds, "seeds", least=0)
        check_positive(self.temperature, "temperature")
        check_positive(self.lr, "lr")
        if not 2 <= check_count(self.prompts, "prompts") <= len(TOPICS):
            raise InputError(f"prompts must be 2 to {len(TOPICS)}, got {self.prompts}")
        if self.batch > self.prompts * self.completions:
            raise InputError(f"a batch of {self.batch} needs as many rollouts, got {self.prompts * self.completions}")


PRESETS = {
    "smoke": Config(
        prompts=2, completions=16, length=4, batch=16, keep=(4,), batches=20, draws=20, kls=(0.3,), steps=1, seeds=1,
        asked=2, copies=8, tokens=4, judged=2,
    ),
    "default": Config(),
}  # fmt: skip


def question(topic: str) -> str:
    """Return the prompt about a topic.

    Example:
        >>> question("my neighbour")
        'Write one sentence about my neighbour.'
    """
    return f"Write one sentence about {topic}."


def run(config: Config, rows: Record) -> None:
    """Make the rollouts, then the tables, then the fine-tunings, seed after seed."""
    for row, kind in rows.todo({f"rollouts {kind}": kind for kind in KINDS}):
        rows.add(row, _described(rollouts(config, kind, rows.progress)))
    for row, kind in rows.todo({f"gradient {kind}": kind for kind in KINDS}):
        from .language_tables import gradient_table

        pool, text = _pool(rollouts(config, kind))
        reward = _sentiment()(text)
        rows.add(
            row,
            gradient_table(
                pool, reward, batch=config.batch, keep=config.keep, batches=config.batches, seed=config.seed
            ),
        )
    if "tokens" not in rows:
        from .language_tables import token_row

        made = rollouts(config, "hot")
        top_rollout, top_train, overlap = (_joined(made, name) for name in ("top_rollout", "top_train", "overlap"))
        rows.add("tokens", token_row(top_rollout, top_train, overlap, _pool(made)[0]))
    scorers = {"tilt sentiment": _sentiment, "tilt clean": _clean}
    for row, scorer in rows.todo(scorers):
        from .language_tables import tilt_table

        pool, text = _pool(rollouts(config, "int8"))
        group = min(16, config.completions)
        rows.add(
            row,
            tilt_table(
                scorer()(text), pool.prompt, group=group, keep=4, draws=config.draws, seed=config.seed, kls=config.kls
            ),
        )
    _train_all(config, rows)


def rollouts(config: Config, kind: str, progress: bool | None = False) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return tensors and facts of every prompt; what was made before is read from the cache."""
    made = {key: value for key, value in asdict(config).items() if key in _DECIDES} | {"kind": kind}
    key = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:12]
    home = cache_folder() / "rollouts"
    home.mkdir(parents=True, exist_ok=True)
    found, policies = [], None
    with bar(f"rollouts {kind}", config.prompts, progress) as tell:
        for number, topic in enumerate(TOPICS[: config.prompts]):
            kept = Checkpoint(home / f"{kind}-{key}-{number:02}.safetensors", made | {"topic": topic})
            if (here := kept.read()) is None:
                policies = policies or _policies(config, kind)
                kept.write(*_made(config, *policies, number, topic))
                here = kept.read()
            assert here is not None, "it was written just now"
            found.append(here)
            tell(number + 1, topic)
    return found


def _policies(config: Config, kind: str) -> tuple[Any, Any]:
    from .smollm import load_policy, rounded

    policy = load_policy(config.model)
    return policy, rounded(policy) if kind == "int8" else None


def _made(config: Config, policy: Any, engine: Any, number: int, topic: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Let the engine complete a prompt, and the policy judge it."""
    from .gan25 import one_thread
    from .smollm import complete, read_again, slopes

    begun = process_time()
    with one_thread():
        ids = np.arange(config.completions) + number * config.completions
        sampler, temperature = (policy, config.temperature) if engine is None else (engine, 1.0)
        found = complete(
            sampler,
            [question(topic)],
            config.completions,
            config.length,
            ids=ids,
            seed=config.seed,
            temperature=temperature,
            laws=True,
        )
        if engine is not None:
            found = read_again(policy, found, question(topic))
        logp, slope = slopes(policy, found)
    tensors = found._asdict() | {"logp_train": logp, "slope": slope}
    for name in ("hidden", "visible"):
        del tensors[name]
    return tensors, {"text": policy.text(found.tokens), "seconds": process_time() - begun}


def _joined(made: list[Any], name: str) -> Any:
    return np.concatenate([tensors[name].numpy() for tensors, _ in made])


def _pool(made: list[Any]) -> tuple[Any, list[str]]:
    """Return all rollouts of a kind as one pool, and their texts."""
    from .language_tables import Pool

    train, sampled, mask, slope = (_joined(made, name) for name in ("logp_train", "logp_rollout", "mask", "slope"))
    prompt = np.repeat(np.arange(len(made)), [len(tensors["mask"]) for tensors, _ in made])
    return Pool(train, sampled, mask, slope, prompt), [text for _, facts in made for text in facts["text"]]


def _described(made: list[Any]) -> dict[str, Any]:
    from .smollm import fingerprint_of

    pool, text = _pool(made)
    x = pool.log_ratio
    r = np.exp(x - x.max())
    named = ((f"{name} {at:02}", x) for at, (tensors, _) in enumerate(made) for name, x in tensors.items())
    return {
        "sha256": fingerprint_of({name: x.numpy() for name, x in named}),
        "sequences": len(x),
        "length": float(pool.mask.sum(axis=1).mean()),
        "log_ratio_sd": float(x.std()),
        "mean_ratio": float(np.exp(x).mean()),
        "ess": float(r.sum() ** 2 / np.sum(r * r) / len(r)),
        "cpu_seconds": sum(facts["seconds"] for _, facts in made),
        "examples": [text[number] for number in range(0, len(text), max(1, len(text) // 4))][:4],
    }


def _sentiment() -> Callable[[list[str]], Any]:
    try:
        from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer
    except ImportError as error:
        raise MissingLibraryError("the reward needs vaderSentiment: pip install --group language") from error
    analyser = SentimentIntensityAnalyzer()
    return lambda texts: np.array([analyser.polarity_scores(text)["compound"] for text in texts])


def _clean() -> Callable[[list[str]], Any]:
    try:
        from profanity_check import predict_prob
    except ImportError as error:
        raise MissingLibraryError("the reward needs alt-profanity-check: pip install --group language") from error
    return lambda texts: 1.0 - np.asarray(predict_prob(texts))


def _train_all(config: Config, rows: Record) -> None:
    """Fine-tune with every arm; a row for each arm and seed."""
    wanted = {f"training {arm}, seed {s}": (arm, s) for s in range(config.seeds) for arm in ARMS}
    policy = None
    for row, (arm, seed) in rows.todo(wanted):
        from .gan25 import one_thread
        from .language_training import Task, fine_tuned, in_bfloat16
        from .smollm import load_policy

        policy = policy or in_bfloat16(load_policy(config.model))
        task = Task(
            tuple(map(question, TOPICS[: config.prompts])),
            _sentiment(),
            *(config.steps, config.asked, config.copies, config.tokens),
            keep=config.asked * config.copies // 4,
            temperature=config.temperature,
            lr=config.lr,
            judged=config.judged,
        )
        with one_thread(), bar("fine-tuning", config.steps, rows.progress) as tell:
            found = fine_tuned(policy, task, arm, config.seed + seed, tell)
        passes = task.keep if arm != "all" else config.asked * config.copies
        rows.add(row, {"arm": arm, "seed": config.seed + seed, "passes": passes * config.steps} | found)


def _of_arm(record: Record, arm: str) -> list[dict[str, Any]]:
    return [row for row in record.rows if row.get("arm") == arm]


def table(record: Record) -> str:
    """Return the tables as text."""
    lines = []
    for kind, name in KINDS.items():
        made = record[f"rollouts {kind}"]
        lines += [f"Rollouts with {name}: sd of log r {made['log_ratio_sd']:.2f}, ESS {100 * made['ess']:.1f} %"]
        lines += [f"  {'':24}{'trained':>9}{'error of the gradient':>26}{'bias':>8}{'empty':>9}"]
        for method, row in record[f"gradient {kind}"].items():
            if method != "row":
                error = f"{row['error']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
                lines.append(f"  {method:24}{row['trained']:9.1%}{error:>26}{row['bias']:8.2f}{row['empty']:9.1%}")
        lines.append("")
    found = record["tokens"]
    lines.append(
        f"Rate of tokens {found['rate']:.3f}; {found['stored']} log-probs say {found['low']:.3f} to "
        f"{found['high']:.3f}, and {found['estimate_bias']:+.4f} ± {found['estimate_error']:.4f} from it with the "
        "sampled token"
    )
    for scorer in ("sentiment", "clean"):
        lines += ["", f"  {scorer:24}{'reward':>9}{'KL':>8}{'gap':>9}{'copies':>9}   gap of best-of-n minus this one's"]
        for method, row in record[f"tilt {scorer}"].items():
            if method != "row":
                smaller = row.get("smaller")
                paired = f"   {smaller[0]:.4f} ({smaller[1]:.4f} to {smaller[2]:.4f})" if smaller else ""
                numbers = f"{row['reward']:9.3f}{row['kl']:8.3f}{row['gap']:9.4f}{row['copies']:9.1%}"
                lines.append(f"  {method:24}{numbers}{paired}")
    lines += [
        "",
        f"  {'fine-tuning':24}{'passes':>9}{'sampling s':>12}{'training s':>12}{'reward before':>15}{'after':>8}",
    ]
    for arm, name in ARMS.items():
        for row in _of_arm(record, arm):
            times = f"{sum(row['sampling']):12.0f}{sum(row['training']):12.0f}"
            lines.append(f"  {name:24}{row['passes']:9}{times}{row['before']:15.3f}{row['after']:8.3f}")
    return "\n".join(lines)


def markdown(record: Record) -> str:
    """Return four parts for a page: errors of gradients, rewards, stored log-probs, and the fine-tunings."""
    parts = {"gradients": _gradients, "rewards": _rewards, "tokens": _tokens, "training": _training}
    return "\n\n".join(section(name, part(record)) for name, part in parts.items())


def _gradients(record: Record) -> str:
    head, lines = [f"of {record.config['batch']}"], []
    for name in KINDS.values():
        head += ["trained", f"error, {name}", "bias", "empty"]
    for method in record["gradient hot"]:
        if method != "row":
            lines.append([method])
            for row in (record[f"gradient {kind}"][method] for kind in KINDS):
                error = f"{row['error']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
                lines[-1] += [f"{row['trained']:.1%}", error, f"{row['bias']:.2f}", f"{row['empty']:.1%}"]
    said = [
        f"{made['log_ratio_sd']:.2f} and {made['ess']:.1%} with {name}"
        for name, made in ((name, record[f"rollouts {kind}"]) for kind, name in KINDS.items())
    ]
    end = f"Standard deviation of log r, and effective sample size of the pool: {', '.join(said)}."
    return f"{page_table(head, lines)}\n\n{end}"


def _rewards(record: Record) -> str:
    lines = []
    for scorer in ("sentiment", "clean"):
        for method, row in record[f"tilt {scorer}"].items():
            if method != "row":
                mean, low, high = row.get("smaller", (None,) * 3)
                paired = "" if mean is None else f"{mean:.4f} ({low:.4f} to {high:.4f})"
                cells = [f"{row['reward']:.3f}", f"{row['kl']:.3f}", f"{row['gap']:.4f}", f"{row['copies']:.0%}"]
                lines.append([scorer, method, *cells, paired])
    return page_table(["scorer", "method", "reward", "KL", "gap", "copies", "gap of best-of-n minus this one's"], lines)


def _tokens(record: Record) -> str:
    row = record["tokens"]
    return (
        f"At c = 1 and {KINDS['hot']}, {row['rate']:.1%} of the tokens are kept, by sums over the whole vocabulary. "
        f"{row['stored']} log-probs of q, with those of p for the same tokens, say {row['low']:.1%} to "
        f"{row['high']:.1%}; the bracket is {row['width']:.3f} wide on average, {row['widest']:.3f} at most. With the "
        f"sampled token, the estimate is {row['estimate_bias']:+.4f} ± {row['estimate_error']:.4f} off on average."
    )


def _training(record: Record) -> str:
    lines = []
    for arm, name in ARMS.items():
        found = _of_arm(record, arm)
        lines.append([name, f"{len(found)}", f"{found[0]['passes']}"])
        lines[-1] += [f"{np.mean([sum(row[key]) for row in found]):.0f}" for key in ("sampling", "training")]
        lines[-1] += [f"{np.mean([row[key] for row in found]):.3f}" for key in ("before", "after")]
        lines[-1] += [", ".join(f"{row['change']:+.3f} ± {row['change_error']:.3f}" for row in found)]
    head = ["backward passes per step", "seeds", "passes", "CPU s sampling", "CPU s training", "before", "after"]
    return page_table([*head, "change, seed by seed, ± its standard error over prompts"], lines)


_LOOKS = {"all": LOOKS["model"], "obrs": LOOKS["obrs"], "random": LOOKS["sir"]}


def figure(record: Record) -> Any:
    """Draw errors of the gradient, reward against KL, and reward against backward passes and seconds."""
    drawn = canvas(9, 7.4)
    (left, right), (below, last) = drawn.subplots(2, 2)
    _draw_errors(left, record)
    _draw_rewards(right, record)
    _draw_training(below, record, lambda row: np.arange(1, len(row["reward"]) + 1) * row["passes"] / len(row["reward"]))
    _draw_training(last, record, lambda row: np.cumsum(row["sampling"]) + np.cumsum(row["training"]))
    below.set_xlabel("backward passes")
    below.set_ylabel("reward, mean of 8 steps")
    last.set_xlabel("CPU seconds, sampling included")
    caption(
        drawn,
        record.experiment,
        f"SmolLM2-135M, {record.config['prompts']} prompts. Above: error of the gradient of a batch of "
        f"{record.config['batch']}, relative to its length, with intervals of 95 % over batches; sentiment against KL "
        "of 4 kept of 16. Below: fine-tuning of the last two layers; lines are seeds.",
    )
    return drawn


def _draw_errors(axes: Any, record: Record) -> None:
    names = [name for name in record["gradient hot"] if name not in ("row",) and "unbiased" not in name]
    for kind, offset, colour in (("hot", 0.17, LOOKS["model"].colour), ("int8", -0.17, LOOKS["obrs"].colour)):
        rows = [record[f"gradient {kind}"][name] for name in names]
        value = np.array([row["error"] for row in rows])
        ends = np.array([[row["error"] - row["low"], row["high"] - row["error"]] for row in rows]).T
        place = np.arange(len(names))[::-1] + offset
        axes.errorbar(value, place, xerr=ends, fmt="o", ms=5, color=colour, label=KINDS[kind])
    axes.set_yticks(np.arange(len(names))[::-1], names)
    axes.set_xlabel("relative rms error of the gradient")
    axes.set_xlim(left=0)
    tidy(axes)


def _draw_rewards(axes: Any, record: Record) -> None:
    found = {name: row for name, row in record["tilt sentiment"].items() if name != "row"}
    for prefix, look in (("OBRS", LOOKS["obrs"]), ("multinomial", LOOKS["sir"])):
        points = sorted((row["kl"], row["reward"]) for name, row in found.items() if name.startswith(prefix))
        label = prefix if prefix == "OBRS" else "multinomial, with copies"
        axes.plot(*np.transpose(points), color=look.colour, ls=look.line, marker=look.marker, label=label)
    for prefix, look in (("best of", LOOKS["dot"]), ("top", LOOKS["drs"])):
        name = next(name for name in found if name.startswith(prefix))
        axes.plot(found[name]["kl"], found[name]["reward"], look.marker, color=look.colour, ms=9, ls="", label=name)
    axes.set_xlabel("KL of the kept to the pool, nats")
    axes.set_ylabel("sentiment")
    tidy(axes, "lower right")


def _draw_training(axes: Any, record: Record, at: Callable[[dict[str, Any]], Any]) -> None:
    for arm, name in ARMS.items():
        for number, row in enumerate(_of_arm(record, arm)):
            values = np.asarray(row["reward"])
            width = min(8, len(values))
            smooth = np.convolve(values, np.ones(width) / width, "valid")
            look = _LOOKS[arm]
            axes.plot(at(row)[width - 1 :], smooth, color=look.colour, lw=1.4, label=name if number == 0 else None)
    tidy(axes, "lower right")
