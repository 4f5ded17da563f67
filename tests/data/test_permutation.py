"""Every number comes once, in an order that the key decides."""

import numpy as np
import pytest

from pellucid.data.permutation import Permutation, derive_keys, splitmix64


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 255, 256, 257, 1000, 4096, 65_537])
def test_every_number_comes_once(size: int) -> None:
    assert sorted(Permutation(size, 7, 1)(np.arange(size)).tolist()) == list(range(size))


def test_other_keys_give_other_orders() -> None:
    orders = {tuple(Permutation(50, seed, epoch)(np.arange(50))) for seed in range(10) for epoch in range(10)}
    assert len(orders) == 100


def test_a_place_needs_no_other_place() -> None:
    size = 3 * 10**12  # windows of a corpus that no index array could hold
    order = Permutation(size, 1, 2)
    assert order(np.arange(5)).tolist() == [int(order(np.array([i]))[0]) for i in range(5)]
    assert 0 <= order(np.array([size - 1]))[0] < size


def test_numbers_land_everywhere_alike() -> None:
    """The place of 0 among 10 over many keys: each about a tenth (chi-square, 9 degrees, p > 0.001)."""
    places = [int(np.argmin(Permutation(10, seed)(np.arange(10)))) for seed in range(1000)]
    counts = np.bincount(places, minlength=10)
    assert ((counts - 100) ** 2 / 100).sum() < 27.9


def test_neighbours_are_no_longer_neighbours() -> None:
    order = Permutation(10_000, 3)(np.arange(10_000))
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.04


def test_mixing_is_splitmix64_as_published() -> None:
    """The first numbers of SplitMix64 seeded with 0: its state grows by the golden ratio before each."""
    state = np.array([0x9E3779B97F4A7C15, 0x3C6EF372FE94F82A], np.uint64)
    assert [f"{x:016x}" for x in splitmix64(state).tolist()] == ["e220a8397b1dcdaf", "6e789e6aa1b965f4"]


def test_keys_stay_what_they_are_for_ever() -> None:
    """A saved state would lead to other batches if they changed."""
    assert derive_keys(1, 2, count=1) == [0xF5C3E93CC50A88AE]
    assert Permutation(8, 1, 2)(np.arange(8)).tolist() == [6, 5, 1, 7, 4, 2, 3, 0]
