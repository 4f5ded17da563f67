"""Recipe keys of the previous version: read as what they are called now, for one more version.

`train.bad = "stop"` is `train.on_nonfinite = "stop"`, and `train.compile = "no"` is `train.compile = false`.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from pellucid.base.errors import ConfigError

RENAMED = {
    "optimizer.decay": "optimizer.weight_decay",
    "optimizer.adam_decay": "optimizer.adam_weight_decay",
    "train.bad": "train.on_nonfinite",
    "train.chunk": "train.logits_chunk",
    "train.initialisation": "train.initialization",
    "train.record": "train.record_every",
    "train.recompute": "train.activation_checkpointing",
    "train.smoothing": "train.label_smoothing",
    "train.z": "train.z_loss",
}
BOOLEANS = ("train.activation_checkpointing", "train.compile", "train.deterministic", "train.tensorboard")
"""Keys whose values were `yes` and `no`; a quoted `"true"` or `"false"` is read as well."""
VALUES = {"yes": True, "no": False, "true": True, "false": False}


def translate(table: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of a recipe's table with the keys and values of this version."""
    result: dict[str, Any] = copy.deepcopy(dict(table))
    for old, new in _renamed_in(result):
        (section, key), new_key = old.split("."), new.partition(".")[2]
        if new_key in result[section]:
            raise ConfigError(f"{old} is now {new}, and both are set: omit {old}.")
        # In its place, so that a file keeps the order of its keys.
        result[section] = {new_key if k == key else k: v for k, v in result[section].items()}
    for section, key in _quoted_booleans_in(result):
        result[section][key] = VALUES[result[section][key]]
    return result


def translate_override(override: str) -> str:
    """
    >>> translate_override("train.bad=stop"), translate_override("train.compile=no")
    ('train.on_nonfinite=stop', 'train.compile=false')
    """
    key, equals, value = override.partition("=")
    key = RENAMED.get(key, key)
    if key in BOOLEANS and value in VALUES:
        value = str(VALUES[value]).lower()
    return f"{key}{equals}{value}"


def describe_renamed(table: Mapping[str, Any], overrides: list[str]) -> list[str]:
    """Returns one line for each key or value of the previous version.

    >>> describe_renamed({"train": {"z": 1e-4}}, ["train.compile=no"])
    ['train.z is now train.z_loss', 'train.compile=no is now train.compile=false']
    """
    lines = [f"{old} is now {new}" for old, new in _renamed_in(table)]
    current = translate(table)
    given = [f"{s}.{k}={table[s][k]}" for s, k in _quoted_booleans_in(table) if k in current[s]]
    for override in (*given, *overrides):
        key, new = override.partition("=")[0], translate_override(override)
        if key in RENAMED:
            lines.append(f"{key} is now {RENAMED[key]}")
        elif new != override:
            lines.append(f"{override} is now {new}")
    return list(dict.fromkeys(lines))


def _renamed_in(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for old, new in RENAMED.items():
        section, _, key = old.partition(".")
        if isinstance(table.get(section), Mapping) and key in table[section]:
            yield old, new


def _quoted_booleans_in(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in BOOLEANS:
        section, _, key = name.partition(".")
        values = table.get(section)
        if isinstance(values, Mapping) and isinstance(values.get(key), str) and values[key] in VALUES:
            yield section, key
