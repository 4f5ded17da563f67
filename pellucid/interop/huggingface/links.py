"""One tensor of theirs and the weights of ours that it holds, taken apart and put together again exactly."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from pellucid.dtypes import Array, decode, encode
from pellucid.interop.safetensors_file import Stored
from pellucid.pretrained import LazyTensor, Shape


@dataclass(frozen=True)
class Link:
    """`ours` lie one above the other, by their rows, in the (out, in) form of `theirs`.

    With several `groups` the rows of each are cut into so many equal pieces, and theirs has the first piece
    of each, then the second of each: q, k, v of head 0, then of head 1.
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False
    groups: int = 1

    def shape(self, shapes: Mapping[str, Shape]) -> Shape:
        rows = sum(shapes[name][0] for name in self.ours)
        shape = (rows, *shapes[self.ours[0]][1:])
        return shape[::-1] if self.transposed else shape

    def apart(self, stored: Stored, shapes: Mapping[str, Shape]) -> Iterator[tuple[str, LazyTensor]]:
        start = 0
        for name in self.ours:
            rows = slice(start, start := start + shapes[name][0] // self.groups)
            yield name, LazyTensor(shapes[name], partial(self._rows, stored, rows, shapes[name]))

    def _rows(self, stored: Stored, rows: slice, shape: Shape) -> Array:
        """Only these rows of each group are read and decode."""
        bits = stored.bits()
        bits = self._grouped(bits.T if self.transposed else bits)[:, rows].reshape(shape)
        return decode(np.ascontiguousarray(bits), stored.type)

    def together(
        self, weights: Mapping[str, Array], shapes: Mapping[str, Shape], type: str, exact: bool
    ) -> Stored:
        return Stored(type, self.shape(shapes), partial(self._joined, weights, type, exact))

    def _joined(self, weights: Mapping[str, Array], type: str, exact: bool) -> Array:
        bits = [encode(np.asarray(weights[name]), type, exact) for name in self.ours]
        joined = bits[0]
        if len(bits) > 1:
            joined = np.concatenate([self._grouped(part) for part in bits], axis=1)
            joined = joined.reshape(-1, *bits[0].shape[1:])
        return joined.T if self.transposed else joined

    def _grouped(self, rows: Array) -> Array:
        return rows.reshape(self.groups, -1, *rows.shape[1:])
