"""SiLU: x σ(x)."""

from torch.nn.functional import silu as curve

__all__ = ["curve"]
