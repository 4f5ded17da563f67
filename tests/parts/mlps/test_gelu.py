"""GELU against PyTorch's, over the whole line."""

import numpy as np
import pytest
import torch

from pellucid.parts import find
from pellucid.reference.ops import named

X = np.concatenate([np.linspace(-6, 6, 49), [-40.0, 40.0]])


def test_gelu_curve_equals_pytorch() -> None:
    theirs = torch.nn.functional.gelu
    op = named(find("mlps", "gelu").activation)  # type: ignore[attr-defined]
    assert op.name == "gelu"
    assert op.forward(X) == pytest.approx(theirs(torch.tensor(X)).numpy(), rel=1e-12, abs=1e-15)
