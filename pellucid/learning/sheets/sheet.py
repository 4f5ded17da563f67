"""A worksheet: a program over printed numbers, whose results are asked.

A key is the address of a cell, `STEP~n` for a part that several boxes of a step share, or `ADDRESS~rest` for
a folded remainder. A sheet holds no answers: the answer key is its program, run on the printed numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pellucid.explanation.rule import Rule, compute

FORMS = ("compute", "sign", "find")
MOST_BOXES = 5_000
LEVELS = {
    0: "worked, every step with its arithmetic",
    1: "the last step of each part open",
    2: "every step open",
    3: "the same step in a pretrained model",
}


@dataclass(frozen=True)
class Given:
    """A printed number. Exact where the text is the number itself, so that rounding cannot hide in it."""

    text: str
    exact: bool
    symbol: str

    @cached_property
    def value(self) -> float:
        return float(self.text)

    @property
    def half_unit(self) -> float:
        """Half a unit of the last printed place; 0 where the number is exact."""
        return 0.0 if self.exact else half_unit(self.text)


@dataclass(frozen=True)
class Box:
    """A number that is asked: the rule that computes it from printed numbers and earlier boxes.

    `shown` is the answer's text where the sheet prints it (levels 0 and 1), else empty. `decimals` is how
    many decimals are asked; an `exact` answer has no rounding. `mistakes` are other rules for the same box,
    by the name of the mistake.
    """

    key: str
    symbol: str
    meaning: str
    step: str
    op: str
    phase: str
    formula: str
    rule: Rule
    decimals: int
    exact: bool = False
    focus: bool = False
    form: str = "compute"
    shown: str = ""
    mistakes: Mapping[str, Rule] = field(default_factory=dict)

    @property
    def half_unit(self) -> float:
        """Half a unit of the last asked place; 0 where the answer is exact."""
        return 0.0 if self.exact else 0.5 * 10.0**-self.decimals

    def format(self, value: float, more: int = 0) -> str:
        """Returns an answer as the key prints it, with `more` decimals than asked: 0.2500, or 0.25 where it
        is exact."""
        text = format_answer(value, self.decimals + more)
        return trim_zeros(text) if self.exact and "e" not in text else text


@dataclass(frozen=True)
class SumCheck:
    """Numbers with a known sum, which the learner can check: a row of probabilities sums to 1."""

    keys: tuple[str, ...]
    sum: float


@dataclass(frozen=True)
class Sheet:
    """A worksheet; `answers` holds what the learner wrote, by key."""

    title: str
    boxes: tuple[Box, ...]
    given: Mapping[str, Given]
    checks: Sequence[SumCheck] = ()
    lesson: int | None = None
    level: int = 2
    seed: int = 0
    source: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def key(self) -> dict[str, float]:
        """The value of every given number and of every box: the program run on the printed numbers."""
        values = {key: given.value for key, given in self.given.items()}
        for box in self.boxes:
            values[box.key] = compute(box.rule, values)
        return values

    @cached_property
    def by_key(self) -> dict[str, Box]:
        return {box.key: box for box in self.boxes}

    @cached_property
    def by_step(self) -> dict[str, list[Box]]:
        found: dict[str, list[Box]] = {}
        for box in self.boxes:
            found.setdefault(box.step, []).append(box)
        return found

    def symbol(self, key: str) -> str:
        """Returns the symbol of a given number or of a box."""
        return (self.by_key.get(key) or self.given[key]).symbol


def half_unit(text: str) -> float:
    """Returns half a unit of the last place of a printed number.

    >>> half_unit("0.25"), half_unit("3.1e-4"), half_unit("12")
    (0.005, 5e-06, 0.5)
    """
    mantissa, _, exponent = text.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(f"5e{int(exponent or 0) - decimals - 1}")


def format_answer(value: float, decimals: int) -> str:
    """Returns a number with this many decimals, as an answer key prints it; small ones as powers of ten.

    >>> format_answer(0.33024, 4), format_answer(-0.00001, 4), format_answer(3.14159e-5, 8)
    ('0.3302', '0.0000', '3.142e-5')
    """
    text = f"{value:.{decimals}f}"
    if float(text) == 0:
        return text.removeprefix("-")
    if decimals > 6 and abs(value) < 1e-4:
        return format_power(float(text), significant_digits(text))
    return text


def format_power(value: float, digits: int) -> str:
    """Returns a number as a power of ten with this many significant digits: 3.142e-5."""
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def trim_zeros(text: str) -> str:
    """Returns a number without the zeros that end its decimals.

    >>> trim_zeros("0.50"), trim_zeros("2.00"), trim_zeros("20")
    ('0.5', '2', '20')
    """
    return text.rstrip("0").rstrip(".") if "." in text else text


def significant_digits(text: str) -> int:
    """Returns how many significant digits a printed number has.

    >>> significant_digits("0.00120"), significant_digits("-3.1e-4"), significant_digits("0")
    (3, 2, 1)
    """
    digits = text.lower().partition("e")[0].replace(".", "").strip("-+−").lstrip("0")
    return max(len(digits), 1)
