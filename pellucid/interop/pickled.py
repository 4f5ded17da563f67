"""Weights in pickles, `pytorch_model.bin`: opened only to be imported, and never so that they could run code.

A pickle is a program. `torch.load(weights_only=True)` is an interpreter that knows tensors and plain tables
and no other call; what asks for more is refused. The result is a folder with safetensors, and the pickle
is not needed again.
"""

import re
import warnings
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pellucid.dtypes import BY_NAME, FLOAT_NAMES, Array, dtype_name
from pellucid.errors import FileError, file_error, show
from pellucid.interop.folder import has, within
from pellucid.interop.huggingface.reading import PICKLED, assembled, read_config
from pellucid.interop.huggingface.writing import write
from pellucid.interop.safetensors_file import LONGEST_NAME, MOST_TENSORS, Stored, read_shards

ONE_FILE, INDEX = PICKLED
_CALLED = re.compile(r"GLOBAL ([\w.]{1,100})")
"""The call that a pickle asks for, where torch names it."""


def import_pickled(
    source: str | Path, out: str | Path, dtype: str | None = None, force: bool = False
) -> None:
    """Turns a Hugging Face folder with `.bin` weights, or one `.bin` or `.pt` file beside its config.json,
    into a folder with safetensors; `force` replaces a model that is there."""
    path = Path(source)
    folder = path if path.is_dir() else path.parent
    if not has(folder, "config.json"):
        place = "in it" if path.is_dir() else "beside it"
        raise FileError(
            f"{path} cannot be imported: there is no config.json {place}, and weights alone do not say which "
            "model they are of. Put it there."
        )
    given = read_config(folder)
    tensors = read_pickled(path)
    write(out, assembled(folder, given, tensors), dtype, force=force)


def read_pickled(path: Path) -> Mapping[str, Stored]:
    if not path.is_dir():
        return read_file(within(path.parent, path.name))
    if has(path, ONE_FILE):
        return read_file(within(path, ONE_FILE))
    if has(path, INDEX):
        return read_shards(path, INDEX, ".bin", read_file)
    raise FileError(f"{path} holds neither {ONE_FILE} nor {INDEX}; there is nothing to import.")


def read_file(path: Path) -> dict[str, Stored]:
    """The tensors of one pickle, mapped where its format allows it."""
    import torch

    if not path.is_file():
        raise FileError(f"{path} is not there.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with path.open("rb") as file:  # is_zipfile says of a path that cannot be opened that it is none
                is_zip = zipfile.is_zipfile(file)
            found: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except MemoryError:
        raise
    except OSError as error:
        raise file_error("read", path, error) from None
    except Exception as error:  # whatever a hostile file makes of it
        raise FileError(_refusal(path, error)) from None
    if not isinstance(found, dict) or not all(type(name) is str for name in found):
        raise FileError(f"{path} holds {type(found).__name__}, not a table of tensors by name.")
    if len(found) > MOST_TENSORS or any(len(name) > LONGEST_NAME for name in found):
        raise FileError(f"{path} holds more tensors, or longer names, than any model has.")
    return {name: _stored(path, name, tensor) for name, tensor in found.items()}


def _refusal(path: Path, error: Exception) -> str:
    """Why a pickle is not opened, in our words: torch's own advise to open it with code execution allowed."""
    if called := _CALLED.search(str(error)):
        what = f"it calls {called[1]}, and weights need no such call"
    elif type(error).__name__ == "UnpicklingError":
        what = "it makes more than tensors and plain tables"
    else:
        return f"{path} is damaged, or is not a file that torch.save wrote."
    return f"{path} is refused: {what}. A pickle is a program; nothing of this one was run."


def _stored(path: Path, name: str, tensor: Any) -> Stored:
    import torch

    plain = (
        isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and tensor.device.type == "cpu"
    )
    if not plain or tensor.is_quantized or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise FileError(f"{path}: {show(name)} is {show(type(tensor).__name__)}, not a plain tensor.")
    dtype = dtype_name(tensor.dtype)
    code = BY_NAME[dtype].code if dtype in FLOAT_NAMES else dtype
    return Stored(code, tuple(tensor.shape), partial(_bits, tensor.detach()))


def _bits(tensor: Any) -> Array:
    import torch

    tensor = tensor.contiguous()
    bits: Array = (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return bits
