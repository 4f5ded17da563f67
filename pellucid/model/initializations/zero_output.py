"""GPT-2's, but 0 for the matrices that write to the stream: every block starts as the identity.

Zhang et al. 2019, arXiv:1901.09321, start the last layer of each residual branch at 0.
"""

import torch
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.model.initializations import gpt2, writes


def matrix(name: str, shape: tuple[int, ...], config: ModelConfig, dice: torch.Generator) -> Tensor:
    drawn = gpt2.matrix(name, shape, config, dice)  # also where it is not used: the rest is then GPT-2's
    return torch.zeros_like(drawn) if writes(name) else drawn
