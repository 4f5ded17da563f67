"""The chunked loss is the plain loss of the plain logits, with its gradients, and never holds them all."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pellucid.base.errors import UsageError
from pellucid.base.names import IGNORE_INDEX
from pellucid.engine import caps
from pellucid.engine.chunked_loss import chunked_loss
from pellucid.engine.loss import loss
from pellucid.parts.caps import TanhCap

SIZES = (2, 7, 5, 11)
SETTINGS = {
    "plain": {},
    "smoothing": {"smoothing": 0.1},
    "z": {"z": 0.01},
    "cap": {"cap": caps.make(TanhCap(2.0))},
    "all": {"smoothing": 0.1, "z": 0.01, "cap": caps.make(TanhCap(2.0))},
}
every_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


def leaves(dtype: torch.dtype = torch.float64, bias: bool = True) -> tuple[Tensor, ...]:
    rng, (batch, count, width, vocabulary) = torch.Generator().manual_seed(0), SIZES
    shapes = [(batch, count, width), (vocabulary, width), *[(vocabulary,)] * bias]
    return tuple(torch.randn(shape, generator=rng).to(dtype).requires_grad_() for shape in shapes)


def targets() -> Tensor:
    batch, count, _, vocabulary = SIZES
    drawn = torch.randint(vocabulary, (batch, count), generator=torch.Generator().manual_seed(1))
    drawn[0, 3] = drawn[1, 6] = IGNORE_INDEX
    return drawn


def plain(x: Tensor, weight: Tensor, bias: Tensor | None, wanted: Tensor, **settings: Any) -> Tensor:
    logits, cap = F.linear(x, weight, bias), settings.pop("cap", None)
    return loss(logits if cap is None else cap(logits), wanted, **settings)


def both(given: tuple[Tensor, ...], wanted: Tensor, act: Callable[..., Tensor]) -> list[Tensor]:
    """The loss, and the gradients of a multiple of it."""
    x, weight, *bias = given
    value = act(x, weight, bias[0] if bias else None, wanted)
    return [value.detach(), *torch.autograd.grad(1.7 * value, given)]


def near(got: list[Tensor], expected: list[Tensor], tolerance: float = 1e-12) -> None:
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@every_setting
@pytest.mark.parametrize("chunk", [1, 4, 14, 100])
@pytest.mark.parametrize("bias", [True, False])
def test_loss_and_gradients_are_the_plain_ones(settings: dict[str, Any], chunk: int, bias: bool) -> None:
    given, wanted = leaves(bias=bias), targets()
    got = both(given, wanted, lambda *a: chunked_loss(*a, chunk=chunk, **settings))
    near(got, both(given, wanted, lambda *a: plain(*a, **settings)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients_are_those_of_torch(smoothing: float) -> None:
    given, wanted = leaves(), targets()

    def theirs(x: Tensor, weight: Tensor, bias: Tensor | None, wanted: Tensor) -> Tensor:
        logits = F.linear(x, weight, bias).flatten(0, 1)
        return F.cross_entropy(logits, wanted.flatten(), label_smoothing=smoothing)

    got = both(given, wanted, lambda *a: chunked_loss(*a, chunk=4, smoothing=smoothing))
    near(got, both(given, wanted, theirs))


@every_setting
def test_the_derivative_is_that_of_small_differences(settings: dict[str, Any]) -> None:
    """Along one direction through all inputs at once."""
    given, wanted = leaves(), targets()
    rng = torch.Generator().manual_seed(2)
    away = [torch.randn(t.shape, generator=rng, dtype=t.dtype) for t in given]
    _, *grads = both(given, wanted, lambda *a: chunked_loss(*a, chunk=4, **settings))
    claimed = sum(float((grad * d).sum()) for grad, d in zip(grads, away, strict=True)) / 1.7
    with torch.no_grad():
        up, down = (
            chunked_loss(*(t + h * d for t, d in zip(given, away, strict=True)), wanted, chunk=4, **settings)
            for h in (1e-5, -1e-5)
        )
    assert float(up - down) / 2e-5 == pytest.approx(claimed, rel=1e-7)


@every_setting
def test_where_no_target_counts_loss_and_gradients_are_zero(settings: dict[str, Any]) -> None:
    nothing = torch.full(SIZES[:2], IGNORE_INDEX)
    for value in both(leaves(), nothing, lambda *a: chunked_loss(*a, chunk=4, **settings)):
        assert not value.any()


@pytest.mark.parametrize("name", ["plain", "all"])
def test_the_compiler_sees_one_graph(name: str) -> None:
    settings: dict[str, Any] = SETTINGS[name]
    torch._dynamo.reset()
    given, wanted = leaves(), targets()
    compiled = torch.compile(
        lambda *a: chunked_loss(*a, chunk=10, **settings), backend="aot_eager", fullgraph=True
    )
    near(both(given, wanted, compiled), both(given, wanted, lambda *a: plain(*a, **settings)))
    torch._dynamo.reset()


@every_setting
def test_bfloat16_is_summed_in_float32(settings: dict[str, Any]) -> None:
    """As near to the exact gradient of the same bfloat16 numbers as the plain loss is, or nearer."""
    given, wanted = leaves(torch.bfloat16), targets()
    exact = both(
        tuple(t.detach().double().requires_grad_() for t in given), wanted, lambda *a: plain(*a, **settings)
    )
    got = both(given, wanted, lambda *a: chunked_loss(*a, chunk=4, **settings))
    assert got[0].dtype == torch.float32
    assert all(value.dtype == torch.bfloat16 for value in got[1:])
    for value, wide in zip(got, exact, strict=True):
        assert float((value.double() - wide).abs().max()) <= 0.02 * float(wide.abs().max())


def test_a_thousand_chunks_in_bfloat16_lose_nothing_of_the_weights_gradient() -> None:
    """Equal rows: a sum kept in bfloat16 would stop growing at 256 of them."""
    x, weight = torch.ones(1, 1024, 1, dtype=torch.bfloat16), torch.zeros(2, 1, dtype=torch.bfloat16)
    weight.requires_grad_()
    chunked_loss(x, weight, None, torch.zeros(1, 1024, dtype=torch.long), chunk=1).backward()
    assert weight.grad is not None and weight.grad.flatten().tolist() == [-0.5, 0.5]


def test_autocast_makes_the_products_and_leaves_the_gradients_wide() -> None:
    given, wanted = leaves(torch.float32), targets()
    with torch.autocast("cpu", torch.bfloat16):
        got = both(given, wanted, lambda *a: chunked_loss(*a, chunk=4))
        narrow = both(given, wanted, plain)
    assert all(value.dtype == torch.float32 for value in got)
    near(got, narrow, 0.02)
    assert not torch.equal(got[0], both(given, wanted, plain)[0])


def test_a_frozen_weight_costs_no_gradient_and_x_still_has_its_own() -> None:
    x, weight = leaves(bias=False)
    frozen, wanted = weight.detach(), targets()
    seen = Largest()
    with seen:
        (got,) = torch.autograd.grad(chunked_loss(x, frozen, None, wanted, chunk=4), x)
    near([got], [torch.autograd.grad(plain(x, frozen, None, wanted), x)[0]])
    assert weight.shape not in seen.made


class Largest(TorchDispatchMode):
    """The shapes of the tensors that are made, and the size of the largest."""

    def __init__(self) -> None:
        super().__init__()
        self.made, self.size = set[torch.Size](), 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for made in result if isinstance(result, tuple | list) else (result,):
            if isinstance(made, Tensor) and not func.is_view and made.shape:
                self.made.add(made.shape)
                self.size = max(self.size, made.numel())
        return result


def test_the_logits_of_a_large_vocabulary_never_exist_at_once() -> None:
    batch, count, width, vocabulary, chunk = 4, 128, 8, 50_000, 16
    x = torch.randn(batch, count, width, requires_grad=True)
    weight = torch.randn(vocabulary, width, requires_grad=True)
    wanted = torch.randint(vocabulary, (batch, count))
    with Largest() as whole:
        expected = torch.autograd.grad(plain(x, weight, None, wanted), (x, weight))
    chunked_loss(x, weight, None, wanted, chunk=chunk)  # the first product of a shape tries its kernels
    with Largest() as parts:
        got = torch.autograd.grad(chunked_loss(x, weight, None, wanted, chunk=chunk), (x, weight))
    torch.testing.assert_close(got, expected)
    assert whole.size == batch * count * vocabulary
    assert parts.size == chunk * vocabulary


def test_without_gradients_none_is_computed() -> None:
    given, wanted = leaves(bias=False), targets()
    with torch.no_grad(), Largest() as seen:
        value = chunked_loss(*given, None, wanted, chunk=4)
    assert not value.requires_grad and float(value) == pytest.approx(
        float(plain(*given, None, wanted).detach())
    )
    assert given[1].shape not in seen.made and (4, SIZES[2]) not in seen.made


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"chunk": 0}, r"chunk.*0"),
        ({"chunk": 4, "smoothing": 2.0}, r"smoothing.*2"),
        ({"chunk": 4, "z": math.inf}, r"z .*inf"),
    ],
)
def test_settings_that_make_no_loss_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        chunked_loss(*leaves(), targets(), **settings)
