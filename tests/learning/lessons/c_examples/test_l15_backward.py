"""What lesson 15 says about gradients holds in its runs."""

import numpy as np
import pytest

from pellucid.learning.lessons.c_examples.l15_backward import run

RUNS = run()


def test_the_finite_difference_agrees_with_the_gradient() -> None:
    difference = RUNS["difference"].tape
    assert float(difference["quotient"]) == pytest.approx(float(difference["gradient"]), rel=1e-6)


def test_the_jacobian_gives_the_same_gradient_of_the_scores() -> None:
    scores = RUNS["backward"].tape["d.blocks.0.attn.masked"][0, 0, 1]
    np.testing.assert_allclose(RUNS["jacobian"].tape["ds"], scores, rtol=1e-12)


def test_all_four_matrices_together_lower_the_loss_further_than_the_unembedding_alone() -> None:
    full, alone = RUNS["backward"].tape, RUNS["unembed_only"].tape
    assert float(full["loss@1"]) == pytest.approx(0.55101, abs=1e-5)
    assert float(alone["loss@1"]) == pytest.approx(1.34470, abs=1e-5)


def test_the_example_with_three_channels_has_the_corrected_shares_and_gradients() -> None:
    mini = RUNS["mini"].tape
    assert mini["pattern"][0] == pytest.approx([0.35954, 0.64046], abs=1e-5)
    assert mini["d.v"][0] == pytest.approx([0.35954, 0.5, 0.35954], abs=1e-5)


def test_the_published_weights_give_the_corrected_gradient_of_the_values() -> None:
    assert RUNS["original"].tape["d.blocks.0.attn.v"][0, 0] == pytest.approx(
        np.array([[0.012487, -0.037336], [0.012575, -0.037601]]), abs=1e-6
    )
