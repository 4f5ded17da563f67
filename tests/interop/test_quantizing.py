"""A model quantized when its weights are looked up: every matrix, and nothing else."""

import dataclasses

import numpy as np
import pytest

from pellucid.errors import UsageError
from pellucid.interop.quantizing import quantize_pretrained
from pellucid.pretrained import Pretrained
from pellucid.quantized import NEVER_QUANTIZED, QuantizedWeight, Scheme, quantize
from tests.interop.test_model_folder import made
from tests.reference.models import CONFIGS


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
    same, other = (quantize_pretrained(held, scheme) for scheme in (Scheme(8), Scheme(4, 32)))
    assert same.weights["embed.weight"] is held.weights["embed.weight"]
    assert other.weights["embed.weight"].bits == 4  # type: ignore[attr-defined]


def test_a_weight_that_cannot_be_quantized_is_named() -> None:
    model = made(CONFIGS["llama"], np.float32)
    weights = dict(model.weights) | {"embed.weight": np.full_like(model.weights["embed.weight"], np.nan)}
    with pytest.raises(UsageError, match=r"embed\.weight"):
        quantize_pretrained(dataclasses.replace(model, weights=weights), Scheme(8)).weights["embed.weight"]
