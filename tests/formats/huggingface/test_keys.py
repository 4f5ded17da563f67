"""`config.json` by allow-list: old and new spellings, the defaults of `transformers`, refusals by name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import ConfigError, FileError
from pellucid.config import ModelConfig, preset
from pellucid.formats.huggingface import families, read
from pellucid.formats.huggingface.writing import find_family
from pellucid.parts.caps import TanhCap
from pellucid.parts.dropouts import Bernoulli
from pellucid.parts.masks import MaskConfig
from pellucid.parts.masks.causal import Causal
from pellucid.parts.masks.sinks import Sinks
from pellucid.parts.masks.window import Window
from pellucid.parts.mlps import Geglu, Gelu
from pellucid.parts.norms import LayerNormConfig, RmsNormConfig
from pellucid.parts.placements import Post
from pellucid.parts.positions.alibi import Alibi
from pellucid.parts.positions.learned import Learned
from pellucid.parts.positions.rope import Rope
from pellucid.parts.positions.rope_linear import RopeLinear
from pellucid.parts.positions.rope_llama3 import RopeLlama3
from pellucid.parts.positions.rope_ntk import RopeNtk
from pellucid.parts.positions.rope_yarn import RopeYarn
from pellucid.parts.positions.sinusoidal import Sinusoidal
from pellucid.parts.unembeddings import LinearUnembedding
from tests.formats.huggingface.models import FAMILIES

SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576,
    "initializer_range": 0.041666666666666664, "intermediate_size": 1536, "is_llama_config": True,
    "max_position_embeddings": 8192, "mlp_bias": False, "model_type": "llama", "num_attention_heads": 9,
    "num_hidden_layers": 30, "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1,
    "rms_norm_eps": 1e-05, "rope_interleaved": False, "rope_scaling": None, "rope_theta": 100000,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}, "transformers_version": "4.42.3",
    "use_cache": True, "vocab_size": 49152,
}  # fmt: skip
"""The keys of a folder in the old spelling, as they are published."""


GPT2 = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 1024, "n_head": 16,
    "n_layer": 24, "n_positions": 1024, "n_special": 0, "predict_special_tokens": True, "resid_pdrop": 0.1,
    "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
    "summary_type": "cls_index", "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}, "vocab_size": 50257,
}  # fmt: skip


BLOOM = {
    "apply_residual_connection_post_layernorm": False, "architectures": ["BloomModel"],
    "attention_dropout": 0.0, "attention_softmax_in_fp32": True, "bias_dropout_fusion": True,
    "bos_token_id": 1, "eos_token_id": 2, "hidden_dropout": 0.0, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "masked_softmax_fusion": True, "model_type": "bloom", "n_embed": 1024,
    "n_inner": None, "n_layer": 24, "num_attention_heads": 16, "offset_alibi": 100, "pad_token_id": 3,
    "pretraining_tp": 1, "seq_length": 2048, "skip_bias_add": True, "skip_bias_add_qkv": False,
    "transformers_version": "4.20.0", "unk_token_id": 0, "use_cache": True, "vocab_size": 250880,
}  # fmt: skip
QWEN2 = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
    "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
    "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": True, "use_mrope": False,
    "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
"""And the keys that old folders of these families have."""


def config_of(model_type: str, /, **given: Any) -> ModelConfig:
    family = families.find(model_type)
    return family.config(family.select_keys(given))


SET_LATER = {"sliding_window", "seq_length"}
"""Keys that `transformers` sets to null where another says that they are not used, or does not have."""


@pytest.mark.parametrize("model_type", FAMILIES)
def test_absent_keys_have_the_defaults_of_transformers(model_type: str) -> None:
    from transformers import AutoConfig

    theirs = AutoConfig.for_model(model_type)
    family = families.find(model_type)
    silent, said = family.select_keys({}), family.select_keys(theirs.to_dict() | {"architectures": None})
    assert family.config(silent) == family.config(said)
    assert family.token_ids(silent) == family.token_ids(said)
    for key, value in family.defaults.items():
        if value is not None and key not in SET_LATER:
            assert getattr(theirs, key) == value, key


def test_the_tests_know_every_family() -> None:
    assert sorted(FAMILIES) == families.family_names()


def test_gpt2_without_a_word_is_the_preset() -> None:
    assert config_of("gpt2") == preset("gpt2")


def test_a_published_config_in_the_old_spelling_is_understood() -> None:
    assert config_of("llama", **SMOLLM2) == preset("smollm2-135m")
    assert config_of("gpt2", **GPT2) == preset("gpt2-medium")
    bloom = config_of("bloom", **BLOOM)
    assert (bloom.d_model, bloom.n_head, bloom.d_ff, bloom.context_length) == (1024, 16, 4096, 2048)
    qwen2 = config_of("qwen2", **QWEN2)
    assert (qwen2.d_head, qwen2.mask, qwen2.biases) == (64, Causal(), ("qkv",))
    assert qwen2.positions == Rope(base=1e6)


LLAMA3 = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALED: list[tuple[dict[str, Any], Rope]] = [
    ({"rope_scaling": {"type": "linear", "factor": 2}}, RopeLinear(factor=2.0)),
    ({"rope_scaling": {"rope_type": "linear", "type": "linear", "factor": 2.5}}, RopeLinear(factor=2.5)),
    ({"rope_scaling": {}, "rope_theta": 7.0}, Rope(base=7.0)),
    (
        {"rope_scaling": LLAMA3 | {"rope_type": "llama3", "original_max_position_embeddings": 8192}},
        RopeLlama3(factor=32.0),
    ),
    (
        {"rope_theta": 5e5, "rope_parameters": LLAMA3 | {"rope_type": "llama3"}},
        RopeLlama3(base=5e5, factor=32.0, original_context=77),
    ),
    ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, RopeYarn(factor=4.0, original_context=77)),
    (
        {"rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": None, "beta_slow": 0, "truncate": True}},
        RopeYarn(factor=4.0, original_context=77),
    ),
    (
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e6,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "attention_factor": 1.5,
                "beta_fast": 16,
                "beta_slow": 2,
                "mscale": None,
            }
        },
        RopeYarn(1e6, "halves", 4.0, 64, 16.0, 2.0, 1.5),
    ),
]


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize(("spelling", "wanted"), SCALED)
def test_scaled_rope_is_read_in_every_spelling_as_transformers_reads_it(
    family: str, spelling: dict[str, Any], wanted: Rope
) -> None:
    from transformers import AutoConfig

    given = {"max_position_embeddings": 77, **spelling}
    assert config_of(family, **given).positions == wanted
    theirs = AutoConfig.for_model(family, **json.loads(json.dumps(given))).to_dict()
    assert config_of(family, **(theirs | {"architectures": None})).positions == wanted


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
    (
        "llama",
        "rope_scaling",
        {"type": "linear"},
        "rope_linear needs factor",
    ),
    ("llama", "rope_scaling", {"rope_type": "llama3", "factor": 8}, "needs low_freq_factor"),
    (
        "llama",
        "rope_scaling",
        {"type": "dynamic", "factor": 2.0},
        "'dynamic': its angles depend on the length",
    ),
    ("mistral", "rope_parameters", {"rope_type": "longrope"}, "'longrope': its angles depend on the length"),
    ("qwen2", "rope_scaling", {"type": "mrope"}, "'mrope': .*default, linear"),
    ("qwen3", "rope_scaling", {"type": ["yarn"]}, "the type .'yarn'."),
    ("llama", "rope_scaling", {"type": "linear", "rope_type": "yarn"}, "the rope_type and the type yarn and"),
    ("llama", "rope_scaling", {"type": "linear", "factor": "2"}, "factor of rope_scaling must be a finite"),
    ("llama", "rope_scaling", {"type": "linear", "factor": 0.5}, "factor=0.5 would shrink"),
    (
        "llama",
        "rope_scaling",
        {"type": "linear", "factor": 2, "beta_fast": 3},
        "has 'beta_fast': 3, which is",
    ),
    (
        "llama",
        "rope_scaling",
        {"type": "yarn", "factor": 2, "mscale": 0.7},
        "has 'mscale': 0.7, which is not",
    ),
    ("llama", "rope_scaling", {"type": "yarn", "factor": 2, "truncate": False}, "has 'truncate': False"),
    ("llama", "rope_scaling", {"type": "yarn", "factor": None}, "factor of rope_scaling must be a finite"),
    (
        "llama",
        "rope_scaling",
        {"type": "yarn", "factor": 2, "attention_factor": 0},
        "attention_factor of rope_scaling is 0",
    ),
    (
        "llama",
        "rope_scaling",
        {"type": "yarn", "factor": 2, "original_max_position_embeddings": 2.5},
        "original_max_position_embeddings must be an integer",
    ),
    (
        "llama",
        "original_max_position_embeddings",
        4096,
        "'original_max_position_embeddings' is not supported",
    ),
    ("llama", "rope_parameters", {"rope_type": "default", "factor": 2}, "'factor'"),
    ("llama", "rope_parameters", {"partial_rotary_factor": 0.5}, "'partial_rotary_factor'"),
    ("llama", "rope_parameters", [1], "must be a table"),
    ("llama", "rope_theta", -1, "rope_theta must be a finite number"),
    ("llama", "rope_theta", float("nan"), "rope_theta must be a finite number"),
    ("llama", "rope_theta", 10**400, "rope_theta must be a finite number"),
    ("llama", "rope_interleaved", True, "'rope_interleaved' is True"),
    ("llama", "pretraining_tp", 2, "'pretraining_tp' is 2"),
    ("llama", "partial_rotary_factor", 0.5, "'partial_rotary_factor' is 0.5"),
    ("llama", "hidden_act", "mish", "'mish'"),
    ("llama", "hidden_act", 3, "hidden_act must be a string"),
    ("llama", "attention_bias", 1, "attention_bias must be true or false"),
    ("llama", "mlp_bias", None, "mlp_bias must be true or false"),
    ("llama", "num_key_value_heads", 0, "num_key_value_heads must be an integer"),
    ("llama", "num_key_value_heads", 5, "cannot share"),
    ("llama", "head_dim", 3, "d_head=3 is odd"),
    ("llama", "num_hidden_layers", 10**9, "n_layer .*1000000000"),
    ("llama", "vocab_size", True, "vocab_size must be an integer"),
    ("llama", "hidden_size", "64", "hidden_size must be an integer"),
    ("llama", "sliding_window", 4096, "'sliding_window' is 4096"),
    ("llama", "quantization_config", {"bits": 4}, "quantization"),
    ("llama", "auto_map", {"AutoModel": "x.py"}, "runs code"),
    ("llama", "architectures", ["LlamaForSequenceClassification"], "LlamaForSequenceClassification"),
    ("llama", "architectures", "LlamaForCausalLM", "architectures must be"),
    ("llama", "_attn_implementation_internal", "evil/kernel", "'_attn_implementation_internal'"),
    ("llama", "attn_implementation", "evil/kernel", "'evil/kernel'"),
    ("llama", "embedding_multiplier", 12.0, "'embedding_multiplier' is not supported"),
    ("llama", "rms_norm_epsilon", 1e-6, "'rms_norm_eps"),
    ("llama", "is_encoder_decoder", True, "'is_encoder_decoder' is True"),
    ("gpt2", "activation_function", "gelu_fast", "'gelu_fast'"),
    ("gpt2", "activation_function", "tanh", "'tanh'"),
    ("gpt2", "scale_attn_weights", False, "'scale_attn_weights' is False"),
    ("gpt2", "scale_attn_by_inverse_layer_idx", True, "'scale_attn_by_inverse_layer_idx' is True"),
    ("gpt2", "reorder_and_upcast_attn", True, "'reorder_and_upcast_attn' is True"),
    ("gpt2", "add_cross_attention", True, "'add_cross_attention' is True"),
    ("gpt2", "n_inner", 0, "n_inner must be an integer"),
    ("gpt2", "n_head", 7, "does not split"),
    ("gpt2", "layer_norm_epsilon", "small", "layer_norm_epsilon must be a finite number"),
    ("gpt2", "layer_norm_epsilon", float("inf"), "layer_norm_epsilon must be a finite number"),
    ("gpt2", "pruned_heads", {"0": [1]}, "'pruned_heads'"),
    ("gpt2", "rope_theta", 1e4, "'rope_theta' is not supported"),
    ("gpt2", "sliding_window", 4, "'sliding_window' is 4"),
    ("mistral", "sliding_window", 0, "sliding_window must be an integer ≥ 1, not 0"),
    ("mistral", "sliding_window", "4096", "sliding_window must be an integer"),
    ("mistral", "layer_types", ["full_attention"] * 32, "'layer_types' is"),
    ("mistral", "attention_bias", False, "'attention_bias' is not supported"),
    ("qwen2", "use_sliding_window", 1, "use_sliding_window must be true or false"),
    ("qwen2", "attention_bias", True, "'attention_bias' is not supported"),
    ("qwen2", "layer_types", "full_attention", "layer_types must be a list"),
    ("qwen2", "layer_types", ["full_attention"], "for each of the 32 layers"),
    ("qwen2", "layer_types", ["chunked_attention"] * 32, "layer_types must be a list"),
    ("qwen2", "layer_types", ["sliding_attention"] * 32, "use_sliding_window or sliding_window says no"),
    ("qwen2", "use_mrope", True, "'use_mrope' is True"),
    ("qwen3", "head_dim", 7, "d_head=7 is odd"),
    ("qwen3", "mlp_bias", True, "'mlp_bias' is not supported"),
    (
        "qwen3",
        "use_sliding_window",
        True,
        "some layers look through the sliding_window and some at everything",
    ),
    ("bloom", "apply_residual_connection_post_layernorm", True, "post_layernorm' is True"),
    ("bloom", "slow_but_exact", True, "'slow_but_exact' is True"),
    ("bloom", "n_inner", 100, "'n_inner' is 100"),
    ("bloom", "n_head", 5, "does not split"),
    ("bloom", "seq_length", None, "seq_length must be an integer"),
    ("bloom", "max_position_embeddings", 8, "'max_position_embeddings' is not supported"),
    ("bloom", "activation_function", "relu", "'activation_function' is not supported"),
]


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
@pytest.mark.parametrize(
    ("given", "mask"),
    [
        ({}, Causal()),
        ({"sliding_window": 5}, Causal()),
        ({"use_sliding_window": True, "sliding_window": None, "max_window_layers": 0}, Causal()),
        ({"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 4}, Causal()),
        ({"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 9}, Causal()),
        ({"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0}, Window(5)),
        ({"use_sliding_window": True, "sliding_window": 5, "layer_types": ["full_attention"] * 4}, Causal()),
        (
            {"use_sliding_window": True, "sliding_window": 5, "layer_types": ["sliding_attention"] * 4},
            Window(5),
        ),
        ({"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 3}, None),
        (
            {
                "use_sliding_window": True,
                "sliding_window": 5,
                "layer_types": ["full_attention"] * 3 + ["sliding_attention"],
            },
            None,
        ),
    ],
)
def test_a_window_in_all_layers_or_in_none_is_read_and_one_in_some_is_refused(
    family: str, given: dict[str, Any], mask: MaskConfig | None
) -> None:
    """And so are the same keys as `transformers` completes them."""
    from transformers import AutoConfig

    given = {"num_hidden_layers": 4, **given}
    theirs = AutoConfig.for_model(family, **given).to_dict() | {"architectures": None}
    for keys in (given, theirs):
        if mask:
            assert config_of(family, **keys).mask == mask
        else:
            with pytest.raises(ConfigError, match="all layers have one mask"):
                config_of(family, **keys)


@pytest.mark.parametrize(("model_type", "key", "value", "complaint"), REFUSED)
def test_a_key_that_changes_the_arithmetic_is_refused_by_its_name(
    model_type: str, key: str, value: Any, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        config_of(model_type, **{key: value})


def test_contradictory_bases_are_refused() -> None:
    with pytest.raises(ConfigError, match="given twice"):
        config_of("llama", rope_theta=1e4, rope_parameters={"rope_theta": 5e5})
    linear, other = ({"rope_type": "linear", "factor": factor} for factor in (2.0, 3.0))
    assert config_of("llama", rope_scaling=linear, rope_parameters=linear).positions == RopeLinear(factor=2.0)
    with pytest.raises(ConfigError, match=r"rope_parameters.*rope_scaling"):
        config_of("llama", rope_scaling=linear, rope_parameters=other)


@pytest.mark.parametrize("named", ["mamba", "gpt_neox", "phi", None, 7, ["llama"], "x" * 1000])
def test_an_architecture_that_is_not_read_is_named(tmp_path: Path, named: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": named}))
    with pytest.raises(FileError, match="bloom, gpt2, llama, mistral"):
        read(tmp_path)


SMALL = {"vocab_size": 5, "context_length": 4, "n_layer": 1, "n_head": 2, "d_model": 8}
LLAMA = ModelConfig(**SMALL)  # type: ignore[arg-type]
UNSAID: dict[str, dict[str, Any]] = {
    "positions is sinusoidal": {"positions": Sinusoidal()},
    "positions is learned": {"positions": Learned()},
    "positions is rope_ntk": {"positions": RopeNtk()},
    "positions is alibi": {"positions": Alibi()},
    "norm is layer_norm": {"norm": LayerNormConfig()},
    "placement is post": {"placement": Post()},
    "embed_norm is rms_norm": {"embed_norm": RmsNormConfig()},
    "qk_norm is rms_norm (eps=0.5) and would be rms_norm (eps=1e-05)": {"qk_norm": RmsNormConfig(eps=0.5)},
    "score_cap is tanh": {"score_cap": TanhCap()},
    "mask is sinks": {"mask": Sinks(tokens=1, size=2)},
    "biases is output and would be output, qkv": {"biases": ("output",)},
    "biases is unembed": {"biases": ("unembed",)},
    "mlp is gelu and would be geglu": {"mlp": Gelu()},
    "must be a multiple of n_head=3": {"n_head": 3, "n_kv_head": 3, "d_head": 2, "biases": ("mlp",)},
}


@pytest.mark.parametrize("complaint", UNSAID)
def test_a_choice_that_no_family_has_is_named(complaint: str) -> None:
    import dataclasses

    config = dataclasses.replace(LLAMA, **UNSAID[complaint])
    with pytest.raises(ConfigError, match="no Hugging Face family") as caught:
        find_family(config)
    assert complaint in str(caught.value)


def test_every_choice_that_a_family_has_comes_back() -> None:
    import dataclasses

    assert find_family(LLAMA) == "llama"
    assert find_family(preset("gpt2")) == "gpt2"
    gpt2 = dataclasses.replace(preset("gpt2"), mlp=Gelu(), norm=LayerNormConfig(eps=0.5), d_ff=7)
    assert find_family(dataclasses.replace(gpt2, unembedding=LinearUnembedding())) == "gpt2"
    assert find_family(dataclasses.replace(LLAMA, biases=("mlp", "output", "qkv"))) == "llama"
    assert find_family(dataclasses.replace(LLAMA, mlp=Geglu(), positions=RopeYarn(factor=2.0))) == "llama"
    assert find_family(dataclasses.replace(LLAMA, mask=Window(2))) == "mistral"
    assert find_family(dataclasses.replace(LLAMA, biases=("qkv",))) == "qwen2"
    assert find_family(dataclasses.replace(LLAMA, mask=Window(2), biases=("qkv",))) == "qwen2"
    assert find_family(dataclasses.replace(LLAMA, qk_norm=RmsNormConfig())) == "qwen3"
    bloom = dataclasses.replace(preset("gpt2"), positions=Alibi(), embed_norm=LayerNormConfig())
    assert find_family(bloom) == "bloom"


def test_of_several_families_that_express_a_config_it_stays_what_it_was() -> None:
    assert find_family(LLAMA, "mistral") == "mistral"
    assert find_family(LLAMA, "qwen3") == "llama"


def test_dropout_is_for_training_and_keeps_no_model_from_being_written() -> None:
    import dataclasses

    assert find_family(dataclasses.replace(preset("gpt2"), dropout=Bernoulli())) == "gpt2"


def test_the_defaults_cover_every_key_that_is_written() -> None:
    for name in families.family_names():
        family = families.find(name)
        assert set(family.keys(LLAMA)) <= set(family.defaults)
        assert not set(family.defaults) & set(family.usual)


def test_numbers_are_kept_to_the_last_bit() -> None:
    eps = float(np.nextafter(1e-6, 1))
    assert config_of("llama", rms_norm_eps=eps).norm.to_dict()["eps"] == eps
