"""A section with its references filled in, as Markdown."""

from pathlib import Path

import pytest

from pellucid.base.errors import FileError, UsageError
from pellucid.learning.lessons.document import PageStyle, render_section
from pellucid.learning.lessons.page import SECTIONS, parse_page
from tests.learning.lessons.test_page import HEAD
from tests.learning.lessons.test_placeholders import REFERENCES


def link(number: int) -> str:
    if number != 14:
        raise UsageError(f"there is no lesson {number}")
    return f"[lesson {number}](l{number}.md)"


STYLE = PageStyle(link, lambda picture: f"![]({picture.name}.svg)", lambda sheet: f"level {sheet.level}")


def render(text: str, style: PageStyle = STYLE) -> str:
    body = "".join(f"## {title}\n{text if title == 'Numbers' else ''}\n" for title in SECTIONS)
    page = parse_page(Path("l99.md"), HEAD + body)
    return render_section(page, page.section("Numbers"), REFERENCES, style)


def test_a_formula_is_code_and_not_code_in_code() -> None:
    assert render("so {{= blocks.0.attn.q[t=1,d=1]}}.") == "so `0 · 0 + 1 · 2`."
    assert render("so `Q = {{= blocks.0.attn.q[t=1,d=1]}}`.") == "so `Q = 0 · 0 + 1 · 2`."
    assert render("```text\n{{= blocks.0.attn.q[t=1,d=1]}}\n```") == "```text\n0 · 0 + 1 · 2\n```"


def test_a_lesson_is_linked_and_a_row_is_in_brackets() -> None:
    assert render("[[14]] has {{blocks.0.attn.q[t=1]}}") == "[lesson 14](l14.md) has (0, 2)"


def test_a_table_is_a_table() -> None:
    text = render("{{table blocks.0.attn.pattern}}")
    assert text.splitlines()[0] == "| P[t,s] | s=0 A | s=1 B |"
    assert text.splitlines()[3] == "| t=1 B | 0.1956 | 0.8044 |"


def test_answers_are_folded() -> None:
    assert render("{{answer loss}}") == "<details><summary>Answer</summary>1.1275</details>"
    assert render("{{answer}}\nWords.\n{{/answer}}").splitlines()[0] == "<details><summary>Answer</summary>"


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("\na\n{{prob[t=1,v=2]}}", "l99.md:16: .*probs"),
        ("see [[7]]", "no lesson 7"),
        ("a {{table probs}}", "alone"),
        ("{{answer}}\nWords.", "/answer"),
        ("{{/answer}}", "in this order"),
    ],
)
def test_a_wrong_reference_is_an_error_with_its_file_and_line(text: str, fact: str) -> None:
    with pytest.raises(FileError, match=fact):
        render(text)
