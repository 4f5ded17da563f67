"""What a file says about its model: each fact is asked for by name, and one that nobody asked for is refused.

So no fact is ignored that would change the arithmetic: what this program does not know, it does not ask for.
"""

from collections.abc import Mapping

import numpy as np

from pellucid.dtypes import Array
from pellucid.files import need
from pellucid.interop.gguf.container import Value, shown
from pellucid.interop.gguf.opening import support


class Facts:
    """The facts whose names begin with the architecture's, each under the rest of its name; `implied` are
    those that the tensors tell where the file does not, `tables` the tensors that hold no weights."""

    def __init__(
        self,
        facts: Mapping[str, Value],
        architecture: str,
        implied: Mapping[str, Value],
        tables: Mapping[str, Array],
    ) -> None:
        self.prefix, self.tables = f"{architecture}.", tables
        self.facts = dict(implied) | {
            key.removeprefix(self.prefix): value
            for key, value in facts.items()
            if key.startswith(self.prefix)
        }
        self.asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self.facts

    def whole(self, key: str, default: int | None = None) -> int:
        value = self._ask(key, default)
        support(not isinstance(value, np.ndarray), f"{self.prefix}{key} differs from layer to layer")
        need(
            type(value) is int and value > 0,
            f"{self.prefix}{key} is {_short(value)}, not a whole number above 0",
        )
        return value  # type: ignore[return-value]

    def number(self, key: str, default: float | None = None) -> float:
        value = self._ask(key, default)
        need(type(value) in (int, float), f"{self.prefix}{key} is {_short(value)}, not a number")
        return float(value)  # type: ignore[arg-type]

    def text(self, key: str, default: str) -> str:
        value = self._ask(key, default)
        need(isinstance(value, str), f"{self.prefix}{key} is {_short(value)}, not a text")
        return value  # type: ignore[return-value]

    def truth(self, key: str, default: bool) -> bool:
        value = self._ask(key, default)
        need(isinstance(value, bool), f"{self.prefix}{key} is {_short(value)}, neither true nor false")
        return value  # type: ignore[return-value]

    def _ask(self, key: str, default: Value | None) -> Value:
        self.asked.add(key)
        value = self.facts.get(key, default)
        need(value is not None, f"the fact {self.prefix}{key} is missing")
        assert value is not None
        return value

    def refuse_the_rest(self, harmless: Mapping[str, Value]) -> None:
        """Facts that nobody asked for; `harmless` lists the values at which some of them change nothing."""
        for key, value in self.facts.items():
            if key not in self.asked:
                known = key in harmless and type(value) is type(harmless[key]) and value == harmless[key]
                support(
                    known, f"it says {shown(self.prefix + key)} = {_short(value)}, which is not known here"
                )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
