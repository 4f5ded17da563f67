"""Llama: RoPE in halves, RMSNorm, a gated feed-forward, key heads that query heads may share.

Touvron et al. 2023, arXiv:2302.13971 and arXiv:2307.09288.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from pellucid.config import ModelConfig
from pellucid.formats.huggingface.families import Family, activation_name, find_mlp
from pellucid.formats.huggingface.keys import Keys, read_rope, write_rope

DEFAULTS: dict[str, Any] = {
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "head_dim": None,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": None,
    "rope_scaling": None,
    "rope_parameters": None,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}
"""Those keys that the families made after Llama have as well."""


class LlamaFamily(Family):
    architectures = ("LlamaForCausalLM", "LlamaModel")
    defaults = {**DEFAULTS, "attention_bias": False, "mlp_bias": False}  # noqa: RUF012
    sizes: ClassVar[Mapping[str, str]] = {
        "vocab_size": "vocab_size",
        "max_position_embeddings": "context_length",
        "hidden_size": "d_model",
        "intermediate_size": "d_ff",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
    }
    bias_keys: ClassVar[Mapping[str, str]] = {
        "qkv": "attention_bias",
        "output": "attention_bias",
        "mlp": "mlp_bias",
    }
    """Where a bias can be, and the key that asks for it."""
    always_biased: ClassVar[tuple[str, ...]] = ()
    usual = {  # noqa: RUF012
        "pretraining_tp": (1, None),
        "rope_interleaved": (False,),
        "partial_rotary_factor": (1, 1.0, None),
    }
    harmless = frozenset({"attention_dropout", "is_llama_config", "max_sequence_length"})
    prefix = "model."
    tensors: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("model.embed_tokens", "embed"),
        ("model.layers.{}.input_layernorm", "blocks.{}.attn_norm"),
        ("model.layers.{}.self_attn.q_proj", "blocks.{}.attn.q_proj"),
        ("model.layers.{}.self_attn.k_proj", "blocks.{}.attn.k_proj"),
        ("model.layers.{}.self_attn.v_proj", "blocks.{}.attn.v_proj"),
        ("model.layers.{}.self_attn.o_proj", "blocks.{}.attn.o_proj"),
        ("model.layers.{}.post_attention_layernorm", "blocks.{}.mlp_norm"),
        ("model.layers.{}.mlp.gate_proj", "blocks.{}.mlp.gate_proj"),
        ("model.layers.{}.mlp.up_proj", "blocks.{}.mlp.up_proj"),
        ("model.layers.{}.mlp.down_proj", "blocks.{}.mlp.down_proj"),
        ("model.norm", "final_norm"),
        ("lm_head", "unembed"),
    )
    buffers = re.compile(r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")  # RoPE's table

    def config(self, keys: Keys) -> ModelConfig:
        return ModelConfig.from_dict(self.choices(keys))

    def choices(self, keys: Keys) -> dict[str, Any]:
        """Our config as plain data; a family made after Llama puts its own choices over these."""
        width, heads = keys.size("hidden_size"), keys.size("num_attention_heads")
        return self.read_sizes(keys) | {
            "n_kv_head": keys.size_or("num_key_value_heads", heads),
            "d_head": keys.size_or("head_dim", width // heads),
            "positions": read_rope(keys),
            "norm": {"kind": "rms_norm", "eps": keys.number("rms_norm_eps")},
            "mlp": find_mlp("gated", keys.text("hidden_act")),
            "biases": [*self.always_biased, *(p for p, key in self.bias_keys.items() if keys.flag(key))],
        }

    def keys(self, config: ModelConfig) -> dict[str, Any]:
        return self.write_sizes(config) | {
            "num_key_value_heads": config.n_kv_head,
            "head_dim": config.d_head,
            "hidden_act": activation_name(config),
            "rms_norm_eps": getattr(config.norm, "eps", 1e-6),
            "rope_parameters": write_rope(config.positions),
            **dict.fromkeys(self.bias_keys.values(), False),
            **{key: True for place, key in self.bias_keys.items() if place in config.biases},
            "tie_word_embeddings": config.unembedding.kind == "tied",
        }

    def limits(self, config: ModelConfig) -> list[str]:
        if config.d_model % config.n_head == 0:
            return []
        return [f"d_model={config.d_model} must be a multiple of n_head={config.n_head}, whatever d_head is"]
