"""Soft caps, which bound attention scores and logits."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import ConfigLike, Part


@dataclass(frozen=True)
class CapConfig(Part):
    family: ClassVar[str] = "caps"


@dataclass(frozen=True)
class NoCap(CapConfig):
    """No cap: the values are unbounded."""

    kind: ClassVar[str] = "none"


@dataclass(frozen=True)
class TanhCap(CapConfig):
    """The soft cap: the identity near 0, approaching ±limit for large values."""

    kind: ClassVar[str] = "tanh"
    formula: ClassVar[str] = "limit · tanh(s / limit)"
    source: ClassVar[str] = "Gemma team 2024, arXiv:2408.00118, section 2"

    limit: float = 50.0

    def check(self, config: ConfigLike) -> str | None:
        if not 1e-6 <= self.limit <= 1e6:
            return f"a soft cap needs a limit from 1e-6 to 1e6, such as 50; got {self.limit:g}."
        return None
