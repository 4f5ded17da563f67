"""A model that is served: HTTP in a thread of the test's process, the engine in its real process."""

import asyncio
import contextlib
import dataclasses
import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from pellucid.config import preset
from pellucid.formats.resolve import open_model
from pellucid.generation.answers.lines import EngineOptions
from pellucid.model import Model
from pellucid.server.http.address import bind, get_port
from pellucid.server.http.app import make_ending_error
from pellucid.server.http.limits import LIMITS, Limits, make_serve_access
from pellucid.server.http.listen import DrainingServer
from pellucid.server.openai.serve import ServeApp, run_until_signal
from pellucid.server.openai.served_model import ServedModel
from pellucid.server.openai.worker.client import HANG_SECONDS, MODULE, EngineClient
from tests.evaluation.small_models import bpe
from tests.server import stand_in_engine
from tests.server.serving import KEY, Answer

STAND_IN = stand_in_engine.MODULE
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@dataclasses.dataclass
class Served:
    """A server that runs."""

    port: int
    key: str | None
    app: ServeApp
    engine: EngineClient
    loop: asyncio.AbstractEventLoop
    """Of the thread in which HTTP and the engine's client run."""

    @property
    def base_url(self) -> str:
        """What the openai package takes."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def headers(self) -> dict[str, str]:
        key = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        return {"Content-Type": "application/json", **key}

    def connect(self, seconds: float = 30) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Sends a request, with a body in JSON where one is given, and returns the whole answer."""
        data = None if body is None else json.dumps(body).encode()
        given = self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
        with contextlib.closing(self.connect()) as connection:
            connection.request(method, path, data, given)
            found = connection.getresponse()
            return Answer(found.status, dict(found.headers), found.read())

    def post(self, path: str, **body: Any) -> Any:
        """Returns the JSON of an answer, which must be one without error."""
        answer = self.ask("POST", path, body)
        assert answer.status == 200, answer.body
        return json.loads(answer.body)

    def stream(self, path: str, **body: Any) -> Iterator[Any]:
        """Yields the events of a streamed answer; `[DONE]` is yielded as it is."""
        with contextlib.closing(self.connect()) as connection:
            connection.request("POST", path, json.dumps({"stream": True, **body}), self.headers)
            found = connection.getresponse()
            assert found.status == 200, found.read()
            for line in found:
                if line.startswith(b"data: "):
                    text = line[6:].strip()
                    yield text.decode() if text == b"[DONE]" else json.loads(text)


@contextlib.contextmanager
def run_served(
    model: str | Path,
    *,
    key: str | None = KEY,
    name: str | None = None,
    limits: Limits = LIMITS,
    module: str = MODULE,
    hang_seconds: float = HANG_SECONDS,
    waits: bool = True,
    **options: Any,
) -> Iterator[Served]:
    """Serves a model on a free port until the block ends; `options` are those of `EngineOptions`.

    Without `waits` it does not wait until the model is loaded.
    """
    engine = EngineClient(EngineOptions(str(model), **options), module=module, hang_seconds=hang_seconds)
    pretrained, listening = open_model(model), bind(0)
    access = make_serve_access(get_port(listening), "127.0.0.1", key, limits=limits)
    app = ServeApp(ServedModel(name or pretrained.name, pretrained, engine), access)
    server = DrainingServer(app, 1, partial(engine.fail_all, make_ending_error), lambda text: None)
    loop = asyncio.new_event_loop()
    serving = run_until_signal(listening, server, app.served, engine, lambda ready: None)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(loop.run_until_complete, serving)
        try:
            while waits and engine.state == "loading" and not ended.done():
                time.sleep(0.01)
            if not ended.done():
                yield Served(access.port, key, app, engine, loop)
        finally:
            server.should_exit = True
            with contextlib.closing(loop):
                ended.result()


def save_model(folder: Path, vocab_size: int = 300, seed: int = 0, **sizes: Any) -> Path:
    """Writes a model with random weights, a byte-level BPE tokenizer and a chat template."""
    tokenizer = bpe(vocab_size)
    given: dict[str, Any] = {"context_length": 128, "n_layer": 2, "d_model": 16, "n_head": 2} | sizes
    derived = {"n_kv_head": 0, "d_head": 0, "d_ff": 0}
    config = dataclasses.replace(preset("tiny"), vocab_size=tokenizer.vocab_size, **(derived | given))
    model = Model.from_config(config, tokenizer=tokenizer, seed=seed)
    weights = {name: 8 * array if array.ndim > 1 else array for name, array in model.weights.items()}
    pretrained = dataclasses.replace(model.replace(weights=weights).pretrained, chat_template=TEMPLATE)
    Model(pretrained).save(folder)
    return folder


def save_small_model(folder: Path) -> Path:
    """Writes a model of 2.5 million parameters with a context of 512 tokens."""
    return save_model(folder, d_model=224, n_layer=4, n_head=4, context_length=512)
