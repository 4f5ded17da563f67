"""JSON schemas: what is accepted is valid, and what is not supported is refused by name."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from pellucid.base.errors import UsageError
from pellucid.generation.constraints import json_schema
from pellucid.generation.constraints.automaton import Automaton
from pellucid.generation.constraints.json_schema import KEYWORDS, OF_TYPE, compile_json_schema
from tests.growth import assert_not_quadratic


def compile_schema(**schema: Any) -> Automaton:
    return compile_json_schema(json.dumps(schema))


def accepts(found: Automaton, text: str) -> bool:
    return found.accepts(text.encode())


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["age"],
}


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ('{"name": "Ann", "age": 30, "tags": ["a", "b"]}', True),
        ('{"name":"Ann","age":30}', True),
        ('{"age": 120}', True),
        ('{"age": 0, "tags": []}', True),
        ('{"name": "Ann"}', False),
        ('{"age": 121}', False),
        ('{"age": 3, "name": "Ann"}', False),
        ('{"age": 3,}', False),
        ('{"name": "", "age": 3}', False),
        ('{"name": "Annika", "age": 3}', False),
        ('{"age": 3, "tags": ["a", "b", "a"]}', False),
        ('{"age":  3}', False),
        ('{"age": 03}', False),
        (' {"age": 3}', False),
    ],
)
def test_an_object_has_its_keys_in_order_and_the_required_ones(text: str, is_one: bool) -> None:
    assert accepts(compile_schema(**PERSON), text) == is_one


@pytest.mark.parametrize(
    ("low", "high"), [(-37, 1234), (0, 0), (5, 9), (-9, -5), (99, 101), (-1, 1), (10, 99), (123, 4567)]
)
def test_an_integer_is_in_its_range(low: int, high: int) -> None:
    found = compile_schema(type="integer", minimum=low, maximum=high)
    wrong = [
        n
        for n in {*range(low - 30, low + 30), *range(high - 30, high + 1500)}
        if accepts(found, str(n)) != (low <= n <= high)
    ]
    assert not wrong
    open_ = compile_schema(type="integer", exclusiveMinimum=low, exclusiveMaximum=high + 2)
    assert accepts(open_, str(high + 1)) and not accepts(open_, str(low))


@pytest.mark.parametrize("text", ["0", "-1", "3.25", "1e5", "-0.5E-7", "10", "1.5e+10"])
def test_a_number_is_one_of_json(text: str) -> None:
    assert accepts(compile_schema(type="number"), text)
    assert isinstance(json.loads(text), int | float)


@pytest.mark.parametrize("text", ["", "01", "+1", ".5", "1.", "1e", "1e999", "--1", "Infinity", "1" * 5000])
def test_what_json_or_a_float_cannot_hold_is_not_a_number(text: str) -> None:
    assert not accepts(compile_schema(type="number"), text)
    assert not accepts(compile_schema(type="integer"), text)


@pytest.mark.parametrize("text", ["", "a", 'say "hi"', "back\\slash", "a\nb\t", "é日😀", "/", "\x7f"])
def test_a_string_is_written_as_json_writes_it(text: str) -> None:
    found = compile_schema(type="string", maxLength=len(text))
    assert accepts(found, json.dumps(text, ensure_ascii=False))
    assert not accepts(found, json.dumps(text + "x", ensure_ascii=False))


@pytest.mark.parametrize("text", ['"a', '"a"b"', '"\n"', '"\\x"', '"\\"', "a"])
def test_what_json_cannot_read_is_not_a_string(text: str) -> None:
    assert not accepts(compile_schema(type="string"), text)


def test_a_pattern_is_found_anywhere_unless_it_is_anchored() -> None:
    found = compile_schema(type="string", pattern="b+|^x$")
    assert [accepts(found, f'"{text}"') for text in ("abc", "b", "x", "ax", "")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    quoted = compile_schema(type="string", pattern='^"[^"]*"$')
    assert accepts(quoted, json.dumps('"hi"')) and not accepts(quoted, '"hi"')


@pytest.mark.parametrize("value", [None, True, 3, -1.5, "a\n", [], [1, [2]], {"a": {"b": None}, "é": 1}])
def test_a_value_is_written_out(value: Any) -> None:
    for found in (compile_schema(const=value), compile_schema(enum=[0, value])):
        assert accepts(found, json.dumps(value, ensure_ascii=False))
        assert accepts(found, json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def test_alternatives_types_and_references_are_followed() -> None:
    schema = {
        "anyOf": [{"type": ["integer", "null"]}, {"$ref": "#/$defs/pair"}],
        "$defs": {"pair": {"type": "array", "items": {"$ref": "#/$defs/bit"}, "minItems": 2, "maxItems": 2}}
        | {"bit": {"enum": [0, 1]}},
    }
    found = compile_schema(**schema)
    assert [accepts(found, text) for text in ("7", "null", "[0, 1]", "[0]", "[0, 2]")] == [True] * 3 + [
        False
    ] * 2


@pytest.mark.parametrize(
    ("schema", "fact"),
    [
        ({"oneOf": []}, "anyOf"),
        ({"type": "string", "format": "date"}, "pattern"),
        ({"typ": "string"}, "'type'"),
        ({"type": "strin"}, "'string'"),
        ({"type": "string", "maximum": 3}, "integer"),
        ({"type": "object"}, "properties"),
        ({"type": "object", "properties": {}, "additionalProperties": True}, "additionalProperties"),
        ({"type": "object", "properties": {"ab": {"type": "null"}}, "required": ["abc"]}, "'ab'"),
        ({"type": "array"}, "items"),
        ({"type": "array", "items": {"type": "null"}, "minItems": 3, "maxItems": 2}, "minItems=3"),
        ({"type": "string", "minLength": -1}, "minLength"),
        ({"type": "string", "minLength": True}, "minLength"),
        ({"type": "string", "maxLength": 10**6}, "maxLength"),
        ({"type": "string", "pattern": "(?=a)"}, "lookahead"),
        ({"type": "string", "pattern": "a", "maxLength": 3}, "pattern"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "at least 5"),
        ({"type": "integer", "minimum": 0.5}, "0.5"),
        ({"type": "number", "minimum": 0}, "integer"),
        ({"enum": []}, "list"),
        ({"type": "string", "enum": [3]}, "3"),
        ({"$ref": "#"}, "itself"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}}, "itself"),
        ({"$ref": "#/$defs/b"}, "no '#/$defs/b'"),
        ({"$ref": "https://example.org/a.json"}, "begin with #"),
        ({}, "exactly one"),
        ({"type": "string", "anyOf": []}, "exactly one"),
        ({"properties": {}, "type": []}, "empty list"),
        ({"const": "\ud800"}, "surrogate"),
    ],
)
def test_what_is_not_supported_is_refused_with_what_would_work(schema: dict[str, Any], fact: str) -> None:
    with pytest.raises(UsageError) as refusal:
        compile_schema(**schema)
    assert fact in str(refusal.value)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", "true", '{"type": NaN}', '{"type": "null", "type": "null"}', "[" * 5000, "x" * 100_001],
)
def test_what_is_not_a_schema_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="json_schema"):
        compile_json_schema(text)


def test_a_schema_of_nested_counts_is_refused_in_time() -> None:
    levels = {
        f"a{n}": {"type": "array", "items": {"$ref": f"#/$defs/a{n + 1}"}, "maxItems": 10} for n in range(10)
    }
    start = time.process_time()
    with pytest.raises(UsageError, match=r"states|large"):
        compile_schema(**{"$ref": "#/$defs/a0", "$defs": levels | {"a10": {"type": "null"}}})
    assert time.process_time() - start < 2


def test_many_optional_keys_are_refused_and_never_a_failure() -> None:
    """Each optional key is one level of the recursion that reads them."""
    for count in (100, 300, 500, 1500):
        keys = {f"k{i}": {"type": "null"} for i in range(count)}
        try:
            found = compile_json_schema(json.dumps({"type": "object", "properties": keys}))
        except UsageError:
            assert count > 100
        else:
            assert found.accepts(b'{"k7":null}')


def test_the_tables_name_every_keyword() -> None:
    """That of the module and that of the page, which are the same."""
    table = [line for line in (json_schema.__doc__ or "").splitlines() if line.startswith("|")]
    words = [word for word in KEYWORDS if word not in json_schema.ANNOTATIONS]
    assert not [word for word in [*words, *OF_TYPE] if not any(word in line for line in table)]
    page = Path(__file__).parents[3] / "docs" / "constrained-output.md"
    assert not [line for line in table if line not in page.read_text("utf-8").splitlines()]


def test_a_key_that_comes_twice_among_many_is_found_in_proportion_to_their_number() -> None:
    def refuse(keys: int) -> None:
        entries = ",".join(f'"{i}":1' for i in [*range(keys), keys - 1])
        with pytest.raises(UsageError, match=f"'{keys - 1}' comes twice"):
            compile_json_schema(f"{{{entries}}}")

    assert_not_quadratic(lambda n: lambda: refuse(n), 2_000)
