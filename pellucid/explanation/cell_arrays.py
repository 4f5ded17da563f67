"""Arrays that record the arithmetic of each of their cells.

An operation's own forward, run on such arrays, is as fast as NumPy; the expression of a cell is built on
demand. So an explanation is never a second implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pellucid.explanation.expression import Apply, Branch, Cell, Expression, Number, Sum
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array, Box, Index, Op, same_cell
from pellucid.reference.ops.arithmetic import add
from pellucid.reference.tape import Step, Tape
from pellucid.reference.tracked_array import TrackedArray, plain, ufunc_name


class TermChoice:
    """Chooses the same terms of a long sum in every cell of a group: the largest by Σ |term| over the cells.

    The first pass over the cells, with `is_counting`, adds the terms up; the second one shows the chosen.
    Sums of at most `whole` terms are shown whole, others with `top` terms and their remainder.
    """

    def __init__(self, top: Top, whole: int) -> None:
        self.top, self.whole = top, whole
        self.is_counting = True
        self._totals: dict[int, Array] = {}

    def choose(self, values: Array) -> Array:
        """Returns the indices of the terms to show, in order."""
        if self.is_counting:
            self._totals[values.size] = self._totals.get(values.size, 0.0) + np.abs(values)
        totals = self._totals.get(values.size, np.abs(values))
        return np.sort(np.argsort(-totals, kind="stable")[: self.top])


Top = int | TermChoice
"""How many terms of a long sum are shown, or which."""
Derive = Callable[[Index, Top], Expression]
"""The expression of one cell."""


class RecordingArray(TrackedArray):
    """An array, and `derive(index, top)`: the expression of one of its cells."""

    def __init__(self, value: Any, derive: Derive) -> None:
        self.value: Array = np.asarray(value)
        self.derive = derive

    def apply_ufunc(self, ufunc: np.ufunc, inputs: tuple[Any, ...]) -> RecordingArray:
        value, name = self.compute_ufunc(ufunc, inputs), ufunc_name(ufunc)

        def derive(index: Index, top: Top) -> Expression:
            args = tuple(_derive_at(x, index, top) for x in inputs)
            return Apply(name, args, float(value[index]))

        return RecordingArray(value, derive)

    @classmethod
    def apply_where(cls, condition: Any, yes: Any, no: Any) -> RecordingArray:
        holds = np.asarray(plain(condition)).astype(bool)
        value = np.where(holds, plain(yes), plain(no))

        def derive(index: Index, top: Top) -> Expression:
            branches = (yes, no) if np.broadcast_to(holds, value.shape)[index] else (no, yes)
            what, other = (_derive_at(branch, index, top) for branch in branches)
            return Branch(what, _derive_at(condition, index, top), float(value[index]), other)

        return RecordingArray(value, derive)

    @classmethod
    def rearrange(cls, function: Callable[[Any], Array], source: Any) -> RecordingArray:
        """Applies the same function to the cells' numbers, which shows where each came from."""
        sources: list[RecordingArray] = list(source) if isinstance(source, tuple | list) else [source]
        starts = np.cumsum([0, *(x.size for x in sources)])

        def apply(arrays: list[Array]) -> Array:
            return np.asarray(function(arrays if isinstance(source, tuple | list) else arrays[0]))

        def derive(index: Index, top: Top) -> Expression:
            numbers = [
                np.arange(x.size).reshape(x.shape) + start for x, start in zip(sources, starts, strict=False)
            ]
            number = int(apply(numbers)[index])
            which = int(np.searchsorted(starts, number, side="right")) - 1
            origin = sources[which]
            return origin.derive(_ints(np.unravel_index(number - starts[which], origin.shape)), top)

        return RecordingArray(apply([x.value for x in sources]), derive)

    def astype(self, dtype: Any) -> RecordingArray:
        """Returns the same in another type; rounding to a narrower float type is a step of the arithmetic."""
        value, rounded = self.value.astype(dtype), np.dtype(dtype)
        if rounded.kind != "f" or rounded.itemsize >= self.dtype.itemsize:
            return RecordingArray(value, self.derive)
        return RecordingArray(
            value, lambda index, top: Apply(rounded.name, (self.derive(index, top),), float(value[index]))
        )

    def reduce(self, function: Callable[..., Any], axis: int | None, keepdims: bool) -> RecordingArray:
        value = np.asarray(function(self.value, axis=axis, keepdims=keepdims))
        numbers = np.arange(self.size).reshape(self.shape)

        def derive(index: Index, top: Top) -> Expression:
            if axis is None:
                read = numbers.ravel()
            else:
                at = index[:-1] if keepdims else index
                read = np.moveaxis(numbers, axis, -1)[at]

            def derive_term(i: int, top: Top) -> Expression:
                return self.derive(_ints(np.unravel_index(read[i], self.shape)), top)

            terms = Terms(self.value.ravel()[read], derive_term)
            return _REDUCTIONS[function](terms, top, float(value[index]))

        return RecordingArray(value, derive)

    def cumsum(self) -> RecordingArray:
        value = np.cumsum(self.value, axis=-1)

        def derive(index: Index, top: Top) -> Expression:
            read = self.value[index[:-1]][: index[-1] + 1]
            return fold_sum(Terms(read, lambda i, top: self.derive((*index[:-1], i), top)), top)

        return RecordingArray(value, derive)

    @classmethod
    def apply_einsum(cls, spec: str, *arrays: Any) -> RecordingArray:
        values = [plain(x) for x in arrays]
        value = np.asarray(np.einsum(spec, *values, optimize=len(values) > 1))
        left, _, result = spec.partition("->")
        terms = left.split(",")
        summed = "".join(sorted(set(left) - set(result) - {","}))

        def derive(index: Index, top: Top) -> Expression:
            fixed = dict(zip(result, index, strict=True))
            slices = [
                x[tuple(fixed.get(i, slice(None)) for i in t)] for x, t in zip(values, terms, strict=True)
            ]
            free = ["".join(i for i in t if i in summed) for t in terms]
            products = np.asarray(np.einsum(f"{','.join(free)}->{summed}", *slices))

            def derive_term(number: int, top: Top) -> Expression:
                at = fixed | dict(zip(summed, _ints(np.unravel_index(number, products.shape)), strict=True))
                cells = [
                    _derive_at(x, tuple(at[i] for i in t), top) for x, t in zip(arrays, terms, strict=True)
                ]
                # in the order of the formula: the operation passes its operands last to first
                factors = tuple(cell for cell in reversed(cells) if cell != Number(1.0))
                return factors[0] if len(factors) == 1 else Apply("multiply", factors, products.flat[number])

            if not summed:
                return derive_term(0, top)
            # A product with a constant 0 is not a term: scatter's rows of other tokens.
            nonzero = [
                np.broadcast_to(_align(s, f, summed), products.shape) != 0
                for s, f, x in zip(slices, free, arrays, strict=True)
                if not isinstance(x, RecordingArray)
            ]
            kept = np.flatnonzero(np.logical_and.reduce(nonzero)) if nonzero else np.arange(products.size)
            return fold_sum(Terms(products.ravel()[kept], lambda i, k: derive_term(int(kept[i]), k)), top)

        return RecordingArray(value, derive)


class Terms:
    """The numbers that a reduction reads, with the expression of each."""

    def __init__(self, values: Array, derive: Callable[[int, Top], Expression]) -> None:
        self.values, self.derive = values, derive


def record_part(name: str, value: Array, box: Box, op: Op) -> Any:
    """Returns a part of a named value as a recording array; integers that only select stay plain."""
    part = value[np.ix_(*box)] if box else value
    if part.dtype.kind != "f" and not op.reads_integers:
        return part

    def derive(index: Index, top: Top) -> Expression:
        cell = tuple(int(axis[i]) for axis, i in zip(box, index, strict=True))
        return Cell(name, cell, float(part[index]))

    return RecordingArray(part, derive)


def _ints(index: Sequence[Any]) -> Index:
    return tuple(int(i) for i in index)


def _derive_at(x: Any, index: Index, top: Top) -> Expression:
    """Returns the expression of the cell of x that broadcasts to this index."""
    shape = np.shape(plain(x))
    aligned = index[len(index) - len(shape) :]
    cell = tuple(0 if size == 1 else i for i, size in zip(aligned, shape, strict=True))
    return x.derive(cell, top) if isinstance(x, RecordingArray) else Number(float(np.asarray(x)[cell]))


def _align(array: Array, letters: str, over: str) -> Array:
    """Returns an array of some letters with axes of length 1 for the others."""
    ordered = np.einsum(f"{letters}->{''.join(i for i in over if i in letters)}", array)
    return np.expand_dims(ordered, tuple(a for a, i in enumerate(over) if i not in letters))


def fold_sum(terms: Terms, top: Top) -> Expression:
    """Returns the sum of the terms: all where they are at most `top`, else the largest and the exact rest."""
    values, count = terms.values, terms.values.size
    total = float(values.sum())
    if count == 1:
        return terms.derive(0, top)
    if count <= (top if isinstance(top, int) else top.whole):
        return Sum(tuple(terms.derive(i, top) for i in range(count)), 0.0, 0, total)
    if isinstance(top, int):
        largest = np.sort(np.argpartition(-np.abs(values), top - 1)[:top])
    else:
        largest = top.choose(values)
    others = np.ones(count, dtype=bool)
    others[largest] = False
    kept = tuple(terms.derive(int(i), top) for i in largest)
    return Sum(kept, float(values[others].sum()), count - len(kept), total)


def _mean(terms: Terms, top: Top, value: float) -> Expression:
    return Apply("divide", (fold_sum(terms, top), Number(terms.values.size)), value)


def _max(terms: Terms, top: Top, value: float) -> Expression:
    most = top if isinstance(top, int) else top.top
    largest = np.argsort(-terms.values, kind="stable")[:most]
    return Apply("max", tuple(terms.derive(int(i), top) for i in largest), value)


_REDUCTIONS: dict[Any, Callable[[Terms, Top, float], Expression]] = {
    np.sum: lambda terms, top, value: fold_sum(terms, top),
    np.mean: _mean,
    np.max: _max,
}


MOST_TERMS = 10_000
"""Terms of a flattened sum, about: each x + x of a chain doubles them."""


def can_flatten(tape: Tape, step: Step) -> bool:
    """Returns whether an operand of this addition is itself an addition."""
    return step.op is add and any(_is_addition(tape, name) for name in step.inputs)


def _is_addition(tape: Tape, name: str) -> bool:
    return name in tape.steps and tape.steps[name].op is add


def find_terms(trace: Trace, step: Step, index: Index) -> tuple[Cell, ...]:
    """Returns the cells that a cell of an addition is the sum of, in the order of the run; beyond
    `MOST_TERMS`, an addition is a term itself."""
    terms: list[Cell] = []
    todo = [(step.name, index)]
    while todo:
        name, at = todo.pop()
        if _is_addition(trace.tape, name) and len(terms) + len(todo) < MOST_TERMS:
            inputs = trace.tape.steps[name].inputs
            cells = [tuple(int(i[0]) for i in same_cell(at, trace.value(read).shape)) for read in inputs]
            todo += reversed(list(zip(inputs, cells, strict=True)))
        else:
            terms.append(Cell(name, at, float(trace.value(name)[at])))
    return tuple(terms)


def fold_terms(terms: Sequence[Cell], total: float, top: Top) -> Expression:
    """Returns the sum of cells, of which the `top` largest are shown; its total is the recorded number."""
    values = np.array([term.value for term in terms])
    found = fold_sum(Terms(values, lambda i, top: terms[i]), top)
    return replace(found, value=total) if isinstance(found, Sum) else found
