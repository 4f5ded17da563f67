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
        if not 1e-6 <= self.limit <= 1e6:
            return f"a soft cap needs a limit from 1e-6 to 1e6, such as 50; got {self.limit:g}."
        return None
