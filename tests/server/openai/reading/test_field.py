"""What a value of a request may be, and the place that an error names."""

from typing import Any

import pytest

from pellucid.base.errors import UsageError
from pellucid.server.openai.fields import get_fields, make_field
from pellucid.server.openai.reading.field import IDS, MOST_IDS, index_fields, read_object, read_prompts


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        (make_field("b", "", str, most=3), [1, "abcd", ["a"]]),
        (make_field("b", "", str, choices=("a",), refusals={"c": "It is not."}), ["b", "c", 1, ["a"], None]),
        (IDS, [[], [True], [1.0], [-1], [2**24], ["1"], 1, "1"]),
        (
            make_field("b", "", Any, then=read_prompts(2)),
            [1, {}, [], ["a", "b", "c"], ["a", 1], [1, "a"], [[1], []], [["a"]], [None]],
        ),
    ],
)
def test_a_value_of_another_type_or_beyond_its_bounds_is_refused_with_its_place(row: Any, wrong: Any) -> None:
    for value in wrong:
        with pytest.raises(UsageError) as caught:
            row.read(value, "a.b")
        assert caught.value.path.startswith("a.b"), value


def test_the_field_of_a_setting_is_at_fault_and_not_an_entry() -> None:
    with pytest.raises(UsageError) as caught:
        get_fields("chat")["stop_ids"].read([1, -1], "stop_ids")
    assert caught.value.path == "stop_ids"


def test_a_prompt_is_a_text_or_ids_or_several_of_them() -> None:
    def read(value: Any) -> Any:
        return read_prompts(3)(value, "prompt")

    assert read("A") == ["A"] and read(["A", "B"]) == ["A", "B"]
    assert (
        read([1, 2]) == [[1, 2]] and read([[1, 2], [3]]) == [[1, 2], [3]] and read(["A", [1]]) == ["A", [1]]
    )
    with pytest.raises(UsageError) as caught:
        read([[1], [1, True]])
    assert caught.value.path == "prompt[1][1]"
    assert read([0] * MOST_IDS) == [[0] * MOST_IDS]
    with pytest.raises(UsageError):
        read([0] * (MOST_IDS + 1))


ROWS = index_fields(
    make_field("size", "How large it is.", int, least=1, most=9, default=4),
    make_field("seed", "A setting.", int, setting="seed"),
    make_field("user", "No accounts.", fate="ignored"),
    make_field("tools", "No tools: omit it.", fate="refused", neutral=([], False)),
    make_field("best_of", "Use n.", fate="refused", same_as="size", same_default=4),
)


def test_null_is_a_field_that_is_not_given() -> None:
    assert read_object(ROWS, dict.fromkeys(ROWS), "it") == read_object(ROWS, {}, "it") == {"size": 4}


@pytest.mark.parametrize("value", [[], False])
def test_a_refused_field_is_accepted_where_it_asks_for_nothing(value: Any) -> None:
    assert read_object(ROWS, {"tools": value}, "it") == {"size": 4}


@pytest.mark.parametrize(
    "given", [{"tools": 0}, {"tools": [1]}, {"best_of": 3}, {"size": 3, "best_of": 4}, {"best_of": 4.0}]
)
def test_it_is_refused_by_name_where_it_asks_for_something(given: Any) -> None:
    with pytest.raises(UsageError) as caught:
        read_object(ROWS, given, "it", "a[1].")
    assert caught.value.path in ("a[1].tools", "a[1].best_of")


def test_a_field_may_have_to_equal_another() -> None:
    assert read_object(ROWS, {"best_of": 4}, "it") == {"size": 4}
    assert read_object(ROWS, {"best_of": 3, "size": 3}, "it") == {"size": 3}


def test_an_ignored_field_may_be_anything() -> None:
    assert read_object(ROWS, {"user": {"a": [1, None]}}, "it") == {"size": 4}


def test_an_unknown_field_of_any_length_gets_a_short_answer() -> None:
    with pytest.raises(UsageError) as caught:
        read_object(ROWS, {"sizes": 1}, "it")
    assert caught.value.path == "sizes" and "'size'" in str(caught.value)
    with pytest.raises(UsageError) as caught:
        read_object(ROWS, {"s" * 10**6: 1}, "it")
    assert len(str(caught.value)) < 300 and len(caught.value.path) < 100
