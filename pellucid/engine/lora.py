"""Training with LoRA: projections with an adapter each, and the weights of the merged model.

A starts at random and B at 0, so that an adapted model starts as the model that it adapts.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.base.errors import UsageError
from pellucid.base.lora import A, B, merge
from pellucid.base.patterns import select
from pellucid.engine.linear import Linear, linear
from pellucid.engine.quantized_tensor import QuantizedTensor
from pellucid.engine.transformer import Transformer

T = TypeVar("T")


class LoraLinear(Linear):
    """x Wᵀ + b + s (x Aᵀ) Bᵀ, which is x (W + s B A)ᵀ + b without a gradient of W; W and b keep their
    names."""

    def __init__(self, base: Linear, rank: int, scale: float, dropout: float) -> None:
        nn.Module.__init__(self)
        if isinstance(base.weight, QuantizedTensor):
            raise UsageError("a quantized projection takes no adapter: start from a model of floats.")
        self.out_features, self.in_features = base.weight.shape
        self.weight, self.bias = base.weight, base.bias
        self.scale, self.dropout = scale, dropout
        self.lora_a = nn.Parameter(base.weight.new_zeros(rank, self.in_features))
        self.lora_b = nn.Parameter(base.weight.new_zeros(self.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self._adapt(x)

    def multiply(self, x: Tensor) -> Tensor:
        return super().multiply(x) + self._adapt(x)

    def widen_weight(self) -> Tensor:
        low_rank = (self.lora_a.detach().double(), self.lora_b.detach().double())
        merged: Tensor = merge(super().widen_weight(), *low_rank, self.scale)
        return merged

    def _adapt(self, x: Tensor) -> Tensor:
        """Returns s (x Aᵀ) Bᵀ."""
        dropped = F.dropout(x, self.dropout) if self.training and self.dropout else x
        return linear(self.scale * linear(dropped, self.lora_a, None), self.lora_b, None)


def adapt(
    model: Transformer, targets: Sequence[str], rank: int, scale: float, dropout: float = 0.0, seed: int = 0
) -> Transformer:
    """Replaces the projections whose names match a pattern by ones with an adapter, and returns the model.

    A is drawn as torch initializes linear layers, uniformly within ±1/√in, on the CPU and in the order of the
    model, so that a seed gives the same adapter on every device.
    """
    generator = torch.Generator().manual_seed(seed)
    projections = [name for name, module in model.named_modules() if isinstance(module, Linear)]
    for name in select(projections, targets, "lora.targets"):
        owner, _, last = name.rpartition(".")
        base = model.get_submodule(name)
        assert isinstance(base, Linear)
        layer = LoraLinear(base, rank, scale, dropout)
        uniform = torch.rand(layer.lora_a.shape, dtype=torch.float64, generator=generator)
        with torch.no_grad():
            layer.lora_a.copy_((2 * uniform - 1) * layer.in_features**-0.5)
        setattr(model.get_submodule(owner), last, layer)
    return model


def adapters(named: Mapping[str, T]) -> dict[str, T]:
    """Returns the entries whose names are those of adapters."""
    return {name: value for name, value in named.items() if name.endswith((A, B))}


class MergedWeights(Mapping[str, Tensor]):
    """The weights of the merged model, without adapters: W + s B A in the wider type of A and B, else W.

    A sum is computed when it is read, so that at most one is in memory.
    """

    def __init__(self, named: Mapping[str, Tensor], scale: float) -> None:
        self.named, self.scale = named, scale

    @torch.no_grad()
    def __getitem__(self, name: str) -> Tensor:
        weight, path = self.named[name].detach(), name.removesuffix(".weight")
        if path + A not in self.named or not name.endswith(".weight"):
            return weight
        a, b = self.named[path + A], self.named[path + B]
        wide = torch.promote_types(a.dtype, b.dtype)
        merged: Tensor = merge(weight.to(wide), a.to(wide), b.to(wide), self.scale)
        return merged

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.named if not name.endswith((A, B)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def fingerprint(named: Iterable[tuple[str, Tensor]]) -> str:
    """Returns the SHA-256 of the weights other than adapters, which identifies the adapted model."""
    digest = hashlib.sha256()
    for name, weight in named:
        if not name.endswith((A, B)):
            digest.update(name.encode())
            digest.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
