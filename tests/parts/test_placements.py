"""Norm placements against PyTorch's and transformers' blocks."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers.models.gemma2.configuration_gemma2 import Gemma2Config
from transformers.models.gemma2.modeling_gemma2 import Gemma2DecoderLayer
from transformers.models.olmo2.configuration_olmo2 import Olmo2Config
from transformers.models.olmo2.modeling_olmo2 import Olmo2DecoderLayer

from pellucid.config import ModelConfig
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from tests.reference.models import weights

C, H, F = 8, 2, 12
SIZES = {"vocab_size": 5, "context_length": 4, "n_layer": 1, "n_head": H, "d_model": C, "d_ff": F}
WITHOUT_A_TURN = torch.ones(1, 4, C // H, dtype=torch.float64), torch.zeros(1, 4, C // H, dtype=torch.float64)
"""Cosines and sines that turn nothing."""


def run(placement: str, **choices: Any) -> Tape:
    """A model without positions, of one block."""
    config = ModelConfig.from_dict(SIZES | {"positions": "none", "placement": placement} | choices)
    return forward(config, weights(config), [[1, 3, 0, 2], [4, 4, 2, 1]])


def value(tape: Tape, name: str) -> torch.Tensor:
    return torch.tensor(tape[f"blocks.0.{name}"])


def causal() -> torch.Tensor:
    return torch.full((4, 4), -torch.inf, dtype=torch.float64).triu(1)


def fill(tape: Tape, modules: dict[str, nn.Module]) -> None:
    """Each module's weight, and its bias where it has one, from the block's."""
    for name, module in modules.items():
        for parameter, into in module.named_parameters():
            into.data = value(tape, f"{name}.{parameter}")


def projections(block: nn.Module) -> dict[str, nn.Module]:
    """The seven matrices of a block of transformers', by the names that they have here."""
    attention, mlp = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")
    return {f"attn.{name}": block.get_submodule(f"self_attn.{name}") for name in attention} | {
        f"mlp.{name}": block.get_submodule(f"mlp.{name}") for name in mlp
    }


def of_pytorch(placement: str, norm_first: bool) -> tuple[Tape, torch.Tensor]:
    """The block with LayerNorm and GELU, and what nn.TransformerEncoderLayer makes of the same."""
    biases = ["qkv", "output", "mlp", "norm"]
    tape = run(placement, norm="layer_norm", mlp="gelu", biases=biases)
    layer = nn.TransformerEncoderLayer(C, H, F, 0.0, "gelu", 1e-5, batch_first=True, norm_first=norm_first)
    layer = layer.double()
    place = "norm" if norm_first else "post_norm"
    fill(
        tape,
        {
            "attn.o_proj": layer.self_attn.out_proj,
            "mlp.up_proj": layer.linear1,
            "mlp.down_proj": layer.linear2,
            f"attn_{place}": layer.norm1,
            f"mlp_{place}": layer.norm2,
        },
    )
    for kind, into in (("weight", layer.self_attn.in_proj_weight), ("bias", layer.self_attn.in_proj_bias)):
        into.data = torch.cat([value(tape, f"attn.{name}_proj.{kind}") for name in "qkv"])
    with torch.no_grad():
        return tape, layer(value(tape, "resid_pre"), src_mask=causal())


# output: Norms on what the sub-layers write against OLMo 2's block in transformers.


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


# post: Norms after the sums against PyTorch's TransformerEncoderLayer(norm_first=False).


def test_a_block_with_its_norms_after_equals_pytorch_s() -> None:
    tape, wanted = of_pytorch("post", norm_first=False)
    assert tape["blocks.0.resid_post"] == pytest.approx(wanted.numpy(), abs=1e-12)


def test_the_last_block_s_norm_is_the_final_one() -> None:
    tape, _ = of_pytorch("post", norm_first=False)
    assert "final_norm.weight" not in tape and "final_norm.out" not in tape
    stream = tape["blocks.0.resid_post"]
    np.testing.assert_array_equal(stream, tape["blocks.0.mlp_post_norm.out"])
    assert tape["logits"] == pytest.approx(stream @ tape["embed.weight"].T, abs=1e-12)


# pre: Norms before the sub-layers against PyTorch's TransformerEncoderLayer(norm_first=True).


def test_a_block_with_its_norms_before_equals_pytorch_s() -> None:
    tape, wanted = of_pytorch("pre", norm_first=True)
    assert tape["blocks.0.resid_post"] == pytest.approx(wanted.numpy(), abs=1e-12)


def test_what_a_model_reads_at_last_is_normed() -> None:
    """The stream itself never was."""
    tape, _ = of_pytorch("pre", norm_first=True)
    assert "final_norm.out" in tape
    assert tape["final_norm.normed"].std(axis=-1) == pytest.approx(1, abs=1e-4)


# sandwich: Norms on both sides of the sub-layers against Gemma 2's block in transformers.


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
