"""What a compiled step looks up is what the angles say."""

import pytest
import torch

from pellucid.config import ModelConfig
from pellucid.model.positions import Positions, rotate
from pellucid.model.taps import record

PLACES = [torch.arange(9), torch.tensor([[0, 1, 2], [5, 6, 8]])]


def positions(layout: str) -> Positions:
    rope = {"kind": "rope", "layout": layout}
    return Positions(ModelConfig.from_dict({
        "vocab_size": 5, "context_length": 9, "n_layer": 1, "n_head": 1, "d_model": 6, "positions": rope,
    }))  # fmt: skip


@pytest.mark.parametrize("layout", ["halves", "pairs"])
@pytest.mark.parametrize("places", PLACES, ids=["one row", "rows apart"])
def test_the_table_in_float32_holds_the_angles_rounded_once(layout: str, places: torch.Tensor) -> None:
    made = positions(layout)
    looked_up, exact = made.rotation(places, torch.float32), made.rotation(places, torch.float64)
    with record("angles") as seen:
        computed = made.rotation(places, torch.float32)
    assert "angles" in seen
    assert looked_up and exact and computed
    for one, other, right in zip(looked_up[:2], computed[:2], exact[:2], strict=True):
        assert torch.equal(one, right.float()) and torch.equal(one, other)


@pytest.mark.parametrize("layout", ["halves", "pairs"])
def test_a_pair_is_rotated_by_its_angle(layout: str) -> None:
    """(x, y) → (x cos θ − y sin θ, x sin θ + y cos θ), as a product of complex numbers."""
    made, x = positions(layout), torch.randn(2, 1, 9, 6, dtype=torch.float64)
    rotation = made.rotation(torch.arange(9), torch.float64)
    assert rotation and made.angles is not None

    def paired(values: torch.Tensor) -> torch.Tensor:
        both = values.chunk(2, -1) if layout == "halves" else (values[..., ::2], values[..., 1::2])
        return torch.complex(*both)

    right = paired(x) * torch.polar(torch.ones_like(made.angles), made.angles)
    assert torch.allclose(paired(rotate(x, rotation)), right, rtol=0, atol=1e-14)
