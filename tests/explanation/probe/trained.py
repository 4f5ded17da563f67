"""Models that were really trained: a stream of letters in which most repeat the one twenty places before."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pellucid.config import ModelConfig
from pellucid.engine.loss import loss
from pellucid.engine.transformer import Transformer
from pellucid.formats.pretrained import Pretrained, Provenance
from pellucid.text.word_level import WordTokenizer

LETTERS = tuple("abcdefghijklmnop")
DISTANCE, SURPRISES = 20, 0.15
STEPS, ROWS, RATE = 200, 16, 1e-2
CONFIG: dict[str, Any] = {
    "vocab_size": 16, "context_length": 96, "n_layer": 1, "n_head": 4, "d_model": 32, "d_ff": 64,
}  # fmt: skip


def draw_stream(count: int, seed: int) -> list[int]:
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(LETTERS), count)
    for at in np.flatnonzero(rng.random(count) > SURPRISES):
        if at >= DISTANCE:
            drawn[at] = drawn[at - DISTANCE]
    return [int(id) for id in drawn]


TEXT = " ".join(LETTERS[id] for id in draw_stream(2500, seed=9))


@functools.cache
def _train(changes: str) -> Pretrained:
    config = ModelConfig.from_json(changes)
    torch.manual_seed(0)
    model = Transformer(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95))
    stream, drawing = torch.tensor(draw_stream(60_000, seed=1)), torch.Generator().manual_seed(0)
    for step in range(STEPS):
        starts = torch.randint(0, len(stream) - 97, (ROWS,), generator=drawing).tolist()
        rows = torch.stack([stream[start : start + 97] for start in starts])
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (STEPS - step) / (0.4 * STEPS))
        loss(model(rows[:, :-1]), rows[:, 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    source = Provenance(Path("nowhere"), "none", "none", {}, 0)
    return Pretrained("trained", config, weights, WordTokenizer(LETTERS), source)


def train(**choices: Any) -> Pretrained:
    """Returns a model of one layer that copies from twenty places before, in two seconds."""
    return _train(ModelConfig.from_dict(CONFIG | choices).to_json())


def read_as(model: Pretrained, **choices: Any) -> Pretrained:
    """Returns the model with other choices in its config."""
    return replace(model, config=ModelConfig.from_dict(model.config.to_dict() | choices))
