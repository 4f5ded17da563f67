"""Slots: where chunks end, what a slot keeps, and what another may take of it."""

import pytest
import torch

from pellucid.base.errors import ResourceError
from pellucid.config import ModelConfig
from pellucid.generation.slots import CacheSlots, Feed, count_equal
from tests.agreement.engines import CHOICES, SIZES, fast

ROPE = ModelConfig.from_dict({**SIZES, "context_length": 24, "positions": "rope"})


def make_slots(config: ModelConfig = ROPE, count: int = 3, chunk: int = 4) -> CacheSlots:
    return CacheSlots(fast(config, seed=3), count, config.context_length, torch.float64, chunk=chunk)


def read(slots: CacheSlots, slot: int, *segments: tuple[int, ...]) -> None:
    with torch.no_grad():
        slots.forward([Feed(slot, segments, 0)])


def test_borders_are_multiples_of_the_chunk() -> None:
    slots = make_slots()
    assert [slots.next_border(position) for position in (0, 3, 4, 5)] == [4, 4, 8, 8]
    assert [slots.last_border(length) for length in (0, 3, 4, 9)] == [0, 0, 4, 8]


def test_a_bidirectional_prefix_is_one_chunk() -> None:
    config = ModelConfig.from_dict({**SIZES, "context_length": 24, "mask": {"kind": "prefix", "length": 6}})
    slots = make_slots(config)
    assert [slots.next_border(position) for position in (0, 5, 6, 9)] == [6, 6, 10, 10]
    assert [slots.last_border(length) for length in (5, 6, 9, 10)] == [0, 6, 6, 10]


def test_a_free_slot_with_the_same_beginning_is_taken_and_rewound() -> None:
    slots = make_slots()
    slot = slots.acquire()
    read(slots, slot, (1, 2, 3, 4), (5, 6, 0, 1), (2,))
    slots.release(slot)
    assert slots.acquire((1, 2, 3, 4, 5, 6, 6)) == slot
    assert slots.tokens[slot] == [1, 2, 3, 4] and slots.rows[slot].longest == 4


def test_the_last_token_of_a_prompt_is_always_read() -> None:
    slots = make_slots()
    slot = slots.acquire()
    read(slots, slot, (1, 2, 3, 4))
    assert slots.tokens[slots.acquire((1, 2, 3, 4))] == []


def test_a_held_slot_lends_a_copy_and_keeps_its_own_tokens() -> None:
    slots = make_slots()
    slot = slots.acquire()
    read(slots, slot, (1, 2, 3, 4), (5,))
    other = slots.acquire((1, 2, 3, 4, 6))
    assert other != slot and slots.tokens[other] == [1, 2, 3, 4] and slots.tokens[slot] == [1, 2, 3, 4, 5]
    for one, two in zip(slots.rows[slot].layers, slots.rows[other].layers, strict=True):
        assert all(
            torch.equal(a[:, :, :4], b[:, :, :4]) for a, b in zip(one.buffers, two.buffers, strict=True)
        )


def test_decoded_tokens_are_not_lent() -> None:
    slots = make_slots()
    slot = slots.acquire()
    read(slots, slot, (1, 2, 3), (4,))
    assert slots.whole_chunks[slot] == 0 and slots.tokens[slots.acquire((1, 2, 3, 4, 5))] == []


@pytest.mark.parametrize("name", ["mask/window", "attention/linear_elu"])
def test_a_cache_that_cannot_rewind_lends_nothing(name: str) -> None:
    slots = make_slots(CHOICES[name], chunk=2)
    slot = slots.acquire()
    read(slots, slot, (1, 2), (3, 4), (5, 6))
    assert slots.tokens[slots.acquire((1, 2, 3, 4, 5))] == []


def test_a_cache_that_does_not_fit_is_refused_before_it_is_allocated() -> None:
    size = make_slots().cache.bytes
    with pytest.raises(ResourceError):
        CacheSlots(fast(ROPE), 3, 24, torch.float64, memory=size - 1)
    assert CacheSlots(fast(ROPE), 3, 24, torch.float64, memory=size).cache.bytes == size


def test_equal_beginnings_are_counted() -> None:
    assert [count_equal([1, 2, 3], other) for other in ([1, 2, 4], [1, 2], [2], [])] == [2, 2, 0, 0]
