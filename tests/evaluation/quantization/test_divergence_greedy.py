"""Where greedy texts depart: the same place as when both models write their own."""

import pytest
import torch

from pellucid.evaluation.quantization.divergence import NEW_TOKENS, find_departures
from pellucid.model import Model
from tests.evaluation.quantization.small_bills import make_exact
from tests.evaluation.small_models import make_model

PROMPTS = [("a", [5, 6, 7]), ("b", [40, 2]), ("c", [9] * 12)]


def write_greedy(model: Model, prompt: list[int], count: int) -> list[int]:
    """The greedy text without a cache."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            ids.append(int(model.module(torch.tensor([ids]))[0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("seed", [1, 2])
def test_the_texts_depart_where_both_models_own_texts_do(seed: int) -> None:
    reference, other = make_model(context_length=48), make_model(context_length=48)
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in other.module.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=noise))
    found = find_departures(reference.module, other.module, PROMPTS, str)
    assert [text.document for text in found] == ["a", "b", "c"]
    for text, (_, prompt) in zip(found, PROMPTS, strict=True):
        count = min(NEW_TOKENS, 48 - len(prompt))
        ours, theirs = (write_greedy(model, prompt, count) for model in (reference, other))
        wanted = next((i for i in range(count) if ours[i] != theirs[i]), None)
        assert (text.n_tokens, text.departs_at) == (count, wanted)
        if wanted is not None:
            assert (text.reference_token, text.token) == (str(ours[wanted]), str(theirs[wanted]))
    assert any(text.departs_at is not None for text in found)


def test_equal_models_never_depart() -> None:
    model = make_exact(make_model())
    found = find_departures(model.module, make_exact(make_model()).module, PROMPTS, str)
    assert [text.departs_at for text in found] == [None] * 3


def test_a_text_ends_with_its_stop_token() -> None:
    model = make_model()
    first = write_greedy(model, PROMPTS[0][1], 1)
    (found,) = find_departures(model.module, model.module, PROMPTS[:1], str, stop_ids=first)
    assert (found.n_tokens, found.departs_at) == (1, None)


def test_a_prompt_that_fills_the_context_is_omitted() -> None:
    model = make_model(context_length=16)
    assert find_departures(model.module, model.module, [("long", [1] * 16)], str) == ()
