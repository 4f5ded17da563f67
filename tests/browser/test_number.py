"""`number.js` prints the digits that `pellucid explain` prints."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import pellucid
from pellucid.base.formatting import format_number
from tests.browser.driver import Visitor, load_modules
from tests.browser.numbers import DIGITS, draw_numbers

PAGE = Path(pellucid.__file__).parent / "server/explorer" / "page"
FORMAT = """
async ([text, digits]) => {
  const { format } = await import("./number.js");
  return JSON.stringify(JSON.parse(text).map((value) => digits.map((count) => format(value, count))));
}
"""


def format_in_browser(
    visitor: Visitor, numbers: Sequence[float], digits: Sequence[int | str]
) -> list[list[str]]:
    """Returns each number with each count of digits, as the page formats it."""
    values = [number if math.isfinite(number) else str(number) for number in numbers]
    page = visitor.page if visitor.origin else load_modules(visitor, PAGE)
    found: list[list[str]] = json.loads(page.evaluate(FORMAT, [json.dumps(values), list(digits)]))
    return found


def find_differences(visitor: Visitor, numbers: Sequence[float]) -> list[tuple[float, int, str, str]]:
    """Returns number, digits, Python's text and the page's wherever the two texts differ."""
    rows = format_in_browser(visitor, numbers, DIGITS)
    texts = [text for row in rows for text in row]
    expected = [(number, digits, format_number(number, digits)) for number in numbers for digits in DIGITS]
    return [(*facts, text) for facts, text in zip(expected, texts, strict=True) if facts[2] != text]


def test_the_page_and_python_print_the_same_digits(visit: Callable[..., Visitor]) -> None:
    """10,000 numbers, each with 2 to 8 digits."""
    assert find_differences(visit(), draw_numbers(10_000)) == []


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(1, 11))
def test_the_page_and_python_print_the_same_digits_of_any_number(
    visit: Callable[..., Visitor], seed: int
) -> None:
    assert find_differences(visit(), draw_numbers(20_000, seed)) == []


def test_the_browser_alone_would_round_ties_otherwise(visit: Callable[..., Visitor]) -> None:
    """So the comparison above notices a formatter that trusts `toPrecision`."""
    visitor, ties = visit(), [0.125, 8.25, 1.03125]
    assert [row[0] for row in format_in_browser(visitor, ties, [2])] == ["0.12", "8.2", "1"]
    rounded = visitor.page.evaluate("(numbers) => numbers.map((x) => x.toPrecision(2))", ties)
    assert rounded == ["0.13", "8.3", "1.0"]


def test_the_exact_number_reads_back_as_the_same_number(visit: Callable[..., Visitor]) -> None:
    numbers = [number for number in draw_numbers(2_000, seed=7) if math.isfinite(number)]
    rows = format_in_browser(visit(), numbers, ["exact"])
    assert [float(text) for (text,) in rows] == numbers
    assert [text for (text,) in rows] == [repr(number + 0.0).removesuffix(".0") for number in numbers]
