"""Tables of positions: cosines and sines are those of the angles, and a bias is that of its kind."""

import dataclasses
import tracemalloc

import numpy as np
import pytest
import torch

from pellucid.base.errors import ResourceError
from pellucid.config import ModelConfig
from pellucid.engine import positions as positions_module
from pellucid.engine.cache import Cache
from pellucid.engine.positions import PositionBias, Positions, rotate
from pellucid.engine.taps import record
from pellucid.engine.transformer import Transformer
from pellucid.reference.op import Array
from pellucid.reference.training import forward
from tests.agreement.engines import CACHED, CHOICES, fast
from tests.reference.models import weights

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


# ---- tables grow with what is used

LONG, LAST = 70, 2**31 - 1
KINDS = [name for name in CHOICES if name.startswith("positions/")]
GROWN = [name for name in (*KINDS, "mask/sinks", "mask/window") if name in CACHED]
WITH_TABLES = [name for name in KINDS if not name.endswith(("learned", "none"))]


@pytest.fixture
def few_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """New tables have 4 positions, so that they grow in a short text."""
    monkeypatch.setattr(positions_module, "FIRST_POSITIONS", 4)


def tables_of(model: Transformer) -> dict[str, torch.Tensor]:
    return dict(model.named_buffers())


@pytest.mark.parametrize("name", WITH_TABLES)
def test_an_entry_does_not_depend_on_the_length_of_its_table(name: str) -> None:
    """As numbers at positions far apart, which no other table has as neighbors."""
    config = dataclasses.replace(CHOICES[name], context_length=5000)
    grown, whole = fast(config), fast(config)
    whole.cover(5000)
    for count in (257, 700, 1500, 5000):
        grown.cover(count)
        reaches = grown.positions.covered if grown.positions.has_tables else grown.position_bias.covered
        assert count <= reaches < 2 * count + 1
        for key, table in tables_of(grown).items():
            [of_whole] = [other for own, other in tables_of(whole).items() if own == key]
            if key.startswith("position_bias") and not key.endswith("factors"):  # distances from −(P − 1)
                middle = of_whole.shape[-1] // 2
                of_whole = of_whole[..., middle - reaches + 1 : middle + reaches]
            elif key.endswith("cos_sin"):
                of_whole = of_whole[:, :reaches]
            elif not key.endswith("factors"):
                of_whole = of_whole[:reaches]
            assert torch.equal(table, of_whole), key
    places = np.array([1, 255, 256, 4999])
    rotation = config.positions.rotation(places, config.d_head)
    rows = config.positions.rows(places, config.d_model)
    if rotation is not None and grown.positions.angles is not None:
        assert np.array_equal(grown.positions.angles[places].numpy(), rotation.angles)
    if rows is not None and grown.positions.rows is not None:
        assert np.array_equal(grown.positions.rows[places].numpy(), rows)


@torch.no_grad()
def decode(model: Transformer, dtype: torch.dtype) -> torch.Tensor:
    """Returns the logits of one text that is read in chunks and single tokens, twice in one call."""
    cache, found = Cache(model.config, 2, LONG, dtype=dtype), []
    ids = torch.arange(2 * 36).view(2, 36) % model.config.vocab_size
    for start, end in ((0, 3), (3, 11), (11, 12), (12, 13), (13, 32), (32, 33), (33, 36)):
        found.append(model.forward_cached(ids[:, start:end], cache))
    rows = [(cache.row(0), [1, 2, 3]), (cache.row(1), [4])]
    return torch.cat([*torch.cat(found, 1), model.forward_packed(rows, range(4))])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", GROWN)
def test_tables_that_grow_while_a_text_is_written_give_the_bits_of_whole_ones(
    few_positions: None, name: str, dtype: torch.dtype
) -> None:
    config = dataclasses.replace(CHOICES[name], context_length=LONG)
    grown, whole = fast(config, dtype=dtype), fast(config, dtype=dtype)
    whole.cover(LONG)
    assert torch.equal(decode(grown, dtype), decode(whole, dtype))
    assert grown.positions.covered < whole.positions.covered or not whole.positions.has_tables


@pytest.mark.parametrize("name", KINDS)
def test_a_pass_covers_its_rows_segments_and_position_ids(few_positions: None, name: str) -> None:
    config = dataclasses.replace(CHOICES[name], context_length=LONG)
    grown, whole = fast(config), fast(config)
    whole.cover(LONG)
    ids = torch.arange(2 * 9).view(2, 9) % config.vocab_size
    segments, places = torch.tensor([[0] * 9, [0] * 2 + [1] * 7]), torch.arange(9) + LONG - 9
    for more in ({}, {"segments": segments}, {"positions": places}):
        assert torch.equal(grown(ids, **more), whole(ids, **more))


@pytest.mark.parametrize("name", WITH_TABLES)
def test_the_tables_of_a_long_context_are_as_large_as_what_is_read(few_positions: None, name: str) -> None:
    """With entries for the whole of it they would take tens of gigabytes."""
    config = dataclasses.replace(CHOICES[name], context_length=LAST)
    model = fast(config)

    def measure() -> int:
        return sum(table.nbytes for table in model.buffers())

    sizes = [measure()]
    for count in (4, 9, 40):
        model(torch.zeros(1, count, dtype=torch.int64))
        sizes.append(measure())
    factors = 8 * config.n_head  # those of ALiBi are all that it has
    assert sizes[0] == sizes[1] and sizes[-1] <= max(factors, 20 * sizes[0])
    assert sizes[-1] == sizes[0] == factors or sizes[1] < sizes[2] < sizes[3]


def test_the_specification_computes_the_positions_of_its_tokens_alone() -> None:
    config = dataclasses.replace(CHOICES["positions/rope"], context_length=LAST)
    given: dict[str, Array] = weights(config)
    tracemalloc.start()
    forward(config, given, np.zeros((1, 5), dtype=int))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6


def test_a_table_that_does_not_fit_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fast(dataclasses.replace(CHOICES["positions/rope"], context_length=LAST))
    monkeypatch.setattr("pellucid.engine.device_memory.get_free_memory", lambda device: 10**6)
    with pytest.raises(ResourceError, match="positions"):
        model.cover(10**9)
    assert model.positions.covered < 1000 and model(torch.zeros(1, 9, dtype=torch.int64)).isfinite().all()


def test_tables_that_grew_without_gradients_let_them_pass(few_positions: None) -> None:
    model, ids = fast(CHOICES["positions/rope"]), torch.zeros(1, 6, dtype=torch.int64)
    with torch.inference_mode():
        model(ids)
    model(ids).sum().backward()
    assert model.embed.weight.grad is not None
