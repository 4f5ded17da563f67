"""Lines become messages and commands."""

from collections.abc import Iterator

import pytest

from pellucid.cli.chat_input import ChatInput, read_input


def read_all(*lines: str) -> list[ChatInput]:
    waiting = iter(lines)

    def read_line(goes_on: bool) -> str:
        for line in waiting:
            return line
        raise EOFError

    def inputs() -> Iterator[ChatInput]:
        while True:
            try:
                yield read_input(read_line)
            except EOFError:
                return

    return list(inputs())


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (["Hello", ""], [ChatInput("Hello"), ChatInput("")]),
        (["a\\", "b\\", "c", "d"], [ChatInput("a\nb\nc"), ChatInput("d")]),
        (["a\\"], [ChatInput("a")]),
        (['"""', "a", " b", '"""', "c"], [ChatInput("a\n b"), ChatInput("c")]),
        (['"""a', 'b"""'], [ChatInput("a\nb")]),
        (['"""a"""'], [ChatInput("a")]),
        (['"""', "/reset", '"""'], [ChatInput("/reset")]),
        (['"""', "a"], [ChatInput("a")]),
        (['"""', 'a\nb\n"""'], [ChatInput("a\nb")]),
        (["pasted\nin one go"], [ChatInput("pasted\nin one go")]),
        (["/set  n=1 "], [ChatInput("n=1", "set")]),
        (["/"], [ChatInput("", "")]),
        (["//etc/hosts"], [ChatInput("/etc/hosts")]),
        (["/system Be\\", "brief."], [ChatInput("Be\nbrief.", "system")]),
        (["1 / 2"], [ChatInput("1 / 2")]),
    ],
)
def test_lines_are_messages_or_commands(lines: list[str], wanted: list[ChatInput]) -> None:
    assert read_all(*lines) == wanted


def test_a_line_that_continues_a_message_is_asked_for_as_such() -> None:
    asked, lines = list[bool](), iter(['"""', "a", '"""'])

    def read_line(goes_on: bool) -> str:
        asked.append(goes_on)
        return next(lines)

    read_input(read_line)
    assert asked == [False, True, True]
