"""A trained model read by another convention than its own is caught by its own loss."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pellucid.checks import conventions
from pellucid.checks.finding import Finding
from pellucid.checks.subject import Subject
from pellucid.config import ModelConfig
from pellucid.explain.probe import SAMPLE
from pellucid.interop.pretrained import Pretrained, Source
from pellucid.model.loss import loss
from pellucid.model.transformer import Transformer
from pellucid.parts.norms.layer_norm import LayerNorm
from pellucid.parts.positions.rope import Rope
from pellucid.text.tokenizer import Tokenizer
from pellucid.workbench import Model
from tests.interop.gguf import made_up

CONFIG = ModelConfig(
    vocab_size=272, context_length=64, n_layer=2, n_head=4, n_kv_head=2, d_model=32, d_ff=64,
    positions=Rope(100.0, "halves"),
)  # fmt: skip
LENGTH, ROWS, STEPS = 24, 16, 150


def windows(tokenizer: Tokenizer) -> Iterator[torch.Tensor]:
    """Pieces of the text, now and then its beginning."""
    ids = torch.tensor(tokenizer.encode(SAMPLE))
    dice = torch.Generator().manual_seed(0)
    while True:
        starts = torch.randint(0, len(ids) - LENGTH - 1, (ROWS,), generator=dice)
        starts[: ROWS // 4] = 0
        yield torch.stack([ids[start : start + LENGTH + 1] for start in starts])


@pytest.fixture(scope="module")
def trained() -> Pretrained:
    """Two layers that know a paragraph of English by heart."""
    torch.manual_seed(0)
    tokenizer = made_up.tokenizer()
    model = Transformer.from_weights(
        CONFIG, {name: 0.3 * array for name, array in made_up.weights(CONFIG).items()}
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _, rows in zip(range(STEPS), windows(tokenizer), strict=False):
        loss(model(rows[:, :-1]), rows[:, 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    return Pretrained("trained", CONFIG, weights, tokenizer, Source(Path("nowhere"), "none", "none", {}, 0))


def read_as(trained: Pretrained, config: ModelConfig) -> Finding:
    return conventions.best_reading(Subject(Model(replace(trained, config=config))))


def test_a_trained_model_as_it_was_made_is_no_bug(trained: Pretrained) -> None:
    found = read_as(trained, CONFIG)
    assert found.verdict in ("equal", "noise"), found
    assert found.measured.startswith("loss 0.") or found.measured.startswith("loss 1.")


def test_a_flipped_rope_layout_is_a_bug_that_names_the_other(trained: Pretrained) -> None:
    found = read_as(trained, replace(CONFIG, positions=Rope(100.0, "pairs")))
    assert found.verdict == "BUG", found
    assert found.at == "convention: RoPE layout: halves for pairs"
    assert "the weights were most likely made for that one" in found.story


def test_another_norm_is_a_bug_that_names_the_right_one(trained: Pretrained) -> None:
    found = read_as(trained, replace(CONFIG, norm=LayerNorm(1e-5)))
    assert (found.verdict, found.at) == ("BUG", "convention: norm: RMSNorm for LayerNorm"), found


def test_a_model_that_makes_no_sense_in_any_reading_is_not_blamed() -> None:
    found = conventions.best_reading(Subject(Model(made_up.model(made_up.LLAMA))))
    assert found.verdict == "skipped"
    assert found.measured.startswith("it makes no sense of English in any reading: loss ")
