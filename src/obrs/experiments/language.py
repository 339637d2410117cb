"""Language models: what a budget of backward passes is worth, and what a budget of KL is worth.

A real model of 135 million parameters completes 24 prompts 64 times. Rollouts come from two laws that are not the
policy that is trained: one is sampled at temperature 1.2, the other has weights rounded to 8 bits.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from .._inputs import check_count, check_positive
from ..data.fetch import cache_folder
from .record import Rows

__all__ = ["PAPER", "PRESETS", "Config", "run"]

PAPER: dict[str, Any] = {}
TOPICS = (
    "a rainy Monday", "my new phone", "the local restaurant", "a long train journey", "a broken bicycle",
    "last winter", "a visit to the dentist", "my grandmother", "an old dog", "the first day at school",
    "a football match", "a lost wallet", "the sea at night", "my neighbour", "a birthday party",
    "losing a job", "a slow computer", "the city park", "a bad night's sleep", "a cup of coffee",
    "a surprise letter", "the weather tomorrow", "a difficult exam", "moving to a new house",
)  # fmt: skip


@dataclass(frozen=True)
class Config:
    """What to measure."""

    model: str = "smollm2"
    prompts: int = 24
    completions: int = 64
    length: int = 32
    temperature: float = 1.2
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("prompts", "completions", "length"):
            check_count(getattr(self, name), name)
        check_positive(self.temperature, "temperature")


PRESETS = {"smoke": Config(prompts=2, completions=8, length=6), "default": Config()}
KINDS = ("hot", "int8")


def question(topic: str) -> str:
    """Return the prompt about a topic."""
    return f"Write one sentence about {topic}."


def rollouts(config: Config, kind: str, progress: bool | None = None) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return tensors and facts of every prompt; what was made before is read from the cache."""
    from ..fitting.tensors import Checkpoint

    made = {key: value for key, value in asdict(config).items() if key in _DECIDES} | {"kind": kind}
    key = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:12]
    home = cache_folder() / "rollouts"
    home.mkdir(parents=True, exist_ok=True)
    found, policies = [], None
    for number, topic in enumerate(TOPICS[: config.prompts]):
        kept = Checkpoint(home / f"{kind}-{key}-{number:02}.safetensors", made | {"topic": topic})
        if (here := kept.read()) is None:
            policies = policies or _policies(config, kind)
            kept.write(*_made(config, *policies, number, topic))
            here = kept.read()
        found.append(here)
    return found


_DECIDES = ("model", "completions", "length", "temperature", "seed")


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
            sampler, [question(topic)], config.completions, config.length, ids=ids, seed=config.seed,
            temperature=temperature,
        )  # fmt: skip
        if engine is not None:
            found = read_again(policy, found, question(topic))
        logp, slope = slopes(policy, found)
    tensors = found._asdict() | {"logp_train": logp, "slope": slope}
    for name in ("hidden", "visible"):
        del tensors[name]
    return tensors, {"text": policy.text(found.tokens), "seconds": process_time() - begun}


def run(config: Config, rows: Rows) -> None:
    """Make the rollouts."""
    for kind in KINDS:
        rollouts(config, kind)


if __name__ == "__main__":
    import sys
    for k in sys.argv[1:]:
        rollouts(Config(), k)
