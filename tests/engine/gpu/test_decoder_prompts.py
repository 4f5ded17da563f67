"""Prompts that the fused step reads, of several texts together, are what the module computes."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from pellucid.engine.gpu import decoder as decoders
from pellucid.engine.gpu import tiles
from pellucid.engine.gpu.decoder import GpuDecoder
from pellucid.engine.taps import record
from pellucid.generation.slots import CacheSlots, Feed
from tests.engine.gpu.models import compare, compare_caches, make_ids, make_module, make_rows
from tests.engine.gpu.test_decoder_calls import count_launches
from tests.engine.gpu.test_step import CHOICES, EXACT, SCHEMES, WIDE

READ = {choice: given for choice, given in CHOICES.items() if choice != "ring"}
"""A window's ring is read by the module."""


@torch.no_grad()
def measure_error(decoder: GpuDecoder, calls: Sequence[Sequence[int]], **options: Any) -> float:
    """Reads tokens of several texts, as many in each call as it says, by both, and returns the largest
    difference of a logit or of a cached number, relative to the largest number."""
    pairs = [(one, make_rows(one, len(calls[0]), **options)) for one in (decoder, decoder.module)]
    worst = 0.0
    for call, counts in enumerate(calls):
        ids = [make_ids(count, seed=10 * call + place) for place, count in enumerate(counts)]
        own, expected = (
            one.forward_packed(
                [(row, some) for row, some in zip(rows, ids, strict=True) if some], range(sum(counts))
            )
            for one, rows in pairs
        )
        worst = max(worst, compare(own, expected))
    return max(worst, compare_caches(*(rows[0].whole for _, rows in pairs)))


@pytest.mark.parametrize("choice", READ)
def test_prompts_beside_texts_equal_the_modules(
    choice: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = GpuDecoder(make_module(device, **READ[choice]), 16)
    counts = count_launches(decoder, monkeypatch)
    bound = 1e-5 if choice == "no norm" else EXACT
    assert measure_error(decoder, [(7, 2), (1, 6), (3, 0)]) <= bound
    assert set(counts) == {16}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_prompts_with_quantized_weights_equal_the_modules(scheme: str, device: torch.device) -> None:
    decoder = GpuDecoder(make_module(device, SCHEMES[scheme], **WIDE), 16)
    assert measure_error(decoder, [(7, 2), (1, 6)]) <= EXACT


@pytest.mark.parametrize("choice", ["rope halves, gated silu", "every head its keys", "soft caps"])
def test_keys_of_a_prompt_in_parts_are_attended_to_as_one(
    choice: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "KEYS_OF_SPLIT", 4)
    decoder = GpuDecoder(make_module(device, **CHOICES[choice]), 16)
    assert measure_error(decoder, [(9, 3), (7, 2)]) <= EXACT


def test_a_cache_of_fewer_bits_is_rounded_alone(device: torch.device) -> None:
    decoder = GpuDecoder(make_module(device), 16)
    assert measure_error(decoder, [(9, 3), (4, 1)], dtype=torch.bfloat16) <= 1e-2


@torch.no_grad()
@pytest.mark.parametrize("reason", ["ring", "long text", "many tokens"])
def test_rings_long_texts_and_many_tokens_are_the_modules(
    reason: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"mask": {"kind": "window", "size": 5}} if reason == "ring" else {}
    decoder = GpuDecoder(make_module(device, **given), 16)
    counts, (row, other) = count_launches(decoder, monkeypatch), make_rows(decoder, 2)
    if reason == "long text":
        monkeypatch.setattr(decoders, "MOST_SCORES", 99)
    ids = make_ids(20 if reason == "many tokens" else 10)
    expected = decoder.module.forward_packed([(other, ids)], [3])
    assert torch.equal(decoder.forward_packed([(row, ids)], [3]), expected)
    assert counts == []


@torch.no_grad()
def test_recorded_prompts_have_the_modules_values(device: torch.device) -> None:
    decoder, seen = GpuDecoder(make_module(device, n_layer=2), 16), []
    for one in (decoder.module, decoder):
        rows = make_rows(decoder, 2)
        decoder.module.forward_packed([(rows[1], make_ids(3))], [])
        with record(fused=True, model=decoder.module) as values:
            one.forward_packed([(rows[0], make_ids(5)), (rows[1], [7, 8])], range(7))
        seen.append(dict(values))
    theirs, own = seen
    assert {"logits", "blocks.1.attn.k_rot", "blocks.0.attn.z", "blocks.1.mlp.hidden"} <= {*own} <= {*theirs}
    for name, value in own.items():
        assert value.shape == theirs[name].shape, name
        torch.testing.assert_close(value.float(), theirs[name].float(), rtol=1e-4, atol=1e-5, msg=name)


@torch.no_grad()
def test_feeds_are_read_together_and_in_pieces_that_fit(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = make_module(device)
    decoder, found = GpuDecoder(module, 16), list[torch.Tensor]()
    counts = count_launches(decoder, monkeypatch)
    feeds = [
        Feed(0, (tuple(make_ids(8)), tuple(make_ids(8, seed=1)), (5,)), 2),
        Feed(2, ((4,),), 1),
        Feed(1, (tuple(make_ids(9, seed=2)),), 9),
    ]
    for model in (decoder, module):
        slots = CacheSlots(model, 3, 32, torch.float32, chunk=8, is_static=False)
        assert slots.is_packed == (model is decoder)
        found.append(slots.forward(feeds))
        assert [len(tokens) for tokens in slots.tokens] == [17, 9, 1]
        assert slots.whole_chunks[0] == 16
    assert compare(*found) <= EXACT and len(found[0]) == 12
    assert set(counts) == {16}
