"""The compiled loss: its first step is compared with the eager one before it is used.

The code that runs is not always made from the model by this process: it may come from a folder that another
machine has filled, and there is no other sign of it than wrong numbers.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pellucid.engine import compiler
from pellucid.engine.taps import current_watcher
from pellucid.training.events import Compared
from pellucid.training.objective import Objective

COMPILED = "yes"
TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 0.1}
"""By the type of the matrix products, how much of its size a gradient may differ. Rounding stays far below;
what code for another machine computes differs by its size and more. `verify` judges a run's rounding."""
Batch = tuple[Tensor, Tensor, Tensor | None]
Loss = Callable[[Tensor, Tensor, Tensor | None], Tensor]
SMALL = 0.01
"""The part of the whole gradient's size that counts as the size of a parameter's gradient that is smaller."""


class Differentiated(NamedTuple):
    """A loss, [] float64, and the gradient of each trainable parameter."""

    loss: Tensor
    grads: list[Tensor]
    has_drawn: bool
    """Whether random numbers were drawn, as by dropout."""


class CompiledLoss(nn.Module):
    """Computes the objective by compiled code.

    The loss and every gradient of the first batch are compared with those of eager code. Where they differ by
    more than rounding, all compiled code is removed and made again; where the new one differs too, eager code
    runs.
    """

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective
        self.compiled = COMPILED
        """"yes", or "no: " and the reason."""
        self.is_compared = False
        self.comparison: Compared | None = None
        """Of the first step, until it is taken."""
        self._compile()

    def _compile(self) -> None:
        compiled: nn.Module = torch.compile(self.objective, fullgraph=True)  # type: ignore[assignment]
        self._run: Loss = compiled.__call__  # as a module of its own it would have every parameter twice

    def forward(self, ids: Tensor, targets: Tensor, segments: Tensor | None = None) -> Tensor:
        if not self.is_compared and current_watcher(self.objective.model) is None:  # watched, it runs eagerly
            self._compare((ids, targets, segments))
        loss: Tensor = self._run(ids, targets, segments)
        return loss

    def _compare(self, batch: Batch) -> None:
        """Compares compiled with eager code; not where the eager loss is NaN or Inf, which says nothing."""
        began, about, is_cuda = time.perf_counter(), "", batch[0].is_cuda
        try:
            wanted = self._differentiate(self.objective, batch)
            if wanted.has_drawn:  # compiled code draws other numbers: both without
                self.objective.eval()
                wanted = self._differentiate(self.objective, batch)
            if is_cuda:
                torch.cuda.synchronize()
            seconds = time.perf_counter() - began
            if not wanted.loss.isfinite():
                return
            difference = self._measure(wanted, batch)
            if self._is_wrong(difference):
                about = (
                    f"compiled code was wrong: loss or gradients differed by {difference:.2g} of their size. "
                )
                compiler.clear_cache()
                self._compile()
                difference = self._measure(wanted, batch)
                about += "All of it was removed and made again"
                if self._is_wrong(difference):
                    about += ", and is wrong again, so the step is not compiled"
                    self.compiled = f"no: compiled code differs by {difference:.2g} from eager code"
                    self._run = self.objective.__call__
        except torch.OutOfMemoryError:
            difference, seconds = math.nan, time.perf_counter() - began
            about = "Not compared: an eager step does not fit into the memory"
        finally:
            self.objective.train()
        if is_cuda:
            torch.cuda.reset_peak_memory_stats()
        self.is_compared, self.comparison = True, Compared(0, difference, seconds, about)

    def take_comparison(self, step: int) -> Compared | None:
        """Returns how the first step compared, once."""
        found, self.comparison = self.comparison, None
        return found and replace(found, step=step)

    def _is_wrong(self, difference: float) -> bool:
        narrow = self.objective.model.dtype == torch.bfloat16
        return not difference <= TOLERANCES["bfloat16" if narrow else self.objective.dtype]

    def _measure(self, wanted: Differentiated, batch: Batch) -> float:
        """Returns the largest relative difference of the compiled loss and gradients, by its size."""
        got = self._differentiate(self._run, batch)
        whole = torch.stack([grad.norm() for grad in wanted.grads]).norm()
        found = [(got.loss - wanted.loss).abs() / wanted.loss.abs()]
        for one, other in zip(got.grads, wanted.grads, strict=True):
            found.append((one - other).norm() / torch.maximum(other.norm(), SMALL * whole))
        return float(torch.stack(found).nan_to_num(0.0 if whole == 0 else math.inf).max())

    def _differentiate(self, run: Loss, batch: Batch) -> Differentiated:
        """Returns the loss and the gradients of the trainable parameters; random numbers are not used up."""
        parameters = [parameter for parameter in self.objective.parameters() if parameter.requires_grad]
        device = batch[0].device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            before = _get_rng_state(device)
            loss = run(*batch)
            has_drawn = not torch.equal(before, _get_rng_state(device))
            grads = torch.autograd.grad(loss, parameters, allow_unused=True)
        given = zip(parameters, grads, strict=True)
        kept = [torch.zeros_like(weight) if grad is None else grad for weight, grad in given]
        return Differentiated(loss.detach().double(), [grad.double() for grad in kept], has_drawn)


def _get_rng_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()
