"""Weights as a person meets them: short at a prompt, and nothing is read to show them."""

import numpy as np

from pellucid.dtypes import Array
from pellucid.pretrained import LazyTensor, LazyWeights


def unread() -> Array:
    raise AssertionError("it was read")


def test_weights_are_short_at_a_prompt_and_a_table_in_a_notebook() -> None:
    many = LazyWeights({f"blocks.{i}.<b>.weight": LazyTensor((2, 3), unread) for i in range(1000)})
    assert repr(many).startswith(
        "<LazyWeights: 1,000 arrays with 6,000 numbers: blocks.0.<b>.weight [2, 3], "
    )
    assert len(repr(many)) < 300
    html = many._repr_html_()
    assert "blocks.7.&lt;b&gt;.weight" in html and "<b>" not in html and len(html) < 200_000
    assert (
        repr(LazyWeights({"x": LazyTensor((3,), lambda: np.zeros(3))}))
        == "<LazyWeights: 1 array with 3 numbers: x [3]>"
    )
