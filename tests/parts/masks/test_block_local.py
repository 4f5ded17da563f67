"""The block-local mask, written out, and the chunks of transformers (Llama 4)."""

import numpy as np
import torch
from transformers.masking_utils import chunked_causal_mask_function

from pellucid.parts.masks.block_local import BlockLocal


def test_blocks_of_three_are_small_causal_masks_along_the_diagonal() -> None:
    assert BlockLocal(size=3).compute_mask(np.arange(8), np.arange(8)).astype(int).tolist() == [
        [1, 0, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0, 0],
        [0, 0, 0, 1, 0, 0, 0, 0],
        [0, 0, 0, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 0, 0, 1, 1],
    ]


def test_blocks_are_the_chunks_of_transformers() -> None:
    at = torch.arange(24)
    for size in (1, 2, 5, 8, 24, 100):
        theirs = chunked_causal_mask_function(size, torch.tensor([0]))(0, 0, at[:, None], at[None])
        assert torch.equal(BlockLocal(size=size).compute_mask(at, at), theirs)


def test_blocks_start_at_the_first_token_of_a_padded_text_as_those_of_transformers_do() -> None:
    """Two places of padding on the left: the text's own positions start behind them, at 0."""
    at, own = torch.arange(12), torch.arange(12) - 2
    theirs = chunked_causal_mask_function(5, torch.tensor([2]))(0, 0, at[:, None], at[None])
    assert torch.equal(BlockLocal(size=5).compute_mask(own, own), theirs)
