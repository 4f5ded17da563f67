"""Attention sinks, written out, and what StreamingLLM's cache holds at every step."""

import numpy as np

from pellucid.parts.masks.sinks import Sinks
from pellucid.parts.masks.window import Window


def test_two_sinks_beside_a_window_of_three() -> None:
    assert Sinks(tokens=2, size=3).compute_mask(np.arange(8), np.arange(8)).astype(int).tolist() == [
        [1, 0, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 0, 0, 0],
        [1, 1, 0, 1, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 1, 1, 0],
        [1, 1, 0, 0, 0, 1, 1, 1],
    ]


def test_sinks_see_what_the_paper_s_cache_holds() -> None:
    """A cache of 4 + 3 that drops, when it is too full, the oldest behind the 4 sinks."""
    seen = Sinks(tokens=4, size=3).compute_mask(np.arange(24), np.arange(24))
    held: list[int] = []
    for i in range(24):
        held.append(i)
        if len(held) > 4 + 3:
            del held[4]
        assert np.flatnonzero(seen[i]).tolist() == held


def test_no_sinks_are_a_plain_window() -> None:
    at = np.arange(12)
    assert np.array_equal(Sinks(tokens=0, size=5).compute_mask(at, at), Window(size=5).compute_mask(at, at))
