"""`/v1/chat/completions` asks by the model's own template, and answers in OpenAI's form."""

import dataclasses
from typing import Any

import pytest

from pellucid.generation.answers.lines import GenerateRequest, Piece, ScoredToken
from tests.evaluation.small_models import bpe
from tests.server.scripted_engine import Called, Reply, Script, ScriptedEngine, get_pretrained, say

PATH = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "who?"}]


def ask(script: Script | None = None, **body: Any) -> tuple[Reply, list[GenerateRequest]]:
    engine = ScriptedEngine(lambda request: script or Script(say(" cat", " sat")))
    return Called(engine).ask(PATH, **({"messages": MESSAGES} | body)), engine.asked


def test_a_whole_answer_has_openais_form() -> None:
    reply, asked = ask(seed=7, n=1, max_completion_tokens=5)
    found = reply.json
    assert found.pop("id").startswith("chatcmpl-") and found.pop("created")
    assert found.pop("system_fingerprint") and found.pop("usage")["completion_tokens"] == 2
    message = {"role": "assistant", "content": " cat sat", "refusal": None}
    assert found == {
        "object": "chat.completion",
        "model": "model",
        "seed": 7,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop", "seed": 7}],
    }
    tokenizer = bpe()
    assert tokenizer.decode(asked[0].prompt) == "user: who?<end>"
    assert asked[0].sampling == {"temperature": 1.0, "max_new_tokens": 5, "stop_ids": [0], "seed": 7}


def test_an_answer_may_fill_the_context() -> None:
    _, asked = ask()
    assert len(asked[0].prompt) + asked[0].sampling["max_new_tokens"] == 32


def test_given_stop_ids_replace_the_end_of_a_turn() -> None:
    assert ask(stop_ids=[9])[1][0].sampling["stop_ids"] == [9]


def test_log_probabilities_come_with_their_tokens() -> None:
    token = ScoredToken(5, 0, -0.5, ((5, -0.5), (6, -1.5)))
    script = Script([[Piece(0, 0, "$", 1, (token,), "stop")]])
    reply, asked = ask(script, logprobs=True, top_logprobs=2)
    content = reply.json["choices"][0]["logprobs"]["content"]
    assert content[0]["logprob"] == -0.5 and content[0]["top_logprobs"][1]["logprob"] == -1.5
    assert asked[0].top_logprobs == 2 and ask(script, logprobs=True)[1][0].top_logprobs == 0
    assert ask()[1][0].top_logprobs is None


def test_a_stream_begins_with_the_role_of_every_choice() -> None:
    steps = [[Piece(0, 1, "b", 1), Piece(0, 0, "a", 1)], [Piece(0, i, "", 1, None, "stop") for i in (0, 1)]]
    reply, _ = ask(Script(steps), stream=True, n=2)
    *events, done = reply.events
    assert done == "[DONE]" and {event["object"] for event in events} == {"chat.completion.chunk"}
    deltas = [(event["choices"][0]["index"], event["choices"][0]["delta"]) for event in events]
    first = {"role": "assistant", "content": ""}
    assert deltas[:2] == [(0, first), (1, first)]
    assert deltas[2:] == [
        (1, {"content": "b"}),
        (0, {"content": "a"}),
        (0, {"content": ""}),
        (1, {"content": ""}),
    ]
    assert [event["choices"][0]["finish_reason"] for event in events] == [None] * 4 + ["stop"] * 2


@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_that_does_not_fit_is_refused(stream: bool) -> None:
    for body, param in (
        ({"messages": [{"role": "user", "content": "a " * 60}]}, "messages"),
        ({"max_tokens": 31}, "max_tokens"),
        ({"max_completion_tokens": 31}, "max_completion_tokens"),
    ):
        reply, asked = ask(**body, stream=stream)
        assert reply.status == 400 and not asked
        assert reply.error["code"] == "context_length_exceeded" and reply.error["param"] == param


def test_a_model_without_a_template_says_so() -> None:
    engine = ScriptedEngine(lambda request: Script())
    pretrained = dataclasses.replace(get_pretrained(), chat_template=None)
    reply = Called(engine, pretrained).ask(PATH, messages=MESSAGES)
    assert reply.status == 400 and reply.error["param"] == "messages"
    assert "template" in reply.error["message"]
