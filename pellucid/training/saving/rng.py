"""The state of every random number generator that a run uses, as plain tensors that a checkpoint can hold.

Each rank seeds its generators differently, so that ranks do not apply the same dropout masks.
"""

import random
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor


def seed_everything(seed: int, rank: int = 0, step: int = 0) -> None:
    """Seeds torch, Python and NumPy from a run's seed, so that no two ranks share a stream.

    `step` is not 0 where generators are seeded anew in the middle of a run, by another number of ranks.
    """
    own = (seed ^ rank << 20 ^ step << 36) % 2**63
    torch.manual_seed(own)
    random.seed(own)
    np.random.seed(own % 2**32)


def get_rng_state() -> dict[str, Tensor]:
    """Returns the generator states of torch, the current GPU, Python and NumPy."""
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


def set_rng_state(tensors: Mapping[str, Tensor]) -> None:
    """Restores what `get_rng_state` returned."""
    torch.set_rng_state(tensors["torch"])
    if torch.cuda.is_available() and "cuda" in tensors:
        torch.cuda.set_rng_state(tensors["cuda"])
    version, *numbers = tensors["python"].tolist()
    random.setstate((version, tuple(numbers), next(iter(tensors["python.gauss"].tolist()), None)))
    *keys, place, has_gauss = tensors["numpy"].tolist()
    cached = float(tensors["numpy.gauss"])
    np.random.set_state(("MT19937", np.array(keys, dtype=np.uint32), place, has_gauss, cached))


def get_torch_rng_state(device: torch.device) -> list[Tensor]:
    """Returns the states of torch's generators, which a forward pass draws from; cheap enough for a step."""
    cuda = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *cuda]


def set_torch_rng_state(states: list[Tensor], device: torch.device) -> None:
    """Restores what `get_torch_rng_state` returned."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state, device)
