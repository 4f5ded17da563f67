"""An unembedding of its own, W_U."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.unembeddings import Unembedding


@dataclass(frozen=True)
class LinearUnembedding(Unembedding):
    weight: ClassVar[str] = "unembed.weight"
    formula: ClassVar[str] = "ℓ = X W_U"
    source: ClassVar[str] = "Bengio et al. 2003, JMLR 3"
