"""The fitting part and the test part of some predictions: whole documents, drawn by a seed.

Targets of one document resemble each other, so a document is never in both parts. Of a single document the
parts are blocks of consecutive targets.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pellucid.base.formatting import pluralize

BLOCKS = 20
"""Blocks of consecutive targets, at most, into which a single document is split."""


@dataclass(frozen=True)
class Split:
    """Which predictions the scaling is fitted on, [N]; the others are the test part.

    `units` numbers the document of each prediction, or the block of a single document.
    """

    is_fit: NDArray[np.bool_]
    units: NDArray[np.int64]
    is_by_block: bool

    @property
    def is_test(self) -> NDArray[np.bool_]:
        return ~self.is_fit

    def describe(self) -> str:
        """Returns how many targets and documents each part has."""
        noun = "block" if self.is_by_block else "document"
        parts = (("fitted on", self.is_fit), ("measured on", self.is_test))
        return ", ".join(
            f"{name} {pluralize(int(rows.sum()), 'target')} of {pluralize(self.count_units(rows), noun)}"
            for name, rows in parts
            if rows.any()
        )

    def count_units(self, rows: NDArray[np.bool_]) -> int:
        """Returns how many documents, or blocks, some targets are from."""
        return len(np.unique(self.units[rows]))


def split_predictions(documents: NDArray[np.int64], share: float, seed: int) -> Split:
    """Returns the parts: about `share` of the documents are fitted on, and each part has at least one.

    Which documents these are depends on their number and on the seed alone, so that models with different
    tokenizers are fitted on the same ones. A single prediction cannot be split, and is the test part.
    """
    is_by_block = len(np.unique(documents)) < 2
    units = documents
    if is_by_block:
        units = np.arange(len(documents)) * min(BLOCKS, len(documents)) // max(len(documents), 1)
    present = np.unique(units)
    order = np.random.default_rng(seed).permutation(present)
    most = len(present) - 1
    chosen = order[: min(max(round(share * len(present)), 1), most)] if share > 0 and most > 0 else order[:0]
    return Split(np.isin(units, chosen), units, is_by_block)
