"""GEGLU against its paper's formula in PyTorch, and against a hand calculation."""

from typing import Any

import numpy as np
import pytest
import torch

from pellucid.parts import find
from pellucid.reference.mlps import feed_forward
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape

RANDOM = np.random.default_rng(0)
GATE, UP, DOWN, X = (RANDOM.standard_normal(shape) for shape in ((6, 4), (6, 4), (4, 6), (2, 3, 4)))


def written(kind: str, gate: Any, up: Any, down: Any, x: Any) -> Array:
    """What a feed-forward of that kind writes to the stream."""
    tape = Tape()
    for name, value in {"gate_proj": gate, "up_proj": up, "down_proj": down}.items():
        tape.parameter(f"blocks.0.mlp.{name}.weight", value)
    mlp: Any = find("mlps", kind)()
    return tape[feed_forward(tape.scope("blocks.0"), tape.constant("x", x), mlp, None)]


def test_geglu_equals_the_formula_of_its_paper_in_pytorch() -> None:
    """Shazeer 2020: (GELU(x W) ⊗ x V) W_2, with the exact GELU."""
    gate, up, down, x = (torch.tensor(array) for array in (GATE, UP, DOWN, X))
    wanted = (torch.nn.functional.gelu(x @ gate.T) * (x @ up.T)) @ down.T
    assert written("geglu", GATE, UP, DOWN, X) == pytest.approx(wanted.numpy(), abs=1e-14)


def test_geglu_is_three_matrices_worked_by_hand() -> None:
    """(GELU(x W_G) ⊙ x W_1) W_2 for x = (1, 2): GELU(1) = .8413447; .8413447 · 2 · 3 = 5.048068."""
    out = written("geglu", [[1, 0]], [[0, 3]], [[1], [-1]], [[[1.0, 2.0]]])
    assert out[0, 0] == pytest.approx([5.048068, -5.048068], abs=1e-6)
