"""The references of a page: what stands between {{ and }}, and what it becomes.

{{probs[t=1,v=2]}}        a number of the program's first run, with four decimals; exact ones as they are
{{probs[t=1,v=2] 2}}      with two decimals
{{probs[t=1]}}            a row: (0.1038, 0.1444, …)
{{without/probs[t=1]}}    of the run `without`; the name of a run stands before any address, also below
{{transfer/KEY}}          a number of the shipped sheet of level 3, by its key
{{= probs[t=1,v=2]}}      the arithmetic of a number, with its operands; {{= ADDRESS 3}} three digits
{{formula probs}}         the formula of a value
{{table probs[t=1]}}      a row or a matrix as a table; alone on its line
{{size probs v}}          the length of an axis: 4
{{words probs v}}         the length of an axis in words: four
{{number updates}}        what `numbers()` of the program has under that name; {{number updates 2}}
{{words updates}}         the same in words
{{config gpt2.vocab_size}}   a setting of a preset
{{count gpt2}}            the number of its parameters
{{picture loss}}          a picture of `pictures()`; alone on its line
{{answer probs[t=1,v=2]}} a number, hidden until it is asked for
{{answer}} … {{/answer}}  a longer answer, hidden likewise; each mark alone on its line
{{sheet 2}}               how to get the lesson's sheet of that level; {{sheet 2 NAME}} one of several
[[14]]                    a link to another lesson
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from pellucid.base.errors import AddressError, UsageError, unknown
from pellucid.config import preset
from pellucid.config.cost import count_parameters
from pellucid.explanation import address as addresses
from pellucid.explanation.derive import record_arithmetic
from pellucid.explanation.formula import build_formula
from pellucid.explanation.pieces import format_expression
from pellucid.explanation.table import Slice
from pellucid.explanation.trace import Trace
from pellucid.learning.lessons.program import LessonProgram
from pellucid.learning.sheets.digits import count_decimals, is_exact
from pellucid.learning.sheets.sheet import LEVELS, format_answer, trim_zeros
from pellucid.report.figure import Figure

DECIMALS = 4
"""Decimals of a number, where a reference does not say how many."""
TOP = 8
"""Terms of a sum that an arithmetic shows, at most."""
WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip


@dataclass(frozen=True)
class PageNumber:
    """A number, with the run and the address that it has there; both are empty for any other text."""

    text: str
    run: str = ""
    address: str = ""


@dataclass(frozen=True)
class PageNumbers:
    """A row of numbers."""

    numbers: tuple[PageNumber, ...]


@dataclass(frozen=True)
class PageCode:
    """A formula, or the arithmetic of a number."""

    text: str


@dataclass(frozen=True)
class PageTable:
    """A matrix with its headings; the corner has the symbol."""

    rows: tuple[tuple[PageNumber, ...], ...]


@dataclass(frozen=True)
class PagePicture:
    """A picture of the program."""

    name: str
    figure: Figure


@dataclass(frozen=True)
class PageAnswer:
    """An answer that is hidden until it is asked for."""

    number: "PageNumber | PageNumbers"


@dataclass(frozen=True)
class PageFold:
    """The line where a longer answer begins, or ends."""

    is_start: bool


@dataclass(frozen=True)
class PageSheet:
    """One of the lesson's worksheets."""

    level: int
    name: str = ""


Resolved = PageNumber | PageNumbers | PageCode | PageTable | PagePicture | PageAnswer | PageFold | PageSheet
BLOCKS = (PageTable, PagePicture, PageFold, PageSheet)
"""What must stand alone on its line."""

_ADDRESS = re.compile(
    r"(?:(?P<run>[^/\[\]{}]+)/)?(?P<address>[^\s/\[\]]+(?:\[[^\]]*\])?)(?:\s+(?P<digits>\d))?"
)


@dataclass(frozen=True)
class References:
    """What the references of one page can name: the runs of its program and its sheets."""

    program: LessonProgram
    sheets: tuple[str, ...] = ("",)
    _kinds: Mapping[str, Callable[[str], Resolved]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kinds = {
            "=": self._arithmetic,
            "formula": self._formula,
            "table": self._table,
            "size": self._size,
            "words": self._words,
            "number": self._further_number,
            "config": self._config,
            "count": self._count,
            "picture": self._picture,
            "answer": self._answer,
            "/answer": lambda _: PageFold(False),
            "sheet": self._sheet,
        }
        object.__setattr__(self, "_kinds", kinds)

    def resolve(self, text: str) -> Resolved:
        """Returns what a reference means; raises a PellucidError where it names nothing."""
        first, _, rest = text.strip().partition(" ")
        kind = self._kinds.get(first)
        if kind is None:
            return self._address(text.strip())
        return kind(rest.strip())

    # ---- numbers

    def _address(self, text: str) -> PageNumber | PageNumbers:
        usage = f"it is not a reference; the kinds are {', '.join(self._kinds)} and ADDRESS."
        if (found := _ADDRESS.fullmatch(text)) and found["run"] == "transfer":
            return self._transfer(found["address"], int(found["digits"]) if found["digits"] else None)
        trace, part, run, digits = self._find(text, usage)
        value = Slice(trace, part).value
        if value.ndim > 1:
            raise AddressError(f"it is a table of {value.ndim} axes; write {{{{table {text}}}}}.")
        decimals = count_decimals(value.flat, DECIMALS) if digits is None else digits
        numbers = tuple(
            PageNumber(format_value(float(trace.value(part.name)[index]), decimals), run, address)
            for index, address in _cells(trace, part)
        )
        return numbers[0] if value.ndim == 0 else PageNumbers(numbers)

    def _find(self, text: str, usage: str) -> tuple[Trace, addresses.Address, str, int | None]:
        """Returns the run that an address is in, the address, the run's name, and how many digits are asked;
        `usage` says what to write instead of a text that is not an address."""
        found = _ADDRESS.fullmatch(text)
        if not found:
            raise AddressError(usage)
        traces, digits = self.program.traces, int(found["digits"]) if found["digits"] else None
        run = found["run"] or next(iter(traces))
        if run not in traces:
            raise AddressError(unknown("a run of this lesson", run, [*traces, "transfer"]))
        return traces[run], addresses.parse(traces[run], found["address"]), run, digits

    def _transfer(self, key: str, digits: int | None) -> PageNumber:
        sheet = self.program.transfer
        if sheet is None:
            raise AddressError("this lesson ships no sheet of level 3.")
        if key not in sheet.key:
            raise AddressError(unknown("a key of the sheet of level 3", key, sheet.key))
        value = sheet.key[key]
        decimals = count_decimals([value], DECIMALS) if digits is None else digits
        return PageNumber(format_value(value, decimals))

    def _arithmetic(self, text: str) -> PageCode:
        trace, part, _, digits = self._find(text, "write {{= ADDRESS}}.")
        if part.cell is None:
            raise AddressError(f"it is more than one number: {addresses.describe_missing(trace, part)}.")
        step = trace.tape.steps.get(part.name)
        if step is None:
            raise AddressError(f"{part.name} is given and not computed, so it has no arithmetic.")
        arithmetic = record_arithmetic(trace, step, part.cell, TOP)
        return PageCode(_sign(format_expression(arithmetic, DECIMALS if digits is None else digits)))

    def _formula(self, text: str) -> PageCode:
        trace, part, *_ = self._find(text, "write {{formula NAME}}.")
        step = trace.tape.steps.get(part.name)
        if step is None:
            raise AddressError(f"{part.name} is given and not computed, so it has no formula.")
        shape = trace.value(part.name).shape
        index = tuple(size - 1 if i is None else i for i, size in zip(part.index, shape, strict=True))
        return PageCode(str(build_formula(trace, step, index)))

    def _further_number(self, text: str) -> PageNumber:
        name, _, digits = text.partition(" ")
        numbers = self.program.numbers
        if name not in numbers or not (digits.isdigit() or not digits):
            raise AddressError(unknown("a number of numbers()", name, numbers))
        value = float(numbers[name])
        return PageNumber(format_value(value, int(digits) if digits else count_decimals([value], DECIMALS)))

    def _size(self, text: str) -> PageNumber:
        return PageNumber(f"{self._axis_size(text):,}")

    def _words(self, text: str) -> PageNumber:
        is_axis = len(text.split()) == 2
        value = self._axis_size(text) if is_axis else float(self._further_number(text).text.replace(",", ""))
        if value != int(value) or not 0 <= value < len(WORDS):
            raise AddressError(f"{value:g} has no word here; write {{{{number …}}}} or {{{{size …}}}}.")
        return PageNumber(WORDS[int(value)])

    def _axis_size(self, text: str) -> int:
        address, _, axis = text.partition(" ")
        trace, part, *_ = self._find(
            address if axis else "", "write {{size NAME AXIS}}, for example {{size probs v}}."
        )
        axes = trace.about(part.name).axes
        if axis not in axes:
            raise AddressError(unknown(f"an axis of {part.name}", axis, axes))
        return trace.size(part.name, axis)

    # ---- tables

    def _table(self, text: str) -> PageTable:
        trace, part, run, digits = self._find(text, "write {{table ADDRESS}}.")
        shape = trace.value(part.name).shape
        index = tuple(0 if size == 1 else i for i, size in zip(part.index, shape, strict=True))
        whole = Slice(trace, addresses.Address(part.name, index))
        if not 1 <= len(whole.axes) <= 2:
            raise AddressError(f"a table has one or two axes that are whole, not {len(whole.axes)}.")
        digits = count_decimals(whole.value.flat, DECIMALS) if digits is None else digits
        cells = [
            PageNumber(format_value(float(trace.value(part.name)[place]), digits), run, address)
            for place, address in _cells(trace, whole.part)
        ]
        about = trace.about(part.name)
        grid = np.array(cells, dtype=object).reshape(whole.value.shape)
        axes = list(whole.axes)
        if about.transposed and grid.ndim == 2:
            grid, axes = grid.T, axes[::-1]
        if grid.ndim == 1:
            grid, axes = grid[None], ["", *axes]
        headings = [_headings(whole, axis) if axis else [PageNumber("")] for axis in axes]
        letters = ",".join(axis for axis in axes if axis)
        corner = PageNumber(f"{about.symbol}[{letters}]")
        body = [(head, *row) for head, row in zip(headings[0], grid.tolist(), strict=True)]
        return PageTable(((corner, *headings[1]), *body))

    # ---- models, pictures, sheets

    def _config(self, text: str) -> PageNumber:
        name, _, setting = text.rpartition(".")
        config = preset(name)
        if setting not in config.to_dict():
            raise AddressError(unknown(f"a setting of {name}", setting, config.to_dict()))
        value = config.to_dict()[setting]
        return PageNumber(f"{value:,}" if isinstance(value, int) else str(value))

    def _count(self, text: str) -> PageNumber:
        return PageNumber(f"{count_parameters(preset(text)):,}")

    def _picture(self, text: str) -> PagePicture:
        pictures = self.program.pictures
        if text not in pictures:
            raise AddressError(unknown("a picture of this lesson", text, pictures))
        return PagePicture(text, pictures[text])

    def _answer(self, text: str) -> PageAnswer | PageFold:
        if not text:
            return PageFold(True)
        found = self.resolve(text)
        if not isinstance(found, PageNumber | PageNumbers):
            raise AddressError("write {{answer ADDRESS}}, or {{answer}} and {{/answer}} around the answer.")
        return PageAnswer(found)

    def _sheet(self, text: str) -> PageSheet:
        level, _, name = text.partition(" ")
        if level not in map(str, LEVELS):
            raise UsageError(unknown("the level of a sheet", level, map(str, LEVELS)))
        if name and name not in self.sheets:
            raise UsageError(unknown("a sheet of this lesson", name, self.sheets))
        return PageSheet(int(level), name)


def _cells(trace: Trace, part: addresses.Address) -> list[tuple[tuple[int, ...], str]]:
    """Returns the index and the address of each number of a part, in order."""
    shape = trace.value(part.name).shape
    places = [range(size) if i is None else (i,) for i, size in zip(part.index, shape, strict=True)]
    found = [tuple(int(i) for i in place) for place in np.ndindex(*map(len, places))]
    indices = [tuple(axis[i] for axis, i in zip(places, place, strict=True)) for place in found]
    return [(index, trace.address(part.name, index)) for index in indices]


def _headings(part: Slice, axis: str) -> list[PageNumber]:
    texts = part.texts(axis)
    return [PageNumber(f"{axis}={i}" + (f" {text}" if text else "")) for i, text in enumerate(texts)]


# ---- numbers as text


def format_value(value: float, decimals: int) -> str:
    """Returns a number of a page: an exact one as it is, else with these decimals; a true minus sign.

    >>> format_value(-0.5, 4), format_value(1 / 3, 4), format_value(2000.0, 4), format_value(-0.69, 1)
    ('−0.5', '0.3333', '2,000', '−0.7')
    """
    if not math.isfinite(value):
        return _sign(f"{value}".replace("inf", "∞"))
    text = trim_zeros(f"{value + 0.0:,.2f}")
    if is_exact(value) and len(text.partition(".")[2]) <= decimals:
        return _sign(text if float(text.replace(",", "")) else "0")
    return _sign(format_answer(value, decimals))


def _sign(text: str) -> str:
    return re.sub(r"-(?=[\d.∞(e ])", "−", text)
