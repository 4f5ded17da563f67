"""Qwen3: Qwen2 with a norm over the channels of each query and key in place of their biases.

Yang et al. 2025, arXiv:2505.09388.
"""

from typing import Any

from pellucid.formats.huggingface.families.qwen2 import Qwen2Family
from pellucid.formats.huggingface.keys import Keys


class Qwen3Family(Qwen2Family):
    architectures = ("Qwen3ForCausalLM", "Qwen3Model")
    defaults = {**Qwen2Family.defaults, "head_dim": 128, "attention_bias": False}  # noqa: RUF012
    bias_keys = {"qkv": "attention_bias", "output": "attention_bias"}  # noqa: RUF012
    always_biased = ()
    tensors = (
        *Qwen2Family.tensors,
        ("model.layers.{}.self_attn.q_norm", "blocks.{}.attn.q_norm"),
        ("model.layers.{}.self_attn.k_norm", "blocks.{}.attn.k_norm"),
    )

    def choices(self, keys: Keys) -> dict[str, Any]:
        choices = super().choices(keys)
        return choices | {"qk_norm": choices["norm"]}
