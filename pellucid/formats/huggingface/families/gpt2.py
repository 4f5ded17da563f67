"""GPT-2: learned positions, LayerNorm, biases everywhere; linear layers are stored (in, out), q, k, v as one.

Radford et al. 2019; `transformers` calls the transposed linear layer Conv1D.
"""

import re
from typing import Any

from pellucid.config import ModelConfig
from pellucid.formats.huggingface.families import Family, activation_name, find_mlp
from pellucid.formats.huggingface.keys import Keys

SUMMARY = {
    f"summary_{name}" for name in ("activation", "first_dropout", "proj_to_labels", "type", "use_proj")
}
"""Settings of a head that is not the language model's."""


class Gpt2Family(Family):
    architectures = ("GPT2LMHeadModel", "GPT2Model")
    defaults = {  # noqa: RUF012
        "vocab_size": 50257,
        "n_positions": 1024,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "bos_token_id": 50256,
        "eos_token_id": 50256,
        "pad_token_id": None,
    }
    sizes = {  # noqa: RUF012
        "vocab_size": "vocab_size",
        "n_positions": "context_length",
        "n_embd": "d_model",
        "n_layer": "n_layer",
        "n_head": "n_head",
    }
    spellings = {  # noqa: RUF012
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }
    usual = {  # noqa: RUF012
        "n_special": (0,),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "reorder_and_upcast_attn": (False,),
    }
    harmless = (
        frozenset({"attn_pdrop", "embd_pdrop", "resid_pdrop", "n_ctx", "predict_special_tokens"}) | SUMMARY
    )
    prefix = "transformer."
    tensors = (
        ("transformer.wte", "embed"),
        ("transformer.wpe", "positions"),
        ("transformer.h.{}.ln_1", "blocks.{}.attn_norm"),
        (
            "transformer.h.{}.attn.c_attn",
            "blocks.{}.attn.q_proj",
            "blocks.{}.attn.k_proj",
            "blocks.{}.attn.v_proj",
        ),
        ("transformer.h.{}.attn.c_proj", "blocks.{}.attn.o_proj"),
        ("transformer.h.{}.ln_2", "blocks.{}.mlp_norm"),
        ("transformer.h.{}.mlp.c_fc", "blocks.{}.mlp.up_proj"),
        ("transformer.h.{}.mlp.c_proj", "blocks.{}.mlp.down_proj"),
        ("transformer.ln_f", "final_norm"),
        ("lm_head", "unembed"),
    )
    transposed = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
    buffers = re.compile(r"transformer\.h\.\d+\.attn\.(masked_)?bias")  # the causal mask, not a bias

    def config(self, keys: Keys) -> ModelConfig:
        return ModelConfig.from_dict(
            self.read_sizes(keys)
            | {
                "d_ff": keys.size_or("n_inner", 4 * keys.size("n_embd")),
                "positions": "learned",
                "norm": {"kind": "layer_norm", "eps": keys.number("layer_norm_epsilon")},
                "mlp": find_mlp("plain", keys.text("activation_function")),
                "biases": ["qkv", "output", "mlp", "norm"],
            }
        )

    def keys(self, config: ModelConfig) -> dict[str, Any]:
        return self.write_sizes(config) | {
            "n_inner": config.d_ff,
            "activation_function": activation_name(config),
            "layer_norm_epsilon": getattr(config.norm, "eps", 1e-5),
            "tie_word_embeddings": config.unembedding.kind == "tied",
        }
