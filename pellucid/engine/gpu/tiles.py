"""Tiles, the cuts of a kernel's work into programs: the fastest found on one H200 (docs/log.md)."""

from collections.abc import Sequence
from typing import NamedTuple


class VectorTiles(NamedTuple):
    """Outputs of a program, inputs of a block, and warps, in `multiply_vector`."""

    rows: int
    block: int
    warps: int


class RowTiles(NamedTuple):
    """Rows, outputs and inputs of a tile, warps and stages, in `multiply_rows`."""

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int


class KeyTiles(NamedTuple):
    """Query heads of a program, keys of a block, and warps, in `attend`."""

    shared: int
    keys: int
    warps: int


LARGEST_BLOCK = 8192
"""Inputs that one program holds at once."""
LARGEST_GROUP = 128
"""Inputs of a group that are multiplied at once; a larger one is multiplied in parts."""
LOGITS_OF_BLOCK = 16
"""Logits whose largest one program keeps, at least."""
FLOAT_ROWS = {"logits": (LOGITS_OF_BLOCK, 128), "gate": (4, 256)}
INTEGER_ROWS = {"logits": (LOGITS_OF_BLOCK, 256), "gate": (2, 256), "add": (8, 256)}
"""Outputs of a program and weights of a thread by the ending of a product; 4 and 128 for the others."""
FEW_TEXTS, FEW_PROGRAMS = 32, 64
KEYS_OF_SPLIT = 256
"""Keys up to which one program attends to all of them."""
MOST_SPLITS = 64
BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Numbers of texts for which a step is recorded; a step of fewer runs in the next larger one."""
PROMPT_BUCKETS = (32, 128, 256)
"""Numbers of tokens of prompts for which a step is recorded."""
MOST_SCORES = 2**21
"""Tokens of prompts times keys that a step attends to: beyond, the module's kernel, which reads a key once
for many tokens, is faster."""


def round_up(size: int) -> int:
    """Returns the next power of two.

    >>> round_up(576), round_up(64)
    (1024, 64)
    """
    return 1 << max(size - 1, 0).bit_length()


def choose_vector_tiles(width: int, is_integer: bool, ending: str) -> VectorTiles:
    """Returns the tiles of a product of one row: so few outputs that every multiprocessor has some, in so few
    warps that they hardly wait for each other."""
    rows, numbers = (INTEGER_ROWS if is_integer else FLOAT_ROWS).get(ending, (4, 128))
    block = min(round_up(width), LARGEST_BLOCK)
    held = rows * block * (2 if ending == "gate" else 1)
    return VectorTiles(rows, block, min(max(round_up(held // (32 * numbers)), 1), 8))


def choose_row_tiles(count: int, width: int, group: int, is_float: bool, ending: str) -> RowTiles:
    """Returns the tiles of a product of several rows; a block of inputs is one group of quantized weights, or
    a part of one."""
    block_m = min(max(round_up(count), 16), 64)
    if is_float:
        tiles = RowTiles(block_m, 32, 32, 4, 2)
    elif count > FEW_TEXTS:
        tiles = RowTiles(128, 128, 64, 8, 3) if ending == "logits" else RowTiles(block_m, 64, 64, 4, 4)
    elif ending == "logits":
        tiles = RowTiles(block_m, 128, 64, 4, 3)
    else:
        tiles = RowTiles(block_m, 16, 128, 2, 4)
    if 0 < group < width:
        return tiles._replace(block_k=min(group & -group, LARGEST_GROUP))
    return tiles._replace(block_k=min(tiles.block_k, max(round_up(width), 16)))


def choose_key_tiles(count: int, splits: int, n_head: int, n_kv_head: int) -> KeyTiles:
    """Returns the tiles of attention. A program attends for all query heads that share a key head; for one,
    where few texts and keys would leave multiprocessors without work."""
    is_small = splits == 1 and count * n_kv_head < FEW_PROGRAMS
    shared = 1 if is_small else n_head // n_kv_head
    return KeyTiles(shared, 32, 2) if shared == 1 else KeyTiles(shared, 64, 4)


def count_splits(length: int) -> int:
    """Returns into how many parts the keys of texts of up to this length are cut.

    >>> count_splits(256), count_splits(257), count_splits(8192)
    (1, 2, 32)
    """
    return min(round_up(-(-length // KEYS_OF_SPLIT)), MOST_SPLITS)


def find_bucket(count: int, buckets: Sequence[int] = BUCKETS) -> int:
    """Returns the number of texts, or of tokens of prompts, of the recorded step for `count` of them.

    >>> find_bucket(1), find_bucket(9), find_bucket(9, PROMPT_BUCKETS)
    (1, 16, 32)
    """
    return next(bucket for bucket in buckets if bucket >= count)
