"""Chat front ends work unchanged: they list the models, take the first, and stream an answer."""

import json
from pathlib import Path
from typing import Any

import pytest

import pellucid
from tests.server.served import Served

SYSTEM = {"role": "system", "content": "Be kind."}
USER = {"role": "user", "content": "who are you"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "who are you"}]}
FRONT_ENDS: dict[str, dict[str, Any]] = {
    "open webui": {
        "messages": [SYSTEM, USER],
        "stream_options": {"include_usage": True},
        "temperature": 0.8,
        "top_p": 0.9,
        "metadata": {"chat_id": "a"},
    },
    "librechat": {
        "messages": [SYSTEM, PARTS],
        "user": "65f0c0ffee",
        "temperature": 1,
        "top_p": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "stop": [],
    },
    "llm": {"messages": [USER], "stream_options": {"include_usage": True}, "logit_bias": None},
    "continue": {
        "messages": [{**USER, "name": "me"}],
        "max_completion_tokens": 9,
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "store": False,
    },
}
"""What each sends beside the model, the seed and `stream`."""


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_a_front_end_lists_the_models_and_streams_an_answer(
    served: Served, tiny_model: Path, name: str
) -> None:
    sent = {"max_tokens": 12} | FRONT_ENDS[name]
    if "max_completion_tokens" in sent:
        del sent["max_tokens"]
    headers = {"Accept": "text/event-stream, application/json", "User-Agent": name, "X-Title": name}
    models = json.loads(served.ask("GET", "/v1/models", **headers).body)
    first, *events = served.stream("/v1/chat/completions", model=models["data"][0]["id"], seed=7, **sent)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events.pop() == "[DONE]"
    if "stream_options" in sent:
        last = events.pop()
        assert last["choices"] == [] and last["usage"]["completion_tokens"] <= 12
    said = [SYSTEM, USER] if SYSTEM in sent["messages"] else [USER]
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    count = sent.get("max_tokens", sent.get("max_completion_tokens"))
    assert text == pellucid.load(tiny_model).chat(
        said, count, sent.get("temperature", 1.0), 7, top_p=float(sent.get("top_p", 1.0))
    )
    assert events[-1]["choices"][0]["finish_reason"] in ("stop", "length")
