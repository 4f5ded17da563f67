"""Softmax attention in training: in half precision on a CPU by plain products instead of a kernel."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pellucid.config import ModelConfig
from pellucid.engine import attentions
from pellucid.engine.attentions import AttentionInputs, softmax
from pellucid.engine.taps import record

BATCH, WIDTH = 2, 16
LENGTH = 2 * softmax.QUERIES + 5
"""Two whole blocks of queries and a shorter one."""
PLAIN: dict[str, Any] = {"n_head": 4, "n_layer": 1, "d_model": 64, "vocab_size": 7, "context_length": 256}
CAUSAL = AttentionInputs(None, None, None, is_causal=True)


@pytest.fixture(autouse=True)
def compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the way of a compiled step; it is run here operation by operation."""
    monkeypatch.setattr(softmax, "is_compiled", lambda: True)


def make(**changes: Any) -> attentions.HeadAttention:
    return attentions.make(ModelConfig.from_dict(PLAIN | changes), "attn")


def draw(heads: tuple[int, int, int] = (4, 4, 4), length: int = LENGTH) -> list[Tensor]:
    """q, k and v, with scores of several units."""
    rng = torch.Generator().manual_seed(0)
    return [
        (1.5 * torch.randn(BATCH, count, length, WIDTH, generator=rng)).bfloat16().requires_grad_()
        for count in heads
    ]


def differentiate(attend: Any, given: list[Tensor], inputs: AttentionInputs) -> list[Tensor]:
    """Returns z and the gradients of q, k and v."""
    z = attend(*given, inputs, None)
    dz = torch.randn(z.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
    return [z.detach(), *torch.autograd.grad(z, given, dz.to(z.dtype))]


def widen(given: list[Tensor]) -> list[Tensor]:
    return [x.detach().double().requires_grad_() for x in given]


def forbid_kernel(*_: Any, **__: Any) -> Tensor:
    raise AssertionError("the kernel was called")


def make_window() -> AttentionInputs:
    """A window of 9, and one row without any key."""
    places = torch.arange(LENGTH)
    distance = places[:, None] - places
    mask = ((distance >= 0) & (distance < 9))[None, None].clone()
    mask[..., 3, :] = False
    return AttentionInputs(None, None, mask)


def make_bias() -> AttentionInputs:
    places = torch.arange(LENGTH)
    distance = places[:, None] - places
    bias = -0.1 * distance.abs().float() * torch.arange(1, 5)[:, None, None]
    return AttentionInputs(None, bias, (distance >= 0)[None, None])


@pytest.mark.parametrize("heads", [(4, 4, 4), (4, 2, 2)], ids=["every head", "grouped"])
@pytest.mark.parametrize(
    "inputs",
    [CAUSAL, AttentionInputs(None, None, None), make_window(), make_bias()],
    ids=["causal", "no mask", "window", "bias"],
)
def test_products_in_bfloat16_equal_the_kernel_in_float64(
    monkeypatch: pytest.MonkeyPatch, inputs: AttentionInputs, heads: tuple[int, int, int]
) -> None:
    """z and every gradient, up to the rounding of scores, pattern and z: three roundings of 2⁻⁹."""
    monkeypatch.setattr(softmax, "NARROW_IS_SLOW", False)
    attend, given = make(n_kv_head=heads[1]), draw(heads)
    wanted = differentiate(attend, widen(given), inputs)
    monkeypatch.setattr(F, "scaled_dot_product_attention", forbid_kernel)
    for got, right in zip(differentiate(attend, given, inputs), wanted, strict=True):
        assert got.dtype == torch.bfloat16
        assert (got.double() - right).norm() < 8e-3 * right.norm()


@pytest.mark.parametrize("length", [1, softmax.QUERIES - 1, softmax.QUERIES, softmax.QUERIES + 1])
def test_no_block_sees_a_later_key(length: int) -> None:
    """Whatever follows a position changes nothing of it, bit for bit, and gets no gradient from it."""
    attend, (q, k, v) = make(), draw(length=length + 3)
    z = attend(q, k, v, CAUSAL, None)
    alone = attend(q[:, :, :length], k[:, :, :length], v[:, :, :length], CAUSAL, None)
    torch.testing.assert_close(z[:, :, :length], alone, rtol=1.6e-2, atol=1e-3)
    dk, dv = torch.autograd.grad(z[:, :, :length].sum(), (k, v))
    assert not dk[:, :, length:].any() and not dv[:, :, length:].any()


def test_a_row_without_keys_is_zero_and_has_no_gradient() -> None:
    z, dq, *_ = differentiate(make(), draw(), make_window())
    assert not z[:, :, 3].any() and not dq[:, :, 3].any() and dq.isfinite().all()


@pytest.mark.parametrize(("name", "value"), [("MOST_SCORES", 0), ("NARROW_IS_SLOW", True)])
def test_long_sequences_and_old_processors_take_the_kernel_in_float32(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    """Also under autocast, which would round its inputs."""
    attend, given, kernel = make(), draw(), F.scaled_dot_product_attention
    types: list[torch.dtype] = []

    def watch(q: Tensor, *more: Any, **settings: Any) -> Tensor:
        types.append(q.dtype)
        return kernel(q, *more, **settings)

    monkeypatch.setattr(F, "scaled_dot_product_attention", watch)
    monkeypatch.setattr(softmax, name, value)
    wanted = differentiate(attend, widen(given), CAUSAL)
    with torch.autocast("cpu", torch.bfloat16):
        for got, right in zip(differentiate(attend, given, CAUSAL), wanted, strict=True):
            assert (got.double() - right).norm() < 4e-3 * right.norm()
    assert types == [torch.float64, torch.float32]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_inference_and_wide_types_take_the_kernel(dtype: torch.dtype) -> None:
    """Bit for bit what the kernel gives."""
    attend, given = make(), [x.detach().to(dtype) for x in draw()]
    q, k, v = given
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=WIDTH**-0.5)
    with torch.no_grad():
        assert torch.equal(attend(*given, CAUSAL, None), wanted)
    if dtype != torch.bfloat16:
        with_grad = [x.requires_grad_() for x in given]
        assert torch.equal(attend(*with_grad, CAUSAL, None), wanted)


def test_dropout_of_the_pattern_is_drawn_as_on_the_explicit_path() -> None:
    """So that the step of a run can be recorded and judged with the masks that it had."""
    attend = make(dropout={"kind": "bernoulli", "pattern": 0.4}).train()
    given, places = draw(), torch.arange(LENGTH)
    mask = (places[:, None] >= places)[None, None]
    torch.manual_seed(3)
    z = attend(*given, CAUSAL, None)
    torch.manual_seed(3)
    with record("attn.pattern.keep") as seen:
        recorded = attend(*given, AttentionInputs(None, None, mask), None)
    assert 0.3 < (seen["attn.pattern.keep"] == 0).double().mean() < 0.5
    assert (z.double() - recorded.double()).norm() < 8e-3 * recorded.double().norm()


@pytest.mark.parametrize("heads", [(4, 4, 4), (4, 2, 2)], ids=["every head", "grouped"])
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17])
def test_a_query_with_a_nan_score_gives_nan_however_few_the_keys_are(
    length: int, heads: tuple[int, int, int]
) -> None:
    attend = make(n_kv_head=heads[1])
    visible = AttentionInputs(None, None, torch.ones(length, length).tril().bool()[None, None])
    for wrong, token in ((0, 0), (0, length - 1), (1, 0), (1, length - 1), (1, slice(None))):
        given = [x.detach().float() for x in draw(heads, length)]
        given[wrong][0, 1, token, 3] = torch.nan
        z, expected = attend(*given, CAUSAL, None), attend._attend_explicit(*given, visible)
        assert torch.equal(z.isnan(), expected.isnan()) and z.isnan().any()
        step = attend(given[0][:, :, -1:], *given[1:], AttentionInputs(None, None, None), None)
        assert torch.equal(step.isnan(), expected[:, :, -1:].isnan())


def test_few_keys_have_the_gradient_of_the_kernel() -> None:
    given = [x.detach().float().requires_grad_() for x in draw(length=5)]
    found = differentiate(make(), given, CAUSAL)

    def kernel(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    assert all(map(torch.equal, found, differentiate(kernel, given, CAUSAL)))


def test_queries_without_any_key_have_an_output_each() -> None:
    """As rows that only have padding have, before anything is cached."""
    q, k, v = (x.detach().float() for x in draw(length=2))
    z = make()(q, k[:, :, :0], v[:, :, :0], AttentionInputs(None, None, None), None)
    assert z.shape == q.shape
