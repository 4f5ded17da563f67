"""Turning pairs of channels by an angle: the heart of rotary positions."""

from typing import Any

import numpy as np

from pellucid.reference.op import Array, Gradients, Ref, operation, rows


def partners(layout: str, width: int) -> tuple[Array, Array, Array]:
    """For every channel: its partner, the pair they form, and whether it is the pair's second."""
    channel = np.arange(width)
    if layout == "halves":
        half = width // 2
        return (channel + half) % width, channel % half, channel >= half
    return channel ^ 1, channel // 2, channel % 2 == 1


@operation(rows, "{y} = {0} cos({1}) ± partner sin({1})")
def rotate(x: Any, angles: Any, layout: str, direction: float = 1.0) -> Any:
    """y_i = x_i cos θ − x_partner sin θ for the first of a pair, + for the second."""
    partner, pair, second = partners(layout, x.shape[-1])
    sign = np.where(second, direction, -direction)
    turn = angles[..., pair]
    return x * np.cos(turn) + sign * x[..., partner] * np.sin(turn)


@rotate.gradient
def _(y: Ref, dy: Ref, x: Ref, angles: Ref, layout: str, direction: float = 1.0) -> Gradients:
    """A rotation's gradient is turned back."""
    yield x, rotate(dy, angles, layout=layout, direction=-direction)
