"""ALiBi against the factors of the paper and the table of `transformers`."""

import contextlib

import numpy as np
import pytest

from pellucid.parts.positions.alibi import Alibi
from pellucid.reference.training import forward
from tests.golden.make_huggingface import float64_throughout
from tests.parts.test_positions import model, rounding
from tests.reference.models import weights


def theirs(n_head: int, length: int, exact: bool = True) -> np.ndarray:
    """The table [H S] that BLOOM adds in `transformers`, which counts from the first position."""
    import torch
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    with float64_throughout() if exact else contextlib.nullcontext():
        table = build_alibi_tensor(torch.ones(1, length), n_head, torch.float32)
    assert str(table.dtype) == ("torch.float64" if exact else "torch.float32")
    return table[:, 0].numpy()


def test_alibi_factors_of_eight_heads_are_those_of_the_paper() -> None:
    assert Alibi().bias_factors(8).tolist() == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]


def test_alibi_factors_of_sixteen_heads_lie_between_those_of_eight() -> None:
    factors = Alibi().bias_factors(16)
    assert factors[[0, 15]] == pytest.approx([2**-0.5, 2**-8], rel=1e-15)
    assert factors[1::2] == pytest.approx(Alibi().bias_factors(8), rel=1e-15)


def test_alibi_bias_by_hand() -> None:
    """Two heads fall by 1/16 and by 1/256 per position, to both sides."""
    distances = np.arange(3)[:, None] - np.arange(3)
    rows = np.array([[0, -1, -2], [-1, 0, -1], [-2, -1, 0]])
    assert np.array_equal(Alibi().bias(distances, 2), np.array([rows / 16, rows / 256]))


@pytest.mark.parametrize("n_head", [1, 2, 3, 6, 8, 12, 16, 20, 25, 112, 127])
def test_alibi_factors_are_those_of_transformers(n_head: int) -> None:
    assert Alibi().bias_factors(n_head) == pytest.approx(theirs(n_head, 2)[:, 1], rel=1e-12)


@pytest.mark.parametrize("n_head", [4, 12])
def test_alibi_differs_from_transformers_by_a_constant_per_row(n_head: int) -> None:
    """slope · j there, −slope · (i − j) here: what softmax makes of a row is the same."""
    positions = np.arange(7)
    ours = Alibi().bias(positions[:, None] - positions, n_head)
    constant = Alibi().bias_factors(n_head)[:, None, None] * positions[:, None]
    causal = np.tril(np.ones((7, 7), dtype=bool))
    wanted = np.broadcast_to(theirs(n_head, 7)[:, None, :], ours.shape)
    assert (ours + constant)[:, causal] == pytest.approx(wanted[:, causal], abs=1e-12)


def test_transformers_rounds_factors_to_float32_where_they_are_not_powers_of_two() -> None:
    assert rounding(Alibi().bias_factors(8), theirs(8, 2, exact=False)[:, 1]) == 0
    for n_head in (16, 20, 127):
        assert 1e-9 < rounding(Alibi().bias_factors(n_head), theirs(n_head, 2, exact=False)[:, 1]) < 1e-5


def test_alibi_is_added_to_the_scores_of_the_model() -> None:
    config = model(kind="alibi")
    tape = forward(config, weights(config), [[1, 3, 2]])
    added = tape["blocks.0.attn.biased"] - tape["blocks.0.attn.scores"]
    assert added[0, :, 2] == pytest.approx(np.outer([1 / 16, 1 / 256], [-2, -1, 0]), abs=1e-14)
