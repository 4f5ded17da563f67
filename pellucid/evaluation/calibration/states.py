"""The last hidden states of the counted targets, held so that their logits can be computed again and again.

Logits [N V] of a large vocabulary do not fit into memory; hidden states [N C] do, and each temperature is one
more product with the unembedding, a chunk of rows at a time.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePath

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pellucid.engine.transformer import Transformer
from pellucid.evaluation.documents import EncodedDocument
from pellucid.evaluation.scoring import HiddenStates, stream_hidden_states

CHUNK = 1 << 22
"""Logits that are computed at once, in the model's type."""
PART = {"cpu": 1 << 18, "cuda": CHUNK}
"""Logits that are passed on at once in float64, by device: on a CPU so few that they stay in the cache."""
MOST_KEPT = 1 << 28
"""Logits that are kept for further passes, 1 GiB in float32; those of more rows are computed each time."""

Ids = NDArray[np.int64]
OnRows = Callable[[int], None]
"""Called with the number of rows whose logits were computed."""


@dataclass(frozen=True)
class HeldStates:
    """hidden [N C] after the final norm, the targets [N], and the document and position [N] of each."""

    unembed: Callable[[Tensor], Tensor]
    """Returns the logits [N V] of hidden states [N C]."""
    hidden: Tensor
    targets: Ids
    documents: Ids
    """The number of each target's document in `names`."""
    positions: Ids
    """The place of each target among the tokens of its document."""
    names: tuple[str, ...]
    vocab_size: int
    on_rows: OnRows = field(default=lambda rows: None, compare=False)
    kept: Tensor | None = None
    """The logits of the first rows in the model's type, where they are kept."""

    def __len__(self) -> int:
        return len(self.targets)

    def select(self, rows: NDArray[np.bool_]) -> "HeldStates":
        """Returns the states of some targets."""
        return replace(
            self,
            kept=None,
            hidden=self.hidden[torch.from_numpy(np.flatnonzero(rows))],
            targets=self.targets[rows],
            documents=self.documents[rows],
            positions=self.positions[rows],
        )

    @torch.no_grad()
    def keep(self) -> "HeldStates":
        """Returns the same states with the logits of the first ones, for several passes over them."""
        count, kept = min(len(self), MOST_KEPT // self.vocab_size), None
        for block in _cut(count, CHUNK // self.vocab_size):
            logits = self.unembed(self.hidden[block])
            kept = logits.new_empty((count, self.vocab_size)) if kept is None else kept
            kept[block] = logits
            self.on_rows(len(logits))
        return replace(self, kept=kept)

    @torch.no_grad()
    def chunks(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yields the rows, logits [n V] in float64 and targets [n] of a part after the other."""
        targets = torch.from_numpy(self.targets)
        size = PART["cpu" if self.hidden.device.type == "cpu" else "cuda"]
        for block in _cut(len(self), CHUNK // self.vocab_size):
            logits = self._find_logits(block)
            for part in _cut(len(logits), size // self.vocab_size):
                rows, some = slice(block.start + part.start, block.start + part.stop), logits[part].double()
                yield rows, some, targets[rows].to(some.device)
            self.on_rows(len(logits))

    def _find_logits(self, rows: slice) -> Tensor:
        """Returns the logits of some rows in the model's type: those that are kept, or computed now."""
        if self.kept is not None and rows.stop <= len(self.kept):
            return self.kept[rows]
        return self.unembed(self.hidden[rows])

    def logits(self) -> NDArray[np.float64]:
        """Returns all logits, [N V] float64; for a small vocabulary."""
        parts = [logits.cpu().numpy() for _, logits, _ in self.chunks()]
        return np.concatenate(parts) if parts else np.empty((0, self.vocab_size))


def _cut(count: int, size: int) -> Iterator[slice]:
    """Yields the rows of blocks of one size, at least 1; the last may have fewer."""
    size = max(size, 1)
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def hold_states(
    module: Transformer,
    documents: Iterable[EncodedDocument],
    *,
    window: int,
    stride: int,
    most: int,
    progress: OnRows = lambda rows: None,
) -> HeldStates:
    """Returns the states of the first `most` counted targets of some documents, in their order.

    `progress` is called with the number of targets that were read.
    """
    parts, names = list[HiddenStates](), list[str]()
    limited = _limit(documents, most, names)
    for part in stream_hidden_states(module, limited, window=window, stride=stride):
        parts.append(part)
        progress(len(part.places))
    parts.sort(key=lambda part: (part.number, part.places[0]))
    counts = [len(part.places) for part in parts]
    empty = torch.empty(0, module.config.d_model, dtype=module.dtype, device=module.device)
    return HeldStates(
        unembed=lambda hidden: module.logits(hidden[None])[0],
        hidden=torch.cat([part.hidden for part in parts] or [empty]),
        targets=np.concatenate([part.targets.cpu().numpy() for part in parts] or [np.empty(0, np.int64)]),
        documents=np.repeat([part.number for part in parts], counts).astype(np.int64),
        positions=np.concatenate([part.places + 1 for part in parts] or [np.empty(0, np.int64)]),
        names=tuple(names),
        vocab_size=module.config.vocab_size,
    )


def _limit(documents: Iterable[EncodedDocument], most: int, names: list[str]) -> Iterator[EncodedDocument]:
    """Yields documents until `most` targets count, and appends the name of each."""
    for document in documents:
        if most <= 0:
            return
        is_counted = document.is_counted & (np.cumsum(document.is_counted) <= most)
        most -= int(is_counted.sum())
        names.append(PurePath(document.name).name)  # a trace names no folder of the user's
        yield replace(document, is_counted=is_counted)
