"""Softmax attention against PyTorch's scaled_dot_product_attention, and against a hand calculation."""

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import pellucid
from pellucid.config import ModelConfig
from pellucid.reference.training import forward
from tests.reference.models import weights

SIZES = {
    "vocab_size": 5,
    "context_length": 4,
    "n_layer": 1,
    "n_head": 4,
    "d_model": 8,
    "attention": "softmax",
}


@pytest.mark.parametrize("mask", ["causal", "none"])
@pytest.mark.parametrize("n_kv_head", [1, 2, 4])
def test_softmax_attention_equals_pytorch_s(n_kv_head: int, mask: str) -> None:
    config = ModelConfig.from_dict(SIZES | {"n_kv_head": n_kv_head, "mask": mask})
    tape = forward(config, weights(config), [[1, 3, 0, 2], [4, 4, 2, 1]])
    q, k, v = (torch.tensor(tape[f"blocks.0.attn.{name}"]) for name in ("q_rot", "k_rot", "v"))
    wanted = scaled_dot_product_attention(q, k, v, is_causal=mask == "causal", enable_gqa=True)
    assert tape["blocks.0.attn.z"] == pytest.approx(wanted.numpy(), abs=1e-13)


def test_softmax_attention_of_the_teaching_model_by_hand() -> None:
    """B asks (0, 2); A's key (1, 0) answers 0 and its own (0, 1) answers 2, divided by √2. So B takes
    1 / (1 + e^√2) = .19557 from A, and the rest from itself."""
    tape = pellucid.load("abcd").trace("A B").tape
    first = 1 / (1 + math.exp(2**0.5))
    assert tape["blocks.0.attn.pattern"][0, 0, 1] == pytest.approx([first, 1 - first], abs=1e-12)
    assert tape["blocks.0.attn.z"][0, 0, 1] == pytest.approx([0.19557, 0.80443], abs=5e-6)
