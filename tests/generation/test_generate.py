"""Texts from a model: what the engine generates, in the shape of what was given."""

import asyncio
import inspect
from typing import Any

import pytest
import torch

import pellucid
from pellucid.base.errors import TokenError, UsageError
from pellucid.generation.handle import Handle
from pellucid.generation.scheduler import Engine
from pellucid.model import Model
from tests.formats.gguf import random_models

PROMPTS = ["the", "a naïve cat", "12"]


def tiny(**more: Any) -> Model:
    return Model(random_models.model(random_models.LLAMA, **{"generation": {}} | more))


def test_several_texts_for_a_prompt_are_a_list_of_them() -> None:
    model, options = tiny(), {"max_new_tokens": 6, "temperature": 2.0, "seed": 1}
    three = model.generate("the", n=3, **options)
    assert len(set(three)) == 3 and three[0] == model.generate("the", **options)
    assert model.generate(PROMPTS, n=3, **options)[0] == three
    ids = model.generate(model.encode("the"), n=2, **options)
    assert [len(one) for one in ids] == [6, 6]


def test_fewer_texts_than_were_asked_for_are_a_list_too() -> None:
    """One text alone has a token, so that a search for two finds one."""
    model = tiny()
    [found] = model.generate([3, 4], 1, n=2, beams=2, banned_tokens=range(1, model.config.vocab_size))
    assert found == [0]


def test_more_prompts_than_slots_come_back_in_order() -> None:
    model, prompts = tiny(), [[i, i + 1] for i in range(100)]
    together = model.generate(prompts, 3)
    assert together == [model.generate(prompt, 3) for prompt in prompts]


def test_prompts_of_both_kinds_are_answered_in_kind() -> None:
    model = tiny()
    text, ids = model.generate(["the", [3, 4]], 4)
    assert text == model.generate("the", 4) and ids == model.generate([3, 4], 4)


def test_nothing_runs_before_the_first_piece_and_a_step_for_each() -> None:
    model, calls = tiny(), list[int]()
    model.module.register_forward_pre_hook(lambda *_: calls.append(1))
    model.module.blocks[0].register_forward_pre_hook(lambda *_: calls.append(1))
    pieces = model.stream("the", 4)
    assert calls == []
    counts = [len(calls) for _ in pieces]
    assert len(counts) == 4 and counts == sorted(set(counts))


def test_leaving_the_loop_ends_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    left = list[Handle]()
    monkeypatch.setattr(Handle, "cancel", lambda handle: left.append(handle))
    pieces = tiny().stream("the", 50)
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    ids = tiny().generate_ids("the", 50)
    next(ids)
    del ids
    assert len(left) == 2


def test_between_two_pieces_the_caller_is_in_its_own_mode() -> None:
    """Training and recording go on between two tokens."""
    model = tiny()
    one, two = model.stream("the", 4), model.stream("a", 4)
    next(one), next(two), next(one)
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
    model.module(torch.tensor([[1]])).sum().backward()
    assert len(list(two)) == 3


def test_one_text_alone_is_streamed() -> None:
    for ask in (tiny().stream, tiny().generate_ids):
        with pytest.raises(UsageError, match="n=2"):
            ask("the", sampling=pellucid.Sampling(n=2))


def test_what_cannot_be_generated_is_refused_before_a_weight_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "module", property(lambda _: pytest.fail("a weight was read")))
    for call in (tiny().generate, tiny().stream, tiny().generate_ids, tiny().astream):
        with pytest.raises(TokenError, match="do not fit the context of 64"):
            call("a" * 60, 10)


# ---- the ledger


def test_a_ledger_has_every_token_and_where_each_setting_came_from() -> None:
    model = tiny(generation={"do_sample": True, "top_k": 9})
    text, ledger = model.generate("the", 5, 1.5, 3, return_ledger=True, cache="bfloat16")
    assert text == model.generate("the", 5, 1.5, 3, cache="bfloat16") == ledger.completions[0].text
    assert [entry.id for entry in ledger.completions[0].entries] == list(ledger.completions[0].ids)
    assert (ledger.seed, ledger.sampling.top_k, ledger.model.cache_dtype) == (3, 9, "bfloat16")
    assert (ledger.sources["top_k"], ledger.sources["temperature"]) == ("model", "given")
    assert not ledger.replay().mismatches


def test_a_text_without_a_seed_can_be_replayed_from_its_ledger() -> None:
    text, ledger = tiny().generate("the", 8, 2.0, return_ledger=True)
    assert tiny().generate("the", 8, 2.0, ledger.seed) == text


def test_several_prompts_have_a_ledger_each() -> None:
    model = tiny()
    texts, ledgers = model.generate(PROMPTS, 3, return_ledger=True)
    assert [ledger.completions[0].text for ledger in ledgers] == texts == model.generate(PROMPTS, 3)


# ---- async


def test_async_pieces_are_those_of_the_stream() -> None:
    model, options = tiny(), {"temperature": 1.5, "seed": 2}

    async def read() -> list[str]:
        return [piece async for piece in model.astream("naïve", 9, **options)]

    assert asyncio.run(read()) == list(model.stream("naïve", 9, **options))


def test_two_async_readers_take_turns() -> None:
    model, seen = tiny(), list[str]()

    async def read(name: str) -> None:
        async for _ in model.astream("the", 5):
            seen.append(name)

    async def both() -> None:
        await asyncio.gather(read("a"), read("b"))

    asyncio.run(both())
    assert sorted(seen) == ["a"] * 5 + ["b"] * 5


def test_an_async_reader_that_leaves_or_is_cancelled_ends_the_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = list[Handle]()
    cancel = Engine.cancel
    monkeypatch.setattr(Engine, "cancel", lambda *given: (left.append(given[1]), cancel(*given)))

    async def leave() -> None:
        pieces = tiny().astream("the", 60)
        async for _ in pieces:
            break
        await pieces.aclose()  # type: ignore[attr-defined]

    async def cancelled() -> None:
        async def read() -> None:
            async for _ in tiny().astream("the", 60):
                await asyncio.sleep(0)

        reading = asyncio.create_task(read())
        await asyncio.sleep(0.05)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    asyncio.run(leave())
    asyncio.run(cancelled())
    assert len(left) == 2 and all(handle.is_cancelled for handle in left)


def test_an_error_reaches_the_async_reader() -> None:
    model = tiny()
    model.module.get_parameter("embed.weight").data.fill_(float("nan"))

    async def read() -> list[str]:
        return [piece async for piece in model.astream("the", 5)]

    with pytest.raises(UsageError, match="NaN"):
        asyncio.run(read())
    with pytest.raises(UsageError, match="NaN"):
        model.generate(PROMPTS, 5)


def test_methods_say_what_they_take() -> None:
    for method in (Model.generate, Model.stream, Model.generate_ids, Model.astream, Model.chat):
        names = list(inspect.signature(method).parameters)
        assert names[2:5] == ["max_new_tokens", "temperature", "seed"] and names[-1] == "options"
