"""A piece of an array along one axis, and the array of zeros around a piece."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pellucid.reference.op import Attrs, Gradients, Index, Reads, Ref, Shape, one, operation, zeros
from pellucid.reference.ops.join import part


@operation(part.reads, part.formula, part.sizes)
def cut(x: Any, axis: int, start: int, length: int) -> Any:
    """y = `length` entries of x along an axis, from `start`."""
    return part.forward(x, axis, start, length)


@cut.gradient
def _(y: Ref, dy: Ref, x: Ref, axis: int, start: int, length: int) -> Gradients:
    yield x, put_back(dy, axis=axis, start=start, length=length, whole=x.shape[axis])


def _reads(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    """The cell of the piece that stands here; beside the piece any will do, for it is not taken."""
    axis, start, length = attrs["axis"], attrs["start"], attrs["length"]
    here = index[axis] - start
    inside = 0 <= here < length
    box = tuple(one(min(max(here, 0), length - 1)) if a == axis else one(i) for a, i in enumerate(index))
    small = {"axis": axis, "start": 0 if inside else 1, "length": 1, "whole": 1}
    return Reads((box,), small, zeros(index))


@operation(_reads, "{y} = {0} from {start}, else 0", sizes=("length", "whole"))
def put_back(dy: Any, axis: int, start: int, length: int, whole: int) -> Any:
    """dx = dy from `start`, and 0 elsewhere."""
    places = np.arange(whole) - start
    inside = (places >= 0) & (places < length)
    spread = (1,) * axis + (whole,) + (1,) * (dy.ndim - axis - 1)
    taken = np.clip(places, 0, length - 1)
    return np.where(np.reshape(inside, spread), dy[(slice(None),) * axis + (taken,)], 0.0)
