"""JSON schemas by their definition (JSON Schema 2020-12): whether a value is one that a schema describes.

It reads values and shares nothing with the automata of `constraints/json_schema.py`, which read bytes. As
there, an object has no keys but those of its `properties`.
"""

import re
from collections.abc import Mapping
from typing import Any

TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def describes(schema: Mapping[str, Any], value: Any, root: Mapping[str, Any] | None = None) -> bool:
    """Returns whether a schema describes a value; `root` is the schema in which `$ref` looks for others.

    >>> pair = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 2}
    >>> describes(pair, [1, 0]), describes(pair, [1, -1]), describes(pair, [1]), describes(pair, [1, True])
    (True, False, False, False)
    """
    root = schema if root is None else root
    if "$ref" in schema:
        target: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        return describes(target, value, root)
    if "anyOf" in schema and not any(describes(one, value, root) for one in schema["anyOf"]):
        return False
    if "enum" in schema and not any(_is_same(value, one) for one in schema["enum"]):
        return False
    if "const" in schema and not _is_same(value, schema["const"]):
        return False
    if "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(_has_kind(value, kind) for kind in kinds):
            return False
    if isinstance(value, dict):
        return _describes_object(schema, value, root)
    if isinstance(value, list):
        is_right = all(describes(schema["items"], item, root) for item in value if "items" in schema)
        return is_right and schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
    if isinstance(value, str):
        fits = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        return fits and ("pattern" not in schema or re.search(schema["pattern"], value, re.ASCII) is not None)
    return isinstance(value, bool | None) or _is_within(schema, value)


def _has_kind(value: Any, kind: str) -> bool:
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def _is_same(value: Any, other: Any) -> bool:
    """Returns whether two JSON values are equal; true is not 1, as it is in Python."""
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def _describes_object(schema: Mapping[str, Any], value: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Returns whether every key is known, none is missing, and each has a value of its schema."""
    known = schema.get("properties", value if "type" not in schema else {})
    if not set(schema.get("required", ())) <= value.keys() or not value.keys() <= known.keys():
        return False
    return "properties" not in schema or all(describes(known[name], one, root) for name, one in value.items())


def _is_within(schema: Mapping[str, Any], value: float) -> bool:
    return (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
        and not ("exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"])
        and not ("exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"])
    )
