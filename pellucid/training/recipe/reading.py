"""The `[model]` table of a recipe: keys of a model, or the name of a preset."""

import dataclasses
import tomllib
from collections.abc import Mapping
from typing import Any

from pellucid.base.errors import ConfigError, show, unknown
from pellucid.config import ModelConfig, preset_text, presets

MODEL_KEYS = tuple(entry.name for entry in dataclasses.fields(ModelConfig))
FROM_DATA = ("vocab_size",)
"""Keys of the model that the tokenizer decides."""


def read_model(given: Any, name: str) -> dict[str, Any]:
    """Returns the keys of a model, whose values the config checks once the vocabulary is known."""
    if isinstance(given, str):
        return read_preset(given, name)
    if not isinstance(given, Mapping):
        raise ConfigError(f"{name} must be a table of keys or the name of a preset, not {show(given)}.")
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
