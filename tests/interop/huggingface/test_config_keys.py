"""`config.json` by allow-list: old and new spellings, the defaults of `transformers`, refusals by name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.config import ModelConfig, preset
from pellucid.errors import ConfigError, FileError
from pellucid.interop.huggingface import families, read
from pellucid.interop.huggingface.writing import expressing
from pellucid.parts.mlps.gelu import Gelu
from pellucid.parts.norms.layer_norm import LayerNorm
from pellucid.parts.positions.learned import Learned
from pellucid.parts.positions.rope import Rope
from pellucid.parts.positions.sinusoidal import Sinusoidal
from pellucid.parts.unembeddings.linear import LinearUnembedding

SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 576,
    "initializer_range": 0.041666666666666664,
    "intermediate_size": 1536,
    "is_llama_config": True,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pad_token_id": 2,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_interleaved": False,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
    "transformers_version": "4.42.3",
    "use_cache": True,
    "vocab_size": 49152,
}
"""The keys of a folder in the old spelling, as they are published."""


GPT2 = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 1024,
    "n_head": 16,
    "n_layer": 24,
    "n_positions": 1024,
    "n_special": 0,
    "predict_special_tokens": True,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}


def config_of(model_type: str, /, **given: Any) -> ModelConfig:
    family = families.find(model_type)
    return family.config(family.understood(given))


def test_absent_keys_have_the_defaults_of_transformers() -> None:
    from transformers import GPT2Config, LlamaConfig

    for model_type, theirs in (("gpt2", GPT2Config()), ("llama", LlamaConfig())):
        family = families.find(model_type)
        silent, said = family.understood({}), family.understood(theirs.to_dict() | {"architectures": None})
        assert family.config(silent) == family.config(said)
        assert family.token_ids(silent) == family.token_ids(said)
        for key, value in family.defaults.items():
            if value is not None:
                assert getattr(theirs, key) == value, key


def test_gpt2_without_a_word_is_the_preset() -> None:
    assert config_of("gpt2") == preset("gpt2")


def test_a_published_config_in_the_old_spelling_is_understood() -> None:
    assert config_of("llama", **SMOLLM2) == preset("smollm2-135m")
    assert config_of("gpt2", **GPT2) == preset("gpt2-medium")


@pytest.mark.parametrize(
    "spelling",
    [
        {"rope_theta": 5e5},
        {"rope_theta": 500000, "rope_scaling": None},
        {"rope_theta": 5e5, "rope_scaling": {"type": "default"}},
        {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}},
        {"rope_parameters": {"rope_theta": 5e5}, "rope_theta": 5e5},
        {"rope_parameters": {"rope_theta": 5e5, "partial_rotary_factor": 1.0}},
    ],
)
def test_the_base_of_rope_is_read_in_every_spelling(spelling: dict[str, Any]) -> None:
    assert config_of("llama", **spelling).positions == Rope(base=5e5, layout="halves")


def test_gpt2_answers_to_the_general_names_as_well() -> None:
    general = {
        "hidden_size": 12,
        "num_attention_heads": 3,
        "num_hidden_layers": 1,
        "max_position_embeddings": 5,
    }
    own = {"n_embd": 12, "n_head": 3, "n_layer": 1, "n_positions": 5}
    assert config_of("gpt2", **general) == config_of("gpt2", **own) == config_of("gpt2", **own, **general)
    with pytest.raises(ConfigError, match="two spellings"):
        config_of("gpt2", n_embd=12, hidden_size=16)


REFUSED: list[tuple[str, str, Any, str]] = [
    ("llama", "rope_scaling", {"type": "linear", "factor": 2.0}, "rope_scaling has the type 'linear'"),
    ("llama", "rope_scaling", {"rope_type": "llama3"}, "'llama3', a scaling that is not read yet"),
    ("llama", "rope_parameters", {"rope_type": "yarn"}, "'yarn'"),
    ("llama", "rope_parameters", {"rope_type": "default", "factor": 2}, "'factor'"),
    ("llama", "rope_parameters", {"partial_rotary_factor": 0.5}, "'partial_rotary_factor'"),
    ("llama", "rope_parameters", [1], "must be a table"),
    ("llama", "rope_theta", -1, "rope_theta must be a finite number"),
    ("llama", "rope_theta", float("nan"), "rope_theta must be a finite number"),
    ("llama", "rope_theta", 10**400, "rope_theta must be a finite number"),
    ("llama", "rope_interleaved", True, "'rope_interleaved' is True"),
    ("llama", "pretraining_tp", 2, "'pretraining_tp' is 2"),
    ("llama", "partial_rotary_factor", 0.5, "'partial_rotary_factor' is 0.5"),
    ("llama", "hidden_act", "mish", "the activation 'mish'"),
    ("llama", "hidden_act", 3, "hidden_act must be text"),
    ("llama", "attention_bias", 1, "attention_bias must be true or false"),
    ("llama", "mlp_bias", None, "mlp_bias must be true or false"),
    ("llama", "num_key_value_heads", 0, "num_key_value_heads must be a whole number"),
    ("llama", "num_key_value_heads", 5, "cannot share"),
    ("llama", "head_dim", 3, "d_head=3 is odd"),
    ("llama", "num_hidden_layers", 10**9, "beyond any model"),
    ("llama", "vocab_size", True, "vocab_size must be a whole number"),
    ("llama", "hidden_size", "64", "hidden_size must be a whole number"),
    ("llama", "sliding_window", 4096, "'sliding_window' is 4096"),
    ("llama", "quantization_config", {"bits": 4}, "quantised"),
    ("llama", "auto_map", {"AutoModel": "x.py"}, "code of its own"),
    ("llama", "architectures", ["LlamaForSequenceClassification"], "LlamaForSequenceClassification"),
    ("llama", "architectures", "LlamaForCausalLM", "architectures is"),
    ("llama", "_attn_implementation_internal", "evil/kernel", "'_attn_implementation_internal'"),
    ("llama", "attn_implementation", "evil/kernel", "'evil/kernel'"),
    ("llama", "embedding_multiplier", 12.0, "'embedding_multiplier' is not understood"),
    ("llama", "rms_norm_epsilon", 1e-6, "Did you mean rms_norm_eps"),
    ("llama", "is_encoder_decoder", True, "'is_encoder_decoder' is True"),
    ("gpt2", "activation_function", "gelu_fast", "'gelu_fast'"),
    ("gpt2", "activation_function", "tanh", "'tanh'"),
    ("gpt2", "scale_attn_weights", False, "'scale_attn_weights' is False"),
    ("gpt2", "scale_attn_by_inverse_layer_idx", True, "'scale_attn_by_inverse_layer_idx' is True"),
    ("gpt2", "reorder_and_upcast_attn", True, "'reorder_and_upcast_attn' is True"),
    ("gpt2", "add_cross_attention", True, "'add_cross_attention' is True"),
    ("gpt2", "n_inner", 0, "n_inner must be a whole number"),
    ("gpt2", "n_head", 7, "does not split"),
    ("gpt2", "layer_norm_epsilon", "small", "layer_norm_epsilon must be a finite number"),
    ("gpt2", "layer_norm_epsilon", float("inf"), "layer_norm_epsilon must be a finite number"),
    ("gpt2", "pruned_heads", {"0": [1]}, "'pruned_heads'"),
    ("gpt2", "rope_theta", 1e4, "'rope_theta' is not understood"),
]


@pytest.mark.parametrize(("model_type", "key", "value", "complaint"), REFUSED)
def test_a_key_that_changes_the_arithmetic_is_refused_by_its_name(
    model_type: str, key: str, value: Any, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        config_of(model_type, **{key: value})


def test_contradictory_bases_are_refused() -> None:
    with pytest.raises(ConfigError, match="given twice"):
        config_of("llama", rope_theta=1e4, rope_parameters={"rope_theta": 5e5})


@pytest.mark.parametrize("named", ["mamba", "qwen2", None, 7, ["llama"], "x" * 1000])
def test_an_architecture_that_is_not_read_is_named(tmp_path: Path, named: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": named}))
    with pytest.raises(FileError, match=r"the architecture .* is not read; have gpt2, llama"):
        read(tmp_path)


SMALL = {"vocab_size": 5, "context_length": 4, "n_layer": 1, "n_head": 2, "d_model": 8}
LLAMA = ModelConfig(**SMALL)  # type: ignore[arg-type]
UNSAID = {
    "positions is sinusoidal": {"positions": Sinusoidal()},
    "positions is learned": {"positions": Learned()},
    "norm is layer_norm": {"norm": LayerNorm()},
    "biases is qkv and would be output, qkv": {"biases": ("qkv",)},
    "biases is unembed": {"biases": ("unembed",)},
    "'gelu_new', 'gelu', .*|activation 'gelu'": {"mlp": Gelu()},
    "must be a multiple of n_head=3": {"n_head": 3, "n_kv_head": 3, "d_head": 2},
}


@pytest.mark.parametrize("complaint", UNSAID)
def test_a_choice_that_no_family_has_is_named(complaint: str) -> None:
    import dataclasses

    config = dataclasses.replace(LLAMA, **UNSAID[complaint])
    with pytest.raises(ConfigError, match="no Hugging Face family expresses this config: ") as caught:
        expressing(config)
    assert any(part in str(caught.value) for part in complaint.split("|")), caught.value


def test_every_choice_that_a_family_has_comes_back() -> None:
    import dataclasses

    assert expressing(LLAMA) == "llama"
    assert expressing(preset("gpt2")) == "gpt2"
    gpt2 = dataclasses.replace(preset("gpt2"), mlp=Gelu(), norm=LayerNorm(eps=0.5), d_ff=7)
    assert expressing(dataclasses.replace(gpt2, unembedding=LinearUnembedding())) == "gpt2"
    assert expressing(dataclasses.replace(LLAMA, biases=("mlp", "output", "qkv"))) == "llama"


def test_the_defaults_cover_every_key_that_is_written() -> None:
    for name in families.known():
        family = families.find(name)
        assert set(family.keys(LLAMA)) <= set(family.defaults)
        assert not set(family.defaults) & set(family.usual)


def test_numbers_are_kept_to_the_last_bit() -> None:
    eps = float(np.nextafter(1e-6, 1))
    assert config_of("llama", rms_norm_eps=eps).norm.to_dict()["eps"] == eps
