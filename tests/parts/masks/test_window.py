"""The sliding window, written out, and where Mistral looks."""

import numpy as np
import torch
from transformers import MistralConfig, MistralModel

from pellucid.parts.masks.window import Window


def test_a_window_of_three_is_a_band_of_three() -> None:
    assert Window(size=3).compute_mask(np.arange(6), np.arange(6)).astype(int).tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [0, 1, 1, 1, 0, 0],
        [0, 0, 1, 1, 1, 0],
        [0, 0, 0, 1, 1, 1],
    ]


def test_a_window_is_where_mistral_s_pattern_is_not_zero() -> None:
    config = MistralConfig(
        vocab_size=5,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        sliding_window=4,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    with torch.no_grad():
        (pattern,) = MistralModel(config)(torch.arange(11)[None] % 5, output_attentions=True).attentions
    ours = Window(size=4).compute_mask(np.arange(11), np.arange(11))
    for head in range(2):
        assert np.array_equal(pattern[0, head].numpy() > 0, ours)
