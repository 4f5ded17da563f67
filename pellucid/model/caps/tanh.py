"""The soft cap: limit · tanh(s / limit)."""

from torch import Tensor

from pellucid.parts.caps.tanh import TanhCap


def curve(x: Tensor, cap: TanhCap) -> Tensor:
    return (x / cap.limit).tanh() * cap.limit
