"""Tensors in the files of several ranks, each with its rows, joined when they are read.

An index has the shape of each tensor, and [rank, first row] of each piece:

    "embed.weight.exp_avg": {"shape": [7, 8], "pieces": [[0, 0], [1, 4]]}
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pellucid.base.dtypes import FLOATS, INTEGERS, STORAGE, Array
from pellucid.base.errors import UsageError, show
from pellucid.base.files import need
from pellucid.formats.safetensors_file import StoredTensor, read_file
from pellucid.training.distributed.ranks import Ranks
from pellucid.training.distributed.sharded import LocalRows, full_tensor, get_local_rows, is_sharded

PARTS = {"raw": "trainable", "mean": "averaged_adapters", "optimizer": "optimizer"}
"""The files whose tensors may be sharded, and the fields of a snapshot that they hold."""
FLOAT_CODES = {getattr(torch, dtype.name): dtype.code for dtype in FLOATS}
CODES = {getattr(torch, dtype.name): dtype.code for dtype in (*FLOATS, *INTEGERS)}


# ---- writing


def select_own(tensors: Mapping[str, torch.Tensor], ranks: Ranks) -> dict[str, LocalRows]:
    """Returns what this rank saves: its rows, and on the main rank the tensors that are not sharded."""
    found = {name: get_local_rows(tensor.detach()) for name, tensor in tensors.items()}
    return {
        name: one
        for name, one in found.items()
        if (len(one.rows) if is_sharded(tensors[name]) else ranks.is_main)
    }


def gather(tensors: Mapping[str, torch.Tensor], ranks: Ranks) -> dict[str, torch.Tensor]:
    """Returns the full tensors on the main rank; gathered one at a time, so that no GPU holds two."""
    found = {}
    for name, tensor in tensors.items():
        one = full_tensor(tensor.detach())
        if ranks.is_main:
            found[name] = one.cpu() if is_sharded(tensor) else one
    return found


def to_stored(part: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, StoredTensor]:
    for name, tensor in tensors.items():
        if tensor.dtype not in (FLOAT_CODES if part == "weights" else CODES):
            raise UsageError(f"{part}: {name} is {tensor.dtype}, which a checkpoint cannot hold.")
    return {
        name: StoredTensor(CODES[tensor.dtype], tuple(tensor.shape), partial(_to_bits, tensor))
        for name, tensor in tensors.items()
    }


def _to_bits(tensor: torch.Tensor) -> Array:
    """Returns a tensor as a file has it: bfloat16 as its bits."""
    here = tensor.detach().cpu().contiguous()
    return np.asarray((here.view(torch.uint16) if here.dtype == torch.bfloat16 else here).numpy())


def format_index(ranks: Sequence[dict[str, Any]]) -> bytes:
    """Returns the index file: the shape of each tensor, and [rank, first row] of each piece."""
    table: dict[str, Any] = {"ranks": len(ranks)} | {part: {} for part in PARTS}
    for rank, parts in enumerate(ranks):
        for part, pieces in parts.items():
            for name, (first, shape) in pieces.items():
                entry = table[part].setdefault(name, {"shape": shape, "pieces": []})
                entry["pieces"].append([rank, first])
    return (json.dumps(table) + "\n").encode()


# ---- reading


class JoinedTensors(Mapping[str, torch.Tensor]):
    """Tensors in files: each is read and joined when it is used."""

    def __init__(self, pieces: Mapping[str, Sequence[StoredTensor]]) -> None:
        self.pieces = pieces

    def __getitem__(self, name: str) -> torch.Tensor:
        found = [_read_tensor(stored) for stored in self.pieces[name]]
        return torch.cat(found) if len(found) > 1 else found[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.pieces)

    def __len__(self) -> int:
        return len(self.pieces)


class RankFiles:
    """The tensors that each rank has saved, by rank and part; each file is read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: dict[tuple[int, str], dict[str, StoredTensor]] = {}

    def __call__(self, rank: int, part: str) -> dict[str, StoredTensor]:
        if (rank, part) not in self.opened:
            path = self.folder / f"rank-{rank}" / f"{part}.safetensors"
            self.opened[rank, part] = read_file(path, STORAGE)
        return self.opened[rank, part]


def find_pieces(table: Any, files: RankFiles, part: str) -> dict[str, list[StoredTensor]]:
    """Returns the pieces of each tensor in the order of their rows, none missing and none twice."""
    need(isinstance(table, dict), f"it has no table {part!r}")
    found = {}
    for name, entry in table.items():
        good = (
            isinstance(entry, dict)
            and set(entry) == {"shape", "pieces"}
            and _is_list_of_pairs(entry["pieces"])
        )
        need(good and isinstance(entry["shape"], list), f"it does not say where {show(name)} is")
        pieces: list[StoredTensor] = []
        rows, shape = 0, tuple(entry["shape"])
        for rank, first in sorted(entry["pieces"], key=lambda pair: pair[1]):
            have = files(rank, part)
            need(name in have, f"rank {rank} has not saved {show(name)}")
            one = have[name]
            need(
                first == rows and one.shape[1:] == shape[1:] and len(one.shape) == len(shape),
                f"the piece of {show(name)} of rank {rank} does not fit the others",
            )
            need(not pieces or one.type == pieces[0].type, f"the pieces of {show(name)} are of two types")
            pieces.append(one)
            rows += one.shape[0] if one.shape else 0
        need(bool(pieces) and rows == (shape[0] if shape else 0), f"{show(name)} is not complete")
        found[name] = pieces
    return found


def _is_list_of_pairs(given: Any) -> bool:
    """Returns whether a value is a list of [rank, first row]."""
    return isinstance(given, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(type(x) is int and x >= 0 for x in pair)
        for pair in given
    )


def _read_tensor(stored: StoredTensor) -> torch.Tensor:
    tensor = torch.from_numpy(np.array(stored.bits()))
    return tensor.view(torch.bfloat16) if stored.type == "BF16" else tensor
