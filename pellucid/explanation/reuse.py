"""A tape that takes over what a previous tape of the same program has already computed.

Only the steps that read a change run again, and a result that is bitwise equal to the previous one stops the
spread. A value taken over is the previous array itself, so that the arrays that a change did not reach are
held once, and `is` tells them from the others.
"""

from collections.abc import Callable, Iterator

import numpy as np

from pellucid.reference.op import Array, Op, Ref
from pellucid.reference.tape import Edits, Step, Tape

CHUNK = 1 << 16
"""Numbers that are compared at once: they fit the cache."""
StepKey = tuple[Op, str, tuple[int, ...]]
"""An operation, its attributes, and the identities of the arrays that it reads."""


class ReusingTape(Tape):
    """A tape that runs a step only where the previous tape has not: `steps_run` counts them.

    Every value is equal, bit for bit, to that of a full run: a step is taken over where its operation, its
    attributes and its inputs, as objects, are those of a previous step. `copy` copies a leaf to be edited.

    >>> from pellucid import ops
    >>> before = Tape()
    >>> y = before("y", ops.power, before.parameter("x", [1.0, 2.0]), exponent=2)
    >>> after = ReusingTape(before, edits={"y": {0: 5.0}})
    >>> y = after("y", ops.power, after.parameter("x", [1.0, 2.0]), exponent=2)
    >>> after["y"], after["y.computed"] is before["y"], after.steps_run
    (array([5., 4.]), True, 1)
    """

    def __init__(
        self,
        previous: Tape,
        edits: Edits | None = None,
        copy: Callable[[Array], Array] = np.copy,
    ) -> None:
        super().__init__(previous.dtype, edits)
        self.previous, self.steps_run = previous, 0
        self._copy_leaf = copy
        self._known: dict[StepKey, Array] = {
            _make_key(step, [previous.values[name] for name in step.inputs]): previous.values[name]
            for name, step in previous.steps.items()
        }

    def forget_previous(self) -> None:
        """Ends the reuse, so that the previous tape is not kept in memory."""
        self.previous, self._known = Tape(), {}

    def _copy(self, value: Array) -> Array:
        return self._copy_leaf(value)

    def _run(self, step: Step) -> Array:
        known = self._known.get(_make_key(step, [self.values[name] for name in step.inputs]))
        if known is not None:
            return known
        self.steps_run += 1
        return self._match_previous(self.joined_name(step.name), super()._run(step))

    def _leaf(self, name: str, value: Array, role: str) -> Ref:
        for previous_name in dict.fromkeys((self.joined_name(name), name)):
            value = self._match_previous(previous_name, value)
        return super()._leaf(name, value, role)

    def _match_previous(self, name: str, value: Array) -> Array:
        """Returns the previous array of this name where its bits are the same."""
        previous = self.previous.values.get(self.previous.resolve(name))
        return value if previous is None or not has_same_bits(previous, value) else previous


def _make_key(step: Step, inputs: list[Array]) -> StepKey:
    """Returns what decides a step's result. The arrays are alive, so that an identity is unique; the text of
    the attributes distinguishes 0.0 from -0.0, and 1 from 1.0."""
    return step.op, repr(step.attrs), tuple(map(id, inputs))


def has_same_bits(a: Array, b: Array) -> bool:
    """Tests whether two arrays have the same shape, the same dtype and the same bits; NaN equals itself, and
    0.0 differs from -0.0."""
    if a is b:
        return True
    return a.shape == b.shape and a.dtype == b.dtype and next(find_other_chunks(a, b), None) is None


def find_other_chunks(a: Array, b: Array) -> Iterator[slice]:
    """Yields the chunks of storage in which two arrays of one shape and dtype differ in their bits: a large
    array is read without a copy, and only up to the first chunk that is asked for."""
    one, other = (view_bits(array).reshape(-1) for array in (a, b))
    for start in range(0, one.size, CHUNK):
        chunk = slice(start, start + CHUNK)
        if not np.array_equal(one[chunk], other[chunk]):
            yield chunk


def view_bits(array: Array) -> Array:
    """Returns the numbers as unsigned integers of the same bits; a view where they lie in storage order."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
