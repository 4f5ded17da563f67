"""A tied unembedding: the embedding's rows read the stream as well as write it.

The embedding then gets its gradient from both ends.
"""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.unembeddings import Unembedding


@dataclass(frozen=True)
class TiedUnembedding(Unembedding):
    weight: ClassVar[str] = "embed.weight"
    formula: ClassVar[str] = "ℓ = X Eᵀ"
    source: ClassVar[str] = "Press and Wolf 2016, arXiv:1608.05859"
