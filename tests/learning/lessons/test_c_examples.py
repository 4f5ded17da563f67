"""What the lessons of part C say in words holds in their runs."""

from collections.abc import Mapping

import numpy as np
import pytest

import pellucid
from pellucid.explanation.trace import Trace
from pellucid.learning.lessons.c_examples import l16_batch, l17_feed_forward, l18_norms, l19_two_blocks
from pellucid.learning.lessons.c_examples.l13_forward import WIDTHS
from pellucid.learning.lessons.ladder import find_lesson
from pellucid.reference.op import Array


def runs(lesson: int) -> Mapping[str, Trace]:
    """Returns the runs of a lesson, which all tests of a process share."""
    return find_lesson(lesson).program.traces


def value(lesson: int, run: str, name: str) -> Array:
    return runs(lesson)[run].value(name)


# ---- lesson 13


def test_the_variance_of_query_times_key_is_about_its_number_of_channels() -> None:
    spread = runs(13)["spread"].tape
    assert spread["width"].tolist() == list(WIDTHS)
    assert spread["variance"] == pytest.approx(np.array(WIDTHS), rel=0.06)
    assert value(13, "shifted", "variance") == pytest.approx(3 * np.array(WIDTHS), rel=0.08)


def test_without_the_scale_the_largest_share_grows() -> None:
    scaled, unscaled = value(13, "forward", "blocks.0.attn.pattern")[0, 0], value(13, "unscaled", "pattern")
    assert unscaled[1, 1] > scaled[1, 1]
    assert unscaled[1] == pytest.approx([1 / (1 + np.e**2), 1 / (1 + np.e**-2)])


def test_the_published_weights_give_the_published_probabilities() -> None:
    published = value(13, "original", "probs")[0, 1]
    assert published == pytest.approx([0.250621, 0.249375, 0.250629, 0.249375], abs=1e-6)


# ---- lesson 14


def test_the_smaller_the_rate_the_better_the_gradient_predicts_the_fall_of_the_loss() -> None:
    small = runs(14)["small"].tape
    errors = abs(small["fall"] / small["predicted"] - 1)
    assert errors[0] > errors[1] > errors[2] and errors[2] < 0.002


def test_the_loss_rises_only_at_the_largest_rate() -> None:
    steady, quick, wild = value(14, "large", "losses")
    assert (steady[1:] < steady[:-1]).all() and (quick[1:] < quick[:-1]).all()
    assert wild[2] > wild[0]


def test_the_published_weights_give_the_published_losses() -> None:
    original = runs(14)["original"].tape
    assert float(original["loss"]) == pytest.approx(1.383780, abs=1e-6)
    assert float(original["loss@1"]) == pytest.approx(1.383405, abs=1e-6)


# ---- lesson 15


def test_the_finite_difference_agrees_with_the_gradient() -> None:
    difference = runs(15)["difference"].tape
    assert float(difference["quotient"]) == pytest.approx(float(difference["gradient"]), rel=1e-6)


def test_the_jacobian_gives_the_same_gradient_of_the_scores() -> None:
    scores = value(15, "backward", "d.blocks.0.attn.masked")[0, 0, 1]
    np.testing.assert_allclose(value(15, "jacobian", "ds"), scores, rtol=1e-12)


def test_all_four_matrices_together_lower_the_loss_further_than_the_unembedding_alone() -> None:
    full, alone = runs(15)["backward"].tape, runs(15)["unembed_only"].tape
    assert float(full["loss@1"]) == pytest.approx(0.55101, abs=1e-5)
    assert float(alone["loss@1"]) == pytest.approx(1.34470, abs=1e-5)


def test_the_example_with_three_channels_has_the_corrected_shares_and_gradients() -> None:
    mini = runs(15)["mini"].tape
    assert mini["pattern"][0] == pytest.approx([0.35954, 0.64046], abs=1e-5)
    assert mini["d.v"][0] == pytest.approx([0.35954, 0.5, 0.35954], abs=1e-5)


def test_the_published_weights_give_the_corrected_gradient_of_the_values() -> None:
    assert value(15, "original", "d.blocks.0.attn.v")[0, 0] == pytest.approx(
        np.array([[0.012487, -0.037336], [0.012575, -0.037601]]), abs=1e-6
    )


# ---- lesson 16


def losses(run: str, most: int) -> list[float]:
    return [float(value(16, run, f"loss@{k}")) for k in range(most + 1)]


def test_the_gradient_of_the_batch_is_the_mean_of_the_prompts_gradients() -> None:
    batch = value(16, "batch", "d.unembed.weight")
    alone = [
        pellucid.trace("example-3", prompt, target=target, backward=True).value("d.unembed.weight")
        for prompt, target in zip(l16_batch.PROMPTS, l16_batch.TARGETS, strict=True)
    ]
    assert batch == pytest.approx(np.mean(alone, axis=0))


def test_the_prompts_agree_on_one_weight_and_not_on_the_other() -> None:
    batch = runs(16)["batch"]
    parts = batch.value("blocks.0.attn_out")[:, 1] * batch.value("d.logits")[:, 1, 2, None]
    assert parts[0, 0] > 0 and parts[1, 0] == 0 and parts[2, 0] > 0
    assert parts[0, 1] < 0 < parts[1, 1] and parts[2, 1] < 0 < parts[:, 1].sum()


def test_all_prompts_are_right_after_6_updates_and_the_loss_falls_on() -> None:
    assert value(16, "batch", "updates") == 6
    found = losses("batch", l16_batch.UPDATES)
    assert found == sorted(found, reverse=True)


def test_one_at_a_time_undoes_the_last_update_unless_the_steps_are_small() -> None:
    single = runs(16)["single"]
    before, own, next = (float(single.value(f"nll@{k}")[0, 1]) for k in range(3))
    assert own < before < next
    alone, batch, gentle = (value(16, run, "updates") for run in ("single", "batch", "gentle"))
    assert alone > 3 * batch >= gentle > 0


def test_a_sum_is_slower_than_the_mean_and_too_large_a_rate_never_arrives() -> None:
    summed, batch = losses("summed", 5), losses("batch", 5)
    assert summed[1] < batch[1] and summed[5] > summed[4]
    assert value(16, "batch", "updates") < value(16, "summed", "updates") < value(16, "slow", "updates")
    assert value(16, "fast", "updates") == -1


def test_nearly_equal_logits_have_nearly_equal_shares() -> None:
    original = runs(16)["original"]
    assert np.ptp(original.value("logits")[1, 1]) == pytest.approx(0.01)
    assert original.value("probs")[1, 1] == pytest.approx([0.25188, 0.24937, 0.24937, 0.24937], abs=5e-6)


def test_a_b_is_right_by_the_smallest_margin() -> None:
    ordered = np.sort(value(16, "batch", "probs@6")[:, 1], axis=-1)
    margins = ordered[:, -1] - ordered[:, -2]
    assert margins.argmin() == 0


# ---- lesson 17


def test_each_position_closes_the_gate_that_the_other_opens() -> None:
    assert (value(17, "with", "blocks.0.mlp.up")[0] > 0).tolist() == [[False, True], [True, False]]


def test_a_closed_gate_passes_no_gradient_and_its_weights_stay() -> None:
    arrives, passes = (
        value(17, "with", "d.blocks.0.mlp.act")[0, 1],
        value(17, "with", "d.blocks.0.mlp.up")[0, 1],
    )
    assert passes[0] == arrives[0] and arrives[1] != 0 and passes[1] == 0
    before, after = (value(17, "with", f"blocks.0.mlp.up_proj.weight{end}") for end in ("", "@1"))
    assert np.array_equal(before[1], after[1]) and (before[0] != after[0]).all()


def test_all_of_one_channels_gradient_came_past_the_layer() -> None:
    assert value(17, "with", "d.blocks.0.resid_mid.via.blocks.0.mlp.up")[0, 1, 0] == 0
    assert (
        value(17, "with", "d.blocks.0.resid_mid")[0, 1, 0]
        == value(17, "with", "d.blocks.0.resid_post")[0, 1, 0]
        != 0
    )


def test_a_residual_can_make_a_number_smaller() -> None:
    assert (
        value(17, "with", "blocks.0.resid_post")[0, 1, 1] < value(17, "with", "blocks.0.resid_mid")[0, 1, 1]
    )


def test_without_the_residual_less_gradient_reaches_the_embeddings_and_none_past_closed_gates() -> None:
    assert 0 < value(17, "without", "gradient_norm") < value(17, "with", "gradient_norm")
    for run in ("closed", "closed_without"):
        assert (value(17, run, "blocks.0.mlp.up") < 0).all()
        assert (value(17, run, "blocks.0.mlp_out") == value(17, run, "blocks.0.mlp.down_proj.bias")).all()
    assert value(17, "closed", "gradient_norm") > 0 == value(17, "closed_without", "gradient_norm")


def test_trained_without_the_residual_all_prompts_have_one_answer() -> None:
    probs = value(17, "trained_without", "probs@60")[:, -1]
    assert probs[1:] == pytest.approx(np.broadcast_to(probs[0], probs[1:].shape))
    assert [int(value(17, "trained_without", f"open@{k}")) for k in range(1, 61)] == [0] * 60
    assert 0 < value(17, "trained_without", "loss@60") - value(17, "trained_without", "entropy") < 0.005
    assert value(17, "trained", "updates") == 9 and value(17, "trained_without", "updates") == -1


def test_smaller_steps_approach_the_smooth_path() -> None:
    """At B the first gate alone is open, so U_0 grows as e^t, and both channels follow from it."""
    start, gate = value(17, "divided", "x"), value(17, "divided", "by1.u.0")[0]
    end = start + np.array([0.5 + gate * (np.e - 1), -gate * (np.e - 1)])
    away = [abs(value(17, "divided", f"by{n}.end") - end).max() for n in l17_feed_forward.DIVISIONS]
    assert away == sorted(away, reverse=True) and away[-1] < 0.02
    assert value(17, "divided", "by1.end") == pytest.approx(value(17, "with", "blocks.0.resid_post")[0, 1])


# ---- lesson 18


def test_two_rows_with_one_pattern_have_one_output() -> None:
    assert value(18, "layer", "norm.normed")[:2] == pytest.approx(np.array([[-1, -1, 1, 1]] * 2), abs=1e-5)
    assert value(18, "layer", "d.x")[:2] == pytest.approx(
        np.array([[1, -1, 0.5, -0.5], [0.5, -0.5, 0.25, -0.25]]), abs=1e-4
    )


def test_the_gradient_is_the_closed_form_and_passes_both_checks() -> None:
    """With eps = 0 both sums are exactly 0; the smallest row has a variance of only ten eps."""
    x, r = value(18, "layer", "norm.normed"), value(18, "layer", "norm.rstd")
    assert value(18, "layer", "d.x") == pytest.approx(r * value(18, "layer", "bracket"))
    assert value(18, "layer", "d.x").sum(axis=1) == pytest.approx(np.zeros(4), abs=1e-9)
    assert (value(18, "layer", "d.x") * x)[:3].sum(axis=1) == pytest.approx(np.zeros(3), abs=1e-4)


def test_rms_norm_keeps_the_level_and_drops_the_size() -> None:
    assert abs(value(18, "rms", "norm.normed")[0] - value(18, "rms", "norm.normed")[1]).max() > 0.2
    assert abs(value(18, "rms", "d.x")[1].sum()) > 0.2
    assert (value(18, "rms", "d.x") * value(18, "rms", "norm.normed"))[1].sum() == pytest.approx(0, abs=1e-5)


def test_two_channels_keep_a_sign_and_stop_the_gradient() -> None:
    assert value(18, "pair", "norm.out") == pytest.approx(np.array([[1, -1], [-1, 1], [1, -1]]), abs=1e-4)
    assert abs(value(18, "pair", "d.x")).max() < 1e-4
    assert abs(value(18, "sample_pair", "normed")) == pytest.approx(np.full((3, 2), 0.5**0.5))


def test_larger_rows_have_the_same_output_and_a_smaller_gradient() -> None:
    assert value(18, "tenfold", "norm.out")[:3] == pytest.approx(value(18, "layer", "norm.out")[:3], abs=1e-4)
    assert value(18, "tenfold", "d.x")[:3] * l18_norms.FACTOR == pytest.approx(
        value(18, "layer", "d.x")[:3], abs=1e-4
    )


def test_batch_norm_of_a_row_depends_on_the_others() -> None:
    assert abs(value(18, "batch", "out")[0] - value(18, "fewer", "out")[0]).max() > 0.4
    assert value(18, "batch", "out").mean(axis=0) == pytest.approx(np.zeros(4), abs=1e-12)


def test_another_seed_has_other_rows() -> None:
    assert not np.array_equal(l18_norms.run(seed=1)["layer"].tape["x"], l18_norms.ROWS)


# ---- lesson 19


def cosine(run: str, one: str, other: str) -> float:
    prompts = list(l19_two_blocks.TARGETS)
    return float(runs(19)[run].tape["cosine"][prompts.index(one), prompts.index(other)])


def test_training_sorts_the_prompts_by_what_comes_next() -> None:
    """Before it, the two prompts that end with A are the most alike."""
    assert cosine("before", "A A", "B A") > 0.6 > cosine("before", "A B", "B A")
    assert cosine("after", "A B", "B A") > 0.9
    assert max(cosine("after", "A A", "B A"), cosine("after", "A A", "A B")) < 0


def test_after_one_update_every_answer_is_c_and_after_ten_all_are_right() -> None:
    trained = runs(19)["trained"].tape
    assert list(trained["probs@1"][:, 1].argmax(axis=-1)) == [2, 2, 2]
    assert (int(trained["right@1"]), int(trained["updates"])) == (2, 10)


def test_without_any_part_a_probability_moves_by_more_than_a_tenth() -> None:
    """By the least without head 1 of block 1."""
    whole = value(19, "step", "probs")[0, 1]
    moved = {
        name: abs(runs(19)[name].value("probs")[0, 1] - whole).max()
        for name in runs(19)
        if name.startswith("no_")
    }
    assert len(moved) == 7
    assert min(moved.values()) > 0.1
    assert min(moved, key=moved.__getitem__) == "no_head_1_1"


def test_the_gradient_has_not_faded_where_the_stream_begins() -> None:
    first, last = (
        abs(value(19, "step", f"d.{name}")[0, 1]).max() for name in ("positioned", "blocks.1.resid_post")
    )
    assert first > last
    assert value(19, "step", "blocks.0.mlp.up")[0, 1, 0] < 0  # the first gate is closed, as the page says
