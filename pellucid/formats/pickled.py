"""Imports weights from pickles, `pytorch_model.bin`, without running their code.

A pickle is a program. `torch.load(weights_only=True)` interprets only tensors and plain dicts, and refuses
any other call. The result is a folder with safetensors, and the pickle is not needed again.
"""

import re
import warnings
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pellucid.base.dtypes import BY_NAME, FLOAT_NAMES, Array, dtype_name
from pellucid.base.errors import FileError, file_error, show
from pellucid.base.files import check_output
from pellucid.formats.folder import MODEL_FOLDER, file_in, has_file
from pellucid.formats.huggingface.reading import PICKLED, assemble, read_config
from pellucid.formats.huggingface.writing import write
from pellucid.formats.safetensors_file import MAX_NAME_LENGTH, MAX_TENSORS, StoredTensor, read_shards

ONE_FILE, INDEX = PICKLED
_CALLED = re.compile(r"GLOBAL ([\w.]{1,100})")
"""The function that a pickle calls, where torch names it."""


def import_pickled(
    source: str | Path, out: str | Path, dtype: str | None = None, force: bool = False
) -> None:
    """Converts a Hugging Face folder with `.bin` weights, or one `.bin` or `.pt` file beside its config.json,
    into a folder with safetensors; `force` replaces an existing model."""
    path = Path(source)
    if not path.exists():
        raise FileError(f"{path}: there is no such file or folder.")
    check_output(Path(out), MODEL_FOLDER, force, folder=True)
    folder = path if path.is_dir() else path.parent
    if not has_file(folder, "config.json"):
        place = "in it" if path.is_dir() else "beside it"
        raise FileError(
            f"{path} cannot be imported: there is no config.json {place}, and weights alone do not define "
            "a model. Put it there."
        )
    given = read_config(folder)
    tensors = read_pickled(path)
    write(out, assemble(folder, given, tensors), dtype, force=force)


def read_pickled(path: Path) -> Mapping[str, StoredTensor]:
    if not path.is_dir():
        return read_file(file_in(path.parent, path.name))
    if has_file(path, ONE_FILE):
        return read_file(file_in(path, ONE_FILE))
    if has_file(path, INDEX):
        return read_shards(path, INDEX, ".bin", read_file)
    raise FileError(f"{path} has neither {ONE_FILE} nor {INDEX}; there is nothing to import.")


def read_file(path: Path) -> dict[str, StoredTensor]:
    """Returns the tensors of one pickle, memory-mapped where its format allows it."""
    import torch

    if not path.is_file():
        raise FileError(f"{path} does not exist.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with path.open("rb") as file:  # is_zipfile returns False for a path that cannot be opened
                is_zip = zipfile.is_zipfile(file)
            found: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except MemoryError:
        raise
    except OSError as error:
        raise file_error("read", path, error) from None
    except Exception as error:  # a hostile file can raise anything
        raise FileError(_explain_refusal(path, error)) from None
    if not isinstance(found, dict) or not all(type(name) is str for name in found):
        raise FileError(f"{path} holds {type(found).__name__}, not a dict of tensors by name.")
    if len(found) > MAX_TENSORS or any(len(name) > MAX_NAME_LENGTH for name in found):
        raise FileError(f"{path} holds more tensors, or longer names, than any model has.")
    return {name: _store(path, name, tensor) for name, tensor in found.items()}


def _explain_refusal(path: Path, error: Exception) -> str:
    """Returns why a pickle is refused; torch's own message advises to allow code execution."""
    if called := _CALLED.search(str(error)):
        what = f"it calls {called[1]}, and weights need no such call"
    elif type(error).__name__ == "UnpicklingError":
        what = "it constructs more than tensors and plain dicts"
    else:
        return f"{path} is damaged, or is not a file that torch.save wrote."
    return f"{path} is refused: {what}. A pickle is a program; nothing of this one was run."


def _store(path: Path, name: str, tensor: Any) -> StoredTensor:
    import torch

    plain = (
        isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and tensor.device.type == "cpu"
    )
    if not plain or tensor.is_quantized or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise FileError(f"{path}: {show(name)} is {show(type(tensor).__name__)}, not a plain tensor.")
    dtype = dtype_name(tensor.dtype)
    code = BY_NAME[dtype].code if dtype in FLOAT_NAMES else dtype
    return StoredTensor(code, tuple(tensor.shape), partial(_tensor_bits, tensor.detach()))


def _tensor_bits(tensor: Any) -> Array:
    import torch

    tensor = tensor.contiguous()
    bits: Array = (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return bits
