"""The identity: every matrix hands its inputs on as they are, as many as it has outputs.

For models that one follows by hand, not for those that are to learn. Tables that are looked up are GPT-2's,
so that tokens differ.
"""

import torch
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.model.initializations import TABLES, gpt2


def matrix(name: str, shape: tuple[int, ...], config: ModelConfig, dice: torch.Generator) -> Tensor:
    return (
        gpt2.matrix(name, shape, config, dice) if name in TABLES else torch.eye(*shape, dtype=torch.float64)
    )
