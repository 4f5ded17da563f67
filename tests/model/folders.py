"""Tiny models as people have them: folders that `transformers` saved, a GGUF file, a folder of ours."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pellucid.formats import gguf, model_folder
from tests.formats.gguf import random_models
from tests.formats.huggingface.models import random_model
from tests.formats.tokenizers import bpe_file

LLAMA: dict[str, Any] = {
    "vocab_size": 300,
    "max_position_embeddings": 64,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
WITHOUT_HEAD_DIM = {key: value for key, value in LLAMA.items() if key != "head_dim"}
SIZES: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "mistral": LLAMA | {"sliding_window": 9},
    "qwen2": WITHOUT_HEAD_DIM | {"use_sliding_window": False},
    "qwen3": LLAMA,
    "bloom": {"vocab_size": 300, "seq_length": 64, "hidden_size": 16, "n_layer": 2, "n_head": 4},
    "gpt2": {"vocab_size": 300, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 4},
}


def huggingface(folder: Path, family: str, **changes: Any) -> Path:
    """As `transformers` saves it in float32, with a byte-level tokenizer beside it."""
    _, writer = random_model(family, 0, **(SIZES[family] | changes))
    return bpe_file(writer(folder, dtype="float32"))


def gguf_file(path: Path, **more: Any) -> Path:
    gguf.write(path, random_models.model(random_models.LLAMA, **more), "F32")
    return path


def ours(folder: Path, shape: Mapping[str, Any] = random_models.LLAMA, **more: Any) -> Path:
    model_folder.write(folder, random_models.model(shape, **more))
    return folder
