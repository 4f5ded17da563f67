"""What `/health` and `/metrics` answer in every state, and who may ask."""

import asyncio
import json
from typing import cast

import pytest

from pellucid.formats.resolve import open_model
from pellucid.server.http.limits import Access
from pellucid.server.openai.serve import ServeApp
from pellucid.server.openai.served_model import ServedModel
from pellucid.server.openai.worker.client import EngineClient, EngineState
from tests.server.scripted_engine import Script, ScriptedEngine, call_app
from tests.server.served import Served

KEY = "k" * 32


def make_app(state: EngineState = "ready") -> ServeApp:
    engine = ScriptedEngine(lambda request: Script())
    engine.state = state
    served = ServedModel("model", open_model("abcd"), cast(EngineClient, engine))
    return ServeApp(served, Access(80, KEY))


def ask(app: ServeApp, path: str, key: str | None = None, method: str = "GET") -> tuple[int, bytes]:
    """Returns the status and the body of an answer."""
    reply = asyncio.run(call_app(app, method, path, key=key))
    return reply.status, b"".join(reply.bodies)


@pytest.mark.parametrize(("state", "status"), [("ready", 200), ("loading", 503), ("unhealthy", 503)])
def test_health_says_the_state_of_the_engine_without_a_key(state: EngineState, status: int) -> None:
    found, body = ask(make_app(state), "/health")
    assert (found, json.loads(body)) == (status, {"status": state})


def test_a_server_that_ends_is_not_healthy() -> None:
    app = make_app("ready")
    app.is_ending = True
    found, body = ask(app, "/health")
    assert (found, json.loads(body)) == (503, {"status": "ending"})


def test_metrics_ask_for_the_key_and_count_every_request() -> None:
    app = make_app()
    assert ask(app, "/metrics")[0] == 401
    assert ask(app, "/nowhere/" + "x" * 50)[0] == 404
    assert ask(app, "/health", method="POST")[0] == 405
    status, body = ask(app, "/metrics", KEY)
    assert status == 200
    assert b'pellucid_requests_total{endpoint="/metrics",status="4xx"} 1.0' in body
    assert b'pellucid_requests_total{endpoint="other",status="4xx"} 1.0' in body
    assert b'pellucid_requests_total{endpoint="/health",status="4xx"} 1.0' in body
    assert b"xxx" not in body


def read_metrics(served: Served) -> dict[str, float]:
    """Returns every number of `/metrics` by its name and labels."""
    lines = served.ask("GET", "/metrics").body.decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_the_tokens_of_whole_and_streamed_answers_and_of_embeddings_are_counted(served: Served) -> None:
    before, body = read_metrics(served), {"prompt": "the cat", "stop_ids": []}
    whole = served.post("/v1/completions", max_tokens=5, **body)["usage"]
    assert [*served.stream("/v1/completions", max_tokens=3, **body)][-1] == "[DONE]"
    embedded = served.post("/v1/embeddings", input="the cat sat")["usage"]
    after = read_metrics(served)
    expected = {
        "pellucid_prompt_tokens_total": 2 * whole["prompt_tokens"] + embedded["prompt_tokens"],
        "pellucid_completion_tokens_total": 8,
        "pellucid_time_to_first_token_seconds_count": 2,
        "pellucid_time_per_token_seconds_count": 2,
        "pellucid_cancellations_total": 0,
        "pellucid_errors_total": 0,
        'pellucid_requests_total{endpoint="/v1/completions",status="2xx"}': 2,
    }
    assert {name: after[name] - before.get(name, 0) for name in expected} == expected
    assert after["pellucid_slots"] == served.engine.load.slots
