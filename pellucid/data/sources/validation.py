"""The validation set: all of the held-out text, each target once, in batches of one shape."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from pellucid.base.names import IGNORE_INDEX
from pellucid.data.rows import Batch
from pellucid.data.rows.document_order import document_lengths, read_document
from pellucid.data.shard import Ids
from pellucid.data.tokens import Tokens


class Row(NamedTuple):
    """Ids, targets and, where documents must not see each other, segments of one row, which may be short."""

    ids: Ids
    targets: Ids
    segments: Ids | None = None


class Span(NamedTuple):
    """`size` positions of a piece of text, from `first` on."""

    piece: int
    first: int
    size: int


@dataclass(frozen=True)
class Validation:
    """Rows in batches [B T]. The last row and the last batch are filled up with ignored targets."""

    row: Callable[[int], Row]
    rows: int
    length: int
    batch_size: int
    targets: int
    """The number of targets that count."""
    is_packed: bool = False
    """Whether rows have segments."""

    def __len__(self) -> int:
        """Returns the number of batches."""
        return -(-self.rows // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for first in range(0, self.rows, self.batch_size):
            ids = np.zeros((self.batch_size, self.length), np.int64)
            targets = np.full_like(ids, IGNORE_INDEX)
            segments = np.full_like(ids, -1) if self.is_packed else None  # padding is a segment of its own
            for place, number in enumerate(range(first, min(first + self.batch_size, self.rows))):
                row = self.row(number)
                here = place, slice(len(row.ids))
                ids[here], targets[here] = row.ids, row.targets
                if segments is not None and row.segments is not None:
                    segments[here] = row.segments
            yield Batch(ids, targets, segments)


def validate_nothing(length: int, batch_size: int) -> Validation:
    """Returns a validation set without rows."""
    return Validation(lambda _: Row(np.empty(0), np.empty(0)), 0, length, batch_size, 0)


def validate_stream(tokens: Tokens, bos: int | None, length: int, batch_size: int) -> Validation:
    """Returns the tokens in order, `length` at a time, wherever documents end. Without a `bos` token, the
    first token is only an input."""
    size, skipped = len(tokens), bos is None

    def row(i: int) -> Row:
        first = i * length + skipped
        last = min(first + length, size)
        targets = tokens.read(first, last).astype(np.int64)
        before = tokens.read(first - 1, first) if first else np.array([bos])
        return Row(np.concatenate([before, targets[:-1]]), targets)

    targets = size - skipped
    return Validation(row, -(-targets // length), length, batch_size, targets)


def validate_documents(tokens: Tokens, bos: int | None, length: int, batch_size: int) -> Validation:
    """Returns the documents in order, packed and apart from each other, each whole where it fits into a row.
    Without a `bos` token, the first token of a document is only an input."""
    begins, lengths = document_lengths(tokens, bos)
    rows = pack(lengths.tolist(), length)

    def row(i: int) -> Row:
        return _join((s, *read_document(tokens, bos, int(begins[s.piece]), s.first, s.size)) for s in rows[i])

    return Validation(row, len(rows), length, batch_size, int(lengths.sum()), is_packed=True)


def validate_pieces(
    pieces: Sequence[tuple[Ids, Ids]], length: int, batch_size: int, is_packed: bool
) -> Validation:
    """Returns ids and targets of some texts, packed; apart from each other where `is_packed`."""
    rows = pack([len(ids) for ids, _ in pieces], length)
    targets = sum(int((wanted != IGNORE_INDEX).sum()) for _, wanted in pieces)

    def row(i: int) -> Row:
        cuts = ((span, slice(span.first, span.first + span.size)) for span in rows[i])
        packed = _join((s, pieces[s.piece][0][here], pieces[s.piece][1][here]) for s, here in cuts)
        return packed if is_packed else packed._replace(segments=None)

    return Validation(row, len(rows), length, batch_size, targets, is_packed)


def join_validations(parts: Sequence[Validation]) -> Validation:
    """Returns the rows of several validation sets, one set after the other."""
    first = parts[0]
    starts = [0, *accumulate(part.rows for part in parts)]

    def row(i: int) -> Row:
        which = int(np.searchsorted(starts, i, side="right")) - 1
        return parts[which].row(i - starts[which])

    targets = sum(part.targets for part in parts)
    return Validation(row, starts[-1], first.length, first.batch_size, targets, first.is_packed)


def pack(sizes: Iterable[int], length: int) -> list[list[Span]]:
    """Returns rows of `length` positions that hold every piece once, whole where it fits.

    >>> [[tuple(span) for span in row] for row in pack([2, 2, 5], 4)]
    [[(0, 0, 2), (1, 0, 2)], [(2, 0, 4)], [(2, 4, 1)]]
    """
    rows: list[list[Span]] = []
    left = 0
    for piece, size in enumerate(sizes):
        for first in range(0, size, length):
            count = min(length, size - first)
            if count > left:
                rows.append([])
                left = length
            rows[-1].append(Span(piece, first, count))
            left -= count
    return rows


def _join(parts: Iterable[tuple[Span, Ids, Ids]]) -> Row:
    spans, ids, targets = zip(*parts, strict=True)
    segments = np.repeat(np.arange(len(spans)), [span.size for span in spans])
    return Row(np.concatenate(ids).astype(np.int64), np.concatenate(targets).astype(np.int64), segments)
