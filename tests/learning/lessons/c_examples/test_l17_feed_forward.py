"""What lesson 17 says in words about its runs."""

import numpy as np
import pytest

from pellucid.learning.lessons.c_examples import l17_feed_forward

RUNS = l17_feed_forward.run()


def value(name: str, run: str = "with") -> np.ndarray:
    return RUNS[run].value(name)


def test_each_position_closes_the_gate_that_the_other_opens() -> None:
    assert (value("blocks.0.mlp.up")[0] > 0).tolist() == [[False, True], [True, False]]


def test_a_closed_gate_passes_no_gradient_and_its_weights_stay() -> None:
    arrives, passes = value("d.blocks.0.mlp.act")[0, 1], value("d.blocks.0.mlp.up")[0, 1]
    assert passes[0] == arrives[0] and arrives[1] != 0 and passes[1] == 0
    before, after = (value(f"blocks.0.mlp.up_proj.weight{end}") for end in ("", "@1"))
    assert np.array_equal(before[1], after[1]) and (before[0] != after[0]).all()


def test_all_of_one_channels_gradient_came_past_the_layer() -> None:
    assert value("d.blocks.0.resid_mid.via.blocks.0.mlp.up")[0, 1, 0] == 0
    assert value("d.blocks.0.resid_mid")[0, 1, 0] == value("d.blocks.0.resid_post")[0, 1, 0] != 0


def test_a_residual_can_make_a_number_smaller() -> None:
    assert value("blocks.0.resid_post")[0, 1, 1] < value("blocks.0.resid_mid")[0, 1, 1]


def test_without_the_residual_less_gradient_reaches_the_embeddings_and_none_past_closed_gates() -> None:
    assert 0 < value("gradient_norm", "without") < value("gradient_norm")
    for run in ("closed", "closed_without"):
        assert (value("blocks.0.mlp.up", run) < 0).all()
        assert (value("blocks.0.mlp_out", run) == value("blocks.0.mlp.down_proj.bias", run)).all()
    assert value("gradient_norm", "closed") > 0 == value("gradient_norm", "closed_without")


def test_trained_without_the_residual_all_prompts_have_one_answer() -> None:
    probs = value("probs@60", "trained_without")[:, -1]
    assert probs[1:] == pytest.approx(np.broadcast_to(probs[0], probs[1:].shape))
    assert [int(value(f"open@{k}", "trained_without")) for k in range(1, 61)] == [0] * 60
    assert 0 < value("loss@60", "trained_without") - value("entropy", "trained_without") < 0.005
    assert value("updates", "trained") == 9 and value("updates", "trained_without") == -1


def test_smaller_steps_approach_the_smooth_path() -> None:
    """At B the first gate alone is open, so U_0 grows as e^t, and both channels follow from it."""
    start, gate = value("x", "divided"), value("by1.u.0", "divided")[0]
    end = start + np.array([0.5 + gate * (np.e - 1), -gate * (np.e - 1)])
    away = [abs(value(f"by{n}.end", "divided") - end).max() for n in l17_feed_forward.DIVISIONS]
    assert away == sorted(away, reverse=True) and away[-1] < 0.02
    assert value("by1.end", "divided") == pytest.approx(value("blocks.0.resid_post")[0, 1])
