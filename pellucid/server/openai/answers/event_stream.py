"""An answer that is sent while it is generated."""

import asyncio
import json
from collections.abc import Iterator
from json.encoder import encode_basestring_ascii
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pellucid.generation.answers.lines import End, Piece
from pellucid.generation.answers.logprobs import LogprobsTable
from pellucid.server.http.app import make_refusal
from pellucid.server.http.limits import RequestError
from pellucid.server.http.request import ClientDisconnected
from pellucid.server.openai.answers.choices import FINISH_REASONS, ChoiceTables
from pellucid.server.openai.answers.plan import AnswerPlan, make_usage
from pellucid.server.openai.answers.running import PlacedPieces, RunningAnswer
from pellucid.server.openai.metrics import AnswerMeter
from pellucid.server.openai.served_model import ServedModel

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),  # a proxy must not collect the events
]


class EventStream(Response):
    """The answer as events. The head of the response is sent with the first of them, so that a request that
    cannot be run still has an error status."""

    def __init__(self, served: ServedModel, plan: AnswerPlan, meter: AnswerMeter | None = None) -> None:
        super().__init__()
        self._served, self._plan, self._meter = served, plan, meter
        self._writer, self._tables = EventWriter(plan), ChoiceTables(served, plan)
        self._begun: set[int] = set()
        """The places of prompts of which an event was sent."""
        self._held: list[tuple[int, Piece]] = []
        """Last pieces, with the indices of their choices, that wait for a ledger."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_started = False
        try:
            requests = self._plan.make_requests()
            async with RunningAnswer(
                self._served.engine, requests, receive, self._meter, self._plan.sources
            ) as answer:
                found = await answer.read()
                await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
                is_started = True
                while found:
                    if self._plan.has_echo:
                        await self._send_prompts(answer, found, send)
                    if data := self._format(answer, found):
                        await send({"type": "http.response.body", "body": data, "more_body": True})
                    found = await answer.read()
                last = self._format_end(answer)
        except ClientDisconnected:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if not is_started:
                raise
            last = format_error(_describe(error))
        await send({"type": "http.response.body", "body": last})

    def _format(self, answer: RunningAnswer, found: PlacedPieces) -> bytes:
        """Returns the events of new pieces."""
        events, writer, n, begun = list[bytes](), self._writer, self._plan.n, self._begun
        for place, pieces in found:
            if place not in begun:
                begun.add(place)
                events += writer.first[place * n : (place + 1) * n]
            for piece in pieces:
                index = place * n + piece.choice
                if piece.finish is not None:
                    events += self._finish(answer, index, piece)
                elif piece.tokens:
                    logprobs = self._tables.make_logprobs(index, piece.tokens)
                    more = self._tables.make_more(index, piece.tokens)
                    events.append(writer.format_choice(index, piece.text, logprobs, more=more))
                elif piece.text:
                    events.append(writer.format_text(index, piece.text))
        return b"".join(events)

    async def _send_prompts(self, answer: RunningAnswer, found: PlacedPieces, send: Send) -> None:
        """Sends the prompts of which these are the first pieces, once for each choice; the numbers of a long
        one in several events."""
        plan, tables = self._plan, self._tables
        for place in dict.fromkeys(place for place, _ in found if place not in self._begun):
            tokens, has_numbers = answer.running[place].prompt, plan.top_logprobs is not None
            for index in range(place * plan.n, (place + 1) * plan.n):
                text = plan.prompts[place].text
                for logprobs in tables.list_prompt_logprobs(place, tokens) if has_numbers else (None,):
                    data = self._writer.format_choice(index, text, logprobs)
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                    await asyncio.sleep(0)  # others have their turn
                    text = ""

    def _finish(self, answer: RunningAnswer, index: int, piece: Piece) -> Iterator[bytes]:
        """Yields the last event of a choice, unless it waits for the ledger, or the engine failed."""
        if piece.finish not in FINISH_REASONS:
            return
        end = answer.running[index // self._plan.n].end
        if self._plan.has_ledger and end is None:
            self._held.append((index, piece))
        else:
            yield self._format_last(index, piece, end)

    def _format_last(self, index: int, piece: Piece, end: End | None) -> bytes:
        tokens = piece.tokens or ()
        logprobs = self._tables.make_logprobs(index, tokens)
        last = self._tables.make_last(index, tokens, end)
        return self._writer.format_choice(index, piece.text, logprobs, piece.finish, last)

    def _format_end(self, answer: RunningAnswer) -> bytes:
        """Returns what ends the stream."""
        running, n = answer.running, self._plan.n
        events = [self._format_last(index, piece, running[index // n].end) for index, piece in self._held]
        self._tables.check_finished()
        if self._plan.has_usage:
            events.append(self._writer.format_usage(answer.prompt_tokens, answer.completion_tokens))
        return b"".join((*events, DONE))


def _describe(error: BaseException) -> bytes:
    """Returns the body of an error's own answer."""
    if isinstance(error, asyncio.CancelledError):  # the time in which a last answer may be given is over
        error = RequestError("the server is ending.", 503)
    assert isinstance(error, Exception)
    return bytes(make_refusal(error).body)


DONE = b"data: [DONE]\n\n"


class EventWriter:
    """The events of one answer."""

    def __init__(self, plan: AnswerPlan) -> None:
        form = plan.form
        self._head = b"data: " + _encode(plan.make_head(form.event_object))[:-1]
        self._after = form.after_text
        self._end = b'}],"usage":null}\n\n' if plan.has_usage else b"}]}\n\n"
        starts = [self._head + b',"choices":[{"index":%d,' % i for i in range(len(plan.prompts) * plan.n)]
        self._befores = [start + form.before_text for start in starts]
        plain = b',"logprobs":null,"finish_reason":null' + self._end
        self._plain_end = form.after_text + plain
        self.first = [start + form.first_content + plain for start in starts] if form.first_content else []
        """The first event of each choice, where the form has one."""

    def format_text(self, index: int, text: str) -> bytes:
        """Returns the event of a text without numbers, in the middle of a choice."""
        return self._befores[index] + encode_basestring_ascii(text).encode() + self._plain_end

    def format_choice(
        self,
        index: int,
        text: str,
        logprobs: LogprobsTable | None,
        finish: str | None = None,
        more: dict[str, Any] | None = None,
    ) -> bytes:
        """Returns the event of a text with its numbers, or of the last text of a choice."""
        fields = _encode({"logprobs": logprobs, "finish_reason": finish, **(more or {})})[1:-1]
        text_bytes = encode_basestring_ascii(text).encode()
        return b"".join((self._befores[index], text_bytes, self._after, b",", fields, self._end))

    def format_usage(self, prompt_tokens: int, completion_tokens: int) -> bytes:
        """Returns the event of the usage, which has no choice."""
        usage = _encode(make_usage(prompt_tokens, completion_tokens))
        return self._head + b',"choices":[],"usage":' + usage + b"}\n\n"


def format_error(body: bytes) -> bytes:
    """Returns the event of an error, after which nothing comes; `body` is that of an answer with the error.

    >>> format_error(b'{"error": {"message": "it failed."}}')
    b'data: {"error": {"message": "it failed."}}\\n\\n'
    """
    return b"data: " + body + b"\n\n"


def _encode(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
