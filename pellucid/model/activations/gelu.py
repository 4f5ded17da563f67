"""GELU in its exact form: x Φ(x)."""

from torch.nn.functional import gelu as curve

__all__ = ["curve"]
