"""Tokens drawn on the device are those that the host draws, from the same logits and numbers u."""

import itertools
from typing import Any

import pytest
import torch

from pellucid.generation.ahead import make_draw_settings
from pellucid.generation.samplers.chain import Chain, ChainState, Chosen, choose, draw_uniform, draw_uniforms
from pellucid.generation.settings.sampling import Sampling
from pellucid.gpu.drawing import DrawBuffers, DrawSettings, draw

RING = 4
SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.01},
    {"temperature": 30.0},
    {"temperature": 0.7, "top_k": 1},
    {"temperature": 1.3, "top_k": 7},
    {"temperature": 1.0, "top_k": 10_000},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 1.0, "top_p": 0.0},
    {"temperature": 1.5, "min_p": 0.2},
    {"temperature": 1.5, "min_p": 1.0},
    {"temperature": 0.9, "top_k": 20, "top_p": 0.8, "min_p": 0.05},
]


def make_logits(kind: str, count: int) -> torch.Tensor:
    torch.manual_seed(count)
    logits = torch.randn(count, 97) * 3
    if kind == "ties":
        return logits.round()
    if kind == "removed":
        return logits.masked_fill(torch.rand_like(logits) < 0.5, -torch.inf)
    return torch.zeros_like(logits) if kind == "equal" else logits


@pytest.mark.parametrize("kind", ["random", "ties", "equal", "removed"])
@pytest.mark.parametrize("step", range(RING + 2))
def test_draws_are_those_of_the_host(kind: str, step: int) -> None:
    """Rows with different samplers, drawn together; each at its own step."""
    cases = list(itertools.product(SETTINGS, range(20)))
    chains = [Chain.make(Sampling(**given, seed=seed), (), 97, (), seed) for given, seed in cases]
    logits, steps = make_logits(kind, len(cases)), [step + place % 3 for place in range(len(cases))]
    buffers = DrawBuffers(len(cases) + 1, RING, torch.device("cpu"))
    buffers.write([make_draw_settings(chain) for chain in chains])
    for place, (chain, at) in enumerate(zip(chains, steps, strict=True)):
        buffers.u[at % RING, place] = draw_uniform(chain.seed, 0, at)
    chosen = torch.full((len(cases) + 1,), -7)
    draw(logits, torch.tensor([*steps, 0], dtype=torch.int32), buffers, chosen)
    states = [ChainState(chain, 0, [0] * at) for chain, at in zip(chains, steps, strict=True)]
    expected = [token.id if isinstance(token, Chosen) else token for token in choose(logits, states)]
    assert chosen.tolist() == [*expected, -7]


def test_rows_without_a_text_or_with_logits_that_are_not_numbers_draw_within_bounds() -> None:
    """A GPU ends the process where an index is out of bounds."""
    buffers, chosen = DrawBuffers(8, RING, torch.device("cpu")), torch.full((8,), -7)
    buffers.write([DrawSettings(0.7, top_k=3), DrawSettings(1.0, top_p=0.5), DrawSettings(), None])
    logits = torch.randn(8, 11)
    logits[0, 3] = logits[1, 0] = logits[5] = torch.nan
    logits[2, 4] = torch.inf
    logits[3] = -torch.inf
    draw(logits, torch.zeros(8, dtype=torch.int32), buffers, chosen)
    assert all(0 <= id < 11 for id in chosen.tolist())
    assert chosen[[4, 6, 7]].tolist() == logits[[4, 6, 7]].argmax(-1).tolist()


@pytest.mark.parametrize(("seed", "choice", "start"), [(0, 0, 0), (7, 3, 11), (2**64 - 1, 1, 2**20)])
def test_numbers_of_successive_tokens_are_those_of_each(seed: int, choice: int, start: int) -> None:
    found = draw_uniforms(seed, choice, start, 9)
    assert found.tolist() == [draw_uniform(seed, choice, start + place) for place in range(9)]


def test_no_numbers_are_drawn_for_no_tokens() -> None:
    assert draw_uniforms(1, 0, 5, 0).shape == (0,)
