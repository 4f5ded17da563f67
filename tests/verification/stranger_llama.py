"""A Llama in plain PyTorch, written from the paper and not from this package, in which every part can be
replaced by a wrong one, and what `compare` says about it.

Each value is recorded under the name that `compare` knows it by. In 16-bit types it does what libraries do:
norms and softmax in float32, one rounding after each named operation, rotary embeddings in the type of the
run; `PER_OPERATION` is the other healthy convention, a rounding after every operation.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.explanation.trace import Trace
from pellucid.reference.training import forward
from pellucid.verification.compare import compare
from pellucid.verification.run_report import RunReport

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Sizes:
    vocabulary: int = 96
    width: int = 48
    layers: int = 2
    heads: int = 6
    key_heads: int = 2
    hidden: int = 96
    base: float = 10_000.0
    eps: float = 1e-5
    window: int | None = None
    """The keys that a query sees; None for all until its own."""

    def as_config(self) -> dict[str, Any]:
        """Returns the same sizes as the settings of a model of this package."""
        return {
            "vocab_size": self.vocabulary, "context_length": 512, "n_layer": self.layers,
            "n_head": self.heads, "n_kv_head": self.key_heads,
            "d_model": self.width, "d_ff": self.hidden, "mlp": "swiglu",
            "norm": {"kind": "rms_norm", "eps": self.eps}, "unembedding": "linear",
            "positions": {"kind": "rope", "layout": "halves", "base": self.base},
            "mask": {"kind": "window", "size": self.window} if self.window else "causal",
        }  # fmt: skip


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * normed.to(x.dtype)


def rms_norm_in_type(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def compute_angles(positions: Tensor, half: int, base: float) -> Tensor:
    return torch.outer(positions.float(), base ** -(torch.arange(half).float() / half))


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Returns the two halves of each head turned by the angles, all of it in the type of x."""
    cos, sin = torch.cos(angles).to(x.dtype), torch.sin(angles).to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def softmax(scores: Tensor) -> Tensor:
    return torch.softmax(scores, -1, dtype=torch.float32).to(scores.dtype)


def softmax_in_type(scores: Tensor) -> Tensor:
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


def causal(length: int) -> Tensor:
    return torch.ones(length, length).tril().bool()


def gated(gate: Tensor, up: Tensor, act: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Returns the activation and its product with the up-projection."""
    return act(gate), act(gate) * up


@dataclass(frozen=True)
class Parts:
    """The operations of the model. A bug is one of them replaced."""

    norm: Callable[[Tensor, Tensor, float], Tensor] = rms_norm
    final_norm: Callable[[Tensor, Tensor, float], Tensor] | None = None
    eps: float | None = None
    angles: Callable[[Tensor, int, float], Tensor] = compute_angles
    query_positions: Callable[[Tensor], Tensor] = lambda positions: positions
    key_positions: Callable[[Tensor], Tensor] = lambda positions: positions
    rotate: Callable[[Tensor, Tensor], Tensor] = rotate
    repeat: Callable[[Tensor, int], Tensor] = lambda heads, times: heads.repeat_interleave(times, 1)
    linear: Callable[[Tensor, Tensor], Tensor] = F.linear
    output: Callable[[Tensor, Tensor], Tensor] = F.linear
    scale: Callable[[int, int], float] = lambda head, width: head**-0.5
    mask: Callable[[int], Tensor] = causal
    hidden_score: float = -math.inf
    softmax: Callable[[Tensor], Tensor] = softmax
    mix: Callable[[Tensor, Tensor], Tensor] = torch.matmul
    join: Callable[[Tensor], Tensor] = lambda z: z.transpose(1, 2).flatten(2)
    act: Callable[[Tensor], Tensor] = F.silu
    gated: Callable[..., tuple[Tensor, Tensor]] = gated
    add: Callable[[Tensor, Tensor], Tensor] = torch.add
    residual: Callable[[Tensor, Tensor], Tensor] = lambda x, normed: x
    embed: Callable[[Tensor, Tensor], Tensor] = lambda weight, ids: weight[ids]


PER_OPERATION = Parts(norm=rms_norm_in_type, softmax=softmax_in_type)


def make_weights(sizes: Sizes, dtype: torch.dtype, seed: int, gain: float = 1.0) -> Weights:
    """Returns random weights by the names of this package; `gain` is the size of the embedding."""
    random = torch.Generator().manual_seed(seed)

    def draw(rows: int, columns: int, scale: float = 1.0) -> Tensor:
        drawn: Tensor = torch.randn(rows, columns, generator=random) * (scale * 1.5 * columns**-0.5)
        return drawn.to(dtype)

    def gains() -> Tensor:
        return (1 + 0.4 * torch.randn(sizes.width, generator=random)).to(dtype)

    keys = sizes.width // sizes.heads * sizes.key_heads
    made = {"embed.weight": draw(sizes.vocabulary, sizes.width, gain * sizes.width**0.5 / 1.5)}
    for block in (f"blocks.{layer}" for layer in range(sizes.layers)):
        made |= {
            f"{block}.attn_norm.weight": gains(),
            f"{block}.attn.q_proj.weight": draw(sizes.width, sizes.width),
            f"{block}.attn.k_proj.weight": draw(keys, sizes.width),
            f"{block}.attn.v_proj.weight": draw(keys, sizes.width),
            f"{block}.attn.o_proj.weight": draw(sizes.width, sizes.width),
            f"{block}.mlp_norm.weight": gains(),
            f"{block}.mlp.gate_proj.weight": draw(sizes.hidden, sizes.width),
            f"{block}.mlp.up_proj.weight": draw(sizes.hidden, sizes.width),
            f"{block}.mlp.down_proj.weight": draw(sizes.width, sizes.hidden),
        }
    return made | {"final_norm.weight": gains(), "unembed.weight": draw(sizes.vocabulary, sizes.width)}


def run(sizes: Sizes, weights: Weights, ids: Tensor, parts: Parts | None = None) -> dict[str, Tensor]:
    """Returns every value of a forward pass on ids [B T] in the type of the weights."""
    parts = parts or Parts()
    eps = sizes.eps if parts.eps is None else parts.eps
    places, half = torch.arange(ids.shape[1]), sizes.width // sizes.heads // 2
    kept: dict[str, Tensor] = {}

    def keep(name: str, value: Tensor) -> Tensor:
        kept[name] = value
        return value

    def project(layer: str, x: Tensor) -> Tensor:
        return parts.linear(x, weights[f"{layer}.weight"])

    def norm(name: str, x: Tensor) -> Tensor:
        made = (parts.final_norm if name == "final_norm" and parts.final_norm else parts.norm)(
            x, weights[f"{name}.weight"], eps
        )
        return keep(f"{name}.out", made)

    x = keep("embedded", parts.embed(weights["embed.weight"], ids))
    for block in (f"blocks.{layer}" for layer in range(sizes.layers)):
        y, attn, mlp = norm(f"{block}.attn_norm", x), f"{block}.attn", f"{block}.mlp"
        q, k, v = (
            keep(
                f"{attn}.{name}", project(f"{attn}.{name}_proj", y).unflatten(-1, (count, -1)).transpose(1, 2)
            )
            for name, count in (("q", sizes.heads), ("k", sizes.key_heads), ("v", sizes.key_heads))
        )
        q = keep(
            f"{attn}.q_rot", parts.rotate(q, parts.angles(parts.query_positions(places), half, sizes.base))
        )
        k = keep(
            f"{attn}.k_rot", parts.rotate(k, parts.angles(parts.key_positions(places), half, sizes.base))
        )
        k, v = (parts.repeat(heads, sizes.heads // sizes.key_heads) for heads in (k, v))
        scores = keep(
            f"{attn}.scores", parts.mix(q, k.transpose(-1, -2)) * parts.scale(2 * half, sizes.width)
        )
        masked = keep(f"{attn}.masked", scores.masked_fill(~parts.mask(len(places)), parts.hidden_score))
        z = keep(f"{attn}.z", parts.mix(keep(f"{attn}.pattern", parts.softmax(masked)), v))
        out = keep(f"{block}.attn_out", parts.output(parts.join(z), weights[f"{attn}.o_proj.weight"]))
        x = keep(f"{block}.resid_mid", parts.add(parts.residual(x, y), out))
        y = norm(f"{block}.mlp_norm", x)
        gate, up = (keep(f"{mlp}.{name}", project(f"{mlp}.{name}_proj", y)) for name in ("gate", "up"))
        act, hidden = parts.gated(gate, up, parts.act)
        keep(f"{mlp}.act", act)
        out = keep(f"{block}.mlp_out", project(f"{mlp}.down_proj", keep(f"{mlp}.hidden", hidden)))
        x = keep(f"{block}.resid_post", parts.add(parts.residual(x, y), out))
    logits = keep("logits", project("unembed", norm("final_norm", x)))
    keep("probs", parts.softmax(logits))
    return kept


# ---- bugs


def accumulate_in_type(x: Tensor, weight: Tensor) -> Tensor:
    """Returns x Wᵀ with a sum that is rounded after every term."""
    total = torch.zeros(*x.shape[:-1], weight.shape[0], dtype=x.dtype)
    for channel in range(x.shape[-1]):
        total = total + x[..., channel, None] * weight[:, channel]
    return total


def angles_in(dtype: torch.dtype) -> Callable[[Tensor, int, float], Tensor]:
    def compute(positions: Tensor, half: int, base: float) -> Tensor:
        frequencies = compute_angles(torch.ones(1), half, base)
        return (positions.to(dtype)[:, None] * frequencies.to(dtype)).float()

    return compute


def rotate_in_pairs(x: Tensor, angles: Tensor) -> Tensor:
    cos, sin = torch.cos(angles).to(x.dtype), torch.sin(angles).to(x.dtype)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)


def rotate_narrowly(x: Tensor, angles: Tensor) -> Tensor:
    """Returns the rotation with cosines and sines of four bits, as an 8-bit type holds them."""
    cos, sin = ((f(angles) * 16).round() / 16 for f in (torch.cos, torch.sin))
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


def layer_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x.float(), x.shape[-1:], None, None, eps).to(x.dtype) * weight


def norm_by_n_minus_one(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    variance = wide.pow(2).sum(-1, keepdim=True) / (x.shape[-1] - 1)
    return weight * (wide * torch.rsqrt(variance + eps)).to(x.dtype)


def accumulate_norm_in_type(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Returns the norm with a sum of squares that is rounded after every term."""
    total = torch.zeros(*x.shape[:-1], 1, dtype=x.dtype)
    for channel in range(x.shape[-1]):
        total = total + x[..., channel, None].square()
    return x * torch.rsqrt(total / x.shape[-1] + eps) * weight


def accumulate_softmax_in_type(scores: Tensor) -> Tensor:
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    total = torch.zeros(*scores.shape[:-1], 1, dtype=scores.dtype)
    for key in range(scores.shape[-1]):
        total = total + powers[..., key, None]
    return powers / total


def shifted(positions: Tensor) -> Tensor:
    return positions + 1


BUGS: dict[str, Parts] = {
    "eps of 1e-3": Parts(eps=1e-3),
    "rope base": Parts(angles=lambda places, half, _: compute_angles(places, half, 500_000.0)),
    "rope in pairs": Parts(rotate=rotate_in_pairs),
    "rope reversed": Parts(rotate=lambda x, angles: rotate(x, -angles)),
    "rope counted from one": Parts(query_positions=shifted, key_positions=shifted),
    "queries one position ahead": Parts(query_positions=shifted),
    "rope angles in bfloat16": Parts(angles=angles_in(torch.bfloat16)),
    "rope angles in float16": Parts(angles=angles_in(torch.float16)),
    "rope omitted": Parts(rotate=lambda x, angles: x),
    "rope of few bits": Parts(rotate=rotate_narrowly),
    "rope only of the queries": Parts(key_positions=torch.zeros_like),
    "heads repeated in turn": Parts(repeat=lambda heads, times: heads.repeat(1, times, 1, 1)),
    "no scale": Parts(scale=lambda head, width: 1.0),
    "scale by the width": Parts(scale=lambda head, width: width**-0.5),
    "scale 5 % off": Parts(scale=lambda head, width: 1.05 * head**-0.5),
    "mask one ahead": Parts(mask=lambda n: torch.ones(n, n).tril(1).bool()),
    "no mask": Parts(mask=lambda n: torch.ones(n, n).bool()),
    "mask without the diagonal": Parts(
        mask=lambda n: torch.ones(n, n).tril(-1).bool() | (torch.arange(n) == 0)
    ),
    "mask of -1e4": Parts(hidden_score=-1e4),
    "softmax over the queries": Parts(softmax=lambda s: torch.softmax(s.float(), -2).to(s.dtype)),
    "softmax accumulated in type": Parts(softmax=accumulate_softmax_in_type),
    "norm accumulated in type": Parts(norm=accumulate_norm_in_type),
    "norm in type": Parts(norm=rms_norm_in_type),
    "softmax in type": Parts(softmax=softmax_in_type),
    "products accumulated in type": Parts(linear=accumulate_in_type),
    "layer norm": Parts(norm=layer_norm),
    "norm by n - 1": Parts(norm=norm_by_n_minus_one),
    "gain of 1 + weight": Parts(norm=lambda x, w, eps: rms_norm(x, w + 1, eps)),
    "final norm omitted": Parts(final_norm=lambda x, w, eps: x * w),
    "gelu": Parts(act=F.gelu),
    "gate and up swapped": Parts(gated=lambda gate, up, act: gated(up, gate, act)),
    "output transposed": Parts(output=lambda x, w: F.linear(x, w.T)),
    "heads joined by channel": Parts(join=lambda z: z.permute(0, 2, 3, 1).flatten(2)),
    "embedding scaled": Parts(embed=lambda w, ids: w[ids] * w.shape[1] ** 0.5),
    "residual forgotten": Parts(add=lambda x, out: out),
    "residual after the norm": Parts(residual=lambda x, normed: normed),
}  # fmt: skip
"""A part replaced by a wrong one, each of a kind that happened in public projects."""


EVERYTHING = re.compile(".*")
MODULES = re.compile(
    r"embedded|.*norm\.out|.*attn\.[qkvz]|.*attn\.pattern|.*(attn|mlp)_out|.*mlp\.\w+|.*resid_post|logits"
)
"""What hooks on the modules of a library see."""
HIDDEN_STATES = re.compile(r"embedded|.*resid_post|final_norm\.out|logits")
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def compare_run(
    type: str,
    parts: Parts | None = None,
    keep: re.Pattern[str] = EVERYTHING,
    sizes: Sizes | None = None,
    *,
    length: int = 32,
    gain: float = 0.05,
    seed: int = 0,
) -> RunReport:
    """Returns what `compare` says about a run with these parts, of which some values are kept."""
    sizes = sizes or Sizes()
    weights = make_weights(sizes, TYPES[type], seed, gain)
    ids = torch.randint(0, sizes.vocabulary, (1, length), generator=torch.Generator().manual_seed(seed))
    kept = {name: x for name, x in run(sizes, weights, ids, parts).items() if keep.fullmatch(name)}
    wide = {name: weight.double().numpy() for name, weight in weights.items()}
    ours = Trace(forward(ModelConfig.from_dict(sizes.as_config()), wide, ids.numpy()))
    report = compare(ours, kept)
    assert isinstance(report, RunReport)
    return report


def with_bug(parts: Parts, bug: str) -> Parts:
    """Returns these parts with those of the bug that are not the usual ones."""
    usual, wrong = Parts(), BUGS[bug]
    changed = {
        name: getattr(wrong, name) for name in vars(wrong) if getattr(wrong, name) != getattr(usual, name)
    }
    return replace(parts, **changed)
