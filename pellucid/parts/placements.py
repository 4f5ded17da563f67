"""Places of the norms in a block. A placement is data: the places, of three, that have a norm.

    read = norm(X)                   `norm`: the sub-layer's input
    written = out_norm(f(read))      `out_norm`: the sub-layer's output
    X' = post_norm(X + written)      `post_norm`: the stream after the sum

The norm at a place is called `attn_norm`, `mlp_out_norm` and so on.
"""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import Part


@dataclass(frozen=True)
class PlacementConfig(Part):
    family: ClassVar[str] = "placements"
    places: ClassVar[tuple[str, ...]]
    final: ClassVar[bool] = True
    """Whether there is a final norm before the unembedding."""


@dataclass(frozen=True)
class Pre(PlacementConfig):
    """Pre-norm: the input of each sub-layer is normalized, the stream itself never."""

    kind: ClassVar[str] = "pre"
    places: ClassVar[tuple[str, ...]] = ("norm",)
    formula: ClassVar[str] = "X + f(norm X)"
    source: ClassVar[str] = "Xiong et al. 2020, arXiv:2002.04745"


@dataclass(frozen=True)
class Post(PlacementConfig):
    """Post-norm: the stream is normalized after every sub-layer, so there is no final norm."""

    kind: ClassVar[str] = "post"
    places: ClassVar[tuple[str, ...]] = ("post_norm",)
    final: ClassVar[bool] = False
    formula: ClassVar[str] = "norm(X + f(X))"
    source: ClassVar[str] = "Vaswani et al. 2017, arXiv:1706.03762, section 3.1"


@dataclass(frozen=True)
class OnOutput(PlacementConfig):
    """Output norm: the output of each sub-layer is normalized, its input is not."""

    kind: ClassVar[str] = "output"
    places: ClassVar[tuple[str, ...]] = ("out_norm",)
    formula: ClassVar[str] = "X + norm(f(X))"
    source: ClassVar[str] = "OLMo team 2024, arXiv:2501.00656"


@dataclass(frozen=True)
class Sandwich(PlacementConfig):
    """Sandwich norm: the input and the output of each sub-layer are normalized."""

    kind: ClassVar[str] = "sandwich"
    places: ClassVar[tuple[str, ...]] = ("norm", "out_norm")
    formula: ClassVar[str] = "X + norm(f(norm X))"
    source: ClassVar[str] = "Ding et al. 2021, arXiv:2105.13290"
