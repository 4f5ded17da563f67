"""Initializations by name: what the matrices of a new model start with.

Gains start at 1 and biases at 0 under every name. The numbers are drawn on the CPU in float64 in the order of
the config's parameters, so a seed gives the same model on every device and in every type.
"""

from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Generator, Tensor

from pellucid.base import registry
from pellucid.config import ModelConfig
from pellucid.parts.optimizers import TABLES

if TYPE_CHECKING:  # a model initializes itself
    from pellucid.engine.transformer import Transformer

AnyTransformer = TypeVar("AnyTransformer", bound="Transformer")
Shape = tuple[int, ...]


def initialize(model: AnyTransformer, kind: str = "gpt2", seed: int | None = 0) -> AnyTransformer:
    """Fills the parameters of a model in place, whatever its type and device, and returns it.

    Without a seed the numbers come from torch's default generator, as those of `torch.nn.Linear` do.
    """
    draw = registry.function_of(__name__, kind, "initialization")
    generator = torch.default_generator if seed is None else torch.Generator().manual_seed(seed)
    parameters, config = dict(model.named_parameters()), model.config
    with torch.no_grad(), torch.device("cpu"):
        for name, shape in config.parameters().items():
            if len(shape) == 1:
                parameters[name].fill_(0.0 if name.endswith("bias") else 1.0)
            else:
                parameters[name].copy_(draw(name, shape, config, generator))
    return model


def check_kind(kind: str) -> None:
    """Raises for a name that is not an initialization."""
    registry.function_of(__name__, kind, "initialization")


@registry.kind("gpt2")
def gpt2(name: str, shape: Shape, config: ModelConfig, generator: Generator) -> Tensor:
    """GPT-2's: N(0, 0.02), and 0.02 / √(2L) for the matrices that write to the residual stream, so that its
    variance does not grow with the number of layers.

    Radford et al. 2019, section 2.3.
    """
    depth = 2 * config.n_layer if writes_to_stream(name) else 1
    return _normal(shape, 0.02 / depth**0.5, generator)


@registry.kind("zero_output")
def zero_output(name: str, shape: Shape, config: ModelConfig, generator: Generator) -> Tensor:
    """GPT-2's, but 0 for the matrices that write to the residual stream: every block starts as the identity.

    Zhang et al. 2019, arXiv:1901.09321, start the last layer of each residual branch at 0.
    """
    values = gpt2(name, shape, config, generator)  # drawn even if unused, so that the others are GPT-2's
    return torch.zeros_like(values) if writes_to_stream(name) else values


@registry.kind("identity")
def identity(name: str, shape: Shape, config: ModelConfig, generator: Generator) -> Tensor:
    """The identity matrix, cut or padded with zeros to the shape of each weight; for models that are computed
    by hand, not for training. Embedding tables are GPT-2's, so that tokens differ."""
    if name in TABLES:
        return gpt2(name, shape, config, generator)
    return torch.eye(*shape, dtype=torch.float64)


@registry.kind("scaled_residual")
def scaled_residual(name: str, shape: Shape, config: ModelConfig, generator: Generator) -> Tensor:
    """By fan-in and depth: N(0, 1/√in), and 1/√(2L) of that for the 2L matrices that write to the residual
    stream.

    LeCun et al. 1998, Efficient BackProp, for the fan-in; Radford et al. 2019, section 2.3, for the depth.
    Embedding tables have no fan-in; they get N(0, 1/√C).
    """
    if name in TABLES:
        return _normal(shape, config.d_model**-0.5, generator)
    depth = 2 * config.n_layer if writes_to_stream(name) else 1
    return _normal(shape, (shape[1] * depth) ** -0.5, generator)


@registry.kind("xavier")
def xavier(name: str, shape: Shape, config: ModelConfig, generator: Generator) -> Tensor:
    """Xavier's: uniform in ±√(6 / (in + out)), which preserves the variance of activations and of gradients.

    Glorot and Bengio 2010. Embedding tables have no fan-in; they get N(0, 1/√C).
    """
    if name in TABLES:
        return _normal(shape, config.d_model**-0.5, generator)
    limit = (6 / sum(shape)) ** 0.5
    return torch.empty(shape, dtype=torch.float64).uniform_(-1.0, 1.0, generator=generator).mul(limit)


@registry.kind("small_query_key")
def small_query_key(name: str, shape: Shape, config: ModelConfig, generator: Generator) -> Tensor:
    """Xavier's, but a tenth of it for queries and keys: scores start near 0, so attention starts uniform."""
    values = xavier(name, shape, config, generator)
    return values * 0.1 if name.endswith(("q_proj.weight", "k_proj.weight")) else values


def writes_to_stream(name: str) -> bool:
    """Returns whether a matrix computes what is added to the residual stream."""
    return name.endswith(("o_proj.weight", "down_proj.weight"))


def _normal(shape: Shape, deviation: float, generator: Generator) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=generator) * deviation
