"""GPT-2 and Llama written down once more from their formulas, in PyTorch, for autograd to differentiate."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Named = dict[str, Tensor]
Keep = Callable[[str, Tensor], Tensor]


def keeper() -> tuple[Named, Keep]:
    """Values by name, and the function that puts them there and asks autograd for their gradients."""
    kept: Named = {}

    def keep(name: str, value: Tensor) -> Tensor:
        value.retain_grad()
        kept[name] = value
        return value

    return kept, keep


def gpt2(
    w: Named, ids: Tensor, targets: Tensor, real: Tensor, *, layers: int, heads: int, eps: float
) -> Named:
    """Radford et al. 2019: learned positions, LayerNorm before each part, tanh GELU, biases, tied."""
    (kept, keep), length = keeper(), ids.shape[1]

    def norm(name: str, x: Tensor) -> Tensor:
        return keep(f"{name}.out", F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], eps))

    x = keep("embedded", w["embed.weight"][ids])
    x = keep("positioned", x + keep("position_rows", w["positions.weight"][:length]))
    for b in (f"blocks.{layer}" for layer in range(layers)):
        y = norm(f"{b}.attn_norm", keep(f"{b}.resid_pre", x))
        q, k, v = (keep(f"{b}.attn.{n}", split(linear(w, f"{b}.attn.{n}_proj", y), heads)) for n in "qkv")
        z = attend(keep, f"{b}.attn", q, k, v, real)
        x = keep(f"{b}.resid_mid", x + keep(f"{b}.attn_out", linear(w, f"{b}.attn.o_proj", join(z))))
        up = keep(f"{b}.mlp.up", linear(w, f"{b}.mlp.up_proj", norm(f"{b}.mlp_norm", x)))
        hidden = keep(f"{b}.mlp.hidden", keep(f"{b}.mlp.act", F.gelu(up, approximate="tanh")))
        x = keep(f"{b}.resid_post", x + keep(f"{b}.mlp_out", linear(w, f"{b}.mlp.down_proj", hidden)))
    logits = keep("logits", norm("final_norm", x) @ w["embed.weight"].T)
    keep("probs", logits.softmax(-1))
    nll = keep("nll", F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=-100, reduction="none"))
    keep("loss", nll.sum() / (targets != -100).sum())
    return kept


def llama(
    w: Named,
    ids: Tensor,
    targets: Tensor,
    real: Tensor,
    *,
    layers: int,
    heads: int,
    kv_heads: int,
    eps: float,
    base: float,
) -> Named:
    """Touvron et al. 2023: RMSNorm, rotary positions in halves, SwiGLU, shared key heads, untied."""
    (kept, keep), length = keeper(), ids.shape[1]

    def norm(name: str, x: Tensor) -> Tensor:
        rstd = keep(f"{name}.rstd", torch.rsqrt(x.square().mean(-1, keepdim=True) + eps))
        return keep(f"{name}.out", w[f"{name}.weight"] * keep(f"{name}.normed", x * rstd))

    def turn(x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        angle = torch.outer(torch.arange(length).double(), base ** (-torch.arange(half).double() / half))
        rotated = torch.polar(torch.ones_like(angle), angle) * torch.complex(x[..., :half], x[..., half:])
        return torch.cat([rotated.real, rotated.imag], -1)

    x = keep("embedded", w["embed.weight"][ids])
    for b in (f"blocks.{layer}" for layer in range(layers)):
        y = norm(f"{b}.attn_norm", keep(f"{b}.resid_pre", x))
        q = keep(f"{b}.attn.q", split(linear(w, f"{b}.attn.q_proj", y), heads))
        k = keep(f"{b}.attn.k", split(linear(w, f"{b}.attn.k_proj", y), kv_heads))
        v = keep(f"{b}.attn.v", split(linear(w, f"{b}.attn.v_proj", y), kv_heads))
        q, k = keep(f"{b}.attn.q_rot", turn(q)), keep(f"{b}.attn.k_rot", turn(k))
        k, v = (n.repeat_interleave(heads // kv_heads, dim=1) for n in (k, v))
        z = attend(keep, f"{b}.attn", q, k, v, real)
        x = keep(f"{b}.resid_mid", x + keep(f"{b}.attn_out", linear(w, f"{b}.attn.o_proj", join(z))))
        y = norm(f"{b}.mlp_norm", x)
        act = keep(f"{b}.mlp.act", F.silu(keep(f"{b}.mlp.gate", linear(w, f"{b}.mlp.gate_proj", y))))
        hidden = keep(f"{b}.mlp.hidden", act * keep(f"{b}.mlp.up", linear(w, f"{b}.mlp.up_proj", y)))
        x = keep(f"{b}.resid_post", x + keep(f"{b}.mlp_out", linear(w, f"{b}.mlp.down_proj", hidden)))
    logits = keep("logits", linear(w, "unembed", norm("final_norm", x)))
    keep("probs", logits.softmax(-1))
    counted = targets != -100
    wanted = logits.gather(-1, torch.where(counted, targets, 0)[..., None])[..., 0]
    nll = keep("nll", (keep("lse", logits.logsumexp(-1)) - wanted) * counted)
    keep("loss", nll.sum() / counted.sum())
    return kept


def attend(keep: Keep, name: str, q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Tensor:
    """softmax(Q Kᵀ / √D + mask) V, where a position sees the real tokens up to itself."""
    scores = keep(f"{name}.scores", q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]))
    seen = torch.ones(scores.shape[-2:]).tril().bool() & real.bool()[:, None, None, :]
    masked = keep(f"{name}.masked", scores.masked_fill(~seen, -math.inf))
    return keep(f"{name}.z", keep(f"{name}.pattern", masked.softmax(-1)) @ v)


def linear(w: Named, layer: str, x: Tensor) -> Tensor:
    return F.linear(x, w[f"{layer}.weight"], w.get(f"{layer}.bias"))


def split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join(z: Tensor) -> Tensor:
    return z.transpose(1, 2).flatten(2)
