"""The window with global tokens, written out, and what reaches what in Longformer."""

import numpy as np
import torch
from transformers import LongformerConfig, LongformerModel

from pellucid.parts.masks.window_global import WindowGlobal


def test_one_global_token_beside_a_window_of_two() -> None:
    assert WindowGlobal(size=2, tokens=1).compute_mask(np.arange(6), np.arange(6)).astype(int).tolist() == [
        [1, 1, 1, 1, 1, 1],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 0, 1, 1, 1, 0],
        [1, 0, 0, 1, 1, 1],
        [1, 0, 0, 0, 1, 1],
    ]


def test_a_window_with_global_tokens_is_what_reaches_what_through_one_layer_of_longformer() -> None:
    """Longformer's window of 4 is two to each side, so size=3; its table is seen by its derivatives."""
    config = LongformerConfig(
        vocab_size=5,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        attention_window=[4],
        max_position_embeddings=40,
    )
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
