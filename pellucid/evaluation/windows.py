"""The windows of a document: rows of at most `window` tokens in which every target is scored exactly once.

A document has the ids x_0 … x_{n−1}, of which x_0 is only context and x_1 … x_{n−1} are targets. Window k
reads the ids from k · stride on, `window` of them, and scores the targets that no window before it has
scored. So the first window scores the first `window` targets, each later one the next `stride`, and every
target after the first window has more than window − stride tokens before it.

    cut_windows(n=7, window=4, stride=2)
        reads 0 1 2 3         scores 1 2 3 4
        reads     2 3 4 5     scores         5 6

Windows become batches of rows, padded on the right. A causal model does not see that padding, so no mask is
needed. Rows are sorted by length within a group of windows, so that little is padded. Which rows share a
batch depends on the documents alone, so an evaluation that is continued computes the same bits.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from pellucid.base.errors import UsageError
from pellucid.data.shard import Ids
from pellucid.evaluation.documents import EncodedDocument

MAX_WINDOW = 1024
"""The default window, or the model's context length where that is less."""
GROUP = 16
"""Batches whose rows are sorted by length together."""


class TextWindow(NamedTuple):
    """The inputs are ids[start : stop − 1]; the targets scored are ids[first : stop]."""

    start: int
    first: int
    stop: int


class WindowRow(NamedTuple):
    """One window of one document; `number` counts the documents from 0."""

    number: int
    document: EncodedDocument
    window: TextWindow

    @property
    def inputs(self) -> Ids:
        return self.document.ids[self.window.start : self.window.stop - 1]

    @property
    def counted(self) -> Ids:
        """The scored targets that count, as places in the document's targets ids[1:]."""
        first = self.window.first - 1
        return first + np.flatnonzero(self.document.is_counted[first : self.window.stop - 1])

    @property
    def context(self) -> Ids:
        """The number of tokens before each counted target in this window."""
        return self.counted + 1 - self.window.start


def resolve_window(
    context_length: int, window: int | None = None, stride: int | None = None
) -> tuple[int, int]:
    """Returns window and stride: by default the context length, at most `MAX_WINDOW`, and the window.

    >>> resolve_window(8192), resolve_window(512, stride=128)
    ((1024, 1024), (512, 128))
    """
    if window is None:
        window = min(context_length, MAX_WINDOW)
    if not 1 <= window <= context_length:
        raise UsageError(
            f"window={window} must be from 1 to {context_length:,} tokens, the model's context length."
        )
    stride = window if stride is None else stride
    if not 1 <= stride <= window:
        raise UsageError(
            f"stride={stride} must be from 1 to window={window}: a larger one would leave targets out."
        )
    return window, stride


def cut_windows(n: int, window: int, stride: int) -> Iterator[TextWindow]:
    """Yields the windows of a document with n ids.

    >>> [tuple(one) for one in cut_windows(7, 4, 2)]
    [(0, 1, 5), (2, 5, 7)]
    """
    start, first = 0, 1
    while first < n:
        stop = min(start + window + 1, n)
        yield TextWindow(start, first, stop)
        start, first = start + stride, stop


def make_rows(documents: Iterable[EncodedDocument], window: int, stride: int) -> Iterator[WindowRow]:
    """Yields the windows of all documents, in order; those in which no target counts are omitted, and none
    reads beyond its last counted target."""
    for number, document in enumerate(documents):
        for start, first, stop in cut_windows(len(document.ids), window, stride):
            counted = np.flatnonzero(document.is_counted[first - 1 : stop - 1])
            if len(counted):
                yield WindowRow(number, document, TextWindow(start, first, first + int(counted[-1]) + 1))


def make_batches(rows: Iterable[WindowRow], batch_tokens: int) -> Iterator[list[WindowRow]]:
    """Yields batches of rows that have, when padded to the longest of them, at most `batch_tokens` tokens; a
    longer row is a batch alone."""
    group, tokens = list[WindowRow](), 0
    for row in rows:
        group.append(row)
        tokens += len(row.inputs)
        if tokens >= GROUP * batch_tokens:
            yield from _divide(group, batch_tokens)
            group, tokens = [], 0
    yield from _divide(group, batch_tokens)


def _divide(group: list[WindowRow], batch_tokens: int) -> Iterator[list[WindowRow]]:
    batch, longest = list[WindowRow](), 0
    for row in sorted(group, key=lambda row: -len(row.inputs)):
        if batch and (len(batch) + 1) * longest > batch_tokens:
            yield batch
            batch = []
        longest = longest if batch else len(row.inputs)
        batch.append(row)
    if batch:
        yield batch


def pad_rows(rows: list[WindowRow]) -> Ids:
    """Returns the inputs of rows as one array [B T], padded on the right with the token 0."""
    padded = np.zeros((len(rows), max(len(row.inputs) for row in rows)), np.int64)
    for place, row in enumerate(rows):
        padded[place, : len(row.inputs)] = row.inputs
    return padded


def count_inputs(documents: Iterable[EncodedDocument], window: int, stride: int) -> int:
    """Returns the number of tokens that a model reads in all windows of the documents."""
    return sum(len(row.inputs) for row in make_rows(documents, window, stride))
