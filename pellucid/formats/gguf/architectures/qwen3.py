"""Qwen3: Llama with RoPE in halves, no biases, and a norm over the channels of each query and key."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pellucid.formats.gguf.architectures import Place
from pellucid.formats.gguf.architectures.llama import LlamaArchitecture
from pellucid.formats.gguf.container import Metadata


class Qwen3Architecture(LlamaArchitecture):
    names: ClassVar[Mapping[str, str | Place]] = {
        **{ours: at for ours, at in LlamaArchitecture.names.items() if not ours.endswith(".bias")},
        "blocks.L.attn.q_norm.weight": "blk.L.attn_q_norm.weight",
        "blocks.L.attn.k_norm.weight": "blk.L.attn_k_norm.weight",
    }
    biases: ClassVar[Mapping[str, str]] = {}
    layout: ClassVar[str] = "halves"
    tables: ClassVar[tuple[str, ...]] = ()

    def choices(self, metadata: Metadata) -> dict[str, Any]:
        choices = super().choices(metadata)
        return choices | {"qk_norm": choices["norm"]}
