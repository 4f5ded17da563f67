"""Norms after the sums against PyTorch's TransformerEncoderLayer(norm_first=False)."""

import numpy as np
import pytest

from tests.parts.placements.one_block import of_pytorch


def test_a_block_with_its_norms_after_equals_pytorch_s() -> None:
    tape, wanted = of_pytorch("post", norm_first=False)
    assert tape["blocks.0.resid_post"] == pytest.approx(wanted.numpy(), abs=1e-12)


def test_the_last_block_s_norm_is_the_final_one() -> None:
    tape, _ = of_pytorch("post", norm_first=False)
    assert "final_norm.weight" not in tape and "final_norm.out" not in tape
    stream = tape["blocks.0.resid_post"]
    np.testing.assert_array_equal(stream, tape["blocks.0.mlp_post_norm.out"])
    assert tape["logits"] == pytest.approx(stream @ tape["embed.weight"].T, abs=1e-12)
