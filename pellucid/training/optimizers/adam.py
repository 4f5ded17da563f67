"""Adam: torch's own, fused into one kernel where the device has it."""

import torch

from pellucid.parts.optimizers.adam import Adam
from pellucid.training.groups import Named, group
from pellucid.training.optimizers import fused


def make(named: Named, settings: Adam) -> torch.optim.Optimizer:
    return torch.optim.Adam(
        [group(named, settings.lr)], betas=settings.betas_at(0), eps=settings.eps, fused=fused(named)
    )
