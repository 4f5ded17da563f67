"""Momentum that accumulates: torch's own form."""

import torch

from pellucid.parts.optimizers.momentum import Momentum
from pellucid.training.groups import Named, group


def make(named: Named, settings: Momentum) -> torch.optim.Optimizer:
    return torch.optim.SGD([group(named, settings.lr)], momentum=settings.beta)
