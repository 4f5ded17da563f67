"""Texts and conversations become the ids that `Model` gives them, and never hold up the event loop."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import pellucid
from pellucid.base.errors import TokenError
from pellucid.formats.pretrained import Pretrained
from pellucid.model import Model
from pellucid.server.http.limits import RequestError
from pellucid.server.openai.reading import prompts
from pellucid.server.openai.reading.prompts import MOST_MESSAGE_CHARACTERS, PromptEncoder
from pellucid.text.chat_template_worker import OUTPUT
from pellucid.text.kinds import train
from pellucid.text.rust import call_native
from tests.formats.gguf import random_models

CHATML = (
    "{% for m in messages %}<|begin|>{{ m.role }}\n{{ m.content }}<|turn|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|begin|>assistant\n{% endif %}"
)
SLOW = "{% if messages[-1].content == 'slow' %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{% endif %}"  # noqa: E501
TALK = [{"role": "system", "content": "Be."}, {"role": "user", "content": "Who?"}]


def make(**more: Any) -> Pretrained:
    given = {"chat_template": CHATML, "generation": {"eos_token_id": 1}} | more
    return random_models.model(random_models.LLAMA, **given)


def ask(pretrained: Pretrained, *calls: Callable[[PromptEncoder], Awaitable[Any]]) -> list[Any]:
    """Returns what the calls return, errors among them, one after the other with one encoder."""

    async def run() -> list[Any]:
        encoder = PromptEncoder(pretrained)
        try:
            return [(await asyncio.gather(call(encoder), return_exceptions=True))[0] for call in calls]
        finally:
            await encoder.close()

    return asyncio.run(run())


def refusal(pretrained: Pretrained, call: Callable[[PromptEncoder], Awaitable[Any]]) -> RequestError:
    (found,) = ask(pretrained, call)
    assert isinstance(found, RequestError), found
    return found


async def count_turns(end: asyncio.Event) -> int:
    """Returns how often something else could have run on the event loop."""
    turns = 0
    while not end.is_set():
        await asyncio.sleep(0.001)
        turns += 1
    return turns


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("text", ["the inner", "", "<|turn|>", "½ 12\n", "é" * 30])
def test_a_text_has_the_ids_that_the_model_gives_it(text: str, add_bos: bool) -> None:
    pretrained = make(add_bos=add_bos)
    (ids,) = ask(pretrained, lambda encoder: encoder.encode(text))
    model = Model(pretrained)
    assert list(ids) == (model.encode(text) if text or add_bos else [pretrained.start_id])


def test_a_long_text_is_encoded_in_a_thread_to_the_same_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "SHORT_BYTES", 3)
    pretrained = make()
    (ids,) = ask(pretrained, lambda encoder: encoder.encode("the inner"))
    assert list(ids) == Model(pretrained).encode("the inner")


def test_an_empty_text_needs_a_token_with_which_a_text_begins() -> None:
    assert refusal(pellucid.load("abcd").pretrained, lambda encoder: encoder.encode("")).param == "prompt"


def test_what_a_tokenizer_cannot_encode_is_refused_by_its_field() -> None:
    abcd = pellucid.load("abcd").pretrained
    error = refusal(abcd, lambda encoder: encoder.encode("A X", "input"))
    assert (error.status, error.param) == (400, "input") and "'X'" in str(error)
    assert refusal(make(tokenizer=None), lambda encoder: encoder.encode("a")).status == 400


@pytest.mark.parametrize("length", [4, 9_000])
def test_a_panic_of_a_tokenizer_is_a_refusal(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        pass

    def fail() -> list[int]:
        raise Panic("backtracking")

    pretrained = make(tokenizer=train("words", ["a"]))
    assert pretrained.tokenizer is not None
    encoder = PromptEncoder(pretrained)
    monkeypatch.setattr(type(pretrained.tokenizer), "encode", lambda *_: call_native("no", fail, TokenError))
    with pytest.raises(RequestError) as refused:
        asyncio.run(encoder.encode("a" * length))
    assert refused.value.status == 400


@pytest.mark.parametrize("kind", ["bytes", "characters", "bpe", "unigram"])
def test_a_text_that_cannot_fit_is_refused_before_it_is_encoded(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes are more than the context times the longest token."""
    tokenizer = train(kind, ["the cat sat on the mat " * 9], 290)
    encoder = PromptEncoder(make(tokenizer=tokenizer))
    longest = tokenizer.longest_token
    assert longest is not None
    monkeypatch.setattr(type(tokenizer), "encode", lambda *_: pytest.fail("it was encoded"))
    with pytest.raises(RequestError) as refused:
        asyncio.run(encoder.encode("t" * (longest * encoder.context + 1)))
    assert (refused.value.status, refused.value.code) == (400, "context_length_exceeded")


@pytest.mark.parametrize("kind", ["words", "wordpiece"])
def test_a_tokenizer_that_drops_blanks_encodes_a_text_of_any_length(kind: str) -> None:
    pretrained = make(tokenizer=train(kind, ["the cat sat"], 100))
    (ids,) = ask(pretrained, lambda encoder: encoder.encode("the" + " " * 100_000 + "cat"))
    assert list(ids) == Model(pretrained).encode("the cat")


def test_a_prompt_fills_the_context_and_no_more() -> None:
    one, more = ask(make(), lambda e: e.encode("x" * 64), lambda e: e.encode("x" * 65))
    assert len(one) == 64
    assert isinstance(more, RequestError) and more.code == "context_length_exceeded" and "65" in str(more)


@pytest.mark.parametrize(
    ("ids", "code"),
    [([], None), ([-1], None), ([5, 272], None), ([10**30], None), ([5] * 65, "context_length_exceeded")],
)
def test_ids_are_of_the_vocabulary_and_fit(ids: list[int], code: str | None) -> None:
    encoder = PromptEncoder(make())
    assert encoder.check_ids([0, 271]) == (0, 271)
    with pytest.raises(RequestError) as refused:
        encoder.check_ids(ids, "input")
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, "input", code)


def test_a_conversation_has_the_ids_and_the_ends_that_the_model_gives_it() -> None:
    pretrained = make()
    asked, whole = ask(pretrained, lambda e: e.ask(TALK), lambda e: e.tokenize_messages(TALK, asks=False))
    model = Model(pretrained)
    ids, stop_ids = model.chat_prompt(TALK)
    assert asked == (tuple(ids), tuple(stop_ids)) and stop_ids == [1, 2]
    assert whole == ids[: len(whole)] and len(whole) < len(ids)


def test_a_conversation_that_does_not_fit_is_counted_and_not_asked() -> None:
    long = [{"role": "user", "content": "x" * 70}]
    ids, asked = ask(make(), lambda e: e.tokenize_messages(long), lambda e: e.ask(long))
    assert len(ids) > 70 and isinstance(asked, RequestError) and asked.code == "context_length_exceeded"


def test_a_process_that_cannot_be_started_is_tried_again_by_the_next_conversation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    async def run() -> None:
        encoder = PromptEncoder(make())
        with monkeypatch.context() as patch:
            patch.setattr("subprocess.Popen", fail)
            with pytest.raises(RequestError) as refused:
                await encoder.ask(TALK)
        assert refused.value.status == 503 and refused.value.headers["Retry-After"]
        assert (await encoder.ask(TALK))[1] == (1, 2)
        await encoder.close()

    asyncio.run(run())


def test_special_tokens_in_a_message_are_ordinary_text() -> None:
    hostile = [{"role": "user", "content": "<|turn|><|end|>"}]
    (found,) = ask(make(), lambda encoder: encoder.ask(hostile))
    assert found[0].count(1) == 0 and found[0].count(2) == 1


def test_messages_longer_than_a_template_may_write_are_refused() -> None:
    assert OUTPUT == MOST_MESSAGE_CHARACTERS
    long = [{"role": "user", "content": "a" * OUTPUT}, {"role": "user", "content": "a"}]
    error = refusal(make(), lambda encoder: encoder.ask(long))
    assert (error.param, error.code) == ("messages", "context_length_exceeded")


def test_a_model_without_a_template_says_what_to_use_instead() -> None:
    error = refusal(make(chat_template=None), lambda encoder: encoder.ask(TALK))
    assert (error.status, error.param) == (400, "messages") and "/v1/completions" in str(error)


@pytest.mark.parametrize(
    "template", ["{{ raise_exception('no') }}", "{% if", "{{ messages[9].content }}", "{{ 'a' * 10**9 }}"]
)
def test_an_error_of_a_template_is_a_refusal(template: str) -> None:
    for found in ask(make(chat_template=template), *[lambda encoder: encoder.ask(TALK)] * 2):
        assert isinstance(found, RequestError) and (found.status, found.param) == (400, "messages")


def test_a_slow_template_is_stopped_and_holds_up_nothing_else() -> None:
    """Meanwhile texts are encoded and the loop turns; the next conversation has its own process."""

    async def run() -> int:
        encoder, done = PromptEncoder(make(chat_template=SLOW + CHATML)), asyncio.Event()
        await encoder.ask(TALK)
        turns = asyncio.create_task(count_turns(done))
        slow = asyncio.create_task(encoder.ask([{"role": "user", "content": "slow"}]))
        await asyncio.sleep(0.01)
        assert await encoder.encode("the") and not slow.done()
        with pytest.raises(RequestError) as refused:
            await slow
        assert refused.value.status == 400
        assert (await encoder.ask(TALK))[1] == (1, 2)
        done.set()
        await encoder.close()
        return await turns

    assert asyncio.run(run()) > 100


def test_the_template_s_process_ends_with_the_encoder() -> None:
    async def run() -> None:
        encoder = PromptEncoder(make())
        await encoder.ask(TALK)
        assert encoder._chat is not None
        worker = encoder._chat.template._worker
        assert worker.is_alive
        await encoder.close()
        assert not worker.is_alive
        with pytest.raises(RequestError) as refused:
            await encoder.ask(TALK)
        assert refused.value.status == 503

    asyncio.run(run())


def test_a_text_that_is_a_special_token_is_that_token_for_a_client_that_asks_for_its_id() -> None:
    pretrained = make(add_bos=True)
    found = ask(
        pretrained,
        lambda e: e.tokenize("<|turn|>", adds_bos=False),
        lambda e: e.tokenize("<|turn|>"),
        lambda e: e.tokenize("<|turn|> ", adds_bos=False),
        lambda e: e.tokenize("", adds_bos=False),
        lambda e: e.tokenize("x" * 100, adds_bos=False),
        lambda e: e.decode([2, 300]),
        lambda e: e.decode([2, 1]),
    )
    assert found[:2] == [[2], [0, 2]] and 2 not in found[2] and found[3] == [] and len(found[4]) == 100
    assert isinstance(found[5], RequestError) and found[5].param == "tokens" and found[6] == "<|turn|><|end|>"


def test_no_text_is_longer_than_what_the_memory_is_meant_for() -> None:
    error = refusal(make(tokenizer=train("words", ["a"])), lambda encoder: encoder.tokenize("a " * 600_000))
    assert (error.status, error.param) == (400, "prompt")


@pytest.mark.parametrize(("kind", "least"), [("words", 5), ("wordpiece", 50), ("bpe", 15)])
def test_the_event_loop_goes_on_while_a_long_text_is_encoded(kind: str, least: int) -> None:
    """Without a thread, or in one that keeps the interpreter's lock, it turns two to four times. Threads take
    turns each half of a millisecond here, so that a fast machine shows the difference as well."""
    text = "the cat sat on the mat " * 45_000
    tokenizer = train(kind, [text[:1000]], 290)

    async def run() -> int:
        encoder, done = PromptEncoder(make(tokenizer=tokenizer)), asyncio.Event()
        turns = asyncio.create_task(count_turns(done))
        await asyncio.sleep(0)
        assert len(await encoder.tokenize(text)) > 200_000
        done.set()
        return await turns

    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    try:
        assert asyncio.run(run()) >= least
    finally:
        sys.setswitchinterval(interval)
