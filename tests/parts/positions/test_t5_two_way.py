"""T5's buckets of both directions against `transformers`, and against whole numbers where it rounds."""

from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import ConfigError
from pellucid.parts.positions.t5 import T5
from pellucid.parts.positions.t5_two_way import T5TwoWay
from tests.parts.positions.test_t5 import DISTANCES, theirs
from tests.parts.test_positions import model


def test_two_way_buckets_by_hand() -> None:
    """16 buckets up to 64: 8 for each direction, as those of 8 buckets that look back only."""
    distances = np.array([0, 1, 3, 4, 8, 16, 32, 999, -1, -3, -4, -8, -16, -32, -999])
    assert T5TwoWay(buckets=16, max_distance=64).bias_ids(distances).tolist() == [
        *(0, 1, 3, 4, 5, 6, 7, 7),
        *(9, 11, 12, 13, 14, 15, 15),
    ]


@pytest.mark.parametrize(
    ("buckets", "max_distance"),
    [(32, 128), (4, 2), (6, 9), (8, 16), (16, 64), (64, 256), (320, 800), (20, 160)],
)
def test_two_way_buckets_are_those_of_transformers(buckets: int, max_distance: int) -> None:
    ours = T5TwoWay(buckets=buckets, max_distance=max_distance).bias_ids(DISTANCES)
    assert np.array_equal(ours, theirs(DISTANCES, buckets, max_distance, two_way=True))


def test_where_float32_starts_a_bucket_too_late_both_directions_say_so() -> None:
    """34 buckets up to 27: 18/8 = (3/2)² and 27/8 = (3/2)³, so 18 is exactly 9 · 2/3 = 6 wide buckets in."""
    ours = T5TwoWay(buckets=34, max_distance=27).bias_ids(DISTANCES)
    rounded = theirs(DISTANCES, 34, 27, two_way=True)
    assert DISTANCES[ours != rounded].tolist() == [-18, 18]
    assert ours[ours != rounded].tolist() == [17 + 14, 14]
    assert rounded[ours != rounded].tolist() == [17 + 13, 13]


def test_the_past_of_two_ways_is_that_of_one_way_with_half_the_buckets() -> None:
    past = np.arange(300)
    assert np.array_equal(T5TwoWay(buckets=64).bias_ids(past), T5(buckets=32).bias_ids(past))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"buckets": 2}, "t5_two_way gives half .*buckets=2 must be even, from 4 to 1024. T5 has 32"),
        ({"buckets": 9}, "buckets=9 must be even"),
        ({"buckets": 2**40}, "buckets=1099511627776 must be even, from 4 to 1024"),
        ({"max_distance": 8}, "for each distance below 8, .*max_distance=8. Use a max_distance from 9 to"),
    ],
)
def test_t5_two_way_says_which_settings_cannot_be(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        model(kind="t5_two_way", **settings)
