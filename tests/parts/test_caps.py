"""Soft caps against transformers and by hand."""

import types

import numpy as np
import pytest
import torch
from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward

from pellucid.base.errors import ConfigError
from pellucid.config import ModelConfig
from pellucid.reference.ops import find_op
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from tests.reference.models import weights

SIZES = {"vocab_size": 5, "context_length": 4, "n_layer": 1, "n_head": 4, "n_kv_head": 2, "d_model": 8}
SCALE = 3.0
"""Weights so large that many scores feel the cap."""


def run(**choices: object) -> Tape:
    config = ModelConfig.from_dict(SIZES | choices)
    return forward(config, weights(config, scale=SCALE), [[1, 3, 0, 2]])


def test_a_soft_cap_by_hand() -> None:
    """tanh 1 = 0.761594: a score of 50 becomes 38.0797, one of 0.5 stays within a thousandth of itself."""
    capped = find_op("soft_cap").forward(np.array([50.0, 0.5, -50.0, 1e9]), limit=50.0)
    assert capped == pytest.approx([38.0797, 0.5, -38.0797, 50], abs=5e-5)


def test_attention_with_a_soft_cap_equals_gemma_2_s() -> None:
    """Theirs takes the softmax in float32."""
    tape = run(positions="none", score_cap={"kind": "tanh", "limit": 2.0})
    q, k, v = (torch.tensor(tape[f"blocks.0.attn.{name}"]) for name in "qkv")
    module = types.SimpleNamespace(num_key_value_groups=2, training=False)
    causal = torch.full((4, 4), -torch.inf, dtype=torch.float64).triu(1)
    z, pattern = eager_attention_forward(module, q, k, v, causal, scaling=2**-0.5, softcap=2.0)
    assert np.abs(tape["blocks.0.attn.scores"]).max() > 4, "some scores are beyond the cap"
    assert np.abs(tape["blocks.0.attn.capped"]).max() <= 2
    assert tape["blocks.0.attn.pattern"] == pytest.approx(pattern.numpy(), abs=1e-6)
    assert tape["blocks.0.attn.z"] == pytest.approx(z.transpose(1, 2).numpy(), abs=2e-5)


def test_capped_logits_are_those_of_pytorch_s_tanh() -> None:
    tape = run(logit_cap={"kind": "tanh", "limit": 3.0})
    wanted = 3 * torch.tanh(torch.tensor(tape["unembedded"]) / 3)
    assert np.abs(tape["unembedded"]).max() > 6
    assert tape["logits"] == pytest.approx(wanted.numpy(), abs=1e-14)


def test_a_cap_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"1e-6 to 1e6.*got 0"):
        run(score_cap={"kind": "tanh", "limit": 0.0})
