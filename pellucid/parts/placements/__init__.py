"""Where the norms of a block stand. A placement is data: the places, of three, that have a norm.

    read = norm(X)                   `norm`: what the sub-layer reads
    written = out_norm(f(read))      `out_norm`: what it writes
    X' = post_norm(X + written)      `post_norm`: the stream after it

The norm at a place is called `attn_norm`, `mlp_out_norm` and so on.
"""

from dataclasses import dataclass
from typing import ClassVar

from pellucid.parts import Part

PLACES = ("norm", "out_norm", "post_norm")


@dataclass(frozen=True)
class Placement(Part):
    family: ClassVar[str] = "placements"
    places: ClassVar[tuple[str, ...]]
    final: ClassVar[bool] = True
    """Whether the stream is normed once more before the unembedding."""
