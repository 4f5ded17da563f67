"""`/v1/completions` of a real server: numbers of the model itself, aligned with the text."""

from pathlib import Path
from typing import Any

import pytest

import pellucid
from pellucid import Model
from tests.server.openai.answers.test_event_stream import join
from tests.server.served import Served

PATH = "/v1/completions"
PROMPTS = ["the cat sat on", "▖ é", "a", "0 1 2 3!?"]


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Model:
    return pellucid.load(tiny_model)


def ask(served: Served, **body: Any) -> dict[str, Any]:
    found: dict[str, Any] = served.post(PATH, **body)["choices"][0]
    return found


def stream(served: Served, **body: Any) -> dict[str, Any]:
    *events, done = served.stream(PATH, **body)
    assert done == "[DONE]"
    return join(events)[0]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_log_probabilities_of_prompt_and_text_are_those_of_score(
    served: Served, model: Model, prompt: str
) -> None:
    choice = ask(served, prompt=prompt, echo=True, logprobs=5, max_tokens=12, seed=3)
    logprobs = choice["logprobs"]
    new = logprobs["tokens"][len(model.encode(prompt)) :]
    assert 1 <= len(new) <= 12
    ids = model.encode(prompt) + find_ids(model, new)
    expected = model.score(ids).logprobs[1:]
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert logprobs["token_logprobs"][1:] == pytest.approx(expected, abs=1e-5)
    for token, number, top in zip(
        logprobs["tokens"][1:], logprobs["token_logprobs"][1:], logprobs["top_logprobs"][1:], strict=True
    ):
        assert top[token] == number and 5 <= len(top) <= 6
        assert sorted(top.values(), reverse=True)[:5] == list(top.values())[:5]


def find_ids(model: Model, texts: list[str]) -> list[int]:
    names = {name_token(model.tokenizer.bytes_of(id)): id for id in range(model.config.vocab_size)}
    return [names[text] for text in texts]


def name_token(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def to_bytes(token: str) -> bytes:
    if token.startswith("bytes:"):
        return bytes.fromhex(token.removeprefix("bytes:").replace("\\x", ""))
    return token.encode()


STOPS = [None, ["e"], ["the ca", "t"], ["\n", "an", " s"]]


def check_alignment(served: Served, stop: list[str] | None, seeds: range) -> None:
    """Checks answers whose stop texts lie across the borders of tokens, and many of whose tokens are parts
    of a character, so that text is held back together with its tokens."""
    ends = set()
    for seed in seeds:
        prompt, echo = PROMPTS[seed % 4], bool(seed % 2)
        body = {"prompt": prompt, "seed": seed, "temperature": 3, "logprobs": 1, "max_tokens": 24}
        body |= {"stop": stop, "echo": echo}
        whole = ask(served, **body)
        assert stream(served, **body) == whole
        text, logprobs = whole["text"], whole["logprobs"]
        assert not any(one in text[len(prompt) * echo :] for one in stop or ())
        ends.add(whole["finish_reason"])
        start = 0 if echo else len(prompt)
        tokens, offsets = logprobs["tokens"], logprobs["text_offset"]
        assert offsets == sorted(offsets) and all(start <= at <= start + len(text) for at in offsets)
        is_ended = tokens[-1:] == ["<end>"]
        spelled = b"".join(map(to_bytes, tokens[: len(tokens) - is_ended])).decode("utf-8", "replace")
        if whole["finish_reason"] == "length" or is_ended or stop is None:
            assert spelled == text
        else:  # the token in which a stop text begins is listed whole
            assert spelled.startswith(text)
        for before, token, at in zip(["", *tokens], tokens, offsets, strict=False):
            if "bytes:" not in before + token and token != "<end>":  # whole characters
                shown = text[at - start :][: len(token)]
                assert shown == token or (token.startswith(shown) and at - start + len(token) > len(text))
    assert stop is None or "stop" in ends


@pytest.mark.parametrize("stop", STOPS)
def test_streamed_or_not_tokens_and_offsets_go_with_the_text(served: Served, stop: Any) -> None:
    check_alignment(served, stop, range(4))


@pytest.mark.torture
@pytest.mark.parametrize("stop", STOPS)
def test_a_hundred_texts_go_with_their_tokens(served: Served, stop: Any) -> None:
    """It takes some seconds: each of the texts is generated twice."""
    check_alignment(served, stop, range(4, 104))


def test_ids_of_special_tokens_and_of_half_characters_stand_where_they_belong(
    served: Served, model: Model
) -> None:
    first, second, third = model.encode("▖")
    ids = [*model.encode("the"), 0, *model.encode(" cat"), first, second]
    choice = ask(served, prompt=ids, echo=True, logprobs=0, max_tokens=1, forced_tokens=[third])
    logprobs = choice["logprobs"]
    assert choice["text"] == "the<end> cat▖" and logprobs["tokens"][1] == "<end>"
    assert logprobs["text_offset"][:2] == [0, 3] and logprobs["text_offset"][-3:] == [12, 12, 12]
    cut = ask(served, prompt=ids, echo=True, logprobs=0, max_tokens=0)
    assert cut["text"] == "the<end> cat\ufffd" and len(cut["logprobs"]["tokens"]) == len(ids)


def test_numbers_of_every_prompt_of_a_list_are_its_own(served: Served) -> None:
    body = {"echo": True, "logprobs": 2, "max_tokens": 3, "seed": 5}
    together = served.post(PATH, prompt=PROMPTS, n=2, **body)["choices"]
    alone = [
        choice for prompt in PROMPTS for choice in served.post(PATH, prompt=prompt, n=2, **body)["choices"]
    ]
    assert [choice["index"] for choice in together] == list(range(8))
    assert [choice | {"index": 0} for choice in together] == [choice | {"index": 0} for choice in alone]
    *events, _ = served.stream(PATH, prompt=PROMPTS, n=2, **body)
    assert join(events) == together


def test_explain_agrees_with_log_probabilities(served: Served) -> None:
    choice = ask(served, prompt="the cat", explain=True, logprobs=20, max_tokens=6, seed=1)
    tokens = choice["explain"]["tokens"]
    assert [one["token"] for one in tokens] == choice["logprobs"]["tokens"]
    for one, logprob, top in zip(
        tokens, choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"], strict=True
    ):
        assert one["surprisal"] == pytest.approx(-logprob, abs=1e-5) and one["entropy"] >= 0
        assert one["rank"] >= sum(value > logprob for value in top.values())


def test_a_ledger_is_that_of_the_choices(served: Served) -> None:
    body = {"prompt": "the cat", "ledger": True, "max_tokens": 4, "n": 2, "seed": 9}
    first, second = served.post(PATH, **body)["choices"]
    assert "ledger" not in second and first["ledger"]["seed"] == 9
    assert [one["text"] for one in first["ledger"]["completions"]] == [first["text"], second["text"]]
    *events, _ = served.stream(PATH, **body)
    assert [choice.get("ledger") for choice in join(events)] == [first["ledger"], None]
