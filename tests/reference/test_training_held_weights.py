"""A program with quantized weights as plain parameters is the program of their numbers."""

import numpy as np
import pytest

from pellucid.reference.training import forward, hold_weights
from tests.reference.models import CONFIGS, IDS, TARGETS, quantized_weights


@pytest.mark.parametrize("name", CONFIGS)
def test_a_program_without_dequantization_is_that_of_its_numbers(name: str) -> None:
    config = CONFIGS[name]
    quantized = forward(config, quantized_weights(config, "int4"), IDS, TARGETS)
    plain = forward(config, {key: quantized[key] for key in config.parameters()}, IDS, TARGETS)
    for tape in (quantized, plain):
        tape.backward(tape.ref("loss"))
    held = hold_weights(quantized)
    assert held.values.keys() == plain.values.keys()
    assert held.roles == plain.roles and held.aliases == plain.aliases
    assert {step: (made.op, made.inputs, made.attrs) for step, made in held.steps.items()} == {
        step: (made.op, made.inputs, made.attrs) for step, made in plain.steps.items()
    }
    for value in plain.values:
        np.testing.assert_array_equal(held[value], plain[value])


def test_a_program_of_floats_is_itself() -> None:
    tape = forward(CONFIGS["bare"], {key: np.ones(s) for key, s in CONFIGS["bare"].parameters().items()}, IDS)
    assert hold_weights(tape) is tape
