"""Qwen2: Llama with RoPE in halves and biases on queries, keys and values; the heads fill the channels."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pellucid.formats.gguf.architectures import Place
from pellucid.formats.gguf.architectures.llama import LlamaArchitecture
from pellucid.formats.gguf.container import Metadata, require_support


class Qwen2Architecture(LlamaArchitecture):
    names: ClassVar[Mapping[str, str | Place]] = {
        ours: at
        for ours, at in LlamaArchitecture.names.items()
        if not ours.endswith(".bias") or ours.removesuffix(".bias").endswith(("q_proj", "k_proj", "v_proj"))
    }
    # Programs that run Qwen2 expect them, so a file without them is not a Qwen2.
    biases: ClassVar[Mapping[str, str]] = {"qkv": "token_embd.weight"}
    layout: ClassVar[str] = "halves"
    tables: ClassVar[tuple[str, ...]] = ()

    def choices(self, metadata: Metadata) -> dict[str, Any]:
        choices = super().choices(metadata)
        d_model, n_head, d_head = (choices[size] for size in ("d_model", "n_head", "d_head"))
        require_support(
            n_head * d_head == d_model,
            f"n_head × d_head = {n_head} × {d_head} is not d_model = {d_model}, as Qwen2 requires",
        )
        return choices
