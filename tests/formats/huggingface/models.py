"""Random tiny models of `transformers`, and the folders that it writes for them.

torch and transformers are imported where they are used, so that collecting this file costs nothing.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pellucid.config import ModelConfig
from pellucid.formats.pretrained import Pretrained
from pellucid.reference.op import Array
from pellucid.reference.training import forward
from tests.golden.make_huggingface import float64_throughout

os.environ.setdefault("HF_HUB_OFFLINE", "1")
FAMILIES = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "bloom")
CONTEXT = dict.fromkeys(FAMILIES, "max_position_embeddings") | {
    "gpt2": "n_positions",
    "bloom": "seq_length",
}
ROPES = ("default", "linear", "yarn", "llama3")
ACTIVATIONS = ("gelu_new", "gelu", "relu", "gelu_pytorch_tanh", "silu", "relu2")
GATES = ("silu", "gelu", "gelu_pytorch_tanh")
Settings = dict[str, Any]
Writer = Callable[..., Path]


def random_model(family: str, seed: int, **changes: Any) -> tuple[Any, Writer]:
    """A tiny model with everything drawn from the seed, sizes, choices and weights, in float64, and a
    function that saves it: `writer(folder, dtype="bfloat16", max_shard_size="20KB")`."""
    import torch
    from transformers import AutoModelForCausalLM

    rng = np.random.default_rng([seed, FAMILIES.index(family)])
    config = random_config(family, seed, rng, **changes)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").double().eval()
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


def random_config(family: str, seed: int, rng: np.random.Generator | None = None, **changes: Any) -> Any:
    """The config of that model."""
    from transformers import AutoConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()  # it finds contexts this small strange
    settings = SETTINGS[family](rng or np.random.default_rng([seed, FAMILIES.index(family)]))
    if "rope_parameters" in settings:  # these take turns, so that a few seeds have them all
        settings["rope_parameters"] |= _scaling(np.random.default_rng(seed), ROPES[seed % len(ROPES)])
        settings["hidden_act"] = GATES[seed // len(ROPES) % len(GATES)]
    return AutoConfig.for_model(family, **(settings | changes))


def _pick(rng: np.random.Generator, choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _gpt2(rng: np.random.Generator) -> Settings:
    heads = _pick(rng, (1, 2, 3, 4))
    return {
        "vocab_size": int(rng.integers(5, 40)),
        "n_positions": int(rng.integers(6, 20)),
        "n_embd": heads * int(rng.integers(1, 9)),
        "n_layer": int(rng.integers(1, 4)),
        "n_head": heads,
        "n_inner": _pick(rng, (None, 7, 24)),
        "activation_function": _pick(rng, ACTIVATIONS),
        "layer_norm_epsilon": _pick(rng, (1e-5, 1e-6, 1e-3)),
        "tie_word_embeddings": bool(rng.integers(4)),
        "bos_token_id": None,
        "eos_token_id": 1,
    }


def _bloom(rng: np.random.Generator) -> Settings:
    heads = _pick(rng, (1, 2, 3, 4, 6))
    return {
        "vocab_size": int(rng.integers(5, 40)),
        "seq_length": int(rng.integers(6, 20)),
        "hidden_size": heads * int(rng.integers(1, 9)),
        "n_layer": int(rng.integers(1, 4)),
        "n_head": heads,
        "layer_norm_epsilon": _pick(rng, (1e-5, 1e-6, 1e-3)),
        "tie_word_embeddings": bool(rng.integers(4)),
        "bos_token_id": None,
        "eos_token_id": 1,
    }


def _like_llama(rng: np.random.Generator) -> Settings:
    heads = _pick(rng, (1, 2, 4, 6))
    return {
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


def _mistral(rng: np.random.Generator) -> Settings:
    settings = _without(_like_llama(rng), "attention_bias", "mlp_bias")
    return settings | {"sliding_window": _pick(rng, (None, 1, 2, 3, 5, 50)), "bos_token_id": None}


def _qwen2(rng: np.random.Generator) -> Settings:
    settings = _qwen3(rng)
    width = {} if settings["head_dim"] is None else {"head_dim": settings["head_dim"]}
    return _without(settings, "attention_bias", "head_dim") | width


def _qwen3(rng: np.random.Generator) -> Settings:
    settings = _without(_like_llama(rng), "mlp_bias")
    layers, size = settings["num_hidden_layers"], _pick(rng, (1, 2, 3, 5, 50))
    some = _pick(rng, ("none", "no size", "beyond the last", "all"))
    return settings | {
        "head_dim": settings["head_dim"] or 4,
        "use_sliding_window": some != "none",
        "sliding_window": None if some == "no size" else size,
        "max_window_layers": 0 if some == "all" else layers + int(rng.integers(3)),
    }


def _without(settings: Settings, *names: str) -> Settings:
    return {name: value for name, value in settings.items() if name not in names}


def _scaling(rng: np.random.Generator, type: str) -> Settings:
    """Settings of one type of RoPE under which some pairs are slowed, and some by a part."""
    factor = _pick(rng, (1.0, 2.0, 7.5))
    context = {"original_max_position_embeddings": _pick(rng, (7, 20, 300))}
    settings: dict[str, Settings] = {
        "default": {},
        "linear": {"factor": factor},
        "yarn": {"factor": factor, **context},
        "llama3": {
            "factor": factor,
            "low_freq_factor": _pick(rng, (0.5, 1.0)),
            "high_freq_factor": _pick(rng, (1.5, 4.0)),
            **context,
        },
    }
    if type == "yarn":
        for key, values in {
            "beta_fast": (None, 8.0, 32.0),
            "beta_slow": (None, 0.25, 1.0),
            "attention_factor": (None, 0.5, 1.7),
        }.items():
            value = _pick(rng, values)
            settings["yarn"] |= {} if value is None else {key: value}
    return {"rope_type": type, **settings[type]}


SETTINGS: dict[str, Callable[[np.random.Generator], Settings]] = {
    "gpt2": _gpt2,
    "llama": _like_llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "bloom": _bloom,
}


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
