"""Nothing that a terminal would obey or hide is left in a text; everything else is."""

import json
import sys
import unicodedata

import pytest

from pellucid.base.formatting import escape_controls, is_visible


@pytest.mark.parametrize("text", ["plain", "Σ · √ α", "日本語", "naïve\u00a0text", "a\nb\tc", "🙂", "·cat"])
def test_ordinary_text_stays(text: str) -> None:
    assert escape_controls(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", r"\x1b[31m"),
        ("\x9b31m", r"\u009b31m"),
        ("\x7f\r\b\a\0", r"\u007f\x0d\x08\x07\x00"),
        ("\u202e\u2066\u061c\u200e", r"\u202e\u2066\u061c\u200e"),
        ("\u200b\u200d\ufeff\u2060\u3164\ufe0f\u034f", r"\u200b\u200d\ufeff\u2060\u3164\ufe0f\u034f"),
        ("\u2028\u2029\udcff", r"\u2028\u2029\udcff"),
        ("\U000e0041", r"\udb40\udc41"),
    ],
)
def test_what_a_terminal_obeys_or_hides_is_written_out(text: str, shown: str) -> None:
    assert escape_controls(text) == shown


def test_no_control_or_format_character_is_visible() -> None:
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(char := chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            assert not is_visible(char), hex(code)


def test_json_stays_the_same_json() -> None:
    data = {"\u202ename": "a\x1b\x7f\x9b\U000e0041\u2028z\n"}
    text = escape_controls(json.dumps(data, ensure_ascii=False))
    assert text.isprintable() and json.loads(text) == data
