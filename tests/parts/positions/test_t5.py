"""T5's buckets against `transformers`, and against whole numbers where its logarithm rounds."""

import contextlib
from typing import Any

import numpy as np
import pytest

from pellucid.base.errors import ConfigError
from pellucid.parts.positions.t5 import T5, bucket_starts, find_buckets
from pellucid.reference.training import forward
from tests.golden.make_huggingface import float64_throughout
from tests.parts.test_positions import model
from tests.reference.models import weights

DISTANCES = np.arange(-300, 301)


def theirs(
    distances: Any, buckets: int, max_distance: int, two_way: bool = False, exact: bool = False
) -> np.ndarray:
    """The buckets of `transformers`, whose distances count from query to key; its logarithm in float32, or in
    float64."""
    import torch
    from transformers.models.t5.modeling_t5 import T5Attention

    with float64_throughout() if exact else contextlib.nullcontext():
        found = T5Attention._relative_position_bucket(
            -torch.as_tensor(distances), two_way, buckets, max_distance
        )
    return found.numpy()  # type: ignore[no-any-return]


def test_t5_buckets_by_hand() -> None:
    """8 buckets up to 64: 4 single ones, then 4 that start at 4, 8, 16 and 32."""
    distances = np.array([-5, 0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 64, 999])
    assert T5(buckets=8, max_distance=64).bias_ids(distances).tolist() == [
        *(0, 0, 1, 2, 3),
        *(4, 4, 5, 5, 6, 6, 7, 7, 7),
    ]


@pytest.mark.parametrize(
    ("buckets", "max_distance"),
    [(32, 128), (2, 2), (3, 9), (8, 16), (16, 64), (64, 256), (33, 100), (320, 800)],
)
def test_t5_buckets_are_those_of_transformers(buckets: int, max_distance: int) -> None:
    ours = T5(buckets=buckets, max_distance=max_distance).bias_ids(DISTANCES)
    assert np.array_equal(ours, theirs(DISTANCES, buckets, max_distance))


def test_where_float32_starts_a_bucket_too_late_whole_numbers_say_so() -> None:
    """17 buckets up to 27, 8 of them single: 18/8 = (3/2)², 27/8 = (3/2)³, so 18 is exactly 9 · 2/3 = 6 wide
    buckets in."""
    assert T5(buckets=17, max_distance=27).bias_ids(np.array([18])) == 8 + 6
    assert theirs([18], 17, 27) == 8 + 5


def test_where_float32_starts_a_bucket_too_early_whole_numbers_say_so() -> None:
    """32 buckets up to 939: (728/16)^16 is just below (939/16)^15, so 728 is not yet 15 wide buckets in."""
    assert 728**16 < 939**15 * 16 < 729**16
    assert T5(buckets=32, max_distance=939).bias_ids(np.array([728, 729])).tolist() == [30, 31]
    assert theirs([728, 729], 32, 939).tolist() == [31, 31]


def test_float64_rounds_other_starts_of_buckets() -> None:
    """10 buckets up to 160: 5 single, then 5, 10, 20, 40 and 80. Float32 happens to get them all."""
    starting = np.array([5, 10, 20, 40, 80])
    assert T5(buckets=10, max_distance=160).bias_ids(starting).tolist() == [5, 6, 7, 8, 9]
    assert theirs(starting, 10, 160).tolist() == [5, 6, 7, 8, 9]
    assert theirs(starting, 10, 160, exact=True).tolist() == [5, 5, 6, 8, 8]


@pytest.mark.parametrize(
    ("buckets", "max_distance"),
    [(32, 128), (17, 27), (10, 160), (48, 81), (64, 2**31), (1024, 513), (1024, 2**31)],
)
def test_a_bucket_starts_at_the_first_distance_that_is_far_enough(buckets: int, max_distance: int) -> None:
    """n with n^w ≥ max_distance^k e^(w−k), and n − 1 without, in whole numbers."""
    single = buckets // 2
    wide = buckets - single
    found = [int(start) for start in bucket_starts(buckets, max_distance)]
    assert found[:single] == list(range(1, single + 1)) and len(found) == buckets - 1
    for k, start in list(enumerate(found[single:], start=1))[:: max(1, wide // 16)]:
        assert (start - 1) ** wide < max_distance**k * single ** (wide - k) <= start**wide


@pytest.mark.torture
def test_t5_departs_from_transformers_only_where_it_rounds() -> None:
    """Every setting to 65 buckets and 1100 positions, at both sides of every start."""
    departing = {}
    for buckets in range(2, 66):
        for max_distance in range(buckets // 2 + 1, 1100):
            edges = bucket_starts(buckets, max_distance)
            near = np.concatenate([edges - 1, edges, edges + 1])
            wrong = near[theirs(near, buckets, max_distance) != find_buckets(near, buckets, max_distance)]
            if wrong.size:
                departing[buckets, max_distance] = sorted(set(wrong.tolist()))
    assert all(len(distances) == 1 for distances in departing.values()) and len(departing) < 60
    assert departing[17, 27] == [18] and departing[32, 939] == [728]


def test_the_bias_of_a_bucket_is_a_learned_row_for_all_layers() -> None:
    config = model(kind="t5", buckets=4, max_distance=4)
    tape = forward(config, weights(config), [[1, 3, 2, 2]])
    assert config.positions.parameters(config) == {"position_bias.weight": (4, 2)}
    added = tape["blocks.0.attn.biased"] - tape["blocks.0.attn.scores"]
    rows = tape["position_bias.weight"]
    assert added[0, :, 3] == pytest.approx(rows[[3, 2, 1, 0]].T, abs=1e-14)
    assert added[0, :, 0] == pytest.approx(rows[[0, 0, 0, 0]].T, abs=1e-14)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"buckets": 1}, "t5 needs a bucket for distance 0 .*buckets=1 is outside. T5 has 32"),
        ({"buckets": 2**40}, "buckets=1099511627776 is outside"),
        (
            {"max_distance": 16},
            "for each distance below 16, .*max_distance=16. Use a max_distance from 17 to",
        ),
        ({"max_distance": -1}, "max_distance=-1. Use a max_distance from 17 to"),
        ({"max_distance": 2**62}, "Use a max_distance from 17 to 2147483648"),
    ],
)
def test_t5_says_which_settings_cannot_be(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        model(kind="t5", **settings)
