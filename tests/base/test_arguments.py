"""A wrong argument is refused with its parameter's name; a right one of any numeric library is taken."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.arguments import (
    check_bool,
    check_float,
    check_int,
    check_one_of,
    check_path,
    check_text,
)
from pellucid.base.errors import UsageError, show


class Silly:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("value", [5, np.int64(5), np.uint8(5), torch.tensor(5)])
def test_an_integer_of_any_library_is_an_integer(value: Any) -> None:
    found = check_int("count", value, least=0, most=5)
    assert found == 5 and type(found) is int


@pytest.mark.parametrize(
    "value",
    [None, "5", b"5", 1.0, 1.5, True, np.True_, -1, 6, 10**5000, [5], np.array([5, 5]), Silly()],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_an_integer_in_the_range_is_refused_by_name(value: Any) -> None:
    with pytest.raises(UsageError, match=r"^count must be a whole number from 0 to 5") as message:
        check_int("count", value, least=0, most=5)
    assert len(str(message.value)) < 150


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.int8(1)])
def test_a_number_of_any_library_is_a_float(value: Any) -> None:
    found = check_float("rate", value, least=0)
    assert found == 1.0 and type(found) is float


@pytest.mark.parametrize("value", [None, "1", True, float("nan"), float("inf"), -0.1, 10**400, 1j, [1.0]])
def test_what_is_not_a_finite_number_in_the_range_is_refused_by_name(value: Any) -> None:
    with pytest.raises(UsageError, match=r"^rate must be a finite number ≥ 0, not "):
        check_float("rate", value, least=0)


def test_texts_paths_names_and_switches_are_not_mistaken_for_each_other() -> None:
    assert check_text("prompt", "") == "" and check_bool("force", np.True_) is True
    assert check_path("out", Path("a")) == check_path("out", "a") == "a"
    for check, wrong in (
        (check_text, (None, b"x", 5)),
        (check_bool, (None, 0, 1, "yes")),
        (check_path, (None, b"x", 5, "", "a\0b", True)),
    ):
        for value in wrong:
            with pytest.raises(UsageError, match=r"^given must be "):
                check("given", value)
    for value in (None, 5, "ab", ["a"]):
        with pytest.raises(UsageError, match=r"^given must be one of a, b; got "):
            check_one_of("given", value, ("a", "b"))


def test_what_is_shown_fits_one_line_of_a_message() -> None:
    assert "\n" not in show("a\nb") and "\n" not in show(np.ones((20, 20)))
    assert len(show("x" * 10_000)) <= 80 and "Silly" in show(Silly()) and "int" in show(10**5000)
