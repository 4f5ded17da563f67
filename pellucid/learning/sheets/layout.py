"""The layout of a worksheet: what stands on its pages, in order; `page.py` writes it as Markdown and HTML."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product

from pellucid.base.formatting import escape_controls, pluralize
from pellucid.base.names import describe
from pellucid.explanation.rule import compute, find_keys, format_rule, is_call, walk
from pellucid.learning.sheets.sheet import Box, Sheet

PHASES = {"fwd": "Forward pass", "bwd": "Backward pass", "upd": "Update"}
MOST_COLUMNS, PAPER_WIDTH = 8, 76
"""A matrix of more columns, or letters beside each other, is a list of its numbers: a table would not fit."""
GUARD_DIGITS = 4
"""The most digits beyond those asked with which an answer stands in the arithmetic of another."""
_BASE = re.compile(r"[^\s\[\](),·+/^=√Σ−-]+(?=\[)")
_INDEXED = re.compile(r"(?P<base>[^\[\]]+)\[(?P<index>[^\[\]]*)\]")


@dataclass(frozen=True)
class NumberTable:
    """A matrix of given numbers, with the index and the token of each row and column."""

    symbol: str
    about: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class NumberList:
    """Given numbers of one value, each with its symbol."""

    symbol: str
    about: str
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class AnswerLine:
    """A box on the page: its number, what it is, the arithmetic where it is shown, and its answer, empty
    where it is asked."""

    number: int
    symbol: str
    work: str
    answer: str
    key: str = ""
    """Of the box, where it is asked."""


@dataclass(frozen=True)
class StepSection:
    """The boxes of one step, under its formula.

    `name` is that of the value, where the title does not say which it is; `example` the arithmetic of one
    box, where the formula does not say what it reads.
    """

    phase: str
    title: str
    name: str
    formula: str
    example: str
    asked: str
    lines: tuple[AnswerLine, ...]
    checks: tuple[str, ...]


def describe_run(sheet: Sheet) -> list[tuple[str, str]]:
    """Returns what was run: the model, the prompts with their targets, and the update; and which symbols are
    equal in this run."""
    source = sheet.source
    prompts, targets = (_list_texts(source.get(name)) for name in ("prompts", "targets"))
    rows = [("model", to_line(source["model"]))] if source.get("model") else []
    for i, prompt in enumerate(prompts):
        target = f" → {targets[i]}" if i < len(targets) and targets[i] else ""
        rows.append(("prompt", f"{prompt}{target}"))
    update = source.get("update")
    if isinstance(update, Mapping) and update:
        rows.append(
            ("update", ", ".join(f"{to_line(name)} {to_line(value)}" for name, value in update.items()))
        )
    if equal := _list_texts(source.get("equal")):
        rows.append(("equal here", "; ".join(equal)))
    return rows


def _list_texts(value: object) -> list[str]:
    """Returns texts as they are printed, with a mark for each space at the beginning: ·mat."""
    texts = [str(entry) for entry in value] if isinstance(value, list | tuple) else []
    return ["·" * (len(text) - len(text.lstrip(" "))) + to_line(text) for text in texts]


def to_line(value: object) -> str:
    """Returns a text on one line, without characters that a terminal or a page would obey."""
    return "" if value is None else escape_controls(" ".join(str(value).split()), keep="")


# ---- the given numbers


def lay_out_given(sheet: Sheet) -> Iterator[NumberTable | NumberList]:
    """Yields the given numbers: whole matrices as tables, the others as lists, one value after another. A
    remainder stands in the arithmetic of the boxes that read it."""
    groups: dict[str, list[str]] = defaultdict(list)
    rests = _find_rests(sheet)
    for key in sheet.given:
        found = _INDEXED.fullmatch(key)
        if key not in rests:
            groups[found["base"] if found else key].append(key)
    scalars = list[str]()
    terms = Counter(entry.term for name in groups if (entry := describe(name)))
    for name, keys in groups.items():
        if len(keys) == 1 and not _INDEXED.fullmatch(keys[0]):
            scalars += keys
        else:
            entry = describe(name)
            yield from _lay_out_value(sheet, name, keys, entry is not None and terms[entry.term] > 1)
    if scalars:
        yield NumberList("", "single numbers", _list_numbers(sheet, scalars))


def _find_rests(sheet: Sheet) -> set[str]:
    """Returns the keys of the remainders of all boxes."""
    return {key for box in sheet.boxes for key in _find_box_rests(sheet, box)}


def _lay_out_value(
    sheet: Sheet, name: str, keys: Sequence[str], is_ambiguous: bool
) -> Iterator[NumberTable | NumberList]:
    """Yields the given numbers of one value; its name beside its term where that `is_ambiguous`."""
    cells = {}
    for key in keys:
        found = _INDEXED.fullmatch(sheet.given[key].symbol)
        cells[key] = tuple(found["index"].split(",")) if found else ()
    symbol = to_line(sheet.given[keys[0]].symbol.partition("[")[0])
    entry = describe(name)
    term = to_line(entry.term if entry else _find_meaning(sheet, name))
    about = f"{term}, {to_line(name)}" if entry and is_ambiguous else term
    axes = _find_axes(sheet, cells)
    order = _put_fixed_first(list(cells.values()), len(axes))
    ordered = {key: tuple(index[i] for i in order if i < len(index)) for key, index in cells.items()}
    slices: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for key, index in ordered.items():
        slices[index[:-2]].append(key)
    letters = tuple(axes[i] for i in order)
    tables = [_lay_out_table(sheet, symbol, about, part, ordered, letters) for part in slices.values()]
    whole = [table for table in tables if table is not None]
    if len(whole) == len(tables):
        yield from whole
    else:
        yield NumberList(symbol, _add_tokens(sheet, about, cells, axes), _list_numbers(sheet, keys))


def _find_meaning(sheet: Sheet, name: str) -> object:
    """Returns what a value is that the glossary does not know, as the sheet says; else its name."""
    meanings = sheet.source.get("meanings")
    return meanings.get(name, name) if isinstance(meanings, Mapping) else name


def _put_fixed_first(indices: Sequence[tuple[str, ...]], length: int) -> list[int]:
    """Returns the order of the axes in which those of one index come first: the last position of several
    prompts is a table of prompts and channels."""
    varied = [len({index[i] for index in indices if len(index) > i}) > 1 for i in range(length)]
    return sorted(range(length), key=varied.__getitem__) if length > 2 else list(range(length))


def _list_numbers(sheet: Sheet, keys: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((to_line(sheet.given[key].symbol), sheet.given[key].text) for key in keys)


def _find_axes(sheet: Sheet, cells: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the axis letter of each index of a symbol: the key's own order, or turned for a matrix that the
    formulas have transposed. Empty letters where neither fits."""
    length = max(map(len, cells.values()))
    pairs = [[entry.partition("=") for entry in key[:-1].partition("[")[2].split(",")] for key in cells]

    def fits(entries: list[tuple[str, str, str]], index: tuple[str, ...]) -> bool:
        return len(entries) == len(index) and all(
            at in (value, _find_token(sheet, axis, value))
            for (axis, _, value), at in zip(entries, index, strict=True)
        )

    for order in (pairs, [entries[::-1] for entries in pairs]):
        ends = [entries[max(len(entries) - length, 0) :] for entries in order]
        if all(map(fits, ends, cells.values())):
            return tuple(axis for axis, *_ in ends[0])
    return ("",) * length


def _lay_out_table(
    sheet: Sheet,
    symbol: str,
    about: str,
    keys: Sequence[str],
    cells: Mapping[str, tuple[str, ...]],
    axes: tuple[str, ...],
) -> NumberTable | None:
    """Returns the table of a matrix of which every cell is given; None for anything else."""
    if len(axes) < 2 or any(len(cells[key]) != len(axes) for key in keys):
        return None
    by_index = {cells[key][-2:]: key for key in keys}
    rows, columns = (list(dict.fromkeys(index[i] for index in by_index)) for i in range(2))
    is_whole = set(by_index) == set(product(rows, columns)) and len(by_index) == len(keys)
    if not is_whole or min(len(rows), len(columns)) < 2 or len(columns) > MOST_COLUMNS:
        return None
    widths = [max(len(sheet.given[by_index[row, column]].text) for row in rows) for column in columns]
    if sum(width + 2 for width in widths) > PAPER_WIDTH:
        return None
    *before, row_axis, column_axis = axes
    at = [f"{axis} = {_label(sheet, axis, i)}" for axis, i in zip(before, cells[keys[0]], strict=False)]
    return NumberTable(
        symbol,
        ", ".join([about, *at]),
        tuple(_label(sheet, column_axis, column) for column in columns),
        tuple(
            (
                _label(sheet, row_axis, row),
                tuple(sheet.given[by_index[row, column]].text for column in columns),
            )
            for row in rows
        ),
    )


def _label(sheet: Sheet, axis: str, index: str) -> str:
    """Returns an index with its token: 1 (B)."""
    token = _find_token(sheet, axis, index)
    return f"{to_line(index)} ({to_line(token)})" if token else to_line(index)


def _find_token(sheet: Sheet, axis: str, index: str) -> str:
    texts = sheet.labels.get(axis) or (sheet.labels.get("t") if axis == "s" else None) or ()
    token = texts[int(index)] if index.isdecimal() and len(index) < 9 and int(index) < len(texts) else ""
    return "" if "|" in token and "b" in sheet.labels else token  # another one in each row of the batch


def _add_tokens(sheet: Sheet, about: str, cells: Mapping[str, tuple[str, ...]], axes: tuple[str, ...]) -> str:
    """Returns what a list holds, with the tokens of the positions and ids that the list has."""
    found = []
    for i, axis in enumerate(axes):
        labels = [
            _label(sheet, axis, index)
            for index in dict.fromkeys(index[i] for index in cells.values() if len(index) > i)
        ]
        if any("(" in label for label in labels) and len(labels) <= MOST_COLUMNS:
            found.append(f"{axis} = {', '.join(labels)}")
    return "; ".join([about, *found])


# ---- the steps


def lay_out_steps(sheet: Sheet, key: bool = False) -> Iterator[StepSection]:
    """Yields the steps in the order of the boxes. With `key` every box has its answer and its arithmetic."""
    numbered = enumerate(sheet.boxes, 1)
    ends = {box.key: number for number, box in enumerate(sheet.boxes, 1)}
    steps = {box.step: box.meaning for box in sheet.boxes if "~" not in box.key}
    titles = Counter(steps.values())
    for (step, phase), group in groupby(numbered, lambda one: (one[1].step, one[1].phase)):
        boxes = list(group)
        first = next((box for _, box in boxes if "~" not in box.key), boxes[0][1])
        last = range(boxes[0][0], boxes[-1][0] + 1)
        yield StepSection(
            "" if first.form == "find" else PHASES.get(phase, to_line(phase)),
            to_line(first.meaning),
            to_line(step) if titles[first.meaning] > 1 else "",
            to_line(first.formula),
            "" if key else _find_example(sheet, first.formula, [box for _, box in boxes if not box.shown]),
            _describe_decimals([one for one in boxes if _asks_digits(one[1], key)]),
            tuple(_make_line(sheet, number, box, key) for number, box in boxes),
            tuple(
                f"{' + '.join(to_line(sheet.symbol(one)) for one in check.keys)} = {check.sum:g}"
                for check in sheet.checks
                if max((ends.get(one, 0) for one in check.keys), default=0) in last
            ),
        )


def _asks_digits(box: Box, key: bool) -> bool:
    return box.form == "compute" and (key or not box.shown)


def _describe_decimals(boxes: Sequence[tuple[int, Box]]) -> str:
    """Returns how many decimals the boxes of a step ask, and which ask how many where they differ."""
    runs = [
        (asked, [number for number, _ in run])
        for asked, run in groupby(
            boxes, lambda one: "" if one[1].exact else pluralize(one[1].decimals, "decimal")
        )
    ]
    if len({asked for asked, _ in runs if asked}) > 1:
        texts = [(asked or "exact", f"({run[0]})", f"({run[-1]})") for asked, run in runs]
        return ", ".join(
            f"{asked} in {first}" + (f" to {last}" if first != last else "") for asked, first, last in texts
        )
    return max((asked for asked, _ in runs), default="") or "exact" * bool(runs)


def _make_line(sheet: Sheet, number: int, box: Box, key: bool) -> AnswerLine:
    symbol = to_line(box.symbol)
    if key:
        return AnswerLine(number, symbol, _write_numbers(sheet, box), box.format(sheet.key[box.key]))
    if box.shown:
        return AnswerLine(number, symbol, _write_numbers(sheet, box, hides_open=True), to_line(box.shown))
    return AnswerLine(
        number, symbol, _write_symbols(sheet, box), to_line(sheet.answers.get(box.key, "")), box.key
    )


def _write_numbers(sheet: Sheet, box: Box, hides_open: bool = False) -> str:
    """Returns the arithmetic of a box with the printed numbers; with the symbols of boxes that are asked,
    where it `hides_open` ones.

    Answers that it reads have more digits than were asked where it would otherwise give another last digit:
    every line of a page can be recomputed from what stands on it.
    """
    if not is_call(box.rule) or box.form != "compute":
        return ""
    read = [sheet.by_key[key] for key in find_keys(box.rule) if key in sheet.by_key]
    wanted = box.shown or box.format(sheet.key[box.key])
    for more in range(GUARD_DIGITS + 1):
        texts = {
            one.key: one.shown if one.shown and not more else one.format(sheet.key[one.key], more)
            for one in read
        }
        values = {key: float(text) for key, text in texts.items()}
        value = compute(box.rule, {**sheet.key, **values})
        if box.format(value) == wanted:
            break
    if hides_open:
        texts |= {one.key: one.symbol for one in read if not one.shown}
    rests = _find_box_rests(sheet, box)
    return to_line(
        format_rule(box.rule, lambda key: texts.get(key) or rests.get(key) or sheet.given[key].text)
    )


def _find_box_rests(sheet: Sheet, box: Box) -> dict[str, str]:
    """Returns the remainders of a box, each as its number and what it is."""
    calls = [part for part in walk(box.rule) if is_call(part, "rest")]
    keys = [key for call in calls for key in find_keys(call) if key in sheet.given]
    return {key: f"{sheet.given[key].text} [{sheet.symbol(key)}]" for key in keys}


def _write_symbols(sheet: Sheet, box: Box) -> str:
    """Returns the arithmetic of a box in symbols, where the formula of its step does not say it: for a part
    of the formula, and for a sum of which only some terms are asked."""
    rests = _find_box_rests(sheet, box)
    if not rests and "~" not in box.key:
        return ""
    text = format_rule(box.rule, lambda key: rests.get(key) or sheet.symbol(key))
    return "" if text == box.symbol else to_line(text)


def _find_example(sheet: Sheet, formula: str, boxes: Sequence[Box]) -> str:
    """Returns the arithmetic of one box in symbols, where the formula has a symbol that is not on the sheet:
    that of a copy, such as the embedding of a token, which is a row of E."""
    known = {sheet.symbol(key).partition("[")[0] for key in (*sheet.given, *sheet.by_key)}
    if all(base in known for base in _BASE.findall(formula)):
        return ""
    texts = [
        f"{box.symbol} = {format_rule(box.rule, sheet.symbol)}"
        for box in boxes
        if "~" not in box.key and box.form == "compute" and not _write_symbols(sheet, box)
    ]
    return to_line(max(texts, key=len, default=""))
