"""A model that was really trained, so that a wrong way of reading its weights costs something."""

import functools
from collections.abc import Iterator
from pathlib import Path

import torch

from pellucid.config import ModelConfig
from pellucid.engine.loss import loss
from pellucid.engine.transformer import Transformer
from pellucid.formats.pretrained import Pretrained, Provenance
from pellucid.parts.positions.rope import Rope
from pellucid.text.sample import SAMPLE
from pellucid.text.tokenizer import Tokenizer
from tests.formats.gguf import random_models

CONFIG = ModelConfig(
    vocab_size=272, context_length=64, n_layer=2, n_head=4, n_kv_head=2, d_model=32, d_ff=64,
    positions=Rope(100.0, "halves"),
)  # fmt: skip
LENGTH, ROWS, STEPS = 24, 16, 150


def windows(tokenizer: Tokenizer) -> Iterator[torch.Tensor]:
    """Pieces of the text, now and then its beginning."""
    ids = torch.tensor(tokenizer.encode(SAMPLE))
    rng = torch.Generator().manual_seed(0)
    while True:
        starts = torch.randint(0, len(ids) - LENGTH - 1, (ROWS,), generator=rng)
        starts[: ROWS // 4] = 0
        yield torch.stack([ids[start : start + LENGTH + 1] for start in starts])


@functools.cache
def trained() -> Pretrained:
    """Two layers that know a paragraph of English by heart, in a second or two."""
    torch.manual_seed(0)
    tokenizer = random_models.tokenizer()
    model = Transformer.from_weights(
        CONFIG, {name: 0.3 * array for name, array in random_models.weights(CONFIG).items()}
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _, rows in zip(range(STEPS), windows(tokenizer), strict=False):
        loss(model(rows[:, :-1]), rows[:, 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    return Pretrained(
        "trained", CONFIG, weights, tokenizer, Provenance(Path("nowhere"), "none", "none", {}, 0)
    )
