"""Strict reading of a recipe's tables: an unknown key or a value of another type is refused by name."""

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from typing import Any

from pellucid.base.errors import ConfigError, did_you_mean, unknown
from pellucid.config import ModelConfig, preset_text, presets
from pellucid.data.sources.settings import Paths
from pellucid.generation.settings.sampling import Sampling
from pellucid.parts import Part
from pellucid.training.recipe.toml import show_value

MODEL_KEYS = tuple(entry.name for entry in dataclasses.fields(ModelConfig))
FROM_DATA = ("vocab_size",)
"""Keys of the model that the tokenizer decides."""


def read_section(kind: Any, given: Any, path: str) -> Any:
    """Returns a section as a dataclass, its keys checked by name and type."""
    where = path or "a recipe"
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} is a table of keys, not {show_value(given)}.")
    fields = {entry.name: entry for entry in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for key, value in given.items():
        name = f"{path}.{key}" if path else key
        if key not in fields:
            raise ConfigError(f"no key {name!r}; {where} has {', '.join(fields)}.{did_you_mean(key, fields)}")
        values[key] = _field(fields[key], value, name)
    needed = [
        entry.name
        for entry in fields.values()
        if entry.default is entry.default_factory is dataclasses.MISSING
    ]
    if missing := [key for key in needed if key not in values]:
        raise ConfigError(f"{where} needs {', '.join(needed)}; missing: {', '.join(missing)}.")
    return kind(**values)


def _field(entry: Any, value: Any, name: str) -> Any:
    kind = entry.type
    if isinstance(kind, type) and issubclass(kind, Part):
        usual = {"kind": entry.default_factory().kind}  # settings alone are those of the usual kind
        return kind.read(usual | dict(value) if isinstance(value, Mapping) else value)
    if kind is Sampling:
        usual = entry.default_factory().to_dict()  # settings that are not given are the usual ones
        given = usual | dict(value) if isinstance(value, Mapping) else value
        return Sampling.read(given, name, path=name, error=ConfigError)
    if dataclasses.is_dataclass(kind):
        return read_section(kind, value, name)
    if kind == bool | str:
        if not isinstance(value, bool | str):
            raise ConfigError(f"{name} must be true, false or auto, not {show_value(value)}.")
        return value
    if kind in (float, float | str) and type(value) is int:
        value = float(value) if abs(value) < 2**1000 else math.inf
    if kind == tuple[str, ...]:
        patterns = [value] if isinstance(value, str) else value
        if not isinstance(patterns, list | tuple) or not all(isinstance(one, str) for one in patterns):
            raise ConfigError(f"{name} is a pattern or a list of them, not {show_value(value)}.")
        return tuple(patterns)
    if kind == tuple[tuple[int, int], ...]:
        return _pairs(value, name)
    if kind == Mapping[str, float]:
        return _weights(value, name)
    if kind == tuple[float, ...]:
        if not isinstance(value, list | tuple) or any(type(one) not in (int, float) for one in value):
            raise ConfigError(
                f"{name} must be a list of numbers such as [0.7, 0.3], not {show_value(value)}."
            )
        return tuple(map(float, value))
    if kind is bool:
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be true or false, not {show_value(value)}.")
        return value
    if kind == Paths:
        return _paths(value, name)
    plain = {int: "an integer", float: "a number", str: "a string", float | str: "a number or a string"}
    if kind in plain and (not isinstance(value, kind) or isinstance(value, bool) or value != value):
        whole = (
            f": use {value:.0f}" if kind is int and isinstance(value, float) and value.is_integer() else ""
        )
        raise ConfigError(f"{name} must be {plain[kind]}, not {show_value(value)}{whole}.")
    return _model(value, name) if name == "model" else value


def _pairs(value: Any, name: str) -> tuple[tuple[int, int], ...]:
    """Returns pairs of integers, each written as a list."""
    pairs = value if isinstance(value, list | tuple) else [value]
    for pair in pairs:
        if not isinstance(pair, list | tuple) or [type(number) for number in pair] != [int, int]:
            raise ConfigError(
                f"{name} must be a list of pairs such as [[100, 200]], not {show_value(value)}."
            )
    return tuple((first, second) for first, second in pairs)


def _weights(value: Any, name: str) -> dict[str, float]:
    """Returns a table of weights, which are finite and not negative."""
    if not isinstance(value, Mapping):
        raise ConfigError(
            f'{name} must be a table of weights such as {{ " the" = 0.5 }}, not {show_value(value)}.'
        )
    for key, weight in value.items():
        if type(weight) not in (int, float) or not 0 <= weight < math.inf:
            raise ConfigError(
                f"{name} has {show_value(weight)} for {key!r}: a weight is a finite number from 0."
            )
    return {key: float(weight) for key, weight in value.items()}


def _paths(value: Any, name: str) -> str | tuple[str, ...]:
    """Returns one path, or several; a list of one is that one."""
    paths = [value] if isinstance(value, str) else value
    if not isinstance(paths, list | tuple) or not paths or not all(isinstance(one, str) for one in paths):
        raise ConfigError(f"{name} must be a path or a list of paths, not {show_value(value)}.")
    return paths[0] if len(paths) == 1 else tuple(paths)


def _model(given: Any, name: str) -> dict[str, Any]:
    """Returns the keys of a model, whose values the config checks once the vocabulary is known."""
    if isinstance(given, str):
        return read_preset(given, name)
    if not isinstance(given, Mapping):
        found = show_value(given)
        raise ConfigError(f"{name} is a table of keys or the name of a preset, not {found}.")
    for key in given:
        if key in FROM_DATA:
            raise ConfigError(f"{name}.{key} is what the tokenizer has: set data.vocab_size.")
        if key not in MODEL_KEYS:
            known = [known for known in MODEL_KEYS if known not in FROM_DATA]
            raise ConfigError(unknown(f"a key of {name}", key, known))
    return dict(given)


def read_preset(preset: str, name: str) -> dict[str, Any]:
    """Returns the keys of a preset's model without those that the tokenizer decides; `name` is the key that
    an error names."""
    if preset not in presets():
        raise ConfigError(unknown(name, preset, presets()))
    config = tomllib.loads(preset_text(preset))["config"]
    return {key: value for key, value in config.items() if key not in FROM_DATA}
