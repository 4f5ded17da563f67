"""The dice of every library that a run throws, as tensors of plain numbers: a checkpoint holds them without
pickle. Every rank has dice of its own."""

import random
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor


def seed(number: int, rank: int = 0, step: int = 0) -> None:
    """Dice that no other rank has, and no other step at which dice had to be made anew."""
    own = (number ^ rank << 20 ^ step << 36) % 2**63
    torch.manual_seed(own)
    random.seed(own)
    np.random.seed(own % 2**32)


def state() -> dict[str, Tensor]:
    """What torch, Python and NumPy would throw next; of the GPUs, the one that is used."""
    tensors = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors["cuda"] = torch.cuda.get_rng_state()
    version, numbers, gauss = random.getstate()
    _, keys, place, has_gauss, cached = np.random.get_state(legacy=True)
    return tensors | {
        "python": torch.tensor([version, *numbers]),
        "python.gauss": torch.tensor([] if gauss is None else [gauss], dtype=torch.float64),
        "numpy": torch.tensor([*map(int, keys), int(place), int(has_gauss)]),
        "numpy.gauss": torch.tensor([float(cached)], dtype=torch.float64),
    }


def restore(tensors: Mapping[str, Tensor]) -> None:
    torch.set_rng_state(tensors["torch"])
    if torch.cuda.is_available() and "cuda" in tensors:
        torch.cuda.set_rng_state(tensors["cuda"])
    version, *numbers = tensors["python"].tolist()
    random.setstate((version, tuple(numbers), next(iter(tensors["python.gauss"].tolist()), None)))
    *keys, place, has_gauss = tensors["numpy"].tolist()
    cached = float(tensors["numpy.gauss"])
    np.random.set_state(("MT19937", np.array(keys, dtype=np.uint32), place, has_gauss, cached))


def torch_dice(device: torch.device) -> list[Tensor]:
    """Those that a step throws: little enough to be kept before every one."""
    cuda = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *cuda]


def throw_again(dice: list[Tensor], device: torch.device) -> None:
    """Go on from where `torch_dice` was taken."""
    torch.set_rng_state(dice[0])
    for state in dice[1:]:
        torch.cuda.set_rng_state(state, device)
