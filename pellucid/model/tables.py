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
    """Subclasses make their tables in `tables`; each is then an attribute, None where there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[str] = []
        self.place = torch.empty(0, device=torch.get_default_device())

    def tables(self) -> dict[str, Any]:
        """Every table of the config as an array, by name."""
        raise NotImplementedError

    def make_tables(self, device: Any) -> None:
        """The tables on a device; on the one that holds nothing, none is made."""
        self.place = torch.empty(0, device=device)
        for name, table in ({} if self.place.is_meta else self.tables()).items():
            kept = None if table is None else torch.as_tensor(np.array(table), device=device)
            self.register_buffer(name, kept, persistent=False)
            self.held = [*dict.fromkeys([*self.held, name])]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        for name in self.held:
            setattr(self, name, None)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.make_tables(fn(self.place).device)
        return self
