"""The engine: requests of any kind run together, each as it would be alone."""

import math
import random
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

import pellucid.generation.scheduler as engine_module
from pellucid.base.errors import PellucidError, ResourceError, TokenError, UsageError
from pellucid.engine.transformer import Transformer
from pellucid.generation import slots
from pellucid.generation.handle import MOST_UNREAD, Handle
from pellucid.generation.request import Completion, Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.parts import kinds
from tests.agreement.engines import CACHED, CHOICES, SIZES, Choice, config_of, fast, pairwise, text
from tests.small_choices import small

ROPE = CHOICES["positions/rope"]
LONG = {**SIZES, "context_length": 24}
CHUNK = 4
"""Tokens of a chunk: so few that a short prompt has several."""


def long_config(choice: Choice) -> Any:
    config = config_of({key: value for key, value in choice.items() if key != "cache"}, LONG)
    linear = str(choice.get("attention", "")).startswith("linear")
    is_possible = config is not None and not config.mask.bidirectional_prefix
    return config if is_possible and not (linear and choice.get("cache") == "int8") else None


FACTORS = {
    "attention": [small("attentions", kind) for kind in kinds("attentions")],
    "mask": [small("masks", kind) for kind in kinds("masks")],
    "cache": ["float32", "bfloat16", "int8"],
    "positions": ["rope", "learned", "alibi", "t5"],
    "n_kv_head": [0, 1],
}
COVER = list(pairwise(FACTORS, long_config))
"""Every pair of an attention, a mask, a cache and positions that go together."""


def make_engine(model: Transformer, slots: int, cache: str = "float32", **options: Any) -> Engine:
    return Engine(
        model, slots=slots, chunk=CHUNK, stop_ids=(2,), cache_dtype=getattr(torch, cache), **options
    )


def run_alone(model: Transformer, request: Request, cache: str = "float32") -> list[Completion]:
    return make_engine(model, request.sampling.n, cache).add(request).result()


def make_requests(rng: random.Random, count: int) -> list[Request]:
    """Prompts that share beginnings, and settings of every kind."""
    beginnings = [[rng.randrange(7) for _ in range(14)] for _ in range(3)]

    def make() -> Request:
        shared = rng.choice(beginnings)[: rng.randrange(15)]
        prompt = [*shared, *(rng.randrange(7) for _ in range(rng.randint(1, 4)))]
        rule = rng.choice(["refuse", "refuse", "refuse", "crop", "roll"])
        most = 24 - len(prompt) if rule == "refuse" else 30
        temperature = rng.choice([0.0, 0.5, 1.0, 2.0])
        sampling = Sampling(
            temperature=temperature,
            top_k=rng.choice([0, 0, 3]),
            top_p=rng.choice([1.0, 0.8]),
            max_new_tokens=rng.randint(0, min(12, most)) if rng.random() < 0.8 else most,
            stop_ids=rng.choice([None, (), (1, 3)]),
            seed=rng.randrange(100),
            n=rng.choice([1, 1, 1, 2, 3]) if temperature else 1,
            context=rule,
            keep=3 if rule == "roll" else 0,
        )
        return Request(tuple(prompt), sampling, logprobs=rng.random() < 0.2)

    return [make() for _ in range(count)]


def run_schedule(engine: Engine, requests: Sequence[Request], rng: random.Random) -> dict[int, Handle]:
    """Adds requests between steps, reads some streams as they come, and cancels some; all that remain are
    run to their ends."""
    handles, streams, waiting = dict[int, Handle](), dict[int, Iterator[Any]](), list(enumerate(requests))
    while waiting:
        for _ in range(min(rng.choice([0, 0, 1, 3]), len(waiting))):
            number, request = waiting.pop(0)
            handles[number] = engine.add(request, streams=rng.random() < 0.5)
            if handles[number]._streams:
                streams[number] = iter(handles[number])
        if streams and rng.random() < 0.5:
            next(streams[rng.choice(list(streams))], None)
        engine.step()
        if handles and rng.random() < 0.02:
            handles[rng.choice(list(handles))].cancel()
    for handle in handles.values():
        handle.result()
    return handles


def check_schedule(choice: Choice, count: int, seed: int = 0) -> None:
    """Runs a schedule, and compares every text with the one that its request gives alone."""
    rng = random.Random(f"{choice} {seed}")
    config = long_config(choice)
    model = fast(config, seed=3, dtype=torch.float32)
    requests = make_requests(rng, count)
    engine = make_engine(model, rng.choice([3, 5, 8]), choice["cache"], budget=rng.choice([1, 6, 40]))
    handles = run_schedule(engine, requests, rng)
    alone = {number: run_alone(model, requests[number], choice["cache"]) for number in handles}
    for number, handle in handles.items():
        for got, wanted in zip(handle.result(), alone[number], strict=True):
            if handle.is_cancelled:
                assert wanted.ids[: len(got.ids)] == got.ids
            else:
                assert got == wanted
    assert not engine._running and not engine._waiting
    assert sorted(engine.slots.free) == list(range(engine.slots.count))


@pytest.mark.rotating
@pytest.mark.parametrize("choice", COVER, ids=text)
def test_a_text_does_not_depend_on_what_runs_beside_it(choice: Choice) -> None:
    check_schedule(choice, 1 + 100 // len(COVER))


@pytest.mark.torture
@pytest.mark.parametrize("choice", COVER, ids=text)
def test_ten_thousand_texts_do_not_depend_on_what_runs_beside_them(choice: Choice) -> None:
    for seed in range(10):
        check_schedule(choice, 1 + 1000 // len(COVER), seed)


def greedy(model: Transformer, prompt: Sequence[int], count: int) -> list[int]:
    """Greedy text by reading everything again for each token."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("name", CACHED)
def test_greedy_text_is_the_argmax_of_full_forwards(name: str) -> None:
    model = fast(CACHED[name], seed=3)
    prompt, count = [1, 3, 1], model.config.context_length - 3
    found = Engine(model, slots=1, chunk=2).add(Request(tuple(prompt), Sampling(max_new_tokens=count)))
    assert list(found.result()[0].ids) == greedy(model, prompt, count)


@pytest.mark.parametrize("name", ["positions/rope", "mask/window", "attention/linear_elu", "positions/t5"])
def test_a_static_decode_step_writes_the_same_greedy_texts(name: str) -> None:
    """The step over all slots at once, as a GPU runs it."""
    model = fast(CHOICES[name], seed=3)
    requests = [Request((1, 3, i), Sampling(max_new_tokens=5 - i % 3, seed=0)) for i in range(7)]
    found = []
    for is_static in (False, True):
        engine = Engine(model, slots=3, chunk=2, is_static=is_static)
        found.append([engine.add(request, streams=False) for request in requests])
    for one, other in zip(*found, strict=True):
        assert one.result() == other.result()


@pytest.mark.parametrize("name", ["positions/rope", "mask/window", "positions/alibi"])
def test_static_shapes_grow_in_strides_and_change_no_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "STRIDE", 4)
    model = fast(CHOICES[name], seed=3)
    requests = [Request((1, 3, i)[: 1 + i], Sampling(max_new_tokens=5, seed=0)) for i in range(3)]
    alone = [Engine(model, slots=1, is_static=False).add(request).result() for request in requests]
    engine = Engine(model, slots=2, is_static=True)
    handles = [engine.add(request, streams=False) for request in requests]
    lengths = set()
    while engine.step():
        lengths.add(engine.slots.cache.visible_length)
    assert [handle.result() for handle in handles] == alone and lengths <= {4, 8}


def test_a_shared_beginning_is_read_once() -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    engine = make_engine(model, 3)
    first = engine.add(Request((1, 2, 3, 4, 5, 6, 0, 1, 2, 3), Sampling(max_new_tokens=2, stop_ids=())))
    first.result()
    second = engine.add(Request((1, 2, 3, 4, 5, 6, 0, 1, 4), Sampling(max_new_tokens=2, stop_ids=())))
    read = []
    forward = engine.slots.forward
    engine.slots.forward = lambda feeds: read.extend(f.segments for f in feeds) or forward(feeds)  # type: ignore[method-assign,func-returns-value]
    second.result()
    assert read == [((4,),), ((second.result()[0].ids[0],),)]


def test_a_running_text_lends_its_beginning() -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    engine, prompt = make_engine(model, 3), (1, 2, 3, 4, 5, 6, 0, 1, 2, 3)
    sampling = Sampling(max_new_tokens=9, temperature=1.0, seed=4, stop_ids=())
    first = engine.add(Request(prompt, sampling))
    for _ in range(3):
        engine.step()
    second = engine.add(Request(prompt, sampling))
    assert second.result()[0].ids == first.result()[0].ids == run_alone(model, first.request)[0].ids


def test_choices_of_one_request_differ_and_each_is_the_same_again() -> None:
    model = fast(ROPE, seed=3, dtype=torch.float32)
    sampling = Sampling(temperature=2.0, seed=5, n=3, max_new_tokens=5, stop_ids=())
    found = make_engine(model, 4).add(Request((1,), sampling)).result()
    assert [completion.choice for completion in found] == [0, 1, 2]
    assert len({completion.ids for completion in found}) > 1
    assert found == make_engine(model, 3).add(Request((1,), sampling)).result()


def test_requests_from_many_threads_are_what_they_are_alone() -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    requests = make_requests(random.Random(1), 24)
    found: dict[int, Any] = {}

    def ask(engine: Engine, numbers: range) -> None:
        for number in numbers:
            found[number] = engine.add(requests[number]).result()

    with make_engine(model, 4) as engine:
        threads = [threading.Thread(target=ask, args=(engine, range(i, 24, 6))) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
    assert {number: run_alone(model, requests[number]) for number in range(24)} == found


def test_two_threads_may_drive_one_engine() -> None:
    model = fast(ROPE, seed=3, dtype=torch.float32)
    engine, found = make_engine(model, 4), dict[int, Any]()
    requests = [Request((1, i), Sampling(max_new_tokens=6, seed=i, temperature=1.0)) for i in range(6)]
    threads = [
        threading.Thread(target=lambda i=i: found.update({i: engine.add(requests[i]).result()}))
        for i in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert found == {i: run_alone(model, requests[i]) for i in range(6)}


def test_a_reader_who_is_behind_holds_up_its_own_request_alone() -> None:
    config = config_of({}, {**SIZES, "context_length": 4 * MOST_UNREAD})
    model = fast(config or ROPE, seed=3, dtype=torch.float32)
    sampling = Sampling(max_new_tokens=3 * MOST_UNREAD, stop_ids=())
    with make_engine(model, 2) as engine:
        slow, quick = engine.add(Request((1,), sampling)), engine.add(Request((2,), sampling))
        assert len(list(quick)) == 3 * MOST_UNREAD
        assert MOST_UNREAD <= len(slow._unread) <= MOST_UNREAD + 1 and not slow.is_done
        assert len(list(slow)) == 3 * MOST_UNREAD


def test_first_come_is_first_served_though_a_later_one_would_fit() -> None:
    model = fast(ROPE, seed=3, dtype=torch.float32)
    engine = make_engine(model, 2)
    running = engine.add(Request((1,), Sampling(max_new_tokens=4, stop_ids=())))
    engine.step()
    wide = engine.add(Request((1,), Sampling(max_new_tokens=4, n=2, temperature=1.0, stop_ids=())))
    narrow = engine.add(Request((1,), Sampling(max_new_tokens=1, stop_ids=())))
    running.result()
    engine.step()
    assert wide in engine._running and not narrow.is_done


def test_a_prompt_is_read_in_parts_while_others_write() -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    engine = make_engine(model, 2, budget=1)
    writer = engine.add(Request((1,), Sampling(max_new_tokens=8, stop_ids=())))
    engine.step()
    engine.add(Request(tuple([1, 2, 3, 4] * 4), Sampling(max_new_tokens=1, stop_ids=())))
    engine.step()
    assert len(writer._unread) == 2 and len(engine.slots.tokens[1]) <= CHUNK


def test_texts_that_take_the_whole_budget_do_not_hold_up_a_prompt() -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    engine = make_engine(model, 2, budget=1)
    engine.add(Request((1,), Sampling(max_new_tokens=20, stop_ids=())))
    engine.step()
    late = engine.add(Request((1, 2, 3), Sampling(max_new_tokens=1, stop_ids=())))
    engine.step()
    assert late.is_done


def test_chunks_of_one_token_give_the_same_greedy_text() -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    request = Request((1, 3, 2, 4), Sampling(max_new_tokens=6, stop_ids=()))
    single = Engine(model, slots=1, chunk=1, budget=1).add(request).result()
    assert single[0].ids == run_alone(model, request)[0].ids


def break_at(model: Transformer, bad: int) -> None:
    """Makes the model fail whenever it reads a token."""
    forward = model.forward_packed

    def fail(rows: Any, wanted: Any) -> Any:
        if any(bad in ids for _, ids in rows):
            raise RuntimeError("no memory for this one")
        return forward(rows, wanted)

    model.forward_packed = fail  # type: ignore[method-assign]


def test_a_request_that_fails_ends_alone() -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    sampling = Sampling(max_new_tokens=6, stop_ids=())
    wanted = [run_alone(model, Request((1, 3), sampling)), run_alone(model, Request((4, 3), sampling))]
    break_at(model, 6)
    engine = make_engine(model, 4)
    handles = [engine.add(Request(prompt, sampling)) for prompt in ((1, 3), (6, 3), (4, 3))]
    with pytest.raises(RuntimeError, match="no memory"):
        handles[1].result()
    got = [handles[0].result(), handles[2].result()]
    assert [[one.ids for one in found] for found in got] == [[one.ids for one in found] for found in wanted]


def test_bad_logits_end_their_request_alone() -> None:
    model = fast(config_of({"unembedding": "linear"}, LONG) or ROPE, seed=3, dtype=torch.float32)
    with torch.no_grad():
        model.embed.weight[6] = torch.nan
    engine = make_engine(model, 4)
    good = engine.add(Request((1, 3), Sampling(max_new_tokens=3, stop_ids=())))
    bad = engine.add(Request((6, 3), Sampling(max_new_tokens=3, stop_ids=())))
    with pytest.raises(PellucidError, match="NaN"):
        bad.result()
    assert len(good.result()[0].ids) == 3


def test_an_interrupt_in_a_step_loses_no_request() -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    engine = make_engine(model, 2)
    handle = engine.add(Request((1, 3), Sampling(max_new_tokens=6, stop_ids=())))
    engine.step()
    forward = model.forward_packed

    def interrupt(rows: Any, wanted: Any) -> Any:
        forward(rows, wanted)
        raise KeyboardInterrupt

    model.forward_packed = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    model.forward_packed = forward  # type: ignore[method-assign]
    assert handle.result()[0].ids == run_alone(model, handle.request)[0].ids


def interrupt_once(module: Any, name: str, error: BaseException) -> None:
    """Makes a function of a module or an object fail at its next call alone."""
    function = getattr(module, name)

    def fail(*args: Any, **options: Any) -> Any:
        setattr(module, name, function)
        raise error

    setattr(module, name, fail)


def test_an_interrupt_in_a_draw_loses_no_request() -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    engine = make_engine(model, 2)
    handle = engine.add(Request((1, 3), Sampling(max_new_tokens=6, stop_ids=())))
    engine.step()
    interrupt_once(engine_module, "choose", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    assert handle.result()[0].ids == run_alone(model, handle.request)[0].ids


def test_an_interrupt_while_tokens_are_handed_out_ends_one_request_and_no_other() -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    engine, sampling = make_engine(model, 2), Sampling(max_new_tokens=6, stop_ids=())
    first, second = (engine.add(Request((1, id), sampling)) for id in (3, 4))
    engine.step()
    interrupt_once(first.strategy, "advance", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    wanted = [run_alone(model, handle.request)[0].ids for handle in (first, second)]
    assert [one.result()[0].ids for one in (first, second)] == [wanted[0][:1], wanted[1]]
    assert len(engine.slots.free) == 2


def test_a_draw_that_fails_ends_its_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    choose = engine_module.choose

    def fail(logits: Any, states: Any, **flags: Any) -> Any:
        if any(state.chain.seed == 13 for state in states):
            raise ZeroDivisionError
        return choose(logits, states, **flags)

    monkeypatch.setattr(engine_module, "choose", fail)
    engine = make_engine(model, 2)
    good, bad = (engine.add(Request((1,), Sampling(max_new_tokens=3, stop_ids=(), seed=s))) for s in (1, 13))
    with pytest.raises(ZeroDivisionError):
        bad.result()
    assert len(good.result()[0].ids) == 3


@pytest.mark.parametrize("error", [RuntimeError("no memory"), KeyboardInterrupt()])
def test_a_request_that_cannot_take_its_slots_neither_waits_for_ever_nor_keeps_them(
    error: BaseException,
) -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    engine = make_engine(model, 2)
    handle = engine.add(Request((1,), Sampling(max_new_tokens=3, n=2, temperature=1.0, stop_ids=())))
    take = engine.slots._take_prefix

    def fail_second(slot: int, source: int, shared: int) -> None:
        if len(handle.strategy.held) == 1:
            engine.slots._take_prefix = take  # type: ignore[method-assign]
            raise error
        take(slot, source, shared)

    engine.slots._take_prefix = fail_second  # type: ignore[method-assign]
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            engine.step()
        assert len(engine.slots.free) == 2
        assert [len(one.ids) for one in handle.result()] == [3, 3]
    else:
        with pytest.raises(RuntimeError, match="no memory"):
            handle.result()
    assert sorted(engine.slots.free) == [0, 1]


def test_an_engine_that_is_made_in_inference_mode_runs_in_its_own_thread() -> None:
    model = fast(ROPE, seed=3, dtype=torch.float32)
    with torch.inference_mode():
        engine = make_engine(model, 1)
    with engine:
        handle = engine.add(Request((1,), Sampling(max_new_tokens=2, stop_ids=())))
        assert len(handle.result()[0].ids) == 2


def test_a_cancelled_request_keeps_what_it_wrote_and_frees_its_slots() -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    engine = make_engine(model, 2)
    handle = engine.add(Request((1, 3), Sampling(max_new_tokens=9, n=2, temperature=1.0, stop_ids=())))
    waiting = engine.add(Request((1,), Sampling(max_new_tokens=9)))
    for _ in range(3):
        engine.step()
    for one in (handle, waiting):
        one.cancel()
    found = handle.result()
    assert [(len(one.ids), one.finish) for one in found] == [(3, "cancelled")] * 2
    assert waiting.result()[0].finish == "cancelled" and len(engine.slots.free) == 2


def test_log_probabilities_of_the_prompt_are_those_of_a_full_forward() -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3)
    prompt = (1, 2, 3, 4, 5, 6, 0, 1, 2)
    engine = Engine(model, slots=1, chunk=CHUNK, budget=4)
    handle = engine.add(Request(prompt, Sampling(max_new_tokens=0), prompt_logprobs=True))
    assert handle.result()[0].ids == ()
    with torch.no_grad():
        scores = torch.log_softmax(model(torch.tensor([prompt]))[0], -1)
    wanted = [float(scores[i, id]) for i, id in enumerate(prompt[1:])]
    assert handle.prompt_logprobs == pytest.approx(wanted, abs=1e-12)


def score_in_engine(model: Transformer, request: Request, **options: Any) -> Handle:
    handle = Engine(model, slots=3, chunk=CHUNK, **options).add(request)
    handle.result()
    return handle


def test_the_most_probable_tokens_of_a_prompt_hold_its_tokens_with_the_same_numbers() -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    prompt = (1, 2, 3, 4, 5, 6, 0, 1, 2, 2, 1)
    request = Request(prompt, Sampling(max_new_tokens=2), prompt_logprobs=True, top_logprobs=7)
    handle = score_in_engine(model, request, budget=4)
    assert len(handle.prompt_tops) == len(handle.prompt_logprobs) == len(prompt) - 1
    for id, logprob, top in zip(prompt[1:], handle.prompt_logprobs, handle.prompt_tops, strict=True):
        assert dict(top)[id] == logprob and len(top) == 7
        assert list(top) == sorted(top, key=lambda pair: (-pair[1], pair[0]))
    whole = score_in_engine(model, request)  # read in other portions
    assert (whole.prompt_logprobs, whole.prompt_tops) == (handle.prompt_logprobs, handle.prompt_tops)


@pytest.mark.parametrize(("most", "segments"), [(0, 1), (1, 1), (2, 5)])
def test_a_prompt_that_is_only_scored_is_read_in_one_call(most: int, segments: int) -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    prompt = tuple(place * place % 7 for place in range(20))
    engine = make_engine(model, 1, budget=40)
    handle = engine.add(Request(prompt, Sampling(max_new_tokens=most, stop_ids=()), prompt_logprobs=True))
    with pytest.MonkeyPatch.context() as patch:
        read, forward = list[int](), engine.slots.forward
        patch.setattr(
            engine.slots, "forward", lambda feeds: read.append(len(feeds[0].segments)) or forward(feeds)
        )
        engine.step()
    assert read == [segments]
    handle.result()
    with torch.no_grad():
        scores = torch.log_softmax(model(torch.tensor([prompt]))[0].double(), -1)
    wanted = [float(scores[i, id]) for i, id in enumerate(prompt[1:])]
    assert handle.prompt_logprobs == pytest.approx(wanted, abs=1e-5)


def test_the_scores_of_a_prompt_do_not_change_the_text_that_follows_it() -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    prompt = tuple(place * place % 7 for place in range(14))
    sampling = Sampling(max_new_tokens=8, temperature=1.0, seed=2, stop_ids=())
    plain, scored = (
        score_in_engine(model, Request(prompt, sampling, logprobs=True, prompt_logprobs=flag)).result()
        for flag in (False, True)
    )
    assert plain == scored


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 1.0, "n": 3, "seed": 1}, {"beams": 3, "n": 2}], ids=str
)
def test_the_most_probable_tokens_hold_the_chosen_one_with_the_same_number(settings: Any) -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    sampling = Sampling(max_new_tokens=5, stop_ids=(), **settings)
    request = Request((1, 2), sampling, logprobs=True, top_logprobs=7, uncertainty=True)
    handle = Engine(model, slots=3).add(request)
    tokens = list(handle)
    for one in handle.result():
        own = [token for token in tokens if token.choice == one.choice]
        assert [token.id for token in own] == list(one.ids)
        assert tuple(token.top for token in own) == one.top_logprobs
        for token, logprob in zip(own, one.logprobs, strict=True):
            assert dict(token.top)[token.id] == token.logprob == logprob
            assert token.uncertainty is not None and token.uncertainty.surprisal == -logprob
            assert [id for id, _ in token.top].index(token.id) == token.uncertainty.rank
    plain = Engine(model, slots=3).add(Request((1, 2), sampling)).result()
    assert [one.ids for one in plain] == [one.ids for one in handle.result()]


def test_a_prompt_whose_logits_are_not_numbers_is_refused() -> None:
    model = fast(ROPE, dtype=torch.float32)
    with torch.no_grad():
        next(model.parameters()).fill_(math.nan)
    handle = Engine(model, slots=1).add(Request((1, 2), Sampling(max_new_tokens=0), prompt_logprobs=True))
    with pytest.raises(UsageError, match="NaN"):
        handle.result()


def test_tokens_can_be_taken_between_two_steps() -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    engine = make_engine(model, 2)
    handle = engine.add(Request((1, 3), Sampling(max_new_tokens=9, stop_ids=())))
    taken = list[int]()
    while not handle.is_done:
        assert handle.take() == []
        engine.step()
        (token,) = handle.take()
        taken.append(token.id)
        assert (token.finish == "length") == handle.is_done
    assert tuple(taken) == handle.result()[0].ids and list(handle) == []


def test_a_request_that_is_cancelled_between_two_steps_has_no_slot_any_more() -> None:
    model = fast(config_of({}, LONG) or ROPE, seed=3, dtype=torch.float32)
    engine = make_engine(model, 1)
    first, second = (engine.add(Request((1, 3), Sampling(max_new_tokens=9, stop_ids=()))) for _ in range(2))
    engine.step()
    first.cancel()
    assert engine.slots.free and engine.n_waiting == 1
    engine.step()
    assert not engine.slots.free and engine.n_waiting == 0 and len(second.take()) == 1


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (Request(()), TokenError),
        (Request((7,)), TokenError),
        (Request((-1,)), TokenError),
        (Request((0,) * 9), TokenError),
        (Request((0,), Sampling(max_new_tokens=8)), TokenError),
        (Request((0,), Sampling(n=5, temperature=1.0)), UsageError),
        (Request((0,) * 9, Sampling(context="crop"), prompt_logprobs=True), UsageError),
    ],
)
def test_what_cannot_run_is_refused_before_it_waits(request_: Request, error: type[Exception]) -> None:
    engine = Engine(fast(ROPE), slots=4)
    with pytest.raises(error):
        engine.add(request_)
    assert not engine._waiting


def test_a_full_queue_and_a_large_cache_are_refused() -> None:
    model = fast(ROPE)
    engine = Engine(model, slots=1, queue=2)
    for _ in range(3):
        engine.add(Request((1,), Sampling(max_new_tokens=2)))
    with pytest.raises(ResourceError, match="wait already"):
        engine.add(Request((1,)))
    with pytest.raises(ResourceError, match="allowed"):
        Engine(model, slots=8, memory=1000)


def test_a_defect_in_the_engine_s_thread_ends_the_requests_and_not_the_thread() -> None:
    model = fast(ROPE, seed=3, dtype=torch.float32)
    with make_engine(model, 2) as engine:
        plan = engine._plan

        def fail() -> Any:
            engine._plan = plan  # type: ignore[method-assign]
            raise ZeroDivisionError

        engine._plan = fail  # type: ignore[method-assign]
        with pytest.raises(ZeroDivisionError):
            engine.add(Request((1,), Sampling(max_new_tokens=2))).result()
        assert len(engine.add(Request((1,), Sampling(max_new_tokens=2, stop_ids=()))).result()[0].ids) == 2


def test_a_stream_that_is_not_read_frees_its_slot_in_the_end() -> None:
    config = config_of({}, {**SIZES, "context_length": 4 * MOST_UNREAD})
    model = fast(config or ROPE, seed=3, dtype=torch.float32)
    with make_engine(model, 1, patience=0.2) as engine:
        left = engine.add(Request((1,), Sampling(max_new_tokens=3 * MOST_UNREAD, stop_ids=())))
        after = engine.add(Request((2,), Sampling(max_new_tokens=2, stop_ids=())))
        assert len(after.result()[0].ids) == 2
        assert left.is_done and left.strategy.completions()[0].finish == "cancelled"
