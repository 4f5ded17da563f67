"""`transformers` and the specification compute the same, and each opens what the other wrote."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.formats.huggingface import read, write
from pellucid.formats.safetensors_file import INDEX, read_tensors
from tests.formats.huggingface.models import (
    ACTIVATIONS,
    FAMILIES,
    GATES,
    ROPES,
    apart,
    float64_logits,
    our_logits,
    plain_logits,
    random_config,
    random_ids,
    random_model,
)
from tests.golden.make_huggingface import float64_throughout

SEEDS = range(4)  # one for each way to scale RoPE


def opened(folder: Path, **settings: Any) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", **settings)


def state(model: Any) -> dict[str, Any]:
    return {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}


def check(folder: Path, family: str, seed: int) -> None:
    """Import, compute, export, import there: at each turn the same model."""
    model, writer = random_model(family, seed)
    pretrained = read(writer(folder / "theirs"))
    ids = random_ids(seed, pretrained.config)
    assert apart(our_logits(pretrained, ids), float64_logits(model, ids)) <= 1e-10
    write(folder / "ours", pretrained)
    again = opened(folder / "ours")
    assert again.dtype == model.dtype
    assert apart(plain_logits(again, ids), plain_logits(model, ids)) <= 1e-13
    wanted = state(model)
    assert all(np.array_equal(value, wanted[name]) for name, value in state(again).items())
    theirs, ours = read_tensors(folder / "theirs"), read_tensors(folder / "ours")
    assert set(theirs) == set(ours)
    for name, tensor in theirs.items():
        assert tensor.bits().tobytes() == ours[name].bits().tobytes(), name
    back = read(folder / "ours")
    assert back.config == pretrained.config
    assert back.provenance.architecture == family


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers_and_an_export_is_the_same_model(
    tmp_path: Path, family: str, seed: int
) -> None:
    check(tmp_path, family, seed)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 140))
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_exports_of_many_models(tmp_path: Path, family: str, seed: int) -> None:
    check(tmp_path, family, seed)


def test_the_random_models_cover_every_choice() -> None:
    def drawn(family: str) -> list[Any]:
        return [random_config(family, seed) for seed in range(30)]

    for family in ("llama", "mistral", "qwen2", "qwen3"):
        configs = drawn(family)
        groups = {
            (c.num_key_value_heads == 1, c.num_key_value_heads == c.num_attention_heads) for c in configs
        }
        assert len(groups) >= 3
        assert {config.rope_parameters["rope_type"] for config in configs} == set(ROPES)
        assert {config.hidden_act for config in configs} == set(GATES)
        for key in ("attention_bias", "mlp_bias", "tie_word_embeddings"):
            assert {getattr(config, key, None) for config in configs} in ({True, False}, {None}), key
        windows = [config.sliding_window for config in configs if getattr(config, "sliding_window", None)]
        assert (family == "llama") == (not windows)
        assert family == "llama" or min(windows) < 6 <= min(c.max_position_embeddings for c in configs)
    for family in ("qwen2", "qwen3"):
        assert {tuple(set(config.layer_types)) for config in drawn(family)} == {
            ("full_attention",),
            ("sliding_attention",),
        }
    assert {config.activation_function for config in drawn("gpt2")} == set(ACTIVATIONS)
    assert {config.n_head for config in drawn("bloom")} > {2, 3, 4}  # powers of two, and others
    for family in ("gpt2", "bloom"):
        assert {config.tie_word_embeddings for config in drawn(family)} == {True, False}


def test_bloom_as_transformers_runs_it_differs_and_the_difference_is_the_digits_of_a_constant(
    tmp_path: Path,
) -> None:
    """It has √(2/π) as 0.79788456, and the slopes and the pattern in float32."""
    import torch
    from transformers.models.bloom.modeling_bloom import bloom_gelu_forward

    x = torch.linspace(-6, 6, 1001, dtype=torch.float64)
    exact = torch.nn.functional.gelu(x, approximate="tanh")
    assert 1e-10 < float((bloom_gelu_forward(x) - exact).abs().max()) < 1e-9
    with float64_throughout():
        from transformers.models.bloom import modeling_bloom

        assert float((modeling_bloom.bloom_gelu_forward(x) - exact).abs().max()) < 1e-14
    model, writer = random_model("bloom", 1)
    pretrained = read(writer(tmp_path / "theirs"))
    ids = random_ids(1, pretrained.config)
    assert 1e-10 < apart(plain_logits(model, ids), our_logits(pretrained, ids)) < 1e-5


def test_llama_as_transformers_runs_it_differs_and_the_difference_is_its_float32_places(
    tmp_path: Path,
) -> None:
    """In float64 it still turns by a float32 table and norms in float32. Round only the table, and we differ;
    give both one table, and we do not."""
    from unittest import mock

    import torch
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    model, writer = random_model("llama", 1, max_position_embeddings=64)
    pretrained = read(writer(tmp_path / "theirs"))
    ids = random_ids(1, pretrained.config)
    ours = our_logits(pretrained, ids)
    assert 1e-9 < apart(plain_logits(model, ids), ours) < 1e-4
    assert apart(float64_logits(model, ids), ours) <= 1e-10
    single, exact = torch.float32, LlamaRotaryEmbedding.forward

    def rounded(self: Any, *given: Any, **more: Any) -> Any:
        return tuple(table.to(single).to(table.dtype) for table in exact(self, *given, **more))

    with mock.patch.object(LlamaRotaryEmbedding, "forward", rounded):
        assert 1e-9 < apart(float64_logits(model, ids), ours) < 1e-4


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("family", FAMILIES)
def test_import_and_export_keep_every_byte(tmp_path: Path, family: str, dtype: str) -> None:
    _, writer = random_model(family, 5)
    pretrained = read(writer(tmp_path / "theirs", dtype))
    assert set(pretrained.provenance.types.values()) == {
        {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}[dtype]
    }
    assert all(array.dtype == np.float32 for array in pretrained.weights.values())
    write(tmp_path / "ours", pretrained)
    theirs, ours = read_tensors(tmp_path / "theirs"), read_tensors(tmp_path / "ours")
    assert {name: (t.type, t.shape, t.bits().tobytes()) for name, t in theirs.items()} == {
        name: (t.type, t.shape, t.bits().tobytes()) for name, t in ours.items()
    }
    assert str(opened(tmp_path / "ours").dtype) == f"torch.{dtype}"


def test_a_sharded_folder_is_the_same_model_both_ways(tmp_path: Path) -> None:
    model, writer = random_model("llama", 3)
    pretrained = read(writer(tmp_path / "theirs", max_shard_size="4KB"))
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 1
    write(tmp_path / "ours", pretrained, shard_bytes=4000)
    assert (tmp_path / "ours" / INDEX).exists()
    ids = random_ids(3, pretrained.config)
    assert apart(plain_logits(opened(tmp_path / "ours"), ids), plain_logits(model, ids)) <= 1e-13
    assert apart(our_logits(read(tmp_path / "ours"), ids), float64_logits(model, ids)) <= 1e-10


def test_a_type_that_is_asked_for_is_written(tmp_path: Path) -> None:
    _, writer = random_model("gpt2", 0)
    pretrained = read(writer(tmp_path / "theirs"))
    write(tmp_path / "ours", pretrained, dtype="bfloat16")
    assert set(read(tmp_path / "ours").provenance.types.values()) == {"BF16"}
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["dtype"] == "bfloat16"


def test_weights_that_have_moved_are_never_rounded_unasked(tmp_path: Path) -> None:
    from pellucid.base.errors import UsageError

    _, writer = random_model("gpt2", 0)
    pretrained = read(writer(tmp_path / "theirs", "bfloat16"))
    moved = {name: array + np.float32(1e-5) for name, array in pretrained.weights.items()}
    trained = dataclasses.replace(pretrained, weights=moved)
    with pytest.raises(UsageError, match=r"transformer\.wte\.weight: .* no longer BF16"):
        write(tmp_path / "ours", trained)
    assert not (tmp_path / "ours").exists()
    write(tmp_path / "ours", trained, dtype="F32")


def test_weights_are_read_when_asked_for_and_only_their_own_rows(tmp_path: Path) -> None:
    _, writer = random_model("gpt2", 0)
    pretrained = read(writer(tmp_path / "theirs", "float32"))
    weights = pretrained.weights
    assert list(weights) == list(pretrained.config.parameters())
    q, k = (weights[f"blocks.0.attn.{which}_proj.weight"] for which in "qk")
    assert q.shape == k.shape == pretrained.config.parameters()["blocks.0.attn.q_proj.weight"]
    assert np.shares_memory(weights["embed.weight"], weights["embed.weight"])  # the map itself


def test_parameters_of_every_place_have_the_names_of_the_config(tmp_path: Path) -> None:
    for family in FAMILIES:
        _, writer = random_model(family, 2)
        pretrained = read(writer(tmp_path / family))
        shapes = {name: array.shape for name, array in pretrained.weights.items()}
        assert shapes == pretrained.config.parameters()
        assert pretrained.name == family and pretrained.provenance.architecture == family
        assert pretrained.tokenizer is None
        assert pretrained.provenance.bytes == sum(array.nbytes for array in pretrained.weights.values())


def test_a_width_that_heads_do_not_divide_is_written_for_a_family_that_takes_it(tmp_path: Path) -> None:
    """Llama's config of `transformers` refuses such a width; Mistral's does not."""
    _, writer = random_model(
        "mistral", 0, hidden_size=10, num_attention_heads=4, num_key_value_heads=2, head_dim=6
    )
    pretrained = read(writer(tmp_path / "theirs"))
    assert (pretrained.config.d_model, pretrained.config.n_head, pretrained.config.d_head) == (10, 4, 6)
    moved = dataclasses.replace(pretrained.provenance, architecture="")
    write(tmp_path / "ours", dataclasses.replace(pretrained, provenance=moved))
    assert type(opened(tmp_path / "ours")).__name__ == "MistralForCausalLM"
