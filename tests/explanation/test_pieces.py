"""Arithmetic in pieces: the line is their join, a sign is in a text, a long sum is listed term by term."""

import hashlib
import math
import random
from collections.abc import Iterator

import pytest

from pellucid.explanation.expression import Apply, Branch, Cell, Expression, Number, Sum
from pellucid.explanation.pieces import (
    LineNumber,
    format_expression,
    join_pieces,
    make_pieces,
    split_sum,
)

X, MINUS, NAN = Cell("x", (0,), 2.0), Cell("x", (1,), -3.25), Cell("x", (2,), math.nan)
PRODUCT = Apply("multiply", (MINUS, X), -6.5)
SHORT = Sum((X, MINUS), 0.0, 0, -1.25)
LONG = Sum((X, PRODUCT, MINUS), 0.0, 0, -7.75)
FOLDED = Sum((X, PRODUCT), -0.5, 58, -5.0)

LINES = {
    "2": X,
    "-3.25": MINUS,
    "-∞": Number(-math.inf),
    "0": Sum((), 0.0, 0, 0.0),
    "2 - 3.25": SHORT,
    "2 - 3.25 · 2 - 0.5 [58 smaller terms]": FOLDED,
    "2 + 0.5 [1 smaller term]": Sum((X,), 0.5, 1, 2.5),
    "2 - (2 - 3.25)": Apply("subtract", (X, SHORT), 3.25),
    "2 - (-3.25)": Apply("subtract", (X, MINUS), 5.25),
    "2 - 3.25 · 2": Apply("add", (X, PRODUCT), -4.5),
    "2 + (-(-3.25))": Apply("add", (X, Apply("negative", (MINUS,), 3.25)), 5.25),
    "2 · (-3.25)": Apply("multiply", (X, MINUS), -6.5),
    "2 · (nan)": Apply("multiply", (X, NAN), math.nan),
    "(2 - 3.25) / √2": Apply("multiply", (SHORT, Number(2**-0.5)), -0.88),
    "-3.25 / 8": Apply("multiply", (MINUS, Number(0.125)), -0.41),
    "-3.25 · 1.4286": Apply("multiply", (MINUS, Number(1 / 0.7)), -4.6),
    "2 · (-0.125)": Apply("multiply", (X, Number(-0.125)), -0.25),
    "-3.25 · 2 / (2 - 3.25)": Apply("multiply", (MINUS, X, Apply("divide", (Number(1.0), SHORT), -0.8)), 5.2),
    "2 / (-3.25 · 2)": Apply("divide", (X, PRODUCT), -0.31),
    "(-3.25)^2": Apply("power", (MINUS, Number(2.0)), 10.6),
    "2^(-1)": Apply("power", (X, Number(-1.0)), 0.5),
    "1 / √(2 - 3.25)": Apply("power", (SHORT, Number(-0.5)), math.nan),
    "e^(-3.25)": Apply("exp", (MINUS,), 0.04),
    "√2": Apply("sqrt", (X,), 1.4),
    "ln(2 - 3.25)": Apply("log", (SHORT,), math.nan),
    "log₁₀(2)": Apply("log10", (X,), 0.3),
    "10^(-3.25)": Apply("pow10", (MINUS,), 0.0),
    "max(2, -3.25)": Apply("maximum", (X, MINUS), 2.0),
    "min(2, -3.25)": Apply("minimum", (X, MINUS), -3.25),
    "2 if 2 > -3.25, else -3.25": Apply("choose", (Apply("greater", (X, MINUS), 1.0), X, MINUS), 2.0),
    "2 - 3.25 - W_Q": Apply("add", (SHORT, Cell("w", (), math.nan, "-W_Q")), math.nan),
    "W_Q · (-3.25)": Apply("multiply", (Cell("w", (), math.nan, "W_Q"), MINUS), math.nan),
}


@pytest.mark.parametrize("text", LINES)
def test_a_line_reads_as_on_paper(text: str) -> None:
    assert format_expression(Branch(LINES[text], X, 0.0, MINUS)) == format_expression(LINES[text]) == text


VALUES = (0.0, -0.0, 1.0, -1.0, 2.0, -3.5, math.inf, -math.inf, math.nan, -1e-300, 123456.789, 0.25, 0.3)
TEXTS = ("", "", "", "a", "-b", "−c", "W[1]")
ARITY = {
    **dict.fromkeys(("add", "subtract", "divide", "power", "maximum", "minimum", "greater"), 2),
    **dict.fromkeys(("negative", "exp", "log", "sqrt", "tanh", "pow10", "log10"), 1),
    "multiply": 3,
    "max": 2,
    "choose": 3,
}


def make_random(rng: random.Random, depth: int) -> Expression:
    """Returns any expression: the parts of a drawn form are drawn in turn."""
    form = rng.choice(("cell", "number", "sum", "branch", "scale", "reciprocal", "power", *ARITY))
    value = rng.choice(VALUES)

    def draw(count: int) -> tuple[Expression, ...]:
        return tuple(make_random(rng, depth - 1) for _ in range(count))

    if form == "number":
        return Number(value)
    if form == "cell" or not depth:
        return Cell("x", (0,), value, rng.choice(TEXTS))
    if form == "sum":
        return Sum(draw(rng.randrange(4)), rng.choice(VALUES), rng.choice((0, 1, 40_000)), value)
    if form == "branch":
        return Branch(*draw(2), value, *draw(1))
    if form == "scale":
        return Apply("multiply", (*draw(2), Number(abs(value))), value)
    if form == "reciprocal":
        return Apply("multiply", (*draw(1), Apply("divide", (Number(1.0), *draw(1)), value)), value)
    if form == "power":
        return Apply("power", (*draw(1), Number(rng.choice((-0.5, 2.0, -1.0)))), value)
    return Apply(form, draw(ARITY[form]), value)


def make_many(count: int) -> Iterator[Expression]:
    rng = random.Random(7)
    return (make_random(rng, 1 + i % 4) for i in range(count))


def test_the_lines_of_random_expressions_are_those_of_the_first_writer() -> None:
    """The sum is of the lines that a writer of whole texts, without pieces, printed."""
    lines = "\n".join(format_expression(made, 3 + i % 9) for i, made in enumerate(make_many(3000)))
    assert hashlib.sha256(lines.encode()).hexdigest()[:16] == "d53c4f8a157434d6"


def test_texts_and_numbers_alternate_and_a_sign_is_in_a_text() -> None:
    for made in make_many(1000):
        pieces = make_pieces(made)
        assert "" not in pieces
        for before, piece in zip(("", *pieces), pieces, strict=False):
            assert not (before and isinstance(before, str) and isinstance(piece, str))
            if isinstance(piece, LineNumber):
                assert not piece.format(5).startswith("-")
                if piece.value < 0 and not piece.text:
                    assert isinstance(before, str) and before.endswith(("-", "- ")), pieces


def test_a_piece_is_the_number_in_full() -> None:
    third = Cell("x", (0,), -1 / 3)
    assert make_pieces(Apply("multiply", (X, third), -2 / 3)) == (
        LineNumber(2.0, "cell", X),
        " · (-",
        LineNumber(-1 / 3, "cell", third),
        ")",
    )


@pytest.mark.parametrize(
    ("expression", "line", "total"),
    [
        (LONG, "-7.75", LONG),
        (FOLDED, "-5", FOLDED),
        (SHORT, "2 - 3.25", None),
        (Apply("multiply", (FOLDED, Number(0.125)), -0.625), "-5 / 8", FOLDED),
        (Apply("divide", (Apply("exp", (X,), 7.4), LONG), -1.0), "e^2 / (-7.75)", LONG),
        (Apply("add", (LONG, X), -5.75), "-7.75 + 2", LONG),
        (Sum((X, Apply("exp", (FOLDED,), 1.0)), 0.0, 0, 3.0), "2 + e^(-5)", FOLDED),
    ],
)
def test_the_outermost_long_sum_becomes_a_total(expression: Expression, line: str, total: Sum | None) -> None:
    found = split_sum(expression)
    assert (join_pieces(found.line), found.sum) == (line, total)
    kinds = [piece.kind for piece in found.line if isinstance(piece, LineNumber)]
    assert kinds.count("total") == (total is not None)


def test_a_chain_of_additions_is_a_long_sum() -> None:
    chain = Apply("add", (Apply("add", (X, MINUS), -1.25), PRODUCT), -7.75)
    found = split_sum(chain)
    assert found.sum == Sum((X, MINUS, PRODUCT), 0.0, 0, -7.75)
    assert format_expression(found.sum) == format_expression(chain)
