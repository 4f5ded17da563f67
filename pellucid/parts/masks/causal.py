"""The causal mask: a position sees itself and what came before it."""

from dataclasses import dataclass
from typing import Any, ClassVar

from pellucid.parts.masks import Mask


@dataclass(frozen=True)
class Causal(Mask):
    causal: ClassVar[bool] = True

    def allowed(self, queries: Any, keys: Any) -> Any:
        return keys <= queries[..., :, None]
