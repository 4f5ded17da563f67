"""Constant tables of a model, computed from the config in float64 and never rounded.

Position times frequency in half precision is wrong by whole rotations; so `model.to(device)` moves the
tables, and `model.to(dtype)` does not change their type.
"""

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn


class Tables(nn.Module):
    """Subclasses compute their tables in `tables`; each becomes a buffer of that name, None where absent."""

    def __init__(self) -> None:
        super().__init__()
        self.table_names: list[str] = []
        self.device_marker = torch.empty(0, device=torch.get_default_device())

    def tables(self) -> dict[str, Any]:
        """Returns every table as an array, by name."""
        raise NotImplementedError

    def make_tables(self, device: Any) -> None:
        """Computes the tables on a device; on the device "meta", none."""
        self.device_marker = torch.empty(0, device=device)
        if not self.device_marker.is_meta:
            self.set_tables(self.tables(), device)

    def set_tables(self, tables: Mapping[str, Any], device: Any) -> None:
        """Makes each table a buffer on a device."""
        for name, table in tables.items():
            with torch.inference_mode(False):  # else no gradient could pass it later
                buffer = None if table is None else torch.as_tensor(np.array(table), device=device)
            self.register_buffer(name, buffer, persistent=False)
            self.table_names = [*dict.fromkeys([*self.table_names, name])]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        for name in self.table_names:
            setattr(self, name, None)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.make_tables(fn(self.device_marker).device)
        return self
