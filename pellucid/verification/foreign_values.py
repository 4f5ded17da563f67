"""The values that another program recorded: widened to float64, with the type in which they were held."""

import contextlib
import math
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pellucid.base.arguments import check_text
from pellucid.base.dtypes import BY_NAME, FLOAT_NAMES, Dtype
from pellucid.base.errors import FileError, PellucidError, UsageError, file_error, show, unknown
from pellucid.base.files import Damaged, check_readable, need, validating
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape


class RecordedValue(NamedTuple):
    """A value in float64 (or int64), and the type in which the program held it."""

    value: Array
    type: str = "float64"

    @property
    def dtype(self) -> Dtype:
        """The float type; whole numbers are exact, and so is float64."""
        return BY_NAME[self.type if self.type in FLOAT_NAMES else "float64"]


Recording = Mapping[str, RecordedValue]
"""Recorded values by the names of the specification."""


def recorded_values(trace: Trace) -> dict[str, RecordedValue]:
    """Returns the values of a trace, each with the type in which it was held.

    Of a run of the fast engine these are the values that it computed and the parameters that it read.
    """
    types, values = trace.run.get("types"), trace.tape.values
    if not isinstance(types, dict):
        return {name: RecordedValue(value, value.dtype.name) for name, value in values.items()}
    given = {name: str(trace.run.get("dtype")) for name, role in trace.tape.roles.items() if role == "param"}
    return {
        name: RecordedValue(values[name], str(type))
        for name, type in (given | types).items()
        if name in values
    }


def check_recorded(
    tape: Tape, recorded: Mapping[str, RecordedValue | tuple[Array, str]]
) -> dict[str, RecordedValue]:
    """Returns the recorded values; raises where a shape or a type is not the program's."""
    checked = {}
    for name, (given, type) in recorded.items():
        ours, value = tape[name], np.asarray(given)
        if value.shape != ours.shape:
            raise UsageError(f"{name} has the shape {value.shape} there, and {ours.shape} here.")
        if ours.dtype.kind in "iu":
            if not np.array_equal(value, np.rint(value)):
                raise UsageError(f"{name} must be whole numbers; theirs are not.")
            checked[name] = RecordedValue(value.astype(np.int64), "int64")
            continue
        if type not in FLOAT_NAMES and not re.fullmatch(r"bool|u?int\d+", type):
            raise UsageError(unknown("the type of a value", type, FLOAT_NAMES))
        checked[name] = RecordedValue(value.astype(np.float64), type)
    return checked


SUFFIXES = (".npz", ".safetensors")
MAX_BYTES = 2**33
"""An archive that claims to unpack to more is not opened: a few kilobytes can claim any size."""

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?"} | {
    f"{sign}{bits}": f"<{sign.lower()}{bits // 8}" for sign in "IU" for bits in (8, 16, 32, 64)
}


def read_arrays(path: Path) -> dict[str, RecordedValue]:
    """Returns every array of the file by its own name, widened, with the type in which it was computed."""
    with validating(path), _file_errors(path):
        check_readable(path)
        arrays = _read_npz(path) if path.suffix == ".npz" else _read_safetensors(path)
        return {name: _widen(name, value, type) for name, (value, type) in arrays.items()}


def widen_arrays(arrays: Mapping[str, Any]) -> dict[str, RecordedValue]:
    """Returns arrays in memory, of NumPy or torch, widened, with the type in which they were computed."""
    try:
        return {
            name: _widen(check_text("a name of an array", name), *_as_numpy(value))
            for name, value in arrays.items()
        }
    except Damaged as error:
        raise UsageError(f"{error}.") from None


def _as_numpy(value: Any) -> tuple[Array, str]:
    """Returns an array and the name of its type; a tensor is widened first, because NumPy has no bfloat16."""
    if hasattr(value, "detach"):
        value, type = value.detach().cpu(), str(value.dtype).removeprefix("torch.")
        return np.asarray(value.double() if value.is_floating_point() else value), type
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        raise UsageError(f"an array must be numbers in rows of one length, not {show(value)}.") from None
    return array, array.dtype.name


@contextlib.contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    """Raises FileError alone: untrusted bytes can break a library's reader in any way."""
    try:
        yield
    except (PellucidError, Damaged):
        raise
    except FileNotFoundError:
        raise FileError(f"{path}: there is no such file.") from None
    except OSError as error:
        raise file_error("read", path, error) from None
    except Exception as error:
        raise FileError(f"{path} cannot be read as {path.suffix}: {error}.") from None


def _read_npz(path: Path) -> dict[str, tuple[Array, str]]:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        need(sum(member.file_size for member in members) <= MAX_BYTES, "it claims to unpack to over 8 GiB")
        return {member.filename.removesuffix(".npy"): _read_npy(archive, member) for member in members}


def _read_npy(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[Array, str]:
    """Returns one array and its type, after its header has been checked against the bytes that follow."""
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
        size = math.prod(shape) * dtype.itemsize
        need(
            all(length >= 0 for length in shape) and size <= member.file_size,
            f"{name!r} claims the shape {shape} of {dtype}, and has {member.file_size} bytes",
        )
        data = file.read(size)
    need(len(data) == size, f"{name!r} ends early")
    # NumPy has no bfloat16: programs that save one write two bytes of type void
    is_bfloat16 = dtype.kind == "V" and dtype.itemsize == 2
    array = np.frombuffer(data, np.dtype("<u2") if is_bfloat16 else dtype)
    array = array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
    return array, "bfloat16" if is_bfloat16 else dtype.name


def _read_safetensors(path: Path) -> dict[str, tuple[Array, str]]:
    from safetensors import deserialize

    arrays = {}
    for name, entry in deserialize(path.read_bytes()):  # type: ignore[no-untyped-call]
        type = entry["dtype"]
        need(type in _TYPES, f"{name!r} has the type {type}, which cannot be read here")
        array = np.frombuffer(entry["data"], np.dtype(_TYPES[type])).reshape(entry["shape"])
        arrays[name] = array, "bfloat16" if type == "BF16" else array.dtype.name
    return arrays


def _widen(name: str, value: Array, type: str) -> RecordedValue:
    if type == "bfloat16" and value.dtype == np.uint16:
        return RecordedValue((value.astype(np.uint32) << 16).view(np.float32).astype(np.float64), type)
    need(value.dtype.kind in "fiub", f"{name!r} has the type {type}, which is not numeric")
    if value.dtype.kind != "f":
        return RecordedValue(value.astype(np.int64), type)
    need(value.dtype.itemsize <= 8, f"{name!r} has the type {type}; save it as float64")
    return RecordedValue(value.astype(np.float64), find_type(value) if type == value.dtype.name else type)


def find_type(value: Array) -> str:
    """Returns the type in which the numbers were computed, which may be narrower than the array's.

    NumPy users widen bfloat16 to save it. Sixteen different numbers that all end in zero bits show it.
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
