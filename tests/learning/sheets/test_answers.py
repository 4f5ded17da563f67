"""Answers are read as people write them, with the decimals that were written; any other text is refused."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.learning.sheets.answers import LONGEST, is_blank, parse_answer


@pytest.mark.parametrize(
    ("text", "value", "decimals"),
    [
        ("0.25", 0.25, 2), ("0,25", 0.25, 2), (",5", 0.5, 1), (".250", 0.25, 3), ("-.5", -0.5, 1),
        ("− 0.5", -0.5, 1), ("+2", 2.0, 0), ("2.", 2.0, 0), ("007", 7.0, 0), ("1,234.5", 1234.5, 1),
        ("3e-4", 3e-4, 4), ("3.1E-4", 3.1e-4, 5), ("1.5e3", 1500.0, 0), ("3·10^-4", 3e-4, 4),
        ("3,10 × 10⁻⁴", 3.1e-4, 6), ("12 %", 0.12, 2), ("12,5%", 0.125, 3), ("= 0.25", 0.25, 2),
        ("≈ 0.25", 0.25, 2), ("1/3", 1 / 3, None), ("1 / 3", 1 / 3, None), ("−1/3", -1 / 3, None),
        ("½", 0.5, None), ("√2/2", math.sqrt(2) / 2, None), ("√(1/2)", math.sqrt(0.5), None),
        ("2√3", 2 * math.sqrt(3), None), ("ln 2", math.log(2), None), ("-ln 0,251", -math.log(0.251), None),
        ("-ln(0.251)", -math.log(0.251), None), ("3 ln 2", 3 * math.log(2), None), ("2π", 2 * math.pi, None),
        ("ln2", math.log(2), None), ("log10 2", math.log10(2), None), ("lg 2", math.log10(2), None),
        ("e^-1", math.exp(-1), None), ("e^(1/2)", math.exp(0.5), None), ("exp(-1)", math.exp(-1), None),
        ("3²", 9.0, None), ("π/2", math.pi / 2, None), ("−inf", -math.inf, None), ("-∞", -math.inf, None),
        ("0.1*(2+3)", 0.5, None),
    ],
)  # fmt: skip
def test_an_answer_is_read_with_its_decimals(text: str, value: float, decimals: int | None) -> None:
    answer = parse_answer(text)
    assert answer is not None
    assert (answer.value, answer.decimals) == (pytest.approx(value, rel=1e-15), decimals)


def test_minus_zero_is_zero() -> None:
    for text in ("-0.0", "−0", "-0,00 %", "-(0)"):
        answer = parse_answer(text)
        assert answer is not None and math.copysign(1.0, answer.value) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "about 3", "nan", "inf - inf", "1/0", "ln 0", "ln -1", "√-1", "(-8)^(1/3)", "9^9^9^9^9", "1 2",
        "0.2.5", "1_000", "True", "1j", "'1'", "x", "__import__('os')", "[1]", "1 if 1 else 2", "ln(1, 2)",
        "ln(x=1)", "(lambda: 1)()", "%", "-", "\x00", "1e9999", "(" * 40 + "1" + ")" * 39,
        "1" * (LONGEST + 1),
    ],
)  # fmt: skip
def test_another_text_is_not_a_number(text: str) -> None:
    assert parse_answer(text) is None


def test_an_empty_box_is_blank() -> None:
    assert all(map(is_blank, ("", "  ", "____", "…")))
    assert not any(map(is_blank, ("0", "x", "-")))


@given(st.text(max_size=100) | st.text("0123456789.,-+*/^()e% lnsqrt√·⁻⁴", max_size=80))
def test_any_text_is_read_or_refused_at_once(text: str) -> None:
    begun = time.perf_counter()
    answer = parse_answer(text)
    assert answer is None or not math.isnan(answer.value)
    assert time.perf_counter() - begun < 0.5


@given(st.decimals(-1000, 1000, places=5))
def test_a_printed_number_is_read_back(number: object) -> None:
    answer = parse_answer(str(number))
    assert answer is not None and answer.value == float(str(number))
