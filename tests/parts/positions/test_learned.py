"""Learned positions are rows of a table, added; the table cannot be outrun."""

import numpy as np
import pytest

from pellucid.base.errors import TapeError
from pellucid.config import ModelConfig
from pellucid.reference.training import forward
from tests.reference.models import CONFIGS, weights


def config() -> ModelConfig:
    return CONFIGS["gpt2"]


def test_learned_positions_add_their_own_row() -> None:
    tape = forward(config(), weights(config()), [[1, 1, 1]])
    added = tape["positioned"][0] - tape["embed.weight"][1]
    assert added == pytest.approx(tape["positions.weight"][:3], abs=1e-12)


def test_learned_positions_end_with_their_table() -> None:
    with pytest.raises(TapeError, match=r"5 tokens.*4"):
        forward(config(), weights(config()), np.zeros((1, config().context_length + 1), dtype=int))
