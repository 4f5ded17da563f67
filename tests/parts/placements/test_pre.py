"""Norms before the sub-layers against PyTorch's TransformerEncoderLayer(norm_first=True)."""

import pytest

from tests.parts.placements.one_block import of_pytorch


def test_a_block_with_its_norms_before_equals_pytorch_s() -> None:
    tape, wanted = of_pytorch("pre", norm_first=True)
    assert tape["blocks.0.resid_post"] == pytest.approx(wanted.numpy(), abs=1e-12)


def test_what_a_model_reads_at_last_is_normed() -> None:
    """The stream itself never was."""
    tape, _ = of_pytorch("pre", norm_first=True)
    assert "final_norm.out" in tape
    assert tape["final_norm.normed"].std(axis=-1) == pytest.approx(1, abs=1e-4)
