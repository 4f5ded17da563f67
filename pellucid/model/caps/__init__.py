"""The caps of scores and logits, one file per kind of `parts/caps/`; each has `curve(x, cap)`."""

import functools
import importlib
from collections.abc import Callable

from torch import Tensor

from pellucid.parts.caps import CapConfig

Curve = Callable[[Tensor], Tensor]


def make(cap: CapConfig) -> Curve | None:
    """The curve that scores pass through, or None where they pass as they are."""
    if cap.is_none:
        return None
    return functools.partial(importlib.import_module(f"{__name__}.{cap.kind}").curve, cap=cap)
