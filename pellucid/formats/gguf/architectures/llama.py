"""Llama, and all that share its shape: RMSNorm, RoPE in pairs, SwiGLU, shared key/value heads.

The rows of W_Q and W_K, and their biases, are in the "pairs" layout of RoPE, whatever layout the model was
trained in.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from pellucid.base.dtypes import Array
from pellucid.config import ModelConfig
from pellucid.formats.gguf import rope_scaling
from pellucid.formats.gguf.architectures import Architecture, Place
from pellucid.formats.gguf.container import Metadata, Value, require_support
from pellucid.parts.norms import RmsNormConfig


class LlamaArchitecture(Architecture):
    names: ClassVar[Mapping[str, str | Place]] = {
        "embed.weight": "token_embd.weight",
        "blocks.L.attn_norm.weight": "blk.L.attn_norm.weight",
        "blocks.L.attn.q_proj.weight": "blk.L.attn_q.weight",
        "blocks.L.attn.q_proj.bias": "blk.L.attn_q.bias",
        "blocks.L.attn.k_proj.weight": "blk.L.attn_k.weight",
        "blocks.L.attn.k_proj.bias": "blk.L.attn_k.bias",
        "blocks.L.attn.v_proj.weight": "blk.L.attn_v.weight",
        "blocks.L.attn.v_proj.bias": "blk.L.attn_v.bias",
        "blocks.L.attn.o_proj.weight": "blk.L.attn_output.weight",
        "blocks.L.attn.o_proj.bias": "blk.L.attn_output.bias",
        "blocks.L.mlp_norm.weight": "blk.L.ffn_norm.weight",
        "blocks.L.mlp.gate_proj.weight": "blk.L.ffn_gate.weight",
        "blocks.L.mlp.gate_proj.bias": "blk.L.ffn_gate.bias",
        "blocks.L.mlp.up_proj.weight": "blk.L.ffn_up.weight",
        "blocks.L.mlp.up_proj.bias": "blk.L.ffn_up.bias",
        "blocks.L.mlp.down_proj.weight": "blk.L.ffn_down.weight",
        "blocks.L.mlp.down_proj.bias": "blk.L.ffn_down.bias",
        "final_norm.weight": "output_norm.weight",
        "unembed.weight": "output.weight",
    }
    biases: ClassVar[Mapping[str, str]] = {
        "qkv": "blk.0.attn_q.bias",
        "output": "blk.0.attn_output.bias",
        "mlp": "blk.0.ffn_up.bias",
    }
    harmless: ClassVar[Mapping[str, Value]] = {
        "attention.causal": True,
        "attention.sliding_window": 0,
        "expert_count": 0,
        "expert_used_count": 0,
        **rope_scaling.HARMLESS,
        "tensor_data_layout": "Meta AI original pth",
        "use_parallel_residual": False,
    }
    layout: ClassVar[str] = "pairs"
    tables: ClassVar[tuple[str, ...]] = (rope_scaling.FACTORS,)

    def choices(self, metadata: Metadata) -> dict[str, Any]:
        d_model, n_head = metadata.integer("embedding_length"), metadata.integer("attention.head_count")
        d_head = metadata.integer("attention.key_length", max(1, d_model // n_head))
        for other in ("attention.value_length", "rope.dimension_count"):
            width = metadata.integer(other, d_head)
            require_support(width == d_head, f"{metadata.prefix}{other} = {width} is not d_head = {d_head}")
        context = metadata.integer("context_length")
        return super().choices(metadata) | {
            "n_kv_head": metadata.integer("attention.head_count_kv", n_head),
            "d_head": d_head,
            "positions": rope_scaling.read_rope(metadata, d_head, context, self.layout),
            "norm": {"kind": "rms_norm", "eps": metadata.number("attention.layer_norm_rms_epsilon")},
            "mlp": "swiglu",
        }

    def metadata(self, config: ModelConfig) -> dict[str, Value]:
        eps = config.norm.eps if isinstance(config.norm, RmsNormConfig) else 0.0
        return super().metadata(config) | {
            "attention.head_count_kv": config.n_kv_head,
            "attention.key_length": config.d_head,
            "attention.value_length": config.d_head,
            "rope.dimension_count": config.d_head,
            **rope_scaling.rope_metadata(config),
            "attention.layer_norm_rms_epsilon": eps,
        }

    def numbers(self, config: ModelConfig) -> dict[str, Array]:
        return rope_scaling.rope_factors(config) if self.tables else {}
