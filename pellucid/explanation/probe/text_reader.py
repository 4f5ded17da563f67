"""−ln p of each token of a text under one reading of a model's weights, piece by piece."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.engine.cache import Cache
from pellucid.engine.precision import widen
from pellucid.engine.transformer import Transformer
from pellucid.explanation.probe.difference import Floats
from pellucid.explanation.probe.readings import ModelReading

PIECE = 256
"""Tokens that are read at a time, so that a comparison can stop."""


class ScoredWindow(NamedTuple):
    """A window of the text: ids [n + 1] whose last n are targets, with the bos before them or not."""

    ids: tuple[int, ...]
    before: int = 0
    """The number of first ids that are not of the text, and no targets."""


def cut_rows(ids: Sequence[int], context: int, before: Sequence[int] = ()) -> list[ScoredWindow]:
    """Returns windows of a text that fill the context, each after `before`; every token but the first is a
    target once."""
    width = context - len(before)
    if width < 1:
        return []
    rows = [ids[at : at + width + 1] for at in range(0, len(ids) - 1, width)]
    return [ScoredWindow((*before, *row), len(before)) for row in rows]


class ScoredPiece(NamedTuple):
    """Targets in the order of the text."""

    nll: Floats
    """[n] −ln p."""
    entropy: Floats
    """[n] of what was predicted, in nats; empty unless asked for."""
    position: np.ndarray[Any, np.dtype[np.int64]]
    """[n] places in their windows, from 0."""


class TextReader:
    """−ln p of the tokens of a text under one reading, read piece by piece as far as it is asked for."""

    def __init__(self, module: Transformer, rows: Sequence[ScoredWindow], with_entropy: bool = False) -> None:
        self.module, self.rows, self.with_entropy = module, rows, with_entropy
        self.count = sum(len(row.ids) - 1 - row.before for row in rows)
        self._pieces: Iterator[ScoredPiece] = self._read()
        none = np.zeros(0)
        self.read = ScoredPiece(none, none, np.zeros(0, np.int64))

    def read_to(self, count: int) -> ScoredPiece:
        """Returns the first `count` targets or a few more, all where there are no more."""
        parts = [self.read]
        while sum(len(part.nll) for part in parts) < count and (piece := next(self._pieces, None)):
            parts.append(piece)
        if len(parts) > 1:
            self.read = ScoredPiece(*(np.concatenate(some) for some in zip(*parts, strict=True)))
        return self.read

    def read_all(self) -> ScoredPiece:
        return self.read_to(self.count)

    def _read(self) -> Iterator[ScoredPiece]:
        at = 0
        while at < len(self.rows):
            length = len(self.rows[at].ids)
            if length - 1 > PIECE:
                yield from self._read_long(self.rows[at])
                at += 1
                continue
            some = self.rows[at : at + max(1, PIECE // length)]
            some = [row for row in some if len(row.ids) == length]
            yield self._read_short(some)
            at += len(some)

    @torch.no_grad()
    def _read_short(self, rows: Sequence[ScoredWindow]) -> ScoredPiece:
        """Returns the targets of windows of one length."""
        ids, before = torch.tensor([row.ids for row in rows], device=self.module.device), rows[0].before
        hidden = self.module.hidden_states(ids[:, :-1])[:, before:]
        return self._score(hidden.flatten(0, 1), ids[:, 1 + before :].flatten(), len(rows))

    def _read_long(self, row: ScoredWindow) -> Iterator[ScoredPiece]:
        ids, length = torch.tensor([row.ids], device=self.module.device), len(row.ids) - 1
        config, dtype, device = self.module.config, self.module.cache_dtype, self.module.device
        cache = Cache(config, 1, length, dtype=dtype, device=device)
        for begin in range(0, length, PIECE):
            if piece := self._append(ids, begin, min(begin + PIECE, length), row.before, cache):
                yield piece

    @torch.no_grad()
    def _append(self, ids: Tensor, begin: int, end: int, before: int, cache: Cache) -> ScoredPiece | None:
        """Reads the tokens from `begin` to `end` of ids [1 T] after those in the cache; returns their
        targets."""
        cache.reserve(end - begin)
        hidden = self.module.hidden_states(ids[:, begin:end], cache=cache)[0]
        cache.advance(end - begin)
        first = max(before - begin, 0)
        targets = ids[0, begin + first + 1 : end + 1]
        return self._score(hidden[first:], targets, 1, begin + first - before) if len(targets) else None

    def _score(self, hidden: Tensor, targets: Tensor, rows: int, begin: int = 0) -> ScoredPiece:
        logs = widen(self.module.logits(hidden)).log_softmax(-1)
        nll = -logs.gather(-1, targets[:, None])[:, 0].double().cpu().numpy()
        entropy = np.zeros(0)
        if self.with_entropy:
            entropy = -(logs.exp() * logs).nan_to_num_(0.0).sum(-1).double().cpu().numpy()
        places = np.tile(begin + np.arange(len(nll) // rows), rows)
        return ScoredPiece(nll, entropy, places)


def make_module(
    reading: ModelReading,
    given: Mapping[str, nn.Parameter],
    source: ModelReading,
    device: Any,
    dtype: torch.dtype,
) -> Transformer:
    """Returns the fast engine of a reading, which shares the parameters of every weight that it has in common
    with another."""

    def share(name: str, weight: Any) -> Any:
        return given[name] if name in given and weight is source.weights.get(name) else np.asarray(weight)

    weights = {name: share(name, weight) for name, weight in reading.weights.items()}
    return Transformer.from_weights(reading.config, weights, device, dtype).eval()
