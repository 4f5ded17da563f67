"""The surprise at every token of the vocabulary, not only at the one that came."""

from collections.abc import Sequence
from typing import Any

from pellucid.reference.op import Attrs, Gradients, Index, Reads, Ref, Shape, operation, same_cell, zeros
from pellucid.reference.ops.arithmetic import LETTERS
from pellucid.reference.ops.einsum import einsum


def _own_row(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    logits, lse = shapes
    return Reads((same_cell(index, logits), same_cell(index[:-1], lse)), attrs, zeros(index))


@operation(_own_row, "{y} = {1} - {0}")
def surprise(logits: Any, lse: Any) -> Any:
    """lse − s_i = −ln p_i."""
    return lse[..., None] - logits


@surprise.gradient
def _(y: Ref, dy: Ref, logits: Ref, lse: Ref) -> Gradients:
    every = LETTERS[: len(y.shape)]
    yield logits, einsum(dy, spec=f"{every}->{every}", scale=-1.0)
    yield lse, einsum(dy, spec=f"{every}->{every[:-1]}")
