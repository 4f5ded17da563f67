"""Rotary position embedding (RoPE): channel pair i of q and k is rotated by position · base^(−2i/D).

The dot product of two rotated vectors depends on the difference of their angles, so positions enter a
score only through their difference.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pellucid.parts import ConfigLike
from pellucid.parts.positions import PositionsConfig, RotaryAngles, Table


@dataclass(frozen=True)
class Rope(PositionsConfig):
    formula: ClassVar[str] = "θ_{t,i} = t · base^(−2i/D)"
    source: ClassVar[str] = "Su et al. 2021, arXiv:2104.09864"

    base: float = 10_000.0
    layout: str = "halves"  # pairs of channels: i and i + D/2; in the layout "pairs", 2i and 2i + 1

    def frequencies(self, d_head: int) -> Table:
        """Returns the angle [D/2] by which each pair rotates from one position to the next."""
        return self.base ** (-2 * np.arange(d_head // 2) / d_head)

    def rotation(self, positions: Table, d_head: int) -> RotaryAngles:
        return RotaryAngles(positions[..., None] * self.frequencies(d_head), self.layout)

    def check(self, config: ConfigLike) -> str | None:
        if config.d_head % 2:
            return (
                f"{self.kind} rotates pairs of channels, and d_head={config.d_head} is odd. "
                f"Use d_head={config.d_head + 1}, or change d_model or n_head so that it is even."
            )
        if self.base < 1:
            return f"{self.kind} needs a base of 1 or more, such as 10000; got {self.base:g}."
        if self.layout not in ("halves", "pairs"):
            return f"{self.kind} has the layouts halves and pairs, not {self.layout!r}."
        return None


def describe_shrinking(kind: str, factor: float) -> str | None:
    """Returns why a factor cannot extend the context; None if it can."""
    if factor >= 1:
        return None
    return (
        f"{kind} extends the context by factor, and factor={factor:g} would shrink it. Use factor=1 or more."
    )


def describe_wrong_context(kind: str, original_context: int) -> str | None:
    """Returns why a number cannot be the context length of the training; None if it can."""
    if 1 <= original_context < 2**63:
        return None
    return (
        f"{kind} needs the context length of the training as original_context, from 1 to 2^63 − 1; got "
        f"{original_context}."
    )
