"""A value as TOML writes it, and a value of the command line read as TOML."""

import json
import re
import tomllib
from collections.abc import Mapping
from datetime import date, time
from typing import Any

from pellucid.base.errors import ConfigError
from pellucid.base.toml import load_toml


def format_toml(value: Any) -> str:
    """Returns a value as a recipe has it."""
    if isinstance(value, Mapping):
        entries = ", ".join(f"{_format_key(key)} = {format_toml(entry)}" for key, entry in value.items())
        return f"{{ {entries} }}" if entries else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(format_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, date | time):
        return value.isoformat()
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML refuses it, JSON does not
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise ConfigError(f"{value!r} is not UTF-8, and a recipe is: give another name.")
    return text


def _format_key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else format_toml(key)


def parse_value(text: str) -> Any:
    """Returns a value as TOML reads it; what is not TOML is a string.

    >>> parse_value("3e-4"), parse_value("[1, 2]"), parse_value("cosine")
    (0.0003, [1, 2], 'cosine')
    """
    try:
        return load_toml(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
