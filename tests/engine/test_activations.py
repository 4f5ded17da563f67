"""GELU by tanh equals GELU by the sigmoid."""

import torch
import torch.nn.functional as F

from pellucid.engine.activations import gelu_by_sigmoid


def test_gelu_by_sigmoid_equals_gelu_by_tanh_and_so_does_its_gradient() -> None:
    x = torch.linspace(-12, 12, 4801, dtype=torch.float64, requires_grad=True)
    ours, right = gelu_by_sigmoid(x), F.gelu(x, approximate="tanh")
    (mine,) = torch.autograd.grad(ours.sum(), x)
    (theirs,) = torch.autograd.grad(right.sum(), x)
    assert torch.allclose(ours, right, rtol=0, atol=1e-14)
    assert torch.allclose(mine, theirs, rtol=0, atol=1e-13)


def test_half_precision_is_rounded_once_at_the_end() -> None:
    x = torch.linspace(-4, 4, 801).bfloat16()
    assert torch.equal(gelu_by_sigmoid(x), gelu_by_sigmoid(x.double()).bfloat16())
