"""AdamW: torch's own, fused into one kernel where the device has it.

Each number is updated from itself alone, so the result does not depend on threads.
"""

import torch

from pellucid.parts.optimizers.adamw import AdamW
from pellucid.training.groups import Named, by_decay
from pellucid.training.optimizers import fused


def make(named: Named, settings: AdamW) -> torch.optim.Optimizer:
    groups = by_decay(named, settings.lr, settings.weight_decay)
    return torch.optim.AdamW(groups, betas=settings.betas_at(0), eps=settings.eps, fused=fused(named))
