"""The factors of somebody else's schedule: what it makes of a rate of 1."""

import warnings
from collections.abc import Callable
from typing import Any

import torch


def factors(make: Callable[[torch.optim.Optimizer], Any], count: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule, found = make(optimizer), []
    for _ in range(count):
        found.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            schedule.step()
    return found
