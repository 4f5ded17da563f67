"""The dice of every library that a run throws, as plain numbers: a checkpoint holds them without pickle."""

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor


def state() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of torch's generators, and the numbers of Python's and NumPy's."""
    tensors = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors |= {f"cuda.{i}": dice for i, dice in enumerate(torch.cuda.get_rng_state_all())}
    version, numbers, gauss = random.getstate()
    kind, keys, place, has_gauss, cached = np.random.get_state(legacy=True)
    return tensors, {
        "python": [version, list(numbers), gauss],
        "numpy": [kind, [int(key) for key in keys], int(place), int(has_gauss), float(cached)],
    }


def restore(tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
    torch.set_rng_state(tensors["torch"])
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            if f"cuda.{i}" in tensors:
                torch.cuda.set_rng_state(tensors[f"cuda.{i}"], i)
    version, numbers, gauss = plain["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, place, has_gauss, cached = plain["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), place, has_gauss, cached))


def torch_dice(device: torch.device) -> list[Tensor]:
    """Those that a step throws: little enough to be kept before every one."""
    cuda = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *cuda]


def throw_again(dice: list[Tensor], device: torch.device) -> None:
    """Go on from where `torch_dice` was taken."""
    torch.set_rng_state(dice[0])
    for state in dice[1:]:
        torch.cuda.set_rng_state(state, device)
