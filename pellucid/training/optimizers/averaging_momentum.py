"""Momentum that averages: torch's `dampening` of β, from a momentum of nothing.

torch alone would take the whole first gradient as the first momentum.
"""

import torch

from pellucid.parts.optimizers.averaging_momentum import AveragingMomentum
from pellucid.training.groups import Named, group


def make(named: Named, settings: AveragingMomentum) -> torch.optim.Optimizer:
    beta = settings.beta
    made = torch.optim.SGD([group(named, settings.lr)], momentum=beta, dampening=beta)
    if beta:
        for parameter in named.values():
            made.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return made
