"""Random tiny models of `transformers`, and the folders that it writes for them.

torch and transformers are imported where they are used, so that collecting this file costs nothing.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.config import ModelConfig
from pellucid.interop.pretrained import Pretrained
from pellucid.reference.op import Array
from pellucid.reference.training import forward
from tests.golden.make_huggingface import float64_throughout

os.environ.setdefault("HF_HUB_OFFLINE", "1")
FAMILIES = ("gpt2", "llama")
Writer = Callable[..., Path]


def random_model(family: str, seed: int, **changes: Any) -> tuple[Any, Writer]:
    """A tiny model with everything drawn from the seed, sizes, choices and weights, in float64, and a
    function that saves it: `writer(folder, dtype="bfloat16", max_shard_size="20KB")`."""
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    rng = np.random.default_rng([seed, FAMILIES.index(family)])
    model = _gpt2(rng, changes) if family == "gpt2" else _llama(rng, changes)
    model = model.double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            gain = parameter.ndim == 1 and name.endswith("weight")
            drawn = rng.normal(1.0 if gain else 0.0, 0.4, tuple(parameter.shape)).astype(np.float32)
            parameter.copy_(torch.from_numpy(drawn).to(torch.bfloat16))  # exact in every type

    def writer(folder: Path, dtype: str = "float64", **settings: Any) -> Path:
        import copy

        saved = copy.deepcopy(model).to(getattr(torch, dtype))
        saved.save_pretrained(folder, **settings)
        return folder

    return model, writer


def _pick(rng: np.random.Generator, choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _gpt2(rng: np.random.Generator, changes: dict[str, Any]) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    heads = _pick(rng, (1, 2, 3, 4))
    settings = {
        "vocab_size": int(rng.integers(5, 40)),
        "n_positions": int(rng.integers(6, 20)),
        "n_embd": heads * int(rng.integers(1, 9)),
        "n_layer": int(rng.integers(1, 4)),
        "n_head": heads,
        "n_inner": _pick(rng, (None, 7, 24)),
        "activation_function": _pick(rng, ("gelu_new", "gelu", "relu", "gelu_pytorch_tanh")),
        "layer_norm_epsilon": _pick(rng, (1e-5, 1e-6, 1e-3)),
        "tie_word_embeddings": bool(rng.integers(4)),
        "bos_token_id": None,
        "eos_token_id": 1,
    }
    return GPT2LMHeadModel(GPT2Config(**(settings | changes), attn_implementation="eager"))


def _llama(rng: np.random.Generator, changes: dict[str, Any]) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    heads = _pick(rng, (1, 2, 4, 6))
    settings = {
        "vocab_size": int(rng.integers(5, 40)),
        "max_position_embeddings": int(rng.integers(6, 20)),
        "hidden_size": 2 * heads * int(rng.integers(1, 5)),
        "intermediate_size": int(rng.integers(3, 30)),
        "num_hidden_layers": int(rng.integers(1, 4)),
        "num_attention_heads": heads,
        "num_key_value_heads": _pick(rng, [k for k in range(1, heads + 1) if heads % k == 0]),
        "head_dim": _pick(rng, (None, 2, 6, 8)),
        "rms_norm_eps": _pick(rng, (1e-5, 1e-6, 1e-3)),
        "rope_parameters": {"rope_type": "default", "rope_theta": _pick(rng, (1e4, 5e5, 123.0))},
        "attention_bias": bool(rng.integers(2)),
        "mlp_bias": bool(rng.integers(2)),
        "tie_word_embeddings": bool(rng.integers(2)),
        "eos_token_id": [1, 2],
    }
    return LlamaForCausalLM(LlamaConfig(**(settings | changes), attn_implementation="eager"))


def random_ids(seed: int, config: ModelConfig) -> Array:
    rng = np.random.default_rng(seed)
    return rng.integers(0, config.vocab_size, (2, config.context_length))


def plain_logits(model: Any, ids: Array) -> Array:
    """What the model makes of the ids, as `transformers` runs it."""
    import torch

    with torch.no_grad():
        logits: Array = model(input_ids=torch.from_numpy(ids)).logits.double().numpy()
    return logits


def float64_logits(model: Any, ids: Array) -> Array:
    """The same in float64 throughout: norms, attention and RoPE's tables otherwise pass through float32.
    The model is built anew, for its table is made when it is built."""
    with float64_throughout():
        twin = type(model)(model.config).double().eval()
        twin.load_state_dict(model.state_dict())
        return plain_logits(twin, ids)


def our_logits(pretrained: Pretrained, ids: Array) -> Array:
    """What the specification makes of them."""
    weights = {name: array.astype(np.float64) for name, array in pretrained.weights.items()}
    return forward(pretrained.config, weights, ids)["logits"]


def apart(a: Array, b: Array) -> float:
    return float(np.abs(a - b).max() / max(float(np.abs(b).max()), 1e-3))
