"""Obstacles that keep a model from a decoder that computes its whole step at once, on a CPU or on a GPU."""

import torch
from torch import nn

from pellucid.base.dtypes import dtype_name
from pellucid.base.quantized import BLOCK
from pellucid.config import ModelConfig
from pellucid.engine.attention import Attention
from pellucid.engine.attentions.softmax import SoftmaxAttention
from pellucid.engine.block import Block
from pellucid.engine.cpu.structures import ACTIVATIONS, NORMS
from pellucid.engine.dropout import Dropout
from pellucid.engine.linear import Embedding, Linear
from pellucid.engine.mlps import GatedMlp, PlainMlp
from pellucid.engine.norms import IdentityNorm, LayerNorm, RmsNorm
from pellucid.engine.positions import PositionBias, Positions
from pellucid.engine.quantized_tensor import QuantizedTensor
from pellucid.engine.transformer import Transformer, Unembedding
from pellucid.parts.masks.causal import Causal
from pellucid.parts.masks.window import Window

PARTS = {
    *(Transformer, nn.ModuleList, Embedding, Unembedding, Positions, PositionBias, Dropout, Block, Attention),
    *(SoftmaxAttention, Linear, QuantizedTensor, PlainMlp, GatedMlp, LayerNorm, RmsNorm, IdentityNorm),
}
"""The modules that such a decoder computes; a model in which one was replaced by another runs as it is."""
WIDEST_HEAD = 256


def find_module_obstacle(module: Transformer, has_caps: bool = False) -> str | None:
    """Returns what keeps a model from such a decoder, None where nothing does; `has_caps` says whether the
    decoder has soft caps."""
    parts = [*module.modules()]  # which takes as long as decoding some tokens with a small model
    changed = [type(part).__name__ for part in parts if type(part) not in PARTS]
    hooked = any(part._forward_hooks or part._forward_pre_hooks for part in parts)
    has_dropout = any(module.config.dropout.rates.values())
    reasons = (
        (module.dtype not in (torch.float32, torch.bfloat16), f"weights in {dtype_name(module.dtype)}"),
        (bool(changed), f"the module {changed[0] if changed else ''}"),
        (hooked, "the forward hooks of a module"),
        (any(map(_has_odd_groups, parts)), f"groups of weights that are not multiples of {BLOCK}"),
        (module.training and has_dropout, "dropout, which training mode applies"),
    )
    obstacle = find_config_obstacle(module.config, has_caps)
    return obstacle or next((reason for is_so, reason in reasons if is_so), None)


def _has_odd_groups(part: nn.Module) -> bool:
    """Returns whether a block of the packed inputs of a weight would need more than one scale of a row."""
    return isinstance(part, QuantizedTensor) and part.group % BLOCK != 0 and part.group < part.shape[1]


def find_config_obstacle(config: ModelConfig, has_caps: bool = False) -> str | None:
    """Returns which choice keeps a config from such a decoder, None where none does."""
    has_other_bias = config.positions.has_bias and config.positions.bias_factors(config.n_head) is None
    is_capped = not config.score_cap.is_none or not config.logit_cap.is_none
    has_mlp = not config.mlp.is_none and config.mlp.form in ("plain", "gated")
    reasons = (
        (config.attention.kind != "softmax", f"attention {config.attention.kind}"),
        (type(config.mask) not in (Causal, Window), f"the mask {config.mask.kind}"),
        (config.placement.kind != "pre", f"norms placed {config.placement.kind}"),
        (config.residual.kind != "plain", f"the residual connection {config.residual.kind}"),
        (is_capped and not has_caps, "a soft cap"),
        (has_other_bias, f"the position bias of {config.positions.kind}"),
        (config.d_head > WIDEST_HEAD, f"heads of more than {WIDEST_HEAD} channels"),
        (not has_mlp, f"the MLP {config.mlp.kind}"),
        (has_mlp and config.mlp.activation not in ACTIVATIONS, f"the activation of {config.mlp.kind}"),
        (
            "blocks.0.attn.o_proj.weight" not in config.parameters(),
            "attention without an output projection",
        ),
        (config.qk_norm.kind not in NORMS, f"the norm {config.qk_norm.kind}"),
        (config.norm.kind not in NORMS, f"the norm {config.norm.kind}"),
    )
    return next((reason for is_so, reason in reasons if is_so), None)
