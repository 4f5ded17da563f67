"""A page is a head and eight sections, and types no number."""

from pathlib import Path

import pytest

from pellucid.base.errors import FileError
from pellucid.learning.lessons.page import SECTIONS, find_literals, parse_page

HEAD = """+++
number = 99
part = "c"
title = "A test"
goal = "Know the mechanism."
[[sheet]]
focus = ["probs[t=1]"]
+++
"""
BODY = "\n".join(f"## {title}\nSome words.\n" for title in SECTIONS)


def test_a_page_has_its_head_and_its_sections_with_their_lines() -> None:
    page = parse_page(Path("l99.md"), HEAD + BODY)
    assert (page.head.number, page.head.sheet[0].focus) == (99, ("probs[t=1]",))
    assert [section.title for section in page.sections] == list(SECTIONS)
    assert page.section("Formula").text == "Some words.\n"
    assert page.section("Formula").line == HEAD.count("\n") + 4


@pytest.mark.parametrize(
    ("old", "new", "fact"),
    [
        ("number = 99", 'number = "x"', "number"),
        ("goal", "gaol", "goal"),
        ("focus", "focsu", "focus"),
        ("## Recap", "## Recpa", "Recap"),
        ("## Recap\n", "", "Recap"),
        ("## Intuition", "Words.\n## Intuition", "before the first heading"),
        ("[[sheet]]\nfocus", "focus", "focus"),
    ],
)
def test_a_page_that_is_not_as_it_must_be_is_refused_with_the_place(old: str, new: str, fact: str) -> None:
    with pytest.raises(FileError, match=fact):
        parse_page(Path("l99.md"), (HEAD + BODY).replace(old, new, 1))


@pytest.mark.parametrize(
    "text",
    [
        "{{probs[t=1,v=2] 2}} and [[14]]",
        "GPT-2, SmolLM2, UTF-8, Example 3, Examples 1 and 2 and lesson-15",
        "`max(0, x)`, `W_1`, `probs[t=1,v=2]`, `W_Q[1,0]`",
        "```sh\npellucid explain abcd 'A B' --lr 0.5\n```",
        "[a paper](https://arxiv.org/abs/1706.03762), x² + β₁, two of three",
    ],
)
def test_what_is_not_a_typed_number(text: str) -> None:
    assert not find_literals(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("a rate of 0.5.", "0.5"),
        ("`W[3]`", "3"),
        ("`0.1`", "0.1"),
        ("`12`", "12"),
        ("`P[1,0.2]`", "1,0.2"),
        ("½ of it", "½"),
        ("GPT-21", "21"),
        ("```text\n7\n```", "7"),
        ("2 tokens", "2"),
    ],
)
def test_a_typed_number_is_found_with_its_line(text: str, number: str) -> None:
    ((line, found),) = find_literals(f"Words.\n{text}")
    assert found == number and line == 2 + text.startswith("```")
