"""A table becomes a dataclass with every key known and every value of its type, or one error."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from pellucid.base import strict
from pellucid.base.errors import ConfigError


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
    assert strict.read(Outer, given, "a thing") == Outer(
        "a", 2.0, ((1, 2), (3, 4)), "b.txt", None, False, Inner(5, ("x", "y")), {"anything": [1]}
    )


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ([], ("a thing", "[]")),
        ({"nmae": "a"}, ("'nmae'", "'name'")),
        ({}, ("a thing", "name")),
        ({"name": 3}, ("name", "a string", "3")),
        ({"name": "a", "rate": "1"}, ("rate", "a number", "'1'")),
        ({"name": "a", "rate": True}, ("rate", "True")),
        ({"name": "a", "rate": float("nan")}, ("rate", "nan")),
        ({"name": "a", "seed": 3.0}, ("seed", "an integer or null", "use 3")),
        ({"name": "a", "seed": True}, ("seed", "True")),
        ({"name": "a", "seed": 2**64}, ("seed",)),
        ({"name": "a", "exact": 1}, ("exact", "true or false")),
        ({"name": "a", "pairs": [[1, 2, 3]]}, ("pairs",)),
        ({"name": "a", "validation": []}, ("validation", "a number or a string")),
        ({"name": "a", "inner": {"evry": 1}}, ("a key of inner", "'every'")),
        ({"name": "a", "inner": {"every": "1"}}, ("inner.every", "an integer")),
        ({"name": "a", "inner": {"every": 1, "only": "x"}}, ("inner.only", "a list of strings")),
        ({"name": "a", "inner": 5}, ("inner", "a table")),
        ({"name": "a", "rest": 5}, ("rest", "a table")),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_key(given: Any, facts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        strict.read(Outer, given, "a thing")
    assert all(fact in str(refused.value) for fact in facts)


def test_a_caller_may_convert_some_fields_and_choose_the_error() -> None:
    def convert(field: Any, value: Any, name: str) -> Any:
        return value.upper() if name == "name" else NotImplemented

    assert strict.read(Outer, {"name": "a", "rate": 3}, "a thing", convert=convert) == Outer("A", 3.0)
    with pytest.raises(LookupError):
        strict.read(Outer, {}, "a thing", error=LookupError)
