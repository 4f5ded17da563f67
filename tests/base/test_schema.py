"""A value from outside becomes the type of its field, or one error that names its key and what it must be."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from pellucid.base.errors import ConfigError, UsageError
from pellucid.base.schema import (
    MOST_PROBLEMS,
    Field,
    Length,
    OneOf,
    Range,
    check,
    check_utf8,
    describe,
    fields_of,
    fields_of_signature,
    is_id,
    read,
    to_field,
)


@dataclass(frozen=True)
class Inner:
    every: int
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outer:
    name: str
    rate: float = 1.0
    pairs: tuple[tuple[int, int], ...] = ()
    validation: float | str = 0.1
    seed: int | None = None
    exact: bool = False
    inner: Inner = field(default_factory=lambda: Inner(1))
    rest: dict[str, Any] = field(default_factory=dict)


def read_outer(given: Any, error: Any = ConfigError) -> Outer:
    return read(fields_of(Outer), given, "a thing", Outer, error=error)


def test_a_table_becomes_the_dataclass() -> None:
    given = {
        "name": "a",
        "rate": 2,
        "pairs": [[1, 2], [3, 4]],
        "validation": "b.txt",
        "seed": None,
        "inner": {"every": 5, "only": ["x", "y"]},
        "rest": {"anything": [1]},
    }
    inner = Inner(5, ("x", "y"))
    assert read_outer(given) == Outer(
        "a", 2.0, ((1, 2), (3, 4)), "b.txt", None, False, inner, {"anything": [1]}
    )


@pytest.mark.parametrize(
    ("given", "path", "facts"),
    [
        ([], "", ("a thing", "[]")),
        ({"name": "a", "nmae": "a"}, "nmae", ("'nmae'", "'name'")),
        ({}, "", ("a thing", "name")),
        ({"name": 3}, "name", ("a text", "3")),
        ({"name": "a", "rate": "1"}, "rate", ("a finite number", "'1'")),
        ({"name": "a", "rate": True}, "rate", ("True",)),
        ({"name": "a", "rate": math.nan}, "rate", ("nan",)),
        ({"name": "a", "rate": math.inf}, "rate", ("inf",)),
        ({"name": "a", "seed": 3.0}, "seed", ("a whole number or null", "use 3")),
        ({"name": "a", "seed": True}, "seed", ("True",)),
        ({"name": "a", "seed": 2**64}, "seed", (str(2**64),)),
        ({"name": "a", "exact": 1}, "exact", ("true or false",)),
        ({"name": "a", "pairs": [[1, 2, 3]]}, "pairs[0]", ("a list of 2 values",)),
        ({"name": "a", "validation": []}, "validation", ("a finite number or a text",)),
        ({"name": "a", "inner": {"every": 1, "evry": 1}}, "inner.evry", ("a key of inner", "'every'")),
        ({"name": "a", "inner": {"every": "1"}}, "inner.every", ("a whole number",)),
        ({"name": "a", "inner": {"every": 1, "only": "x"}}, "inner.only", ("a list of texts",)),
        ({"name": "a", "inner": {"every": 1, "only": ["x", 5]}}, "inner.only[1]", ("a text", "5")),
        ({"name": "a", "inner": 5}, "inner", ("a table",)),
        ({"name": "a", "rest": 5}, "rest", ("a table",)),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_key(given: Any, path: str, facts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        read_outer(given)
    assert refused.value.path == path and str(refused.value).count("\n") == 0
    assert all(fact in str(refused.value) for fact in (path.removesuffix(".evry"), *facts))
    with pytest.raises(LookupError):
        read_outer(given, LookupError)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        read_outer({"rate": "x", "exact": 2, "inner": {"every": 1.5}, "seeed": 1})
    said = str(refused.value)
    assert refused.value.path == "rate" and said.startswith("5 errors in a thing:\n")
    assert all(fact in said for fact in ("rate", "exact", "inner.every", "'seed'", "missing: name"))
    with pytest.raises(ConfigError) as refused:
        read_outer({f"x{i}": 0 for i in range(1000)})
    assert len(str(refused.value).splitlines()) == 1 + MOST_PROBLEMS


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (
            Annotated[int, Range(0, 9)],
            [0, 9, np.int64(5)],
            [-1, 10, 2**70, 1.0, "1", True, None, np.array([1])],
        ),
        (
            Annotated[float, Range(0, 1)],
            [0, 1, 0.5, np.float32(0.5)],
            [-1, 1.1, math.nan, 10**400, "1", False],
        ),
        (Annotated[float, Range(0, math.inf)], [0, math.inf, 10**400], [-1, -math.inf, math.nan, "inf"]),
        (Annotated[str, Length(3)], ["", "abc"], ["abcd", b"a", 1, None]),
        (Annotated[str, check_utf8], ["é"], ["\ud800", 1]),
        (Annotated[str, OneOf("a", "b")], ["a", "b"], ["c", "", 1, None, ["a"]]),
        (Annotated[bool | str, OneOf("auto", True, False)], ["auto", True, False], [1, 0, "true", None]),
        (Literal["a", "b"], ["a"], ["c", 1]),
        (bool, [True, np.True_], [0, 1, "true", None]),
        (Annotated[tuple[int, ...], Length(2)], [[], (1, 2), {1}, range(2)], [[1, 2, 3], "1", 1, {}, [True]]),
        (list[Annotated[int, Range(0, 9)]], [[], [9]], [[10], [-1], [1.0], [1, 10**400], None]),
        (list[float], [[1.0, 2], [0.5]], [[1.0, math.nan], [math.inf, 1.0], ["1"]]),
        (list[Annotated[int, OneOf(1, 2)]], [[1, 2]], [[1, 3]]),
        (Sequence[str], [["a"]], ["a", [1]]),
        (
            Mapping[int, float],
            [{}, {1: 2}, {"1": 2.5}],
            [{"a": 1}, {"1": "x"}, {1: 1, "01": 1}, [], {"٣": 1}],
        ),
        (Annotated[Mapping[str, float], Length(1)], [{"a": 1}], [{"a": 1, "b": 1}, {1: 1}]),
        (Any, [None, object], []),
    ],
)
def test_a_type_accepts_what_is_within_its_bounds_alone(kind: Any, good: list[Any], bad: list[Any]) -> None:
    one = to_field(kind)
    for value in good:
        found = one.read(value, "key")
        assert found == one.read(found, "key")
    for value in bad:
        with pytest.raises(UsageError, match=r"^key") as refused:
            one.read(value, "key")
        assert refused.value.path.startswith("key")
    json.dumps(one.schema())


def test_an_entry_of_a_list_alone_may_stand_for_the_list_and_null_for_no_value() -> None:
    assert Field("stop", tuple[str, ...], single=True).read("END") == ("END",)
    assert Field("seed", int, optional=True).read(None) is None


def test_a_field_says_more_than_its_type_by_a_function() -> None:
    def double(value: int, path: str) -> int:
        if value == 3:
            raise ConfigError(f"{path} is 3")
        return 2 * value

    twice = Field("n", int, then=double)
    assert twice.read(4) == 8
    with pytest.raises(UsageError, match=r"^a\.n is 3"):
        twice.read(3, "a.n")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, "+06", 6),
        (float, "1e-3", 0.001),
        (float, ".5", 0.5),
        (bool, "true", True),
        (bool, "0", False),
        (str, "6", "6"),
        (float | str, "6", 6.0),
        (str | int, "6", 6),
        (str | None, "6", "6"),
        (tuple[int, ...], "[1, 2]", (1, 2)),
        (list[int], ["1", "2"], [1, 2]),
        (Mapping[int, float], '{"5": 1}', {5: 1.0}),
        (Annotated[bool | str, OneOf("auto", True)], "auto", "auto"),
    ],
)
def test_a_text_is_read_as_what_it_writes(kind: Any, text: Any, value: Any) -> None:
    found = to_field(kind).read(text, "key", text=True)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("text", ["2.0", "2 ", " 2", "2_0", "0x2", "２", "2e0", "", "nan", "٢", "9" * 5000])
def test_a_text_that_is_not_a_whole_number_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^count must be a whole number"):
        Field("count", int).read(text, text=True)


def test_a_dataclass_is_checked_in_its_place() -> None:
    record = Outer("a", 2, inner=Inner(3))
    check(record, fields_of(Outer), "a thing")
    assert type(record.rate) is float
    with pytest.raises(ConfigError, match=r"^2 errors in a thing"):
        check(Outer(5, "x"), fields_of(Outer), "a thing")  # type: ignore[arg-type]


def test_the_parameters_of_a_function_are_fields() -> None:
    def ask(
        session: object, at: str, from_: Annotated[int, Range(0, 9)] = 2, seed: int | None = None
    ) -> None: ...

    at, start, seed = fields_of_signature(ask, 1)
    assert at.is_required and at.type is str
    assert (start.name, start.least, start.most, start.default) == ("from", 0, 9, 2)
    assert seed.optional and seed.type is int and not seed.is_required


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (Field("n", int), "a whole number"),
        (Field("n", int, least=1), "a whole number ≥ 1"),
        (Field("x", float, least=0, most=math.inf), "a number ≥ 0"),
        (Field("t", str, most=8000), "a text of at most 8,000 characters"),
        (Field("t", list[int], least=1, most=9), "a list of 1 to 9 whole numbers"),
        (Field("t", list[Any]), "a list"),
        (Field("t", tuple[tuple[int, int], ...]), "a list of lists, each of 2 values"),
        (Field("t", Mapping[str, float], most=4), "a table of at most 4 entries"),
        (Field("c", choices=("a", True)), "one of a, true"),
        (Field("u", str | tuple[str, ...] | None), "a text or a list of texts or null"),
        (Field("p", tuple[int, int]), "a list of 2 values"),
    ],
)
def test_what_a_value_must_be_is_said_in_words(one: Field, words: str) -> None:
    assert describe(one) == words
    json.dumps(one.schema())


def test_digits_are_an_id() -> None:
    assert is_id("7") and not is_id("-7") and not is_id("") and not is_id(7) and not is_id("9" * 4000)
