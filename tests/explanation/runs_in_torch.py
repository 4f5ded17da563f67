"""GPT-2 and Llama in eager PyTorch in any type, every value recorded, with bugs to plant.

A bug is a function that changes one thing: `bugs={"scale": lambda s: 1.0}`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.reference.op import Array
from pellucid.verification.foreign_values import RecordedValue

Bugs = Mapping[str, Callable[[Any], Any]]


def config(family: str, width: int = 8, context: int = 16, heads: int = 2, layers: int = 2) -> ModelConfig:
    common = {
        "vocab_size": 11, "context_length": context, "n_layer": layers, "n_head": heads, "d_model": width,
    }  # fmt: skip
    if family == "llama":
        more = {
            "norm": "rms_norm",
            "mlp": "swiglu",
            "d_ff": 2 * width,
            "positions": {"kind": "rope", "layout": "halves"},
        }
        return ModelConfig.from_dict(
            common
            | more
            | {"unembedding": "linear", "n_kv_head": heads // 3 if heads % 3 == 0 else heads // 2}
        )
    biases = ["qkv", "output", "mlp", "norm"]
    return ModelConfig.from_dict(
        common | {"positions": "learned", "norm": "layer_norm", "mlp": "gelu_tanh", "biases": biases}
    )


def weights(config: ModelConfig, dtype: torch.dtype, seed: int) -> dict[str, Tensor]:
    random = np.random.default_rng(seed)
    made = {}
    for name, shape in config.parameters().items():
        fan_in = shape[-1] if len(shape) > 1 else 4
        value = random.standard_normal(shape) * (1.0 if "embed" in name else 1.5 * fan_in**-0.5)
        made[name] = torch.tensor(value + name.endswith("norm.weight")).to(dtype)
    return made


def widened(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    return {name: tensor.detach().double().numpy() for name, tensor in tensors.items()}


def run(
    config: ModelConfig, w: Mapping[str, Tensor], ids: Tensor, targets: Tensor, bugs: Bugs | None = None
) -> dict[str, RecordedValue]:
    """Every named value of a forward pass in the weights' own type."""
    kept: dict[str, RecordedValue] = {}
    dtype = w["embed.weight"].dtype
    wide = torch.promote_types(dtype, torch.float32)

    def keep(name: str, value: Tensor) -> Tensor:
        kept[name] = RecordedValue(value.detach().double().numpy(), str(value.dtype).removeprefix("torch."))
        return value

    def but(name: str, right: Any) -> Any:
        return bugs[name](right) if bugs and name in bugs else right

    def linear(layer: str, x: Tensor) -> Tensor:
        return F.linear(x, but(f"{layer}.weight", w[f"{layer}.weight"]), w.get(f"{layer}.bias"))

    def norm(name: str, x: Tensor) -> Tensor:
        eps = but("eps", config.norm.eps)
        if config.norm.kind == "layer_norm":
            return keep(
                f"{name}.out", F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], eps)
            )
        rstd = torch.rsqrt(x.to(wide).square().mean(-1, keepdim=True) + eps)
        rstd = keep(f"{name}.rstd", rstd.to(dtype))
        return keep(f"{name}.out", keep(f"{name}.normed", x * rstd) * w[f"{name}.weight"])

    def turn(x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        places = but("positions", torch.arange(x.shape[-2])).to(wide)
        base = but("base", config.positions.base)
        angle = torch.outer(places, base ** -(torch.arange(half).to(wide) / half))
        cos, sin = (f(angle).to(dtype) for f in (torch.cos, torch.sin))
        if but("layout", "halves") == "pairs":
            a, b = x[..., ::2], x[..., 1::2]
            return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    heads, group = config.n_head, config.n_head // config.n_kv_head
    x = keep("embedded", w["embed.weight"][ids])
    if "positions.weight" in w:
        x = keep("positioned", x + keep("position_rows", w["positions.weight"][: ids.shape[1]]))
    for b in (f"blocks.{layer}" for layer in range(config.n_layer)):
        a, y = f"{b}.attn", norm(f"{b}.attn_norm", keep(f"{b}.resid_pre", x))
        q, k, v = (
            keep(f"{a}.{n}", linear(f"{a}.{n}_proj", y).unflatten(-1, (h, -1)).transpose(1, 2))
            for n, h in (("q", heads), ("k", config.n_kv_head), ("v", config.n_kv_head))
        )
        if config.positions.kind == "rope":
            q, k = keep(f"{a}.q_rot", turn(q)), keep(f"{a}.k_rot", turn(k))
        k, v = (but("repeat", lambda n: n.repeat_interleave(group, dim=1))(n) for n in (k, v))
        scores = keep(f"{a}.scores", q @ k.transpose(-1, -2) * but("scale", q.shape[-1] ** -0.5))
        seen = torch.ones(scores.shape[-2:]).tril(but("diagonal", 0)).bool()
        masked = keep(f"{a}.masked", scores.masked_fill(~seen, -math.inf))
        z = keep(f"{a}.z", keep(f"{a}.pattern", masked.softmax(-1)) @ v)
        x = keep(
            f"{b}.resid_mid", x + keep(f"{b}.attn_out", linear(f"{a}.o_proj", z.transpose(1, 2).flatten(2)))
        )
        y, m = norm(f"{b}.mlp_norm", x), f"{b}.mlp"
        up = keep(f"{m}.up", linear(f"{m}.up_proj", y))
        if config.mlp.form == "gated":
            gate, up = but("gate", (keep(f"{m}.gate", linear(f"{m}.gate_proj", y)), up))
            act = keep(f"{m}.act", but("silu", F.silu)(gate))
            hidden = keep(f"{m}.hidden", act * up)
        else:
            hidden = keep(f"{m}.act", F.gelu(up, approximate=but("gelu", "tanh")))
        x = keep(f"{b}.resid_post", x + keep(f"{b}.mlp_out", linear(f"{m}.down_proj", hidden)))
    y = norm("final_norm", x)
    logits = keep("logits", y @ w[config.unembedding.weight].T)
    keep("probs", logits.softmax(-1))
    nll = keep("nll", keep("lse", logits.logsumexp(-1)) - logits.gather(-1, targets[..., None])[..., 0])
    keep("loss", nll.mean())
    return kept
