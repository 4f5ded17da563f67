"""Weights held once in float64, so that a run after the first reads no file.

A large weight lies in memory that can be mapped a second time, copy on write: an edit of one cell then copies
one page, and not the whole embedding, whose fresh memory takes longer than the run that follows.
"""

import mmap
import os
import threading
import time
from collections.abc import Iterator, Mapping

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.base.errors import PellucidError, ResourceError
from pellucid.base.formatting import format_bytes
from pellucid.engine.device_memory import get_free_memory
from pellucid.formats.pretrained import Shape, parameter_count

BACKGROUND_BYTES = 10_000_000
"""Smaller weights are read within a run: starting a thread takes longer."""
SHARED_BYTES = 16_000_000
"""Weights from this size on can be copied by a second mapping; smaller ones are copied at once."""


class HeldWeights(Mapping[str, Array]):
    """The weights of a model in float64, each read when it is first asked for, and kept."""

    def __init__(self, weights: Mapping[str, Array], shapes: Mapping[str, Shape]) -> None:
        self._weights = weights
        self._arrays: dict[str, Array] = {}
        self._files: dict[int, int] = {}
        """The descriptor of the memory in which an array lies, by the array's identity."""
        self._seconds: list[float] = []
        self._locks = {name: threading.Lock() for name in shapes}
        self.bytes = 8 * parameter_count(shapes)

    def __getitem__(self, name: str) -> Array:
        with self._locks[name]:
            if name not in self._arrays:
                began = time.thread_time()
                self._arrays[name] = self._hold(self._weights[name])
                self._seconds.append(time.thread_time() - began)
            return self._arrays[name]

    def _hold(self, weight: Array) -> Array:
        try:
            file = os.memfd_create("weight") if 8 * weight.size >= SHARED_BYTES else None
        except (AttributeError, OSError):  # not every system has it, or has it left
            file = None
        if file is None:
            return np.asarray(weight, dtype=np.float64, order="C")
        os.ftruncate(file, 8 * weight.size)
        held = _map(file, weight.shape, mmap.MAP_SHARED)
        np.copyto(held, weight)
        held.flags.writeable = False
        self._files[id(held)] = file
        return held

    def copy(self, array: Array) -> Array:
        """Returns a copy of a held weight, or of any other array; what is written to it stays its own."""
        if (file := self._files.get(id(array))) is None:
            return array.copy()
        return _map(file, array.shape, mmap.MAP_PRIVATE)

    def __del__(self) -> None:
        for file in self._files.values():
            os.close(file)

    def __iter__(self) -> Iterator[str]:
        return iter(self._locks)

    def __len__(self) -> int:
        return len(self._locks)

    @property
    def read_count(self) -> int:
        """The number of them that have been read."""
        return len(self._arrays)

    @property
    def arrays(self) -> list[Array]:
        """Those that have been read."""
        return list(self._arrays.values())

    @property
    def speed(self) -> float:
        """Bytes per second of the processor: reading writes large arrays to new memory, as a backward pass
        does, which takes longer than the arithmetic on a few tokens."""
        return sum(array.nbytes for array in self.arrays) / max(sum(self._seconds), 1e-6)

    def read_ahead(self) -> None:
        """Reads all of them in a thread, beginning with the last: a run reads from the first on, so that both
        share the work."""
        if (free := get_free_memory()) < self.bytes:
            raise ResourceError(
                f"the weights take {format_bytes(self.bytes)} in float64, in which every run computes, and "
                f"{format_bytes(free)} of memory are free. Use a smaller model."
            )
        if self.bytes > BACKGROUND_BYTES:
            threading.Thread(target=self._read_backwards, daemon=True).start()

    def read_all(self) -> None:
        """Reads those that have not been read, from the first on."""
        for name in self:
            self[name]

    def _read_backwards(self) -> None:
        try:
            for name in reversed(list(self)):
                self[name]
        except (PellucidError, MemoryError):
            return  # the run that needs the weight raises it again


def _map(file: int, shape: Shape, flags: int) -> Array:
    """Returns the numbers of a memory file as an array; it keeps its mapping after the file is closed."""
    mapping = mmap.mmap(file, 0, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    return np.frombuffer(mapping, dtype=np.float64).reshape(shape)
