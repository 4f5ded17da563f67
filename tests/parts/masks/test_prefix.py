"""The prefix mask, written out, and as transformers composes it."""

import numpy as np
import torch
from transformers.masking_utils import blockwise_overlay, causal_mask_function, or_masks

from pellucid.parts.masks.prefix import Prefix


def test_a_prefix_of_three_sees_itself_and_the_rest_is_causal() -> None:
    assert Prefix(length=3).compute_mask(np.arange(6), np.arange(6)).astype(int).tolist() == [
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1, 1],
    ]


def test_a_prefix_is_the_causal_mask_of_transformers_with_its_first_block_two_way() -> None:
    at = torch.arange(11)
    for length in range(12):
        block = torch.where(at < length, 0, -1)[None]
        theirs = or_masks(causal_mask_function, blockwise_overlay(block))(0, 0, at[:, None], at[None])
        assert torch.equal(Prefix(length=length).compute_mask(at, at), theirs)
