"""Small models of every family that the compiled decoder has, and ways to run them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pellucid.base.quantized import QuantizedWeight, Scheme, quantize
from pellucid.config import ModelConfig
from pellucid.engine.cache import Cache
from pellucid.engine.cpu.decoder import NativeDecoder
from pellucid.engine.transformer import Transformer

SIZES = {
    "vocab_size": 101,
    "d_model": 48,
    "n_layer": 2,
    "n_head": 4,
    "n_kv_head": 2,
    "context_length": 80,
    "d_ff": 72,
}
"""None fills a vector, a tile or a block; heads have 12 channels."""
ALL_BIASES = ["qkv", "output", "mlp", "norm", "unembed"]
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {
        "positions": "learned",
        "norm": "layer_norm",
        "mlp": "gelu_tanh",
        "biases": ALL_BIASES,
        "n_kv_head": 4,
    },
    "llama": {
        "positions": "rope",
        "norm": "rms_norm",
        "mlp": "swiglu",
        "n_head": 3,
        "n_kv_head": 1,
        "d_head": 64,
    },
    "qwen2": {
        "positions": "rope",
        "norm": "rms_norm",
        "mlp": "swiglu",
        "biases": ["qkv"],
        "unembedding": "linear",
    },
    "qwen3": {"positions": "rope", "norm": "rms_norm", "mlp": "swiglu", "qk_norm": "rms_norm"},
    "mistral": {
        "positions": {"kind": "rope", "layout": "pairs"},
        "norm": "rms_norm",
        "mlp": "swiglu",
        "mask": {"kind": "window", "size": 16},
    },
    "bloom": {
        "positions": "alibi",
        "norm": "layer_norm",
        "mlp": "gelu_tanh",
        "embed_norm": "layer_norm",
        "biases": ALL_BIASES[:4],
        "n_kv_head": 4,
    },
    "sinusoidal": {
        "positions": "sinusoidal",
        "norm": "layer_norm",
        "mlp": "relu",
        "n_head": 8,
        "n_kv_head": 1,
    },
    "exact GELU": {"positions": "none", "norm": "none", "mlp": "gelu"},
}


def make_config(family: str) -> ModelConfig:
    return ModelConfig.from_dict(SIZES | FAMILIES[family])


def make_weights(config: ModelConfig, scheme: Scheme | None = None, seed: int = 0) -> dict[str, Any]:
    """Returns weights large enough that attention and activations are far from linear."""
    torch.manual_seed(seed)
    weights = {name: 3 * value.detach().numpy() for name, value in Transformer(config).named_parameters()}
    if scheme is None:
        return weights
    return {
        name: quantize(value, scheme) if value.ndim == 2 and name != "positions.weight" else value
        for name, value in weights.items()
    }


def quantize_in_groups(weight: Any, bits: int, group: int) -> QuantizedWeight:
    """Returns a matrix in groups of any size, which `Scheme` refuses and a folder may have."""
    parts = [
        quantize(weight[:, start : start + group], Scheme(bits)) for start in range(0, weight.shape[1], group)
    ]
    joined = {name: np.concatenate([part.parts()[name] for part in parts], 1) for name in parts[0].parts()}
    return QuantizedWeight(**{"minimums": None} | joined, group=group, bits=bits)


def make_module(family: str, scheme: Scheme | None = None, dtype: torch.dtype = torch.float32) -> Transformer:
    config = make_config(family)
    return Transformer.from_weights(config, make_weights(config, scheme), dtype=dtype)


def make_ids(count: int, seed: int = 0, vocab_size: int = SIZES["vocab_size"]) -> list[int]:
    drawn = torch.randint(vocab_size, (count,), generator=torch.Generator().manual_seed(seed))
    return [int(id) for id in drawn]


def read_chunks(
    decoder: Transformer | NativeDecoder,
    ids: Sequence[int],
    chunks: Sequence[int],
    cache_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Returns the logits [T V] of ids that are read in chunks of these lengths."""
    cache = Cache(decoder.config, 1, decoder.config.context_length, dtype=cache_dtype)
    found, at = [], 0
    with torch.no_grad():
        for count in chunks:
            found.append(decoder.forward_packed([(cache, ids[at : at + count])], range(count)))
            at += count
    return torch.cat(found)
