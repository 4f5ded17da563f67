"""Linear attention with φ(x) = elu(x) + 1: x + 1 above 0, e^x below."""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.attentions import LinearAttentionConfig


@dataclass(frozen=True)
class LinearElu(LinearAttentionConfig):
    feature: ClassVar[str] = "elu_plus_one"
    formula: ClassVar[str] = "P = φ(Q) φ(K)ᵀ / row sums, φ(x) = elu(x) + 1, Z = P V"
    source: ClassVar[str] = "Katharopoulos et al. 2020, arXiv:2006.16236"
