"""What lesson 13 says about attention scores holds in its runs."""

import numpy as np
import pytest

from pellucid.learning.lessons.c_examples.l13_forward import WIDTHS, run

RUNS = run()


def test_the_variance_of_query_times_key_is_about_its_number_of_channels() -> None:
    spread = RUNS["spread"].tape
    assert spread["width"].tolist() == list(WIDTHS)
    assert spread["variance"] == pytest.approx(np.array(WIDTHS), rel=0.06)
    assert RUNS["shifted"].tape["variance"] == pytest.approx(3 * np.array(WIDTHS), rel=0.08)


def test_without_the_scale_the_largest_share_grows() -> None:
    scaled, unscaled = RUNS["forward"].tape["blocks.0.attn.pattern"][0, 0], RUNS["unscaled"].tape["pattern"]
    assert unscaled[1, 1] > scaled[1, 1]
    assert unscaled[1] == pytest.approx([1 / (1 + np.e**2), 1 / (1 + np.e**-2)])


def test_the_published_weights_give_the_published_numbers() -> None:
    published = RUNS["original"].tape["probs"][0, 1]
    assert published == pytest.approx([0.250621, 0.249375, 0.250629, 0.249375], abs=1e-6)
