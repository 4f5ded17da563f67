"""An engine that decodes ahead on the device gives the texts that the module gives."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from pellucid.base.errors import UsageError
from pellucid.engine.gpu.decoder import GpuDecoder
from pellucid.engine.gpu.loop import DecodeLoop
from pellucid.engine.taps import edit, record
from pellucid.engine.transformer import Transformer
from pellucid.generation import ahead
from pellucid.generation.request import Completion, Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.text.kinds import train
from tests.engine.gpu.models import make_module

SIZES = {"vocab_size": 23, "d_model": 16, "n_head": 2, "n_kv_head": 1, "d_ff": 24}


@pytest.fixture
def module(device: torch.device) -> Transformer:
    return make_module(device, **SIZES)


@pytest.fixture
def launched(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets the number of texts of every step that the device runs by itself."""
    launch, counts = DecodeLoop.launch, list[int]()

    def count(loop: DecodeLoop) -> None:
        counts.append(len(loop.texts))
        launch(loop)

    monkeypatch.setattr(DecodeLoop, "launch", count)
    return counts


def make_engine(model: Transformer | GpuDecoder, **options: Any) -> Engine:
    return Engine(model, **{"slots": 4, "chunk": 4, "cache_dtype": torch.float32, **options})


def show(completions: Sequence[Completion]) -> list[tuple[tuple[int, ...], str | None]]:
    return [(tuple(one.ids), one.finish) for one in completions]


def run_alone(module: Transformer, request: Request, **options: Any) -> Any:
    return show(make_engine(module, **options).add(request).result())


def make_request(*prompt: int, count: int = 8, **given: Any) -> Request:
    return Request(prompt, Sampling(max_new_tokens=count, **given))


REQUESTS = {
    "greedy": make_request(1, 2, 3),
    "sampled": make_request(5, 6, temperature=1.2, top_k=20, top_p=0.95, min_p=0.01, seed=5),
    "two choices": make_request(7, 8, temperature=1.5, seed=6, n=2),
}


def test_texts_together_are_the_modules_and_chosen_ahead(module: Transformer, launched: list[int]) -> None:
    engine = make_engine(GpuDecoder(module, 4))
    handles = [engine.add(request) for request in REQUESTS.values()]
    found = [show(handle.result()) for handle in handles]
    assert found == [run_alone(module, request) for request in REQUESTS.values()]
    assert engine.runs_ahead and launched and max(launched) == 4


def test_three_sampled_texts_run_in_a_bucket_of_four(module: Transformer, launched: list[int]) -> None:
    request = make_request(2, 3, count=4, temperature=1.0, seed=1, n=3)
    engine = make_engine(GpuDecoder(module, 4))
    assert show(engine.add(request).result()) == run_alone(module, request)
    assert engine.runs_ahead and launched == [3, 3, 3]


def test_a_stop_token_ends_a_text_and_its_slot_is_used_again(
    module: Transformer, launched: list[int]
) -> None:
    """A later request shares the prefix of a text of which tokens were computed in vain."""
    [(ids, _)] = run_alone(module, REQUESTS["greedy"])
    stop, prompt = ids[3], REQUESTS["greedy"].prompt
    request = Request(prompt, Sampling(max_new_tokens=12, stop_ids=(stop,)))
    engine = make_engine(GpuDecoder(module, 4), slots=1, chunk=2)
    [(found, finish)] = show(engine.add(request).result())
    assert (found, finish) == (tuple(run_alone(module, request)[0][0]), "stop")
    assert len(launched) > 3  # in vain
    longer = make_request(*prompt, *ids[:2], 9, count=4)
    assert show(engine.add(longer).result()) == run_alone(module, longer, slots=1, chunk=2)
    assert not engine.step()
    assert engine.slots.cache.host_lengths.tolist() == [len(engine.slots.tokens[0])]
    assert engine.runs_ahead


def test_a_stop_string_ends_a_text_where_the_modules_ends(device: torch.device) -> None:
    tokenizer = train("bytes", [])
    module = make_module(device, **SIZES | {"vocab_size": tokenizer.vocab_size})
    plain = make_request(65, 66, count=12, temperature=1.0, seed=2)
    [one] = make_engine(module, tokenizer=tokenizer).add(plain).result()
    stop = next(letter for letter in one.text[1:] if letter.isascii())
    request = make_request(65, 66, count=12, temperature=1.0, seed=2, stop=(stop,))
    found, expected = (
        make_engine(model, tokenizer=tokenizer).add(request).result()[0]
        for model in (GpuDecoder(module, 1), module)
    )
    assert (found.text, found.ids, found.finish) == (expected.text, expected.ids, "stop")


def test_a_cancelled_request_leaves_the_others_as_they_are(module: Transformer) -> None:
    engine = make_engine(GpuDecoder(module, 4))
    kept, dropped = engine.add(REQUESTS["greedy"]), engine.add(make_request(4, count=20))
    tokens = iter(dropped)
    for _ in range(3):
        next(tokens)
    dropped.cancel()
    assert show(kept.result()) == run_alone(module, REQUESTS["greedy"])
    [(ids, finish)] = show(dropped.result())
    assert finish == "cancelled"
    assert ids == run_alone(module, make_request(4, count=20))[0][0][: len(ids)]
    assert engine.runs_ahead and len(engine.slots.free) == 4


def test_a_request_joins_while_others_run_ahead(module: Transformer, launched: list[int]) -> None:
    engine, first = make_engine(GpuDecoder(module, 4)), make_request(1, 2, 3, count=14)
    one = engine.add(first)
    tokens = iter(one)
    for _ in range(3):
        next(tokens)
    two = engine.add(REQUESTS["sampled"])
    assert show(two.result()) == run_alone(module, REQUESTS["sampled"])
    assert show(one.result()) == run_alone(module, first)
    assert {1, 2} <= {*launched} and engine.runs_ahead


@pytest.mark.parametrize("mask", ["causal", {"kind": "window", "size": 5}], ids=["causal", "ring"])
def test_a_full_context_is_cropped_and_read_again(device: torch.device, mask: Any) -> None:
    module = make_module(device, **SIZES | {"context_length": 12, "mask": mask})
    request = make_request(*range(1, 10), count=7, context="crop", temperature=0.9, seed=3)
    engine = make_engine(GpuDecoder(module, 1), slots=1)
    assert show(engine.add(request).result()) == run_alone(module, request, slots=1)
    assert engine.runs_ahead


def test_a_request_with_a_ledger_has_it_beside_one_without(module: Transformer, launched: list[int]) -> None:
    engine, sampled = make_engine(GpuDecoder(module, 4)), REQUESTS["sampled"]
    written = Request(sampled.prompt, Sampling(max_new_tokens=3, temperature=1.2, seed=5), ledger=True)
    handles = [engine.add(REQUESTS["greedy"]), engine.add(written)]
    plain, noted = (handle.result() for handle in handles)
    assert show(plain) == run_alone(module, REQUESTS["greedy"])
    assert show(noted) == run_alone(module, written)
    assert len(noted[0].entries) == 3
    assert {*launched} == {1}  # when the other has ended


def test_a_nan_ends_one_request_with_one_error(device: torch.device, launched: list[int]) -> None:
    """The embedding of a token is not a number: its text fails where it reads it."""
    module = make_module(device, **SIZES | {"unembedding": "linear"})
    requests = [REQUESTS["greedy"], make_request(9, 4)]
    (bad, _), (good, _) = (run_alone(module, request)[0] for request in requests)
    token = next(id for id in bad[1:-2] if id not in (*good, *requests[0].prompt, *requests[1].prompt))
    with torch.no_grad():
        module.get_parameter("embed.weight")[token] = torch.nan
    engine = make_engine(GpuDecoder(module, 4))
    failing, going = (engine.add(request) for request in requests)
    for _ in range(60):
        engine.step()
    assert failing.is_done and going.is_done
    with pytest.raises(UsageError, match="NaN"):
        failing.result()
    assert show(going.result()) == [(good, "length")]
    assert launched and engine.runs_ahead


def test_more_texts_than_a_step_has_are_decoded_here(module: Transformer, launched: list[int]) -> None:
    request = make_request(7, 8, count=3, temperature=1.5, seed=6, n=3)
    engine = make_engine(GpuDecoder(module, 2))
    assert show(engine.add(request).result()) == run_alone(module, request)
    assert launched == [] and engine.runs_ahead


def test_a_cache_of_integers_is_not_decoded_ahead(module: Transformer, launched: list[int]) -> None:
    request = make_request(1, 2, count=3)
    engine = make_engine(GpuDecoder(module, 2), cache_dtype=torch.int8)
    assert show(engine.add(request).result()) == run_alone(module, request, cache_dtype=torch.int8)
    assert launched == []


def test_a_watched_module_is_recorded_and_edited(module: Transformer, launched: list[int]) -> None:
    engine, request = make_engine(GpuDecoder(module, 2)), make_request(1, 2, count=3)
    with record("blocks.0.resid_post", fused=True, model=module) as seen:
        plain = show(engine.add(request).result())
    assert seen["blocks.0.resid_post"] is not None and plain == run_alone(module, request)
    with edit("blocks.0.attn.z", lambda z: 3 * z, model=module):
        changed = show(engine.add(request).result())
        assert changed == run_alone(module, request)
    assert launched == []


def test_two_engines_of_one_decoder_do_not_mix_their_texts(module: Transformer) -> None:
    decoder = GpuDecoder(module, 2)
    requests = [make_request(1, 2, 3, count=10), make_request(9, 4, count=6)]
    one, two = (make_engine(decoder, slots=1) for _ in requests)
    first = one.add(requests[0])
    tokens = iter(first)
    next(tokens), next(tokens)
    assert show(two.add(requests[1]).result()) == run_alone(module, requests[1])
    assert show(first.result()) == run_alone(module, requests[0])


def test_why_a_request_is_decoded_here_is_said(module: Transformer) -> None:
    engine = make_engine(module)
    reasons = {
        "the ledger": Request((1,), ledger=True),
        "log-probabilities": Request((1,), logprobs=True),
        "beams or drafts": make_request(1, beams=2),
        "the sampler repetition_penalty": make_request(1, repetition_penalty=1.5),
        None: REQUESTS["sampled"],
    }
    for reason, request in reasons.items():
        assert ahead.find_host_reason(engine.add(request)) == reason
