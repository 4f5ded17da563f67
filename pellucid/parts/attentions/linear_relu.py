"""Linear attention with φ(x) = max(0, x).

All features can be 0, and so can a row of φ(Q) φ(K)ᵀ: then z is 0.
"""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.attentions import LinearAttentionConfig


@dataclass(frozen=True)
class LinearRelu(LinearAttentionConfig):
    feature: ClassVar[str] = "relu"
    formula: ClassVar[str] = "P = φ(Q) φ(K)ᵀ / row sums, φ(x) = max(0, x), Z = P V"
    source: ClassVar[str] = "Choromanski et al. 2020, arXiv:2009.14794 (generalized attention, f = ReLU)"
