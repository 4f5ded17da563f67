"""A model quantized when its weights are looked up: every matrix, and nothing else."""

import dataclasses

import numpy as np
import pytest

from pellucid.base.errors import UsageError
from pellucid.base.quantized import NEVER_QUANTIZED, QuantizedWeight, Scheme, quantize
from pellucid.formats.pretrained import Pretrained
from pellucid.formats.quantizing import quantize_pretrained, with_weights
from tests.formats.test_model_folder import made
from tests.reference.models import CONFIGS

WIDE = dataclasses.replace(CONFIGS["llama"], d_model=48)
"""Rows of more than one group of 32."""


def find_quantized(model: Pretrained) -> set[str]:
    return {name for name in model.weights if isinstance(model.weights[name], QuantizedWeight)}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_matrix_but_positions_is_quantized(name: str) -> None:
    model = made(CONFIGS[name])
    found = quantize_pretrained(model, Scheme(4, 32))
    matrices = {key for key, array in model.weights.items() if array.ndim == 2}
    assert find_quantized(found) == matrices - set(NEVER_QUANTIZED)
    assert list(found.weights) == list(model.config.parameters())
    for key, array in model.weights.items():
        wanted = quantize(array, Scheme(4, 32)) if key in find_quantized(found) else array
        assert np.array_equal(np.asarray(found.weights[key]), np.asarray(wanted))


def test_kept_parameters_stay_as_they_are() -> None:
    model = made(CONFIGS["llama"])
    found = quantize_pretrained(model, Scheme(8), keep=["*.o_proj.weight", "embed.weight"])
    kept = [name for name in model.weights if name.endswith("o_proj.weight")] + ["embed.weight"]
    assert not find_quantized(found) & set(kept)
    assert all(found.weights[name] is model.weights[name] for name in kept)
    with pytest.raises(UsageError, match=r"keep='\*\.oproj'"):
        quantize_pretrained(model, Scheme(8), keep=["*.oproj"])


def test_a_weight_that_is_so_quantized_keeps_its_integers() -> None:
    once = quantize_pretrained(made(CONFIGS["llama"]), Scheme(8))
    held = dataclasses.replace(once, weights=dict(once.weights))
    same = quantize_pretrained(held, Scheme(8))
    assert same.weights["embed.weight"] is held.weights["embed.weight"]


@pytest.mark.parametrize("scheme", [Scheme(4, 32), Scheme(8, 32)], ids=str)
def test_a_weight_that_is_quantized_otherwise_is_not_quantized_again(scheme: Scheme) -> None:
    once = quantize_pretrained(made(WIDE), Scheme(8))
    with pytest.raises(UsageError, match=r"embed\.weight.*quantized already"):
        quantize_pretrained(once, scheme).weights["embed.weight"]


def test_weights_of_a_name_are_refused_for_a_model_quantized_otherwise() -> None:
    floats = made(WIDE)
    row, groups = (quantize_pretrained(floats, scheme) for scheme in (Scheme(8), Scheme(8, 32)))
    assert with_weights(row, "int8").weights["embed.weight"].equals(row.weights["embed.weight"])  # type: ignore[attr-defined]
    for held, weights in ((row, "int4"), (groups, "int8")):
        with pytest.raises(UsageError, match=f"weights='{weights}'.*quantized already.*int8 in groups"):
            with_weights(held, weights)


def test_of_a_model_with_kept_floats_only_those_are_quantized() -> None:
    held = quantize_pretrained(made(WIDE), Scheme(8), keep=["embed.weight"])
    found = with_weights(held, "int8").weights
    assert found["embed.weight"].equals(quantize(held.weights["embed.weight"], Scheme(8)))  # type: ignore[attr-defined]
    assert found["unembed.weight"].equals(held.weights["unembed.weight"])  # type: ignore[attr-defined]


def test_a_weight_that_cannot_be_quantized_is_named() -> None:
    model = made(CONFIGS["llama"], np.float32)
    weights = dict(model.weights) | {"embed.weight": np.full_like(model.weights["embed.weight"], np.nan)}
    with pytest.raises(UsageError, match=r"embed\.weight"):
        quantize_pretrained(dataclasses.replace(model, weights=weights), Scheme(8)).weights["embed.weight"]
