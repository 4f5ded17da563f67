"""Masks: a masked score becomes −∞, so that its softmax is exactly 0; and the mask of packed documents."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pellucid.reference.op import Attrs, Gradients, Index, Reads, Ref, Shape, each, one, operation, zeros
from pellucid.reference.ops.arithmetic import LETTERS, letters
from pellucid.reference.ops.einsum import einsum


@operation(each, "{y} = {0} if {1} = 1, else -∞")
def mask(scores: Any, allowed: Any) -> Any:
    """y = s where allowed is 1, else −∞."""
    return np.where(allowed, scores, -np.inf)


@mask.gradient
def _(y: Ref, dy: Ref, scores: Ref, allowed: Ref) -> Gradients:
    """ds = dy · allowed: a masked score has no gradient."""
    whole = LETTERS[: len(dy.shape)]
    yield scores, einsum(dy, allowed, spec=f"{whole},{letters(allowed.shape, dy.shape)}->{whole}")


def _segment_reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    b, _, t, s = index
    return Reads(((one(b), one(t)), (one(b), one(s))), attrs, zeros(index))


@operation(_segment_reads, "{y} = 1 if {0} = {1[s]}, else 0")
def same_segment(queries: Any, keys: Any) -> Any:
    """y [B 1 T S] = 1 where query [B T] and key [B S] have the same segment number, else 0."""
    apart = queries[:, None, :, None] - keys[:, None, None, :]
    return 1.0 - np.minimum(apart * apart, 1.0)
