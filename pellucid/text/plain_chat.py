"""A conversation as plain text, for a model that has no chat template.

    You are kind.

    User: Who?
    Assistant: Me.
    User: Why?
    Assistant:

An answer ends where the model writes the next "User:". Unlike a template, plain text cannot keep a message
from looking like the next turn.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, Self

from pellucid.base.errors import UsageError, unknown
from pellucid.text.chat_template import Message

SPEAKERS = {"user": "User", "assistant": "Assistant"}


class PlainChat:
    """Conversations as plain text, with the interface of `Chat`."""

    stop_texts: ClassVar[tuple[str, ...]] = ("\nUser:",)

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Returns the ids of a conversation up to where the answer begins."""
        return self._encode(write_plain(messages))

    def end_of_turn(self) -> None:
        """Returns None: no token ends an answer."""


def write_plain(messages: Sequence[Message]) -> str:
    """Returns a conversation as plain text, up to where the answer begins.

    >>> write_plain([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Who?"}])
    'Be kind.\\n\\nUser: Who?\\nAssistant:'
    """
    text = ""
    for message in messages:
        role, content = message["role"], message["content"].strip()
        if role != "system" and role not in SPEAKERS:
            raise UsageError(unknown("the role of a message", role, ("system", *SPEAKERS)))
        text += f"{content}\n\n" if role == "system" else f"{SPEAKERS[role]}: {content}\n"
    return f"{text}{SPEAKERS['assistant']}:"
