"""Small models whose tokenizer reads any text, with random weights."""

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

from pellucid.config import preset
from pellucid.data.sources.generated import spaced_words
from pellucid.model import Model
from pellucid.text.kinds import train
from pellucid.text.tokenizer import Special, Tokenizer
from tests.data.small_corpora import WORDS


@cache
def bpe(vocab_size: int = 300) -> Tokenizer:
    """A byte-level BPE tokenizer with <end> for beginning and end."""
    return train("bpe", [" ".join(WORDS) * 3 + " 0123456789.!?"], vocab_size, Special("<end>", "<end>"))


def make_model(tokenizer: Tokenizer | None = None, seed: int = 0, **changes: Any) -> Model:
    """A model of two layers with large random weights, so that its predictions differ."""
    tokenizer = tokenizer or bpe()
    sizes = {"context_length": 32, "vocab_size": tokenizer.vocab_size, "n_layer": 2, "d_model": 16}
    config = dataclasses.replace(
        preset("tiny"), **(sizes | {"n_head": 2, "n_kv_head": 2, "d_head": 8} | changes)
    )
    model = Model.from_config(config, tokenizer=tokenizer, seed=seed)
    weights = {name: 8 * array if array.ndim > 1 else array for name, array in model.weights.items()}
    return model.replace(weights=weights)


def make_stories_model(level: str = "tiny", **changes: Any) -> Model:
    return make_model(spaced_words(level), **({"context_length": 256} | changes))


def with_bos(model: Model) -> Model:
    """The same model, whose texts begin with bos."""
    return Model(dataclasses.replace(model.pretrained, add_bos=True), model.device, model.dtype)


def write(folder: Path, **texts: str) -> list[str]:
    """Writes text files, `a="…"` into a.txt, and returns their paths."""
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, "utf-8")
    return [str(folder / f"{name}.txt") for name in texts]
