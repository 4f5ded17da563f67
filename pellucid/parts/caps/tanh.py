"""The soft cap: small scores stay, large ones approach ±limit."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import Model
from pellucid.parts.caps import Cap


@dataclass(frozen=True)
class TanhCap(Cap):
    formula: ClassVar[str] = "limit · tanh(s / limit)"
    source: ClassVar[str] = "Gemma team 2024, arXiv:2408.00118, section 2"

    limit: float = 50.0

    def check(self, model: Model) -> str | None:
        return None if self.limit > 0 else f"a soft cap needs a limit above 0, not {self.limit:g}."
