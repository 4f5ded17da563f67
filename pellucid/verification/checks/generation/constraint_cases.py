"""Regular expressions and JSON schemas that texts are generated for, each with a short text that it allows,
and small ones whose texts can be listed.

Whether a schema describes a value is said by its definition (JSON Schema 2020-12): it reads values and shares
nothing with the automata of `constraints/json_schema.py`, which read bytes. As there, an object has no keys
but those of its `properties`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class ConstraintCase:
    """A constraint of an output: a pattern, or a schema."""

    spec: str | dict[str, Any]
    example: str
    """A text that it allows, of the fewest characters."""

    @property
    def settings(self) -> dict[str, Any]:
        """The setting of a request."""
        if isinstance(self.spec, str):
            return {"regex": self.spec}
        return {"json_schema": json.dumps(self.spec)}

    @property
    def name(self) -> str:
        [(kind, spec)] = self.settings.items()
        return f"{kind}={spec}"

    def accepts(self, text: str) -> bool:
        """Returns whether a text is one that it allows: by `re`, or as a value of the schema."""
        if isinstance(self.spec, str):
            return re.fullmatch(self.spec, text, re.ASCII) is not None
        try:
            return describes(self.spec, json.loads(text))
        except ValueError:
            return False


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


STRING, INTEGER, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
POINT = _object("x", "y", x=INTEGER, y=INTEGER)
CASES = (
    ConstraintCase("(red|green|blue)", "red"),
    ConstraintCase("yes|no|maybe not", "no"),
    ConstraintCase("[a-z]+", "a"),
    ConstraintCase("[A-Z][a-z]{2,8}", "Abc"),
    ConstraintCase(r"\d{4}-\d{2}-\d{2}", "2024-01-01"),
    ConstraintCase(r"\d+(\.\d{1,2})?", "1"),
    ConstraintCase(r"-?(0|[1-9]\d*)", "0"),
    ConstraintCase(r"[a-z]+(, [a-z]+)* and \d{2,}", "a and 12"),
    ConstraintCase(r"(\w+, ){2,}and \w+\.", "a, b, and c."),
    ConstraintCase("(ab|ba){3,}", "ababab"),
    ConstraintCase("a{6,}", "aaaaaa"),
    ConstraintCase("a{3}b{3}c?", "aaabbb"),
    ConstraintCase("(a|b)*abb", "abb"),
    ConstraintCase("[^b]*b", "b"),
    ConstraintCase(".*é.*", "é"),
    ConstraintCase(r"#[0-9a-f]{6}", "#000000"),
    ConstraintCase(r"[\w.]+@[\w]+\.(com|org)", "a@b.com"),
    ConstraintCase(r"\([^()]*\)", "()"),
    ConstraintCase(r"(true|false)( (and|or) (true|false)){0,2}", "true"),
    ConstraintCase(r"\S+ \S+ \S+", "a b c"),
    ConstraintCase({"enum": ["red", "green", 3, None]}, "3"),
    ConstraintCase({"const": {"a": [1, "b"]}}, '{"a":[1,"b"]}'),
    ConstraintCase(FLAG, "true"),
    ConstraintCase({"type": ["null", "boolean"]}, "null"),
    ConstraintCase(STRING, '""'),
    ConstraintCase({"type": "string", "minLength": 3, "maxLength": 6}, '"abc"'),
    ConstraintCase({"type": "string", "pattern": "^[a-c]+$"}, '"a"'),
    ConstraintCase({"type": "string", "pattern": "x"}, '"x"'),
    ConstraintCase(INTEGER, "0"),
    ConstraintCase({"type": "integer", "minimum": 17, "maximum": 1203}, "17"),
    ConstraintCase({"type": "integer", "exclusiveMinimum": -40, "exclusiveMaximum": -7}, "-8"),
    ConstraintCase({"type": "number"}, "0"),
    ConstraintCase({"type": "array", "items": INTEGER}, "[]"),
    ConstraintCase({"type": "array", "items": FLAG, "minItems": 2, "maxItems": 3}, "[true,true]"),
    ConstraintCase({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1}, '["a"]'),
    ConstraintCase(_object("n", n=INTEGER, s=STRING), '{"n":0}'),
    ConstraintCase(_object(a=FLAG, b=FLAG, c=FLAG), "{}"),
    ConstraintCase({**POINT, "additionalProperties": False}, '{"x":0,"y":0}'),
    ConstraintCase({"anyOf": [_object("a", a={"type": "null"}), {"type": "string", "maxLength": 2}]}, '""'),
    ConstraintCase({"type": "array", "items": {"$ref": "#/$defs/p"}, "$defs": {"p": POINT}}, "[]"),
)
OWN_CASES = (
    ConstraintCase(r"[a-zA-Z]{6,12}( [a-z]{3,8}){2,3}\.", "Abcdef abc abc."),
    ConstraintCase(_object("n", n=INTEGER, s={"type": "string", "maxLength": 9}), '{"n":0}'),
)
"""The constraints of random tokens of the model's own tokenizer."""
EXTRA = (
    '": ',
    '", "',
    '{"',
    '"}',
    "true",
    "false",
    "null",
    "ab",
    "ba",
    "12",
    "and",
    ", ",
    "[",
    "é",
    "日",
    "00",
)
TOKENS = tuple(dict.fromkeys(("<end>", *map(chr, range(32, 127)), *EXTRA)))
"""The tokens in which the texts are generated, the stop token first: characters, and some of several."""


@dataclass(frozen=True)
class MaskCase:
    """A constraint whose texts are few and short, and the tokens to spell them."""

    case: ConstraintCase
    tokens: tuple[str, ...]
    longest: int
    """Characters of its longest text."""


MASK_CASES = (
    MaskCase(ConstraintCase("a(b|c)?1", "a1"), ("a", "b", "ab", "c", "1", "c1"), 3),
    MaskCase(ConstraintCase("(ab|ba|c){1,2}", "c"), ("a", "b", "ab", "bab", "c"), 4),
    MaskCase(ConstraintCase("a{2,5}", "aa"), ("a", "aa", "aaa", "b"), 5),
    MaskCase(ConstraintCase("(ab){1,3}c|b", "b"), ("ab", "ba", "b", "bc", "abc"), 7),
    MaskCase(ConstraintCase("(é|日)a?", "é"), ("é", "日a", "a", "éa"), 2),
    MaskCase(ConstraintCase({"enum": ["a", "aa", 1, 11]}, "1"), ('"', "a", '"a', 'a"', "1", "11"), 4),
    MaskCase(
        ConstraintCase({"type": "integer", "minimum": 9, "maximum": 111}, "9"), ("1", "9", "11", "0"), 3
    ),
    MaskCase(
        ConstraintCase({"type": "array", "items": {"const": 1}, "maxItems": 2}, "[]"),
        ("[", "]", "[1", ",", ", ", "1", "1]"),
        6,
    ),
)
