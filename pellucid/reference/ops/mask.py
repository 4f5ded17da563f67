"""The mask: a forbidden score becomes −∞, so that its share of the softmax is exactly 0."""

from typing import Any

import numpy as np

from pellucid.reference.op import Gradients, Ref, each, operation
from pellucid.reference.ops.arithmetic import LETTERS, letters
from pellucid.reference.ops.einsum import einsum


@operation(each, "{y} = {0} if {1} = 1, else -∞")
def mask(scores: Any, allowed: Any) -> Any:
    """y = s where allowed, else −∞."""
    return np.where(allowed, scores, -np.inf)


@mask.gradient
def _(y: Ref, dy: Ref, scores: Ref, allowed: Ref) -> Gradients:
    """ds = dy · allowed: nothing flows back to a forbidden score."""
    whole = LETTERS[: len(dy.shape)]
    yield scores, einsum(dy, allowed, spec=f"{whole},{letters(allowed.shape, dy.shape)}->{whole}")
