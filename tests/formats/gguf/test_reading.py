"""What a GGUF file says is what the model is; what is not known is refused by name, never ignored."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf as outside
import numpy as np
import pytest

from pellucid.base.errors import FileError
from pellucid.formats import gguf
from pellucid.formats.gguf import writing
from pellucid.formats.gguf.architectures.llama import LlamaArchitecture
from pellucid.formats.gguf.container import Value
from pellucid.parts.positions import PositionsConfig
from tests.formats.gguf.random_models import ARCHITECTURES, LLAMA, LLAMA3, YARN, model


def rewritten(
    path: Path,
    change: Callable[[dict[str, Any]], None],
    config: dict[str, Any] = LLAMA,
    came_from: str = "none",
) -> Path:
    """A tiny model with its metadata changed before they are written."""
    whole = writing._encode_header

    def header(metadata: dict[str, Value], tensors: list[writing.OutputTensor]) -> bytes:
        metadata = dict(metadata)
        change(metadata)
        return whole(metadata, tensors)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "_encode_header", header)
        patch.setattr(writing, "read", lambda path: None)
        gguf.write(path, model(config, came_from), "F32", force=True)
    return path


ROPES: list[dict[str, Any]] = [
    {"kind": "rope", "base": 123.0},
    {"kind": "rope_linear", "factor": 1.0},
    {"kind": "rope_linear", "factor": 7.5, "base": 1e6},
    {"kind": "rope_yarn", "factor": 1.0},
    {"kind": "rope_yarn", "factor": 7.5, "original_context": 20},
    YARN | {"attention_factor": 1.7},
    YARN | {"attention_factor": 0.123456},
]
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, config) for name, config in ARCHITECTURES.items()},
    **{
        f"{name}, {rope}": (name, ARCHITECTURES[name] | {"positions": rope})
        for name in ("llama", "qwen2", "qwen3")
        for rope in ROPES
    },
    **{f"{name}, untied": (name, ARCHITECTURES[name] | {"unembedding": "linear"}) for name in ARCHITECTURES},
    "llama, Llama 3": ("llama", LLAMA | {"positions": LLAMA3}),
    "bloom, 3 heads": ("bloom", ARCHITECTURES["bloom"] | {"n_head": 3, "d_model": 48}),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["F32", "F16"])
def test_a_written_model_is_read_back_whole(name: str, kind: str, tmp_path: Path) -> None:
    architecture, config = MODELS[name]
    if architecture == "llama":
        rope = config.get("positions", {"kind": "rope"})
        config = config | {"positions": rope | {"layout": "pairs"}}
    ours = model(config, architecture, chat_template="{{ messages }}", add_bos=True)
    gguf.write(tmp_path / "m.gguf", ours, kind)
    back = gguf.read(tmp_path / "m.gguf")
    assert back.provenance.architecture == architecture
    assert back.config == ours.config
    assert list(back.weights) == list(ours.config.parameters())
    for name, array in ours.weights.items():
        assert np.array_equal(back.weights[name], array), name
        assert back.weights[name].flags.writeable
    assert (back.name, back.chat_template, back.add_bos) == (ours.name, ours.chat_template, ours.add_bos)
    assert back.generation == ours.generation
    assert back.provenance.types["embed.weight"] == kind
    assert back.provenance.types["final_norm.weight"] == "F32"
    assert back.provenance.bytes == (tmp_path / "m.gguf").stat().st_size


def test_the_gguf_package_reads_what_we_write_and_we_what_it_writes(tmp_path: Path) -> None:
    ours = model(LLAMA | {"positions": {"kind": "rope", "layout": "pairs"}})
    gguf.write(tmp_path / "ours.gguf", ours, "F32")
    theirs = outside.GGUFReader(tmp_path / "ours.gguf")
    writer = outside.GGUFWriter(tmp_path / "theirs.gguf", "llama")
    for key in theirs.fields.values():
        if key.name.startswith("llama."):
            writer.add_key_value(key.name, key.contents(), key.types[0])
    for tensor in theirs.tensors:
        writer.add_tensor(tensor.name, np.array(tensor.data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    back = gguf.read(tmp_path / "theirs.gguf")
    assert back.config == ours.config
    assert back.tokenizer is None
    assert all(np.array_equal(back.weights[name], array) for name, array in ours.weights.items())


REFUSED: list[tuple[str, str, Any]] = [
    ("llama", "rope.scaling.type", "longrope"),
    ("llama", "rope.scaling.attn_factor", 2.0),
    ("llama", "rope.scaling.original_context_length", 2048),
    ("llama", "rope.scaling.yarn_log_multiplier", 0.1),
    ("llama", "rope.dimension_count", 8),
    ("llama", "attention.value_length", 8),
    ("llama", "attention.sliding_window", 16),
    ("llama", "attention.scale", 0.5),
    ("llama", "attention.causal", False),
    ("llama", "logit_scale", 0.25),
    ("llama", "expert_count", 8),
    ("llama", "a fact from the future", 1),
    ("llama", "attention.head_count_kv", np.array([2, 1], np.int32)),
    ("llama", "feed_forward_length", np.array([96, 64], np.int32)),
    ("qwen2", "attention.sliding_window", 16),
    ("qwen2", "rope.scaling.type", "longrope"),
    ("qwen2", "expert_count", 8),
    ("qwen3", "attention.sliding_window", 16),
    ("qwen3", "rope.dimension_count", 8),
    ("qwen3", "pooling_type", 3),
    ("bloom", "attention.max_alibi_bias", 16.0),
    ("bloom", "attention.clamp_kqv", 1.0),
    ("bloom", "rope.freq_base", 10_000.0),
    ("bloom", "attention.causal", False),
]


@pytest.mark.parametrize(
    ("architecture", "key", "value"), REFUSED, ids=[f"{a}.{key}" for a, key, _ in REFUSED]
)
def test_a_fact_that_would_change_the_arithmetic_is_refused_by_name(
    architecture: str, key: str, value: Any, tmp_path: Path
) -> None:
    change = {f"{architecture}.{key}": value}
    path = rewritten(
        tmp_path / "m.gguf",
        lambda metadata: metadata.update(change),
        ARCHITECTURES[architecture],
        architecture,
    )
    with pytest.raises(FileError, match=f"{architecture}.{key}"):
        gguf.read(path)


@pytest.mark.parametrize(
    ("metadata", "rope"),
    [
        ({"type": "linear", "factor": 4.0}, {"kind": "rope_linear", "factor": 4.0}),
        ({"factor": 4.0}, {"kind": "rope_linear", "factor": 4.0}),
        ({"../scale_linear": 4.0}, {"kind": "rope_linear", "factor": 4.0}),
        ({"type": "linear"}, {"kind": "rope"}),
        ({"type": "none", "finetuned": True}, {"kind": "rope"}),
        ({"../scale_linear": 1.0}, {"kind": "rope"}),
        ({"type": "yarn", "factor": 4.0}, {"kind": "rope_yarn", "factor": 4.0, "original_context": 64}),
        (
            {
                "type": "yarn",
                "factor": 4.0,
                "original_context_length": 32,
                "yarn_beta_fast": 32.0,
                "yarn_beta_slow": 1.0,
                "yarn_ext_factor": 1.0,
            },
            {"kind": "rope_yarn", "factor": 4.0, "original_context": 32},
        ),
    ],
    ids=str,
)
def test_stretched_positions_are_those_of_llama_cpp(
    metadata: dict[str, Any], rope: dict[str, Any], tmp_path: Path
) -> None:
    given = {f"llama.rope.scaling.{key}".replace("scaling.../", ""): value for key, value in metadata.items()}
    config = gguf.read(rewritten(tmp_path / "m.gguf", lambda metadata: metadata.update(given))).config
    assert config.positions == PositionsConfig.read(rope | {"layout": "pairs"})


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        (
            "general.architecture",
            "mamba",
            "general.architecture must be one of bloom, gpt2, llama, qwen2, qwen3; got 'mamba'",
        ),
        ("general.type", "adapter", "general.type"),
        ("split.count", 3, "one of 3 shards"),
        ("split.count", np.array([1, 1]), "shards of a model"),
        ("general.type", np.array([1, 2]), "general.type"),
        ("tokenizer.ggml.eos_token_id", np.array([1, 2]), "eos_token_id is array"),
        ("tokenizer.ggml.token_type", np.array([1, 2]), "tokenizer.ggml.token_type"),
        ("tokenizer.ggml.pre", np.array([1, 2]), "tokenizer.ggml.pre"),
        ("tokenizer.ggml.model", 7, "tokenizer.ggml.model"),
        ("tokenizer.ggml.add_bos_token", "yes", "neither true nor false"),
        ("tokenizer.ggml.pre", "gpt-5", "tokenizer.ggml.pre .*'gpt-5'"),
        ("llama.block_count", 3, "blocks.2.attn_norm.weight .* is missing"),
        ("llama.block_count", 1, "tensor 'blk.1"),
        ("llama.block_count", 2_000_000_000, "n_layer"),
        ("llama.block_count", 9999, "9,999 layers"),
        ("llama.embedding_length", 32, "has the shape"),
        ("llama.context_length", 0, "not an integer"),
        ("llama.attention.layer_norm_rms_epsilon", "small", "not a number"),
        ("llama.attention.layer_norm_rms_epsilon", float("nan"), "finite"),
        ("tokenizer.ggml.eos_token_id", 5000, "eos_token_id is 5000"),
        ("tokenizer.ggml.tokens", ["a", "a"], "two of its tokens are the same"),
        ("tokenizer.ggml.merges", ["abc"], "not two tokens"),
        ("tokenizer.chat_template", 3, "tokenizer.chat_template"),
        ("llama.rope.scaling.type", 3, "rope.scaling.type is 3"),
        ("llama.rope.scaling.finetuned", 1, "finetuned is 1, neither true nor false"),
        ("llama.rope.scaling.factor", "4", "not a number"),
        ("llama.rope.scaling.factor", 0.5, "would shrink it"),
        ("llama.rope.scaling.factor", float("nan"), "finite"),
    ],
)
def test_what_cannot_be_is_refused(key: str, value: Any, complaint: str, tmp_path: Path) -> None:
    path = rewritten(tmp_path / "m.gguf", lambda metadata: metadata.update({key: value}))
    with pytest.raises(FileError, match=complaint):
        gguf.read(path)


@pytest.mark.parametrize("multiple", [0.0, -1.0, float("nan"), float("inf")])
def test_an_attention_scale_that_is_not_finite_is_refused(multiple: float, tmp_path: Path) -> None:
    """In our config 0 would mean the paper's."""
    change = {"llama.rope.scaling.attn_factor": multiple}
    path = rewritten(
        tmp_path / "m.gguf", lambda metadata: metadata.update(change), LLAMA | {"positions": YARN}
    )
    with pytest.raises(FileError, match=r"attn_factor|attention_factor"):
        gguf.read(path)


def test_a_missing_size_is_named(tmp_path: Path) -> None:
    path = rewritten(tmp_path / "m.gguf", lambda metadata: metadata.pop("llama.block_count"))
    with pytest.raises(FileError, match=r"llama.block_count is missing"):
        gguf.read(path)


def test_sizes_that_a_file_may_leave_out_are_those_of_llama_cpp(tmp_path: Path) -> None:
    def change(metadata: dict[str, Any]) -> None:
        for key in ("vocab_size", "rope.freq_base", "rope.dimension_count", "attention.key_length"):
            del metadata[f"llama.{key}"]
        metadata["llama.expert_count"], metadata["llama.rope.scaling.type"] = 0, "none"

    config = gguf.read(rewritten(tmp_path / "m.gguf", change)).config
    assert (config.vocab_size, config.d_head, config.positions.to_dict()["base"]) == (272, 16, 10_000.0)


def test_a_model_whose_tokenizer_is_of_another_kind_takes_ids(tmp_path: Path) -> None:
    path = rewritten(tmp_path / "m.gguf", lambda metadata: metadata.update({"tokenizer.ggml.model": "llama"}))
    read = gguf.read(path)
    assert read.tokenizer is None
    assert read.generation == {"bos_token_id": 0, "eos_token_id": [1, 2]}


def with_factors(
    path: Path,
    factors: np.ndarray[Any, np.dtype[Any]],
    config: dict[str, Any] = LLAMA,
    architecture: str = "llama",
) -> Path:
    """A model whose file has this tensor of factors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "_find_refusal", lambda config, name, _: name != architecture)
        patch.setattr(LlamaArchitecture, "numbers", lambda self, config: {"rope_freqs.weight": factors})
        patch.setattr(writing, "read", lambda path: None)
        gguf.write(path, model(config), "F32")
    return path


def test_factors_that_others_computed_in_float32_are_recognised(tmp_path: Path) -> None:
    """As llama.cpp's converter does: each step rounded, a pair at a time."""
    rope = {"kind": "rope", "base": 500_000.0, "layout": "pairs"}
    angles = (1 / np.float32(500_000) ** (np.arange(32, dtype=np.float32) / np.float32(32))).tolist()
    factors = []
    for angle in angles:
        turns = 8192 * angle / (2 * np.pi)
        smooth = min(max((turns - 1) / 3, 0), 1)
        factors.append(1 / ((1 - smooth) / 8 + smooth))
    wide = LLAMA | {"d_head": 64, "positions": rope}
    config = gguf.read(with_factors(tmp_path / "m.gguf", np.array(factors, np.float32), wide)).config
    llama3 = {"kind": "rope_llama3", "base": 500_000.0, "layout": "pairs", "factor": 8.0}
    assert config.positions == PositionsConfig.read(llama3)


@pytest.mark.parametrize(
    ("factors", "complaint"),
    [
        ([1, 1, 2, 3, 8, 8, 8, 8], "rope_freqs.weight .*Llama 3's"),
        ([0.5] * 8, "rope_freqs.weight"),
        ([np.nan] * 8, "rope_freqs.weight"),
        ([np.inf] * 8, "rope_freqs.weight"),
        ([8] * 8, "rope_freqs.weight"),
        ([1] * 9, r"rope_freqs.weight has the shape \(9,\), not \(8,\)"),
    ],
    ids=str,
)
def test_factors_of_another_kind_are_refused(factors: list[float], complaint: str, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "quantize", lambda type, numbers, name: [numbers.tobytes()])  # NaN and all
        path = with_factors(tmp_path / "m.gguf", np.array(factors, np.float32))
    with pytest.raises(FileError, match=complaint):
        gguf.read(path)


@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
def test_factors_are_unknown_where_llama_cpp_does_not_use_them(name: str, tmp_path: Path) -> None:
    path = with_factors(tmp_path / "m.gguf", np.ones(8, np.float32), ARCHITECTURES[name], name)
    with pytest.raises(FileError, match=r"'rope_freqs\.weight'"):
        gguf.read(path)


def test_a_qwen2_without_its_biases_or_with_wide_heads_is_none(tmp_path: Path) -> None:
    def change(metadata: dict[str, Any]) -> None:
        metadata["general.architecture"] = "qwen2"
        metadata.update({key.replace("llama.", "qwen2."): value for key, value in metadata.items()})

    with pytest.raises(FileError, match=r"attn.q_proj.bias .* is missing"):
        gguf.read(rewritten(tmp_path / "m.gguf", change))
    with pytest.raises(FileError, match=r"4 × 32 is not d_model = 64"):
        gguf.read(rewritten(tmp_path / "m.gguf", change, LLAMA | {"d_head": 32}))


def test_a_float32_fact_is_the_decimal_that_was_meant(tmp_path: Path) -> None:
    gguf.write(tmp_path / "m.gguf", model(LLAMA | {"norm": {"kind": "rms_norm", "eps": 1e-6}}), "F32")
    assert struct.pack("<f", 1e-6) in (tmp_path / "m.gguf").read_bytes()
    assert gguf.read(tmp_path / "m.gguf").config.norm.to_dict()["eps"] == 1e-6


@pytest.mark.parametrize("kind", ["IQ4_XS", "TQ1_0", "MXFP4", "Q8_K"])
def test_a_type_that_is_not_read_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    gguf.write(tmp_path / "m.gguf", model(LLAMA), "Q8_0")
    data = bytearray((tmp_path / "m.gguf").read_bytes())
    at = data.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 2 * 8
    data[at : at + 4] = struct.pack("<I", outside.GGMLQuantizationType[kind].value)
    (tmp_path / "m.gguf").write_bytes(data)
    with pytest.raises(FileError, match=f"token_embd.weight.*{kind}"):
        gguf.read(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("general.architecture", "gptneox"),
        ("general.architecture", "qwen3moe"),
        ("general.architecture", "llama4"),
        ("tokenizer.ggml.pre", "gpt-2x"),
        ("tokenizer.ggml.pre", "llama4"),
    ],
)
def test_a_name_that_another_program_wrote_is_never_taken_for_another_one(
    key: str, value: str, tmp_path: Path
) -> None:
    path = rewritten(
        tmp_path / "m.gguf",
        lambda metadata: metadata.update({"tokenizer.ggml.model": "gpt2", key: value}),
    )
    with pytest.raises(FileError, match=f"{key}.*{value}") as refused:
        gguf.read(path)
    assert "Did you mean" not in str(refused.value)
