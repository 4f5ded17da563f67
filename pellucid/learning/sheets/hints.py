"""Hints for one box, one at a time: where to look, the formula, the arithmetic in numbers, the value."""

from pellucid.explanation.rule import find_keys, format_rule
from pellucid.learning.sheets.answers import is_plain
from pellucid.learning.sheets.fitting import FittingMistake
from pellucid.learning.sheets.mark import Grade, MarkedBox, Marking
from pellucid.learning.sheets.sheet import format_answer
from pellucid.verification.mistakes import explain_mistake

STAGES = (1, 2, 3, 4)
LONGEST_ARITHMETIC = 90
"""The most letters of the arithmetic of a mistake that are printed."""


def make_hint(marking: Marking, marked: MarkedBox, stage: int) -> str:
    """Returns the hint of this stage, 1 to 4, for a box; each says more than the one before."""
    return (_say_where, _say_mistake, _say_arithmetic, _say_value)[stage - 1](marking, marked)


def _say_where(marking: Marking, marked: MarkedBox) -> str:
    box = marked.box
    place = f"{box.symbol}: {box.meaning}" if box.meaning else box.symbol
    keys = dict.fromkeys(find_keys(box.rule))
    read = ", ".join(marking.sheet.symbol(key) for key in keys)
    doubt = "Compute it again" if marked.grade is Grade.WRONG else "It is computed"
    return f"{place}. {doubt} from {read}." if read else f"{place}."


def _say_mistake(marking: Marking, marked: MarkedBox) -> str:
    note = marked.note if marked.grade is Grade.WRONG else ""
    said = explain_fitting(marking, marked) or (f"Your number is {note}." if note else "")
    return "\n".join(filter(None, (said, f"The formula: {marked.box.formula}")))


def _say_arithmetic(marking: Marking, marked: MarkedBox) -> str:
    rule = format_rule(marked.box.rule, lambda key: write_number(marking, key))
    return f"With your numbers: {marked.box.symbol} = {rule}"


def _say_value(marking: Marking, marked: MarkedBox) -> str:
    box = marked.box
    yours, wanted = (format_answer(value, box.decimals) for value in (marked.yours, marked.wanted))
    said = f"{box.symbol} = {yours}"
    return said if yours == wanted else f"{said} from your numbers; {wanted} where all before it is right"


def explain_fitting(marking: Marking, marked: MarkedBox) -> str:
    """Returns the mistakes that give a wrong answer, each with its sentence and, where it is short, the
    arithmetic that gives the answer; empty where none does."""
    lines = []
    for found in marked.mistakes:
        sentences = [f"{found}.", explain_mistake(found.name), _say_wrong_arithmetic(marking, found)]
        lines.append(" ".join(filter(None, sentences)))
    return "\n".join(lines)


def _say_wrong_arithmetic(marking: Marking, found: FittingMistake) -> str:
    text = "" if found.rule is None else format_rule(found.rule, marking.sheet.symbol)
    return f"Your number is {text}." if 0 < len(text) <= LONGEST_ARITHMETIC else ""


def write_number(marking: Marking, key: str) -> str:
    """Returns a number as the learner has it: printed, as answered, or computed where the box is open."""
    sheet = marking.sheet
    if key in sheet.given:
        return sheet.given[key].text
    box = sheet.by_key[key]
    if box.shown:
        return box.shown
    answer = sheet.answers.get(key, "").strip()
    if marking.is_answered(key):
        return answer if is_plain(answer) else f"({answer})"
    return format_answer(marking.values[key], box.decimals)
