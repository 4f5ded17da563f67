"""An answer as people write it: read as a number with the decimals that were written, and compared with one.

    0.25    0,25    1/3    3e-4    3·10⁻⁴    12 %    −inf    √2/2    ln 2    e^-1

The text is walked over, never run, and only short ones are read.
"""

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from pellucid.learning.sheets.sheet import Box

LONGEST = 80
MOST_DECIMALS = 17
"""As many as a number of 64 bits can have; what follows cannot be seen."""

_NUMBER = r"(?:\d++\.?\d*+|\.\d++)"
_PLAIN = re.compile(rf"([-+]?){_NUMBER}(?:e[-+]?\d{{1,3}})?")
_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("−–‒‐‑﹣－", "-"),
        **dict.fromkeys("·×⋅∙", "*"),
        **dict.fromkeys("\u00a0\u2007\u2009\u202f\t", " "),
        "÷": "/",
        "∕": "/",
        "∞": "inf",
        "π": "pi",
        "½": "(1/2)",
        "⅓": "(1/3)",
        "⅔": "(2/3)",
        "¼": "(1/4)",
        "¾": "(3/4)",
    }
)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_REWRITES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda found: f"**({found[0].translate(_SUPERSCRIPTS)})"),
    (r"\^", "**"),
    (rf"({_NUMBER})\s*\*\s*10\s*\*\*\s*\(?\s*([-+]?\d{{1,3}})\s*\)?(?!\d)", r"\1e\2"),
    (r"(?<=[\d)])\s*(?=√|ln|lg|log|exp|sqrt|pi)", "*"),
    (rf"√\s*({_NUMBER})", r"sqrt(\1)"),
    (r"√", "sqrt"),
    (rf"\b(ln|lg|log10|log|exp|sqrt)\s*({_NUMBER})", r"\1(\2)"),
)
"""What is written otherwise on paper than in a formula of a program, in the order of replacement."""

_CONSTANTS = {"inf": math.inf, "infinity": math.inf, "pi": math.pi, "e": math.e}
_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt,
    "ln": math.log,
    "log": math.log,
    "lg": math.log10,
    "log10": math.log10,
    "exp": math.exp,
}
_SIGNS: dict[type[ast.unaryop], Callable[[float], float]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,  # of floats: it overflows at once, where a power of whole numbers takes for ever
}


@dataclass(frozen=True)
class Answer:
    """A number that was written down. `decimals` are those of the text; None where the text is exact, such as
    1/3."""

    text: str
    value: float
    decimals: int | None

    @property
    def written_decimals(self) -> int:
        """The decimals of the text; as many as can be told apart where it is exact."""
        return MOST_DECIMALS if self.decimals is None else self.decimals


def is_blank(text: str) -> bool:
    """Tests whether nothing was written, or only the line to write on."""
    return not text.strip(" \t\r\n_…")


def is_plain(text: str) -> bool:
    """Tests whether a text is one number, and not a formula: 0.25, and not 1/4."""
    return _PLAIN.fullmatch(text.lower().replace("−", "-")) is not None


def parse_answer(text: str) -> Answer | None:
    """Returns the number that a text is; None where it is not one.

    >>> parse_answer("0,250")
    Answer(text='0,250', value=0.25, decimals=3)
    >>> parse_answer("1/4").decimals, parse_answer("3·10⁻⁴").decimals, parse_answer("about 3")
    (None, 4, None)
    """
    if len(text) > LONGEST or "_" in text:
        return None
    written = text.translate(_CHARACTERS).strip().lower().lstrip("=≈~ ")
    percent = written.endswith("%")
    written = _place_point(written.removesuffix("%").strip())
    for pattern, replacement in _REWRITES:
        written = re.sub(pattern, replacement, written, flags=re.ASCII)
    joined = re.sub(r"^([-+])\s+", r"\1", written)
    if plain := _PLAIN.fullmatch(joined):
        value, decimals = float(joined), _count_decimals(joined.removeprefix(plain[1]))
    else:
        value, decimals = _compute(written), None
    if percent:
        value /= 100
        decimals = None if decimals is None else decimals + 2
    if math.isnan(value) or (math.isinf(value) and "inf" not in written):  # inf by overflow
        return None
    return Answer(text, value + 0.0, None if decimals is None else min(decimals, MOST_DECIMALS))


def _place_point(text: str) -> str:
    """Returns the text with a decimal point: 0,25 is 0.25, and the commas of 1,234.5 group its digits."""
    if "." in text:
        return re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    return re.sub(r"(?<=\d),(?=\d)|^([-+]?),(?=\d)", r"\1.", text)


def _count_decimals(number: str) -> int:
    mantissa, _, exponent = number.partition("e")
    return max(len(mantissa.partition(".")[2]) - int(exponent or 0), 0)


def _compute(text: str) -> float:
    """Returns the number of a formula without names; NaN where it is not one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return _walk(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return math.nan


def _walk(node: ast.expr) -> float:
    match node:
        case ast.Constant(int() | float() as number) if not isinstance(number, bool):
            return float(number)
        case ast.Name(name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(sign, operand) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)](_walk(operand))
        case ast.BinOp(left, operation, right) if type(operation) in _OPERATIONS:
            return _OPERATIONS[type(operation)](_walk(left), _walk(right))
        case ast.Call(ast.Name(name), [argument], []) if name in _FUNCTIONS:
            return _FUNCTIONS[name](_walk(argument))
    raise ValueError


# ---- agreement with a number: rounded to the asked decimals, to fewer, or cut off


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
