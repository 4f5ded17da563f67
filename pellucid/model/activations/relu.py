"""ReLU: max(0, x)."""

from torch import relu as curve

__all__ = ["curve"]
