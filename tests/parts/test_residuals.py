"""Residual connections by hand."""

import dataclasses

import pytest

import pellucid
from pellucid.parts.residuals import PlainResidual, ScaledResidual

# plain: The residual connection adds: numbers of the teaching model, worked by hand.


def test_plain_residual_adds_the_stream_to_what_attention_wrote() -> None:
    """B = (0, 1) and attention's (.19557, .80443) make (.19557, 1.80443)."""
    model = pellucid.load("abcd")
    config = dataclasses.replace(model.config, residual=PlainResidual())
    trace = model.replace(config=config).trace("A B")
    assert trace.tape["blocks.0.resid_mid"][0, 1] == pytest.approx([0.19557, 1.80443], abs=5e-6)


# scaled: The scaled residual: numbers of the teaching model, worked by hand.


@pytest.mark.parametrize(
    ("alpha", "wanted"), [(0.5, [0.09779, 1.40222]), (0.1, [0.01956, 1.08044]), (0.0, [0, 1])]
)
def test_scaled_residual_adds_a_share_of_what_attention_wrote(alpha: float, wanted: list[float]) -> None:
    """B = (0, 1), and attention wrote (.19557, .80443)."""
    model = pellucid.load("abcd")
    config = dataclasses.replace(model.config, residual=ScaledResidual(alpha=alpha))
    trace = model.replace(config=config).trace("A B")
    assert trace.tape["blocks.0.resid_mid"][0, 1] == pytest.approx(wanted, abs=1e-5)


def test_a_share_of_one_is_the_plain_residual() -> None:
    model = pellucid.load("abcd")
    config = dataclasses.replace(model.config, residual=ScaledResidual(alpha=1.0))
    trace = model.replace(config=config).trace("A B")
    assert trace.tape["blocks.0.resid_mid"][0, 1] == pytest.approx([0.19557, 1.80443], abs=5e-6)
