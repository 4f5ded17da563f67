"""A `transformers` module in memory, as a model: its config and state dict in place of a folder's files."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.base.dtypes import Array, dtype_code, dtype_name
from pellucid.base.errors import UsageError, not_one_of
from pellucid.formats.huggingface import families
from pellucid.formats.huggingface.reading import assemble
from pellucid.formats.pretrained import Pretrained
from pellucid.formats.safetensors_file import StoredTensor

if TYPE_CHECKING:
    from torch import Tensor


def is_module(given: object) -> bool:
    """Returns whether it is a module with a config, as `transformers` makes them."""
    return callable(getattr(given, "state_dict", None)) and hasattr(getattr(given, "config", None), "to_dict")


def read_module(module: Any) -> Pretrained:
    """Returns the model that a module of a known family is. Its weights are read when they are used; its
    tokenizer is that of the folder from which it was loaded, where there is one."""
    given: Mapping[str, Any] = module.config.to_dict()
    known = families.family_names()
    if given.get("model_type") not in known:
        raise UsageError(not_one_of("the module's model_type", given.get("model_type"), known))
    source = str(given.get("_name_or_path") or getattr(module, "name_or_path", "") or "module")
    folder = Path(source)
    tensors = {name: _store(tensor) for name, tensor in module.state_dict().items()}
    return assemble(folder if folder.is_dir() else Path(folder.name), given, tensors)


def _store(tensor: "Tensor") -> StoredTensor:
    def copy_bits() -> Array:
        import torch

        held = tensor.detach().cpu().contiguous()
        return (held.view(torch.uint16) if held.dtype == torch.bfloat16 else held).numpy().copy()

    return StoredTensor(
        dtype_code(dtype_name(tensor.dtype)) or str(tensor.dtype), tuple(tensor.shape), copy_bits
    )
