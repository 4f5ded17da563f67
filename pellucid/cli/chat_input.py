r'''Messages and commands from lines.

A line is a message. A line that ends in \ goes on in the next one; """ opens a message of several lines,
which the next """ closes. A line that begins with / is a command, and one that begins with // a message that
begins with /.
'''

from collections.abc import Callable
from typing import NamedTuple

QUOTES = '"""'


class ChatInput(NamedTuple):
    """What was entered: a message, or a command with its argument."""

    text: str
    command: str | None = None


def read_input(read_line: Callable[[bool], str]) -> ChatInput:
    """Returns the next message or command; `read_line` is given whether a line continues a message.

    >>> read_input(lambda goes_on: "//etc"), read_input(lambda goes_on: "/set n=1")
    (ChatInput(text='/etc', command=None), ChatInput(text='n=1', command='set'))
    """
    line = read_line(False)
    if line.lstrip().startswith(QUOTES):
        return ChatInput(_read_block(line.lstrip().removeprefix(QUOTES), read_line))
    text = _read_continued(line, read_line)
    if text.startswith("//"):
        return ChatInput(text[1:])
    if text.startswith("/"):
        name, _, argument = text[1:].partition(" ")
        return ChatInput(argument.strip(), name.strip())
    return ChatInput(text)


def _read_block(line: str, read_line: Callable[[bool], str]) -> str:
    """Returns the lines up to closing quotes, or to the end of the input."""
    lines = [line]
    while not lines[-1].rstrip().endswith(QUOTES):
        try:
            lines += read_line(True).split("\n")
        except EOFError:
            return "\n".join(lines).strip("\n")
    lines[-1] = lines[-1].rstrip().removesuffix(QUOTES)
    return "\n".join(lines).strip("\n")


def _read_continued(line: str, read_line: Callable[[bool], str]) -> str:
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        try:
            lines.append(read_line(True))
        except EOFError:
            break
    return "\n".join(lines)
