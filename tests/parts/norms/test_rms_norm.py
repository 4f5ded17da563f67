"""RMSNorm against PyTorch's and against a hand calculation."""

import numpy as np
import pytest
import torch

from pellucid.parts.norms.rms_norm import RmsNorm
from pellucid.reference.norms import normed
from pellucid.reference.tape import Tape


def rms_norm(x: list[float], weight: list[float], eps: float) -> np.ndarray:
    tape = Tape()
    tape.parameter("n.weight", weight)
    return tape[normed(tape.scope("n"), tape.constant("x", [[x]]), RmsNorm(eps=eps))][0, 0]


def test_rms_norm_of_a_row_one_can_check_by_hand() -> None:
    """The root mean square of (1, 7, 5, 5) is 5."""
    assert rms_norm([1, 7, 5, 5], [1] * 4, eps=0.0) == pytest.approx([0.2, 1.4, 1, 1])


def test_rms_norm_equals_pytorch() -> None:
    x, weight = [0.5, 2.3, -1.2, 5.6], [1.0, 2.0, 0.5, -1.0]
    tensors = (torch.tensor(values, dtype=torch.float64) for values in (x, weight))
    wanted = torch.nn.functional.rms_norm(next(tensors), (4,), next(tensors), eps=1e-6)
    assert rms_norm(x, weight, eps=1e-6) == pytest.approx(wanted.numpy(), abs=1e-12)
