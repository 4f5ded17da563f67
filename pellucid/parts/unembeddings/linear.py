"""An unembedding of its own, W_U."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.unembeddings import Unembedding


@dataclass(frozen=True)
class LinearUnembedding(Unembedding):
    weight: ClassVar[str] = "unembed.weight"
