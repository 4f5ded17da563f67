"""Initialisations by name, one file per kind; each has `matrix(name, shape, config, dice)`.

Gains start at 1 and biases at 0 under every name; a kind says what the matrices start with. The numbers are
drawn on the CPU in float64 in the order of the config's parameters, so a seed means one model everywhere.
"""

from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from pellucid import registry
from pellucid.config import ModelConfig

if TYPE_CHECKING:  # a model initializes itself
    from pellucid.model.transformer import Transformer

AnyTransformer = TypeVar("AnyTransformer", bound="Transformer")
TABLES = ("embed.weight", "positions.weight", "position_bias.weight")
"""What is looked up by rows, and so has no inputs."""


def initialise(model: AnyTransformer, kind: str = "gpt2", seed: int | None = 0) -> AnyTransformer:
    """Fills the parameters of a model, whatever its type and device.

    Without a seed the numbers come from torch's own generator, as those of `torch.nn.Linear` do.
    """
    matrix = registry.module_of(__name__, kind, "initialisation").matrix
    dice = torch.default_generator if seed is None else torch.Generator().manual_seed(seed)
    parameters = dict(model.named_parameters())
    with torch.no_grad(), torch.device("cpu"):
        for name, shape in model.config.parameters().items():
            parameters[name].copy_(_start(name, shape, model.config, dice, matrix))
    return model


def _start(
    name: str, shape: tuple[int, ...], config: ModelConfig, dice: torch.Generator, matrix: object
) -> Tensor:
    if len(shape) == 1:
        return torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
    assert callable(matrix)
    filled: Tensor = matrix(name, shape, config, dice)
    return filled


def writes(name: str) -> bool:
    """Whether a matrix writes to the stream."""
    return name.endswith(("o_proj.weight", "down_proj.weight"))


def normal(shape: tuple[int, ...], deviation: float, dice: torch.Generator) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=dice) * deviation
