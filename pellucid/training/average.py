"""A running mean of the weights: θ̄ ← β θ̄ + (1 − β) θ after every update. Evaluations use it."""

import contextlib
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor


class Average:
    """With a `beta` of 0 there is none, and the weights are their own mean."""

    def __init__(self, named: Mapping[str, Tensor], beta: float) -> None:
        self.named, self.beta = named, beta
        self.mean = {name: weight.detach().clone() for name, weight in named.items()} if beta else {}

    @torch.no_grad()
    def update(self) -> None:
        if self.mean:
            torch._foreach_lerp_(list(self.mean.values()), [self.named[n] for n in self.mean], 1 - self.beta)

    @contextlib.contextmanager
    def in_place(self, spread: Callable[[], None]) -> Iterator[None]:
        """In this block the model has the mean for its weights; `spread` gives it what they are now."""
        self._swap()
        spread()
        try:
            yield
        finally:
            self._swap()
            spread()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, mean in self.mean.items():
            kept = self.named[name].clone()
            self.named[name].copy_(mean)
            mean.copy_(kept)
