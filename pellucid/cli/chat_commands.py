r'''The input of a chat: messages, and commands, /reset, /undo, /set …

A line is a message. A line that ends in \ goes on in the next one; """ opens a message of several lines,
which the next """ closes. A line that begins with / is a command, and one that begins with // a message that
begins with /.
Each command is one function of the screen and its argument.
'''

import os
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pellucid.base.columns import shorten
from pellucid.base.errors import UsageError, did_you_mean, show
from pellucid.base.formatting import pluralize

if TYPE_CHECKING:
    from pellucid.cli.chat_screen import ChatScreen

FORCE, QUOTES = "--force", '"""'


@dataclass(frozen=True)
class ChatCommand:
    """A command: what follows its name, what it does, and the function that does it."""

    argument: str
    meaning: str
    run: Callable[["ChatScreen", str], None]


def run_command(screen: "ChatScreen", name: str, argument: str) -> None:
    """Does what a line that begins with / asks for."""
    command = COMMANDS.get(name)
    if command is None:
        hint = did_you_mean(f"/{name}", [f"/{known}" for known in COMMANDS])
        raise UsageError(
            f"/{shorten(name, 40)} is not a command.{hint} /help lists them; // sends a message that begins "
            "with /."
        )
    if argument and not command.argument:
        raise UsageError(f"/{name} takes no argument.")
    if not argument and command.argument and not command.argument.startswith("["):
        raise UsageError(f"/{name} needs {command.argument}: /{name} {command.argument}")
    command.run(screen, argument)


def _reset(screen: "ChatScreen", argument: str) -> None:
    count = len(screen.conversation.exchanges)
    screen.conversation.reset()
    kept = "" if screen.conversation.system is None else "; the system message stays"
    screen.note(f"Removed {pluralize(count, 'exchange')}{kept}.")


def _undo(screen: "ChatScreen", argument: str) -> None:
    removed = screen.conversation.undo()
    screen.note(f"Removed {show(removed.user, 60)} and its answer.")


def _edit(screen: "ChatScreen", argument: str) -> None:
    screen.conversation.need_exchange("edited")
    last = screen.conversation.exchanges[-1].user
    text = argument or screen.edit_text(last)
    if text.strip():
        screen.show_answer(screen.conversation.edit(text))
    else:
        screen.note("The message stays as it is.")


def _save(screen: "ChatScreen", argument: str) -> None:
    path, force = _read_output(argument)
    screen.conversation.save(path, force or path.resolve() == screen.file)
    screen.file = path.resolve()
    screen.note(f"Saved {pluralize(len(screen.conversation.exchanges), 'exchange')} as {path}.")


def _load(screen: "ChatScreen", argument: str) -> None:
    screen.load(Path(_read_path(argument)))


def _system(screen: "ChatScreen", argument: str) -> None:
    conversation = screen.conversation
    if not argument:
        screen.show(conversation.system or "There is no system message: /system TEXT sets one.")
        return
    conversation.system = None if argument == "none" else argument
    screen.note("The system message is removed." if argument == "none" else "The system message is set.")


def _set(screen: "ChatScreen", argument: str) -> None:
    from pellucid.generation.settings.table import parse_setting

    if not argument:
        screen.show_settings()
        return
    given = dict(parse_setting(_read_none(word)) for word in _split_words(argument))
    screen.conversation.replace_sampling(screen.conversation.sampling.merge(given))
    screen.note(screen.describe_settings(given))


def _ledger(screen: "ChatScreen", argument: str) -> None:
    path, force = _read_output(argument)
    screen.conversation.why().save(path, force)
    what = "open it in a browser" if path.suffix == ".html" else f"pellucid replay {path}"
    screen.note(f"Saved the ledger of the last answer as {path}: {what}")


def _why(screen: "ChatScreen", argument: str) -> None:
    screen.show_ledger(_read_number(argument) if argument else None)


def _explain(screen: "ChatScreen", argument: str) -> None:
    number, _, at = argument.partition(" ")
    screen.explain(_read_number(number), at.strip() or None)


def _help(screen: "ChatScreen", argument: str) -> None:
    rows = [(f"/{name} {command.argument}".rstrip(), command.meaning) for name, command in COMMANDS.items()]
    screen.show_table(rows)
    screen.show(HELP_INPUT)


def _quit(screen: "ChatScreen", argument: str) -> None:
    raise EOFError


HELP_INPUT = (
    'A line that ends in \\ goes on in the next; """ opens and closes a message of several lines; // sends a '
    "message that begins with /. Ctrl-C stops an answer, and what came of it is kept; Ctrl-D leaves."
)
COMMANDS = {
    "help": ChatCommand("", "list the commands", _help),
    "reset": ChatCommand("", "remove all messages but the system message", _reset),
    "undo": ChatCommand("", "remove the last message and its answer", _undo),
    "edit": ChatCommand("[TEXT]", "replace the last message and answer it again", _edit),
    "system": ChatCommand("[TEXT]", "show or set the system message; none removes it", _system),
    "set": ChatCommand("[KEY=VALUE …]", "show or change settings: /set temperature=0.5 top_p=0.9", _set),
    "why": ChatCommand("[N]", "how each token of the last answer was chosen, or its token N", _why),
    "explain": ChatCommand(
        "N [ADDRESS]", "where the probability of token N came from, or another number behind it", _explain
    ),
    "ledger": ChatCommand("FILE", "save the ledger of the last answer, as .json or .html", _ledger),
    "save": ChatCommand("FILE", f"save the conversation as JSON; {FORCE} replaces an older one", _save),
    "load": ChatCommand("FILE", "go on with a saved conversation", _load),
    "quit": ChatCommand("", "leave (Ctrl-D)", _quit),
}


def complete_input(before: str, word: str) -> Iterable[str]:
    """Returns what could stand in place of a word that is begun: commands, settings or files."""
    if not before.strip():
        return [f"/{name} " for name in COMMANDS]
    command = before.split()[0]
    if command == "/set" and before[-1] != "=":
        from pellucid.generation.settings.table import SETTINGS

        return [f"{name}=" for name in SETTINGS]
    if command in ("/save", "/load", "/ledger"):
        return _find_files(word)
    return []


def _find_files(word: str) -> list[str]:
    folder = os.path.dirname(os.path.expanduser(word)) or "."
    try:
        entries = [(entry.name, entry.is_dir()) for entry in os.scandir(folder)]
    except OSError:
        return []
    start = word[: len(word) - len(os.path.basename(word))]
    return [f"{start}{name}{'/' if is_folder else ''}" for name, is_folder in entries]


def _read_output(text: str) -> tuple[Path, bool]:
    """Returns the path to write, and whether an older file may be replaced."""
    *words, last = _split_words(text)
    force = last == FORCE and bool(words)
    return Path(_read_path(text.strip().removesuffix(FORCE) if force else text)), force


def _read_path(text: str) -> str:
    """Returns a path as a shell would read it: ~ is the home folder, quotes are removed."""
    words = _split_words(text)
    return os.path.expanduser(words[0] if len(words) == 1 else text.strip())


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation mark that is not closed
        return text.split()


def _read_none(word: str) -> str:
    """Returns KEY=null for KEY=none, as people write it."""
    key, _, value = word.partition("=")
    return f"{key}=null" if value.lower() == "none" else word


def _read_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise UsageError(f"{show(text)} is not the number of a token: they are counted from 1.")
    return int(text)


# ---- messages and commands from lines


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
