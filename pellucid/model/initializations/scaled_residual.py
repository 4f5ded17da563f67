"""By inputs and depth: N(0, 1/√in), and 1/√(2L) of that for the matrices that write to the stream, of which
there are 2L.

LeCun et al. 1998, Efficient BackProp, for the inputs; Radford et al. 2019, section 2.3, for the depth. Tables
that are looked up have no inputs; they get N(0, 1/√C).
"""

import torch
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.model.initializations import TABLES, normal, writes


def matrix(name: str, shape: tuple[int, ...], config: ModelConfig, dice: torch.Generator) -> Tensor:
    if name in TABLES:
        return normal(shape, config.d_model**-0.5, dice)
    depth = 2 * config.n_layer if writes(name) else 1
    return normal(shape, (shape[1] * depth) ** -0.5, dice)
