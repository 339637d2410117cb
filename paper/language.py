"""Language models: what a budget of backward passes is worth.

A real model of 135 million parameters completes 24 prompts, 64 times each, with up to 32 tokens. Rollouts come from two
laws that are not the policy that is trained: one is sampled at temperature 1.2, the other has weights that are rounded
to 8 bits. All rollouts of a law are the pool, whose self-normalised average is taken for the truth. Two questions:

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
from functools import lru_cache
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from obrs import rollout, select
from obrs._files import cache_folder
from obrs._progress import bar
from obrs._text import text_table
from obrs.errors import MissingLibraryError
from obrs.fitting.tensors import read_tensors, write_tensors
from obrs.language import TRL_MASK, VERL_BAND, VERL_TRUNCATE

from .gan25 import one_thread
from .record import Checked, Numbers, Record
from .smollm import complete, load_policy, read, round_weights
from .style import LOOKS, canvas, caption, page_table, section, tidy

__all__ = ["PRESETS", "Config", "Pool", "advantages", "baseline_table", "figure", "gradient_table", "markdown", "run"]
__all__ += ["question", "table"]

KINDS = {"hot": "temperature 1.2", "int8": "weights rounded to 8 bits"}
TOPICS = (
    "a rainy Monday", "my new phone", "the local restaurant", "a long train journey", "a broken bicycle",
    "last winter", "a visit to the dentist", "my grandmother", "an old dog", "the first day at school",
    "a football match", "a lost wallet", "the sea at night", "my neighbour", "a birthday party",
    "losing a job", "a slow computer", "the city park", "a bad night's sleep", "a cup of coffee",
    "a surprise letter", "the weather tomorrow", "a difficult exam", "moving to a new house",
)  # fmt: skip
_DECIDES = ("model", "completions", "length", "temperature", "seed")  # what decides the rollouts of a prompt
_Z = 1.96  # standard errors of an interval of 95 %


@dataclass(frozen=True)
class Config(Checked):
    """What to measure."""

    model: str = "smollm2"  # "smollm2", or the name or folder of any other model that transformers loads
    prompts: int = 24  # at most 24
    completions: int = 64  # of each prompt
    length: int = 32  # tokens of each completion, at most
    temperature: float = 1.2  # of the rollouts that are too hot
    batch: int = 64  # rollouts of a batch
    keep: tuple[int, ...] = (16, 32)  # how many of them are kept
    batches: int = 2000  # batches that errors are averaged over
    asked: int = 4  # prompts of a batch whose advantages come from siblings, with an equal share of it each
    seed: int = 0  # decides all randomness


PRESETS = {
    "smoke": Config(prompts=2, completions=16, length=4, batch=16, keep=(4,), batches=20, asked=2),
    "default": Config(),
}


def question(topic: str) -> str:
    """Return the prompt about a topic."""
    return f"Write one sentence about {topic}."


# Rollouts -------------------------------------------------------------------------------------------------------------


class Pool(NamedTuple):
    """All rollouts of one kind; rows are completions."""

    logp_train: Numbers  # log-probs, shape `(N, T)`
    logp_rollout: Numbers  # the same under the law that was sampled
    mask: Numbers  # which of them are tokens of a completion
    slope: Numbers  # gradient of each log-prob, shape `(N, d)`
    prompt: Numbers  # number of the prompt of each

    @property
    def log_ratio(self) -> Numbers:
        """The log-ratio of each completion."""
        gap = np.where(self.mask, self.logp_train - self.logp_rollout, 0.0)
        return np.asarray(np.sum(gap, axis=1, dtype=np.float64))

    def rows(self, at: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Return both log-probs and the mask of some completions."""
        return self.logp_train[at], self.logp_rollout[at], self.mask[at]


def run(config: Config, rows: Record) -> None:
    """Make the rollouts, then the tables."""
    by_batch = {"batches": config.batches, "seed": config.seed}
    for kind in KINDS:
        for row, measure in rows.todo({f"{name} {kind}": name for name in ("rollouts", "gradient", "baseline")}):
            pool, texts, facts = _pool(config, kind, rows.progress)
            if measure == "rollouts":
                rows.add(row, facts)
            elif measure == "gradient":
                rows.add(row, gradient_table(pool, _sentiment(texts), batch=config.batch, keep=config.keep, **by_batch))
            else:
                shape = {"prompts": config.asked, "copies": config.batch // config.asked, "keep": config.keep[0]}
                rows.add(row, baseline_table(pool, _sentiment(texts), **shape, **by_batch))


@lru_cache(maxsize=1)
def _pool(config: Config, kind: str, progress: bool | None) -> tuple[Pool, list[str], dict[str, Any]]:
    """Return all rollouts of a kind, made or read from the cache, their texts, and what the record says of them."""
    decided = {key: value for key, value in asdict(config).items() if key in _DECIDES} | {"kind": kind}
    key = hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()[:12]
    home = cache_folder() / "rollouts"
    home.mkdir(parents=True, exist_ok=True)
    parts = list[Any]()
    with bar(f"rollouts {kind}", config.prompts, progress) as update:
        for number, topic in enumerate(TOPICS[: config.prompts]):
            path = home / f"{kind}-{key}-{number:02}.safetensors"
            if not path.exists():
                write_tensors(path, *_complete(config, kind, number, question(topic)))
            parts.append(read_tensors(path, "rollouts"))
            update(number + 1, topic)
    joined = {name: np.concatenate([tensors[name].numpy() for tensors, _ in parts]) for name in parts[0][0]}
    train, sampled, mask, slope = (joined[name] for name in ("logp_train", "logp_rollout", "mask", "slope"))
    pool = Pool(train, sampled, mask, slope, np.repeat(np.arange(len(parts)), config.completions))
    texts = [text for _, facts in parts for text in facts["text"]]
    x = pool.log_ratio
    r = np.exp(x - x.max())
    facts = {
        "sha256": hashlib.sha256(joined["tokens"].tobytes()).hexdigest(),
        "sequences": len(x),
        "length": float(pool.mask.sum(axis=1).mean()),
        "log_ratio_sd": float(x.std()),
        "mean_ratio": float(np.exp(x).mean()),
        "ess": float(r.sum() ** 2 / np.sum(r * r) / len(r)),
        "cpu_seconds": sum(facts["seconds"] for _, facts in parts),
        "examples": texts[:: max(1, len(texts) // 4)][:4],
    }
    return pool, texts, facts


def _complete(config: Config, kind: str, number: int, prompt: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Let the engine complete a prompt, and the policy read what it made."""
    policy = load_policy(config.model)
    engine, temperature = (round_weights(policy), 1.0) if kind == "int8" else (policy, config.temperature)
    begun = process_time()
    ids = np.arange(config.completions) + number * config.completions
    with one_thread():
        rollouts = complete(engine, prompt, config.length, ids=ids, seed=config.seed, temperature=temperature)
        rollouts |= read(policy, prompt, rollouts["tokens"], rollouts["mask"])
    return rollouts, {"text": policy.text(rollouts["tokens"]), "seconds": process_time() - begun}


def _sentiment(texts: list[str]) -> Numbers:
    try:
        from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer
    except ImportError as error:
        raise MissingLibraryError("the reward needs vaderSentiment: pip install --group language") from error
    analyser = SentimentIntensityAnalyzer()
    return np.array([analyser.polarity_scores(text)["compound"] for text in texts])


# What batches are worth -----------------------------------------------------------------------------------------------


def advantages(reward: Numbers, prompt: Numbers) -> Numbers:
    """Return rewards minus the mean of their prompt.

    Example:
        >>> advantages(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 1]))
        array([-1.,  1.,  0.])
    """
    return np.asarray(reward - (np.bincount(prompt, reward) / np.maximum(np.bincount(prompt), 1))[prompt])


def _average(log_ratio: Numbers, f: Numbers) -> Numbers:
    """Return the self-normalised average."""
    r = np.exp(log_ratio - log_ratio.max())
    return np.asarray(r @ f / r.sum())


def gradient_table(
    pool: Pool, reward: Numbers, *, batch: int, keep: tuple[int, ...], batches: int, seed: int
) -> dict[str, dict[str, Any]]:
    """Return by method how far the gradient of a batch is from that of the pool.

    A size is |advantage| √length. The length of a rollout's own gradient, which nobody knows before its backward pass,
    is there as the best size that there can be.

    Returns:
        For each method, relative to the length of the true gradient: `error`, the root of the mean squared error, with
        its interval `low` to `high`; `added`, that of the difference to the whole batch; and `bias`, that of the mean.
        `trained` is the mean share of the batch with a backward pass, `empty` the share of batches of which nothing is
        left, which take no step. `better` is the difference of the squared error of OBRS to that of a random n.
    """
    x, a = pool.log_ratio, advantages(reward, pool.prompt)
    f = pool.slope * a[:, None]
    truth = _average(x, f)
    size, bound = np.abs(a) * np.sqrt(pool.mask.sum(axis=1)), np.linalg.norm(f, axis=1)
    mean = x / np.maximum(pool.mask.sum(axis=1), 1)
    trained, estimates = dict[str, list[float]](), dict[str, list[Numbers]]()

    def add(method: str, at: Numbers, weight: Numbers, total: float | None = None) -> None:
        """Keep the estimate of a batch; weights are divided by their sum or by another."""
        total = weight.sum() if total is None else total
        trained.setdefault(method, []).append(np.count_nonzero(weight) / batch)
        estimates.setdefault(method, []).append(weight @ f[at] / total if total > 0 else np.zeros_like(truth))

    for number in range(batches):
        at = select(np.zeros(len(x)), batch, seed=seed + number, design="systematic")
        r = np.exp(x[at])
        add(f"all {batch}", at, r)
        add("no correction", at, np.ones(batch))
        for n in keep:
            for name, matters in (("", None), (" by size", size), (" by gradient", bound)):
                known = None if matters is None else matters[at]
                pick = rollout(*pool.rows(at), keep=n, size=known, ids=at, seed=seed + number)
                add(f"OBRS {n}{name}", at[pick.index], pick.weight, 1.0)
            for name, score in (("r", r), ("r size", r * size[at])):
                top = np.argsort(-score)[:n]
                add(f"top {n} by {name}", at[top], r[top], r.sum())
            some = select(np.zeros(batch), n, seed=seed + batches + number)
            add(f"random {n}", at[some], r[some])
            add(f"random {n}, unbiased", at[some], r[some] * batch / n, r.sum())
        add(f"truncate at {VERL_TRUNCATE:g}", at, np.minimum(r, VERL_TRUNCATE))
        add(f"drop above {TRL_MASK:g}", at, r * (r <= TRL_MASK))
        low, high = np.log(VERL_BAND)
        add(f"band {VERL_BAND[0]:g} to {VERL_BAND[1]:g}", at, ((mean[at] >= low) & (mean[at] <= high)).astype(float))

    scale, whole, table = float(truth @ truth), np.array(estimates[f"all {batch}"]), dict[str, dict[str, Any]]()
    squares = {method: np.sum((np.array(draws) - truth) ** 2, axis=1) / scale for method, draws in estimates.items()}
    for method, draws in estimates.items():
        middle, low, high = _interval(squares[method])
        gap = np.mean(draws, axis=0) - truth
        table[method] = {
            "trained": float(np.mean(trained[method])),
            "error": float(np.sqrt(middle)),
            "low": float(np.sqrt(max(low, 0.0))),
            "high": float(np.sqrt(high)),
            "added": float(np.sqrt(np.mean(np.sum((np.array(draws) - whole) ** 2, axis=1)) / scale)),
            "bias": float(np.sqrt(gap @ gap / scale)),
            "empty": float(np.mean(np.array(trained[method]) == 0)),
        }
    for n in keep:
        table[f"OBRS {n}"]["better"] = _interval(squares[f"random {n}"] - squares[f"OBRS {n}"])
    return table


def _interval(values: Numbers) -> list[float]:
    """Return mean, low and high of an interval of 95 %."""
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
    return [mean, mean - _Z * error, mean + _Z * error]


def baseline_table(
    pool: Pool, reward: Numbers, *, prompts: int, copies: int, keep: int, batches: int, seed: int
) -> dict[str, dict[str, float]]:
    """Return what the gradient of a batch is worth, by the siblings that the advantage of a rollout is computed from.

    A batch has some completions of a few prompts, and `keep` of them are chosen by `obrs.rollout`. Its gradient is
    compared with that of all completions of these prompts.

    Returns:
        For each way: `error`, the root of the mean squared error over that of the true gradients; `length`, that of the
        mean estimate along the true gradient; `variance` around this, as a share of squared gradients; and `scaled`,
        the error of estimates that are divided by `length`.
    """
    true_advantage, count = advantages(reward, pool.prompt), int(pool.prompt.max()) + 1
    goals, gradients = list[Numbers](), dict[str, list[Numbers]]()
    for number in range(batches):
        rng = np.random.default_rng([seed, number])
        chosen = rng.permutation(count)[:prompts]
        at = np.concatenate([rng.permutation(np.flatnonzero(pool.prompt == one))[:copies] for one in chosen])
        everyone = np.flatnonzero(np.isin(pool.prompt, chosen))
        goals.append(_average(pool.log_ratio[everyone], pool.slope[everyone] * true_advantage[everyone, None]))
        pick = rollout(*pool.rows(at), keep=keep, ids=at, seed=seed + number)
        some, siblings = at[pick.index], advantages(reward[at], pool.prompt[at])
        ways = {
            "all, no rejection": _average(pool.log_ratio[at], pool.slope[at] * siblings[:, None]),
            "all siblings": (pick.weight * siblings[pick.index]) @ pool.slope[some],
            "kept siblings": (pick.weight * advantages(reward[some], pool.prompt[some])) @ pool.slope[some],
        }
        for way, estimate in ways.items():
            gradients.setdefault(way, []).append(estimate)
    truth, table = np.array(goals), {}
    scale = np.mean(np.sum(truth**2, axis=1))
    for way, rows in gradients.items():
        estimates = np.array(rows)
        length = np.mean(np.sum(estimates * truth, axis=1)) / scale
        error, variance = (np.mean(np.sum((estimates - k * truth) ** 2, axis=1)) / scale for k in (1.0, length))
        table[way] = {"error": np.sqrt(error), "length": length, "variance": variance}
        table[way]["scaled"] = np.sqrt(variance) / length
    return table


# Tables and picture ---------------------------------------------------------------------------------------------------


def _methods(record: Record, row: str) -> dict[str, Any]:
    """Return what a row says of each method."""
    return {name: values for name, values in record[row].items() if name != "row"}


def _tables(record: Record) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Return titles of columns, and cells, of both tables."""
    gradients, baselines = [], []
    for kind, name in KINDS.items():
        for method, row in _methods(record, f"gradient {kind}").items():
            error = f"{row['error']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
            cells = [f"{row['trained']:.1%}", error, f"{row['added']:.2f}", f"{row['bias']:.2f}"]
            gradients.append([name, method, *cells, f"{row['empty']:.1%}"])
        for way, row in _methods(record, f"baseline {kind}").items():
            baselines.append([name, way, *(f"{row[key]:.3f}" for key in ("error", "length", "variance", "scaled"))])
    heads = [f"of {record.config['batch']}", "trained", "error", "added", "bias", "empty"]
    ways = ["advantages from", "error", "length", "variance", "error at length 1"]
    return {"gradients": (["rollouts", *heads], gradients), "baselines": (["rollouts", *ways], baselines)}


def _pools(record: Record) -> str:
    pools = {name: record[f"rollouts {kind}"] for kind, name in KINDS.items()}
    facts = [f"{row['log_ratio_sd']:.2f} and {row['ess']:.1%} with {name}" for name, row in pools.items()]
    return f"Standard deviation of log r, and effective sample size of the pool: {', '.join(facts)}."


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
    names = [name for name in _methods(record, "gradient hot") if "unbiased" not in name and "band" not in name]
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
    text = f"SmolLM2-135M, {record.config['prompts']} prompts: error of the gradient of a batch of "
    text += f"{record.config['batch']}, relative to its length, with intervals of 95 % over batches. "
    text += "Size is |advantage| √length; by gradient: the length of its own gradient, which is not known before."
    return caption(drawn, record.experiment, text)
