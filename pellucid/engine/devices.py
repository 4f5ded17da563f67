"""Checks of a model's arguments beyond their types: devices and dtypes."""

from typing import TYPE_CHECKING, Any

from pellucid.base.dtypes import check_dtype
from pellucid.base.errors import UsageError, quote, show

if TYPE_CHECKING:
    from torch import device as Device


def check_engine(device: Any, dtype: Any) -> tuple[str, str]:
    """Returns the names of a device and a dtype, if they can be used here."""
    if not isinstance(device, str) and type(device).__name__ != "device":
        raise UsageError(f'device must be a name such as "cpu" or "cuda", not {show(device)}.')
    name = check_dtype(dtype)
    if str(device) != "cpu":  # torch is not needed to know that one
        resolve_device(str(device))
    return str(device), name


def resolve_device(name: str) -> "Device":
    """Returns the device of that name, if it can be used here."""
    import torch

    try:
        device = torch.device(name)
        torch.empty(1, device=device).tolist()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(f"the device {name!r} cannot be used here: {quote(error)}.") from None
    return device
