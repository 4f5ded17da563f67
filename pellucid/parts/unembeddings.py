"""The unembedding, which computes one logit per token from a position's final hidden state."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import Part


@dataclass(frozen=True)
class UnembeddingConfig(Part):
    family: ClassVar[str] = "unembeddings"
    weight: ClassVar[str]
    """The name of the matrix [V C] whose rows the hidden state is multiplied with."""


@dataclass(frozen=True)
class LinearUnembedding(UnembeddingConfig):
    """An unembedding matrix of its own, W_U."""

    kind: ClassVar[str] = "linear"
    weight: ClassVar[str] = "unembed.weight"
    formula: ClassVar[str] = "ℓ = X W_U"
    source: ClassVar[str] = "Bengio et al. 2003, JMLR 3"


@dataclass(frozen=True)
class TiedUnembedding(UnembeddingConfig):
    """Tied embeddings: the unembedding is the embedding matrix.

    Its gradient is the sum of the parts through the embedding and through the logits.
    """

    kind: ClassVar[str] = "tied"
    weight: ClassVar[str] = "embed.weight"
    formula: ClassVar[str] = "ℓ = X Eᵀ"
    source: ClassVar[str] = "Press and Wolf 2016, arXiv:1608.05859"
