"""The arrays of another program: a .npz or .safetensors file, read without trusting it."""

import contextlib
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pellucid.errors import FileError, PellucidError, file_error
from pellucid.files import Damaged, check_readable, need, validating
from pellucid.judge.judge_run import RecordedValue
from pellucid.reference.op import Array

SUFFIXES = (".npz", ".safetensors")
MOST_BYTES = 2**33
"""A file that says it holds more, unpacked, is not opened: a few kilobytes can claim anything."""

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?"} | {
    f"{sign}{bits}": f"<{sign.lower()}{bits // 8}" for sign in "IU" for bits in (8, 16, 32, 64)
}


def read(path: Path) -> dict[str, RecordedValue]:
    """Every array of the file by its own name, widened, with the type in which it is held."""
    with validating(path), _nothing_else(path):
        check_readable(path)
        arrays = _npz(path) if path.suffix == ".npz" else _safetensors(path)
        return {name: _recorded(name, value, type) for name, (value, type) in arrays.items()}


@contextlib.contextmanager
def _nothing_else(path: Path) -> Iterator[None]:
    """A stranger's bytes can break a library's reader in any way; a person is told of one kind only."""
    try:
        yield
    except (PellucidError, Damaged):
        raise
    except FileNotFoundError:
        raise FileError(f"there is no file {path}.") from None
    except OSError as error:
        raise file_error("read", path, error) from None
    except Exception as error:
        raise FileError(f"{path} cannot be read as {path.suffix}: {error}.") from None


def _npz(path: Path) -> dict[str, tuple[Array, str]]:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        need(
            sum(member.file_size for member in members) <= MOST_BYTES, "it says that it unpacks to over 8 GiB"
        )
        return {member.filename.removesuffix(".npy"): _npy(archive, member) for member in members}


def _npy(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[Array, str]:
    """One array, after its head has been held against the bytes that follow."""
    name = member.filename.removesuffix(".npy")
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        need(version in ((1, 0), (2, 0)), f"{name!r} has the array format {version}")
        head = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = head(file)
        need(
            not dtype.hasobject, f"{name!r} holds Python objects, which are never loaded; save plain numbers"
        )
        bytes = math.prod(shape) * dtype.itemsize
        need(
            all(size >= 0 for size in shape) and bytes <= member.file_size,
            f"{name!r} says {shape} of {dtype}, and the file has {member.file_size} bytes of it",
        )
        data = file.read(bytes)
    need(len(data) == bytes, f"{name!r} ends early")
    # NumPy has no bfloat16: those who write one leave two bytes without a meaning
    half = dtype.kind == "V" and dtype.itemsize == 2
    array = np.frombuffer(data, np.dtype("<u2") if half else dtype)
    array = array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
    return array, "bfloat16" if half else dtype.name


def _safetensors(path: Path) -> dict[str, tuple[Array, str]]:
    from safetensors import deserialize

    arrays = {}
    for name, entry in deserialize(path.read_bytes()):  # type: ignore[no-untyped-call]
        type = entry["dtype"]
        need(type in _TYPES, f"{name!r} has the type {type}, which is not read here")
        array = np.frombuffer(entry["data"], np.dtype(_TYPES[type])).reshape(entry["shape"])
        arrays[name] = array, "bfloat16" if type == "BF16" else array.dtype.name
    return arrays


def _recorded(name: str, value: Array, type: str) -> RecordedValue:
    if type == "bfloat16":
        return RecordedValue((value.astype(np.uint32) << 16).view(np.float32).astype(np.float64), type)
    need(value.dtype.kind in "fiub", f"{name!r} is of {type}, which are no numbers")
    if value.dtype.kind != "f":
        return RecordedValue(value.astype(np.int64), type)
    need(value.dtype.itemsize <= 8, f"{name!r} is of {type}; save it as float64")
    return RecordedValue(value.astype(np.float64), held_in(value))


def held_in(value: Array) -> str:
    """The type in which numbers were made, where the array is wider than they are.

    NumPy users widen bfloat16 to save it. Sixteen different numbers that all end in zeros are no accident.
    """
    type = value.dtype.name
    finite = value[np.isfinite(value)]
    if type == "float16" or np.unique(finite[:4096]).size < 16:
        return type
    narrow = finite.astype(np.float32)
    if type == "float64" and not np.array_equal(narrow, finite):
        return type
    if not (narrow.view(np.uint32) & 0xFFFF).any():
        return "bfloat16"
    with np.errstate(over="ignore"):
        return "float16" if np.array_equal(narrow.astype(np.float16), narrow) else "float32"
