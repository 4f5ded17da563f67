"""The largest of many scores."""

import numpy as np

from pellucid.base.dtypes import Array


def find_largest(scores: Array, count: int) -> Array:
    """Returns the places of the `count` largest scores [V], the largest first, the lower place of equal
    ones; NaN is the smallest.

    >>> find_largest(np.array([1.0, 3.0, 2.0, 3.0]), 3).tolist()
    [1, 3, 2]
    """
    count = min(count, len(scores))
    if count < 1:
        return np.zeros(0, np.int64)
    scores = np.where(np.isnan(scores), -np.inf, scores)
    bound = np.partition(scores, len(scores) - count)[len(scores) - count]
    places = np.flatnonzero(scores >= bound)
    return places[np.argsort(-scores[places], kind="stable")][:count]
