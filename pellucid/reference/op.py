"""An operation: its forward, the steps of its gradient, and the cells of its inputs that one cell reads.

The arithmetic of one cell is the forward itself, run on the slices that the cell reads, so every view of a
number (replay, explain) is the computation and not a copy of it. Forwards therefore write nothing in place,
use only their arguments, and never depend on the size of the whole array (a mean gets its n as an attribute).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Index = tuple[int, ...]
Shape = tuple[int, ...]
Attrs = dict[str, Any]
Box = tuple[Array, ...]
"""A part of an array: for each axis, the positions that are read."""


class Ref(NamedTuple):
    """A value on a tape, by name."""

    name: str
    shape: Shape


class Call(NamedTuple):
    """An operation with what it reads: a step that has no name yet."""

    op: Op
    inputs: tuple[Ref, ...]
    attrs: Attrs


class Reads(NamedTuple):
    """What one cell reads: a box of each input, the attributes of the forward on these boxes, and the cell's
    index in that forward's result."""

    boxes: tuple[Box, ...]
    attrs: Attrs
    pick: Index


Gradients = Iterable[tuple[Ref, Call | Ref | None]]
"""Pairs (input, how): the step that computes its gradient, the value that already is its gradient, or None
where the other inputs' gradients already contain what flows through it (online softmax's running sums)."""


@dataclass(eq=False)
class Op:
    """One operation. `shown` is a mathematically equal forward that is easier to read; `reads_integers` says
    that integer inputs are numbers to compute with (quantized weights), not indices (ids, targets)."""

    name: str
    forward: Callable[..., Any]
    reads: Callable[[Index, Sequence[Shape], Attrs], Reads]
    formula: str | Callable[..., str]
    sizes: tuple[str, ...] = ()
    back: Callable[..., Gradients] | None = None
    shown: Callable[..., Any] | None = None
    reads_integers: bool = False
    doc: str = field(default="", repr=False)

    def __call__(self, *inputs: Ref, **attrs: Any) -> Call:
        return Call(self, inputs, attrs)

    def gradient(self, back: Callable[..., Gradients]) -> Callable[..., Gradients]:
        """Decorator: `back(y, dy, *inputs, **attrs)` yields each input with the step of its gradient."""
        self.back = back
        return back

    def derivative(self, back: Op) -> Op:
        """Decorator, for a function of one input: the operation that computes dx from x and dy."""

        def gradient(y: Ref, dy: Ref, x: Ref) -> Gradients:
            yield x, back(x, dy)

        self.back = gradient
        return back

    def show(self, shown: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the forward in the form that `explain` prints."""
        self.shown = shown
        return shown

    def cell(self, index: Index, inputs: Sequence[Array], attrs: Attrs) -> float:
        """Returns one number of the result, from the slices that it reads."""
        need = self.reads(index, [x.shape for x in inputs], attrs)
        slices = [x[np.ix_(*box)] for x, box in zip(inputs, need.boxes, strict=True)]
        return float(self.forward(*slices, **need.attrs)[need.pick])


def operation(
    reads: Callable[[Index, Sequence[Shape], Attrs], Reads],
    formula: str | Callable[..., str],
    sizes: tuple[str, ...] = (),
    reads_integers: bool = False,
) -> Callable[[Callable[..., Any]], Op]:
    """Decorator: a forward becomes an operation of the same name.

    The formula is a template: `{y}` the result, `{0}` `{1}` … the inputs, and any attribute by its name; in a
    sum over the row, `{row}` is its letter and `{r0}` `{r1}` … the inputs at that letter; `{0[2]}` is an
    input with its last axis at 2, `{0[]}` without axes. Or it is a function of the cell's index, the inputs'
    shapes and the attributes that returns the template. `sizes` names the attributes that are sizes, so that
    a reader of files from elsewhere can bound them.
    """

    def make(forward: Callable[..., Any]) -> Op:
        name = forward.__name__.strip("_")
        doc = forward.__doc__ or ""
        return Op(name, forward, reads, formula, sizes, reads_integers=reads_integers, doc=doc)

    return make


def one(i: int) -> Array:
    """Returns the positions along an axis of which one is read."""
    return np.array([i])


def all_of(size: int) -> Array:
    """Returns the positions along an axis that is read whole."""
    return np.arange(size)


def same_cell(index: Index, shape: Shape) -> Box:
    """Returns the cell of an input that broadcasts to the result's cell."""
    aligned = index[len(index) - len(shape) :]
    return tuple(one(0 if size == 1 else i) for i, size in zip(aligned, shape, strict=True))


def same_row(index: Index, shape: Shape) -> Box:
    """Returns the row (all of the last axis) whose leading axes broadcast to `index`."""
    return (*same_cell(index, shape[:-1]), all_of(shape[-1]))


def zeros(index: Index) -> Index:
    """Returns the index of the one cell of a result with as many axes."""
    return (0,) * len(index)


def each(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    """A cell reads the same cell of every input."""
    return Reads(tuple(same_cell(index, shape) for shape in shapes), attrs, zeros(index))


def rows(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    """A cell reads its whole row of every input."""
    boxes = tuple(same_row(index[:-1], shape) for shape in shapes)
    return Reads(boxes, attrs, (*zeros(index[:-1]), index[-1]))


def each_and_row(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    """A cell [… i] reads the same cell of the first input, and of the others their number for its row […]."""
    first, *others = shapes
    boxes = (same_cell(index, first), *(same_cell(index[:-1], shape) for shape in others))
    return Reads(boxes, attrs, zeros(index))


def reduced_row(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    """A cell [… 1] is one number for a row, and reads that row of every input."""
    return Reads(tuple(same_row(index[:-1], shape) for shape in shapes), attrs, zeros(index))


def everything(index: Index, shapes: Sequence[Shape], attrs: Attrs) -> Reads:
    """A cell reads all of every input."""
    boxes = tuple(tuple(all_of(size) for size in shape) for shape in shapes)
    return Reads(boxes, attrs, index)
