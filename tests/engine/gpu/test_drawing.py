"""Tokens drawn on the device are those that the host draws, from the same logits and numbers u."""

import itertools
from typing import Any

import pytest
import torch

from pellucid.config import ModelConfig
from pellucid.engine.gpu.buffers import RING, Buffers
from pellucid.engine.gpu.drawing import DrawBuffers, DrawSettings
from pellucid.generation.ahead import make_draw_settings
from pellucid.generation.samplers.chain import Chain, ChainState, Chosen, choose
from pellucid.generation.samplers.drawn_token import draw_uniform, draw_uniforms
from pellucid.generation.settings.sampling import Sampling

SIZE = 97
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
    logits = torch.randn(count, SIZE) * 3
    if kind == "ties":
        return logits.round()
    if kind == "removed":
        return logits.masked_fill(torch.rand_like(logits) < 0.5, -torch.inf)
    return torch.zeros_like(logits) if kind == "equal" else logits


def draw(
    device: torch.device,
    logits: torch.Tensor,
    settings: list[DrawSettings | None],
    numbers: torch.Tensor,
    steps: list[int],
) -> list[int]:
    """Returns the token that the kernels draw of each row; rows beyond the settings have no text."""
    from pellucid.engine.gpu.step import list_draws

    count, size = logits.shape
    config = ModelConfig(vocab_size=size, context_length=4, n_layer=1, n_head=1, d_model=4)
    buffers, draws = Buffers(config, count, device, 1), DrawBuffers(size, count, RING, device)
    buffers.logits.copy_(logits)
    shown = logits.masked_fill(logits.isnan(), torch.inf)
    buffers.best.fill_(-torch.inf)[:, 0] = shown.amax(-1)
    buffers.slots.fill_(-1)[: len(settings)] = 0
    buffers.steps.copy_(torch.tensor(steps))
    buffers.chosen.fill_(-7)
    draws.write(settings)
    draws.u.copy_(numbers)
    for _ in range(2):  # the second time, the bins must be as the first time found them
        for launch in list_draws(buffers, draws, count, buffers.best.shape[1]):
            launch.run(False)
    assert not draws.counts.any() and not draws.weights.any() and not draws.kept.any()
    return [int(id) for id in buffers.chosen]


@pytest.mark.parametrize("kind", ["random", "ties", "equal", "removed"])
@pytest.mark.parametrize("step", [0, RING - 1])
def test_draws_are_those_of_the_host(kind: str, step: int, device: torch.device) -> None:
    """Rows with different samplers, drawn together; each at its own step."""
    cases = list(itertools.product(SETTINGS, range(4 if device.type == "cpu" else 20)))
    chains = [Chain.make(Sampling(**given, seed=seed), (), SIZE, (), seed) for given, seed in cases]
    logits, steps = make_logits(kind, len(cases)), [step + place % 3 for place in range(len(cases))]
    numbers = torch.zeros(RING, len(cases) + 1, dtype=torch.float64)
    for place, (chain, at) in enumerate(zip(chains, steps, strict=True)):
        numbers[at % RING, place] = draw_uniform(chain.seed, 0, at)
    settings = [make_draw_settings(chain) for chain in chains]
    drawn = draw(device, torch.cat([logits, logits[:1]]), settings, numbers, [*steps, 0])
    states = [ChainState(chain, 0, [0] * at) for chain, at in zip(chains, steps, strict=True)]
    expected = [token.id if isinstance(token, Chosen) else token for token in choose(logits, states)]
    assert drawn == [*expected, -7]


@pytest.mark.parametrize("spread", [0.0, 1e-3, 3.0])
def test_draws_from_many_tokens_are_those_of_the_host(spread: float, device: torch.device) -> None:
    """Several programs fill the bins; of scores that hardly differ, one bin has several chunks."""
    size = 2503 if device.type == "cpu" else 50_021  # no border at a whole number of equal tokens
    logits = torch.randn(len(SETTINGS), size, generator=torch.Generator().manual_seed(1)) * spread
    chains = [Chain.make(Sampling(**given, seed=5), (), size, (), 5) for given in SETTINGS]
    numbers = torch.full((RING, len(chains)), draw_uniform(5, 0, 0), dtype=torch.float64)
    drawn = draw(device, logits, [make_draw_settings(chain) for chain in chains], numbers, [0] * len(chains))
    found = choose(logits, [ChainState(chain, 0, []) for chain in chains])
    assert drawn == [token.id if isinstance(token, Chosen) else token for token in found]


@pytest.mark.filterwarnings("ignore:invalid value")
def test_rows_with_logits_that_are_not_numbers_draw_within_bounds(device: torch.device) -> None:
    """A GPU ends the process where an index is out of bounds."""
    logits = torch.randn(6, 11)
    logits[0, 3] = logits[1, 0] = logits[5] = torch.nan
    logits[2, 4] = torch.inf
    logits[3] = -torch.inf
    settings = [DrawSettings(0.7, top_k=3), DrawSettings(1.0, top_p=0.5), DrawSettings(), None, None, None]
    drawn = draw(device, logits, settings, torch.zeros(RING, 6, dtype=torch.float64), [0] * 6)
    assert all(0 <= id < 11 for id in drawn)
    assert drawn[4] == logits[4].argmax()


@pytest.mark.parametrize(("seed", "choice", "start"), [(0, 0, 0), (7, 3, 11), (2**64 - 1, 1, 2**20)])
def test_numbers_of_successive_tokens_are_those_of_each(seed: int, choice: int, start: int) -> None:
    found = draw_uniforms(seed, choice, start, 9)
    assert found.tolist() == [draw_uniform(seed, choice, start + place) for place in range(9)]


def test_no_numbers_are_drawn_for_no_tokens() -> None:
    assert draw_uniforms(1, 0, 5, 0).shape == (0,)
