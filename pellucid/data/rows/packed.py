"""Packed documents: one after the other in a random order, no position wasted, none seeing another.

A document that does not fit into the rest of a row continues in the next row, as a segment of its own. Its
positions predict its own tokens and nothing else, so in every epoch each token of each document is a target
exactly once (without a bos token: each but its first).
"""

from pellucid.data.rows import Batch, Rows, check_length, make_batch
from pellucid.data.rows.document_order import DocumentOrder
from pellucid.data.tokens import Tokens


class Packed(Rows):
    def __init__(
        self, tokens: Tokens, length: int, seed: int = 0, bos: int | None = None, epochs: int = 0
    ) -> None:
        check_length(length)
        self.order, self.length, self.epochs = DocumentOrder(tokens, seed, bos), length, epochs
        self.document, self.position = 0, 0

    def take(self, count: int, local: slice) -> Batch:
        batch = make_batch(local.stop - local.start, self.length)
        for row in range(count):
            self._fill(batch, row - local.start if local.start <= row < local.stop else None)
        return batch

    def _fill(self, batch: Batch, row: int | None) -> None:
        """Advances by one row, and writes it into the batch where it is one of this rank's."""
        filled, segment, order = 0, 0, self.order
        while filled < self.length:
            positions = order.count_positions(self.document)
            count = min(self.length - filled, positions - self.position)
            if row is not None and count:
                here = slice(filled, filled + count)
                ids, targets = order.read(self.document, self.position, count)
                assert batch.segments is not None
                batch.ids[row, here], batch.segments[row, here] = ids, segment
                if not self.epochs or self.document < self.epochs * order.tokens.documents:
                    batch.targets[row, here] = targets
            filled, self.position, segment = filled + count, self.position + count, segment + (count > 0)
            if self.position == positions:
                self.document, self.position = self.document + 1, 0

    def count_batches(self, count: int, epochs: int) -> int:
        return -(-epochs * int(self.order.lengths().sum()) // (self.length * count))

    def state(self) -> dict[str, int]:
        return {"document": self.document, "position": self.position}

    def restore(self, state: dict[str, int]) -> None:
        self.document, self.position = state["document"], state["position"]

    def identity(self) -> dict[str, int]:
        return self.order.identity() | {"length": self.length}
