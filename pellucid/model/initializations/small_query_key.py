"""Xavier's, but a tenth of it for queries and keys: scores start near 0, and so attention starts flat."""

import torch
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.model.initializations import xavier

SHARE = 0.1


def matrix(name: str, shape: tuple[int, ...], config: ModelConfig, dice: torch.Generator) -> Tensor:
    full = xavier.matrix(name, shape, config, dice)
    return full * SHARE if name.endswith(("q_proj.weight", "k_proj.weight")) else full
