"""Tables that belong to a model and are not its weights: made in float64 from the config, and kept so.

A position times a frequency in half precision is off by whole turns; so moving a model moves its tables, and
rounding its weights rounds none of them.
"""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn


class Tables(nn.Module):
    """Subclasses name their tables in `make_tables`, which holds them by `hold`."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[str] = []

    def make_tables(self, device: Any) -> None:
        """Every table of the config, on a device."""
        raise NotImplementedError

    def hold(self, name: str, table: Any, device: Any) -> None:
        """A table [array or None] under a name."""
        kept = None if table is None else torch.as_tensor(np.array(table), device=device)
        self.register_buffer(name, kept, persistent=False)
        self.held = [*dict.fromkeys([*self.held, name])]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        there = [table for name in self.held if (table := getattr(self, name)) is not None]
        for name in self.held:
            setattr(self, name, None)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if there:
            self.make_tables(fn(there[0][:0]).device)
        return self
