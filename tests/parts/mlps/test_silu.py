"""SiLU against PyTorch's, over the whole line."""

import numpy as np
import pytest
import torch

from pellucid.parts import find
from pellucid.reference.ops import named

X = np.concatenate([np.linspace(-6, 6, 49), [-40.0, 40.0]])


def test_silu_curve_equals_pytorch() -> None:
    theirs = torch.nn.functional.silu
    op = named(find("mlps", "silu").activation)  # type: ignore[attr-defined]
    assert op.name == "silu"
    assert op.forward(X) == pytest.approx(theirs(torch.tensor(X)).numpy(), rel=1e-12, abs=1e-15)


def test_silu_has_its_lowest_point_where_the_paper_says() -> None:
    """Elfwing et al. 2017: a global minimum of about −0.28 at x ≈ −1.28."""
    x = np.linspace(-3, 0, 30001)
    y = named("silu").forward(x)
    assert y.min() == pytest.approx(-0.28, abs=0.005)
    assert x[y.argmin()] == pytest.approx(-1.28, abs=0.005)
