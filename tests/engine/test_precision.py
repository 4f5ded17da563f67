"""Gradients in half precision are summed in float32; weights are rounded to it once."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from pellucid.engine.linear import Embedding
from pellucid.engine.norms import LayerNorm, RmsNorm
from pellucid.engine.precision import to_roundable
from pellucid.parts.norms import LayerNormConfig, RmsNormConfig

POSITIONS, WIDTH, VOCABULARY = 4096, 16, 8


def _norm(kind: type[LayerNorm] | type[RmsNorm]) -> tuple[torch.nn.Module, Tensor]:
    settings = LayerNormConfig() if kind is LayerNorm else RmsNormConfig()
    norm = kind({"norm.weight": (WIDTH,)}, "norm", settings)
    torch.nn.init.ones_(norm.weight)
    return norm, torch.randn(POSITIONS, WIDTH) + 1.0


def _embedding() -> tuple[torch.nn.Module, Tensor]:
    layer = Embedding({"embed.weight": (VOCABULARY, WIDTH)}, "embed")
    torch.nn.init.normal_(layer.weight)
    return layer, torch.randint(VOCABULARY, (POSITIONS,))


@pytest.mark.parametrize(
    "make",
    [lambda: _norm(LayerNorm), lambda: _norm(RmsNorm), _embedding],
    ids=["LayerNorm", "RMSNorm", "embed"],
)
def test_the_gradient_of_a_weight_in_bfloat16_is_a_sum_in_float32(
    make: Callable[[], tuple[torch.nn.Module, Tensor]],
) -> None:
    """Torch's kernels on a CPU sum over the positions in the type of the weight: off by several percent."""
    torch.manual_seed(0)
    layer, x = make()
    dy = (torch.randn(POSITIONS, WIDTH) + 0.3).bfloat16()
    grads = []
    for dtype in (torch.bfloat16, torch.float32):
        layer.to(dtype).zero_grad()
        given = x.bfloat16().to(dtype) if x.is_floating_point() else x
        layer(given).backward(dy.to(dtype))
        weight = layer.get_parameter("weight")
        assert weight.grad is not None
        grads.append(weight.grad.double().clone())
    narrow, right = grads
    assert (narrow - right).norm() < 4e-3 * right.norm()


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float16, 10), (torch.bfloat16, 7)], ids=str)
def test_a_weight_of_float64_is_rounded_once(dtype: torch.dtype, bits: int) -> None:
    """A little above halfway: float32 forgets the little, and halfway would go down to the even one."""
    just_above = 1 + 2.0 ** -(bits + 1) + 2.0**-40
    weight = np.array([just_above, -just_above, 1e300, -np.inf, np.nan, -0.0])
    found = to_roundable(weight, dtype).to(dtype)
    above = 1 + 2.0**-bits
    wanted = torch.tensor([above, -above, torch.inf, -torch.inf, torch.nan, -0.0], dtype=dtype)
    assert torch.equal(found.view(torch.int16)[[0, 1, 2, 3, 5]], wanted.view(torch.int16)[[0, 1, 2, 3, 5]])
    assert found[4].isnan()


def test_float16_from_float64_is_what_numpy_makes_of_it() -> None:
    values = np.random.default_rng(0).normal(size=200_000) * np.geomspace(1e-8, 1, 200_000)
    found = to_roundable(values, torch.float16).half().numpy()
    assert np.array_equal(found, values.astype(np.float16))
    assert not np.array_equal(torch.from_numpy(values).half().numpy(), found)
