"""A conversation as tokens, by the model's own chat template, with a loss mask for the answers.

    with Chat(template, tokenizer) as chat:
        chat.prompt([{"role": "user", "content": "Who?"}])          # the ids up to the assistant's answer
        chat.encode([…, {"role": "assistant", "content": "Me."}])   # ids, and which of them are targets

A template is code from an untrusted file, so it runs in a separate process (`chat_template_worker.py`). A
message that contains the name of a special token is encoded as ordinary text.
"""

import json
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple, Self

from pellucid.base.errors import ConfigError, UsageError, show, unknown
from pellucid.base.worker import Worker
from pellucid.text.standard import StandardTokenizer
from pellucid.text.tokenizer import Special, Tokenizer

Message = Mapping[str, str]
ANSWERS = "assistant"
PROGRAM = Path(__file__).with_name("chat_template_worker.py")
PATIENCE = 20.0
"""Seconds to wait for one answer of the process; its own limit ends it long before."""
MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
"""Unicode noncharacters, which no text contains; one of them breaks up special tokens in messages."""


class EncodedChat(NamedTuple):
    ids: list[int]
    counted: list[bool]
    """Whether a token is a target: one of the assistant's, its end-of-turn token included."""


def check_messages(given: Any) -> list[dict[str, str]]:
    """Returns the messages of a conversation, each a role and a content that are texts."""
    if not isinstance(given, Sequence) or isinstance(given, str | bytes) or not given:
        raise UsageError(f'messages must be a list of {{"role": …, "content": …}}, not {show(given)}.')
    for i, message in enumerate(given):
        if not isinstance(message, Mapping) or not all(
            isinstance(message.get(key), str) for key in ("role", "content")
        ):
            raise UsageError(
                f'messages[{i}] must be {{"role": …, "content": …}}, both texts, not {show(message)}.'
            )
    return [{"role": message["role"], "content": message["content"]} for message in given]


class ChatTemplate:
    """A chat template in its own process, which ends with the `with` block; where it was stopped, the next
    conversation starts another."""

    def __init__(self, text: str, special: Special = Special()) -> None:  # noqa: B008
        _need_engine()
        names = {"bos_token": special.bos, "eos_token": special.eos, "pad_token": special.pad}
        variables = {key: name for key, name in names.items() if name is not None}
        self._template = {"template": text, "variables": variables}
        self._start()

    def _start(self) -> None:
        self._worker = Worker(str(PROGRAM), stderr=subprocess.DEVNULL)
        try:
            self._request(self._template)
        except ConfigError as error:
            self.close()
            raise ConfigError(str(error).replace("this conversation", "anything")) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._worker.close()

    def render(self, messages: Sequence[Message], asking: bool = False) -> str:
        """Returns the text of a conversation; `asking` adds the generation prompt."""
        return self.renders([(messages, asking)])[0]

    def renders(self, wanted: Sequence[tuple[Sequence[Message], bool]]) -> list[str]:
        if not self._worker.is_alive:
            self._start()
        asked = [[[dict(message) for message in messages], asking] for messages, asking in wanted]
        texts: list[str] = self._request({"renders": asked})["texts"]
        return texts

    def _request(self, what: dict[str, Any]) -> dict[str, Any]:
        try:
            line = self._worker.ask(json.dumps(what).encode() + b"\n", _read_line, PATIENCE)
        except EOFError:
            late = self._worker.process.wait() == -signal.SIGPROF
            self.close()
            raise ConfigError(
                "the chat template was stopped: it takes more than "
                + ("a second for one conversation." if late else "its share of time or memory.")
            ) from None
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ConfigError(f"the chat template cannot write this conversation: {answer['error']}.")
        return answer


def _read_line(stdout: BinaryIO) -> bytes:
    line = stdout.readline()
    if not line:
        raise EOFError
    return line


def _need_engine() -> None:
    """Refuses a jinja2 older than 3.1.6, whose sandbox has known escapes."""
    from importlib import metadata

    try:
        found = metadata.version("jinja2")
    except metadata.PackageNotFoundError:
        raise UsageError("chat templates need jinja2: pip install 'pellucid[chat]'") from None
    if tuple(map(int, re.findall(r"\d+", found)[:3])) < (3, 1, 6):
        raise UsageError(f"chat templates need jinja2 3.1.6 or newer, not {found}: pip install -U jinja2")


class Chat:
    """A template and the tokenizer of the same model."""

    stop_texts: ClassVar[tuple[str, ...]] = ()
    """Texts that end an answer; a template has a token for it."""

    def __init__(self, template: str, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._parsed, control = _list_parsed(tokenizer)
        longest_first = sorted(self._parsed, key=len, reverse=True)
        self._parts = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")
        self._ends = re.compile("|".join(map(re.escape, control)) or r"(?!)")
        if control and isinstance(tokenizer, StandardTokenizer):
            self._need_pieces(control[0])
        self.template = ChatTemplate(template, tokenizer.special)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.template.close()

    def _need_pieces(self, token: str) -> None:
        """Refuses a tokenizer that encodes a text differently after a special token than at the start."""
        text = f"{token}who are you{token}who are you"
        if self._encode(text, "") != self.tokenizer.encode(text, parse_special=True):
            raise ConfigError(
                "this tokenizer encodes a word after a special token differently than at the beginning of a "
                "text, and conversations are encoded piece by piece. Byte-level tokenizers work."
            )

    def prompt(self, messages: Sequence[Message], asking: bool = True) -> list[int]:
        """Returns the ids of a conversation, with the generation prompt unless `asking` is false."""
        inert, mark = self._inert(messages)
        return self._encode(self.template.render(inert, asking), mark)

    def end_of_turn(self) -> int | None:
        """Returns the special token that ends an answer in this template, or None where there is none."""
        said = [{"role": "user", "content": "a"}, {"role": ANSWERS, "content": "b"}]
        try:
            ids, counted = self.encode(said)
        except ConfigError:
            return None
        last = [id for id, counts in zip(ids, counted, strict=True) if counts][-1:]
        return last[0] if last and last[0] in {token.id for token in self._parsed.values()} else None

    def encode(self, messages: Sequence[Message]) -> EncodedChat:
        """Returns the ids of a conversation, and which of them the assistant wrote.

        The text is cut where an answer begins, so that the tokens before are those that a prompt will have.
        """
        inert, mark = self._inert(messages)
        text, spans = self._spans(inert)
        ids, counted, at = list[int](), list[bool](), 0
        for start, end in (*spans, (len(text), len(text))):
            for piece, counts in ((text[at:start], False), (text[start:end], True)):
                some = self._encode(piece, mark)
                ids += some
                counted += [counts] * len(some)
            at = end
        return EncodedChat(ids, counted)

    def _spans(self, messages: Sequence[Message]) -> tuple[str, list[tuple[int, int]]]:
        """Returns the whole text and the span of each answer, up to its last special token."""
        answers = [i for i, message in enumerate(messages) if message["role"] == ANSWERS]
        wanted = [(messages, False)]
        for i in answers:
            wanted += [(messages[:i], True), (messages[: i + 1], False)]
        text, *parts = self.template.renders(wanted)
        spans = []
        for before, after in zip(parts[::2], parts[1::2], strict=True):
            if not (text.startswith(after) and after.startswith(before)):
                raise ConfigError(
                    "the chat template does not say where an answer begins and ends: with the messages up to "
                    f"it, it writes …{(before if after.startswith(before) else after)[-40:]!r}, and with all "
                    "of them something else there."
                )
            ends = [found.end() for found in self._ends.finditer(text, len(before), len(after))]
            spans.append((len(before), ends[-1] if ends else len(after)))
        return text, spans

    def _inert(self, messages: Sequence[Message]) -> tuple[list[dict[str, str]], str]:
        """Returns the messages with a mark inside each name of a special token, so that none is parsed."""
        whole = "".join(text for message in messages for text in message.values())
        mark = next((mark for mark in MARKS if mark not in whole), "")
        if not self._ends.search(whole):
            return [dict(message) for message in messages], ""
        if not mark:
            raise ConfigError(
                "this conversation contains every Unicode noncharacter, and one is needed as a mark."
            )
        broken = [
            {key: self._ends.sub(lambda f: f[0][0] + mark + f[0][1:], text) for key, text in message.items()}
            for message in messages
        ]
        return broken, mark

    def _encode(self, text: str, mark: str) -> list[int]:
        """Returns the ids of a rendered text: special tokens are parsed, text between them is ordinary."""
        ids: list[int] = []
        # Blanks beside a token are removed afterwards: a pattern that has them is quadratic in a run of them.
        pieces = self._parts.split(text)
        for i in range(1, len(pieces), 2):
            token = self._parsed[pieces[i]]
            pieces[i - 1] = pieces[i - 1].rstrip() if token.lstrip else pieces[i - 1]
            pieces[i + 1] = pieces[i + 1].lstrip() if token.rstrip else pieces[i + 1]
        for i, piece in enumerate(pieces):
            if i % 2:
                ids.append(self._parsed[piece].id)
            elif piece:
                ids += self.tokenizer.encode(piece.replace(mark, "") if mark else piece)
        return ids


class _ParsedToken(NamedTuple):
    """A token that is parsed in a rendered text, and on which sides it includes the blanks."""

    id: int
    lstrip: bool = False
    rstrip: bool = False


def _list_parsed(tokenizer: Tokenizer) -> tuple[dict[str, _ParsedToken], list[str]]:
    """Returns all tokens that are parsed in a rendered text, by name, and the names of the special ones."""
    if not isinstance(tokenizer, StandardTokenizer):
        names = tokenizer.special.names()
        return {name: _ParsedToken(tokenizer.special_tokens[name]) for name in names}, names
    entries = tokenizer.file["added_tokens"]
    parsed = {
        entry["content"]: _ParsedToken(entry["id"], entry["lstrip"], entry["rstrip"]) for entry in entries
    }
    return parsed, [entry["content"] for entry in entries if entry["special"]]


# ---- a conversation as plain text, for a model that has no chat template:
#
#     You are kind.
#
#     User: Who?
#     Assistant: Me.
#     User: Why?
#     Assistant:
#
# An answer ends where the model writes the next "User:". Unlike a template, plain text cannot keep a message
# from looking like the next turn.

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
