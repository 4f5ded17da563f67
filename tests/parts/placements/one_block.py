"""One block of the specification, and its weights as other libraries take them."""

from typing import Any

import torch
from torch import nn

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
