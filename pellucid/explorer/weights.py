"""Weights held once in float64, so that a run after the first reads no file."""

import threading
from collections.abc import Iterator, Mapping

import numpy as np

from pellucid.dtypes import Array
from pellucid.errors import PellucidError, ResourceError
from pellucid.format import format_bytes
from pellucid.model.device_memory import get_free_memory
from pellucid.pretrained import Shape, parameter_count

BACKGROUND_BYTES = 10_000_000
"""Smaller weights are read within a run: starting a thread takes longer."""


class HeldWeights(Mapping[str, Array]):
    """The weights of a model in float64, each read when it is first asked for, and kept."""

    def __init__(self, weights: Mapping[str, Array], shapes: Mapping[str, Shape]) -> None:
        self._weights = weights
        self._arrays: dict[str, Array] = {}
        self._locks = {name: threading.Lock() for name in shapes}
        self.bytes = 8 * parameter_count(shapes)

    def __getitem__(self, name: str) -> Array:
        with self._locks[name]:
            if name not in self._arrays:
                self._arrays[name] = np.asarray(self._weights[name], dtype=np.float64, order="C")
            return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._locks)

    def __len__(self) -> int:
        return len(self._locks)

    @property
    def read_count(self) -> int:
        """How many of them have been read."""
        return len(self._arrays)

    @property
    def arrays(self) -> list[Array]:
        """Those that have been read."""
        return list(self._arrays.values())

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
