"""A conversation with a model: messages, the rule by which they fit the context, and answers as they come.

    with Conversation(pellucid.load("smollm2"), system="Be brief.") as talk:
        for piece in talk.ask("Who are you?"):
            print(piece, end="", flush=True)

The rule: the prompt is the system message, the exchanges (a message and its answer) and the new message.
It must leave room for an answer: `max_new_tokens`, and at most half of the context. Where it does not, the
oldest exchanges are dropped until the prompt takes at most three quarters of what it may have, so that the
next turns need not read everything again. The system message and the new message are never dropped; a
message that does not fit beside the system message is refused.
"""

import dataclasses
import os
import random
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pellucid.base.arguments import check_int, check_path, check_text
from pellucid.base.dtypes import CACHE_NAMES, check_dtype
from pellucid.base.errors import ConfigError, TokenError, UsageError
from pellucid.base.formatting import pluralize
from pellucid.generation.conversation_file import (
    Exchange,
    SavedConversation,
    read_conversation,
    write_conversation,
    write_messages,
)
from pellucid.generation.ledger.explain_token import TokenNumber, explain_token
from pellucid.generation.ledger.ledger import Ledger, make_ledger
from pellucid.generation.request import Completion, Request, Token
from pellucid.generation.settings.foreign_keys import read_generation
from pellucid.generation.settings.keywords import own_settings, read_engine_options
from pellucid.generation.settings.resolve import ResolvedSampling, resolve_sampling
from pellucid.generation.settings.sampling import Sampling
from pellucid.model import Model
from pellucid.text.chat_template import Chat, PlainChat

if TYPE_CHECKING:
    from pellucid.generation.handle import Handle
    from pellucid.generation.scheduler import Engine

ANSWER_TOKENS = 512
"""New tokens of an answer where the settings do not say how many."""
DEFAULT_PRESET = "balanced"
MOST_SEEDS = 10**6
"""An answer's seed is drawn below this, so that a person can type it."""
REFILL = 0.75
"""The share of the prompt's room that is filled again where exchanges were dropped."""


class Conversation:
    """A conversation, and the engine that answers. It ends with the `with` block, or `close`."""

    def __init__(
        self,
        model: Model,
        system: str | None = None,
        sampling: Sampling | Mapping[str, Any] | None = None,
        *,
        cache: Any = None,
    ) -> None:
        self.model = model
        self.exchanges: list[Exchange] = []
        self.sampling = Sampling()
        self.last: ChatAnswer | None = None
        """The newest answer, whose ledger can be seen."""
        self._begun: ChatAnswer | None = None
        """The newest answer, also while it comes."""
        self._cache = None if cache is None else check_dtype(cache, CACHE_NAMES, "cache")
        self._engine: Engine | None = None
        self._slots = 0
        self._first = 0
        self._system: str | None = None
        template = model.pretrained.chat_template
        self.has_template = template is not None
        self._chat: Chat | PlainChat = (
            PlainChat(model.encode) if template is None else Chat(template, model.tokenizer)
        )
        try:
            self._check_plain()
            self._end_of_turn = self._chat.end_of_turn()
            self.replace_sampling(resolve_chat_sampling(model).sampling if sampling is None else sampling)
            self.system = system
        except BaseException:
            self.close()
            raise

    def _check_plain(self) -> None:
        """Raises where a model has no template, and not the words of plain text either."""
        try:
            _ = self.has_template or self._write_prompt([], "")
        except TokenError as error:
            raise TokenError(f"{self.model.name} has no chat template, and in plain text {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the engine, and the process of the template."""
        if self._engine is not None:
            self._engine.stop()
        self._chat.__exit__()

    # ---- settings

    @property
    def system(self) -> str | None:
        """The system message, which stays in the context whatever is dropped."""
        return self._system

    @system.setter
    def system(self, text: str | None) -> None:
        before, self._system = self._system, text
        try:
            self._check_system()
        except BaseException:
            self._system = before
            raise
        self._first = 0

    def _check_system(self) -> None:
        if self._system is None:
            return
        check_text("system", self._system)
        try:
            count = len(self._write_prompt([], ""))
        except ConfigError as error:
            raise ConfigError(f"this model takes no system message: {error}") from None
        if count >= self.room:
            raise TokenError(
                f"the system message and the template take {count:,} tokens, and {self.room:,} fit the "
                f"context beside an answer: shorten it."
            )

    def set(self, key: str, value: Any) -> None:
        """Changes one setting, such as "temperature"; where it is refused, the old one stays."""
        self.replace_sampling(self.sampling.merge({key: value}))

    def replace_sampling(self, sampling: Sampling | Mapping[str, Any]) -> None:
        """Changes all settings at once."""
        given = sampling if isinstance(sampling, Sampling) else Sampling.read(sampling)
        if given.n != 1:
            raise UsageError("a conversation has one answer to each message: n must be 1.")
        given.check_vocabulary(self.model.config.vocab_size)
        self.sampling = given

    @property
    def answer_tokens(self) -> int:
        """New tokens of an answer, at most."""
        wanted = self.sampling.max_new_tokens
        return ANSWER_TOKENS if wanted is None else wanted

    @property
    def room(self) -> int:
        """Tokens that a prompt may have: the context without the room for an answer."""
        context = self.model.config.context_length
        return context - min(self.answer_tokens, context // 2)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The tokens that end an answer: those of the settings, else the model's and the template's own."""
        if self.sampling.stop_ids is not None:
            return self.sampling.stop_ids
        ends = [] if self._end_of_turn is None else [self._end_of_turn]
        return tuple(sorted({*self.model.eos_ids, *ends}))

    # ---- messages

    @property
    def messages(self) -> list[dict[str, str]]:
        """The system message and all exchanges, those that were dropped from the context too."""
        return write_messages(self.system, self.exchanges)

    def ask(self, text: str) -> "ChatAnswer":
        """Returns the answer to a message: iterate over it to get its text, piece by piece.

        The message and its answer are kept when the answer ends, or is stopped after its first piece; the
        next message stops one that was not read to its end.
        """
        self._stop_answer()
        return self._ask(self.exchanges, check_text("text", text))

    def edit(self, text: str) -> "ChatAnswer":
        """Returns the answer to a message that replaces the last one."""
        self._stop_answer()
        self.need_exchange("edited")
        return self._ask(self.exchanges[:-1], check_text("text", text))

    def undo(self) -> Exchange:
        """Removes the last message with its answer, and returns them."""
        self._stop_answer()
        self.need_exchange("undone")
        self._first, self.last = 0, None
        return self.exchanges.pop()

    def reset(self) -> None:
        """Removes all messages but the system message."""
        self._stop_answer()
        self.exchanges, self._first, self.last = [], 0, None

    def need_exchange(self, participle: str) -> None:
        """Raises where there is no message yet."""
        if not self.exchanges:
            raise UsageError(f"the conversation has no message that could be {participle}.")

    def _ask(self, before: Sequence[Exchange], text: str) -> "ChatAnswer":
        if not text.strip():
            raise UsageError("the message is empty: write something.")
        prompt, first = self._fit(before, text)
        seed = self.sampling.seed
        room = self.model.config.context_length - len(prompt)
        sampling = dataclasses.replace(
            self.sampling,
            seed=random.SystemRandom().randrange(MOST_SEEDS) if seed is None else seed,
            max_new_tokens=min(self.answer_tokens, room),
            stop=(*self.sampling.stop, *self._chat.stop_texts),
            stop_ids=self.stop_ids,
        )
        request = Request(tuple(prompt), sampling, ledger=True)
        started = time.perf_counter()
        handle = self.engine.add(request)
        dropped, self._first = first - min(self._first, first), first
        self._begun = ChatAnswer(self, text, len(before), request, handle, (dropped, first), started)
        return self._begun

    def _stop_answer(self) -> None:
        """Stops an answer that was not read to its end, and would hold the engine's slots for ever."""
        answer, self._begun = self._begun, None
        if answer is not None and not answer.has_failed:
            answer.stop()

    def _fit(self, exchanges: Sequence[Exchange], text: str) -> tuple[list[int], int]:
        """Returns the prompt, and the number of exchanges that it leaves out at the beginning."""
        first, last = min(self._first, len(exchanges)), len(exchanges)
        ids = self._write_prompt(exchanges[first:], text)
        if len(ids) <= self.room:
            return ids, first
        ids = self._write_prompt([], text)
        if len(ids) > self.room:
            self._refuse(text, len(ids))
        enough = max(REFILL * self.room, len(ids))
        later = range(first + 1, last + 1)
        first = later[
            bisect_left(later, True, key=lambda i: len(self._write_prompt(exchanges[i:], text)) <= enough)
        ]
        return self._write_prompt(exchanges[first:], text), first

    def _refuse(self, text: str, whole: int) -> None:
        own = len(self.model.tokenizer.encode(text))
        context = self.model.config.context_length
        raise TokenError(
            f"this message has {pluralize(own, 'token')}, and {max(self.room - (whole - own), 0):,} fit: the "
            f"context of {context:,} tokens also holds {whole - own:,} of the system message and template, "
            f"and room for an answer of {context - self.room:,}. Shorten it, or set max_new_tokens lower."
        )

    def _write_prompt(self, exchanges: Sequence[Exchange], text: str) -> list[int]:
        messages = [*write_messages(self.system, exchanges), {"role": "user", "content": text}]
        return self._chat.prompt(messages)

    def _keep(self, answer: "ChatAnswer") -> None:
        """Puts a finished answer into the conversation, after the exchanges that it was asked after."""
        self.exchanges[answer.place :] = [Exchange(answer.question, answer.text)]
        self.last = answer

    @property
    def engine(self) -> "Engine":
        """The engine, which keeps what it has read from one answer to the next."""
        slots = self.sampling.beams
        if self._engine is None or self._slots < slots:
            from pellucid.generation.decoders import make_decoder
            from pellucid.generation.scheduler import Engine

            if self._engine is not None:
                self._engine.stop()
            options = read_engine_options(self.model, {} if self._cache is None else {"cache": self._cache})
            self._engine = Engine(
                make_decoder(self.model),
                self.model.tokenizer,
                stop_ids=self.model.eos_ids,
                slots=slots,
                **options,
            )
            self._engine.start()  # a thread of its own, so that Ctrl-C is never in the middle of a step
            self._slots = slots
        return self._engine

    def why(self) -> Ledger:
        """Returns the ledger of the last answer: how each of its tokens was chosen."""
        if self.last is None or self.last.completion is None:
            raise UsageError("there is no answer in this conversation yet whose ledger could be shown.")
        return make_ledger(self.model, self.last.request, [self.last.completion], cache_dtype=self._cache)

    def explain(
        self,
        number: int,
        at: str | None = None,
        depth: int = 3,
        say: Callable[[str], None] = lambda text: None,
    ) -> TokenNumber:
        """Returns where the probability of a token of the last answer came from, by its number from 1, or
        another number behind it, `at`: the specification computes it again, through the samplers and into
        the model. `say` is called before what takes time."""
        return explain_token(self.why(), number, at, model=self.model, depth=depth, say=say)

    # ---- files

    def save(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Writes the conversation as a new file; `force` replaces an older conversation."""
        saved = SavedConversation(self.model.short_name, self.system, self.sampling, self.exchanges)
        write_conversation(Path(check_path("path", path)), saved, force)

    def load(self, path: str | os.PathLike[str]) -> SavedConversation:
        """Replaces this conversation by that of a file, with its settings, and returns what the file says."""
        saved = read_conversation(Path(check_path("path", path)))
        before = self.sampling, self.system
        try:
            self.replace_sampling(saved.sampling)
            self.system = saved.system
        except BaseException:
            self.sampling, self._system = before
            raise
        self.reset()
        self.exchanges = list(saved.exchanges)
        return saved


class ChatAnswer:
    """An answer as it comes: iterate over it to get its text, piece by piece. `stop` ends it early."""

    def __init__(
        self,
        conversation: Conversation,
        question: str,
        place: int,
        request: Request,
        handle: "Handle",
        dropped: tuple[int, int],
        started: float,
    ) -> None:
        self.question, self.place, self.request = question, place, request
        self.dropped, self.left_out = dropped
        """Exchanges that were dropped from the context for this answer, and all that it does not see."""
        self.text = ""
        self.completion: Completion | None = None
        self._conversation, self._handle = conversation, handle
        self._started, self._times = started, list[float]()
        self._pieces = self._stream()

    def __iter__(self) -> Iterator[str]:
        return self._pieces

    def _stream(self) -> Iterator[str]:
        for token in self._handle:
            self._times.append(time.perf_counter())
            if piece := self._trim(token):
                self.text += piece
                yield piece
        self._finish()

    def _trim(self, token: Token) -> str:
        """Returns the text of a token; plain text has a space between a speaker and what is said."""
        is_first = not self.text and not self._conversation.has_template
        return token.text.lstrip() if is_first else token.text

    def stop(self) -> None:
        """Ends the answer; what has come of it is kept."""
        if self.completion is None:
            self._handle.cancel()
            self._finish()

    @property
    def has_failed(self) -> bool:
        """Returns whether an error ended it, which whoever reads it gets."""
        return self._handle.error is not None

    def _finish(self) -> None:
        (self.completion,) = self._handle.result()
        if self.text or self.completion.finish != "cancelled":
            self._conversation._keep(self)

    @property
    def seed(self) -> int:
        """The seed that repeats this answer."""
        return check_int("seed", self.request.sampling.seed)

    @property
    def finish(self) -> str:
        """Why it ended, one of `FINISH_REASONS`; "" while it goes on."""
        return "" if self.completion is None else self.completion.finish

    @property
    def n_tokens(self) -> int:
        """New tokens so far, a stop token included."""
        return len(self._times)

    @property
    def context_used(self) -> int:
        """Tokens of the prompt and the answer."""
        return len(self.request.prompt) + self.n_tokens

    @property
    def seconds_to_first(self) -> float | None:
        """Seconds from the question to the first token."""
        return self._times[0] - self._started if self._times else None

    @property
    def tokens_per_second(self) -> float | None:
        """The speed after the first token."""
        if self.n_tokens < 2 or self._times[-1] <= self._times[0]:
            return None
        return (self.n_tokens - 1) / (self._times[-1] - self._times[0])


def resolve_chat_sampling(
    model: Model, preset: str | None = None, given: Mapping[str, Any] | None = None
) -> ResolvedSampling:
    """Returns the settings of a conversation, and where each came from: what is given, then the preset, then
    the model's own. A model that says nothing about sampling gets the preset "balanced"."""
    own, asked = own_settings(model.pretrained), given or {}
    if preset is None and not read_generation(own) and asked.get("beams", 1) == 1:
        preset = DEFAULT_PRESET
    return resolve_sampling(own, preset, asked)
