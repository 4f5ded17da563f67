"""What is streamed, put together, is the whole answer; a failure in the middle is an event."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.generation.answers.lines import End, GenerateRequest, Piece, ScoredToken
from pellucid.server.http.limits import RequestError
from pellucid.server.http.request import ClientDisconnected
from pellucid.server.openai.answers import choices
from pellucid.server.openai.answers.event_stream import EventStream
from pellucid.server.openai.answers.plan import AnswerPlan, PlannedPrompt
from pellucid.server.openai.endpoints.completions import COMPLETION_FORM
from pellucid.server.openai.served_model import ServedModel
from tests.server.scripted_engine import Called, Reply, Script, ScriptedEngine, get_pretrained, say

PATH = "/v1/completions"


def stream(script: Script, **body: Any) -> Reply:
    return Called(ScriptedEngine(lambda request: script)).ask(
        PATH, **({"prompt": "a", "stream": True} | body)
    )


def join(events: list[Any]) -> list[dict[str, Any]]:
    """Returns the choices of a whole answer from those of its events."""
    found: dict[int, dict[str, Any]] = {}
    for event in events:
        for part in event["choices"]:
            choice = found.setdefault(part["index"], {"index": part["index"], "text": "", "logprobs": None})
            choice["text"] += part["text"]
            choice["finish_reason"] = part["finish_reason"]
            choice |= {key: part[key] for key in ("seed", "ledger") if key in part}
            for key in ("logprobs", "explain"):
                if part.get(key) is not None:
                    choice[key] = join_lists(choice.get(key) or {}, part[key])
    return [found[index] for index in sorted(found)]


def join_lists(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    return first | {
        key: first.get(key, []) + value if isinstance(value, list) else value for key, value in second.items()
    }


@pytest.fixture(scope="module", autouse=True)
def _list_two_tokens_at_a_time() -> Iterator[None]:
    """Makes the numbers of a few tokens as many parts as those of a long text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choices, "MOST_LISTED", 2)
        yield


NUMBER = st.floats(-20, 0)
TOP = st.lists(st.tuples(st.integers(0, 299), NUMBER), max_size=3).map(tuple)
TOKEN = st.builds(
    ScoredToken, st.integers(0, 299), st.integers(0, 9), NUMBER, TOP, NUMBER, st.integers(0, 9), NUMBER
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


@st.composite
def write_scripts(draw: st.DrawFn, n: int, has_tokens: bool) -> Script:
    """Pieces of n choices in any order, in steps of any size."""
    tokens = st.lists(TOKEN, max_size=3).map(tuple) if has_tokens else st.none()
    pieces = []
    for choice in range(n):
        count = draw(st.integers(1, 3))
        for i in range(count):
            finish = draw(st.sampled_from(["stop", "length"])) if i == count - 1 else None
            pieces.append(Piece(0, choice, draw(TEXT), draw(st.integers(0, 3)), draw(tokens), finish))
    order = draw(st.permutations([piece.choice for piece in pieces]))
    waiting = {choice: [piece for piece in pieces if piece.choice == choice] for choice in range(n)}
    mixed, steps = [waiting[choice].pop(0) for choice in order], list[list[Piece]]()
    while mixed:
        count = draw(st.integers(1, 3))
        steps.append(mixed[:count])
        mixed = mixed[count:]
    ledger = {"seed": 7}
    return Script(steps, tuple(draw(st.lists(TOKEN, max_size=5))), End(0, 7, ledger=ledger))


@settings(max_examples=40, deadline=None)
@given(
    data=st.data(),
    n=st.integers(1, 3),
    prompts=st.integers(1, 3),
    has_tokens=st.booleans(),
    echo=st.booleans(),
    ledger=st.booleans(),
    explain=st.booleans(),
    usage=st.booleans(),
)
def test_the_events_together_are_the_whole_answer(
    data: st.DataObject,
    n: int,
    prompts: int,
    has_tokens: bool,
    echo: bool,
    ledger: bool,
    explain: bool,
    usage: bool,
) -> None:
    scripts = [data.draw(write_scripts(n, has_tokens)) for _ in range(prompts)]

    def write(request: GenerateRequest) -> Script:
        return scripts[request.prompt[0]]

    body: dict[str, Any] = {"prompt": [[i] for i in range(prompts)], "n": n, "seed": 7, "echo": echo}
    body |= {"ledger": ledger, "explain": explain and has_tokens, "logprobs": 2 if has_tokens else None}
    options = {"stream_options": {"include_usage": True}} if usage else {}
    whole = Called(ScriptedEngine(write)).ask(PATH, **body).json
    reply = Called(ScriptedEngine(write)).ask(PATH, **body, stream=True, **options)
    *events, done = reply.events
    assert done == "[DONE]"
    if usage:
        last = events.pop()
        assert last["choices"] == [] and last["usage"] == whole["usage"]
        assert all(event["usage"] is None for event in events)
    else:
        assert not any("usage" in event for event in events)
    joined = join(events)
    for choice in (*joined, *whole["choices"]):
        if "explain" in choice:
            assert choice["explain"].pop("trace").startswith("tr_")
    assert joined == whole["choices"]
    assert all(event["seed"] == 7 and event["created"] for event in events)


def test_the_pieces_of_one_step_are_sent_at_once() -> None:
    reply = stream(Script([[Piece(0, 0, "a", 1), Piece(0, 0, "b", 1)], [Piece(0, 0, "c", 1, None, "stop")]]))
    assert len(reply.bodies) == 3 and reply.bodies[0].count(b"data: ") == 2


def test_a_piece_without_text_makes_no_event() -> None:
    reply = stream(Script([[Piece(0, 0, "", 1)], [Piece(0, 0, "b", 2, None, "stop")]]))
    assert len(reply.events) == 2


@pytest.mark.parametrize("error", [RequestError("the engine ended.", 503), ZeroDivisionError("secret")])
def test_a_failure_in_the_middle_is_the_last_event(error: Any) -> None:
    reply = stream(Script(say("a", "b", finish=""), error=error))
    *events, last = reply.events
    assert reply.status == 200 and len(events) == 1 and "[DONE]" not in reply.events
    assert set(last["error"]) == {"message", "type", "param", "code"} and "secret" not in json.dumps(last)
    assert last["error"]["type"] == "server_error"


def test_a_choice_that_the_engine_ended_has_no_finish_reason() -> None:
    *events, last = stream(Script(say("a", "b", finish="cancelled"))).events
    assert "error" in last and all(event["choices"][0]["finish_reason"] is None for event in events)


@pytest.mark.parametrize("prompts", [1, 2])
def test_every_request_is_cancelled_when_the_client_leaves(prompts: int) -> None:
    script = Script([[Piece(0, 0, "a", 1)]] * 1000, end=None)
    called = Called(engine := ScriptedEngine(lambda request: script))
    reply = called.ask(PATH, leaves_after=2, prompt=["a"] * prompts, stream=True)
    assert all(request.is_cancelled.is_set() for request in engine.running) and len(reply.bodies) <= 4
    assert b"pellucid_cancellations_total 1.0" in called.served.metrics.write(engine.load)


def test_the_head_waits_for_the_first_piece() -> None:
    reply = stream(Script(error=RequestError("the queue is full.", 429, Retry_After="1")))
    assert reply.status == 429 and reply.headers["retry-after"] == "1"


def test_a_trace_is_of_all_tokens_that_were_sent() -> None:
    steps = [[Piece(0, 0, "a", 1, (ScoredToken(4, 0), ScoredToken(5, 0)))]]
    steps += [[Piece(0, 0, "b", 1, (ScoredToken(6, 1),), "stop")]]
    called = Called(ScriptedEngine(lambda request: Script(steps)))
    events = called.ask(PATH, prompt=[9], stream=True, explain=True).events
    explained = [event["choices"][0]["explain"] for event in events[:-1]]
    assert "trace" not in explained[0]
    assert called.served.answers.get(explained[1]["trace"]).new.tolist() == [4, 5, 6]


def test_requests_are_cancelled_while_a_client_that_does_not_read_holds_up_the_answer() -> None:
    engine = ScriptedEngine(lambda request: Script([[Piece(0, 0, "a", 1)]] * 10, end=None))
    is_cut = asyncio.Event()

    async def receive() -> Any:
        await is_cut.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            is_cut.set()  # as the protocol's clock does
            await asyncio.wait_for(engine.running[0].is_cancelled.wait(), 5)

    async def run() -> None:
        served = ServedModel("model", get_pretrained(), engine)
        plan = AnswerPlan(COMPLETION_FORM, "model", (PlannedPrompt((1,), 7),), {})
        with pytest.raises(ClientDisconnected):
            await EventStream(served, plan)({}, receive, send)

    asyncio.run(run())
