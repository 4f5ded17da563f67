"""An engine that returns what a test wrote down, and an application that is called without a socket."""

import asyncio
import dataclasses
import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

from pellucid.formats.pretrained import Pretrained
from pellucid.formats.resolve import open_model
from pellucid.generation.answers.lines import End, GenerateRequest, Piece, ScoredToken
from pellucid.server.http.limits import Access, RequestError
from pellucid.server.openai.metrics import EngineLoad
from pellucid.server.openai.serve import ServeApp
from pellucid.server.openai.served_model import ServedModel
from pellucid.server.openai.worker.client import EngineClient, EngineState
from tests.evaluation.small_models import bpe

SLOTS = 4
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}<end>{% endfor %}"


@dataclasses.dataclass
class Script:
    """What happens to one request: the pieces of each step, and how it ends."""

    steps: Sequence[Sequence[Piece]] = ()
    prompt: tuple[ScoredToken, ...] = ()
    end: End | None = dataclasses.field(default_factory=lambda: End(0))
    """None: it goes on for ever."""
    error: RequestError | None = None
    """What it ends with after its steps."""


class ScriptedRequest:
    def __init__(self, script: Script) -> None:
        self._script, self._steps = script, list(script.steps)
        self.prompt: tuple[ScoredToken, ...] = ()
        self.end: End | None = None
        self.is_cancelled = asyncio.Event()

    async def read(self) -> list[Piece]:
        await asyncio.sleep(0)
        if self.is_cancelled.is_set():
            return []
        if self._steps:
            self.prompt = self._script.prompt
            pieces = list(self._steps.pop(0))
            if not self._steps and self._script.error is None:
                self.end = self._script.end  # as it is where the end came with the last piece
            return pieces
        if self._script.error is not None:
            raise self._script.error
        if self._script.end is None:
            await self.is_cancelled.wait()
        else:
            self.end = self._script.end
        return []

    def cancel(self) -> None:
        self.is_cancelled.set()


class ScriptedEngine:
    """Runs each request as a function of it says."""

    state: EngineState = "ready"
    load = EngineLoad(slots=SLOTS, most_requests=SLOTS + 256)

    def __init__(self, write: Callable[[GenerateRequest], Script]) -> None:
        self._write = write
        self.asked: list[GenerateRequest] = []
        self.running: list[ScriptedRequest] = []

    def generate(self, request: GenerateRequest) -> ScriptedRequest:
        self.asked.append(request)
        self.running.append(ScriptedRequest(self._write(request)))
        return self.running[-1]

    async def embed(self, prompt: tuple[int, ...]) -> list[float]:
        raise NotImplementedError


@dataclasses.dataclass
class Reply:
    """What an application sent; `bodies` has one entry for each call of `send`."""

    status: int = 0
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    bodies: list[bytes] = dataclasses.field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(b"".join(self.bodies))

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def events(self) -> list[Any]:
        """The events of a stream; `[DONE]` as it is."""
        assert self.headers["content-type"].startswith("text/event-stream")
        found = b"".join(self.bodies).split(b"\n\n")
        assert found.pop() == b"" and all(event.startswith(b"data: ") for event in found)
        return ["[DONE]" if event == b"data: [DONE]" else json.loads(event[6:]) for event in found]


@cache
def get_pretrained() -> Pretrained:
    """A model with a byte-level tokenizer of 300 tokens, a context of 32 and a chat template; no weight of it
    is ever read."""
    known, tokenizer = open_model("abcd"), bpe()
    config = dataclasses.replace(known.config, vocab_size=tokenizer.vocab_size, context_length=32)
    return dataclasses.replace(known, config=config, tokenizer=tokenizer, chat_template=TEMPLATE)


@dataclasses.dataclass
class Called:
    """An application, called as a server calls it."""

    engine: ScriptedEngine
    pretrained: Pretrained = dataclasses.field(default_factory=get_pretrained)

    def ask(self, path: str, leaves_after: int | None = None, **body: Any) -> Reply:
        """Returns the answer to a request; after `leaves_after` calls of `send` the client disconnects."""
        return asyncio.run(self.call(path, leaves_after, **body))

    async def call(self, path: str, leaves_after: int | None = None, **body: Any) -> Reply:
        self.served = ServedModel("model", self.pretrained, cast(EngineClient, self.engine))
        app = ServeApp(self.served, Access(80, None))
        reply = await call_app(app, "POST", path, json.dumps(body).encode(), leaves_after=leaves_after)
        await self.served.close()
        return reply


async def call_app(
    app: ServeApp,
    method: str,
    path: str,
    body: bytes = b"",
    key: str | None = None,
    leaves_after: int | None = None,
) -> Reply:
    """Returns what an application answers; after `leaves_after` calls of `send` the client disconnects."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    reply, has_left = Reply(), asyncio.Event()

    async def receive() -> Any:
        if messages:
            if leaves_after == 0:
                has_left.set()
            return messages.pop()
        await has_left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            reply.status = message["status"]
            reply.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            reply.bodies.append(message.get("body", b""))
        if len(reply.bodies) == leaves_after:
            has_left.set()

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    headers += [(b"authorization", f"Bearer {key}".encode())] if key else []
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
    }
    await app(scope, receive, send)
    return reply


def say(*texts: str, finish: str = "stop", choice: int = 0) -> list[list[Piece]]:
    """Returns one step for each text, without numbers."""
    last = len(texts) - 1
    return [[Piece(0, choice, text, 1, None, finish if i == last else None)] for i, text in enumerate(texts)]
