"""Feed-forward with GELU, x Φ(x), in its exact form.

Hendrycks and Gimpel 2016, arXiv:1606.08415.
"""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts.mlps import Mlp


@dataclass(frozen=True)
class Gelu(Mlp):
    form: ClassVar[str] = "plain"
    activation: ClassVar[str] = "gelu"
