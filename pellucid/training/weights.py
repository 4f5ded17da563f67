"""What an optimizer moves: the parameters that learn, in a type wide enough for small steps.

A step moves a weight by less than a thousandth of itself, and bfloat16 knows only every 256th number between
a power of two and the next. So a model that computes in bfloat16 has masters in float32: gradients are added
up in them, the optimizer moves them, and the model gets their rounded copies.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import torch
from torch import nn

from pellucid.errors import ConfigError, did_you_mean
from pellucid.model.lora import adapters
from pellucid.model.transformer import Transformer
from pellucid.training.distributed.pieces import local

Named = dict[str, nn.Parameter]


class Weights:
    """Of a model in float32 or float64, its own parameters; of a narrower one, masters of those that learn.
    Where a model has adapters, nothing else learns."""

    def __init__(self, model: Transformer, only: Sequence[str] = (), freeze: Sequence[str] = ()) -> None:
        self.narrow: Named = {}
        self.named: Named = dict(model.named_parameters())
        learning = chosen(list(adapters(self.named) or self.named), only, freeze)
        for name, parameter in self.named.items():
            parameter.requires_grad_(name in learning)
        if model.dtype == torch.bfloat16:
            self.narrow = {name: weight for name, weight in self.named.items() if name in learning}
            self.named = self.named | {
                name: nn.Parameter(weight.detach().float()) for name, weight in self.narrow.items()
            }
        self.learning: Named = {name: self.named[name] for name in self.named if name in learning}
        self.slopes = {name: torch.zeros_like(w) for name, w in self.learning.items()} if self.narrow else {}

    @torch.no_grad()
    def collect(self) -> None:
        """After a backward pass: add the narrow gradients to the masters' own."""
        if not self.narrow:
            return
        names = [name for name in self.learning if self.narrow[name].grad is not None]
        first = [name for name in names if self.named[name].grad is None]
        later = [name for name in names if self.named[name].grad is not None]
        for some, join in ((first, torch._foreach_copy_), (later, torch._foreach_add_)):
            slopes = [local(slope) for name in some if (slope := self.narrow[name].grad) is not None]
            if slopes:
                join([local(self.slopes[name]) for name in some], slopes)
        for name in names:
            self.named[name].grad, self.narrow[name].grad = self.slopes[name], None

    def forget(self) -> None:
        """After an update, or one that was given up: no gradient is left for the next."""
        for parameter in (*self.learning.values(), *self.narrow.values()):
            parameter.grad = None

    @torch.no_grad()
    def spread(self) -> None:
        """After the masters were moved: give the model their rounded copies."""
        if self.narrow:
            masters = [local(self.named[name]) for name in self.narrow]
            torch._foreach_copy_([local(weight) for weight in self.narrow.values()], masters)


def chosen(names: Sequence[str], only: Sequence[str], freeze: Sequence[str]) -> set[str]:
    """The names that meet a pattern of `only`, all where there is none, and none of `freeze`.

    >>> sorted(chosen(["embed.weight", "unembed.weight", "unembed.bias"], ["unembed.*"], ["*.bias"]))
    ['unembed.weight']
    """
    for key, patterns in (("only", only), ("freeze", freeze)):
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ConfigError(
                    f"train.{key}={pattern!r} meets no parameter; there are {names[0]}, {names[-1]} and "
                    f"{len(names) - 2} more.{did_you_mean(pattern, names)}"
                )
    return {
        name
        for name in names
        if (not only or any(fnmatchcase(name, pattern) for pattern in only))
        and not any(fnmatchcase(name, pattern) for pattern in freeze)
    }
