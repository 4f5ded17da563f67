"""Xavier's: uniform in ±√(6 / (in + out)), which keeps the size of a signal in both directions.

Glorot and Bengio 2010. Tables that are looked up have no inputs; they get N(0, 1/√C).
"""

import torch
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.model.initializations import TABLES, normal


def matrix(name: str, shape: tuple[int, ...], config: ModelConfig, dice: torch.Generator) -> Tensor:
    if name in TABLES:
        return normal(shape, config.d_model**-0.5, dice)
    limit = (6 / sum(shape)) ** 0.5
    spread = torch.empty(shape, dtype=torch.float64).uniform_(-1.0, 1.0, generator=dice)
    return spread.mul(limit)
