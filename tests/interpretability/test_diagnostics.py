"""Each diagnostic finds what was built to be collapsed."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from pellucid.engine.transformer import Transformer
from pellucid.interpretability.diagnostics import (
    compute_singular_values,
    diagnose,
    diagnose_stream,
    diagnose_units,
    measure_spectrum,
    view_diagnostics,
)
from pellucid.interpretability.runner import EngineRunner, PromptedModel, SpecificationRunner
from tests.agreement.engines import CHOICES, DIFFERENT, fast
from tests.interpretability.same_data import check_same
from tests.reference.models import weights

RANDOM = np.random.default_rng(0)
IDS = (1, 3, 1, 5, 0)


def test_singular_values_are_those_of_a_decomposition() -> None:
    for shape in ((4, 9), (9, 4)):
        matrix = RANDOM.normal(size=shape)
        expected = np.linalg.svd(matrix, compute_uv=False)
        assert compute_singular_values(matrix) == pytest.approx(expected, rel=1e-10)


def test_the_ranks_of_known_matrices() -> None:
    assert measure_spectrum(3 * np.eye(4)).stable_rank == pytest.approx(4.0)
    assert measure_spectrum(3 * np.eye(4)).effective_rank == pytest.approx(4.0)
    one = measure_spectrum(np.outer([1.0, 2.0, 2.0], [3.0, 4.0]))
    assert one.largest[0] == pytest.approx(15.0)
    assert (one.stable_rank, one.effective_rank) == pytest.approx((1.0, 1.0))
    two = measure_spectrum(np.diag([3.0, 1.0]))
    assert two.stable_rank == pytest.approx(10 / 9)
    assert two.effective_rank == pytest.approx(math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25)))
    assert measure_spectrum(np.zeros((2, 3))).stable_rank == 0.0


def test_identical_positions_have_cosine_and_rank_one() -> None:
    found = diagnose_stream("x", np.tile([3.0, 4.0], (5, 1)))
    assert found.cosine == pytest.approx(1.0)
    assert found.spectrum.effective_rank == pytest.approx(1.0)
    assert found.norm == pytest.approx(5.0)
    assert found.norms == pytest.approx((5.0,) * 5)


def test_opposite_positions_have_rank_one_but_not_cosine_one() -> None:
    found = diagnose_stream("x", np.array([[1.0, 2.0], [-1.0, -2.0]]))
    assert found.cosine == pytest.approx(-1.0)
    assert found.spectrum.stable_rank == pytest.approx(1.0)


def test_a_massive_channel_is_compared_with_the_median() -> None:
    assert diagnose_stream("x", np.array([[1.0, -2.0, 3.0, 2.0, -200.0]])).massive == 100.0
    assert diagnose_stream("x", np.zeros((1, 3))).massive is None
    assert diagnose_stream("x", np.ones((1, 3))).cosine is None


def test_a_unit_is_dead_where_it_is_quiet_on_every_token() -> None:
    """The largest activations are 0, 1, 0.001, 2 and 1000, of which the median is 1."""
    activations = np.array([[0.0, 1.0, 0.001, 0.0, 0.0], [0.0, 0.0, -0.001, 2.0, 1000.0]])
    assert diagnose_units(3, activations, 0.0).dead == (0,)
    assert diagnose_units(3, activations, 0.01).dead == (0, 2)
    assert diagnose_units(3, activations, 0.0).quiet_share == 0.5
    assert diagnose_units(3, activations, 0.01).median_largest == 1.0


def test_a_relu_with_a_bias_of_minus_ten_is_dead() -> None:
    config = replace(CHOICES["mlp/relu"], biases=("mlp",))
    values = weights(config)
    values["blocks.1.mlp.up_proj.bias"] = np.full(config.d_ff, -10.0)
    module = Transformer.from_weights(config, values, dtype=torch.float64)
    for runner in (SpecificationRunner(config, values), EngineRunner(module)):
        found = diagnose(PromptedModel("m", runner, IDS))
        assert [len(units.dead) for units in found.units][1] == config.d_ff
        assert len(found.units[0].dead) < config.d_ff
        assert found.threshold == 0.0


def test_equal_tokens_without_positions_collapse() -> None:
    config = CHOICES["positions/none"]
    found = diagnose(PromptedModel("m", SpecificationRunner(config, weights(config)), (3, 3, 3, 3)))
    assert [stream.cosine for stream in found.streams] == pytest.approx([1.0] * 3)
    assert [stream.spectrum.stable_rank for stream in found.streams] == pytest.approx([1.0] * 3)
    assert found.entropy_fraction == pytest.approx([1.0, 1.0]), "equal keys share the attention evenly"


@pytest.mark.parametrize(
    "name", ["norm/rms_norm", "norm/none", "mlp/none", "mlp/swiglu", "placement/post", "attention/tiled"]
)
def test_the_view_is_the_same_on_both_engines(name: str) -> None:
    config = CHOICES[name]
    runners = SpecificationRunner(config, weights(config)), EngineRunner(fast(config))
    views = [view_diagnostics(PromptedModel("m", runner, IDS)) for runner in runners]
    check_same(views[0].data, views[1].data)
    streams = [stream["state"] for stream in views[0].data["streams"]]
    assert streams == ["blocks.0.resid_pre", "blocks.0.resid_post", "blocks.1.resid_post"]
    assert bool(views[0].data["units"]) == (name != "mlp/none")
    assert bool(views[0].data["entropy"]) == (name != "attention/tiled")
    assert bool(views[0].data["rstd"]) == (name != "norm/none")


@pytest.mark.parametrize("name", DIFFERENT)
def test_every_choice_has_diagnostics_even_on_one_token(name: str) -> None:
    config = DIFFERENT[name]
    seen: list[tuple[int, int]] = []
    prompted = PromptedModel("m", EngineRunner(fast(config)), (2,))
    view = view_diagnostics(prompted, progress=lambda done, total: seen.append((done, total)))
    assert view.data["entropy"] is None
    assert seen[-1][0] == seen[-1][1]
