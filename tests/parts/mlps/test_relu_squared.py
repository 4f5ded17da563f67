"""The square of ReLU against transformers' and against its values by hand."""

import numpy as np
import pytest
import torch
from transformers.activations import ACT2FN

from pellucid.config import ModelConfig
from pellucid.model import activations
from pellucid.parts import find
from pellucid.reference.mlps import feed_forward
from pellucid.reference.ops import named
from pellucid.reference.tape import Tape

X = np.concatenate([np.linspace(-6, 6, 49), [-40.0, 40.0]])


def test_relu_squared_curve_equals_transformers() -> None:
    op = named(find("mlps", "relu_squared").activation)  # type: ignore[attr-defined]
    assert op.name == "relu_squared"
    assert op.forward(X) == pytest.approx(ACT2FN["relu2"](torch.tensor(X)).numpy(), rel=1e-15)


def test_relu_squared_slope_equals_that_of_pytorch_and_is_zero_at_zero() -> None:
    x = torch.tensor([-1.5, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    activations.make("relu_squared")(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 0, 4]
    assert named("relu_squared_back").forward(x.detach().numpy(), np.ones(3)).tolist() == [0, 0, 4]


def test_relu_squared_is_two_matrices_worked_by_hand() -> None:
    """x = (1, 2) finds 3 and −1 in the hidden channels; 3² = 9 goes back through (1, −1), −1 is cut off."""
    sizes = {"vocab_size": 2, "context_length": 1, "n_layer": 1, "n_head": 1, "d_model": 2, "d_ff": 2}
    config = ModelConfig.from_dict(sizes | {"mlp": "relu_squared"})
    tape = Tape()
    for name, value in {"up_proj": [[1, 1], [1, -1]], "down_proj": [[1, 5], [-1, 5]]}.items():
        tape.parameter(f"blocks.0.mlp.{name}.weight", value)
    out = feed_forward(tape.scope("blocks.0"), tape.constant("x", [[[1.0, 2.0]]]), config.mlp, None)
    assert tape[out][0, 0].tolist() == [9, -9]
