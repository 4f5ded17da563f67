"""Mistral: Llama with a window, beyond which no layer looks back, and without biases.

Jiang et al. 2023, arXiv:2310.06825.
"""

from typing import Any

from pellucid.config import ModelConfig
from pellucid.formats.huggingface.families.llama import DEFAULTS, LlamaFamily
from pellucid.formats.huggingface.keys import Keys
from pellucid.parts.masks.window import Window


class MistralFamily(LlamaFamily):
    architectures = ("MistralForCausalLM", "MistralModel")
    defaults = {  # noqa: RUF012
        **DEFAULTS,
        "max_position_embeddings": 131072,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
    }
    bias_keys = {}  # noqa: RUF012

    def choices(self, keys: Keys) -> dict[str, Any]:
        size = keys["sliding_window"] if keys["sliding_window"] is None else keys.size("sliding_window")
        return super().choices(keys) | {"mask": {"kind": "window", "size": size} if size else "causal"}

    def keys(self, config: ModelConfig) -> dict[str, Any]:
        size = config.mask.size if isinstance(config.mask, Window) else None
        return super().keys(config) | {"sliding_window": size}

    def limits(self, config: ModelConfig) -> list[str]:
        return []
