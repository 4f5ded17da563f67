"""Rotation of channel pairs by an angle, as in rotary position embeddings (RoPE)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pellucid.reference.op import Array, Gradients, Index, Ref, Shape, operation, rows


def partners(layout: str, width: int) -> tuple[Array, Array, Array]:
    """Returns for every channel its partner, the index of their pair, and whether it is the pair's second."""
    channel = np.arange(width)
    if layout == "halves":
        half = width // 2
        return (channel + half) % width, channel % half, channel >= half
    return channel ^ 1, channel // 2, channel % 2 == 1


def _formula(index: Index, shapes: Sequence[Shape], layout: str, direction: float = 1.0) -> str:
    """Returns the formula of one channel: its partner by number, and its sign."""
    partner, pair, second = (table[index[-1]] for table in partners(layout, shapes[0][-1]))
    sign = "+" if (direction > 0) == bool(second) else "-"
    return f"{{y}} = {{0}} · cos({{1[{pair}]}}) {sign} {{0[{partner}]}} · sin({{1[{pair}]}})"


@operation(rows, _formula)
def rotate(x: Any, angles: Any, layout: str, direction: float = 1.0) -> Any:
    """y_i = x_i cos θ − x_partner sin θ for the first of a pair, + for the second;
    `direction` −1 rotates back."""
    partner, pair, second = partners(layout, x.shape[-1])
    angle = angles[..., pair]
    along, across = x * np.cos(angle), x[..., partner] * np.sin(angle)
    return np.where(second == (direction > 0), along + across, along - across)


@rotate.gradient
def _(y: Ref, dy: Ref, x: Ref, angles: Ref, layout: str, direction: float = 1.0) -> Gradients:
    """The gradient is rotated by the opposite angle."""
    yield x, rotate(dy, angles, layout=layout, direction=-direction)
