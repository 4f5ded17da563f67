"""Markdown as plain text, in any width."""

from pellucid.learning.lessons.plain import lay_out


def test_plain_text_wraps_paragraphs_and_items_and_keeps_code() -> None:
    text = "**Bold** and `code` and [a link](x.md) go\non and on.\n\n- an item that is rather long\n\n"
    text += "```sh\na  b\n```"
    assert list(lay_out(text, 22)) == [
        "Bold and code and a",
        "link go on and on.",
        "",
        "- an item that is",
        "  rather long",
        "",
        "    a  b",
    ]


def test_marks_around_code_are_removed_and_those_in_code_stay() -> None:
    assert list(lay_out("**Block `0`, *in* full.** `a * b * c`", 80)) == ["Block 0, in full. a * b * c"]


def test_a_long_command_goes_on_after_a_backslash_and_quotes_stay_whole() -> None:
    text = '```sh\npellucid explain abcd "A B" --at "probs[t=1,v=2]" --depth 2\n```\n\n```text\na  b c\n```'
    assert list(lay_out(text, 30)) == [
        "    pellucid explain abcd \\",
        '        "A B" --at \\',
        '        "probs[t=1,v=2]" \\',
        "        --depth 2",
        "",
        "    a  b c",
    ]
    assert list(lay_out("```text\n  X = (1, 2)   ← Q\n```", 17)) == ["      X = (1, 2)", "        ← Q"]


def test_a_table_is_aligned_and_numbers_stand_to_the_right() -> None:
    text = "| P[t,s] | s=0 A | s=1 B |\n| --- | ---: | ---: |\n| t=0 A | 1 | 0 |\n| t=1 B | 0.1956 | 0.8044 |"
    assert list(lay_out(text, 80)) == [
        "  P[t,s]   s=0 A   s=1 B",
        "  t=0 A        1       0",
        "  t=1 B   0.1956  0.8044",
    ]
