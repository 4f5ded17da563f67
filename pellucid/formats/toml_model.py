"""A small model in one TOML file: config, words and weights, as the teaching models are stored."""

from pathlib import Path
from typing import Any

import numpy as np

from pellucid.base import schema
from pellucid.base.dtypes import Array
from pellucid.base.errors import ConfigError, FileError
from pellucid.base.schema import Field
from pellucid.base.toml import parse_toml
from pellucid.config import ModelConfig
from pellucid.formats.pretrained import Pretrained, Provenance, shape_mismatch
from pellucid.text.word_level import WordTokenizer

TABLES = (Field("config", Any), Field("words", Any, None), Field("weights", Any, None))
"""The tables of a model; what they hold is read below."""


def read(name: str, text: str) -> Pretrained:
    """Returns the model of a TOML text; `name` is its path, or a preset's name."""
    data = parse(name, text)
    config, words = read_config(name, data), data.get("words", [])
    if not isinstance(words, list) or not all(
        isinstance(word, str) and word.split() == [word] for word in words
    ):
        raise FileError(f"{name}: words must be a list of strings without spaces.")
    if len(words) != config.vocab_size or len(set(words)) != len(words):
        raise FileError(
            f"{name}: vocab_size is {config.vocab_size}, so there must be as many different words; "
            f"got {len(set(words))}."
        )
    weights = _read_weights(name, config, data["weights"])
    source = Provenance(Path(name), "toml", "pellucid", dict.fromkeys(weights, "F64"), len(text.encode()))
    return Pretrained(Path(name).stem, config, weights, WordTokenizer(tuple(words)), source)


def parse(name: str, text: str) -> dict[str, Any]:
    """Returns the tables of a TOML text."""
    return parse_toml(text, name)


def read_config(name: str, data: dict[str, Any]) -> ModelConfig:
    """Returns the config of a parsed TOML model; it need not have weights."""
    schema.read(TABLES, data, name, path=f"{name}: ", error=FileError)
    try:
        return ModelConfig.from_dict(data["config"])
    except ConfigError as error:
        raise ConfigError(f"{name}, [config]: {error}") from None


def _read_weights(name: str, config: ModelConfig, given: Any) -> dict[str, Array]:
    if not isinstance(given, dict):
        raise FileError(f"{name}: [weights] must be a table of names.")
    weights = {key: _read_array(name, key, value) for key, value in given.items()}
    if why := shape_mismatch(config.parameters(), {key: array.shape for key, array in weights.items()}):
        raise FileError(f"{name}: {why}{'' if why.endswith('?') else '.'}")
    return {key: weights[key] for key in config.parameters()}


def _read_array(name: str, key: str, value: Any) -> Array:
    try:
        array = np.array(value)
    except ValueError:
        array = np.array("ragged")
    if array.dtype.kind not in "if" or not np.isfinite(array).all():
        raise FileError(f"{name}: the weight {key!r} is not a table of numbers.")
    return array.astype(np.float64)
