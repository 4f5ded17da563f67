"""Masks by kind: written out, and where the models that they are named after look."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from transformers import LongformerConfig, LongformerModel, MistralConfig, MistralModel
from transformers.masking_utils import (
    blockwise_overlay,
    causal_mask_function,
    chunked_causal_mask_function,
    or_masks,
)

from pellucid.parts.masks import MaskConfig
from pellucid.parts.masks.block_local import BlockLocal
from pellucid.parts.masks.causal import Causal
from pellucid.parts.masks.prefix import Prefix
from pellucid.parts.masks.sinks import Sinks
from pellucid.parts.masks.strided import Strided
from pellucid.parts.masks.window import Window
from pellucid.parts.masks.window_global import WindowGlobal

WRITTEN: dict[MaskConfig, str] = {
    Causal(): "100 110 111",
    Window(size=3): "100000 110000 111000 011100 001110 000111",
    Prefix(length=3): "111000 111000 111000 111100 111110 111111",
    WindowGlobal(size=2, tokens=1): "111111 111000 111100 101110 100111 100011",
    BlockLocal(size=3): "10000000 11000000 11100000 00010000 00011000 00011100 00000010 00000011",
    Sinks(tokens=2, size=3): "10000000 11000000 11100000 11110000 11111000 11011100 11001110 11000111",
    Strided(stride=3): "10000000 11000000 11100000 11110000 01111000 00111100 10011110 01001111",
}
"""Which positions each position sees, one word for each."""
SMALL = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
Pairs = Callable[[int, int, torch.Tensor, torch.Tensor], torch.Tensor]


@pytest.mark.parametrize("mask", WRITTEN, ids=str)
def test_a_mask_written_out(mask: MaskConfig) -> None:
    rows = WRITTEN[mask].split()
    seen = mask.compute_mask(np.arange(len(rows)), np.arange(len(rows)))
    assert ["".join(map(str, row)) for row in seen.astype(int).tolist()] == rows


def test_causal_mask_of_a_cached_call_sees_the_past() -> None:
    assert Causal().compute_mask(np.array([2]), np.arange(3)).tolist() == [[True, True, True]]


def check_pairs(mask: MaskConfig, theirs: Pairs, count: int, padding: int = 0) -> None:
    """Fails unless a mask is transformers' of pairs of places, the first of which are padding."""
    at = torch.arange(count)
    own = at - padding
    assert torch.equal(mask.compute_mask(own, own), theirs(0, 0, at[:, None], at[None])), mask


@pytest.mark.parametrize("size", [1, 2, 5, 8, 24, 100])
def test_blocks_are_the_chunks_of_transformers(size: int) -> None:
    """As Llama 4 has them; with padding on the left, the text's own positions start behind it, at 0."""
    for padding in (0, 2):
        theirs = chunked_causal_mask_function(size, torch.tensor([padding]))
        check_pairs(BlockLocal(size=size), theirs, 24, padding)


@pytest.mark.parametrize("length", range(12))
def test_a_prefix_is_the_causal_mask_of_transformers_with_its_first_block_two_way(length: int) -> None:
    block = torch.where(torch.arange(11) < length, 0, -1)[None]
    check_pairs(Prefix(length=length), or_masks(causal_mask_function, blockwise_overlay(block)), 11)


def test_sinks_see_what_the_paper_s_cache_holds() -> None:
    """A cache of 4 + 3 that drops, when it is too full, the oldest behind the 4 sinks."""
    seen = Sinks(tokens=4, size=3).compute_mask(np.arange(24), np.arange(24))
    held: list[int] = []
    for i in range(24):
        held.append(i)
        if len(held) > 4 + 3:
            del held[4]
        assert np.flatnonzero(seen[i]).tolist() == held


def test_no_sinks_are_a_plain_window() -> None:
    at = np.arange(12)
    assert np.array_equal(Sinks(tokens=0, size=5).compute_mask(at, at), Window(size=5).compute_mask(at, at))


@pytest.mark.parametrize("stride", [1, 2, 3, 5, 30])
def test_what_a_stride_sees_is_the_union_of_the_paper_s_two_sets(stride: int) -> None:
    """A⁽¹⁾ = {t, …, i} from t = max(0, i − l), and A⁽²⁾ = {j : (i − j) mod l = 0}. The first is one
    wider than ours, by i − l, which is in the second as well."""
    seen = Strided(stride=stride).compute_mask(np.arange(24), np.arange(24))
    for i in range(24):
        local = set(range(max(0, i - stride), i + 1))
        far = {j for j in range(i + 1) if (i - j) % stride == 0}
        assert set(np.flatnonzero(seen[i]).tolist()) == local | far


def test_a_window_is_where_mistral_s_pattern_is_not_zero() -> None:
    config = MistralConfig(
        vocab_size=5, num_key_value_heads=1, sliding_window=4, attn_implementation="eager", **SMALL
    )
    torch.manual_seed(0)
    with torch.no_grad():
        (pattern,) = MistralModel(config)(torch.arange(11)[None] % 5, output_attentions=True).attentions
    ours = Window(size=4).compute_mask(np.arange(11), np.arange(11))
    for head in range(2):
        assert np.array_equal(pattern[0, head].numpy() > 0, ours)


def test_a_window_with_global_tokens_is_what_reaches_what_through_one_layer_of_longformer() -> None:
    """Longformer's window of 4 is two to each side, so size=3; its table is seen by its derivatives."""
    config = LongformerConfig(vocab_size=5, attention_window=[4], max_position_embeddings=40, **SMALL)
    torch.manual_seed(0)
    model = LongformerModel(config, add_pooling_layer=False).eval().double()
    marks = torch.tensor([[1, 1] + [0] * 10])

    def written(embedded: torch.Tensor) -> torch.Tensor:
        out = model(
            inputs_embeds=embedded, attention_mask=torch.ones(1, 12), global_attention_mask=marks
        ).last_hidden_state[0]
        assert isinstance(out, torch.Tensor)
        return out

    embedded = torch.randn(1, 12, 8, dtype=torch.float64)
    slopes = torch.autograd.functional.jacobian(written, embedded)  # [T C 1 S C]
    reached = slopes.abs().amax((1, 2, 4)).numpy() > 0
    assert np.array_equal(WindowGlobal(size=3, tokens=2).compute_mask(np.arange(12), np.arange(12)), reached)
