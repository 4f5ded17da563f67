"""The recorder's lines become maps whose figures can be checked by hand."""

import math

import numpy as np
import pytest

from pellucid.training.history.charts import maps


def line(step: int, size: float = 1.0) -> dict[str, object]:
    return {
        "kind": "recorded",
        "step": step,
        "activations": {
            "embedded": {"rms": 0.5, "max": 2.0, "zeros": 0.0},
            "blocks.0.resid_post": {"rms": size, "max": 3.0, "zeros": 0.0},
            "blocks.10.resid_post": {"rms": 4.0, "max": 9.0, "zeros": 0.0},
            "blocks.2.resid_post": {"rms": 2.0, "max": 5.0, "zeros": 0.0},
            "blocks.0.mlp_out": {"rms": 7.0, "max": 7.0, "zeros": 0.0},
        },
        "parameters": {
            "embed.weight": {"gradient": 0.3, "weight": 2.0, "ratio": 0.1},
            "blocks.0.attn.q_proj.weight": {"gradient": 3.0, "weight": 3.0, "ratio": 0.1},
            "blocks.0.mlp.up_proj.weight": {"gradient": 4.0, "weight": 4.0, "ratio": 0.1},
            "final_norm.weight": {"gradient": 0.1, "weight": 0.0, "ratio": 0.0},
        },
    }


def test_layers_go_from_below_to_above_and_lengths_add_up_as_one_vector() -> None:
    rms, largest, gradient, update = maps([line(1), line(20, 1.5)])
    assert rms.layers == ["embedding", "block 0", "block 2", "block 10"]
    assert rms.steps.tolist() == [1, 20]
    assert rms.values.tolist() == [[0.5, 0.5], [1.0, 1.5], [2.0, 2.0], [4.0, 4.0]]
    assert largest.values[:, 0].tolist() == [2.0, 3.0, 5.0, 9.0]
    assert gradient.layers == ["embedding", "block 0", "output"]
    assert gradient.values[:, 0] == pytest.approx([0.3, 5.0, 0.1])  # 3² + 4² = 5²
    assert update.layers == ["embedding", "block 0"]  # 0 of 0 has no ratio
    assert update.values[:, 0] == pytest.approx([0.1, 0.1])


def test_a_step_that_was_made_again_counts_as_it_was_made_last() -> None:
    rms = maps([line(1), line(2, 3.0), line(2, 5.0)])[0]
    assert rms.steps.tolist() == [1, 2] and rms.values[1].tolist() == [1.0, 5.0]


def test_what_is_missing_or_no_number_is_left_open() -> None:
    broken = line(3)
    broken["activations"] = {"embedded": {"rms": None}}
    rms = maps([line(1), broken, {"kind": "recorded", "step": 4, "activations": []}])[0]
    assert rms.steps.tolist() == [1, 3]
    assert np.isnan(rms.values[:, 1]).all() and (np.nanmin(rms.values), np.nanmax(rms.values)) == (0.5, 4.0)
    assert maps([]) == [] and maps([{"kind": "step", "step": 1}]) == []


def test_a_long_record_is_thinned_to_its_ends_and_some_between() -> None:
    rms = maps([line(step) for step in range(1, 1001)])[0].thin(60)
    assert len(rms.steps) == 60 == rms.values.shape[1]
    assert (rms.steps[0], rms.steps[-1]) == (1, 1000)
    assert not math.isnan(rms.values.sum())
