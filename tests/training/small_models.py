"""Models small enough to start from in a test, and a text for them."""

from pathlib import Path
from typing import Any

from pellucid.config import ModelConfig
from pellucid.engine.initializations import initialize
from pellucid.engine.transformer import Transformer
from pellucid.formats import model_folder
from pellucid.formats.pretrained import Pretrained, Provenance
from pellucid.text import kinds
from pellucid.text.tokenizer import Special, Tokenizer
from pellucid.training.recipe import Recipe
from pellucid.training.recipe.overrides import override
from pellucid.training.run import Run
from tests.training.small_run_folders import train

TEXT = "The cat sat on the mat. The dog sat on the log. A bird sang in the tree. " * 60
LLAMA: dict[str, Any] = {
    "context_length": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_kv_head": 2,
    "d_model": 16,
    "d_ff": 24,
}
GPT2: dict[str, Any] = {
    "context_length": 32, "n_layer": 2, "n_head": 2, "d_model": 8, "positions": "learned",
    "norm": "layer_norm", "mlp": "gelu_tanh", "biases": ["qkv", "output", "mlp", "norm"],
}  # fmt: skip


def tokenizer() -> Tokenizer:
    return kinds.train("bpe", [TEXT], 300, special=Special("<s>", "<end>"))


def model(shape: dict[str, Any] = LLAMA, spare: int = 0, **settings: Any) -> Pretrained:
    """A model with drawn weights, `spare` rows of its embedding being no token's."""
    words = tokenizer()
    config = ModelConfig.from_dict({**shape, "vocab_size": words.vocab_size + spare})
    weights = initialize(Transformer.empty(config), "gpt2", seed=7).weights()
    types = dict.fromkeys(weights, "F32")
    source = Provenance(Path(), "pellucid", "", types, 0)
    narrow = {name: array.astype("float32") for name, array in weights.items()}
    return Pretrained("tiny", config, narrow, words, source, **settings)


def folder(at: Path, shape: dict[str, Any] = LLAMA, spare: int = 0, **settings: Any) -> Path:
    model_folder.write(at, model(shape, spare, **settings))
    return at


def table(out: Path, start: Path | str, text: Path) -> dict[str, Any]:
    """A recipe of four steps."""
    return {
        "out": str(out),
        "steps": 4,
        "start": str(start),
        "data": {"path": str(text), "batch_size": 4},
        "model": {"context_length": 12},
        "schedule": {"kind": "cosine", "warmup": 1},
        "train": {"compile": False, "device": "cpu"},
        "evaluation": {"every": 2, "sample": 3},
        "checkpoint": {"every": 2},
    }


def started(table: dict[str, Any], *changes: str, stop: int = 0) -> Run:
    """The run of a table in its folder, to the end or interrupted after a step."""
    return train(Recipe.from_dict(override(table, changes)), stop)
