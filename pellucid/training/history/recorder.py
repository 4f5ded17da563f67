"""The flight recorder: every so many steps, how large activations, gradients, weights and updates are.

    with recorder.around(step, batch, finite):  # does nothing, unless this step is recorded
        …clip, and move the weights…
    recorder.taken()                         # Recorded, or None

Of each parameter, the lengths of its gradient before clipping and of the weight, and how far the update moved
it, as a share of its length. Of some activations in each block, their root mean square, their largest number
and the share of zeros, from one more forward pass of the moved weights over a few rows of the batch: without
dropout and gradients, eager, and throwing no dice, so that no bit of the training depends on it. All figures
are brought from the device at once.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from pellucid.data.rows import Batch
from pellucid.model.taps import current_watcher, look
from pellucid.training.distributed.parallel import Alone
from pellucid.training.distributed.pieces import whole
from pellucid.training.events import Recorded
from pellucid.training.objective import Objective
from pellucid.training.weights import Weights

VALUES = (
    "embedded",
    "blocks.*.attn_out",
    "blocks.*.mlp.hidden",
    "blocks.*.mlp_out",
    "blocks.*.resid_post",
    "final_norm.out",
    "logits",
)
"""Activations that are recorded, where a model has them."""
TOKENS = 512
"""Of the extra forward pass, at most; but one row at least."""
DIGITS = 5
Figures = dict[tuple[str, str], Tensor]
"""By the name of a value and the sort of figure."""


class Recorder:
    """Of the first step and every `every`-th; of none where that is 0."""

    def __init__(self, every: int, weights: Weights, objective: Objective, shared: Alone) -> None:
        self.every, self.weights, self.objective, self.shared = every, weights, objective, shared
        self._taken: Recorded | None = None

    def taken(self) -> Recorded | None:
        """What was recorded last; told once."""
        taken, self._taken = self._taken, None
        return taken

    @contextlib.contextmanager
    def around(self, step: int, batch: Batch, finite: Tensor) -> Iterator[None]:
        """In this block the weights are moved, if the gradients are finite."""
        if not self.every or (step > 1 and step % self.every):
            yield
            return
        learning = {name: w for name, w in self.weights.learning.items() if w.grad is not None}
        moved = [weight.detach() for weight in learning.values()]
        before = [weight.clone() for weight in moved]
        slopes = torch._foreach_norm([w.grad for w in learning.values() if w.grad is not None])
        yield
        if not finite:
            return
        lengths = torch._foreach_norm(before)
        torch._foreach_sub_(before, moved)
        ratios = torch._foreach_div(torch._foreach_norm(before), lengths)
        activations = self._activations(batch)
        told = _told(activations | _columns(learning, gradient=slopes, weight=lengths, ratio=ratios))
        inside = {name: told[name] for name, _ in activations}
        self._taken = Recorded(step, inside, {name: told[name] for name in learning})

    @torch.no_grad()
    def _activations(self, batch: Batch) -> Figures:
        """By name and sort of figure; none where somebody else watches, who would see this pass as well."""
        found: Figures = {}
        if current_watcher(self.objective.model) is not None:
            return found

        def see(name: str, value: Tensor) -> None:
            if any(fnmatchcase(name, pattern) for pattern in VALUES):
                wide = value.float()
                found[name, "rms"] = torch.linalg.vector_norm(wide) / wide.numel() ** 0.5
                found[name, "max"] = torch.linalg.vector_norm(wide, float("inf"))
                found[name, "zeros"] = (wide == 0).float().mean()

        model = self.objective.model
        rows = max(1, TOKENS // batch.ids.shape[1])
        ids = torch.from_numpy(batch.ids[:rows]).to(model.device, torch.int64)
        model.eval()
        try:
            with self.shared.gathered(), look(see, fused=True):
                self.objective.logits(ids)
        finally:
            model.train()
        return found


def _columns(names: Iterable[str], **columns: Sequence[Tensor]) -> Figures:
    return {(n, column): x for column, xs in columns.items() for n, x in zip(names, xs, strict=True)}


def _told(figures: Figures) -> dict[str, dict[str, float]]:
    """By name, in one transfer and to the digits that a picture can show. What is no number is left out: a
    share of a weight that is 0."""
    numbers = torch.stack([whole(figure).double() for figure in figures.values()]).tolist()
    told: dict[str, dict[str, float]] = {}
    for (name, column), number in zip(figures, numbers, strict=True):
        row = told.setdefault(name, {})
        if math.isfinite(number):
            row[column] = float(f"{number:.{DIGITS}g}")
    return told
