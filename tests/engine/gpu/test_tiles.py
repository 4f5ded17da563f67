"""Tiles fit the buffers and the groups of weights, whatever the sizes are."""

import itertools

import pytest

from pellucid.engine.gpu.tiles import (
    BUCKETS,
    LARGEST_BLOCK,
    LOGITS_OF_BLOCK,
    MOST_SPLITS,
    choose_key_tiles,
    choose_row_tiles,
    choose_vector_tiles,
    count_splits,
    find_bucket,
    round_up,
)

WIDTHS = (1, 24, 576, 2048, 8192, 28_672)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_program_keeps_the_largest_of_fewer_logits_than_there_is_room_for(width: int) -> None:
    rows = [choose_vector_tiles(width, is_integer, "logits").rows for is_integer in (False, True)]
    rows += [
        choose_row_tiles(count, width, group, is_float, "logits").block_n
        for count, group, is_float in itertools.product(BUCKETS, (0, 32), (False, True))
    ]
    assert min(rows) >= LOGITS_OF_BLOCK


@pytest.mark.parametrize("group", [16, 32, 96, 128, 256, 4096])
@pytest.mark.parametrize("ending", ["store", "add", "activate", "gate", "logits"])
def test_a_block_of_inputs_lies_in_one_group_and_is_a_power_of_two(group: int, ending: str) -> None:
    for count in BUCKETS[1:]:
        block = choose_row_tiles(count, 8192, group, False, ending).block_k
        assert group % block == 0
        assert 16 <= block == round_up(block) <= 128


@pytest.mark.parametrize("ending", ["store", "add", "activate", "gate", "logits"])
def test_a_row_that_is_normalized_fits_one_block(ending: str) -> None:
    """`find_obstacle` refuses more than `LARGEST_BLOCK` channels."""
    for width in range(1, LARGEST_BLOCK + 1, 61):
        assert choose_vector_tiles(width, False, ending).block >= width


def test_a_program_attends_for_all_heads_of_a_key_head_or_for_one() -> None:
    for count, splits, (n_head, n_kv_head) in itertools.product(
        BUCKETS, (1, 2, 64), ((9, 3), (12, 12), (32, 8), (71, 1))
    ):
        assert choose_key_tiles(count, splits, n_head, n_kv_head).shared in (1, n_head // n_kv_head)


def test_splits_are_powers_of_two_that_the_buffers_hold() -> None:
    found = {count_splits(length) for length in range(1, 100_000, 97)}
    assert found == {1 << power for power in range(MOST_SPLITS.bit_length())}


def test_a_bucket_is_the_smallest_that_holds_the_texts() -> None:
    assert [find_bucket(count) for count in (1, 2, 3, 4, 5, 255, 256)] == [1, 2, 4, 4, 8, 256, 256]
