"""The events of a streamed answer, as server-sent events have them: `data: {…}` and an empty line each.

The bytes that all events of a choice share are made once, so that a token without numbers costs one JSON
encoding of its text and two concatenations. Everything is ASCII: no client takes a character of a text, such
as U+2028, for the end of a line.
"""

import json
from json.encoder import encode_basestring_ascii
from typing import Any

from pellucid.generation.answers.logprobs import LogprobsTable
from pellucid.server.openai.answers.plan import AnswerPlan, make_usage

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
