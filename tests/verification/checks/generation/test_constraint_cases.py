"""Every case allows its example, which the tokens can spell, and not whatever follows it; a schema describes
the values that fit each of its keywords, and no others."""

from typing import Any

import pytest

from pellucid.verification.checks.generation.constraint_cases import (
    CASES,
    MASK_CASES,
    TOKENS,
    describes,
)


def test_there_are_forty_cases() -> None:
    assert len({case.name for case in CASES}) == 40


def test_a_case_allows_its_example_and_not_every_text() -> None:
    for case in CASES:
        assert case.accepts(case.example), case.name
        assert not case.accepts(case.example + "\n\n\0"), case.name
        assert set(case.example) <= set(TOKENS), case.name


def test_the_texts_of_small_constraints_are_spelled_by_their_tokens() -> None:
    for given in MASK_CASES:
        assert given.case.accepts(given.case.example) and len(given.case.example) <= given.longest
        assert set(given.case.example) <= set("".join(given.tokens)), given.case.name


POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
    "required": ["x"],
}
SCHEMAS: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({"type": "integer"}, [0, -7, 10**18], [1.5, "1", True, None]),
    ({"type": "number"}, [0, 1.5, 95e44], ["1", False]),
    ({"type": "boolean"}, [True, False], [0, 1, "true", None]),
    ({"type": ["null", "string"]}, [None, "", "a"], [0, [], {}]),
    ({"type": "integer", "minimum": 2, "maximum": 4}, [2, 3, 4], [1, 5]),
    ({"type": "integer", "exclusiveMinimum": 2, "exclusiveMaximum": 4}, [3], [2, 4]),
    ({"type": "string", "minLength": 1, "maxLength": 2}, ["a", "é日"], ["", "abc", 12]),
    ({"type": "string", "pattern": "^a+$"}, ["a", "aa"], ["", "ab"]),
    ({"type": "string", "pattern": "b"}, ["abc"], ["ac"]),
    ({"enum": [1, "a", [2], None]}, [1, "a", [2], None], [True, "b", [], 2]),
    ({"const": {"a": 1}}, [{"a": 1}], [{}, {"a": 2}, {"a": 1, "b": 1}]),
    ({"const": False}, [False], [0]),
    ({"type": "array", "items": {"const": 0}, "minItems": 1, "maxItems": 2}, [[0]], [[], [0, 0, 0], [1]]),
    (POINT, [{"x": 1}, {"x": 1, "y": 2}], [{}, {"y": 2}, {"x": "1"}, {"x": 1, "z": 1}, []]),
    ({"anyOf": [{"const": 1}, {"type": "string"}]}, [1, "a"], [2, None]),
    (
        {"type": "array", "items": {"$ref": "#/$defs/p"}, "$defs": {"p": POINT}},
        [[], [{"x": 1}]],
        [[{}], [1], {}],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "right", "wrong"), SCHEMAS, ids=str)
def test_a_schema_describes_the_values_that_fit_it(
    schema: dict[str, Any], right: list[Any], wrong: list[Any]
) -> None:
    assert all(describes(schema, value) for value in right)
    assert not any(describes(schema, value) for value in wrong)
