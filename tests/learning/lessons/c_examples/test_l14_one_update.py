"""What lesson 14 says about learning rates holds in its runs."""

import pytest

from pellucid.learning.lessons.c_examples.l14_one_update import run

RUNS = run()


def test_the_smaller_the_rate_the_better_the_gradient_predicts_the_fall_of_the_loss() -> None:
    small = RUNS["small"].tape
    errors = abs(small["fall"] / small["predicted"] - 1)
    assert errors[0] > errors[1] > errors[2] and errors[2] < 0.002


def test_the_loss_rises_only_at_the_largest_rate() -> None:
    steady, quick, wild = RUNS["large"].tape["losses"]
    assert (steady[1:] < steady[:-1]).all() and (quick[1:] < quick[:-1]).all()
    assert wild[2] > wild[0]


def test_the_published_weights_give_the_published_losses() -> None:
    original = RUNS["original"].tape
    assert float(original["loss"]) == pytest.approx(1.383780, abs=1e-6)
    assert float(original["loss@1"]) == pytest.approx(1.383405, abs=1e-6)
