"""ReLU against PyTorch's, over the whole line."""

import numpy as np
import pytest
import torch

from pellucid.parts import find
from pellucid.reference.ops import named

X = np.concatenate([np.linspace(-6, 6, 49), [-40.0, 40.0]])


def test_relu_curve_equals_pytorch() -> None:
    theirs = torch.relu
    op = named(find("mlps", "relu").activation)  # type: ignore[attr-defined]
    assert op.name == "relu"
    assert op.forward(X) == pytest.approx(theirs(torch.tensor(X)).numpy(), rel=1e-12, abs=1e-15)
