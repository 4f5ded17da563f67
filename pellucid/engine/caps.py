"""Soft caps, which bound attention scores and logits; the kinds of `parts/caps.py`."""

import functools
from collections.abc import Callable

from torch import Tensor

from pellucid.base import registry
from pellucid.engine.precision import widen
from pellucid.parts.caps import CapConfig, TanhCap

Cap = Callable[[Tensor], Tensor]


def make(cap: CapConfig) -> Cap | None:
    """Returns the function that bounds scores, None where the config has no cap."""
    if cap.is_none:
        return None
    return functools.partial(registry.function_of(__name__, cap.kind, "cap"), cap=cap)


@registry.kind("tanh")
def soft_cap(x: Tensor, cap: TanhCap) -> Tensor:
    """limit · tanh(x / limit), in float32 at least: a small x divided would be subnormal in half
    precision."""
    return ((widen(x) / cap.limit).tanh() * cap.limit).to(x.dtype)
