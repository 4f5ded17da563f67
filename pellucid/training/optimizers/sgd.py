"""Stochastic gradient descent: torch's own."""

import torch

from pellucid.parts.optimizers.sgd import Sgd
from pellucid.training.groups import Named, group


def make(named: Named, settings: Sgd) -> torch.optim.Optimizer:
    return torch.optim.SGD([group(named, settings.lr)])
