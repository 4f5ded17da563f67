"""The quick ways of a product on a CPU give the product."""

import pytest
import torch
import torch.nn.functional as F

from pellucid.model import linear as file
from pellucid.model.linear import MANY_ROWS, linear


@pytest.mark.parametrize("out", [1, 15, 16, 17, 96, 257])
@pytest.mark.parametrize("bias", [False, True])
def test_one_row_in_float32_is_the_product_whatever_the_width(out: int, bias: bool) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(1, 1, 24), torch.randn(out, 24)
    shift = torch.randn(out) if bias else None
    wanted = F.linear(x.double(), weight.double(), None if shift is None else shift.double())
    got = linear(x, weight, shift)
    assert got.shape == wanted.shape
    torch.testing.assert_close(got.double(), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_many_narrow_rows_are_rounded_once(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "NARROW_IS_SLOW", True)
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(s).to(dtype) for s in ((2, MANY_ROWS, 24), (40, 24), (40,)))
    wanted = F.linear(x.double(), weight.double(), bias.double()).to(dtype)
    got = linear(x, weight, bias)
    assert got.dtype == dtype
    torch.testing.assert_close(got, wanted, rtol=torch.finfo(dtype).eps, atol=1e-2)


def test_gradients_flow_through_one_row() -> None:
    x, weight = torch.randn(1, 1, 8, requires_grad=True), torch.randn(17, 8, requires_grad=True)
    linear(x, weight, None).square().sum().backward()
    got = weight.grad
    weight.grad = None
    F.linear(x, weight).square().sum().backward()
    assert got is not None and weight.grad is not None
    torch.testing.assert_close(got, weight.grad, rtol=1e-4, atol=1e-4)
