"""Tensors as files hold them, each rank its own rows, put together again when they are read.

An index says of each tensor the shape, and [rank, first row] of each piece:

    "embed.weight.exp_avg": {"shape": [7, 8], "pieces": [[0, 0], [1, 4]]}
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pellucid.dtypes import FLOATS, INTEGERS, STORAGE, Array
from pellucid.errors import UsageError, show
from pellucid.files import need
from pellucid.interop.safetensors_file import StoredTensor, read_file
from pellucid.training.distributed.ranks import Ranks
from pellucid.training.distributed.sharded import LocalRows, full_tensor, get_local_rows, is_sharded

TENSORS = ("raw", "mean", "optimizer")
"""The parts of a checkpoint that ranks may have in pieces."""
FLOAT_CODES = {getattr(torch, dtype.name): dtype.code for dtype in FLOATS}
CODES = {getattr(torch, dtype.name): dtype.code for dtype in (*FLOATS, *INTEGERS)}


# ---- writing


def own(tensors: Mapping[str, torch.Tensor], ranks: Ranks) -> dict[str, LocalRows]:
    """The pieces that this rank saves: its rows, and as the first one whatever is whole."""
    found = {name: get_local_rows(tensor.detach()) for name, tensor in tensors.items()}
    return {
        name: one
        for name, one in found.items()
        if (len(one.rows) if is_sharded(tensors[name]) else ranks.is_main)
    }


def gathered(tensors: Mapping[str, torch.Tensor], ranks: Ranks) -> dict[str, torch.Tensor]:
    """All of them whole on the first rank; one after the other, so that no GPU holds more than one."""
    found = {}
    for name, tensor in tensors.items():
        one = full_tensor(tensor.detach())
        if ranks.is_main:
            found[name] = one.cpu() if is_sharded(tensor) else one
    return found


def storable(part: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, StoredTensor]:
    for name, tensor in tensors.items():
        if tensor.dtype not in (FLOAT_CODES if part == "weights" else CODES):
            raise UsageError(f"{part}: {name} is {tensor.dtype}, which a checkpoint cannot hold.")
    return {
        name: StoredTensor(CODES[tensor.dtype], tuple(tensor.shape), partial(_bits, tensor))
        for name, tensor in tensors.items()
    }


def _bits(tensor: torch.Tensor) -> Array:
    """A tensor's numbers as a file has them: bfloat16 as its bits."""
    here = tensor.detach().cpu().contiguous()
    return np.asarray((here.view(torch.uint16) if here.dtype == torch.bfloat16 else here).numpy())


def index_text(ranks: Sequence[dict[str, Any]]) -> bytes:
    """Of each tensor the shape, and [rank, first row] of each piece."""
    table: dict[str, Any] = {"ranks": len(ranks)} | {part: {} for part in TENSORS}
    for rank, parts in enumerate(ranks):
        for part, pieces in parts.items():
            for name, (first, shape) in pieces.items():
                entry = table[part].setdefault(name, {"shape": shape, "pieces": []})
                entry["pieces"].append([rank, first])
    return (json.dumps(table) + "\n").encode()


# ---- reading


class Kept(Mapping[str, torch.Tensor]):
    """Tensors in files: each is put together when it is asked for, in memory of its own."""

    def __init__(self, pieces: Mapping[str, Sequence[StoredTensor]]) -> None:
        self.pieces = pieces

    def __getitem__(self, name: str) -> torch.Tensor:
        found = [_tensor(stored) for stored in self.pieces[name]]
        return torch.cat(found) if len(found) > 1 else found[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.pieces)

    def __len__(self) -> int:
        return len(self.pieces)


class Files:
    """The tensors that each rank has saved, by rank and part; each file is opened once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: dict[tuple[int, str], dict[str, StoredTensor]] = {}

    def __call__(self, rank: int, part: str) -> dict[str, StoredTensor]:
        if (rank, part) not in self.opened:
            path = self.folder / f"rank-{rank}" / f"{part}.safetensors"
            self.opened[rank, part] = read_file(path, STORAGE)
        return self.opened[rank, part]


def pieces_of(table: Any, files: Files, part: str) -> dict[str, list[StoredTensor]]:
    """The pieces of each tensor in the order of their rows, none missing and none twice."""
    need(isinstance(table, dict), f"it has no table {part!r}")
    found = {}
    for name, entry in table.items():
        good = isinstance(entry, dict) and set(entry) == {"shape", "pieces"} and _pairs(entry["pieces"])
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


def _pairs(given: Any) -> bool:
    """Whether it is a list of [rank, first row]."""
    return isinstance(given, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(type(x) is int and x >= 0 for x in pair)
        for pair in given
    )


def _tensor(stored: StoredTensor) -> torch.Tensor:
    tensor = torch.from_numpy(np.array(stored.bits()))
    return tensor.view(torch.bfloat16) if stored.type == "BF16" else tensor
