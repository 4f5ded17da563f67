"""The strided mask, written out, and from the sets of the paper."""

import numpy as np
import pytest

from pellucid.parts.masks.strided import Strided


def test_a_stride_of_three_sees_the_last_three_and_every_third_before() -> None:
    assert Strided(stride=3).compute_mask(np.arange(8), np.arange(8)).astype(int).tolist() == [
        [1, 0, 0, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0, 0],
        [0, 1, 1, 1, 1, 0, 0, 0],
        [0, 0, 1, 1, 1, 1, 0, 0],
        [1, 0, 0, 1, 1, 1, 1, 0],
        [0, 1, 0, 0, 1, 1, 1, 1],
    ]


@pytest.mark.parametrize("stride", [1, 2, 3, 5, 30])
def test_what_a_stride_sees_is_the_union_of_the_paper_s_two_sets(stride: int) -> None:
    """A⁽¹⁾ = {t, …, i} from t = max(0, i − l), and A⁽²⁾ = {j : (i − j) mod l = 0}. The first is one
    wider than ours, by i − l, which is in the second as well."""
    seen = Strided(stride=stride).compute_mask(np.arange(24), np.arange(24))
    for i in range(24):
        local = set(range(max(0, i - stride), i + 1))
        far = {j for j in range(i + 1) if (i - j) % stride == 0}
        assert set(np.flatnonzero(seen[i]).tolist()) == local | far
