"""Tensors that are sharded over the ranks by rows (torch's DTensor), handled like those that are not.

A sharded tensor of n rows is cut like `torch.chunk`: ⌈n / world⌉ rows for each rank, fewer or none for the
last ones. An ordinary tensor is the same on every rank, and belongs to the main one.
"""

from typing import Any, NamedTuple

from torch import Tensor


class LocalRows(NamedTuple):
    """The rows of a tensor that this rank has."""

    rows: Tensor
    first: int
    """The row of the full tensor at which they begin."""
    shape: tuple[int, ...]
    """Of the full tensor."""


def get_local_rows(tensor: Tensor) -> LocalRows:
    """Returns the rows of a tensor that this rank has: of one that is not sharded, all."""
    shape = tuple(tensor.shape)
    if not is_sharded(tensor):
        return LocalRows(tensor, 0, shape)
    mesh: Any = tensor.device_mesh  # type: ignore[attr-defined]
    each = -(-shape[0] // mesh.size())
    return LocalRows(to_local(tensor), min(mesh.get_local_rank() * each, shape[0]), shape)


def to_local(tensor: Tensor) -> Tensor:
    """Returns the rows that are on this rank, as an ordinary tensor."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def full_tensor(tensor: Tensor) -> Tensor:
    """Returns all rows; a collective operation, where the tensor is sharded."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def copy_rows(tensor: Tensor, full: Tensor) -> None:
    """Copies this rank's rows of a full tensor into `tensor`."""
    to_local(tensor).copy_(local_rows(tensor, full))


def shard_like(tensor: Tensor, full: Tensor) -> Tensor:
    """Returns a copy of a full tensor on the device of `tensor`, and sharded like it."""
    if not is_sharded(tensor) or not full.dim():
        return full.detach().to(tensor.device, copy=True)
    from torch.distributed.tensor import DTensor

    rows = local_rows(tensor, full).detach().to(tensor.device, copy=True)
    mesh, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]
    return DTensor.from_local(rows, mesh, placements, shape=tensor.shape, stride=tensor.stride())


def local_rows(tensor: Tensor, full: Tensor) -> Tensor:
    """Returns the rows of a full tensor that this rank has of `tensor`."""
    here = get_local_rows(tensor)
    return full[here.first : here.first + len(here.rows)] if full.dim() else full


def is_sharded(tensor: Tensor) -> bool:
    """Returns whether each rank has some rows of the tensor: a DTensor."""
    return hasattr(tensor, "to_local")
