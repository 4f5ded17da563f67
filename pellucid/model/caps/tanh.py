"""The soft cap: limit · tanh(s / limit)."""

from torch import Tensor

from pellucid.parts.caps import TanhCap


def curve(x: Tensor, cap: TanhCap) -> Tensor:
    wide = x.float() if x.element_size() < 4 else x  # a small score divided would fall below half precision
    return ((wide / cap.limit).tanh() * cap.limit).to(x.dtype)
