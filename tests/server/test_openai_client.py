"""The `openai` package works unchanged: `OpenAI(base_url="http://127.0.0.1:PORT/v1", api_key=…)`."""

import asyncio
import contextlib
from collections.abc import Iterator
from math import fsum
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

import pellucid
from pellucid import Model
from tests.server.served import Served, run_served

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


def test_a_completion_has_every_field_that_the_package_knows(client: OpenAI) -> None:
    done = complete(client, max_tokens=5)
    assert done.object == "text_completion" and done.model == "tiny" and done.id.startswith("cmpl-")
    assert [one.index for one in done.choices] == [0] and done.choices[0].finish_reason in ("stop", "length")
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens


def test_greedy_text_is_that_of_generate(client: OpenAI, model: Model) -> None:
    expected = model.generate(TEXT, max_new_tokens=12, temperature=0)
    assert complete(client, max_tokens=12, temperature=0).choices[0].text == expected


def test_sampled_text_is_that_of_generate_with_the_same_seed(client: OpenAI, model: Model) -> None:
    expected = model.generate(TEXT, max_new_tokens=12, temperature=0.9, seed=5, top_p=0.9)
    found = complete(client, max_tokens=12, temperature=0.9, seed=5, top_p=0.9)
    assert found.choices[0].text == expected


def test_max_tokens_is_16_by_default(client: OpenAI) -> None:
    done = complete(client, logit_bias={"0": -100}, extra_body={"min_new_tokens": 16})
    assert done.usage.completion_tokens == 16 and done.choices[0].finish_reason == "length"


def test_max_tokens_is_kept(client: OpenAI) -> None:
    done = complete(client, max_tokens=3, extra_body={"min_new_tokens": 3})
    assert done.usage.completion_tokens == 3 and done.choices[0].finish_reason == "length"


def test_a_list_of_texts_gives_a_choice_each_in_order(client: OpenAI) -> None:
    texts = [TEXT, "a dog", "on the mat"]
    alone = [complete(client, text, max_tokens=6, temperature=0).choices[0].text for text in texts]
    assert [one.text for one in complete(client, texts, max_tokens=6, temperature=0).choices] == alone


def test_token_ids_are_a_prompt(client: OpenAI, model: Model) -> None:
    ids = model.encode(TEXT)
    one, other = (complete(client, prompt, max_tokens=8, temperature=0) for prompt in (TEXT, ids))
    assert one.choices[0].text == other.choices[0].text
    assert one.usage.prompt_tokens == other.usage.prompt_tokens == len(ids)


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


def test_the_first_of_n_is_the_choice_of_one(client: OpenAI) -> None:
    one, many = (complete(client, n=n, max_tokens=12, temperature=1, seed=9) for n in (1, 3))
    assert one.choices[0].text == many.choices[0].text


def test_a_seed_gives_the_same_text_and_another_seed_another(client: OpenAI) -> None:
    texts = [complete(client, max_tokens=12, temperature=1, seed=seed).choices[0].text for seed in (3, 3, 4)]
    assert texts[0] == texts[1] != texts[2]


def test_without_a_seed_two_answers_differ_and_each_names_its_own(client: OpenAI) -> None:
    one, other = (complete(client, max_tokens=16, temperature=1).choices[0] for _ in range(2))
    assert one.text != other.text
    again = complete(client, max_tokens=16, temperature=1, seed=one.seed)
    assert again.choices[0].text == one.text


def test_the_text_ends_before_a_stop_text(client: OpenAI) -> None:
    whole = complete(client, max_tokens=24, temperature=0).choices[0].text
    done = complete(client, max_tokens=24, temperature=0, stop=whole[6:9])
    assert done.choices[0].text == whole[: whole.index(whole[6:9])]
    assert done.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("start", range(1, 8))
def test_a_stop_text_may_begin_inside_any_token(client: OpenAI, start: int) -> None:
    whole = complete(client, max_tokens=24, temperature=0).choices[0].text
    stop = whole[start : start + 5]
    assert (
        complete(client, max_tokens=24, temperature=0, stop=[stop, "never"]).choices[0].text
        == whole[: whole.index(stop)]
    )


def test_logit_bias_chooses_the_token(client: OpenAI, model: Model) -> None:
    (id,) = model.tokenizer.encode("a")
    done = complete(client, max_tokens=3, temperature=0, logit_bias={str(id): 100})
    assert done.choices[0].text == "aaa"


def test_settings_beyond_openais_go_in_extra_body(client: OpenAI) -> None:
    greedy = complete(client, max_tokens=8, temperature=0).choices[0].text
    one = complete(client, max_tokens=8, temperature=1, extra_body={"top_k": 1})
    assert one.choices[0].text == greedy


def test_penalties_change_the_text(client: OpenAI) -> None:
    plain, other = (
        complete(client, max_tokens=24, temperature=0, frequency_penalty=penalty).choices[0].text
        for penalty in (0, 2)
    )
    assert plain != other


# ---- log-probabilities


def test_echo_gives_the_log_probabilities_of_the_prompt(client: OpenAI, model: Model) -> None:
    done = complete(client, echo=True, logprobs=1, max_tokens=0).choices[0]
    score = model.score(TEXT)
    assert done.text == TEXT and "".join(done.logprobs.tokens) == TEXT
    assert done.logprobs.token_logprobs[0] is None
    assert done.logprobs.token_logprobs[1:] == pytest.approx(score.logprobs[1:], abs=1e-5)


def test_echo_and_new_tokens_stand_in_one_list(client: OpenAI, model: Model) -> None:
    new = model.tokenizer.encode(" a dog ran")  # a model with random weights writes halves of characters
    forced = {"forced_tokens": new}
    done = complete(client, echo=True, logprobs=0, max_tokens=len(new), extra_body=forced).choices[0]
    assert done.text == f"{TEXT} a dog ran" and "".join(done.logprobs.tokens) == done.text
    places = zip(done.logprobs.tokens, done.logprobs.text_offset, strict=True)
    assert all(done.text[at : at + len(token)] == token for token, at in places)


def test_offsets_count_from_the_start_of_the_prompt_without_echo_too(client: OpenAI) -> None:
    with_echo, without = (
        complete(client, echo=echo, logprobs=0, max_tokens=6, temperature=0).choices[0].logprobs.text_offset
        for echo in (True, False)
    )
    assert with_echo[-len(without) :] == without and without[0] == len(TEXT)


def test_logprobs_0_lists_the_chosen_token_alone(client: OpenAI) -> None:
    found = complete(client, logprobs=0, max_tokens=4, temperature=1, seed=2).choices[0].logprobs
    for token, logprob, top in zip(found.tokens, found.token_logprobs, found.top_logprobs, strict=True):
        assert top == {token: logprob}


def test_logprobs_5_has_the_five_largest_and_the_chosen_one(client: OpenAI) -> None:
    found = complete(client, logprobs=5, max_tokens=8, temperature=1, seed=2).choices[0].logprobs
    for token, logprob, top in zip(found.tokens, found.token_logprobs, found.top_logprobs, strict=True):
        assert top[token] == logprob and 5 <= len(top) <= 6
        assert sorted(top.values(), reverse=True)[0] >= logprob


def test_log_probabilities_of_the_text_are_those_of_score(client: OpenAI, model: Model) -> None:
    given = {"max_tokens": 8, "temperature": 1.3, "seed": 4, "extra_body": {"explain": True}}
    done, prompt = complete(client, logprobs=0, **given).choices[0], model.encode(TEXT)
    score = model.score([*prompt, *(token["id"] for token in done.explain["tokens"])])
    assert done.logprobs.token_logprobs == pytest.approx(score.logprobs[len(prompt) :], abs=1e-5)


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


def test_a_stream_has_no_usage_otherwise(client: OpenAI) -> None:
    assert all(event.usage is None for event in complete(client, stream=True, max_tokens=3))


def test_streamed_log_probabilities_are_those_of_the_whole(client: OpenAI) -> None:
    given = {"max_tokens": 16, "temperature": 1, "seed": 8, "logprobs": 3, "echo": True}
    whole = complete(client, **given).choices[0].logprobs
    parts = [event.choices[0].logprobs for event in complete(client, stream=True, **given) if event.choices]
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        joined = [item for part in parts if part for item in getattr(part, name)]
        assert joined == getattr(whole, name), name


def test_a_stream_that_is_left_frees_its_slot(client: OpenAI, served: Served) -> None:
    with complete(client, stream=True, max_tokens=100, extra_body={"min_new_tokens": 100}) as events:
        next(iter(events))
    done = complete(client, n=8, max_tokens=1)  # every slot of the server
    assert len(done.choices) == 8


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


def test_content_may_be_parts_of_text(client: OpenAI) -> None:
    parts = [{"type": "text", "text": "who"}, {"type": "text", "text": "are you"}]
    one, other = (
        chat(client, [{"role": "user", "content": content}], max_tokens=8, temperature=0)
        for content in ("who\nare you", parts)
    )
    assert one.choices[0].message.content == other.choices[0].message.content


def test_a_message_that_the_package_returned_may_be_sent_back(client: OpenAI) -> None:
    said = chat(client, max_tokens=8).choices[0].message
    history = [{"role": "system", "content": "be brief"}, *SAID, said, {"role": "user", "content": "more"}]
    assert chat(client, history, max_tokens=4).usage.prompt_tokens > 20


def test_n_answers_at_once(client: OpenAI) -> None:
    done = chat(client, n=3, max_tokens=8, temperature=1, seed=2)
    assert len({one.message.content for one in done.choices}) == 3


# ---- embeddings and models


def test_embeddings_are_the_same_in_base64_and_as_numbers(client: OpenAI) -> None:
    # without a format the package asks for base64 and decodes it
    one, other = (
        client.embeddings.create(model="tiny", input=[TEXT, "a dog"], **more)  # type: ignore[arg-type]
        for more in ({}, {"encoding_format": "float"})
    )
    for a, b in zip(one.data, other.data, strict=True):
        assert a.embedding == pytest.approx(b.embedding, abs=1e-7)
        assert fsum(x * x for x in a.embedding) == pytest.approx(1, abs=1e-6)
    assert [entry.index for entry in one.data] == [0, 1] and one.usage.prompt_tokens > 2


def test_the_model_is_listed_and_found_by_its_name(client: OpenAI) -> None:
    assert [found.id for found in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "pellucid"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


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


def test_a_misspelt_field_is_answered_with_the_right_one(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature"):
        complete(client, extra_body={"temprature": 1})


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "http://a.example/b.png"}}],
            }
        ],
        [{"role": "someone", "content": "hello"}],
    ],
)
def test_a_conversation_that_cannot_be_read_is_refused(client: OpenAI, messages: Any) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        client.chat.completions.create(model="tiny", messages=messages)
    assert (refusal.value.param or "").startswith("messages")


def test_tools_are_refused_by_name(client: OpenAI) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    with pytest.raises(openai.BadRequestError) as refusal:
        chat(client, tools=[tool])
    assert refusal.value.param == "tools"


def test_a_prompt_beyond_the_context_has_openais_code(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        complete(client, "the cat " * 500)
    assert refusal.value.code == "context_length_exceeded"


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


def test_the_package_tries_again_when_the_queue_is_full(tiny_model: Path) -> None:
    with (
        run_served(tiny_model, name="tiny", slots=1, queue=0) as small,
        OpenAI(base_url=small.base_url, api_key=small.key, max_retries=0) as impatient,
    ):
        long = {"stream": True, "max_tokens": 100, "extra_body": {"min_new_tokens": 100}}
        with contextlib.closing(complete(impatient, **long)) as events:
            next(iter(events))
            with pytest.raises(openai.RateLimitError) as refusal:
                complete(impatient, max_tokens=1)
            assert float(refusal.value.response.headers["retry-after"]) > 0
        assert complete(impatient.with_options(max_retries=5), max_tokens=1).choices
