"""Optimizers by name, one file per kind; each has `make(named, settings)`.

A step of a run is `set_rate`, `set_step` and `update`. What an optimizer remembers goes
into a checkpoint by the names of its parameters, as tensors and plain numbers.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from pellucid import registry
from pellucid.errors import ConfigError, FileError
from pellucid.parts import optimizers as parts
from pellucid.training.distributed.pieces import in_pieces, like
from pellucid.training.groups import Named

PLAIN = ("lr", "betas")
"""The numbers of a group that change during a run."""


def make(named: Named, settings: parts.OptimizerConfig) -> Optimizer:
    """The optimizer of a recipe for these parameters."""
    if not named:
        raise ConfigError("there is no parameter to train; let train.only and train.freeze leave some.")
    made = registry.module_of(__name__, settings.kind, "optimizer").make(named, settings)
    assert isinstance(made, Optimizer)
    return made


def set_rate(optimizer: Optimizer, factor: float) -> None:
    """Multiply every group's own rate with a schedule's factor."""
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * factor


def set_step(optimizer: Optimizer, settings: parts.OptimizerConfig, step: int) -> None:
    """Set what else changes from step to step: β₂ while it warms up."""
    if betas := settings.betas_at(step):
        for group in optimizer.param_groups:
            if "betas" in group:
                group["betas"] = betas


def update(optimizer: Optimizer, finite: Tensor) -> None:
    """Move the parameters, if their gradients are numbers; a fused kernel decides that on the device, so that
    nobody has to wait for it."""
    groups = optimizer.param_groups
    if all(one.get("fused") and not any(map(in_pieces, one["params"])) for one in groups):
        optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
        optimizer.step()
    elif finite:
        optimizer.step()


def state(optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All that it remembers: tensors by NAME.KEY, and the numbers of each group as JSON has them."""
    tensors = {
        f"{name}.{key}": value
        for name, parameter in _named(optimizer)
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }
    groups = [
        {"names": list(group["param_names"])} | {key: group[key] for key in PLAIN if key in group}
        for group in optimizer.param_groups
    ]
    return tensors, {"groups": groups}


def restore(optimizer: Optimizer, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
    """Remember what `state` told, on an optimizer that was made alike; it goes on to the same bits.

    Rates of a recipe that was changed in between hold from the next `set_rate` on.
    """
    groups = optimizer.param_groups
    ours, theirs = [group["param_names"] for group in groups], [given["names"] for given in plain["groups"]]
    if ours != theirs:
        strange = sorted({name for names in ours for name in names} ^ {n for names in theirs for n in names})
        about = f"{strange[0]!r} is in only one of them" if strange else "they are grouped otherwise"
        raise FileError(
            f"the saved optimizer is not of these parameters: {about}. Resume with the recipe of the run."
        )
    keys: dict[str, list[str]] = defaultdict(list)
    for full in tensors:
        owner, _, key = full.rpartition(".")
        keys[owner].append(key)
    state = {n: _remembered(n, parameter, tensors, keys[n]) for n, parameter in _named(optimizer)}
    if lost := sorted(set(tensors) - {f"{name}.{key}" for name, own in state.items() for key in own}):
        raise FileError(f"the saved optimizer has {lost[0]!r}, which no parameter of this run remembers.")
    for group, given in zip(groups, plain["groups"], strict=True):
        for key in PLAIN:
            if (key in given) != (key in group):
                raise FileError(
                    f"the saved optimizer {'has' if key in given else 'lacks'} {key!r}, so it is of another "
                    "kind. Resume with the recipe of the run."
                )
            if key in given:
                value = given[key]
                group[key] = tuple(value) if isinstance(value, list) else value
    for name, parameter in _named(optimizer):
        optimizer.state.pop(parameter, None)
        if state[name]:
            optimizer.state[parameter] = state[name]


def fused(named: Named) -> bool:
    """Whether torch has one kernel for the whole update on the parameters' device: CPUs and CUDA do."""
    return all(value.device.type in ("cpu", "cuda") for value in named.values())


def _named(optimizer: Optimizer) -> list[tuple[str, Tensor]]:
    groups = optimizer.param_groups
    return [pair for group in groups for pair in zip(group["param_names"], group["params"], strict=True)]


def _remembered(
    name: str, parameter: Tensor, tensors: Mapping[str, Tensor], keys: list[str]
) -> dict[str, Tensor]:
    """A parameter's own tensors, copied to where it lies; the count of steps stays what it is. Each is read
    once: they may lie in a file."""
    own: dict[str, Tensor] = {}
    for key in keys:
        full = f"{name}.{key}"
        value = tensors[full]
        if value.dim() and value.shape != parameter.shape:
            raise FileError(
                f"{full!r} has the shape {tuple(value.shape)}, its parameter {tuple(parameter.shape)}."
            )
        own[key] = like(parameter, value)
    return own
