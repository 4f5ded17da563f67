"""BLOOM: ALiBi, a norm after the embedding, biases everywhere; the rows of q, k, v are stored head by head.

Le Scao et al. 2022, arXiv:2211.05100. Nothing in the arithmetic ends at some position, so `transformers` has
no key for the context: it is `seq_length` where a file has it, and else 2048, as in the paper.
"""

import re
from typing import Any

from pellucid.config import ModelConfig
from pellucid.formats.huggingface.families import Family
from pellucid.formats.huggingface.keys import Keys


class BloomFamily(Family):
    architectures = ("BloomForCausalLM", "BloomModel")
    defaults = {  # noqa: RUF012
        "vocab_size": 250880,
        "seq_length": 2048,
        "hidden_size": 64,
        "n_layer": 2,
        "n_head": 8,
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
    }
    sizes = {  # noqa: RUF012
        "vocab_size": "vocab_size",
        "seq_length": "context_length",
        "hidden_size": "d_model",
        "n_layer": "n_layer",
        "n_head": "n_head",
    }
    spellings = {  # noqa: RUF012
        "n_embed": "hidden_size",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    }
    usual = {  # noqa: RUF012
        "apply_residual_connection_post_layernorm": (False,),
        "n_inner": (None,),
        "slow_but_exact": (False,),  # adds up in slices, and leaves out two biases on the way
    }
    harmless = frozenset(
        {
            "attention_dropout",
            "attention_softmax_in_fp32",
            "bias_dropout_fusion",
            "hidden_dropout",
            "masked_softmax_fusion",
            "offset_alibi",
            "pretraining_tp",
            "skip_bias_add",
            "skip_bias_add_qkv",
        }
    )
    prefix = "transformer."
    tensors = (
        ("transformer.word_embeddings", "embed"),
        ("transformer.word_embeddings_layernorm", "embed_norm"),
        ("transformer.h.{}.input_layernorm", "blocks.{}.attn_norm"),
        (
            "transformer.h.{}.self_attention.query_key_value",
            "blocks.{}.attn.q_proj",
            "blocks.{}.attn.k_proj",
            "blocks.{}.attn.v_proj",
        ),
        ("transformer.h.{}.self_attention.dense", "blocks.{}.attn.o_proj"),
        ("transformer.h.{}.post_attention_layernorm", "blocks.{}.mlp_norm"),
        ("transformer.h.{}.mlp.dense_h_to_4h", "blocks.{}.mlp.up_proj"),
        ("transformer.h.{}.mlp.dense_4h_to_h", "blocks.{}.mlp.down_proj"),
        ("transformer.ln_f", "final_norm"),
        ("lm_head", "unembed"),
    )
    by_head = (".query_key_value.weight", ".query_key_value.bias")
    buffers = re.compile(r"(?!)")  # none

    def config(self, keys: Keys) -> ModelConfig:
        norm = {"kind": "layer_norm", "eps": keys.number("layer_norm_epsilon")}
        return ModelConfig.from_dict(
            self.read_sizes(keys)
            | {
                "d_ff": 4 * keys.size("hidden_size"),
                "positions": "alibi",
                "norm": norm,
                "embed_norm": norm,
                "mlp": "gelu_tanh",
                "biases": ["qkv", "output", "mlp", "norm"],
            }
        )

    def keys(self, config: ModelConfig) -> dict[str, Any]:
        return self.write_sizes(config) | {
            "layer_norm_epsilon": getattr(config.norm, "eps", 1e-5),
            "tie_word_embeddings": config.unembedding.kind == "tied",
        }
