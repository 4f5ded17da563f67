"""An unembedding of its own, on the numbers of the teaching model."""

import pytest

import pellucid


def test_linear_unembedding_compares_with_its_own_directions() -> None:
    """(.19557, .80443) times W_U = [[1, 0, 0, 1], [0, 1, 1, 0]]."""
    logits = pellucid.load("abcd").trace("A B").tape["logits"][0, 1]
    assert logits == pytest.approx([0.19557, 0.80443, 0.80443, 0.19557], abs=5e-6)
