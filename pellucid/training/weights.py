"""The parameters that an optimizer updates, in a type that can hold small updates, and their running average.

An update changes a weight by less than a thousandth of itself, and bfloat16 has only 8 significant bits. So a
model that computes in bfloat16 has float32 master weights: gradients are accumulated in them, the optimizer
updates them, and the model gets their rounded copies.
"""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from pellucid.base.patterns import matches, select
from pellucid.engine.lora import adapters
from pellucid.engine.transformer import Transformer
from pellucid.training.distributed.sharded import to_local

Named = dict[str, nn.Parameter]


class Weights:
    """The parameters of a model by name: its own in float32 or float64, or float32 masters of bfloat16 ones.

    Where a model has LoRA adapters, only these are trainable.
    """

    def __init__(self, model: Transformer, only: Sequence[str] = (), freeze: Sequence[str] = ()) -> None:
        self.bfloat16: Named = {}
        """The model's own parameters, where `named` has float32 masters of them."""
        self.named: Named = dict(model.named_parameters())
        trainable = select_trainable(list(adapters(self.named) or self.named), only, freeze)
        for name, parameter in self.named.items():
            parameter.requires_grad_(name in trainable)
        if model.dtype == torch.bfloat16:
            self.bfloat16 = {name: weight for name, weight in self.named.items() if name in trainable}
            self.named = self.named | {
                name: nn.Parameter(weight.detach().float()) for name, weight in self.bfloat16.items()
            }
        self.trainable: Named = {name: self.named[name] for name in self.named if name in trainable}
        self._master_grads = (
            {name: torch.zeros_like(weight) for name, weight in self.trainable.items()}
            if self.bfloat16
            else {}
        )

    def grads(self) -> list[Tensor]:
        """Returns the gradients of the trainable parameters that have one."""
        return [parameter.grad for parameter in self.trainable.values() if parameter.grad is not None]

    @torch.no_grad()
    def accumulate_grads(self) -> None:
        """Adds the bfloat16 gradients of a backward pass to those of the masters."""
        if not self.bfloat16:
            return
        names = [name for name in self.trainable if self.bfloat16[name].grad is not None]
        first = [name for name in names if self.named[name].grad is None]
        later = [name for name in names if self.named[name].grad is not None]
        for group, accumulate in ((first, torch._foreach_copy_), (later, torch._foreach_add_)):
            grads = [to_local(grad) for name in group if (grad := self.bfloat16[name].grad) is not None]
            if grads:
                accumulate([to_local(self._master_grads[name]) for name in group], grads)
        for name in names:
            self.named[name].grad, self.bfloat16[name].grad = self._master_grads[name], None

    def zero_grads(self) -> None:
        """Sets all gradients to None, after an update or a skipped one."""
        for parameter in (*self.trainable.values(), *self.bfloat16.values()):
            parameter.grad = None

    @torch.no_grad()
    def copy_to_model(self) -> None:
        """Copies the masters, rounded to bfloat16, to the model; nothing where there are no masters."""
        if self.bfloat16:
            masters = [to_local(self.named[name]) for name in self.bfloat16]
            torch._foreach_copy_([to_local(weight) for weight in self.bfloat16.values()], masters)


class WeightAverage:
    """The exponential moving average of the trainable weights: θ̄ ← β θ̄ + (1 − β) θ after every update.

    With a `beta` of 0 there is none, and `mean` is empty.
    """

    def __init__(self, weights: Weights, beta: float) -> None:
        self.weights, self.beta = weights, beta
        self.mean = {name: w.detach().clone() for name, w in weights.trainable.items()} if beta else {}

    @torch.no_grad()
    def update(self) -> None:
        if self.mean:
            current: list[Tensor] = [self.weights.trainable[name] for name in self.mean]
            torch._foreach_lerp_(list(self.mean.values()), current, 1 - self.beta)

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """In this block the model computes with the averaged weights."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, mean in self.mean.items():
            current = self.weights.trainable[name].clone()
            self.weights.trainable[name].copy_(mean)
            mean.copy_(current)
        self.weights.copy_to_model()


def select_trainable(names: Sequence[str], only: Sequence[str], freeze: Sequence[str]) -> set[str]:
    """Returns the names that match a pattern of `only` (all where it is empty) and none of `freeze`.

    >>> sorted(select_trainable(["embed.weight", "unembed.weight", "unembed.bias"], ["un*"], ["*.bias"]))
    ['unembed.weight']
    """
    selected = select(names, only, "train.only") if only else names
    select(names, freeze, "train.freeze")  # refuses a pattern that matches nothing
    return {name for name in selected if not matches(name, freeze)}
