"""Tiny models with random weights, and GGUF files put together piece by piece, right or wrong."""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.config import ModelConfig
from pellucid.formats.gguf import writing
from pellucid.formats.gguf.container import Value
from pellucid.formats.pretrained import Pretrained, Provenance
from pellucid.text.from_files import byte_level_bpe
from pellucid.text.standard import LETTER_BYTE, StandardTokenizer
from pellucid.text.tokenizer import Special, Tokenizer

MERGES = ["Ġ t", "h e", "Ġt he", "i n", "Ġ a", "e r", "1 2", "Ġ Ġ"]
ATOMS = "0123456789etainhs'!.LĠĊĉčł²Â"
MANY_MERGES = [f"{a} {b}" for a in ATOMS for b in ATOMS]
"""Every two of these letters merge, so that a missing cut between them shows."""
SIZE = 259 + len(MANY_MERGES)
SPECIAL = ["<|begin|>", "<|end|>", "<|turn|>"]
SIZES = {"vocab_size": 272, "context_length": 64, "n_layer": 2, "n_head": 4, "d_model": 64, "d_ff": 96}
LLAMA: dict[str, Any] = SIZES | {"n_kv_head": 2, "norm": {"kind": "rms_norm", "eps": 1e-5}}
GPT2: dict[str, Any] = SIZES | {
    "positions": "learned",
    "norm": "layer_norm",
    "mlp": "gelu_tanh",
    "biases": ["qkv", "output", "mlp", "norm"],
}
QWEN2: dict[str, Any] = LLAMA | {"biases": ["qkv"]}
QWEN3: dict[str, Any] = LLAMA | {"d_head": 24, "qk_norm": LLAMA["norm"]}
BLOOM: dict[str, Any] = GPT2 | {"positions": "alibi", "embed_norm": "layer_norm"}
YARN = {"kind": "rope_yarn", "base": 500.0, "factor": 4.0, "original_context": 50}
LLAMA3 = {"kind": "rope_llama3", "base": 500_000.0, "factor": 32.0}
ARCHITECTURES = {"llama": LLAMA, "gpt2": GPT2, "qwen2": QWEN2, "qwen3": QWEN3, "bloom": BLOOM}


def tokenizer(merges: Sequence[str] = MERGES) -> Tokenizer:
    """Byte-level BPE with three special tokens, the 256 bytes and some merges."""
    tokens = [*SPECIAL, *LETTER_BYTE, *(merge.replace(" ", "") for merge in merges)]
    file = byte_level_bpe(
        {token: id for id, token in enumerate(tokens)}, [merge.split(" ") for merge in merges], SPECIAL
    )
    return StandardTokenizer(json.dumps(file), Special("<|begin|>", "<|end|>", "<|end|>"), "bpe")


def weights(config: ModelConfig, seed: int = 0) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    """Every number is one that float16 holds, so that F16 files are compared exactly."""
    draw = np.random.default_rng(seed)
    return {
        name: (draw.standard_normal(shape) * 0.3 + (len(shape) == 1)).astype(np.float16).astype(np.float32)
        for name, shape in config.parameters().items()
    }


def model(config: Mapping[str, Any], came_from: str = "none", **more: Any) -> Pretrained:
    read = ModelConfig.from_dict(dict(config))
    given: dict[str, Any] = {
        "name": "made up",
        "config": read,
        "weights": weights(read),
        "tokenizer": tokenizer(),
        "provenance": Provenance(Path("nowhere"), "none", came_from, {}, 0),
        "generation": {"bos_token_id": 0, "eos_token_id": [1, 2]},
    }
    return Pretrained(**(given | more))


@dataclass
class Raw:
    """A GGUF file as its pieces: metadata as (name, type, bytes), tensors as (name, axes, type, offset)."""

    metadata: list[tuple[bytes, int, bytes]] = field(default_factory=list)
    tensors: list[tuple[bytes, tuple[int, ...], int, int]] = field(default_factory=list)
    data: bytes = b""
    magic: bytes = b"GGUF"
    version: int = 3
    counts: tuple[int, int] | None = None
    alignment: int = 32

    def fact(self, name: str, type: int, value: bytes) -> "Raw":
        self.metadata.append((name.encode(), type, value))
        return self

    def bytes(self) -> bytes:
        counts = self.counts or (len(self.tensors), len(self.metadata))
        parts = [self.magic, struct.pack("<IQQ", self.version, *counts)]
        parts += [text(name) + struct.pack("<I", type) + value for name, type, value in self.metadata]
        for name, axes, type, offset in self.tensors:
            parts += [text(name), struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, type, offset)]
        header = b"".join(parts)
        return header + bytes(-len(header) % self.alignment) + self.data


def text(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def write_with_metadata(path: Path, model: Pretrained, metadata: Mapping[str, Value]) -> None:
    """A model written with these metadata about its words, whatever they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "companions_metadata", lambda model: dict(metadata))
        patch.setattr(writing, "read", lambda path: None)  # it may not be one that can be read
        writing.write(path, model, "F32")
