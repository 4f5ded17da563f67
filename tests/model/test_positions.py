"""Tables of positions: cosines and sines are those of the angles, and a bias is that of its kind."""

import tracemalloc

import numpy as np
import pytest
import torch

from pellucid.config import ModelConfig
from pellucid.model.positions import PositionBias, Positions, rotate
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


def alibi(context_length: int, n_head: int) -> ModelConfig:
    return ModelConfig(
        vocab_size=5,
        context_length=context_length,
        n_layer=1,
        n_head=n_head,
        d_model=n_head,
        positions="alibi",
    )


@pytest.mark.parametrize("n_head", [3, 8, 20])
@pytest.mark.parametrize("places", PLACES, ids=["one row", "rows apart"])
def test_alibi_without_a_table_equals_the_bias_of_its_kind_bit_for_bit(
    n_head: int, places: torch.Tensor
) -> None:
    config = alibi(9, n_head)
    bias = PositionBias(config)(places, places, torch.float64)
    distances = (places[..., :, None] - places[..., None, :]).numpy()
    wanted = config.positions.bias(distances, n_head)
    assert bias is not None and wanted is not None
    assert np.array_equal(bias.numpy(), wanted if places.ndim == 1 else wanted.swapaxes(0, 1))


def test_alibi_takes_no_memory_for_a_context_of_a_million() -> None:
    """A table of every distance in every head would take 1 GB."""
    tracemalloc.start()
    module = PositionBias(alibi(1_000_000, 64))
    bias = module(torch.tensor([999_999]), torch.tensor([0, 999_999]), torch.float64)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert bias is not None and bias[0].tolist() == [[-999_999 * 2.0 ** (-8 / 64), 0.0]]
    assert peak < 1e6 and sum(table.nbytes for table in module.buffers()) < 1e6
