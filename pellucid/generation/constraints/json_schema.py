r"""JSON schemas: a subset of finite depth, which is a regular language.

| schema | means |
|---|---|
| `type` | object, array, string, integer, number, boolean, null, or a list of them |
| `properties`, `required` | of an object: its keys in this order; those not required may be omitted |
| `additionalProperties` | false, and false where it is omitted |
| `items`, `minItems`, `maxItems` | of an array: the schema of every item, and how many |
| `minLength`, `maxLength` | of a string: how many characters |
| `pattern` | of a string: a regular expression (`regex.py`) found in it; `^…$` is the whole |
| `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum` | of an integer |
| `enum`, `const` | one of several values, or one |
| `anyOf` | one of several schemas |
| `$ref` | a schema of the same file, `#/$defs/NAME`; none may contain itself |
| `title`, `description`, `$defs` and other annotations (`ANNOTATIONS`) | nothing |

Every other keyword is refused. The output has no white space but at most one space after each `:` and `,`.
A string is written as `json.dumps(text, ensure_ascii=False)` writes it, without control characters other than
\b \t \n \f \r; an integer has at most 18 digits, a number at most 15 before and after the point and an
exponent of at most two.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn

from pellucid.base.errors import UsageError, show, unknown
from pellucid.generation.constraints.automaton import Automaton, build_automaton
from pellucid.generation.constraints.expressions import (
    EMPTY_TEXT,
    NOTHING,
    Expressions,
    Ranges,
    encode_set,
    make_ranges,
    mask_of,
    negate,
    subtract,
)
from pellucid.generation.constraints.regex import parse_pattern, search_anywhere

MOST_CHARACTERS = 100_000
"""Of a schema."""
MOST_NESTED = 32
MOST_COUNT = 10_000
"""Of items, and of characters of a string."""
INTEGER_DIGITS, NUMBER_DIGITS = 18, 15

ANNOTATIONS = (
    "title", "description", "default", "examples", "deprecated", "$schema", "$id", "$comment", "$defs",
    "definitions",
)  # fmt: skip
RANGE = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
OF_TYPE: Mapping[str, tuple[str, ...]] = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern"),
    "integer": RANGE,
    "number": (),
    "boolean": (),
    "null": (),
}
"""The keywords of each type."""
MAIN = ("type", "enum", "const", "anyOf", "$ref")
"""A schema has exactly one of these."""
KEYWORDS = (*MAIN, *dict.fromkeys(word for words in OF_TYPE.values() for word in words), *ANNOTATIONS)
REMEDIES = {
    "oneOf": "use anyOf",
    "allOf": "write one schema with all the keywords",
    "format": "use pattern",
    "patternProperties": "name every key in properties",
    "prefixItems": "use an object with named properties",
    "uniqueItems": "use enum or maxItems",
    "multipleOf": "use enum",
    "contains": "use items",
    "not": "use enum, or a pattern with [^…]",
    "if": "use anyOf",
}

CONTROLS: Ranges = ((0, 31),)
ESCAPED = {ord(char): json.dumps(char)[1:-1].encode() for char in '"\\\b\t\n\f\r'}
"""Characters of a string that are written with a backslash."""


def compile_json_schema(schema: str) -> Automaton:
    """Returns the automaton of the JSON texts that a schema, itself a JSON text, describes.

    >>> pet = compile_json_schema('{"type": "object", "properties": {"legs": {"enum": [2, 4]}}}')
    >>> [pet.accepts(text) for text in (b'{"legs": 4}', b'{}', b'{"legs": 3}', b'{"wings": 2}')]
    [True, True, False, False]
    """
    expressions = Expressions("json_schema")
    return build_automaton(expressions, _SchemaReader(_parse(schema), expressions).compile())


def _parse(schema: str) -> Any:
    if len(schema) > MOST_CHARACTERS:
        raise UsageError(f"json_schema has {len(schema):,} characters, and {MOST_CHARACTERS:,} are the most.")
    try:
        return json.loads(schema, object_pairs_hook=_refuse_repeats, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UsageError(f"json_schema is not a JSON text: {reason}. Give the schema's text.") from None


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise ValueError(f"the key {counts.most_common(1)[0][0]!r} comes twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


class _SchemaReader:
    """Makes a node of each schema; `path` is its place, as "#/properties/age"."""

    def __init__(self, root: Any, expressions: Expressions) -> None:
        self.root, self.e = root, expressions
        self.comma = self._separator(",")
        self.colon = self._separator(":")
        self.references: dict[str, int | None] = {}
        """The nodes of the schemas that were referred to; None while one is being read."""

    def compile(self) -> int:
        return self._schema(self.root, "#", 0)

    def _separator(self, mark: str) -> int:
        return self.e.join(self.e.literal(mark.encode()), self.e.optional(self.e.literal(b" ")))

    def _schema(self, schema: Any, path: str, depth: int) -> int:
        if depth > MOST_NESTED:
            self._refuse(path, f"schemas are nested more than {MOST_NESTED} deep")
        if not isinstance(schema, dict):
            self._refuse(path, f"a schema must be an object, not {show(schema)}")
        main = [word for word in MAIN if word in schema]
        for word in schema:
            if word not in KEYWORDS:
                self._refuse_keyword(path, word)
        if main == ["type", "enum"] or main == ["type", "const"]:
            main = main[1:]  # the values say their types
        if len(main) != 1:
            has = f"has {' and '.join(main)}" if main else "has none"
            self._refuse(path, f"a schema must have exactly one of {', '.join(MAIN)}, and this {has}")
        kinds = self._types(schema, path) if "type" in schema else []
        fitting = {*MAIN, *ANNOTATIONS, *(word for kind in kinds for word in OF_TYPE[kind])}
        if main != ["type"]:
            fitting = {*MAIN, *ANNOTATIONS}
        for word in schema:
            if word not in fitting:
                owners = " or ".join(kind for kind, words in OF_TYPE.items() if word in words)
                self._refuse(path, f"{word} goes with the type {owners}, which this schema does not have")
        return {
            "type": lambda: self.e.union(self._of_type(kind, schema, path, depth) for kind in kinds),
            "enum": lambda: self._enum(schema["enum"], kinds, f"{path}/enum"),
            "const": lambda: self._enum([schema["const"]], kinds, f"{path}/const"),
            "anyOf": lambda: self._any_of(schema["anyOf"], f"{path}/anyOf", depth),
            "$ref": lambda: self._reference(schema["$ref"], f"{path}/$ref", depth),
        }[main[0]]()

    def _types(self, schema: Mapping[str, Any], path: str) -> list[str]:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        for kind in kinds:
            if not isinstance(kind, str) or kind not in OF_TYPE:
                raise UsageError(f"json_schema, at {path}: {unknown('type', kind, OF_TYPE)}")
        if not kinds:
            self._refuse(path, "type is an empty list: no value could be written")
        return list(dict.fromkeys(kinds))

    def _of_type(self, kind: str, schema: Mapping[str, Any], path: str, depth: int) -> int:
        if kind == "object":
            return self._object(schema, path, depth)
        if kind == "array":
            return self._array(schema, path, depth)
        if kind == "string":
            return self._string(schema, path)
        if kind == "integer":
            return self._integer(schema, path)
        if kind == "number":
            return self._number()
        return self.e.union(map(self.e.literal, [b"true", b"false"] if kind == "boolean" else [b"null"]))

    # ---- objects and arrays

    def _object(self, schema: Mapping[str, Any], path: str, depth: int) -> int:
        properties, required = schema.get("properties"), schema.get("required", [])
        if not isinstance(properties, dict):
            self._refuse(path, "an object needs properties, an object with a schema for each of its keys")
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            self._refuse(f"{path}/required", f"it must be a list of keys, not {show(required)}")
        for name in required:
            if name not in properties:
                raise UsageError(f"json_schema, at {path}: {unknown('a required key', name, properties)}")
        if schema.get("additionalProperties", False) is not False:
            self._refuse(path, "additionalProperties must be false; name every key in properties")
        # From the last key to the first: what follows where no key was written yet, and where one was.
        first = following = self.e.literal(b"}")
        for name, inner in reversed(properties.items()):
            pair = self.e.join_all(
                [
                    self._value(name, path),
                    self.colon,
                    self._schema(inner, f"{path}/properties/{name}", depth + 1),
                ]
            )
            begun = self.e.join(pair, following)
            going_on = self.e.join(self.comma, begun)
            is_required = name in required
            first = begun if is_required else self.e.union([begun, first])
            following = going_on if is_required else self.e.union([going_on, following])
        return self.e.join(self.e.literal(b"{"), first)

    def _array(self, schema: Mapping[str, Any], path: str, depth: int) -> int:
        if "items" not in schema:
            self._refuse(path, "an array needs items, the schema of each of its items")
        item = self._schema(schema["items"], f"{path}/items", depth + 1)
        least, most = self._counts(schema, path, "minItems", "maxItems")
        more = self.e.repeat(self.e.join(self.comma, item), max(least - 1, 0), max(most - 1, 0))
        some = self.e.join(item, more) if most else NOTHING
        inside = some if least else self.e.optional(some)
        return self.e.join_all([self.e.literal(b"["), inside, self.e.literal(b"]")])

    def _counts(self, schema: Mapping[str, Any], path: str, low: str, high: str) -> tuple[int, float]:
        for word in (low, high):
            count = schema.get(word, 0)
            if type(count) is not int or not 0 <= count <= MOST_COUNT:
                self._refuse(path, f"{word} must be an integer from 0 to {MOST_COUNT:,}, not {show(count)}")
        least, most = schema.get(low, 0), schema.get(high, math.inf)
        if least > most:
            self._refuse(path, f"{low}={least} is larger than {high}={most}")
        return least, most

    # ---- strings

    def _string(self, schema: Mapping[str, Any], path: str) -> int:
        quote = self.e.literal(b'"')
        least, most = self._counts(schema, path, "minLength", "maxLength")
        inside = self.e.repeat(self._characters(negate(())), least, most)
        if "pattern" in schema:
            if least or most < math.inf:
                self._refuse(path, "pattern does not go with minLength or maxLength: count in the pattern")
            inside = self._pattern(schema["pattern"], f"{path}/pattern")
        return self.e.join_all([quote, inside, quote])

    def _pattern(self, pattern: Any, path: str) -> int:
        if not isinstance(pattern, str):
            self._refuse(path, f"it must be a string, not {show(pattern)}")
        branches = parse_pattern(pattern, self.e, self._characters, f"json_schema, at {path}: {pattern!r}")
        anything = self.e.repeat(self._characters(negate(())), 0, math.inf)
        return self.e.union(search_anywhere(branch, self.e, anything) for branch in branches)

    def _characters(self, ranges: Ranges) -> int:
        """Returns the node of a set of characters, as they are written in a JSON string."""
        special = make_ranges([*CONTROLS, *((char, char) for char in ESCAPED)])
        plain = encode_set(self.e, subtract(ranges, special))
        escaped = [
            self.e.literal(spelled)
            for char, spelled in ESCAPED.items()
            if any(low <= char <= high for low, high in ranges)
        ]
        return self.e.union([plain, *escaped])

    # ---- numbers

    def _digits(self, least: int, most: int) -> int:
        return self.e.repeat(self.e.one_of(mask_of(48, 57)), least, most)

    def _number(self) -> int:
        whole = self._between(0, 10**NUMBER_DIGITS - 1)
        point = self.e.join(self.e.literal(b"."), self._digits(1, NUMBER_DIGITS))
        sign = self.e.optional(self.e.union([self.e.literal(b"-"), self.e.literal(b"+")]))
        mark = self.e.union([self.e.literal(b"e"), self.e.literal(b"E")])
        exponent = self.e.join_all([mark, sign, self._digits(1, 2)])
        parts = [self.e.optional(self.e.literal(b"-")), whole, self.e.optional(point)]
        return self.e.join_all([*parts, self.e.optional(exponent)])

    def _integer(self, schema: Mapping[str, Any], path: str) -> int:
        bounds: dict[str, int] = {}
        for word in RANGE:
            if word in schema:
                value = schema[word]
                if type(value) is not int or abs(value) >= 10**INTEGER_DIGITS:
                    self._refuse(
                        path,
                        f"{word} must be an integer of at most {INTEGER_DIGITS} digits, not {show(value)}",
                    )
                bounds[word] = value
        largest = 10**INTEGER_DIGITS - 1
        low = max(bounds.get("minimum", -largest), bounds.get("exclusiveMinimum", -largest - 1) + 1)
        high = min(bounds.get("maximum", largest), bounds.get("exclusiveMaximum", largest + 1) - 1)
        if low > high:
            self._refuse(path, f"no integer is at least {low} and at most {high}")
        return self._between(low, high)

    def _between(self, low: int, high: int) -> int:
        """Returns the node of the integers low … high, without leading zeros."""
        parts = []
        if low < 0:
            negative = self._between(max(1, -high), -low)
            parts.append(self.e.join(self.e.literal(b"-"), negative))
        for length in range(1, len(str(max(high, 0))) + 1):
            least = max(low, 10 ** (length - 1) if length > 1 else 0)
            most = min(high, 10**length - 1)
            if least <= most:
                parts.append(self._between_digits(str(least), str(most)))
        return self.e.union(parts)

    def _between_digits(self, low: str, high: str) -> int:
        """Returns the node of the digit strings between two of the same length."""
        if not low:
            return EMPTY_TEXT
        rest = len(low) - 1
        if low[1:] == "0" * rest and high[1:] == "9" * rest:
            return self.e.join(self.e.one_of(mask_of(ord(low[0]), ord(high[0]))), self._digits(rest, rest))
        if low[0] == high[0]:
            return self.e.join(self.e.literal(low[0].encode()), self._between_digits(low[1:], high[1:]))
        middle = NOTHING
        if ord(high[0]) - ord(low[0]) > 1:
            first = self.e.one_of(mask_of(ord(low[0]) + 1, ord(high[0]) - 1))
            middle = self.e.join(first, self._digits(rest, rest))
        return self.e.union(
            [
                self._between_digits(low, low[0] + "9" * rest),
                middle,
                self._between_digits(high[0] + "0" * rest, high),
            ]
        )

    # ---- values, alternatives and references

    def _enum(self, values: Any, kinds: list[str], path: str) -> int:
        if not isinstance(values, list) or not values:
            self._refuse(path, f"it must be a list of values, not {show(values)}")
        for value in values:
            if kinds and not any(_has_type(value, kind) for kind in kinds):
                self._refuse(path, f"{show(value)} is not of the type {' or '.join(kinds)}")
        return self.e.union(self._value(value, path) for value in values)

    def _value(self, value: Any, path: str, depth: int = 0) -> int:
        if depth > MOST_NESTED:
            self._refuse(path, f"a value is nested more than {MOST_NESTED} deep")
        if isinstance(value, dict):
            pairs = [
                [self._value(name, path), self.colon, self._value(inner, path, depth + 1)]
                for name, inner in value.items()
            ]
            return self._enclose("{", [self.e.join_all(pair) for pair in pairs], "}")
        if isinstance(value, list):
            return self._enclose("[", [self._value(inner, path, depth + 1) for inner in value], "]")
        text = json.dumps(value, ensure_ascii=False)
        try:
            return self.e.literal(text.encode())
        except UnicodeEncodeError:
            self._refuse(path, "a text has half of a surrogate pair, which UTF-8 cannot encode")

    def _enclose(self, opening: str, parts: list[int], closing: str) -> int:
        nodes = [self.e.literal(opening.encode())]
        for number, part in enumerate(parts):
            nodes += [self.comma, part] if number else [part]
        return self.e.join_all([*nodes, self.e.literal(closing.encode())])

    def _any_of(self, schemas: Any, path: str, depth: int) -> int:
        if not isinstance(schemas, list) or not schemas:
            self._refuse(path, f"it must be a list of schemas, not {show(schemas)}")
        return self.e.union(
            self._schema(schema, f"{path}/{number}", depth + 1) for number, schema in enumerate(schemas)
        )

    def _reference(self, reference: Any, path: str, depth: int) -> int:
        if not isinstance(reference, str) or not reference.startswith("#"):
            self._refuse(path, f"it must begin with #, a place in this schema, not {show(reference)}")
        if reference not in self.references:
            target = self.root
            for step in reference[1:].split("/")[1:]:
                name = step.replace("~1", "/").replace("~0", "~")
                if not isinstance(target, dict) or name not in target:
                    self._refuse(path, f"there is no {show(reference)} in this schema")
                target = target[name]
            self.references[reference] = None
            self.references[reference] = self._schema(target, reference, depth + 1)
        found = self.references[reference]
        if found is None:
            self._refuse(path, f"{show(reference)} contains itself, and only a finite depth is supported")
        return found

    def _refuse_keyword(self, path: str, word: str) -> NoReturn:
        if word in REMEDIES:
            self._refuse(path, f"{word} is not supported: {REMEDIES[word]}")
        raise UsageError(f"json_schema, at {path}: {unknown('a keyword', word, KEYWORDS)}")

    def _refuse(self, path: str, reason: str) -> NoReturn:
        raise UsageError(f"json_schema, at {path}: {reason}.")


def _has_type(value: Any, kind: str) -> bool:
    wanted: Any = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "null": type(None),
        "integer": int,
        "number": (int, float),
    }[kind]
    return isinstance(value, wanted) and (kind == "boolean" or not isinstance(value, bool))
