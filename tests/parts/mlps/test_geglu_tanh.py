"""GEGLU in its tanh form against the feed-forward of transformers' Gemma."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.gemma.configuration_gemma import GemmaConfig
from transformers.models.gemma.modeling_gemma import GemmaMLP

from pellucid.parts import find
from pellucid.reference.mlps import feed_forward
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape

RANDOM = np.random.default_rng(0)
GATE, UP, DOWN, X = (RANDOM.standard_normal(shape) for shape in ((6, 4), (6, 4), (4, 6), (2, 3, 4)))


def written(kind: str, gate: Any, up: Any, down: Any, x: Any) -> Array:
    """What a feed-forward of that kind writes to the stream."""
    tape = Tape()
    for name, value in {"gate_proj": gate, "up_proj": up, "down_proj": down}.items():
        tape.parameter(f"blocks.0.mlp.{name}.weight", value)
    mlp: Any = find("mlps", kind)()
    return tape[feed_forward(tape.scope("blocks.0"), tape.constant("x", x), mlp, None)]


def test_geglu_tanh_equals_the_feed_forward_of_gemma() -> None:
    theirs = GemmaMLP(GemmaConfig(hidden_size=4, intermediate_size=6)).double()
    for linear, array in ((theirs.gate_proj, GATE), (theirs.up_proj, UP), (theirs.down_proj, DOWN)):
        linear.weight.data = torch.tensor(array)
    with torch.no_grad():
        wanted = theirs(torch.tensor(X)).numpy()
    assert written("geglu_tanh", GATE, UP, DOWN, X) == pytest.approx(wanted, abs=1e-14)
    assert np.abs(written("geglu", GATE, UP, DOWN, X) - wanted).max() > 1e-5, "the two forms are two kinds"
