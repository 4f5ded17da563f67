"""A module with quantized weights computes what one with their numbers computes, and keeps the integers."""

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.errors import UsageError
from pellucid.base.quantized import QuantizedWeight, Scheme, quantize
from pellucid.config import ModelConfig
from pellucid.engine.cache import Cache
from pellucid.engine.linear import Linear, project
from pellucid.engine.lora import adapt
from pellucid.engine.quantized_tensor import QuantizedTensor
from pellucid.engine.transformer import Transformer
from pellucid.formats.quantizing import quantize_pretrained
from pellucid.reference.training import forward
from tests.formats.test_model_folder import made
from tests.reference.models import CONFIGS

SCHEMES = {"int8": Scheme(8), "int4": Scheme(4, 32)}
IDS = torch.tensor([[0, 1, 2], [3, 2, 0]])


def quantized(config: ModelConfig, scheme: str = "int4") -> dict[str, Any]:
    return dict(quantize_pretrained(made(config, np.float32), SCHEMES[scheme]).weights)


def widened(weights: Mapping[str, Any], dtype: type = np.float32) -> dict[str, Any]:
    """The same weights as floats, computed in a type."""
    return {name: np.asarray(weight, dtype) for name, weight in weights.items()}


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_in_float64_it_agrees_with_the_specification_on_its_numbers(name: str, scheme: str) -> None:
    weights = quantized(CONFIGS[name], scheme)
    module = Transformer.from_weights(CONFIGS[name], weights, dtype=torch.float64)
    tape = forward(CONFIGS[name], widened(weights, np.float64), IDS.numpy())
    assert np.abs(module(IDS).numpy() - tape["logits"]).max() < 1e-10
    assert module.quantized_weights().keys() == {
        key for key, weight in weights.items() if isinstance(weight, QuantizedWeight)
    }
    for key, array in module.weights().items():
        assert np.array_equal(array, np.asarray(weights[key], np.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
@torch.no_grad()
def test_its_logits_are_bit_for_bit_those_of_its_numbers_as_floats(name: str, dtype: torch.dtype) -> None:
    weights = quantized(CONFIGS[name])
    module, floats = (
        Transformer.from_weights(CONFIGS[name], some, dtype=dtype) for some in (weights, widened(weights))
    )
    assert torch.equal(module(IDS), floats(IDS))


@torch.no_grad()
def test_a_text_does_not_depend_on_the_other_texts_of_the_batch() -> None:
    config = dataclasses.replace(CONFIGS["llama"], vocab_size=40, d_model=64, d_ff=96, context_length=8)
    module = Transformer.from_weights(config, quantized(config))
    ids = torch.randint(40, (9, 1), generator=torch.Generator().manual_seed(0))
    together = module.forward_cached(ids, Cache(config, len(ids), 8))
    for row, wanted in zip(ids, together, strict=True):
        assert torch.equal(module.forward_cached(row[None], Cache(config, 1, 8))[0], wanted)


@pytest.mark.parametrize(("group", "width"), [(32, 64), (32, 80), (64, 7), (None, 40)])
@pytest.mark.parametrize("bits", [4, 8])
def test_groups_spread_over_their_inputs(bits: int, group: int | None, width: int) -> None:
    weight = quantize(draw(5, width), Scheme(bits, group))
    held = QuantizedTensor.from_weight(weight)
    assert np.array_equal(held.dequantize().numpy(), np.asarray(weight))
    assert np.array_equal(held.dequantize(torch.float64).numpy(), weight.dequantize(np.float64))
    ids = torch.tensor([[4, 0], [1, 1]])
    assert torch.equal(held.take_rows(ids), held.dequantize()[ids])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_a_conversion_changes_the_compute_dtype_alone(dtype: torch.dtype) -> None:
    weight = quantize(draw(3, 64), Scheme(4, 32))
    held = QuantizedTensor.from_weight(weight)
    for moved in (copy.deepcopy(held).to(dtype), copy.deepcopy(held).to("cpu", dtype)):
        assert moved.dtype == dtype and moved.dequantize().dtype == dtype
        assert moved.scales.dtype == torch.float16 and moved.integers.dtype == torch.int8
        assert np.array_equal(np.asarray(moved.to(torch.float32).to_weight()), np.asarray(weight))
    assert held.dtype == torch.float32


def test_a_module_is_converted_copied_and_loaded_with_its_integers() -> None:
    config, weights = CONFIGS["guide"], quantized(CONFIGS["guide"])
    module = Transformer.from_weights(config, weights)
    wide = copy.deepcopy(module).double()
    assert (module.dtype, wide.dtype, wide.device) == (torch.float32, torch.float64, torch.device("cpu"))
    state = wide.state_dict()
    assert state["embed.weight.scales"].dtype == torch.float16
    other = {
        name: weight.take(np.arange(len(weight.integers))[::-1])
        if isinstance(weight, QuantizedWeight)
        else weight * 0
        for name, weight in weights.items()
    }
    loaded = Transformer.from_weights(config, other, dtype=torch.float64)
    loaded.load_state_dict(state)
    with torch.no_grad():
        assert torch.equal(loaded(IDS), wide(IDS))
    empty = copy.deepcopy(module).to("meta").to_empty(device="cpu")
    assert empty.state_dict().keys() == state.keys()
    assert empty.quantized_weights()["embed.weight"].scales.dtype == torch.float16


def test_layers_for_one_input_are_multiplied_one_by_one_where_one_is_quantized() -> None:
    layers = [Linear({"a.weight": (4, 6)}, "a") for _ in range(2)]
    for layer in layers:
        torch.nn.init.normal_(layer.weight)
    held = QuantizedTensor.from_weight(quantize(draw(4, 6), Scheme(8)))
    del layers[1].weight
    layers[1].weight = held
    x = torch.randn(2, 6, requires_grad=True)
    first, second = project(x, *layers)
    assert torch.equal(first, layers[0](x)) and torch.equal(second, x @ held.dequantize().T)
    second.sum().backward()
    assert x.grad is not None and torch.allclose(x.grad[0], held.dequantize().sum(0))


def test_a_weight_that_no_product_reads_is_widened() -> None:
    config, weights = CONFIGS["gpt2"], quantized(CONFIGS["gpt2"])
    weights["positions.weight"] = quantize(weights["positions.weight"], Scheme(8))
    module = Transformer.from_weights(config, weights)
    assert "positions.weight" not in module.quantized_weights()
    assert np.array_equal(module.weights()["positions.weight"], np.asarray(weights["positions.weight"]))


def test_training_and_adapters_are_refused() -> None:
    module = Transformer.from_weights(CONFIGS["llama"], quantized(CONFIGS["llama"]))
    with pytest.raises(UsageError, match=r"embed\.weight is quantized"):
        module.train()
    with pytest.raises(UsageError, match="adapter"):
        adapt(module, ["*q_proj"], 2, 1.0)
    assert not module.eval().training
