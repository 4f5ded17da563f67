"""The residual connection adds: numbers of the teaching model, worked by hand."""

import dataclasses

import pytest

import pellucid
from pellucid.parts.residuals.plain import PlainResidual


def test_plain_residual_adds_the_stream_to_what_attention_wrote() -> None:
    """B = (0, 1) and attention's (.19557, .80443) make (.19557, 1.80443)."""
    model = pellucid.load("abcd")
    config = dataclasses.replace(model.config, residual=PlainResidual())
    trace = model.changed(config=config).trace("A B")
    assert trace.tape["blocks.0.resid_mid"][0, 1] == pytest.approx([0.19557, 1.80443], abs=5e-6)
