"""The flight recorder: every so many steps, how large activations, gradients, weights and updates are.

    with recorder.around(step, batch):       # does nothing, unless this step is recorded
        …clip, and move the weights…
    recorder.taken()                         # Recorded, or None

Of each parameter, the lengths of its gradient before clipping and of the weight, and how far the update moved
it, as a share of its length. Of some activations in each block, their root mean square, their largest number
and the share of zeros, from one more forward pass of the moved weights over a few rows of the batch: without
dropout and gradients, eager, and throwing no dice, so that no bit of the training depends on it. All figures
are brought from the device at once.
"""

import contextlib
import itertools
from collections.abc import Iterator
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from pellucid.data.rows import Batch
from pellucid.model.taps import look, watch
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


class Recorder:
    """Of the first step and every `every`-th; of none where that is 0."""

    def __init__(self, every: int, weights: Weights, objective: Objective) -> None:
        self.every, self.weights, self.objective = every, weights, objective
        self._taken: Recorded | None = None

    def taken(self) -> Recorded | None:
        """What was recorded last; told once."""
        taken, self._taken = self._taken, None
        return taken

    @contextlib.contextmanager
    def around(self, step: int, batch: Batch) -> Iterator[None]:
        """In this block the weights are moved."""
        if not self.every or (step > 1 and step % self.every):
            yield
            return
        learning = {name: w for name, w in self.weights.learning.items() if w.grad is not None}
        moved = [weight.detach() for weight in learning.values()]
        before = [weight.clone() for weight in moved]
        slopes = torch._foreach_norm([w.grad for w in learning.values() if w.grad is not None])
        yield
        lengths = torch._foreach_norm(before)
        torch._foreach_sub_(before, moved)
        updates = torch._foreach_norm(before)
        activations = self._activations(batch)
        numbers = iter(_figures([*slopes, *lengths, *updates, *activations.values()]))
        gradients, weights, changes = (list(itertools.islice(numbers, len(learning))) for _ in range(3))
        shares = [change / weight if weight else 0.0 for change, weight in zip(changes, weights, strict=True)]
        rows = zip(gradients, weights, shares, strict=True)
        columns = ("gradient", "weight", "ratio")
        of_parameters = {name: _row(columns, row) for name, row in zip(learning, rows, strict=True)}
        of_activations: dict[str, dict[str, float]] = {}
        for (name, column), number in zip(activations, numbers, strict=True):
            of_activations.setdefault(name, {}).update(_row((column,), (number,)))
        self._taken = Recorded(step, of_activations, of_parameters)

    @torch.no_grad()
    def _activations(self, batch: Batch) -> dict[tuple[str, str], Tensor]:
        """By name and sort of figure; none where somebody else watches, who would see this pass as well."""
        found: dict[tuple[str, str], Tensor] = {}
        if watch() is not None:
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
            with look(see, fused=True):
                self.objective.logits(ids)
        finally:
            model.train()
        return found


def _figures(tensors: list[Tensor]) -> list[float]:
    """All of them in one transfer."""
    numbers: list[float] = torch.stack([tensor.double() for tensor in tensors]).tolist()
    return numbers


def _row(columns: tuple[str, ...], row: tuple[float, ...]) -> dict[str, float]:
    """To the digits that a picture can show: the file stays small."""
    return {column: float(f"{number:.{DIGITS}g}") for column, number in zip(columns, row, strict=True)}
