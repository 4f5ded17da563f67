"""Scores that samplers have left of a row: where few tokens remain of many, these alone.

A row of a large vocabulary is in float64 larger than a core's cache, and most samplers leave few tokens of
it: the others are dropped, so that what follows is as short as they are few.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pellucid.generation.samplers.row_operations import (
    bound_kth_largest,
    select_kth_largest,
    to_array,
)
from pellucid.parts.samplers import Table

FEW = 4096
"""Tokens up to which a row is short: the removed ones stay in it, and all are sorted for a draw."""


class KeptScores(NamedTuple):
    """Scores [1 N] of the tokens `ids` [N], which ascend; of every token where that is None."""

    scores: Tensor
    ids: "Table | None" = None

    def narrow(self) -> "KeptScores":
        """Returns the scores above −∞ alone, where they are few of a long row."""
        if self.ids is None and self.scores.shape[-1] <= FEW:
            return self
        values = to_array(self.scores)[0]
        is_kept = values > -np.inf
        if not 0 < np.count_nonzero(is_kept) <= FEW:
            return self
        (places,) = np.nonzero(is_kept)
        ids = places if self.ids is None else self.ids[places]
        return KeptScores(torch.from_numpy(values[None, places]), ids)

    def keep_candidates(self, k: int) -> "KeptScores":
        """Returns the scores of the first k tokens and of few others, where that is fewer than there are."""
        places = None if self.ids is not None else find_candidates(self.scores, k)
        return self if places is None else KeptScores(self.scores[:, torch.from_numpy(places)], places)

    def widen(self, vocab_size: int) -> Tensor:
        """Returns the scores [1 V] of all tokens, −∞ where one was dropped."""
        if self.ids is None:
            return self.scores
        wide = np.full((1, vocab_size), -np.inf)
        wide[0, self.ids] = self.scores.numpy()[0]
        return torch.from_numpy(wide)

    def get_id(self, place: int) -> int:
        """Returns the token at a place of the row."""
        return place if self.ids is None else int(self.ids[place])


def find_candidates(logits: Tensor, k: int) -> "Table | None":
    """Returns the ids of tokens among which are the k with the largest scores (s − max s) / T, whatever T is,
    and those with the score of the k-th, so that no other needs a score; None where they are many.

    Rounding may make scores of different logits equal: the slack is wider than it can be.
    """
    values = to_array(logits)[0]
    if (bound := bound_kth_largest(values, k)) is None:
        return None
    slack = (abs(bound) + abs(float(values.max()))) * 2.0**-40
    (ids,) = np.nonzero(values >= bound - slack)
    some = values[ids]
    ids = ids[some >= select_kth_largest(some, k) - slack]
    return ids if len(ids) <= FEW else None


def is_long(logits: Tensor) -> bool:
    """Returns whether rows [B V] are narrowed, each by itself; on a GPU they run together."""
    return logits.device.type == "cpu" and logits.shape[-1] > FEW
