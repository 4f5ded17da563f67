"""Rounded weights are those that a GGUF file of the type gives back."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pellucid.base.errors import UsageError
from pellucid.config import preset
from pellucid.formats import gguf
from pellucid.formats.gguf.quants import KINDS, check_kind, round_weights
from pellucid.model import Model


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0"])
def test_rounded_weights_are_those_of_a_file(tmp_path: Path, kind: str) -> None:
    sizes = {"n_layer": 1, "d_model": 64, "n_head": 2, "n_kv_head": 2, "d_head": 32, "d_ff": 96}
    config = replace(preset("gpt2"), **sizes, vocab_size=40, context_length=16)
    model = Model.from_config(config, seed=1)
    gguf.write(tmp_path / "a.gguf", model.pretrained, kind)
    stored = gguf.read(tmp_path / "a.gguf").weights
    found = round_weights(config.parameters(), model.weights, kind)
    for name in config.parameters():
        np.testing.assert_array_equal(found[name], stored[name])


def test_four_bits_leave_sixteen_numbers_in_each_block() -> None:
    weight = np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)
    found = round_weights({"w": (3, 64)}, {"w": weight}, "Q4_0")["w"]
    assert all(len(np.unique(block)) <= 16 for block in found.reshape(-1, 32))
    assert 0 < np.abs(found - weight).max() < np.abs(weight).max() / 8


def test_a_row_that_fills_no_block_is_f16_and_a_vector_stays() -> None:
    arrays = {"w": np.full((2, 5), 0.1, np.float32), "b": np.full(5, 0.1, np.float32)}
    found = round_weights({name: array.shape for name, array in arrays.items()}, arrays, "Q8_0")
    assert (found["w"] == np.float32(np.float16(0.1))).all() and (found["b"] == arrays["b"]).all()


def test_a_type_is_named_in_either_case_and_an_unknown_one_is_refused() -> None:
    assert check_kind("q4_0") == "Q4_0" and set(KINDS) == {"F32", "F16", "Q4_0", "Q8_0"}
    with pytest.raises(UsageError, match="Q4_0"):
        check_kind("q4_k")
