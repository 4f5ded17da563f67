"""Tiled softmax attention (FlashAttention): keys are processed in tiles, with a running maximum, sum and
output instead of whole rows of scores."""

from dataclasses import dataclass, field
from typing import ClassVar

from pellucid.parts import ConfigLike
from pellucid.parts.attentions import Axes
from pellucid.parts.attentions.softmax import SoftmaxAttentionConfig


@dataclass(frozen=True)
class TiledAttentionConfig(SoftmaxAttentionConfig):
    form: ClassVar[str] = "tiled"
    formula: ClassVar[str] = "m' = max(m, max S), l' = l e^(m − m') + Σ e^(S − m'), Z = Y / l"
    source: ClassVar[str] = (
        "Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135 (FlashAttention)"
    )

    tile: int = field(metadata={"example": 128})
    """Keys of a tile. PyTorch's kernels choose their own, and the result does not depend on it.
    Example: 128"""

    def values(self, config: ConfigLike) -> tuple[str, ...]:
        """Returns none: the values of tiles have names of their own."""
        return ()

    def numbers(self, config: ConfigLike, axes: Axes) -> int:
        b, h, k, t, s, d = (axes[axis] for axis in "bhktsd")
        tiles = -(-s // self.tile)
        pairs = len([name for name in super().values(config) if name != "pattern"]) + 1  # and the powers
        inputs = 2 * b * k * s * d + h * t * s * int(config.positions.has_bias)
        inputs += b * t * s * int(not config.mask.is_none)
        running = 3 + d  # maximum, sum, rescaling (the first tile: lse), and output
        return inputs + b * h * t * (pairs * s + tiles * running)

    def check(self, config: ConfigLike) -> str | None:
        if not 1 <= self.tile <= 2**31:
            return f"{self.kind} needs a tile from 1 key to {2**31:,}, not {self.tile}."
        if "pattern" in config.dropout.rates:
            return (
                "dropout of the pattern needs a pattern, and tiled attention has none. Use "
                'dropout with pattern=0, or attention "softmax".'
            )
        return None
