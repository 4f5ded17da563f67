"""Small models in TOML files, with weights drawn from a seed and any words."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.config import ModelConfig

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "dog",
    "ran",
    "to",
    "it",
    "was",
    "red",
    "and",
    "so",
    "his",
    "her",
]
LLAMA: dict[str, Any] = {
    "context_length": 32, "n_layer": 2, "n_head": 4, "n_kv_head": 2, "d_model": 16, "d_ff": 24,
    "positions": {"kind": "rope", "base": 10000},
}  # fmt: skip
GPT2: dict[str, Any] = {
    "context_length": 32, "n_layer": 2, "n_head": 2, "d_model": 8, "positions": "learned",
    "norm": "layer_norm", "mlp": "gelu_tanh", "biases": ["qkv", "output", "mlp", "norm"],
}  # fmt: skip


def write_model(path: Path, config: dict[str, Any], words: Sequence[str] = WORDS, seed: int = 0) -> Path:
    """Writes a model whose every weight is drawn from a normal distribution, and returns its path."""
    settings = {"vocab_size": len(words), **config}
    shapes = ModelConfig.from_dict(settings).parameters()
    rng = np.random.default_rng(seed)
    lines = [f"words = [{', '.join(map(quote, words))}]", "[config]"]
    lines += [f"{name} = {_write(value)}" for name, value in settings.items()]
    lines += ["[weights]"]
    lines += [f"{quote(name)} = {rng.normal(0, 0.5, shape).tolist()}" for name, shape in shapes.items()]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def quote(text: str) -> str:
    """Returns a text as TOML writes it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _write(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_write(one)}" for name, one in value.items()) + " }"
    return json.dumps(value)
