"""Adam with an L2 penalty: what torch's Adam calls `weight_decay`, fused where the device has it."""

import torch

from pellucid.parts.optimizers.adam_l2 import AdamL2
from pellucid.training.groups import Named, by_decay
from pellucid.training.optimizers import fused


def make(named: Named, settings: AdamL2) -> torch.optim.Optimizer:
    groups = by_decay(named, settings.lr, settings.weight_decay)
    return torch.optim.Adam(groups, betas=settings.betas_at(0), eps=settings.eps, fused=fused(named))
