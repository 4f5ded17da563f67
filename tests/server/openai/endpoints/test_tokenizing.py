"""Tokens over HTTP are those of the model's own tokenizer, in the form that other programs ask for."""

import json
from pathlib import Path
from typing import Any

import pytest

import pellucid
from pellucid.model import Model
from pellucid.server.openai.endpoints import tokenizing
from pellucid.server.openai.reading.prompts import MOST_TEXT_BYTES
from tests.server.served import Served

TALK = [{"role": "user", "content": "Who?"}]


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Model:
    return pellucid.load(tiny_model)


def refuse(served: Served, path: str, **body: Any) -> Any:
    answer = served.ask("POST", path, body)
    assert answer.status == 400, answer.body
    return json.loads(answer.body)["error"]


@pytest.mark.parametrize("text", ["Once upon a time", "", "½ père\n\n", "<end> <end>", "a" * 40_000])
def test_tokens_go_there_and_back(served: Served, model: Model, text: str) -> None:
    found = served.post("/tokenize", prompt=text, add_special_tokens=False)
    assert found["tokens"] == model.tokenizer.encode(text)
    assert (found["count"], found["max_model_len"]) == (len(found["tokens"]), model.config.context_length)
    assert served.post("/detokenize", tokens=found["tokens"]) == {"prompt": text}
    assert "token_strs" not in found


def test_a_long_list_is_written_in_parts(
    served: Served, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizing, "CHUNK", 3)
    found = served.post("/tokenize", prompt="Once upon a time", return_token_strs=True)
    ids = model.encode("Once upon a time")
    assert found["tokens"] == ids and found["token_strs"] == [model.token(id) for id in ids]


def test_a_text_that_is_a_special_token_is_that_token(served: Served, model: Model) -> None:
    """lm-eval asks so for the id of the end token, which it puts before a text without context."""
    info = json.loads(served.ask("GET", "/tokenizer_info").body)
    assert info["eos_token"] == model.tokenizer.special.eos == "<end>"
    found = served.post("/tokenize", prompt=info["eos_token"], add_special_tokens=False)
    assert found["tokens"] == model.eos_ids
    assert served.post("/tokenize", prompt="<end> ", add_special_tokens=False)["count"] > 2


def test_the_tokenizer_describes_itself(served: Served, model: Model) -> None:
    info = json.loads(served.ask("GET", "/tokenizer_info").body)
    special = model.tokenizer.special
    assert (info["bos_token"], info["pad_token"], info["unk_token"]) == (special.bos, special.pad, None)
    assert info["chat_template"] == model.pretrained.chat_template and info["vocab_size"] == 300
    assert info["model_max_length"] == model.config.context_length and info["add_bos_token"] is False


def test_a_conversation_is_tokenized_as_it_would_be_asked(served: Served, model: Model) -> None:
    ids, _ = model.chat_prompt(TALK)
    assert served.post("/tokenize", messages=TALK)["tokens"] == ids
    whole = served.post("/tokenize", messages=TALK, add_generation_prompt=False, add_special_tokens=False)
    assert whole["tokens"] == ids[: whole["count"]] and whole["count"] < len(ids)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": None}, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": TALK}, "messages"),
        ("/tokenize", {"messages": TALK, "add_special_tokens": True}, "add_special_tokens"),
        ("/tokenize", {"messages": TALK, "chat_template": "{{ 5 }}"}, "chat_template"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"prompt": "a" * (MOST_TEXT_BYTES + 1)}, "prompt"),
        ("/detokenize", {"tokens": [0, 300]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {}, "tokens"),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_what_cannot_be_tokenized_is_refused(served: Served, path: str, body: Any, param: str) -> None:
    assert refuse(served, path, **body)["param"] == param


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
def test_another_model_s_tokens_are_not_given(served: Served, path: str) -> None:
    body = {"prompt": "a"} if path == "/tokenize" else {"tokens": [1]}
    answer = served.ask("POST", path, {**body, "model": "other"})
    assert answer.status == 404 and json.loads(answer.body)["error"]["code"] == "model_not_found"
