"""Lines become messages and commands, which are completed; arguments are read as a shell reads them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pellucid.cli.chat_commands import COMMANDS, ChatInput, _read_output, complete_input, read_input


def test_commands_settings_and_files_are_completed(tmp_path: Path) -> None:
    assert set(complete_input("", "/s")) == {f"/{name} " for name in COMMANDS}
    assert "temperature=" in complete_input("/set ", "te")
    assert list(complete_input("/set temperature=", "")) == []
    (tmp_path / "talk.json").write_text("")
    (tmp_path / "folder").mkdir()
    assert set(complete_input("/load ", f"{tmp_path}/")) == {f"{tmp_path}/talk.json", f"{tmp_path}/folder/"}
    assert list(complete_input("/load ", f"{tmp_path}/none/")) == []
    assert list(complete_input("Who are ", "yo")) == []


@pytest.mark.parametrize(
    ("text", "path", "force"),
    [
        ("talk.json", "talk.json", False),
        ("talk.json --force", "talk.json", True),
        ("my talk.json --force", "my talk.json", True),
        ("'my talk.json'", "my talk.json", False),
        ("it's.json", "it's.json", False),
        ("--force", "--force", False),
    ],
)
def test_a_path_is_read_as_a_shell_reads_it(text: str, path: str, force: bool) -> None:
    assert _read_output(text) == (Path(path), force)


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
