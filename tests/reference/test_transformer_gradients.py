"""The gradient of a whole model is the derivative of its loss, along one random direction per parameter."""

import numpy as np
import pytest

from pellucid.config import ModelConfig
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.reference.training import Weights, forward
from pellucid.verification.mismatch import find_first_mismatch
from tests.reference.models import CONFIGS, weights

AGAINST_DIFFERENCES = 1e-7
SEED = 10  # differences need a smooth loss: these weights keep ReLU's inputs away from its corner
IDS = [[1, 3, 1, 0], [0, 2, 4, 4]]
TARGETS = [[3, -100, 0, 2], [2, 4, 4, 1]]
PADDING = [[1, 1, 1, 1], [1, 0, 1, 1]]


def backpropagated(config: ModelConfig, values: Weights) -> Tape:
    tape = forward(config, values, IDS, TARGETS, padding=PADDING)
    tape.backward(tape.ref("loss"))
    return tape


def unit_directions(config: ModelConfig, seed: int = 1) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    drawn = {name: random.standard_normal(shape) for name, shape in config.parameters().items()}
    return {name: direction / np.linalg.norm(direction) for name, direction in drawn.items()}


def derivative(config: ModelConfig, values: dict[str, Array], name: str, direction: Array) -> Array:
    """Central differences of the loss at two widths, extrapolated to none (Richardson)."""

    def loss(step: float) -> Array:
        moved = values | {name: values[name] + step * direction}
        return forward(config, moved, IDS, TARGETS, padding=PADDING)["loss"]

    wide, narrow = ((loss(h) - loss(-h)) / (2 * h) for h in (5e-4, 2.5e-4))
    return (4 * narrow - wide) / 3


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_directional_derivatives_equal_the_inner_products_with_the_gradient(config: ModelConfig) -> None:
    values, directions = weights(config, SEED), unit_directions(config)
    tape = backpropagated(config, values)
    products = {f"d.{name}": np.vdot(tape[f"d.{name}"], to) for name, to in directions.items()}
    differences = {f"d.{name}": derivative(config, values, name, to) for name, to in directions.items()}
    assert find_first_mismatch(products, differences, AGAINST_DIFFERENCES) is None


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_parameter_has_a_gradient_of_its_own_shape(config: ModelConfig) -> None:
    tape = backpropagated(config, weights(config, SEED))
    assert {name: tape[f"d.{name}"].shape for name in config.parameters()} == config.parameters()


def test_no_input_of_relu_is_near_its_corner() -> None:
    tape = backpropagated(CONFIGS["relu"], weights(CONFIGS["relu"], SEED))
    assert min(np.abs(tape[f"blocks.{layer}.mlp.up"]).min() for layer in range(2)) > 0.05
