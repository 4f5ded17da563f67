"""BLOOM: GPT-2 with ALiBi in place of learned positions, and a norm after the embedding.

The rows of q, k and v are one below the other, as GPT-2 has them, and not head by head as BLOOM's own files.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from pellucid.config import ModelConfig
from pellucid.formats.gguf.architectures import Place
from pellucid.formats.gguf.architectures.gpt2 import Gpt2Architecture
from pellucid.formats.gguf.container import Metadata, Value


class BloomArchitecture(Gpt2Architecture):
    names: ClassVar[Mapping[str, str | Place]] = {
        "embed_norm.weight": "token_embd_norm.weight",
        "embed_norm.bias": "token_embd_norm.bias",
        **{ours: at for ours, at in Gpt2Architecture.names.items() if ours != "positions.weight"},
    }
    always_f32: ClassVar[tuple[str, ...]] = ()
    harmless: ClassVar[Mapping[str, Value]] = {"attention.causal": True, "attention.max_alibi_bias": 8.0}

    def choices(self, metadata: Metadata) -> dict[str, Any]:
        choices = super().choices(metadata)
        return choices | {"positions": "alibi", "embed_norm": choices["norm"]}

    def metadata(self, config: ModelConfig) -> dict[str, Value]:
        return super().metadata(config) | {"attention.head_count_kv": config.n_head}
