"""Tensors of which each rank has some rows, and those that are whole; who uses them need not know which.

A sharded tensor of n rows is cut like `torch.chunk`: ⌈n / world⌉ rows for each rank, fewer or none for the
last ones. An ordinary tensor is the same on every rank, and counts as the first one's.
"""

from typing import Any, NamedTuple

from torch import Tensor


class Piece(NamedTuple):
    rows: Tensor
    first: int
    """The row of the whole tensor at which they begin."""
    shape: tuple[int, ...]
    """Of the whole tensor."""


def piece(tensor: Tensor) -> Piece:
    """What this rank has of a tensor."""
    shape = tuple(tensor.shape)
    if not in_pieces(tensor):
        return Piece(tensor, 0, shape)
    mesh: Any = tensor.device_mesh  # type: ignore[attr-defined]
    each = -(-shape[0] // mesh.size())
    return Piece(local(tensor), min(mesh.get_local_rank() * each, shape[0]), shape)


def local(tensor: Tensor) -> Tensor:
    """The rows that lie here."""
    return tensor.to_local() if in_pieces(tensor) else tensor  # type: ignore[attr-defined]


def whole(tensor: Tensor) -> Tensor:
    """All rows; of a sharded tensor, all ranks have to ask for them."""
    return tensor.full_tensor() if in_pieces(tensor) else tensor  # type: ignore[attr-defined]


def fill(tensor: Tensor, given: Tensor) -> None:
    """Give a tensor the numbers of a whole one: this rank's rows of them."""
    here = piece(tensor)
    here.rows.copy_(_rows(given, here))


def like(tensor: Tensor, given: Tensor) -> Tensor:
    """The whole tensor `given`, copied to where `tensor` lies, and in pieces where that is."""
    if not in_pieces(tensor) or not given.dim():
        return given.detach().to(tensor.device, copy=True)
    from torch.distributed.tensor import DTensor

    rows = _rows(given, piece(tensor)).detach().to(tensor.device, copy=True)
    mesh, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]
    return DTensor.from_local(rows, mesh, placements, shape=tensor.shape, stride=tensor.stride())


def rows_of(tensor: Tensor, given: Tensor) -> Tensor:
    """Of a whole tensor, the rows that this rank has of `tensor`."""
    return _rows(given, piece(tensor))


def _rows(given: Tensor, here: Piece) -> Tensor:
    return given[here.first : here.first + len(here.rows)] if given.dim() else given


def in_pieces(tensor: Tensor) -> bool:
    """Whether each rank has some rows of it: a tensor of torch's own kind for that."""
    return hasattr(tensor, "to_local")
