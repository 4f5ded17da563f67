"""Norms on what the sub-layers write against OLMo 2's block in transformers."""

import pytest
import torch
from torch import nn
from transformers.models.olmo2.configuration_olmo2 import Olmo2Config
from transformers.models.olmo2.modeling_olmo2 import Olmo2DecoderLayer

from tests.parts.placements.one_block import WITHOUT_A_TURN, C, F, H, causal, fill, projections, run, value


def test_a_block_with_norms_on_its_outputs_equals_olmo_2_s() -> None:
    """Theirs takes norms and softmax in float32. Its norms of queries and keys are another choice."""
    tape = run("output", mlp="swiglu")
    settings = Olmo2Config(
        hidden_size=C,
        intermediate_size=F,
        num_attention_heads=H,
        rms_norm_eps=1e-5,
        num_hidden_layers=1,
        attn_implementation="eager",
    )
    block = Olmo2DecoderLayer(settings, 0).double()
    block.self_attn.q_norm = block.self_attn.k_norm = nn.Identity()
    norms = {
        "attn_out_norm": block.post_attention_layernorm,
        "mlp_out_norm": block.post_feedforward_layernorm,
    }
    fill(tape, norms | projections(block))
    with torch.no_grad():
        wanted = block(
            value(tape, "resid_pre"),
            attention_mask=causal()[None, None],
            position_embeddings=WITHOUT_A_TURN,
        )
    assert tape["blocks.0.resid_post"] == pytest.approx(wanted.numpy(), abs=1e-5)
