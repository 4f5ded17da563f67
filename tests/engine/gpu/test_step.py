"""A step of kernels computes what the module does, for every choice that it has."""

from typing import Any

import pytest
import torch

from pellucid.base.quantized import Scheme
from pellucid.engine.gpu import tiles
from pellucid.engine.gpu.decoder import GpuDecoder
from tests.engine.gpu.models import make_module, make_rows, measure_error

ALL_BIASES = ["qkv", "output", "mlp", "norm", "unembed"]
CHOICES: dict[str, dict[str, Any]] = {
    "rope halves, gated silu": {},
    "two layers": {"n_layer": 2},
    "rope pairs": {"positions": {"kind": "rope", "layout": "pairs"}},
    "learned positions": {"positions": "learned", "norm": "layer_norm", "mlp": "gelu_tanh"},
    "every bias": {"biases": ALL_BIASES, "norm": "layer_norm", "mlp": "gelu"},
    "biases of gates": {"biases": ALL_BIASES},
    "alibi, embedding norm": {"positions": "alibi", "embed_norm": "layer_norm", "biases": ["norm"]},
    "sinusoidal": {"positions": "sinusoidal", "mlp": "relu"},
    "ring": {"mask": {"kind": "window", "size": 5}},
    "window without ring": {"mask": {"kind": "window", "size": 32}},
    "soft caps": {
        "score_cap": {"kind": "tanh", "limit": 0.5},
        "logit_cap": {"kind": "tanh", "limit": 0.7},
    },
    "rms qk-norm": {"qk_norm": "rms_norm"},
    "layer qk-norm with biases": {"qk_norm": "layer_norm", "biases": ["norm"]},
    "qk-norm without rotation": {"qk_norm": "rms_norm", "positions": "none"},
    "one key head": {"n_kv_head": 1},
    "every head its keys": {"n_kv_head": 4},
    "untied": {"unembedding": "linear", "biases": ["unembed"]},
    "relu squared": {"mlp": "relu_squared"},
    "gated gelu": {"mlp": "geglu"},
    "no norm": {"norm": "none"},
}
LENGTHS = {"one text": (9,), "three texts in a bucket of four": (9, 0, 6)}
SCHEMES = {"int8 rows": Scheme(8), "int8 groups": Scheme(8, 32), "int4 minimums": Scheme(4, 32)}
WIDE = {"d_model": 40, "d_ff": 72}
"""A whole group of weights and a part of one."""
EXACT = 2e-6
"""Relative; float32 sums in another order."""


@pytest.mark.parametrize("texts", LENGTHS)
@pytest.mark.parametrize("choice", CHOICES)
def test_a_step_equals_the_modules(choice: str, texts: str, device: torch.device) -> None:
    decoder = GpuDecoder(make_module(device, **CHOICES[choice]), 4)
    bound = 1e-5 if choice == "no norm" else EXACT
    assert measure_error(decoder, LENGTHS[texts]) <= bound


@pytest.mark.parametrize("mlp", ["relu", "relu_squared"])
@torch.no_grad()
def test_a_nan_stays_one_in_the_mlp(mlp: str, device: torch.device) -> None:
    decoder = GpuDecoder(make_module(device, mlp=mlp), 1)
    decoder.module.get_parameter("blocks.0.mlp.up_proj.weight")[3, 1] = torch.nan
    (row,) = make_rows(decoder, 1)
    assert not decoder.forward_packed([(row, [4])], [0]).isfinite().any()


@pytest.mark.parametrize("texts", LENGTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_step_of_quantized_weights_equals_the_modules(
    scheme: str, texts: str, device: torch.device
) -> None:
    decoder = GpuDecoder(make_module(device, SCHEMES[scheme], **WIDE), 4)
    assert measure_error(decoder, LENGTHS[texts]) <= EXACT


def test_a_group_that_is_not_a_power_of_two_is_multiplied_in_parts(device: torch.device) -> None:
    decoder = GpuDecoder(make_module(device, Scheme(8, 96), d_model=104, n_head=1, n_kv_head=1), 2)
    assert measure_error(decoder, (3, 2)) <= EXACT


@pytest.mark.parametrize(
    ("splits", "choice"),
    [*((splits, "rope halves, gated silu") for splits in (1, 2, 4)), (2, "every head its keys")],
)
@pytest.mark.parametrize("lengths", [(141,), (141, 3)], ids=["one text", "two texts"])
def test_keys_in_parts_are_attended_to_as_one(
    splits: int, choice: str, lengths: tuple[int, ...], device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "KEYS_OF_SPLIT", 160 // splits)
    assert tiles.count_splits(142) == splits
    decoder = GpuDecoder(make_module(device, context_length=160, **CHOICES[choice]), 2)
    assert measure_error(decoder, lengths) <= EXACT


@pytest.mark.parametrize("positions", ["rope", "sinusoidal"])
def test_steps_are_recorded_anew_when_the_tables_of_positions_grow(
    positions: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pellucid.engine.positions.FIRST_POSITIONS", 4)
    decoder = GpuDecoder(make_module(device, positions=positions), 2)
    assert measure_error(decoder, (2, 1), steps=9) <= EXACT
    assert decoder.module.positions.covered == 16 and len(decoder.graphs) == 3


@pytest.mark.parametrize("choice", ["alibi, embedding norm", "soft caps", "ring"])
def test_parts_have_biases_caps_and_rings(
    choice: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "KEYS_OF_SPLIT", 4)
    decoder = GpuDecoder(make_module(device, **CHOICES[choice]), 2)
    assert measure_error(decoder, (20, 7)) <= EXACT


@pytest.mark.parametrize("cache", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("keys", [256, 4], ids=["whole", "parts"])
def test_a_cache_of_fewer_bits_is_rounded_alone(
    cache: torch.dtype, keys: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "KEYS_OF_SPLIT", keys)
    decoder = GpuDecoder(make_module(device), 2)
    bound = 1e-3 if cache == torch.float16 else 1e-2
    assert measure_error(decoder, (9, 4), dtype=cache) <= bound


@pytest.mark.parametrize("texts", LENGTHS)
def test_bfloat16_weights_are_multiplied_as_they_are(texts: str, device: torch.device) -> None:
    decoder = GpuDecoder(make_module(device, dtype=torch.bfloat16), 4)
    assert measure_error(decoder, LENGTHS[texts]) <= 2e-2


@pytest.mark.parametrize("scheme", [None, SCHEMES["int4 minimums"]], ids=str)
def test_inputs_of_several_blocks_are_added_up(
    scheme: Scheme | None, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "LARGEST_BLOCK", 32)
    decoder = GpuDecoder(make_module(device, scheme, d_model=32, d_ff=72), 1)
    assert measure_error(decoder, (3,)) <= EXACT


@pytest.mark.parametrize("cache", [torch.float32, torch.float16], ids=str)
def test_steps_follow_each_other(cache: torch.dtype, device: torch.device) -> None:
    decoder = GpuDecoder(make_module(device, n_layer=2, mask={"kind": "window", "size": 5}), 2)
    assert measure_error(decoder, (3, 8), steps=4, dtype=cache) <= 2e-3


@pytest.mark.torture
@pytest.mark.parametrize("scheme", [None, *SCHEMES.values()], ids=str)
@pytest.mark.parametrize("count", [2, 5, 17, 33])
@pytest.mark.parametrize("choice", CHOICES)
def test_every_number_of_texts_equals_the_module(
    choice: str, count: int, scheme: Scheme | None, device: torch.device
) -> None:
    decoder = GpuDecoder(make_module(device, scheme, **WIDE, **CHOICES[choice]), 64)
    lengths = tuple(place % 11 for place in range(count))
    assert measure_error(decoder, lengths, steps=2) <= 1e-5
