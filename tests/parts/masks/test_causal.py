"""The causal mask, written out."""

import numpy as np

from pellucid.parts.masks.causal import Causal


def test_causal_mask_is_the_lower_triangle() -> None:
    assert Causal().compute_mask(np.arange(3), np.arange(3)).astype(int).tolist() == [
        [1, 0, 0],
        [1, 1, 0],
        [1, 1, 1],
    ]


def test_causal_mask_of_a_cached_call_sees_the_past() -> None:
    assert Causal().compute_mask(np.array([2]), np.arange(3)).tolist() == [[True, True, True]]
