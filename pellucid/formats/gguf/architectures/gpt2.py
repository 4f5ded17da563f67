"""GPT-2: learned positions, LayerNorm, tanh GELU, biases everywhere; q, k and v fused in one tensor."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pellucid.config import ModelConfig
from pellucid.formats.gguf.architectures import Architecture, Place
from pellucid.formats.gguf.container import Metadata, Value
from pellucid.parts.norms import LayerNormConfig


class Gpt2Architecture(Architecture):
    names: ClassVar[Mapping[str, str | Place]] = {
        "embed.weight": "token_embd.weight",
        "positions.weight": "position_embd.weight",
        "blocks.L.attn_norm.weight": "blk.L.attn_norm.weight",
        "blocks.L.attn_norm.bias": "blk.L.attn_norm.bias",
        "blocks.L.attn.q_proj.weight": Place("blk.L.attn_qkv.weight", 0, 3),
        "blocks.L.attn.q_proj.bias": Place("blk.L.attn_qkv.bias", 0, 3),
        "blocks.L.attn.k_proj.weight": Place("blk.L.attn_qkv.weight", 1, 3),
        "blocks.L.attn.k_proj.bias": Place("blk.L.attn_qkv.bias", 1, 3),
        "blocks.L.attn.v_proj.weight": Place("blk.L.attn_qkv.weight", 2, 3),
        "blocks.L.attn.v_proj.bias": Place("blk.L.attn_qkv.bias", 2, 3),
        "blocks.L.attn.o_proj.weight": "blk.L.attn_output.weight",
        "blocks.L.attn.o_proj.bias": "blk.L.attn_output.bias",
        "blocks.L.mlp_norm.weight": "blk.L.ffn_norm.weight",
        "blocks.L.mlp_norm.bias": "blk.L.ffn_norm.bias",
        "blocks.L.mlp.up_proj.weight": "blk.L.ffn_up.weight",
        "blocks.L.mlp.up_proj.bias": "blk.L.ffn_up.bias",
        "blocks.L.mlp.down_proj.weight": "blk.L.ffn_down.weight",
        "blocks.L.mlp.down_proj.bias": "blk.L.ffn_down.bias",
        "final_norm.weight": "output_norm.weight",
        "final_norm.bias": "output_norm.bias",
        "unembed.weight": "output.weight",
    }
    # Programs that run GPT-2 expect every one of these, so a file without them is not a GPT-2.
    biases: ClassVar[Mapping[str, str]] = dict.fromkeys(("qkv", "output", "mlp", "norm"), "token_embd.weight")
    always_f32: ClassVar[tuple[str, ...]] = ("position_embd.weight",)
    harmless: ClassVar[Mapping[str, Value]] = {"attention.causal": True}

    def choices(self, metadata: Metadata) -> dict[str, Any]:
        n_head = metadata.integer("attention.head_count")
        return super().choices(metadata) | {
            "n_kv_head": metadata.integer("attention.head_count_kv", n_head),
            "positions": "learned",
            "norm": {"kind": "layer_norm", "eps": metadata.number("attention.layer_norm_epsilon")},
            "mlp": "gelu_tanh",
        }

    def metadata(self, config: ModelConfig) -> dict[str, Value]:
        eps = config.norm.eps if isinstance(config.norm, LayerNormConfig) else 0.0
        return super().metadata(config) | {"attention.layer_norm_epsilon": eps}
