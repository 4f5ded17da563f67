"""Agreement of an answer with a number: rounded to the asked decimals, to fewer, or cut off."""

import math

from pellucid.learning.sheets.answers import Answer
from pellucid.learning.sheets.sheet import Box


def compared_decimals(answer: Answer, box: Box) -> int:
    """Returns the decimals in which an answer can agree with a number: those asked, or fewer if fewer were
    written with a digit in them; all that were written where the number is exact."""
    if box.exact or not has_digits(answer, box):
        return max(answer.written_decimals, box.decimals)
    return min(answer.written_decimals, box.decimals)


def written_half_unit(answer: Answer, box: Box) -> float:
    """Returns half a unit of the last decimal in which an answer can agree with a number."""
    return 0.5 * 10.0 ** -compared_decimals(answer, box)


def has_digits(answer: Answer, box: Box) -> bool:
    """Tests whether an answer has a significant digit, or all that are asked."""
    return answer.value != 0 or answer.written_decimals >= box.decimals


def is_equal(answer: float, value: float, decimals: int) -> bool:
    """Tests whether an answer is a number at this many decimals; at a tie both roundings are right."""
    if not (math.isfinite(answer) and math.isfinite(value)):
        return answer == value
    within = 0.5 * 10.0**-decimals * (1 + 1e-6) + 1e-14 * abs(value)
    return abs(answer - value) <= within or abs(round(answer, decimals) - value) <= within


def is_exactly(answer: Answer, value: float) -> bool:
    """Tests whether an answer is a number itself, however few decimals were written: 1 for 1.0000."""
    return math.isfinite(value) and math.isclose(answer.value, value, rel_tol=1e-12, abs_tol=1e-15)


def is_cut_off(answer: Answer, box: Box, value: float) -> bool:
    """Tests whether an answer is a number without the digits that follow those written."""
    if answer.decimals is None or not math.isfinite(value) or not has_digits(answer, box):
        return False
    unit = 10.0**-answer.decimals
    beyond = abs(value) - abs(answer.value)
    return answer.value * value >= 0 and -1e-9 * unit <= beyond < unit * (1 - 1e-9)
