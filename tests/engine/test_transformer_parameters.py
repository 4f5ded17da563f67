"""The fast engine's parameters are the config's, under the same names; they come and go as they are."""

import weakref
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
import torch

from pellucid.base.errors import TokenError, UsageError
from pellucid.config import ModelConfig, preset
from pellucid.engine.transformer import Transformer
from pellucid.reference.op import Array
from tests.agreement.engines import CHOICES, fast
from tests.reference.models import weights

ROPE = CHOICES["positions/rope"]


class Produced(Mapping[str, Array]):
    """Weights that exist only while somebody holds them, as those of a file that is read lazily."""

    def __init__(self, config: ModelConfig) -> None:
        self.shapes = config.parameters()
        self.alive = self.most = 0

    def __getitem__(self, name: str) -> Array:
        made = np.full(self.shapes[name], 0.5)
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(made, self.gone)
        return made

    def gone(self) -> None:
        self.alive -= 1

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def test_a_tied_model_has_no_unembedding_of_its_own() -> None:
    assert "unembed.weight" not in fast(CHOICES["unembedding/tied"]).state_dict()
    assert "unembed.weight" in fast(CHOICES["unembedding/linear"]).state_dict()


def test_a_model_is_filled_one_parameter_at_a_time() -> None:
    """So opening a file needs the memory of one model and one parameter."""
    produced = Produced(ROPE)
    Transformer.from_weights(ROPE, produced)
    assert produced.most == 1 and len(produced) > 10


def test_a_real_shape_is_planned_without_memory() -> None:
    config = preset("smollm2-135m")
    with torch.device("meta"):
        model = Transformer(config)
    assert {value.device.type for value in (*model.parameters(), *model.buffers())} == {"meta"}
    assert sum(p.numel() for p in model.parameters()) == 134_515_008


def test_read_only_and_strided_arrays_are_read_rightly() -> None:
    given = weights(ROPE)
    for value in given.values():
        value.flags.writeable = False
    transposed = {name: np.asfortranarray(value) for name, value in given.items()}
    back = Transformer.from_weights(ROPE, transposed, dtype=torch.float64).weights()
    assert all(np.array_equal(back[name], given[name]) for name in given)


def test_a_model_does_not_share_memory_with_its_weights() -> None:
    given = weights(ROPE)
    model = Transformer.from_weights(ROPE, given, dtype=torch.float64)
    with torch.no_grad():
        model.embed.weight.zero_()
    assert given["embed.weight"].any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"embed.weight": None}, r"the weight 'embed.weight' \(7, 16\) is missing"),
        ({"embed.weight": np.zeros((7, 15))}, r"'embed.weight' has the shape \(7, 15\), not \(7, 16\)"),
        ({"unembed.weight": np.zeros((7, 16))}, r"no weight 'unembed.weight'"),
    ],
)
def test_weights_that_do_not_fit_are_refused(change: dict[str, Array | None], words: str) -> None:
    given = {name: value for name, value in (weights(ROPE) | change).items() if value is not None}
    with pytest.raises(UsageError, match=words):
        Transformer.from_weights(ROPE, given)


def test_rounding_the_weights_does_not_round_the_angles() -> None:
    model = fast(ROPE)
    before = model.positions.angles
    assert before is not None
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        after = model.to(dtype).positions.angles
        assert after is not None and after.dtype == torch.float64 and torch.equal(before, after)
        assert model.dtype == dtype
    assert "positions.angles" not in model.state_dict()


def test_a_half_precision_model_rotates_by_exact_angles() -> None:
    config = ROPE.from_dict(ROPE.to_dict() | {"context_length": 5000})
    model = fast(config, dtype=torch.bfloat16)
    model.cover(5000)
    rotation = model.positions.rotation(torch.tensor([4999]), torch.bfloat16)
    exact = config.positions.rotation(np.array([4999]), config.d_head)
    assert rotation is not None and exact is not None
    for table, function in (
        (rotation.cos.squeeze(rotation.pair), np.cos),
        (rotation.sin.select(rotation.pair, 1), np.sin),
    ):
        np.testing.assert_allclose(table.double().numpy(), function(exact.angles), rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", ["positions/rope", "positions/sinusoidal"])
def test_the_tables_stay_on_the_model_s_device(name: str) -> None:
    """Rounding a model says nothing about a device, so the tables must stay where they are."""
    with torch.device("meta"):
        model = Transformer(CHOICES[name])
    model.to(torch.bfloat16)
    assert not list(model.buffers())  # a table takes room, and there is none
    model.to_empty(device="cpu")
    assert {value.device.type for value in (*model.parameters(), *model.buffers())} == {"cpu"}


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([1, 2], r"integers \[B T\]"),
        ([[]], r"at least one"),
        ([[0.5]], "integers"),
        ([[0, 7]], r"ids go from 0 to 6; got 7"),
        ([[-1]], r"ids go from 0 to 6; got -1"),
        ([[0] * 9], r"9 tokens do not fit this model's context of 8"),
    ],
)
def test_ids_that_the_model_cannot_read_are_refused(ids: list[object], words: str) -> None:
    with pytest.raises(TokenError, match=words):
        fast(ROPE).check_ids(torch.tensor(ids))
