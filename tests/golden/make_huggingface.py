"""Makes huggingface_gpt2.npz and huggingface_llama.npz: tiny random models, computed by `transformers`.

    HF_HUB_OFFLINE=1 python -m tests.golden.make_huggingface

torch and transformers are imported where they are used, so that collecting this file costs nothing.
"""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest import mock

import numpy as np

HERE = Path(__file__).parent
ROPE_BASES = (10_000, 500_000)
IDS = np.array([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 10]])
LABELS = np.array([[3, 1, 4, -100, 5, 9], [2, 7, 1, 8, 2, -100]])
REAL = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0]])


def gpt2() -> dict[str, np.ndarray]:
    """GPT2LMHeadModel: weights by its own names, and what it makes of IDS."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=11,
        n_positions=8,
        n_embd=16,
        n_layer=2,
        n_head=2,
        attn_implementation="eager",
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        bos_token_id=None,
        eos_token_id=None,
    )
    with float64_throughout():
        model = GPT2LMHeadModel(config).double().eval()
        return draw(model) | given() | run(model)


def llama() -> dict[str, np.ndarray]:
    """LlamaForCausalLM for each RoPE base: one set of weights, and what it makes of IDS."""
    made = given()
    for base in ROPE_BASES:
        with float64_throughout():
            model = tiny_llama(base)
            made |= draw(model)
            made |= {f"base_{base}.{name}": value for name, value in run(model).items()}
        untouched = tiny_llama(base)
        draw(untouched)
        made[f"base_{base}.untouched_logits"] = run(untouched)["logits"]
    return made


def tiny_llama(base: float) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=13,
        max_position_embeddings=8,
        hidden_size=16,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": float(base)},
        tie_word_embeddings=False,
        attn_implementation="eager",
    )
    return LlamaForCausalLM(config).double().eval()


@contextlib.contextmanager
def float64_throughout() -> Iterator[None]:
    """While this holds, the places in which transformers asks for float32 get float64, and the √(2/π) that
    BLOOM's GELU has to eight digits has them all."""
    import torch
    from transformers.models.bloom import modeling_bloom

    with (
        mock.patch.multiple(torch, float32=torch.float64, float=torch.float64),
        mock.patch.object(torch.Tensor, "float", torch.Tensor.double),
        mock.patch.object(modeling_bloom, "bloom_gelu_forward", exact(modeling_bloom.bloom_gelu_forward)),
    ):
        yield


def exact(gelu: FunctionType) -> FunctionType:
    """The same function of theirs with 0.79788456 to the last bit, and nothing else changed."""
    code, full = gelu.__code__, math.sqrt(2 / math.pi)
    assert 0.79788456 in code.co_consts
    digits = tuple(full if value == 0.79788456 else value for value in code.co_consts)
    return FunctionType(code.replace(co_consts=digits), gelu.__globals__)


def draw(model: Any) -> dict[str, np.ndarray]:
    """Fill every parameter, gains near 1 and the rest near 0, and return them by name."""
    import torch

    rng = np.random.default_rng(0)
    weights = {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            gain = parameter.ndim == 1 and name.endswith("weight")
            values = rng.normal(1.0 if gain else 0.0, 0.4, tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(values))
            weights[name] = values
    return weights


def given() -> dict[str, np.ndarray]:
    return {"ids": IDS, "labels": LABELS, "real": REAL}


def run(model: Any) -> dict[str, np.ndarray]:
    import torch

    with torch.no_grad():
        out = model(
            input_ids=torch.from_numpy(IDS),
            attention_mask=torch.from_numpy(REAL),
            labels=torch.from_numpy(LABELS),
        )
    return {"logits": out.logits.numpy(), "loss": out.loss.double().numpy()}


if __name__ == "__main__":
    np.savez_compressed(HERE / "huggingface_gpt2.npz", **gpt2())
    np.savez_compressed(HERE / "huggingface_llama.npz", **llama())
