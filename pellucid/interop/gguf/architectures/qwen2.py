"""Qwen2: Llama with RoPE in halves and biases on queries, keys and values; the heads fill the channels."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pellucid.interop.gguf.architectures import Place
from pellucid.interop.gguf.architectures.llama import Llama
from pellucid.interop.gguf.facts import Facts
from pellucid.interop.gguf.opening import support


class Qwen2(Llama):
    names: ClassVar[Mapping[str, str | Place]] = {
        ours: at
        for ours, at in Llama.names.items()
        if not ours.endswith(".bias") or ours.removesuffix(".bias").endswith(("q_proj", "k_proj", "v_proj"))
    }
    # Programs that run Qwen2 expect them, so a file without them is no Qwen2.
    biases: ClassVar[Mapping[str, str]] = {"qkv": "token_embd.weight"}
    layout: ClassVar[str] = "halves"
    tables: ClassVar[tuple[str, ...]] = ()

    def choices(self, facts: Facts) -> dict[str, Any]:
        choices = super().choices(facts)
        d_model, n_head, d_head = (choices[size] for size in ("d_model", "n_head", "d_head"))
        support(
            n_head * d_head == d_model,
            f"it has {n_head} heads of {d_head} channels, and in Qwen2 they fill the {d_model} of the model",
        )
        return choices
