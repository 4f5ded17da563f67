"""Beam search in the engine finds what a search over full forwards finds, whatever runs beside it."""

import dataclasses
import itertools
import random
import re
from typing import Any

import pytest
import torch

from pellucid.base.errors import UsageError
from pellucid.config import ModelConfig
from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Completion, Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.strategies.beam_search import BeamSearch
from pellucid.model import load
from tests.agreement.engines import fast

SIZES = {"vocab_size": 8, "context_length": 32, "n_layer": 2, "n_head": 2, "d_model": 16, "d_ff": 24}
CACHES: dict[str, tuple[dict[str, Any], torch.dtype]] = {
    "float32": ({}, torch.float32),
    "int8": ({}, torch.int8),
    "ring": ({"mask": {"kind": "window", "size": 4}}, torch.float32),
    "linear attention": ({"attention": "linear_elu"}, torch.float32),
}
BEAMS = Sampling(beams=3, n=2, max_new_tokens=7, length_penalty=0.5, stop_ids=(2,))


def make_model(seed: int = 1, **changes: Any) -> Transformer:
    return fast(ModelConfig.from_dict(SIZES | changes), seed=seed, dtype=torch.float32)


def run_alone(model: Transformer, request: Request, **options: Any) -> list[Completion]:
    return Engine(model, slots=request.sampling.beams, chunk=4, **options).add(request).result()


@torch.inference_mode()
def search_by_full_forwards(model: Transformer, prompt: tuple[int, ...], sampling: Sampling) -> BeamSearch:
    search = BeamSearch(
        sampling.beams,
        sampling.max_new_tokens or 0,
        n=sampling.n,
        length_penalty=sampling.length_penalty,
        early_stopping=sampling.early_stopping,
        stop_ids=frozenset(sampling.stop_ids or ()),
    )
    while not search.is_done:
        texts = torch.tensor([[*prompt, *beam.ids] for beam in search.running])
        search.step(torch.log_softmax(model(texts)[:, -1].double(), -1))
    return search


@pytest.mark.parametrize("name", [name for name in CACHES if name != "int8"])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_beams_in_slots_are_those_of_full_forwards(name: str, early_stopping: bool) -> None:
    """Rows of a cache are copied from beam to beam, also rings and the states of linear attention."""
    changes, dtype = CACHES[name]
    for seed in range(2):
        model, prompt = make_model(seed, **changes), (1, 3, 4, 1, 5, seed)
        sampling = dataclasses.replace(BEAMS, beams=6, n=5, early_stopping=early_stopping)
        found = run_alone(model, Request(prompt, sampling), cache_dtype=dtype)
        search = search_by_full_forwards(model, prompt, sampling)
        assert [one.ids for one in found] == [one.ids for one in search.best()]
        assert [one.finish for one in found] == [one.finish for one in search.best()]
        assert [one.score for one in found] == pytest.approx([one.score for one in search.best()], abs=1e-5)


def test_beams_find_the_best_of_all_texts_of_a_model() -> None:
    model = make_model(vocab_size=4)
    sampling = Sampling(beams=16, n=3, max_new_tokens=3, length_penalty=0.5, stop_ids=(2,))
    with torch.inference_mode():
        scores = []
        for size in (1, 2, 3):
            for ids in itertools.product(range(4), repeat=size):
                if 2 in ids[:-1] or (size < 3 and ids[-1] != 2):
                    continue
                logits = model(torch.tensor([[1, 3, *ids]]))[0].double()
                own = torch.log_softmax(logits[1:-1], -1)[range(size), list(ids)]
                scores.append((float(own.sum()) / size**0.5, ids))
    found = run_alone(model, Request((1, 3), sampling))
    assert [one.ids for one in found] == [ids for _, ids in sorted(scores, reverse=True)[:3]]


@pytest.mark.parametrize("name", CACHES)
def test_beams_and_other_requests_run_together_each_as_alone(name: str) -> None:
    """Requests join in any order, some are cancelled, and every slot is free again."""
    changes, dtype = CACHES[name]
    model, rng = make_model(**changes), random.Random(name)
    requests = []
    for _ in range(10):
        prompt = tuple(rng.randrange(8) for _ in range(rng.randint(1, 9)))
        kind = rng.randrange(3)
        sampling = Sampling(
            beams=rng.randint(2, 4) if kind else 1,
            n=2 if kind else 1,
            length_penalty=rng.choice([0.0, 1.0, -0.5]),
            early_stopping=rng.random() < 0.5,
            repetition_penalty=rng.choice([1.0, 1.4]),
            max_new_tokens=rng.randint(1, 8),
            stop_ids=rng.choice([(), (2,), (1, 5)]),
        )
        requests.append(Request(prompt, sampling, logprobs=rng.random() < 0.5, prompt_logprobs=kind == 2))
    engine = Engine(model, slots=5, chunk=4, budget=8, cache_dtype=dtype)
    handles = []
    for request in requests:
        handles.append(engine.add(request))
        cancelled = engine.add(Request((1, 2, 3), BEAMS))
        for _ in range(rng.randint(0, 3)):
            engine.step()
        cancelled.cancel()
    for request, handle in zip(requests, handles, strict=True):
        alone = run_alone(model, request, cache_dtype=dtype)
        assert [dataclasses.replace(one, seed=0) for one in handle.result()] == [
            dataclasses.replace(one, seed=0) for one in alone
        ]
    assert sorted(engine.slots.free) == list(range(5))


def test_a_search_has_a_tree_scores_and_log_probabilities() -> None:
    model = make_model()
    found = run_alone(model, Request((1, 3, 4), BEAMS, logprobs=True, ledger=True))
    for completion in found:
        assert completion.node is not None and completion.score is not None
        node = completion.beams[completion.node]
        assert node.final == completion.score
        assert sum(completion.logprobs) == pytest.approx(node.score)
        assert completion.score == pytest.approx(sum(completion.logprobs) / len(completion.ids) ** 0.5)
    assert found[0].score > found[1].score  # type: ignore[operator]


def test_banned_tokens_are_missing_and_the_others_count_as_before() -> None:
    """Nothing is normalized again, so that a text without banned tokens has the score that it had."""
    model = make_model()
    plain = run_alone(model, Request((1, 3, 4), BEAMS))
    banned = next(id for id in range(8) if id not in plain[0].ids and id != 2)
    again = run_alone(model, Request((1, 3, 4), dataclasses.replace(BEAMS, banned_tokens=(banned,))))
    assert again[0].ids == plain[0].ids and again[0].score == plain[0].score


def test_a_stop_text_ends_a_beam_and_is_not_part_of_its_text() -> None:
    model = load("abcd")
    plain = Sampling(beams=2, n=2, max_new_tokens=4, stop_ids=())
    engine = Engine(model.module, model.tokenizer)
    prompt = tuple(model.encode("A B"))
    text = engine.add(Request(prompt, plain)).result()[0].text
    stop = text.strip()[2]
    found = engine.add(Request(prompt, dataclasses.replace(plain, stop=(stop,)))).result()
    assert "stop" in [one.finish for one in found]
    for one in found:
        assert stop not in one.text
        assert (one.finish == "stop") == (one.ids[-1] == model.encode(stop)[0])


def test_every_beam_of_a_constraint_fits_it() -> None:
    model = load("abcd")
    sampling = Sampling(beams=3, n=3, max_new_tokens=5, regex=r" ?(A |B )*(C|D)")
    engine = Engine(model.module, model.tokenizer)
    found = engine.add(Request(tuple(model.encode("A B")), sampling)).result()
    assert len({one.ids for one in found}) == len(found) == 3
    assert all(re.fullmatch(r" ?(A |B )*(C|D)", one.text) for one in found)


def test_a_cancelled_search_keeps_its_best_beams() -> None:
    engine = Engine(make_model(), slots=3)
    handle = engine.add(Request((1, 3), dataclasses.replace(BEAMS, stop_ids=())))
    for _ in range(3):
        engine.step()
    handle.cancel()
    assert [(len(one.ids), one.finish) for one in handle.result()] == [(3, "cancelled")] * 2
    assert len(engine.slots.free) == 3


def test_beams_without_any_token_left_are_an_error() -> None:
    sampling = dataclasses.replace(BEAMS, banned_tokens=tuple(range(8)))
    with pytest.raises(UsageError, match="every token"):
        run_alone(make_model(), Request((1, 3), sampling))


def test_an_interrupt_while_texts_are_emitted_emits_no_token_twice() -> None:
    model, request = make_model(), Request((1, 3), BEAMS)
    wanted = run_alone(model, request)[0].ids
    handle = Engine(model, slots=3, chunk=4).add(request)
    emit, count = handle.strategy.job.emit, itertools.count()

    def interrupt(token: Any) -> None:
        if next(count) == 1:
            raise KeyboardInterrupt
        emit(token)

    handle.strategy.job.emit = interrupt
    with pytest.raises(KeyboardInterrupt):
        handle.result()
    assert handle.result()[0].ids == wanted[:2]


def test_the_first_bad_logit_of_a_beam_is_named() -> None:
    model = make_model()
    with torch.no_grad():
        model.embed.weight[1] = torch.nan
    with pytest.raises(UsageError, match="the logit of token 0 is NaN"):
        Engine(model, slots=2).add(Request((1, 3), Sampling(beams=2, max_new_tokens=2))).result()


def test_more_beams_than_slots_are_refused() -> None:
    with pytest.raises(UsageError, match="slots"):
        Engine(make_model(), slots=2).add(Request((1,), BEAMS))
