"""Formulas written as text, as MathML for browsers, and as LaTeX.

A value's own subscript, its axes and its marks are distinguished: W_Q@1[c,hd] is W with the subscript Q and
the superscript (1), and of that the entry c,hd.
"""

import re
import unicodedata
from collections.abc import Iterable
from html import escape
from typing import Any, NamedTuple

from pellucid.explanation.notation import (
    Definitions,
    EvaluatedAt,
    Fraction,
    Function,
    Group,
    Infix,
    Literal,
    Negative,
    Node,
    Piecewise,
    Power,
    Reduction,
    Root,
    Slot,
    Symbol,
    Words,
)

_SYMBOL = re.compile(
    r"(?P<base>.+?)(?:_(?P<sub>\w+?))?(?P<primes>'*)(?P<marks>[ᶜᵈ²°]*)(?:\|(?P<via>[^@]+))?(?:@(?P<update>\d+))?"
)
_MARKS = {"ᶜ": "clip", "ᵈ": "drop", "°": "computed", "²": "2"}
_ACCENTS = {"\u0304": ("¯", "bar"), "\u0302": ("^", "hat"), "\u0303": ("~", "tilde"), "\u0307": ("˙", "dot")}
_WORDY_AXES = ("out", "in", "pair", "rank", "group")
_LETTERS = {
    "ℒ": r"\mathcal{L}",
    "ℓ": r"\ell",
    "∞": r"\infty",
    "‖": r"\|",
    "√": r"\surd",
    "−": "-",
    "·": r"\cdot",
    "…": r"\dots",
}
_SIGNS = {"·": r" \cdot ", "≥": r" \ge ", "≤": r" \le ", "": "", " ": r"\, "}
_FUNCTIONS = ("tanh", "cos", "sin", "ln", "max", "exp")


class _Parts(NamedTuple):
    """The parts of a symbol."""

    prefix: str
    base: str
    accent: str
    subscript: str
    superscripts: tuple[str, ...]


def _split(symbol: Symbol) -> _Parts:
    text = symbol.text
    prefix = "d" if symbol.is_gradient and text.startswith("d") and len(text) > 1 else ""
    found = _SYMBOL.fullmatch(text.removeprefix(prefix))
    if found is None:
        return _Parts(prefix, text.removeprefix(prefix), "", "", ())
    base = found["base"]
    accent = base[-1] if len(base) > 1 and base[-1] in _ACCENTS else ""
    marks = [_MARKS[mark] for mark in found["marks"]]
    above = ["′" * len(found["primes"]), *marks, f"via {found['via']}" if found["via"] else ""]
    above.append(f"({found['update']})" if found["update"] else "")
    return _Parts(prefix, base.removesuffix(accent), accent, found["sub"] or "", tuple(filter(None, above)))


def _ungroup(node: Node) -> Node:
    """Parentheses are not needed under a root, in an exponent, or above and below a fraction's bar."""
    return node.body if isinstance(node, Group) else node


def _merge_words(chain: Infix) -> Infix:
    """Words that follow each other become one text."""
    operands, operators = [chain.operands[0]], list[str]()
    for operator, operand in zip(chain.operators, chain.operands[1:], strict=True):
        last = operands[-1]
        if operator == " " and isinstance(operand, Words) and isinstance(last, Words):
            operands[-1] = Words(f"{last.text} {operand.text}")
        else:
            operands.append(operand)
            operators.append(operator)
    return Infix(tuple(operands), tuple(operators))


# ---- text


def write_text(node: Node) -> str:
    """Returns the formula as one line of text."""
    match node:
        case Symbol(text, axes):
            return f"{text}[{','.join(axes)}]" if axes else text
        case Literal(text) | Words(text):
            return text
        case Slot(key):
            return f"{{{key}}}"
        case Infix(operands, operators):
            marks = (f" {operator} " if operator.strip() else operator for operator in operators)
            rest = (mark + write_text(operand) for mark, operand in zip(marks, operands[1:], strict=True))
            return write_text(operands[0]) + "".join(rest)
        case Negative(body):
            return f"-{write_text(body)}"
        case Fraction(numerator, denominator, is_tight):
            return f"{write_text(numerator)}{'/' if is_tight else ' / '}{write_text(denominator)}"
        case Power(base, exponent, mark):
            return write_text(base) + (mark or f"^{write_text(exponent)}")
        case Root(body):
            return f"√{write_text(body)}"
        case Group(body):
            return f"({write_text(body)})"
        case Function(name, arguments, is_bare):
            listed = ", ".join(map(write_text, arguments))
            return f"{name} {listed}" if is_bare else f"{name}({listed})"
        case Reduction(name, index, body):
            return f"{name}{'' if index is None else '_' + write_text(index)} {write_text(body)}"
        case EvaluatedAt(body, condition):
            return f"{write_text(body)} at {write_text(condition)}"
        case Piecewise(value, condition, otherwise):
            holds = "" if condition is None else f" if {write_text(condition)}"
            return f"{write_text(value)}{holds}, else {write_text(otherwise)}"
        case Definitions(body, definitions):
            return f"{write_text(body)},  {', '.join(map(write_text, definitions))}"


# ---- MathML

MathTree = list[Any]
"""An element: ["mrow", {attributes}, child, …], where a child is an element or a text."""


def make_mathml_tree(node: Node) -> MathTree:
    """Returns the formula as a `math` element in nested lists, which no reader has to parse as markup."""
    return ["math", {"display": "block"}, _mathml(node)]


def write_mathml(node: Node) -> str:
    """Returns the formula as the text of a `<math>` element."""
    name, attributes, *children = make_mathml_tree(node)
    return _serialize([name, {"xmlns": "http://www.w3.org/1998/Math/MathML"} | attributes, *children])


def _serialize(tree: MathTree | str) -> str:
    if isinstance(tree, str):
        return escape(tree)
    name, attributes, *children = tree
    listed = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items())
    return f"<{name}{listed}>{''.join(map(_serialize, children))}</{name}>"


def _tag(name: str, *children: MathTree | str) -> MathTree:
    return [name, {}, *children]


def _mo(sign: str) -> MathTree:
    return _tag("mo", sign)


def _separate(elements: Iterable[MathTree]) -> list[MathTree]:
    """Returns the elements with commas between them."""
    return [part for i, element in enumerate(elements) for part in ([_mo(",")] * (i > 0) + [element])]


def _mathml(node: Node) -> MathTree:
    """Returns one element."""
    match node:
        case Symbol():
            return _mathml_symbol(node)
        case Literal(text):
            return _mathml_number(text)
        case Words(text):
            return _tag("mtext", text)
        case Slot(key):
            return _tag("mi", key)
        case Infix():
            return _mathml_chain(_merge_words(node))
        case Negative(body):
            return _tag("mrow", _mo("−"), _mathml(body))
        case Fraction(numerator, denominator):
            return _tag("mfrac", _mathml(_ungroup(numerator)), _mathml(_ungroup(denominator)))
        case Power(base, exponent):
            return _tag("msup", _mathml(base), _mathml(_ungroup(exponent)))
        case Root(body):
            return _tag("msqrt", _mathml(_ungroup(body)))
        case Group(body):
            return _tag("mrow", _mo("("), _mathml(body), _mo(")"))
        case Function(name, arguments, is_bare):
            inside = _separate(map(_mathml, arguments))
            listed = inside if is_bare else [_tag("mrow", _mo("("), *inside, _mo(")"))]
            return _tag("mrow", _tag("mi", name), _mo("\u2061"), *listed)
        case Reduction(name, index, body):
            sign = _mo("∑") if name == "Σ" else _tag("mi", name)
            under = sign if index is None else _tag("munder", sign, _mathml(index))
            return _tag("mrow", under, _mathml(body))
        case EvaluatedAt(body, condition):
            return _tag("msub", _tag("mrow", _mathml(body), _mo("|")), _mathml(condition))
        case Piecewise(value, condition, otherwise):
            holds = [] if condition is None else [_tag("mtext", "if\u00a0"), _mathml(condition)]
            rows = [[[_mathml(value)], holds], [[_mathml(otherwise)], [_tag("mtext", "else")]]]
            table = _tag("mtable", *(_tag("mtr", *(_tag("mtd", *cell) for cell in row)) for row in rows))
            return _tag("mrow", _mo("{"), table)
        case Definitions(body, definitions):
            parts = (part for each in definitions for part in (_tag("mtext", ",\u2003"), _mathml(each)))
            return _tag("mrow", _mathml(body), *parts)


def _mathml_chain(chain: Infix) -> MathTree:
    parts = [_mathml(chain.operands[0])]
    for operator, operand in zip(chain.operators, chain.operands[1:], strict=True):
        is_text = isinstance(operand, Words) or parts[-1][0] == "mtext"
        sign = "\u2062" if not operator.strip() else {"-": "−"}.get(operator, operator)
        parts += [
            _tag("mtext", "\u00a0") if is_text and not operator.strip() else _mo(sign),
            _mathml(operand),
        ]
    return _tag("mrow", *parts)


def _mathml_number(text: str) -> MathTree:
    mantissa, e, exponent = text.partition("e")
    if not e:
        return _tag("mrow", _mo("−"), _tag("mn", text[1:])) if text.startswith("-") else _tag("mn", text)
    power = _tag("msup", _tag("mn", "10"), _mathml_number(str(int(exponent))))
    return power if mantissa == "1" else _tag("mrow", _mathml_number(mantissa), _mo("·"), power)


def _mathml_symbol(symbol: Symbol) -> MathTree:
    parts = _split(symbol)
    core = _tag("mi", parts.base)
    if parts.accent:
        core = ["mover", {"accent": "true"}, core, _mo(_ACCENTS[parts.accent][0])]
    above = _tag("mrow", *(_tag("mtext", text) for text in parts.superscripts))
    axes = _separate(map(_mathml_axis, symbol.axes))
    if parts.subscript:  # W_U with the axes c, v: a narrow gap stands between U and c
        gap = [["mspace", {"width": "0.25em"}]] if axes else []
        axes = [_mathml_axis(parts.subscript), *gap, *axes]
    below = axes[0] if len(axes) == 1 else _tag("mrow", *axes)
    if axes and parts.superscripts:
        core = _tag("msubsup", core, below, above)
    elif axes:
        core = _tag("msub", core, below)
    elif parts.superscripts:
        core = _tag("msup", core, above)
    return _tag("mrow", _tag("mi", "d"), core) if parts.prefix else core


def _mathml_axis(axis: str) -> MathTree:
    return _tag("mn", axis) if axis.isdigit() else _tag("mi", axis.replace("'", "′"))


# ---- LaTeX


def write_latex(node: Node) -> str:
    r"""Returns the formula for LaTeX's math mode, also as KaTeX and MathJax read it."""
    return _latex(node)


def _latex(node: Node) -> str:
    match node:
        case Symbol():
            return _latex_symbol(node)
        case Literal(text):
            return _latex_number(text)
        case Words(text):
            return rf"\text{{{_latex_text(text)}}}"
        case Slot(key):
            return rf"\mathit{{{_latex_text(key)}}}"
        case Infix():
            return _latex_chain(_merge_words(node))
        case Negative(body):
            return f"-{_latex(body)}"
        case Fraction(numerator, denominator):
            return rf"\frac{{{_latex(_ungroup(numerator))}}}{{{_latex(_ungroup(denominator))}}}"
        case Power(base, exponent):
            return f"{{{_latex(base)}}}^{{{_latex(_ungroup(exponent))}}}"
        case Root(body):
            return rf"\sqrt{{{_latex(_ungroup(body))}}}"
        case Group(body):
            return rf"\left({_latex(body)}\right)"
        case Function(name, arguments, is_bare):
            inside = ", ".join(map(_latex, arguments))
            return _latex_function(name) + (f" {inside}" if is_bare else rf"\left({inside}\right)")
        case Reduction(name, index, body):
            sign = r"\sum" if name == "Σ" else rf"\operatorname*{{{name}}}"
            return f"{sign}{'' if index is None else f'_{{{_latex(index)}}}'} {_latex(body)}"
        case EvaluatedAt(body, condition):
            return rf"\left.{_latex(body)}\right|_{{{_latex(condition)}}}"
        case Piecewise(value, condition, otherwise):
            holds = "" if condition is None else rf" & \text{{if }} {_latex(condition)}"
            rows = rf"{_latex(value)}{holds} \\ {_latex(otherwise)} & \text{{else}}"
            return rf"\begin{{cases}} {rows} \end{{cases}}"
        case Definitions(body, definitions):
            return r",\quad ".join(map(_latex, (body, *definitions)))


def _latex_chain(chain: Infix) -> str:
    text = _latex(chain.operands[0])
    for operator, operand in zip(chain.operators, chain.operands[1:], strict=True):
        text += _SIGNS.get(operator, f" {operator} ") + _latex(operand)
    return text


def _latex_function(name: str) -> str:
    return rf"\{name}" if name in _FUNCTIONS else _latex_name(name)


def _latex_number(text: str) -> str:
    mantissa, e, exponent = text.partition("e")
    if not e:
        return text
    power = f"10^{{{int(exponent)}}}"
    return power if mantissa == "1" else rf"{mantissa} \cdot {power}"


def _latex_symbol(symbol: Symbol) -> str:
    parts = _split(symbol)
    core = _latex_name(parts.base)
    if parts.accent:
        core = rf"\{_ACCENTS[parts.accent][1]}{{{core}}}"
    above = "".join(
        r"\prime" * len(text)
        if text.startswith("′")
        else text
        if text[0] in "(2"
        else rf"\text{{{_latex_text(text)}}}"
        for text in parts.superscripts
    )
    core += f"_{{{_latex_name(parts.subscript)}}}" * bool(parts.subscript) + f"^{{{above}}}" * bool(above)
    if symbol.axes:
        braced = f"{{{core}}}" if parts.subscript or above else core
        core = f"{braced}_{{{','.join(map(_latex_axis, symbol.axes))}}}"
    return rf"\mathrm{{d}}{core}" if parts.prefix else core


def _latex_axis(axis: str) -> str:
    return rf"\mathrm{{{axis}}}" if axis in _WORDY_AXES else _latex_name(axis, is_italic=True)


def _latex_name(name: str, is_italic: bool = False) -> str:
    """A name in LaTeX: Greek letters by their commands, several letters upright unless they are axes."""
    is_word = len(name) > 1 and name.isascii() and name.isalpha() and not is_italic
    return rf"\mathrm{{{name}}}" if is_word else _join_letters(_latex_letter(letter) for letter in name)


def _join_letters(letters: Iterable[str]) -> str:
    """A command that ends in a letter needs a space before the next letter."""
    text = ""
    for letter in letters:
        text += " " * bool(re.search(r"\\[A-Za-z]+$", text) and letter[:1].isalpha()) + letter
    return text


def _latex_letter(letter: str) -> str:
    if letter in _LETTERS:
        return _LETTERS[letter]
    if letter == "'":
        return "'"
    found = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)", unicodedata.name(letter, ""))
    if not found:
        return _latex_text(letter)
    command = found[2].lower().replace("lamda", "lambda")
    return "\\" + (command if found[1] == "SMALL" else command.capitalize())


def _latex_text(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", "|": "|", "ᶜ": "c", "ᵈ": "d"}
    return "".join(special.get(c, f"\\{c}" if c in "{}_%#&$" else c) for c in text)
