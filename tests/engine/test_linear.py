"""The quick ways of a product on a CPU give the product."""

import pytest
import torch
import torch.nn.functional as F

from pellucid.engine import linear as file
from pellucid.engine.linear import MANY_ROWS, MOST_DECODED, Linear, linear, project


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


@pytest.mark.parametrize("bias", [False, True])
def test_layers_together_give_what_each_gives_and_their_gradients(bias: bool) -> None:
    torch.manual_seed(0)
    shapes = {f"{name}.weight": (out, 6) for name, out in (("a", 4), ("b", 3), ("c", 5))}
    shapes |= {f"{name}.bias": (out,) for name, out in (("a", 4), ("b", 3), ("c", 5)) if bias}
    layers = [Linear(shapes, name).double() for name in "abc"]
    for layer in layers:
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter)
    x = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    found: list[list[torch.Tensor]] = []
    for made in (project(x, *layers), tuple(layer(x) for layer in layers)):
        total = sum((y.square() * (i + 1)).sum() for i, y in enumerate(made))
        assert isinstance(total, torch.Tensor)
        wanted = [x, *(p for layer in layers for p in layer.parameters())]
        found.append([*made, *torch.autograd.grad(total, wanted)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_a_layer_that_was_changed_is_asked_itself() -> None:
    class Doubled(Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    shapes = {"a.weight": (2, 2), "b.weight": (2, 2)}
    plain, doubled = Linear(shapes, "a"), Doubled(shapes, "b")
    for layer in (plain, doubled):
        torch.nn.init.eye_(layer.weight)
    x = torch.ones(1, 2)
    y = project(x, plain, doubled)
    assert y[0].tolist() == [[1, 1]] and y[1].tolist() == [[2, 2]]


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 8, 9, 16, 31])
@pytest.mark.parametrize("shape", [(1, 3), (7, 24), (64, 16), (192, 576)])
@torch.no_grad()
def test_a_row_in_float32_does_not_depend_on_the_others_bit_for_bit(
    rows: int, shape: tuple[int, int]
) -> None:
    rng = torch.Generator().manual_seed(0)
    x, weight = torch.randn(MOST_DECODED, shape[1], generator=rng), torch.randn(shape, generator=rng)
    start = MOST_DECODED - rows
    assert torch.equal(linear(x[start:], weight, None), linear(x, weight, None)[start:])


@torch.no_grad()
def test_blocks_of_rows_give_the_product_and_do_not_depend_on_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a CPU whose kernels for different numbers of rows differ."""
    monkeypatch.setattr(file, "_is_independent_of_rows", lambda weight: False)
    x, weight, bias = torch.randn(MOST_DECODED, 24), torch.randn(7, 24), torch.randn(7)
    whole = linear(x, weight, bias)
    torch.testing.assert_close(whole, F.linear(x, weight, bias))
    for rows in range(1, MOST_DECODED):
        assert torch.equal(linear(x[:rows], weight, bias), whole[:rows])
