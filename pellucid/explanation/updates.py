"""The arguments of an update: the rule with its settings by name, the parameters it updates, clipping."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from pellucid.base.arguments import check_float, check_one_of, check_text
from pellucid.base.errors import ConfigError, UsageError, did_you_mean, show, unknown
from pellucid.parts import find, kinds
from pellucid.parts.optimizers import OptimizerConfig

DEFAULT_RATE = 1.0
"""The learning rate of an update, by default: one step along the gradient itself."""
ARGUMENTS = (
    "target", "backward", "path", "smoothing", "update", "steps", "lr", "only", "freeze", "clip", "settings",
    "raw_tokens", "at", "depth", "top", "lines", "tokens", "batch",
)  # fmt: skip
"""The arguments of `trace` and `explain`, for the hint to a misspelled one."""


def read_update(
    update: str | None,
    steps: int,
    lr: float | None,
    only: str | Sequence[str],
    freeze: str | Sequence[str],
    clip: float | None,
    settings: Mapping[str, Any],
) -> tuple[OptimizerConfig, dict[str, Any]] | None:
    """Returns the optimizer, and the other arguments of `reference.optimizers.update`; None without an
    update.

    The settings are the fields of the rule's `OptimizerConfig`, and so are their defaults.
    """
    for name in settings:
        check_text("a name in settings", name)
    patterns = {"only": _check_patterns("only", only), "freeze": _check_patterns("freeze", freeze)}
    if update is None:
        given = {"lr": lr is not None, **patterns, "clip": clip is not None}
        names = [*settings, *(name for name, is_given in given.items() if is_given), *["steps"] * (steps > 1)]
        if wrong := [name for name in settings if name not in _known_settings()]:
            raise UsageError(f"there is no argument {wrong[0]!r}.{did_you_mean(wrong[0], ARGUMENTS)}")
        if names:
            raise UsageError(f"{names[0]!r} belongs to an update: give update='sgd', for example.")
        return None
    kind = check_one_of("update", update, kinds("optimizers"))
    rate = DEFAULT_RATE if lr is None else check_float("lr", lr)
    choice = {"lr": rate, "only": patterns["only"] or ["*"]}
    if patterns["freeze"]:
        choice["freeze"] = patterns["freeze"]
    if clip is not None:
        choice["clip"] = check_float("clip", clip, least=0)
        if not choice["clip"]:
            raise UsageError("clip must be above 0: gradients are scaled down to that norm.")
    return _make_optimizer(kind, settings), choice


def _known_settings() -> set[str]:
    parts = (find("optimizers", kind) for kind in kinds("optimizers"))
    return {field.name for part in parts for field in dataclasses.fields(part)}


def _make_optimizer(kind: str, settings: Mapping[str, Any]) -> OptimizerConfig:
    part = find("optimizers", kind)
    fields = {field.name: field.type for field in dataclasses.fields(part) if field.name != "lr"}
    values = {}
    for name, value in settings.items():
        if name not in fields:
            if not fields:
                raise UsageError(f"{kind} has no setting but lr; omit {name}.")
            raise UsageError(unknown(f"a setting of {kind}", name, fields))
        number = check_float(name, value)
        values[name] = int(number) if fields[name] is int and number == int(number) else number
    try:
        optimizer = part(**values)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    assert isinstance(optimizer, OptimizerConfig)
    return optimizer


def check_smoothing(value: Any) -> float:
    """Returns a label smoothing: a share from 0 to 1."""
    return check_float("smoothing", value, least=0, most=1)


def _check_patterns(parameter: str, given: Any) -> list[str]:
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise UsageError(f"{parameter} must be a pattern or several, not {show(given)}.")
    return [check_text(parameter, pattern) for pattern in given]
