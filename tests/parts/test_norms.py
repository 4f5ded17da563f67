"""Norms against PyTorch and by hand."""

import numpy as np
import pytest
import torch

from pellucid.parts.norms import LayerNormConfig, RmsNormConfig
from pellucid.reference.norms import normalize
from pellucid.reference.tape import Tape

# layer_norm: LayerNorm against PyTorch's and against a hand calculation.


def layer_norm(x: list[float], weight: list[float], bias: list[float], eps: float = 1e-5) -> np.ndarray:
    tape = Tape()
    tape.parameter("n.weight", weight)
    tape.parameter("n.bias", bias)
    return tape[normalize(tape.scope("n"), tape.constant("x", [[x]]), LayerNormConfig(eps=eps))][0, 0]


def test_layer_norm_of_a_row_one_can_check_by_hand() -> None:
    assert layer_norm([1, 1, 5, 5], [1] * 4, [0] * 4, eps=0.0) == pytest.approx([-1, -1, 1, 1])


def test_layer_norm_equals_pytorch() -> None:
    x, weight, bias = [0.5, 2.3, -1.2, 5.6], [1.0, 2.0, 0.5, -1.0], [0.1, 0.0, -0.2, 0.3]
    wanted = torch.nn.functional.layer_norm(
        torch.tensor(x, dtype=torch.float64), (4,), torch.tensor(weight).double(), torch.tensor(bias).double()
    )
    assert layer_norm(x, weight, bias) == pytest.approx(wanted.numpy(), abs=1e-7)


# rms_norm: RMSNorm against PyTorch's and against a hand calculation.


def rms_norm(x: list[float], weight: list[float], eps: float) -> np.ndarray:
    tape = Tape()
    tape.parameter("n.weight", weight)
    return tape[normalize(tape.scope("n"), tape.constant("x", [[x]]), RmsNormConfig(eps=eps))][0, 0]


def test_rms_norm_of_a_row_one_can_check_by_hand() -> None:
    """The root mean square of (1, 7, 5, 5) is 5."""
    assert rms_norm([1, 7, 5, 5], [1] * 4, eps=0.0) == pytest.approx([0.2, 1.4, 1, 1])


def test_rms_norm_equals_pytorch() -> None:
    x, weight = [0.5, 2.3, -1.2, 5.6], [1.0, 2.0, 0.5, -1.0]
    tensors = (torch.tensor(values, dtype=torch.float64) for values in (x, weight))
    wanted = torch.nn.functional.rms_norm(next(tensors), (4,), next(tensors), eps=1e-6)
    assert rms_norm(x, weight, eps=1e-6) == pytest.approx(wanted.numpy(), abs=1e-12)
