"""Texts and conversations as the ids that the engine takes, off the event loop where that takes long.

    ids = await served.encoder.encode("The cat")
    ids, stop_ids = await served.encoder.ask([{"role": "user", "content": "Who?"}])

A short text is encoded at once. A long one waits for a thread, since a library takes seconds for megabytes,
and what cannot fit into the context is refused before. Conversations have a thread of their own, which waits
for the process of the model's chat template: a slow template holds up other conversations, nothing else.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from pellucid.base.errors import show
from pellucid.formats.pretrained import Pretrained
from pellucid.server.http.limits import RequestError
from pellucid.server.http.request import request_errors
from pellucid.text.chat_template import Chat, Message
from pellucid.text.tokenizer import Tokenizer

SHORT_BYTES = 8_192
"""A text up to here is encoded on the event loop: slow tokenizers take about 1 µs per byte."""
SHORT_IDS = 4_096
"""As many ids are decoded on the event loop."""
MOST_TEXT_BYTES, USUAL_TOKEN_BYTES = 1 << 20, 64
"""The longest text: so much, or for each token of the context, whichever is more. A library may take 300
bytes of memory for one of a text."""
MOST_TEXTS, MOST_CHATS = 16, 64
"""Long texts and conversations that may wait for their threads."""
MOST_MESSAGE_CHARACTERS = 1 << 20
"""Of all messages together: a chat template may not write more."""
CLOSE_SECONDS = 2.0
"""How long the end of the server waits for a conversation that is being written."""

T = TypeVar("T")


class PromptEncoder:
    """Encodes and decodes for one model. Every prompt that it returns fits into the context."""

    def __init__(self, pretrained: Pretrained) -> None:
        self.pretrained = pretrained
        self.context = pretrained.config.context_length
        self._texts = WorkThread("the tokenizer", MOST_TEXTS)
        self._conversations = WorkThread("the chat template", MOST_CHATS)
        self._chat: Chat | None = None
        self._stop_ids: tuple[int, ...] = ()
        self._longest: int | None = None
        self._special: dict[str, int] = {}
        if pretrained.tokenizer is not None:
            pretrained.tokenizer.encode("")  # what it builds when it is first used is built before a request
            self._longest = pretrained.tokenizer.longest_token
            self._special = pretrained.tokenizer.special_tokens | name_own_tokens(pretrained)

    def need_tokenizer(self, param: str = "model") -> Tokenizer:
        """Returns the tokenizer; raises where the model came without one."""
        with request_errors(param):
            return self.pretrained.need_tokenizer()

    async def encode(self, text: str, param: str = "prompt") -> tuple[int, ...]:
        """Returns the ids of a text to continue, with the bos token where the model wants one; an empty text
        is the token that a text begins with. `param` is the field that an error names."""
        if self._longest is not None and (size := count_bytes(text)) > self.context * self._longest:
            raise RequestError(
                f"this model's context holds {self.context:,} tokens of at most {self._longest:,} bytes, and "
                f"the text has {size:,} bytes. Shorten it.",
                param=param,
                code="context_length_exceeded",
            )
        ids = await self._run_on_text(text, param, lambda: self.pretrained.encode_start(text))
        return self.check_ids(ids, param)

    async def tokenize(self, text: str, adds_bos: bool = True, param: str = "prompt") -> list[int]:
        """Returns the ids of a text, which need not fit; one that is exactly a special token is that
        token."""
        tokenizer = self.need_tokenizer(param)
        first = self.pretrained.bos_ids if adds_bos else []
        if text in self._special:
            return [*first, self._special[text]]
        return await self._run_on_text(text, param, lambda: first + tokenizer.encode(text))

    async def decode(self, ids: Sequence[int], param: str = "tokens") -> str:
        """Returns the text of ids."""
        tokenizer = self.need_tokenizer(param)
        check_range(ids, tokenizer.vocab_size, param)
        with request_errors(param):
            if len(ids) <= SHORT_IDS:
                return tokenizer.decode(ids)
            return await self._texts.run(lambda: tokenizer.decode(ids))

    def check_ids(self, ids: Sequence[int], param: str = "prompt") -> tuple[int, ...]:
        """Returns the ids of a prompt; raises where there are none, too many, or one that no token has."""
        if not ids:
            raise RequestError("the prompt has no token: give at least one.", param=param)
        if len(ids) > self.context:
            raise self.make_context_error(len(ids), param)
        check_range(ids, self.pretrained.config.vocab_size, param)
        return tuple(ids)

    async def ask(self, messages: Sequence[Message]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the ids that ask for the next answer of a conversation, and the tokens that end it.

        The model's own chat template writes it; names of special tokens in a message are ordinary text.
        """
        ids = await self.tokenize_messages(messages)
        return self.check_ids(ids, "messages"), self._stop_ids

    async def tokenize_messages(self, messages: Sequence[Message], asks: bool = True) -> list[int]:
        """Returns the ids of a conversation, which need not fit; without `asks` they end with its last
        message."""
        check_size(messages)
        with request_errors("messages"):
            return await self._conversations.run(lambda: self._write(messages, asks))

    def make_context_error(self, count: int, param: str, new_tokens: int = 0) -> RequestError:
        """Returns the error for a prompt of that many tokens that does not fit, alone or with its answer."""
        wanted = f"{count:,} tokens" + (f" and {new_tokens:,} new ones" if new_tokens else "")
        return RequestError(
            f"this model's context holds {self.context:,} tokens, and {wanted} are asked for. Shorten the "
            "prompt" + (", or ask for fewer." if new_tokens else "."),
            param=param,
            code="context_length_exceeded",
        )

    async def close(self) -> None:
        """Ends the threads, and the process of the chat template."""
        await self._texts.close()
        await self._conversations.close(self._close_chat, CLOSE_SECONDS)

    async def _run_on_text(self, text: str, param: str, encode: Callable[[], T]) -> T:
        size, most = count_bytes(text), max(MOST_TEXT_BYTES, self.context * USUAL_TOKEN_BYTES)
        if size > most:
            message = f"the text has {size:,} bytes; {most:,} are the most. Send it in parts."
            raise RequestError(message, param=param)
        with request_errors(param):
            if size > SHORT_BYTES:
                return await self._texts.run(encode)
            await asyncio.sleep(0)  # between the many texts of a list others have their turn
            return encode()

    # ---- in the thread of the conversations

    def _write(self, messages: Sequence[Message], asks: bool) -> list[int]:
        try:
            if self._chat is None:
                chat = open_chat(self.pretrained)
                end = chat.end_of_turn()
                self._stop_ids = tuple(sorted({*self.pretrained.eos_ids, *([] if end is None else [end])}))
                self._chat = chat
            return self._chat.prompt(messages, asks)
        except OSError as error:
            raise RequestError(
                f"the process of the chat template cannot be started: {error.strerror}. Try again later.",
                503,
                Retry_After="1",
            ) from None

    def _close_chat(self) -> None:
        if self._chat is not None:
            self._chat.template.close()


def name_own_tokens(pretrained: Pretrained) -> dict[str, int]:
    """Returns the ids of the tokens that the generation settings name as the first and last of a text."""
    tokenizer, start = pretrained.need_tokenizer(), pretrained.generation.get("bos_token_id")
    ids = [*pretrained.eos_ids, *([] if start is None else [start])]
    return {tokenizer.token(id): id for id in ids if id < tokenizer.vocab_size}


def open_chat(pretrained: Pretrained) -> Chat:
    """Returns the model's chat template, in a process of its own."""
    template = pretrained.chat_template
    if template is None:
        raise RequestError(
            f"{pretrained.name} has no chat template, so a conversation cannot be written for it. Send a "
            "text to continue to /v1/completions, or serve a model that was trained on conversations.",
            param="messages",
        )
    return Chat(template, pretrained.need_tokenizer())


def check_size(messages: Sequence[Message]) -> None:
    """Raises where messages are longer than anything that a template may write."""
    size = sum(len(message["content"]) for message in messages)
    if size > MOST_MESSAGE_CHARACTERS:
        raise RequestError(
            f"the messages have {size:,} characters; {MOST_MESSAGE_CHARACTERS:,} are the most.",
            param="messages",
            code="context_length_exceeded",
        )


def check_range(ids: Sequence[int], size: int, param: str) -> None:
    """Raises where an id is not one of a vocabulary of that size."""
    if ids and not (min(ids) >= 0 and max(ids) < size):
        wrong = next(id for id in ids if not 0 <= id < size)
        raise RequestError(f"no token has the id {show(wrong)}: ids go from 0 to {size - 1:,}.", param=param)


def count_bytes(text: str) -> int:
    """Returns the length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


class _Call(NamedTuple):
    function: Callable[[], Any]
    result: "asyncio.Future[Any]"


class WorkThread:
    """Runs calls in the order in which they came; the thread starts with the first of them."""

    def __init__(self, name: str, most_calls: int) -> None:
        self.name, self.most_calls = name, most_calls
        self.calls = 0
        """Calls that run or wait, those that were cancelled among them until their turn."""
        self._queue: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    async def run(self, function: Callable[[], T]) -> T:
        """Returns what the function returns; raises a RequestError where too many calls wait already."""
        if self._is_closed:
            raise RequestError("the server is ending.", 503, Retry_After="10")
        if self.calls >= self.most_calls:
            raise RequestError(
                f"{self.calls} requests wait for {self.name} already: try again later.", 429, Retry_After="1"
            )
        return await self._submit(function)

    async def close(self, last: Callable[[], None] | None = None, seconds: float = 0.0) -> None:
        """Refuses further calls, and runs a last one, for whose end it waits that long at most."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._thread is None:
            return
        ended = self._submit(last) if last else None
        self._queue.put(None)
        if ended is not None:
            await asyncio.wait([ended], timeout=seconds)

    def _submit(self, function: Callable[[], T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        self.calls += 1
        self._queue.put(_Call(function, result))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, args=(loop,), name=self.name, daemon=True)
            self._thread.start()
        return result

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while call := self._queue.get():
            found, error = None, None
            if not call.result.cancelled():
                try:
                    found = call.function()
                except BaseException as raised:  # a panic of a Rust library is not an Exception
                    error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._finish, call.result, found, error)

    def _finish(self, result: "asyncio.Future[Any]", found: Any, error: BaseException | None) -> None:
        self.calls -= 1
        if result.cancelled():
            return
        if error is None:
            result.set_result(found)
        elif isinstance(error, Exception):
            result.set_exception(error)
        else:
            result.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
