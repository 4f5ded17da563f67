"""SiLU against PyTorch's, over the whole line."""

import numpy as np
import pytest
import torch

from pellucid.config import ModelConfig
from pellucid.parts import find
from pellucid.reference.mlps import feed_forward
from pellucid.reference.ops import named
from pellucid.reference.tape import Tape

X = np.concatenate([np.linspace(-6, 6, 49), [-40.0, 40.0]])


def test_swiglu_curve_equals_pytorch() -> None:
    theirs = torch.nn.functional.silu
    op = named(find("mlps", "swiglu").activation)  # type: ignore[attr-defined]
    assert op.name == "silu"
    assert op.forward(X) == pytest.approx(theirs(torch.tensor(X)).numpy(), rel=1e-12, abs=1e-15)


def test_swiglu_is_three_matrices_worked_by_hand() -> None:
    """(SiLU(x W_G) ⊙ x W_1) W_2 for x = (1, 2): SiLU(1) · 2 · 3 = 4.38635 and back through (1, −1)."""
    config = ModelConfig.from_dict(
        {"vocab_size": 2, "context_length": 1, "n_layer": 1, "n_head": 1, "d_model": 2, "d_ff": 1}
    )
    tape = Tape()
    for name, value in {"gate_proj": [[1, 0]], "up_proj": [[0, 3]], "down_proj": [[1], [-1]]}.items():
        tape.parameter(f"blocks.0.mlp.{name}.weight", value)
    out = feed_forward(tape.scope("blocks.0"), tape.constant("x", [[[1.0, 2.0]]]), config.mlp, None)
    assert tape[out][0, 0] == pytest.approx([4.386351, -4.386351], abs=1e-6)
