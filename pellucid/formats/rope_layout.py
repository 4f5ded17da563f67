"""RoPE's two layouts, and the permutation of rows that converts a model from one to the other.

"pairs" rotates channels 2i and 2i + 1 of a head together, "halves" rotates i and i + D/2. Moving row 2i of
each head's W_Q and W_K (and b_Q, b_K, and the gains of QK-norm) to i, and row 2i + 1 to i + D/2, gives the
same rotated channels in another order. The order is the same for queries and keys, so every score is
unchanged, up to the order of a sum. Values are not rotated and stay.
"""

import dataclasses
import re
from collections.abc import Mapping
from functools import partial

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.base.quantized import QuantizedWeight
from pellucid.config import ModelConfig
from pellucid.formats.pretrained import LazyWeights, Weight, as_lazy
from pellucid.parts.positions.rope import Rope

ROTATED = re.compile(r"blocks\.\d+\.attn\.(q|k)_(proj|norm)\.(weight|bias)")


def pairs_to_halves(rows: Array, d_head: int) -> Array:
    """Moves row h·D + 2i + j to h·D + j·D/2 + i.

    >>> pairs_to_halves(np.arange(8), d_head=4).tolist()
    [0, 2, 1, 3, 4, 6, 5, 7]
    """
    heads = rows.reshape(-1, d_head // 2, 2, *rows.shape[1:])
    return np.swapaxes(heads, 1, 2).reshape(rows.shape)


def halves_to_pairs(rows: Array, d_head: int) -> Array:
    """Moves row h·D + j·D/2 + i to h·D + 2i + j.

    >>> halves_to_pairs(np.array([0, 2, 1, 3]), d_head=4).tolist()
    [0, 1, 2, 3]
    """
    heads = rows.reshape(-1, 2, d_head // 2, *rows.shape[1:])
    return np.swapaxes(heads, 1, 2).reshape(rows.shape)


def _reorder(weight: Weight, layout: str, d_head: int) -> Weight:
    """Returns a weight with its rows in the order of a layout; a quantized one takes its scales along."""
    order = {"halves": pairs_to_halves, "pairs": halves_to_pairs}[layout]
    if isinstance(weight, QuantizedWeight):
        return weight.take(order(np.arange(len(weight.integers)), d_head))
    return order(np.asarray(weight), d_head)


def in_layout(
    config: ModelConfig, weights: Mapping[str, Array], layout: str
) -> tuple[ModelConfig, Mapping[str, Array]]:
    """Returns the same model with its RoPE in that layout."""
    positions = config.positions
    if not isinstance(positions, Rope) or positions.layout == layout:
        return config, weights
    changed = dataclasses.replace(config, positions=dataclasses.replace(positions, layout=layout))
    reorder = partial(_reorder, layout=layout, d_head=config.d_head)
    tensors = as_lazy(weights).tensors
    return changed, LazyWeights(
        {name: tensor.map(reorder) if ROTATED.fullmatch(name) else tensor for name, tensor in tensors.items()}
    )
