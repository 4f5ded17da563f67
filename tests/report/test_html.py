"""A template is filled, and its policy allows its own style and script alone."""

import base64
import hashlib

import pytest

from pellucid.report.html import escape_text, fill_page

TEMPLATE = (
    "<meta {{STYLE_HASH}} {{SCRIPT_HASH}}><style>a{{MORE}}</style><p>{{TEXT}}</p>"
    "<script>\n{{SCRIPT}}</script>"
)


def digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_hashes_are_those_of_what_stands_on_the_page() -> None:
    page = fill_page(TEMPLATE, {"MORE": " b", "TEXT": "{{MORE}}"}, "run()")
    assert f"<meta {digest('a b')} {digest(chr(10) + 'run()')}>" in page
    assert "<p>{{MORE}}</p>" in page  # a part is not a template
    assert page.endswith("<script>\nrun()</script>")


def test_a_place_without_a_part_is_an_error() -> None:
    with pytest.raises(KeyError):
        fill_page(TEMPLATE, {"MORE": ""})


def test_hidden_characters_are_shown_and_markup_is_text() -> None:
    assert escape_text('<a href="x">\u202e\n') == "&lt;a href=&quot;x&quot;&gt;\\u202e\\x0a"
