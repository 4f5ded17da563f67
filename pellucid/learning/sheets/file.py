"""The sheet file: a worksheet as JSON, complete, so that it is marked without the model.

A Markdown sheet has the same data in one line at its end, and the answers on its lines; an
HTML sheet is for paper, and its page saves the answers typed into it as the JSON file. A rule is a key, a
number, or a list: `["+", RULE…, {"rest": KEY}]`, `[FUNCTION, RULE…]`.
"""

import dataclasses
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pellucid.base.errors import FileError, UsageError, show, unknown
from pellucid.base.files import (
    Damaged,
    Kind,
    check_format,
    check_output,
    need,
    new_file,
    read_text,
    validating,
)
from pellucid.base.schema import fields_of, fields_with, read, to_field
from pellucid.explanation.rule import ARITY, Rule, RuleCall, find_keys, is_call
from pellucid.learning.sheets.blanks import (
    AGAIN,
    MARK,
    MOST_BYTES,
    fill_blanks,
    read_blanks,
    read_data_line,
    write_data_line,
)
from pellucid.learning.sheets.page import write_html, write_markdown
from pellucid.learning.sheets.sheet import FORMS, LEVELS, MOST_BOXES, Box, Given, Sheet, SumCheck

FORMAT, VERSION = MARK, 1
ENDINGS = (".html", ".md", ".json")
ANSWER_BYTES = 20
"""The room that a sheet is written with for the answer of each box."""
MOST_NODES = 200_000
"""The largest number of keys, numbers and calls in all rules of a sheet."""
DEEPEST = 50
"""The deepest nesting of calls in a rule."""
MOST_ARGUMENTS = 500
"""The most terms of a sum or factors of a product: marking tries a sum without each of its terms."""
MOST_DECIMALS = 30
LONGEST_ANSWER = 400

_HTML_MARK = b'<meta name="generator" content="pellucid sheet">'
_NUMBER = re.compile(r"-?\d{1,40}(\.\d{1,40})?(e[-+]?\d{1,3})?", re.ASCII)


# ---- as JSON


def to_json(sheet: Sheet) -> dict[str, Any]:
    """Returns the sheet as a table of JSON values."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "title": sheet.title,
        "lesson": sheet.lesson,
        "level": sheet.level,
        "seed": sheet.seed,
        "source": dict(sheet.source),
        "labels": {axis: list(texts) for axis, texts in sheet.labels.items()},
        "given": {
            key: {"text": given.text, "exact": given.exact, "symbol": given.symbol}
            for key, given in sheet.given.items()
        },
        "boxes": [_box_to_json(box) for box in sheet.boxes],
        "checks": [{"keys": list(check.keys), "sum": check.sum} for check in sheet.checks],
        "answers": dict(sheet.answers),
    }


def _box_to_json(box: Box) -> dict[str, Any]:
    entry = {field.name: getattr(box, field.name) for field in dataclasses.fields(box)}
    entry |= {
        "rule": _rule_to_json(box.rule),
        "mistakes": {name: _rule_to_json(rule) for name, rule in box.mistakes.items()},
    }
    return entry


def _rule_to_json(rule: Rule) -> Any:
    if is_call(rule, "rest"):
        return {"rest": rule.args[0]}
    if isinstance(rule, RuleCall):
        return [rule.function, *map(_rule_to_json, rule.args)]
    return rule


def format_sheet(sheet: Sheet) -> str:
    """Returns the JSON with one line per given number, box and answer, so that `diff` can compare it."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    def block(value: Any) -> str:
        if isinstance(value, dict) and value:
            return "{\n" + ",\n".join(f"  {line(key)}: {line(inner)}" for key, inner in value.items()) + "\n}"
        if isinstance(value, list) and value:
            return "[\n" + ",\n".join(f"  {line(inner)}" for inner in value) + "\n]"
        return line(value)

    return "{" + ",\n".join(f"{line(key)}: {block(value)}" for key, value in to_json(sheet).items()) + "}\n"


def compute_code(sheet: Sheet) -> str:
    """Returns the short code of a sheet, printed on its pages: the same for every copy, whatever is
    answered."""
    blank = dataclasses.replace(sheet, answers={})
    return hashlib.sha256(format_sheet(blank).encode("utf-8", "backslashreplace")).hexdigest()[:8]


# ---- writing


def check_sheet_output(path: Path, force: bool = False) -> None:
    """Raises where a sheet could not be written to this path, before it is made."""
    if path.name and path.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"{path} does not end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}, and other formats cannot be "
            f"written: use -o {path.stem}.md."
        )
    check_output(path, SHEET_FILE, force)


def write_sheet(path: Path, sheet: Sheet, key: bool = False, force: bool = False) -> None:
    """Writes a sheet as HTML, Markdown or JSON by the ending of the path; with `key` its answer key."""
    check_sheet_output(path, force)
    data = format_file(sheet, path.suffix.lower(), key, path.name).encode("utf-8", "backslashreplace")
    most = MOST_BYTES - ANSWER_BYTES * len(sheet.boxes)
    size = max(len(data), len(_format_data(sheet).encode("utf-8", "backslashreplace")))
    if path.suffix.lower() != ".html" and size > most:
        raise UsageError(
            f"a sheet of {len(sheet.boxes):,} boxes can be marked up to {most:,} bytes, and this one has "
            f"{size:,}: ask fewer numbers with --boxes, or shorter sums with --top."
        )
    with new_file(path, SHEET_FILE, force) as file:
        file.write(data)


def format_file(sheet: Sheet, ending: str, key: bool = False, name: str = "FILE.md") -> str:
    """Returns the content of a sheet's file of that name. A key is the sheet with every answer filled in."""
    if key:
        sheet = fill_key(sheet)
    if ending == ".html":
        return write_html(sheet, compute_code(sheet), key, _format_data(sheet))
    if ending == ".json":
        return format_sheet(sheet)
    return f"{write_markdown(sheet, key, name)}\n\n{write_data_line(_format_data(sheet))}\n"


def _format_data(sheet: Sheet) -> str:
    """Returns the JSON of a sheet without answers, on one line."""
    data = to_json(dataclasses.replace(sheet, answers={}))
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def write_answers(path: Path, sheet: Sheet, typed: Mapping[str, str], before: str) -> None:
    """Writes typed answers into a sheet's file, whose text was `before`; in Markdown all else stays as it
    is."""
    answered = dataclasses.replace(sheet, answers={**sheet.answers, **typed})
    text = format_file(answered, path.suffix.lower())
    if path.suffix.lower() == ".md":
        filled = fill_blanks(before, sheet, typed)
        if read_blanks(filled, sheet).items() >= typed.items():
            text = filled
    with new_file(path, SHEET_FILE, force=True) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def fill_key(sheet: Sheet) -> Sheet:
    """Returns the sheet with the answer of every box."""
    answers = {box.key: box.format(sheet.key[box.key]) for box in sheet.boxes}
    return dataclasses.replace(sheet, answers=answers)


def _why_not_a_sheet(path: Path) -> str:
    """Returns why a file is not a sheet; empty where it is one, of whatever version."""
    if not path.is_file():
        return "it is not a file"
    if path.stat().st_size > MOST_BYTES:
        return f"it has more than {MOST_BYTES:,} bytes"
    mark = {".html": _HTML_MARK, ".md": f"<!-- {FORMAT}".encode()}.get(path.suffix.lower())
    data = path.read_bytes()
    if mark is not None:
        return "" if mark in data else "it has no mark of `pellucid sheet`"
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return "it is not JSON"
    is_sheet = isinstance(found, dict) and found.get("format") == FORMAT
    return "" if is_sheet else f'it does not say "format": "{FORMAT}"'


SHEET_FILE = Kind("a sheet", _why_not_a_sheet)


# ---- reading: a file may be damaged or malicious


def read_sheet(path: Path) -> Sheet:
    """Returns the sheet of a JSON or Markdown file, with the answers that were typed into it."""
    if path.suffix.lower() not in (".json", ".md"):
        page = " An HTML sheet saves its answers as a .json file;" if path.suffix.lower() == ".html" else ""
        raise FileError(
            f"cannot read answers from {path}: it is not a .json or .md file.{page} "
            "`pellucid sheet … -o FILE.md` writes the same sheet to type into."
        )
    text = read_text(path, MOST_BYTES).removeprefix("\ufeff")
    if path.suffix.lower() == ".json":
        return from_json(_parse(path, text), path)
    with validating(path):
        line = read_data_line(text)
    if line is None:
        raise FileError(
            f"{path} is not a sheet: it has no comment `<!-- {FORMAT} … -->` at its end, from which it is "
            f"marked: {AGAIN}."
        )
    sheet = from_json(_parse(path, line.text), path)
    with validating(path):
        typed = read_blanks(text[: line.start], sheet)
        for key, answer in typed.items():
            need(len(answer) <= LONGEST_ANSWER, f"the answer of box {show(key)} has {len(answer):,} letters")
    return dataclasses.replace(sheet, answers={**sheet.answers, **typed})


def _parse(path: Path, text: str) -> Any:
    """Returns the JSON values of a text; refuses NaN, infinities, integers of many digits and doubled keys,
    and letters that cannot be written again."""

    def refuse(word: str) -> float:
        raise Damaged(f"it has {show(word)}, which is not a finite number")

    def whole(digits: str) -> int:
        need(len(digits) <= 20, f"it has an integer of {len(digits):,} digits")
        return int(digits)

    def decimal(digits: str) -> float:
        number = float(digits)
        return number if math.isfinite(number) else refuse(digits)

    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            raise Damaged(f"it has the key {show(counts.most_common(1)[0][0])} twice")
        return made

    with validating(path):
        try:
            data = json.loads(
                text, object_pairs_hook=table, parse_constant=refuse, parse_int=whole, parse_float=decimal
            )
            json.dumps(data, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise Damaged("it has half of a surrogate pair, which is not text") from None
        except (ValueError, RecursionError) as error:
            raise FileError(f"{path} is not JSON: {error}.") from None
        return data


def from_json(data: Any, path: Path = Path("the sheet")) -> Sheet:
    """Returns the sheet of a table of JSON values; raises a FileError that names the box at fault."""
    found = check_format(path, data, "sheet", FORMAT, VERSION)
    with validating(path):
        content = {key: value for key, value in found.items() if key not in ("format", "version")}
        sheet = read(fields_with(Sheet, _READERS), content, "the sheet", Sheet, error=Damaged)
        _check(sheet)
        return sheet


def _read_given(value: Any, path: str) -> dict[str, Given]:
    made = {}
    for key, entry in _need_table(value, path).items():
        what = f"given {show(key)}"
        made[key] = read(fields_of(Given), entry, what, Given, path=what, error=Damaged)
    return made


def _read_boxes(value: Any, path: str) -> tuple[Box, ...]:
    need(isinstance(value, list), f"{path!r} is not a list")
    need(len(value) <= MOST_BOXES, f"it has {len(value):,} boxes; the limit is {MOST_BOXES:,}")
    reader = _RuleReader()
    return tuple(_read_box(entry, i, reader) for i, entry in enumerate(value))


def _read_box(entry: Any, i: int, reader: "_RuleReader") -> Box:
    need(
        isinstance(entry, dict) and isinstance(entry.get("key"), str),
        f"box {i + 1} is not a table with a key",
    )
    what = f"box {show(entry['key'])}"

    def read_shown(value: Any, path: str) -> str:
        is_shown = isinstance(value, str) and (value == "" or _is_number(value))
        need(is_shown, f"{what}: what is shown, {show(value)}, is not a finite number")
        return str(value)

    def read_mistakes(value: Any, path: str) -> dict[str, Rule]:
        table = _need_table(value, f"mistakes of {what}")
        return {name: reader.read(rule, f"{what}: mistake {show(name)}") for name, rule in table.items()}

    def read_rule(value: Any, path: str) -> Rule:
        return reader.read(value, what)

    fields = fields_with(Box, {"rule": read_rule, "shown": read_shown, "mistakes": read_mistakes})
    return read(fields, entry, what, Box, path=what, error=Damaged)


class _RuleReader:
    """Reads rules, and counts what they hold all together."""

    def __init__(self) -> None:
        self.nodes = 0

    def read(self, value: Any, what: str, depth: int = 1, in_sum: bool = False) -> Rule:
        self.nodes += 1
        need(self.nodes <= MOST_NODES, f"{what}: its rules have more than {MOST_NODES:,} parts")
        need(depth <= DEEPEST, f"{what}: its rule is nested deeper than {DEEPEST}")
        if isinstance(value, str):
            return value
        if type(value) in (int, float):
            need(math.isfinite(value), f"{what}: its rule has {show(value)}, which is not a finite number")
            return float(value)
        if isinstance(value, dict):
            rest = value.get("rest")
            is_rest = in_sum and len(value) == 1 and isinstance(rest, str)
            need(is_rest, f"{what}: its rule has {show(value)}, where only a sum has a rest")
            return RuleCall("rest", (str(rest),))
        is_call = isinstance(value, list) and len(value) > 0 and isinstance(value[0], str)
        need(is_call, f"{what}: {show(value)} is not a rule")
        function, args = value[0], value[1:]
        if function not in ARITY or function == "rest":
            known = [name for name in ARITY if name != "rest"]
            raise Damaged(f"{what}: {unknown('the function of a rule', function, known)}")
        least, most = ARITY[function]
        fits = least <= len(args) <= (MOST_ARGUMENTS if most is None else most)
        need(fits, f"{what}: {function} has {len(args):,} arguments")
        inner = [self.read(arg, what, depth + 1, function == "+") for arg in args]
        return RuleCall(function, tuple(inner))


def _read_checks(value: Any, path: str) -> tuple[SumCheck, ...]:
    need(isinstance(value, list), f"{path!r} is not a list")
    return tuple(
        read(fields_of(SumCheck), entry, f"check {i + 1}", SumCheck, path=f"check {i + 1}", error=Damaged)
        for i, entry in enumerate(value)
    )


def _read_labels(value: Any, path: str) -> dict[str, tuple[str, ...]]:
    table = _need_table(value, path)
    texts = to_field(tuple[str, ...])
    return {axis: texts.read(entry, f"{path}.{axis}", error=Damaged) for axis, entry in table.items()}


def _read_answers(value: Any, path: str) -> dict[str, str]:
    table = _need_table(value, path)
    for key, answer in table.items():
        short = isinstance(answer, str) and len(answer) <= LONGEST_ANSWER
        need(short, f"the answer of box {show(key)} is not a text of at most {LONGEST_ANSWER} letters")
    return dict(table)


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and math.isfinite(float(text))


def _need_table(value: Any, what: str) -> Mapping[str, Any]:
    need(isinstance(value, dict), f"{what} must be a table, not {show(value)}")
    return dict(value)


_READERS: dict[str, Callable[[Any, str], Any]] = {
    "given": _read_given,
    "boxes": _read_boxes,
    "checks": _read_checks,
    "labels": _read_labels,
    "answers": _read_answers,
    "source": lambda value, path: _need_table(value, path),
}


def _check(sheet: Sheet) -> None:
    """Raises unless the sheet is a program: each box reads given numbers and earlier boxes alone."""
    need(sheet.level in LEVELS, f"its level is {sheet.level}")
    for name, number in (("lesson", sheet.lesson or 0), ("seed", sheet.seed)):
        need(number >= 0, f"its {name} is {number}, which is negative")
    for key, given in sheet.given.items():
        is_number = _is_number(given.text)
        need(is_number, f"given {show(key)} is {show(given.text)}, which is not a finite number")
    known, boxes = set(sheet.given), {box.key for box in sheet.boxes}
    for box in sheet.boxes:
        what = f"box {show(box.key)}"
        need(box.key not in sheet.given, f"{what} is a given number, too")
        need(box.key not in known, f"{what} stands there twice")
        if box.form not in FORMS:
            raise Damaged(f"{what}: {unknown('its form', box.form, FORMS)}")
        need(0 <= box.decimals <= MOST_DECIMALS, f"{what} asks {box.decimals:,} decimals")
        for key in find_keys(box.rule):
            later = " before it is computed" if key in boxes else ", which is not on the sheet"
            need(key in known, f"{what} reads {show(key)}{later}")
        for name, rule in box.mistakes.items():
            for key in find_keys(rule):
                need(key in known, f"{what}: mistake {show(name)} reads {show(key)}, which is not before it")
        known.add(box.key)
    for check in sheet.checks:
        for key in check.keys:
            need(key in known, f"a check adds {show(key)}, which is not on the sheet")
        need(math.isfinite(check.sum), f"a check has the sum {check.sum}")
    for key in sheet.answers:
        need(key in boxes, f"it answers box {show(key)}, which is not on the sheet")
    for box in sheet.boxes:
        need(not math.isnan(sheet.key[box.key]), f"box {show(box.key)} has no value")
