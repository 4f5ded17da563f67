"""The engine: requests of any kind run together, each as it would be alone."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from pellucid.generation.engine import Engine
from pellucid.generation.request import Completion, Request
from pellucid.generation.sampling import Sampling
from tests.agreement.engines import CACHED, CHOICES, fast

ROPE = CHOICES["positions/rope"]


def run_alone(model: Any, request: Request, **options: Any) -> list[Completion]:
    return Engine(model, slots=request.sampling.n, **options).add(request).result()


def greedy(model: Any, prompt: Sequence[int], count: int) -> list[int]:
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
    found = run_alone(model, Request(tuple(prompt), Sampling(max_new_tokens=count)))
    assert list(found[0].ids) == greedy(model, prompt, count)
