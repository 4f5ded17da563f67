"""Norms on both sides of the sub-layers against Gemma 2's block in transformers."""

import pytest
import torch
from transformers.models.gemma2.configuration_gemma2 import Gemma2Config
from transformers.models.gemma2.modeling_gemma2 import Gemma2DecoderLayer

from tests.parts.placements.one_block import WITHOUT_A_TURN, C, F, H, causal, fill, projections, run, value


def test_a_block_with_norms_on_both_sides_equals_gemma_2_s() -> None:
    """Theirs takes norms and softmax in float32, and keeps the gains less 1."""
    tape = run("sandwich", mlp="geglu_tanh")
    settings = Gemma2Config(
        hidden_size=C,
        intermediate_size=F,
        num_attention_heads=H,
        num_key_value_heads=H,
        head_dim=C // H,
        query_pre_attn_scalar=C // H,
        attn_logit_softcapping=None,
        rms_norm_eps=1e-5,
        num_hidden_layers=1,
        attn_implementation="eager",
    )
    block = Gemma2DecoderLayer(settings, 0).double()
    norms = {
        "attn_norm": block.input_layernorm,
        "attn_out_norm": block.post_attention_layernorm,
        "mlp_norm": block.pre_feedforward_layernorm,
        "mlp_out_norm": block.post_feedforward_layernorm,
    }
    fill(tape, norms | projections(block))
    for norm in norms.values():
        norm.weight.data -= 1
    with torch.no_grad():
        wanted = block(value(tape, "resid_pre"), WITHOUT_A_TURN, causal()[None, None])
    assert tape["blocks.0.resid_post"] == pytest.approx(wanted.numpy(), abs=1e-5)
