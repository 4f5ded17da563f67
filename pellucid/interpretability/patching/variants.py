"""Variants of one prompt, run as the rows of a batch: each row has other parts of named values replaced."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pellucid.base.dtypes import Array
from pellucid.interpretability.patching.sites import Site
from pellucid.interpretability.runner import Patch, Runner, Values

MAX_NUMBERS = 1 << 24
"""Logits and other numbers of one batch; more variants are run in several batches."""
Progress = Callable[[int, int], None]
"""Called with the number of variants that have run, and of all."""


@dataclass(frozen=True, eq=False)
class Replacement:
    """The value that a site gets, broadcast to its part."""

    site: Site
    value: Array | float

    def in_row(self, row: int) -> Patch:
        return Patch(self.site.name, self.value, (row, *self.site.index))


def count_rows(runner: Runner, length: int) -> int:
    """Returns how many variants of a prompt of this length are run at once."""
    config = runner.config
    widest = max(config.vocab_size, config.n_head * max(config.d_model, length), config.d_ff)
    return max(1, MAX_NUMBERS // (length * widest))


def run_variants(
    runner: Runner,
    ids: Sequence[int],
    variants: Sequence[Sequence[Replacement]],
    record: str,
    reduce: Callable[[Array], Array],
    shared: Sequence[Patch] = (),
    progress: Progress = lambda done, total: None,
) -> Array:
    """Returns `reduce` of the value `record` of each variant, [N …]; reduce gets some rows [B …] at a time.

    The patches `shared` apply to every variant, before its own replacements.
    """
    found, at_once = [], count_rows(runner, len(ids))
    for start in range(0, len(variants), at_once):
        some = variants[start : start + at_once]
        patches = [change.in_row(row) for row, changes in enumerate(some) for change in changes]
        batch = np.tile(np.asarray(ids), (len(some), 1))
        seen: Values = runner.run(batch, [record], [*shared, *patches])
        found.append(reduce(seen[record]))
        progress(start + len(some), len(variants))
    return np.concatenate(found)
