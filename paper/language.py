"""Language models: what a budget of backward passes is worth.

A real model of 135 million parameters completes 24 prompts, 64 times each, with up to 32 tokens. Rollouts come from two
laws that are not the policy that is trained: one is sampled at temperature 1.2, the other has weights that are rounded
to 8 bits. Two questions are asked of them:

- How far is the gradient of a batch of 64 from that of the pool, with all 64 trained, 16 or 32 of them kept by OBRS, by
  OBRS with the size |advantage| √length, as many at random or from the top, or what the thresholds of frameworks leave?
  The gradient is that of the gain of the last norm, 576 numbers, known in closed form.
- Are advantages computed from all rollouts of a prompt, or from those that are kept?

The paper has none of this. Rewards are the sentiment of VADER. Rollouts are kept in the cache, and the record has the
hash of their tokens.
"""

import hashlib
import json
import textwrap
from dataclasses import asdict, dataclass
from functools import cache
from time import process_time
from typing import Any

import numpy as np

from obrs._files import cache_folder
from obrs._progress import bar
from obrs._text import text_table
from obrs.errors import InputError, MissingLibraryError
from obrs.fitting.tensors import read_tensors, write_tensors

from .language_tables import Pool, baseline_table, gradient_table
from .record import Checked, Record
from .style import LOOKS, canvas, caption, page_table, section, tidy

__all__ = ["PAPER", "PRESETS", "Config", "figure", "markdown", "run", "table"]

PAPER = {"table": "none: the paper has no language model"}
KINDS = {"hot": "temperature 1.2", "int8": "weights rounded to 8 bits"}
TOPICS = (
    "a rainy Monday", "my new phone", "the local restaurant", "a long train journey", "a broken bicycle",
    "last winter", "a visit to the dentist", "my grandmother", "an old dog", "the first day at school",
    "a football match", "a lost wallet", "the sea at night", "my neighbour", "a birthday party",
    "losing a job", "a slow computer", "the city park", "a bad night's sleep", "a cup of coffee",
    "a surprise letter", "the weather tomorrow", "a difficult exam", "moving to a new house",
)  # fmt: skip

_DECIDES = ("model", "completions", "length", "temperature", "seed")  # what decides the rollouts of a prompt


@dataclass(frozen=True)
class Config(Checked):
    """What to measure.

    Args:
        model: "smollm2", or the name or folder of any other model that transformers loads.
        prompts, completions, length: Prompts, completions of each, tokens of each completion at most.
        temperature: Of the rollouts that are too hot.
        batch, keep: Rollouts of a batch, and how many of them are kept.
        batches: Batches that errors are averaged over.
        asked: Prompts of a batch whose advantages come from siblings, with an equal share of it each.
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
    asked: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.prompts <= len(TOPICS):
            raise InputError(f"prompts must be 2 to {len(TOPICS)}, got {self.prompts}")
        if self.batch > self.prompts * self.completions:
            raise InputError(f"a batch of {self.batch} needs as many rollouts, got {self.prompts * self.completions}")


PRESETS = {
    "smoke": Config(prompts=2, completions=16, length=4, batch=16, keep=(4,), batches=20, asked=2),
    "default": Config(),
}


def question(topic: str) -> str:
    """Return the prompt about a topic.

    Example:
        >>> question("my neighbour")
        'Write one sentence about my neighbour.'
    """
    return f"Write one sentence about {topic}."


def run(config: Config, rows: Record) -> None:
    """Make the rollouts, then the tables."""

    @cache
    def made(kind: str) -> tuple[Pool, list[str], list[Any]]:
        return _pool(config, kind, rows.progress)

    by_batch = {"batches": config.batches, "seed": config.seed}
    for kind in KINDS:
        for row, measure in rows.todo({f"{name} {kind}": name for name in ("rollouts", "gradient", "baseline")}):
            pool, text, parts = made(kind)
            if measure == "rollouts":
                rows.add(row, _facts(pool, text, parts))
            elif measure == "gradient":
                rows.add(row, gradient_table(pool, _sentiment(text), batch=config.batch, keep=config.keep, **by_batch))
            else:
                shape = {"prompts": config.asked, "copies": config.batch // config.asked, "keep": config.keep[0]}
                rows.add(row, baseline_table(pool, _sentiment(text), **shape, **by_batch))


def _pool(config: Config, kind: str, progress: bool | None) -> tuple[Pool, list[str], list[Any]]:
    """Return all rollouts of a kind, their texts, and tensors and facts by prompt, made or read from the cache."""
    decided = {key: value for key, value in asdict(config).items() if key in _DECIDES} | {"kind": kind}
    key = hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()[:12]
    home = cache_folder() / "rollouts"
    home.mkdir(parents=True, exist_ok=True)
    parts, policies = list[Any](), None
    with bar(f"rollouts {kind}", config.prompts, progress) as tell:
        for number, topic in enumerate(TOPICS[: config.prompts]):
            path = home / f"{kind}-{key}-{number:02}.safetensors"
            if not path.exists():
                policies = policies or _policies(config, kind)
                write_tensors(path, *_complete(config, *policies, number, question(topic)))
            parts.append(read_tensors(path, "rollouts"))
            tell(number + 1, topic)
    train, sampled, mask, slope = (_joined(parts, name) for name in ("logp_train", "logp_rollout", "mask", "slope"))
    pool = Pool(train, sampled, mask, slope, np.repeat(np.arange(len(parts)), config.completions))
    return pool, [text for _, facts in parts for text in facts["text"]], parts


def _policies(config: Config, kind: str) -> tuple[Any, Any, float]:
    """Return the policy that is trained, the one that is sampled, and its temperature."""
    from .smollm import load_policy, round_weights

    policy = load_policy(config.model)
    return (policy, round_weights(policy), 1.0) if kind == "int8" else (policy, policy, config.temperature)


def _complete(
    config: Config, policy: Any, engine: Any, temperature: float, number: int, prompt: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Let the engine complete a prompt, and the policy read what it made."""
    from .gan25 import one_thread
    from .smollm import complete, read

    begun = process_time()
    ids = np.arange(config.completions) + number * config.completions
    with one_thread():
        made = complete(engine, prompt, config.length, ids=ids, seed=config.seed, temperature=temperature)
        made |= read(policy, prompt, made["tokens"], made["mask"])
    return made, {"text": policy.text(made["tokens"]), "seconds": process_time() - begun}


def _joined(parts: list[Any], name: str) -> Any:
    return np.concatenate([tensors[name].numpy() for tensors, _ in parts])


def _facts(pool: Pool, text: list[str], parts: list[Any]) -> dict[str, Any]:
    x = pool.log_ratio
    r = np.exp(x - x.max())
    return {
        "sha256": hashlib.sha256(_joined(parts, "tokens").tobytes()).hexdigest(),
        "sequences": len(x),
        "length": float(pool.mask.sum(axis=1).mean()),
        "log_ratio_sd": float(x.std()),
        "mean_ratio": float(np.exp(x).mean()),
        "ess": float(r.sum() ** 2 / np.sum(r * r) / len(r)),
        "cpu_seconds": sum(facts["seconds"] for _, facts in parts),
        "examples": [text[number] for number in range(0, len(text), max(1, len(text) // 4))][:4],
    }


def _sentiment(texts: list[str]) -> Any:
    try:
        from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer
    except ImportError as error:
        raise MissingLibraryError("the reward needs vaderSentiment: pip install --group language") from error
    analyser = SentimentIntensityAnalyzer()
    return np.array([analyser.polarity_scores(text)["compound"] for text in texts])


def _methods(row: dict[str, Any]) -> dict[str, Any]:
    """Return what a row says of each method."""
    return {name: found for name, found in row.items() if name != "row"}


def _gradients(record: Record) -> tuple[list[str], list[list[str]]]:
    lines = []
    for kind, name in KINDS.items():
        for method, row in _methods(record[f"gradient {kind}"]).items():
            error = f"{row['error']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
            cells = [f"{row['trained']:.1%}", error, f"{row['added']:.2f}", f"{row['bias']:.2f}"]
            lines.append([name, method, *cells, f"{row['empty']:.1%}"])
    return ["rollouts", f"of {record.config['batch']}", "trained", "error", "added", "bias", "empty"], lines


def _baselines(record: Record) -> tuple[list[str], list[list[str]]]:
    keys = {"error": "error", "length": "length", "variance": "variance", "scaled": "error at length 1"}
    lines = [
        [name, way, *(f"{row[key]:.3f}" for key in keys)]
        for kind, name in KINDS.items()
        for way, row in _methods(record[f"baseline {kind}"]).items()
    ]
    return ["rollouts", "advantages from", *keys.values()], lines


def _pools(record: Record) -> str:
    said = [
        f"{made['log_ratio_sd']:.2f} and {made['ess']:.1%} with {name}"
        for name, made in ((name, record[f"rollouts {kind}"]) for kind, name in KINDS.items())
    ]
    return f"Standard deviation of log r, and effective sample size of the pool: {', '.join(said)}."


def _tables(record: Record) -> dict[str, tuple[list[str], list[list[str]]]]:
    return {"gradients": _gradients(record), "baselines": _baselines(record)}


def table(record: Record) -> str:
    """Return the tables as text, and how far the rollouts are from the policy."""
    parts = [text_table(head, lines, left=2) for head, lines in _tables(record).values()]
    return "\n\n".join([*parts, textwrap.fill(_pools(record), 110)])


def markdown(record: Record) -> str:
    """Return a part of a page for each table."""
    parts = {name: page_table(head, lines) for name, (head, lines) in _tables(record).items()}
    return "\n\n".join(section(name, part) for name, part in (parts | {"pools": _pools(record)}).items())


def figure(record: Record) -> Any:
    """Draw errors of the gradient."""
    drawn = canvas(9, 4.6)
    axes = drawn.subplots()
    names = [name for name in _methods(record["gradient hot"]) if "unbiased" not in name and "band" not in name]
    for kind, offset, colour in (("hot", 0.17, LOOKS["model"].colour), ("int8", -0.17, LOOKS["obrs"].colour)):
        rows = [record[f"gradient {kind}"][name] for name in names]
        value = np.array([row["error"] for row in rows])
        ends = np.array([[row["error"] - row["low"], row["high"] - row["error"]] for row in rows]).T
        place = np.arange(len(names))[::-1] + offset
        axes.errorbar(value, place, xerr=ends, fmt="o", ms=5, color=colour, label=KINDS[kind])
    axes.set_yticks(np.arange(len(names))[::-1], names)
    axes.set_xlabel("relative rms error of the gradient")
    axes.set_xlim(left=0)
    tidy(axes, "lower right")
    said = f"SmolLM2-135M, {record.config['prompts']} prompts: error of the gradient of a batch of "
    said += f"{record.config['batch']}, relative to its length, with intervals of 95 % over batches."
    caption(drawn, record.experiment, said)
    return drawn
