"""One page for every result: its policy allows its own style and script alone, texts are not markup."""

import base64
import hashlib
import json
import re

import pytest

from pellucid.report.page import escape_text, make_page


def digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_policy_has_the_hashes_of_what_stands_on_the_page() -> None:
    page = make_page(
        "pellucid x", "t", "l", "<p>{{TITLE}}</p>", style="b {}", script="run()", data={"a": "</script>"}
    )
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert f"default-src 'none'; style-src '{digest(style)}'; script-src '{digest('run()')}'\"" in page
    assert "<script>run()</script>" in page and style.startswith("\n/* The look") and "b {}" in style
    assert "<p>{{TITLE}}</p>" in page  # a part is not a template
    (data,) = re.findall(r'id="data">(.*?)</script>', page)
    assert json.loads(data) == {"a": "</script>"}


def test_a_page_without_a_script_allows_none() -> None:
    page = make_page("pellucid x", "a <b>", "", "")
    assert "script" not in page and "<h1>a &lt;b&gt;</h1>" in page and "<title>a &lt;b&gt;</title>" in page
    assert '<p class="lead">' not in page and '<meta name="generator" content="pellucid x">' in page


@pytest.mark.parametrize("word", ["color-scheme: light dark", "@media print", "max-width: 40rem"])
def test_every_page_is_for_light_dark_paper_and_telephone(word: str) -> None:
    assert word in make_page("pellucid x", "t", "l", "")


def test_hidden_characters_are_shown_and_markup_is_text() -> None:
    assert escape_text('<a href="x">\u202e\n') == "&lt;a href=&quot;x&quot;&gt;\\u202e\\x0a"
