"""Which parameters decay, and which are Muon's: the groups that an optimizer is given.

Every group has `initial_lr`, the rate that a schedule's factor multiplies, and the names of its parameters.
"""

from collections.abc import Mapping
from typing import Any

from torch import nn

from pellucid.parts.optimizers import decays
from pellucid.parts.optimizers.muon import hidden

Named = Mapping[str, nn.Parameter]
Group = dict[str, Any]


def group(named: Named, lr: float, **settings: Any) -> Group:
    """One group, as torch's optimizers take it: parameters with their names."""
    return {"params": list(named.items()), "lr": lr, "initial_lr": lr} | settings


def by_decay(named: Named, lr: float, decay: float) -> list[Group]:
    """The parameters that decay, and those that do not; never a group of none."""
    decaying = {name: value for name, value in named.items() if decays(name, tuple(value.shape))}
    others = {name: value for name, value in named.items() if name not in decaying}
    made = [group(decaying, lr, weight_decay=decay), group(others, lr, weight_decay=0.0)]
    return [one for one in made if one["params"]]


def by_muon(named: Named) -> tuple[dict[str, nn.Parameter], dict[str, nn.Parameter]]:
    """The hidden matrices, and the rest."""
    inside = {name: value for name, value in named.items() if hidden(name, tuple(value.shape))}
    return inside, {name: value for name, value in named.items() if name not in inside}
