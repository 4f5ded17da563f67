"""Arrays that round every operation give what PyTorch gives in 16 bits."""

from typing import Any

import numpy as np
import pytest
import torch

from pellucid.base.dtypes import BY_NAME
from pellucid.reference.ops import find_op
from pellucid.reference.tape import Step
from pellucid.verification.span import RoundedArray, compute_rounded

TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def draw(type: str, *shape: int) -> tuple[torch.Tensor, np.ndarray]:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(TYPES[type])
    return made, made.double().numpy()


@pytest.mark.parametrize("type", TYPES)
def test_a_softmax_in_16_bits_is_that_of_torch_bit_for_bit(type: str) -> None:
    x, wide = draw(type, 20, 30)
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    wanted = (powers / powers.sum(-1, keepdim=True)).double().numpy()
    step = Step("p", find_op("softmax"), ("x",), {}, "fwd")
    assert (compute_rounded(step, [wide], BY_NAME[type]) == wanted).mean() > 0.99


@pytest.mark.parametrize("type", TYPES)
def test_a_product_is_rounded_once_or_while_it_is_added_up(type: str) -> None:
    (a, wide_a), (b, wide_b) = draw(type, 10, 160), draw(type, 12, 160)
    step = Step("y", find_op("einsum"), ("a", "b"), {"spec": "tc,oc->to"}, "fwd")
    once = compute_rounded(step, [wide_a, wide_b], BY_NAME[type])
    assert (once == (a.float() @ b.float().T).to(TYPES[type]).double().numpy()).mean() > 0.95
    total = torch.zeros(10, 12, dtype=TYPES[type])
    for start in range(0, 160, 16):
        part = slice(start, start + 16)
        total = (total.float() + a[:, part].float() @ b[:, part].float().T).to(TYPES[type])
    added = compute_rounded(step, [wide_a, wide_b], BY_NAME[type], accumulates=True)
    assert (added == total.double().numpy()).mean() > 0.95
    assert (added == once).mean() < 0.9


def test_reductions_and_rearrangements_keep_the_type() -> None:
    x: Any = RoundedArray(np.arange(48.0).reshape(3, 16), BY_NAME["bfloat16"], accumulates=True)
    assert x.mean(axis=-1).value.tolist() == [7.5, 23.5, 39.5]
    assert x.max(axis=-1).value.tolist() == [15, 31, 47] and x[1].shape == (16,)
    joined: Any = np.concatenate([x, x])
    assert joined.accumulates and np.where(x > 5, x, 0.0).type.name == "bfloat16"
    assert np.cumsum(x, axis=-1).value[0, -1] == 120
