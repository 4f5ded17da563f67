"""Beyond the context a text is that of full forward passes over what its rule keeps."""

from itertools import islice
from typing import Any

import pytest
import torch

from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from tests.agreement.engines import CACHED, CHOICES, fast

ROPE = CHOICES["positions/rope"]
PROMPTS = [[1, 3, 1], [5], [0, 2, 4, 4, 6]]


def generate(model: Transformer, prompts: list[list[int]], **settings: Any) -> list[list[int]]:
    engine, sampling = Engine(model, slots=2), Sampling(**settings)
    handles = [engine.add(Request(tuple(prompt), sampling), streams=False) for prompt in prompts]
    return [list(handle.result()[0].ids) for handle in handles]


def slide(model: Transformer, prompt: list[int], count: int, keep: int = 0) -> list[int]:
    """Greedy text by full forward passes over a window: when it is full, its first `keep` tokens and the last
    half of the others go on."""
    room, prefix = model.config.context_length, int(model.config.mask.bidirectional_prefix)
    half = max((room - keep) // 2, prefix - keep, 1)
    window, written = list(prompt), list[int]()
    with torch.no_grad():
        for _ in range(count):
            window = [*window[:keep], *window[-half:]] if len(window) > room else window
            written.append(int(model(torch.tensor([window]))[0, -1].argmax()))
            window.append(written[-1])
    return written


@pytest.mark.rotating
@pytest.mark.parametrize("name", CACHED)
def test_a_cropped_text_is_that_of_full_forwards_over_its_last_half(name: str) -> None:
    model = fast(CACHED[name], seed=3)
    room = model.config.context_length
    prompts = [[1, 3, 1], [5] * room, [1, 2, 3, 4] * room]
    wanted = [slide(model, prompt, 2 * room) for prompt in prompts]
    assert generate(model, prompts, max_new_tokens=2 * room, context="crop") == wanted


@pytest.mark.parametrize("keep", [1, 5])
def test_a_rolled_text_keeps_its_first_tokens(keep: int) -> None:
    model = fast(ROPE, seed=3)
    wanted = [slide(model, prompt, 20, keep) for prompt in PROMPTS]
    assert generate(model, PROMPTS, max_new_tokens=20, context="roll", keep=keep) == wanted


def test_a_text_beyond_the_context_still_ends_with_a_stop_token() -> None:
    model = fast(ROPE, seed=3)
    free = generate(model, PROMPTS, max_new_tokens=20, context="crop")
    stop = free[0][12]
    ended = generate(model, PROMPTS, max_new_tokens=20, context="crop", stop_ids=[stop])
    for text, whole in zip(ended, free, strict=True):
        assert text == (whole[: whole.index(stop) + 1] if stop in whole else whole)


def test_asking_for_any_number_allocates_no_more_than_the_context() -> None:
    model = fast(ROPE)
    endless = Request((1,), Sampling(max_new_tokens=10**9, context="crop"))
    engine = Engine(model, slots=1)
    before = engine.slots.cache.bytes
    assert len(list(islice(engine.add(endless), 50))) == 50 and engine.slots.cache.bytes == before
    assert len(generate(model, [[1]])[0]) == model.config.context_length - 1


def test_a_cropped_context_is_on_the_record() -> None:
    engine = Engine(fast(ROPE), slots=1)
    request = Request((1, 2, 3), Sampling(max_new_tokens=8, context="crop"), ledger=True)
    entries = engine.add(request).result()[0].entries
    assert [step for step, entry in enumerate(entries) if "context full" in entry.note] == [6]
