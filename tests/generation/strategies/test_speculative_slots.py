"""Speculation in the engine: every text is the one without it, whatever runs beside it."""

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from pellucid.base.errors import ResourceError, UsageError
from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Completion, Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.model import load
from tests.generation.draft_models import SAMPLINGS, make_models


def run(model: Transformer, requests: Sequence[Request], **options: Any) -> list[list[Completion]]:
    engine = Engine(model, chunk=8, **options)
    handles = [engine.add(request) for request in requests]
    return [handle.result() for handle in handles]


def drop_steps(completions: Sequence[Completion]) -> list[Completion]:
    return [dataclasses.replace(one, speculative=()) for one in completions]


def count_tokens(completions: Sequence[Completion]) -> tuple[int, int]:
    """Proposed and accepted tokens."""
    steps = [step for one in completions for step in one.speculative]
    return sum(len(step.proposed) for step in steps), sum(step.accepted for step in steps)


@pytest.mark.rotating
@pytest.mark.parametrize("proposer", ["draft", "lookup", "both"])
def test_texts_with_their_ledgers_are_those_without_speculation(proposer: str) -> None:
    """Several choices, every sampler, stop tokens, full contexts; entries with every number."""
    target, draft = make_models(noise=0.2, context_length=32)
    requests = [
        Request((1, 2, 3, 1, 2), dataclasses.replace(sampling, max_new_tokens=16, seed=3), ledger=True)
        for sampling in SAMPLINGS.values()
    ]
    base = Sampling(temperature=0.7, seed=5, max_new_tokens=20)
    requests += [
        Request((4, 4), dataclasses.replace(base, n=3), logprobs=True, prompt_logprobs=True),
        Request((4, 5), dataclasses.replace(base, stop_ids=(1, 2, 3))),
        Request(tuple(range(12)) * 2, dataclasses.replace(base, context="crop")),
        Request(tuple(range(12)) * 2, dataclasses.replace(base, context="roll", keep=4)),
        Request((1,) * 31, Sampling(max_new_tokens=1, seed=0)),
    ]
    plain = run(target, requests)
    options = {"draft": draft if proposer != "lookup" else None, "lookup": proposer != "draft"}
    found = run(target, requests, **options)
    assert [drop_steps(one) for one in found] == plain
    proposed, accepted = map(sum, zip(*map(count_tokens, found), strict=True))
    assert 0 < accepted < proposed
    for completion in (one for some in found for one in some):
        for step in completion.speculative:
            emitted = completion.ids[step.step : step.step + len(step.proposed)]
            assert step.proposed[: step.accepted] == emitted[: step.accepted]
            assert len(step.proposed) <= 4 and step.step + step.accepted <= len(completion.ids)


def test_a_random_schedule_with_beams_and_cancelled_requests() -> None:
    target, draft = make_models(noise=0.2)
    rng = random.Random(0)
    requests = []
    for seed in range(12):
        prompt = tuple(rng.randrange(12) for _ in range(rng.randint(1, 14)))
        beams = rng.choice([1, 1, 1, 2])
        temperature = 0.0 if beams > 1 else rng.choice([0.0, 0.7, 1.5])
        sampling = Sampling(
            temperature=temperature,
            beams=beams,
            n=2 if beams > 1 or temperature else 1,
            frequency_penalty=rng.choice([0.0, 0.3]),
            max_new_tokens=rng.randint(1, 12),
            stop_ids=rng.choice([(), (3,)]),
            seed=seed,
        )
        requests.append(Request(prompt, sampling))
    plain = [run(target, [request])[0] for request in requests]
    engine = Engine(target, chunk=8, slots=5, budget=12, draft=draft, lookup=True, draft_tokens=3)
    handles = []
    for request in requests:
        handles.append(engine.add(request))
        cancelled = engine.add(Request((1, 2, 1, 2), Sampling(temperature=1.0, n=2)))
        for _ in range(rng.randint(0, 3)):
            engine.step()
        cancelled.cancel()
    assert [drop_steps(handle.result()) for handle in handles] == plain
    assert sorted(engine.slots.free) == list(range(5))


def test_a_text_with_stop_texts_and_a_tokenizer_is_the_one_without_speculation() -> None:
    model = load("abcd")
    prompt = tuple(model.encode("A B"))
    stops: list[tuple[str, ...]] = [(), ("C",), ("D A", "B B")]
    for stop in stops:
        for seed in range(3):
            sampling = Sampling(temperature=1.5, stop=stop, seed=seed, max_new_tokens=5)
            found = [
                Engine(model.module, model.tokenizer, lookup=lookup).add(Request(prompt, sampling)).result()
                for lookup in (False, True)
            ]
            assert found[0] == drop_steps(found[1])


@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_a_constrained_text_is_the_one_without_speculation(temperature: float) -> None:
    """Also where a proposal does not fit the constraint: it is never drawn."""
    model = load("abcd")
    sampling = Sampling(temperature=temperature, regex=r" ?(A B |C |D D )+A", seed=4, max_new_tokens=5)
    found = [
        Engine(model.module, model.tokenizer, **options)
        .add(Request(tuple(model.encode("A B A")), sampling))
        .result()
        for options in ({}, {"lookup": True}, {"draft": model.module})  # type: ignore[list-item]
    ]
    assert [drop_steps(one) for one in found[1:]] == [found[0]] * 2


def test_fewer_calls_of_the_target_write_the_same_text() -> None:
    """A draft that is the target is always right: a step emits all that it proposed, and a token more."""
    target, _ = make_models()
    request = Request((1, 2, 3), Sampling(temperature=1.0, max_new_tokens=21, seed=1))
    engine = Engine(target, draft=target, draft_tokens=4)
    handle, steps = engine.add(request), 0
    while engine.step():
        steps += 1
    [found] = handle.result()
    assert steps == 5  # the prompt and its token, then 4 times 5
    assert [(step.proposer, step.accepted) for step in found.speculative] == [("draft", 4)] * 4


def test_a_draft_that_fails_ends_its_requests_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    target, draft = make_models()
    engine = Engine(target, draft=draft, chunk=8)
    good = engine.add(Request((1, 2), Sampling(max_new_tokens=8)))
    bad = engine.add(Request((9, 9, 9), Sampling(max_new_tokens=8)))
    assert engine.speculation is not None and engine.speculation.slots is not None
    slots = engine.speculation.slots
    forward = slots.forward

    def fail(feeds: Any) -> torch.Tensor:
        if any(9 in ids for feed in feeds for ids in feed.segments):
            raise RuntimeError("out of memory")
        return forward(feeds)

    monkeypatch.setattr(slots, "forward", fail)
    assert len(good.result()[0].ids) == 8
    with pytest.raises(RuntimeError):
        bad.result()
    assert len(engine.slots.free) == engine.slots.count


def test_an_engine_that_cannot_speculate_is_refused() -> None:
    target, draft = make_models()
    for changes in ({"attention": "linear_elu"}, {"mask": {"kind": "window", "size": 8}}):
        with pytest.raises(UsageError, match="rewound"):
            Engine(make_models(**changes)[0], lookup=True)
    with pytest.raises(UsageError, match="draft_tokens"):
        Engine(target, draft=draft, draft_tokens=0)
    size = Engine(target).slots.cache.bytes
    with pytest.raises(ResourceError):
        Engine(target, draft=draft, memory=size + 1)
