"""LoRA: a frozen projection and a learned one of low rank beside it, W' = W + s B A.

Hu et al. 2021, arXiv:2106.09685. A (rank, in) begins drawn by dice and B (out, rank) with zeros, so that an
adapted model begins as the model that it adapts. The adapters of blocks.3.attn.q_proj are called
blocks.3.attn.q_proj.lora_a and …lora_b.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pellucid.errors import ConfigError, did_you_mean
from pellucid.model.linear import Linear, linear
from pellucid.model.transformer import Transformer

A, B = ".lora_a", ".lora_b"
T = TypeVar("T")


class Adapted(Linear):
    """x Wᵀ + b + s (x Aᵀ) Bᵀ, which is x (W + s B A)ᵀ + b without W's gradient; W and b keep their names."""

    def __init__(self, base: Linear, rank: int, scale: float, dropout: float) -> None:
        nn.Module.__init__(self)
        self.out_features, self.in_features = base.weight.shape
        self.weight, self.bias = base.weight, base.bias
        self.scale, self.dropout = scale, dropout
        self.lora_a = nn.Parameter(base.weight.new_zeros(rank, self.in_features))
        self.lora_b = nn.Parameter(base.weight.new_zeros(self.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        dropped = F.dropout(x, self.dropout) if self.training and self.dropout else x
        inner = self.scale * linear(dropped, self.lora_a, None)
        return super().forward(x) + linear(inner, self.lora_b, None)


def adapt(
    model: Transformer, targets: Sequence[str], rank: int, scale: float, dropout: float = 0.0, seed: int = 0
) -> Transformer:
    """Give the projections whose names meet a pattern an adapter each. A is drawn as torch's linear layers
    are, evenly within ±1/√in, on the CPU and in the order of the model, so that a seed means one adapter."""
    dice = torch.Generator().manual_seed(seed)
    for name in matched([n for n, m in model.named_modules() if isinstance(m, Linear)], targets):
        owner, _, last = name.rpartition(".")
        base = model.get_submodule(name)
        assert isinstance(base, Linear)
        made = Adapted(base, rank, scale, dropout)
        drawn = torch.rand(made.lora_a.shape, dtype=torch.float64, generator=dice)
        with torch.no_grad():
            made.lora_a.copy_((2 * drawn - 1) * made.in_features**-0.5)
        setattr(model.get_submodule(owner), last, made)
    return model


def matched(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The projections that meet one of the patterns, each of which must meet some."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(
                f"lora.targets={pattern!r} meets no projection; there are {names[0]}, {names[-1]} and "
                f"{len(names) - 2} more.{did_you_mean(pattern, names)}"
            )
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def adapters(named: Mapping[str, T]) -> dict[str, T]:
    """Those of the names that are adapters."""
    return {name: value for name, value in named.items() if name.endswith((A, B))}


class Merged(Mapping[str, Tensor]):
    """The weights of an ordinary model: W + s B A for each that has an adapter, in the adapter's wider type.
    A sum is made when it is asked for, so that they need no memory together."""

    def __init__(self, named: Mapping[str, Tensor], scale: float) -> None:
        self.named, self.scale = named, scale

    @torch.no_grad()
    def __getitem__(self, name: str) -> Tensor:
        weight, path = self.named[name].detach(), name.removesuffix(".weight")
        if path + A not in self.named or not name.endswith(".weight"):
            return weight
        a, b = self.named[path + A], self.named[path + B]
        wide = torch.promote_types(a.dtype, b.dtype)
        return weight.to(wide) + self.scale * (b.to(wide) @ a.to(wide))

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.named if not name.endswith((A, B)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def fingerprint(named: Iterable[tuple[str, Tensor]]) -> str:
    """SHA-256 of the weights that are no adapters: which model it is that is adapted."""
    found = hashlib.sha256()
    for name, weight in named:
        if not name.endswith((A, B)):
            found.update(name.encode())
            found.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()
