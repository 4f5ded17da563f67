"""What holds for every mask, found by listing the folder: what it says of itself is what its table says."""

import dataclasses
import itertools
import math
import tomllib
from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.errors import ConfigError
from pellucid.config import ModelConfig
from pellucid.parts import find, kinds
from pellucid.parts.masks import MaskConfig
from tests.small_choices import small

SIZES = {"vocab_size": 5, "context_length": 6, "n_layer": 1, "n_head": 2, "d_model": 8}
MODEL = ModelConfig.from_dict(SIZES)
TABLE = 24


def settings(kind: str) -> list[str]:
    return [field.name for field in dataclasses.fields(find("masks", kind)) if field.type is int]


def make(kind: str, **values: int) -> MaskConfig:
    """Returns the mask of that kind, small but for these settings."""
    settings = small("masks", kind)
    return MaskConfig.read((settings if isinstance(settings, dict) else {"kind": kind}) | values)


MASKS = [make(kind) for kind in kinds("masks")]
for kind in kinds("masks"):
    for values in itertools.product((0, 1, 3, 5), repeat=len(settings(kind))):
        mask = make(kind, **dict(zip(settings(kind), values, strict=True)))
        if mask not in MASKS and mask.check(MODEL) is None:
            MASKS.append(mask)
every_mask = pytest.mark.parametrize("mask", MASKS, ids=str)


def table(mask: MaskConfig, size: int = TABLE) -> Any:
    """Which of so many positions see which [T S]."""
    seen = mask.compute_mask(np.arange(size), np.arange(size))
    return np.ones((size, size), dtype=bool) if seen is None else seen


def count_bidirectional(mask: MaskConfig, size: int) -> int:
    """How many of the first positions hold all that is seen ahead of time."""
    ahead = np.triu(table(mask, size), k=1).any(axis=0)
    return int(np.flatnonzero(ahead).max(initial=-1)) + 1


def window(mask: MaskConfig, size: int, first: int) -> int:
    """How many of the last positions, counting itself, each must know beside the first so many."""
    queries, keys = np.nonzero(np.tril(table(mask, size)))
    return int((queries - keys + 1)[keys >= first].max(initial=0))


@every_mask
def test_a_mask_is_never_empty_every_position_sees_itself(mask: MaskConfig) -> None:
    assert table(mask).diagonal().all()


@every_mask
def test_the_bidirectional_prefix_is_what_the_table_shows(mask: MaskConfig) -> None:
    small, large = count_bidirectional(mask, TABLE), count_bidirectional(mask, 2 * TABLE)
    assert mask.bidirectional_prefix == (small if small == large else math.inf)


@pytest.mark.parametrize("mask", [mask for mask in MASKS if mask.visible_past], ids=str)
def test_the_visible_past_is_the_smallest_that_the_table_needs(mask: MaskConfig) -> None:
    assert mask.visible_past and mask.bidirectional_prefix < math.inf
    first, last = mask.visible_past
    assert window(mask, TABLE, first) == last
    assert first == 0 or window(mask, TABLE, first - 1) > last


@pytest.mark.parametrize(
    "mask", [m for m in MASKS if not m.visible_past and m.bidirectional_prefix < math.inf], ids=str
)
def test_a_mask_that_keeps_all_needs_a_past_that_grows_with_the_text(mask: MaskConfig) -> None:
    for first in range(TABLE // 2):
        assert window(mask, TABLE, first) < window(mask, 2 * TABLE, first)


@every_mask
def test_numpy_and_torch_see_the_same_also_for_texts_that_start_elsewhere(mask: MaskConfig) -> None:
    """One text, and a batch: queries [B T] and keys [B S] that count from another place in each row, below 0
    where padding stands before a text."""
    queries, keys = np.arange(20, 24), np.arange(24)
    starts = np.array([[0], [-3], [-11]])
    for rows, columns in ((queries, keys), (queries + starts, keys + starts)):
        ours = mask.compute_mask(rows, columns)
        theirs = mask.compute_mask(torch.from_numpy(rows), torch.from_numpy(columns))
        if ours is None:
            assert theirs is None
            continue
        assert ours.dtype == bool and theirs.dtype == torch.bool
        assert ours.shape == (*rows.shape, 24)
        assert np.array_equal(ours, theirs.numpy())
    if ours is not None:
        for row, start in enumerate(starts):
            assert np.array_equal(ours[row], mask.compute_mask(queries + start, keys + start))


@every_mask
def test_a_later_call_sees_a_row_of_the_whole_table(mask: MaskConfig) -> None:
    """Queries behind a cache [T], keys from the start [S]; and the keys alone that a cache has kept."""
    for i in range(TABLE):
        row = mask.compute_mask(np.array([i]), np.arange(TABLE))
        assert row is None or np.array_equal(row[0], table(mask)[i])
    if mask.visible_past is not None:
        held = [*range(mask.visible_past.first), *range(TABLE - mask.visible_past.last, TABLE)]
        row = mask.compute_mask(np.array([TABLE - 1]), np.array(held))[0]
        assert row.sum() == table(mask)[TABLE - 1].sum()


@every_mask
def test_a_mask_that_kernels_may_take_for_causal_is_the_lower_triangle(mask: MaskConfig) -> None:
    assert not mask.causal or np.array_equal(table(mask), np.tri(TABLE, dtype=bool))


@pytest.mark.parametrize("kind", [kind for kind in kinds("masks") if kind not in ("none", "causal")])
def test_a_small_mask_differs_from_the_causal_one_on_four_tokens(kind: str) -> None:
    """So that the tests of every choice show what it does."""
    assert not np.array_equal(table(make(kind), 4), np.tri(4, dtype=bool))


@pytest.mark.parametrize(
    ("kind", "setting"), [(kind, setting) for kind in kinds("masks") for setting in settings(kind)]
)
def test_a_mask_refuses_what_no_table_can_have(kind: str, setting: str) -> None:
    for value in (-1, 2**31 + 1):
        with pytest.raises(ConfigError, match=rf"{kind}.*{setting} from [01].*{value}"):
            ModelConfig.from_dict(SIZES | {"mask": make(kind, **{setting: value})})
    assert make(kind, **{setting: 2**31}).check(MODEL) is None
    assert table(make(kind, **{setting: 2**31})).any()


def test_a_two_way_window_of_one_without_global_tokens_is_refused_with_what_would_work() -> None:
    with pytest.raises(ConfigError, match="size=1 and tokens=0"):
        ModelConfig.from_dict(SIZES | {"mask": {"kind": "window_global", "size": 1, "tokens": 0}})


@pytest.mark.parametrize("kind", [kind for kind in kinds("masks") if settings(kind)])
def test_a_mask_without_its_sizes_is_refused_with_a_line_that_works(kind: str) -> None:
    """No size fits every context: a window of 3 tokens would train without a word."""
    with pytest.raises(ConfigError) as raised:
        ModelConfig.from_dict(SIZES | {"mask": kind})
    line = str(raised.value).partition("write for example ")[2].removesuffix(".")
    assert ModelConfig.from_dict(SIZES | tomllib.loads(line)).mask == find("masks", kind).example()
    assert all(setting in str(raised.value) for setting in settings(kind))
