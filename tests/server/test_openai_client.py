"""The `openai` package works unchanged: `OpenAI(base_url="http://127.0.0.1:PORT/v1", api_key=…)`."""

import asyncio
import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

import pellucid
from pellucid import Model
from tests.server.served import STAND_IN, Served, run_served

TEXT = "the cat sat on"
SAID: list[Any] = [{"role": "user", "content": "who are you"}]


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=served.base_url, api_key=served.key, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Model:
    return pellucid.load(tiny_model)


def complete(client: OpenAI, prompt: Any = TEXT, **settings: Any) -> Any:
    return client.completions.create(model="tiny", prompt=prompt, **settings)


def chat(client: OpenAI, messages: Any = None, **settings: Any) -> Any:
    return client.chat.completions.create(model="tiny", messages=messages or SAID, **settings)


def join(stream: Any, choice: int = 0) -> str:
    """Returns the text of one choice of a stream of completions."""
    return "".join(one.text for event in stream for one in event.choices if one.index == choice)


def join_chat(stream: Any, choice: int = 0) -> str:
    return "".join(
        one.delta.content or "" for event in stream for one in event.choices if one.index == choice
    )


# ---- whole completions


def test_greedy_text_is_that_of_generate(client: OpenAI, model: Model) -> None:
    expected = model.generate(TEXT, max_new_tokens=12, temperature=0)
    assert complete(client, max_tokens=12, temperature=0).choices[0].text == expected


def test_sampled_text_is_that_of_generate_with_the_same_seed(client: OpenAI, model: Model) -> None:
    expected = model.generate(TEXT, max_new_tokens=12, temperature=0.9, seed=5, top_p=0.9)
    found = complete(client, max_tokens=12, temperature=0.9, seed=5, top_p=0.9)
    assert found.choices[0].text == expected


def test_a_list_of_texts_gives_a_choice_each_in_order(client: OpenAI) -> None:
    texts = [TEXT, "a dog", "on the mat"]
    alone = [complete(client, text, max_tokens=6, temperature=0).choices[0].text for text in texts]
    assert [one.text for one in complete(client, texts, max_tokens=6, temperature=0).choices] == alone


def test_lists_of_token_ids_are_prompts(client: OpenAI, model: Model) -> None:
    ids = [model.encode(TEXT), model.encode("a dog")]
    found = complete(client, ids, max_tokens=6, temperature=0)
    assert [one.text for one in found.choices] == model.generate(
        [TEXT, "a dog"], max_new_tokens=6, temperature=0
    )


def test_n_gives_different_choices(client: OpenAI) -> None:
    done = complete(client, n=4, max_tokens=12, temperature=1, seed=1)
    assert [one.index for one in done.choices] == [0, 1, 2, 3]
    assert len({one.text for one in done.choices}) == 4


def test_without_a_seed_two_answers_differ_and_each_names_its_own(client: OpenAI) -> None:
    one, other = (complete(client, max_tokens=16, temperature=1).choices[0] for _ in range(2))
    assert one.text != other.text
    again = complete(client, max_tokens=16, temperature=1, seed=one.seed)
    assert again.choices[0].text == one.text


@pytest.mark.parametrize("start", range(1, 8))
def test_a_stop_text_may_begin_inside_any_token(client: OpenAI, start: int) -> None:
    whole = complete(client, max_tokens=24, temperature=0).choices[0].text
    stop = whole[start : start + 5]
    done = complete(client, max_tokens=24, temperature=0, stop=[stop, "never"]).choices[0]
    assert (done.text, done.finish_reason) == (whole[: whole.index(stop)], "stop")


def test_logit_bias_chooses_the_token(client: OpenAI, model: Model) -> None:
    (id,) = model.tokenizer.encode("a")
    done = complete(client, max_tokens=3, temperature=0, logit_bias={str(id): 100})
    assert done.choices[0].text == "aaa"


def test_settings_beyond_openais_go_in_extra_body(client: OpenAI) -> None:
    greedy = complete(client, max_tokens=8, temperature=0).choices[0].text
    one = complete(client, max_tokens=8, temperature=1, extra_body={"top_k": 1})
    assert one.choices[0].text == greedy


# ---- streams


@pytest.mark.parametrize("settings", [{}, {"stop": " "}, {"echo": True}, {"n": 2}])
def test_a_stream_joined_is_the_whole_text(client: OpenAI, settings: dict[str, Any]) -> None:
    given = {"max_tokens": 20, "temperature": 1, "seed": 6, **settings}
    whole = complete(client, **given).choices
    events = list(complete(client, stream=True, **given))
    for one in whole:
        assert join(events, one.index) == one.text
        ends = [part.finish_reason for event in events for part in event.choices if part.index == one.index]
        assert ends[-1] == one.finish_reason and not any(ends[:-1])


def test_a_stream_ends_with_its_usage_where_asked(client: OpenAI) -> None:
    given: dict[str, Any] = {"max_tokens": 7, "temperature": 0}
    events = list(complete(client, stream=True, stream_options={"include_usage": True}, **given))
    assert events[-1].choices == [] and events[-1].usage == complete(client, **given).usage
    assert all(event.usage is None for event in events[:-1])


def test_streamed_log_probabilities_are_those_of_the_whole(client: OpenAI) -> None:
    given = {"max_tokens": 16, "temperature": 1, "seed": 8, "logprobs": 3, "echo": True}
    whole = complete(client, **given).choices[0].logprobs
    parts = [event.choices[0].logprobs for event in complete(client, stream=True, **given) if event.choices]
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        joined = [item for part in parts if part for item in getattr(part, name)]
        assert joined == getattr(whole, name), name


def test_many_streams_at_once_are_each_as_alone(client: OpenAI, served: Served) -> None:
    given = {"max_tokens": 20, "temperature": 1}
    alone = [complete(client, seed=seed, **given).choices[0].text for seed in range(24)]

    async def run() -> list[str]:
        async with AsyncOpenAI(base_url=served.base_url, api_key=served.key) as many:

            async def read(seed: int) -> str:
                events: Any = await many.completions.create(
                    model="tiny", prompt=TEXT, stream=True, seed=seed, **given
                )
                return "".join([event.choices[0].text async for event in events])

            return await asyncio.gather(*map(read, range(24)))

    assert asyncio.run(run()) == alone


# ---- conversations


def test_an_answer_is_that_of_chat(client: OpenAI, model: Model) -> None:
    done = chat(client, max_tokens=12, temperature=0)
    assert done.choices[0].message.role == "assistant"
    assert done.choices[0].message.content == model.chat("who are you", max_new_tokens=12, temperature=0)
    assert done.object == "chat.completion" and done.id.startswith("chatcmpl-")


def test_a_streamed_answer_joined_is_the_whole_answer(client: OpenAI) -> None:
    given = {"max_completion_tokens": 16, "temperature": 1, "seed": 3}
    events = list(chat(client, stream=True, stream_options={"include_usage": True}, **given))
    whole = chat(client, **given)
    assert join_chat(events) == whole.choices[0].message.content
    assert events[0].choices[0].delta.role == "assistant" and events[-1].usage == whole.usage


def test_an_answer_has_log_probabilities_with_bytes(client: OpenAI) -> None:
    done = chat(client, max_tokens=6, temperature=1, seed=1, logprobs=True, top_logprobs=3)
    content = done.choices[0].logprobs.content
    assert all(len(token.top_logprobs) == 3 for token in content)
    assert all(bytes(token.bytes).decode("utf-8", "replace") for token in content if token.bytes)


def test_a_message_that_the_package_returned_may_be_sent_back(client: OpenAI) -> None:
    said = chat(client, max_tokens=8).choices[0].message
    history = [{"role": "system", "content": "be brief"}, *SAID, said, {"role": "user", "content": "more"}]
    assert chat(client, history, max_tokens=4).usage.prompt_tokens > 20


# ---- errors


@pytest.mark.parametrize(
    ("settings", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 10_000}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"logprobs": 21}, "logprobs"),
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"logit_bias": {"999999": 1}}, "logit_bias"),
        ({"extra_body": {"temprature": 1}}, "temprature"),
    ],
)
def test_a_wrong_field_is_named(client: OpenAI, settings: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        complete(client, **settings)
    assert refusal.value.param == param and refusal.value.type == "invalid_request_error"


def test_another_model_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refusal:
        client.completions.create(model="gpt-4", prompt=TEXT)
    assert refusal.value.code == "model_not_found"


def test_a_wrong_key_is_an_authentication_error(served: Served) -> None:
    with (
        OpenAI(base_url=served.base_url, api_key="wrong" * 8, max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


def test_the_package_tries_again_when_the_queue_is_full(tmp_path: Path, tiny_model: Path) -> None:
    slow = shutil.copytree(tiny_model, tmp_path / "slow")
    with (
        run_served(slow, module=STAND_IN, name="tiny", slots=1, queue=0) as small,
        OpenAI(base_url=small.base_url, api_key=small.key, max_retries=0) as impatient,
    ):
        with contextlib.closing(complete(impatient, stream=True, max_tokens=100)) as events:
            next(iter(events))
            with pytest.raises(openai.RateLimitError) as refusal:
                complete(impatient, max_tokens=1)
            assert float(refusal.value.response.headers["retry-after"]) > 0
        assert complete(impatient.with_options(max_retries=5), max_tokens=1).choices
