"""The metadata of a GGUF file: each key is read by name, and a key that was not read is refused.

So no key is ignored that would change the arithmetic.
"""

from collections.abc import Mapping

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.base.errors import show
from pellucid.base.files import need
from pellucid.formats.gguf.container import Value, require_support, show_name


class Metadata:
    """The keys of the architecture, without its prefix; `implied` are defaults that follow from the tensors,
    `tables` the tensors that are not weights."""

    def __init__(
        self,
        metadata: Mapping[str, Value],
        architecture: str,
        implied: Mapping[str, Value],
        tables: Mapping[str, Array],
    ) -> None:
        self.prefix, self.tables = f"{architecture}.", tables
        self.metadata = dict(implied) | {
            key.removeprefix(self.prefix): value
            for key, value in metadata.items()
            if key.startswith(self.prefix)
        }
        self.seen: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self.metadata

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._get(key, default)
        require_support(not isinstance(value, np.ndarray), f"{self.prefix}{key} differs from layer to layer")
        need(
            type(value) is int and value > 0,
            f"{self.prefix}{key} is {show(value)}, not an integer ≥ 1",
        )
        return value  # type: ignore[return-value]

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default)
        need(type(value) in (int, float), f"{self.prefix}{key} is {show(value)}, not a number")
        return float(value)  # type: ignore[arg-type]

    def text(self, key: str, default: str) -> str:
        value = self._get(key, default)
        need(isinstance(value, str), f"{self.prefix}{key} is {show(value)}, not a string")
        return value  # type: ignore[return-value]

    def boolean(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        need(isinstance(value, bool), f"{self.prefix}{key} is {show(value)}, neither true nor false")
        return value  # type: ignore[return-value]

    def _get(self, key: str, default: Value | None) -> Value:
        self.seen.add(key)
        value = self.metadata.get(key, default)
        need(value is not None, f"the metadata key {self.prefix}{key} is missing")
        assert value is not None
        return value

    def refuse_others(self, harmless: Mapping[str, Value]) -> None:
        """Raises where a key was not read, unless its value is one of `harmless`, which change nothing."""
        for key, value in self.metadata.items():
            if key not in self.seen:
                known = key in harmless and type(value) is type(harmless[key]) and value == harmless[key]
                require_support(
                    known,
                    f"{show_name(self.prefix + key)} = {show(value)} is not supported",
                )
