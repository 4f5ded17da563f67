"""GPT-2's: N(0, 0.02), and 0.02 / √(2L) for the matrices that write to the stream, so that its size does not
grow with the number of layers.

Radford et al. 2019, section 2.3.
"""

import torch
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.model.initializations import normal, writes

DEVIATION = 0.02


def matrix(name: str, shape: tuple[int, ...], config: ModelConfig, dice: torch.Generator) -> Tensor:
    depth = 2 * config.n_layer if writes(name) else 1
    return normal(shape, DEVIATION / depth**0.5, dice)
