"""Faults of precision: steps that are carried out in 16 bits where float32 is stated, or that overflow."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.engine import attention, block, linear, norms, positions, transformer
from pellucid.engine.attentions import softmax
from pellucid.engine.attentions.linear import LinearAttention
from pellucid.engine.positions import Rotation
from tests.agreement import other_activation
from tests.faults.fault import Patch, fault, replacing
from tests.faults.in_kernels import replace_fused


def is_narrow(x: Tensor) -> bool:
    return x.element_size() == 2


def rms_norm_in_type(x: Tensor, shape: Any, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm with every step rounded to the type of x."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


@fault("precision", subject="llama", check="fused", at="embedded … blocks.0.attn_norm.out")
@replacing(F, "rms_norm")
def rms_norm_is_carried_out_in_16_bits(right: Any, x: Tensor, *more: Any) -> Tensor:
    """The fused RMSNorm rounds the mean of squares, the quotient and the product."""
    return rms_norm_in_type(x, *more) if is_narrow(x) else right(x, *more)


@fault("precision", subject="llama", check="bfloat16", at="blocks.0.attn_norm.rstd")
@replacing(norms.GainNorm, "normalize")
def explicit_norm_rounds_its_input(right: Any, self: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
    """The explicit RMSNorm takes the mean of squares in bfloat16."""
    if dtype != torch.bfloat16:
        return right(self, x, dtype)
    rstd = self.t(
        "rstd", torch.rsqrt(x.to(dtype).square().to(dtype).mean(-1, keepdim=True) + self.eps).float()
    )
    return self.t("out", (self.t("normed", x * rstd) * self.weight).to(dtype))


@fault("precision", subject="gpt2", check="fused", at="positioned … blocks.0.attn_norm.out")
@replacing(F, "layer_norm")
def layer_norm_is_carried_out_in_16_bits(
    right: Any, x: Tensor, shape: Any, weight: Tensor, bias: Tensor, eps: float
) -> Tensor:
    """The fused LayerNorm rounds mean, variance and quotient."""
    if not is_narrow(x):
        return right(x, shape, weight, bias, eps)
    centered = x - x.mean(-1, keepdim=True)
    return centered * torch.rsqrt(centered.square().mean(-1, keepdim=True) + eps) * weight + bias


@fault("precision", subject="llama", check="bfloat16", at="blocks.0.attn.pattern")
@replacing(softmax, "softmax")
def softmax_is_carried_out_in_16_bits(right: Any, scores: Tensor) -> Tensor:
    """Exponentials and their sum are rounded to bfloat16."""
    if not is_narrow(scores):
        return right(scores)
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


@fault("precision", subject="wide", check="fused", at="blocks.0.attn.q")
def products_are_accumulated_in_16_bits(patch: Patch) -> None:
    """The partial sums of a linear layer are rounded every eight terms."""
    right = linear.linear

    def wrong(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if not is_narrow(x):
            return right(x, weight, bias)
        parts = zip(x.split(8, -1), weight.split(8, -1), strict=True)
        total = sum((F.linear(a, b) for a, b in parts), torch.zeros((), dtype=x.dtype))
        return total if bias is None else total + bias

    patch.setattr(linear, "linear", wrong)
    patch.setattr(linear.Linear, "forward", lambda self, x: wrong(x, self.weight, self.bias))


@fault("precision", subject="qwen3", check="fused", at="blocks.0.attn.q_rot")
@replacing(attention, "rotate")
def rotation_is_carried_out_in_16_bits(right: Any, x: Tensor, rotation: Rotation) -> Tensor:
    """RoPE multiplies by cosines and sines that are rounded to the type, and rounds each product."""
    cos, sin = rotation.cos.to(x.dtype), rotation.sin.to(x.dtype)
    pairs = x.unflatten(-1, (2, -1) if rotation.pair == -2 else (-1, 2))
    return (pairs * cos + pairs.flip(rotation.pair) * sin).flatten(-2)


@fault("precision", subject="llama", check="decoded", at="blocks.0.attn.q_rot")
def cosines_are_rounded_to_the_type(patch: Patch) -> None:
    """The table of cosines and sines is held in the type of the model."""
    right = positions.rotate

    def wrong(x: Tensor, rotation: Rotation) -> Tensor:
        cos, sin = (table.to(x.dtype).to(table.dtype) for table in (rotation.cos, rotation.sin))
        return right(x, rotation._replace(cos=cos, sin=sin))

    patch.setattr(attention, "rotate", wrong)


@fault("precision", subject="llama", check="far positions", at="blocks.0.attn.q_rot")
@replacing(positions.Positions, "rotation")
def positions_are_rounded_before_the_angles(
    right: Any, self: positions.Positions, places: Tensor, dtype: torch.dtype
) -> Any:
    """Positions and frequencies are cast to bfloat16, then multiplied."""
    rotation = right(self, places, dtype)
    assert rotation and self.angles is not None
    angles = places.to(dtype)[:, None] * self.angles[1].to(dtype)
    wide = rotation.cos.dtype
    return rotation.from_cos_sin(angles.cos().to(wide), angles.sin().to(wide), self.layout)


@fault("precision", subject="llama", check="float32", at="blocks.0.attn.pattern")
@replacing(softmax, "softmax")
def softmax_of_float32_is_float16(right: Any, scores: Tensor) -> Tensor:
    """A model in float32 computes its softmax in float16."""
    return right(scores.half()).to(scores.dtype) if scores.dtype == torch.float32 else right(scores)


@fault("precision", subject="llama", check="fused", at="blocks.0.attn.q_rot … z")
def kernel_of_float32_computes_in_bfloat16(patch: Patch) -> None:
    """The fused kernel of a float32 model runs in bfloat16."""

    def wrong(right: Any, q: Tensor, k: Tensor, v: Tensor, inputs: Any) -> Tensor:
        if q.dtype != torch.float32:
            return right(q, k, v, inputs)
        return right(q.bfloat16(), k.bfloat16(), v.bfloat16(), inputs).float()

    replace_fused(patch, wrong)


@fault("precision", subject="wide", check="fused", at="blocks.0.attn.q_rot … z")
def kernel_holds_its_scores_in_16_bits(patch: Patch) -> None:
    """Scores and pattern of the fused kernel are rounded to the type."""

    def wrong(right: Any, q: Tensor, k: Tensor, v: Tensor, inputs: Any) -> Tensor:
        if not is_narrow(q) or inputs.mask is not None or not inputs.is_causal:
            return right(q, k, v, inputs)
        groups = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
        scores = (q @ k.mT) * q.shape[-1] ** -0.5
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        return torch.softmax(scores.masked_fill(~mask, -torch.inf), -1) @ v

    replace_fused(patch, wrong)


@fault("precision", subject="linear", check="bfloat16", at="blocks.0.attn.")
@replacing(LinearAttention, "_attend_explicit")
def sums_of_linear_attention_are_in_16_bits(
    right: Any, self: Any, q_feat: Tensor, k_feat: Tensor, v: Tensor, inputs: Any
) -> Tensor:
    """The sums of linear attention are kept in bfloat16."""
    return right(self, q_feat.bfloat16(), k_feat.bfloat16(), v.bfloat16(), inputs)


@fault("precision", subject="llama", check="float16", at="blocks.0.attn_norm.")
@replacing(norms.GainNorm, "normalize")
def squares_overflow_in_float16(right: Any, self: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
    """RMSNorm squares float16 numbers in float16, scaled so that some exceed 65,504."""
    if dtype != torch.float16:
        return right(self, x, dtype)
    squares = ((300 * x).half().square() / 90_000).float()
    rstd = self.t("rstd", torch.rsqrt(squares.mean(-1, keepdim=True) + self.eps))
    return self.t("out", (self.t("normed", x * rstd) * self.weight).to(dtype))


@fault("precision", subject="llama", check="bfloat16", at="blocks.0.mlp.act")
def activation_in_bfloat16_is_another(patch: Patch) -> None:
    """In bfloat16 alone, SiLU is replaced by GELU."""
    other_activation.plant(patch, lambda right, x: F.gelu(x) if x.dtype == torch.bfloat16 else right(x))


@fault("precision", subject="llama", check="fused", at="blocks.0.mlp.act")
def activation_is_carried_out_in_16_bits(patch: Patch) -> None:
    """SiLU rounds the exponential, the sum and the quotient."""
    other_activation.plant(patch, lambda right, x: x / (1 + torch.exp(-x)) if is_narrow(x) else right(x))


@fault("precision", subject="llama", check="fused", at="logits")
@replacing(transformer, "linear")
def logits_are_rounded_to_eight_bits(right: Any, x: Any, weight: Any, bias: Any) -> Any:
    """The logits of a float32 model pass through bfloat16."""
    return right(x, weight, bias).bfloat16().to(x.dtype)


@fault("precision", subject="wide", check="fused", at="blocks.0.attn.q_rot … z")
def scale_of_the_scores_is_five_percent_off_in_bfloat16(patch: Patch) -> None:
    """The kernel of bfloat16 multiplies the scores by 0.95/√D."""

    def wrong(right: Any, q: Tensor, k: Tensor, v: Tensor, inputs: Any) -> Tensor:
        return right(q * 0.95 if q.dtype == torch.bfloat16 else q, k, v, inputs)

    replace_fused(patch, wrong)


@fault("precision", subject="gpt2", check="bfloat16", at="blocks.0.resid_mid")
def residual_stream_is_rounded_twice(patch: Patch) -> None:
    """The attention output is rounded to five bits fewer before it is added."""

    def wrong(x: Tensor, output: Tensor) -> Tensor:
        if is_narrow(x):
            output = (output.float() * 8).round().to(x.dtype) / 8
        return x + output

    patch.setattr(block, "make_residual", lambda residual: wrong)
