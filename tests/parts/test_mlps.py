"""MLPs against PyTorch, transformers and by hand."""

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers.activations import ACT2FN
from transformers.models.gemma.configuration_gemma import GemmaConfig
from transformers.models.gemma.modeling_gemma import GemmaMLP

from pellucid.config import ModelConfig
from pellucid.engine import activations
from pellucid.parts import find
from pellucid.reference.mlps import apply_mlp
from pellucid.reference.op import Array
from pellucid.reference.ops import find_op
from pellucid.reference.tape import Tape

LINE = np.concatenate([np.linspace(-6, 6, 49), [-40.0, 40.0]])
RANDOM = np.random.default_rng(0)
GATE, UP, DOWN, X = (RANDOM.standard_normal(shape) for shape in ((6, 4), (6, 4), (4, 6), (2, 3, 4)))


def run_mlp(kind: str, gate: Any, up: Any, down: Any, x: Any) -> Array:
    """Returns the output of an MLP of that kind."""
    tape = Tape()
    for name, value in {"gate_proj": gate, "up_proj": up, "down_proj": down}.items():
        tape.parameter(f"blocks.0.mlp.{name}.weight", value)
    mlp: Any = find("mlps", kind)()
    return tape[apply_mlp(tape.scope("blocks.0"), tape.constant("x", x), mlp, None)]


def test_geglu_equals_the_formula_of_its_paper_in_pytorch() -> None:
    """Shazeer 2020: (GELU(x W) ⊗ x V) W_2, with the exact GELU."""
    gate, up, down, x = (torch.tensor(array) for array in (GATE, UP, DOWN, X))
    wanted = (functional.gelu(x @ gate.T) * (x @ up.T)) @ down.T
    assert run_mlp("geglu", GATE, UP, DOWN, X) == pytest.approx(wanted.numpy(), abs=1e-14)


def test_geglu_is_three_matrices_worked_by_hand() -> None:
    """(GELU(x W_G) ⊙ x W_1) W_2 for x = (1, 2): GELU(1) = .8413447; .8413447 · 2 · 3 = 5.048068."""
    out = run_mlp("geglu", [[1, 0]], [[0, 3]], [[1], [-1]], [[[1.0, 2.0]]])
    assert out[0, 0] == pytest.approx([5.048068, -5.048068], abs=1e-6)


def test_geglu_tanh_equals_the_feed_forward_of_gemma() -> None:
    theirs = GemmaMLP(GemmaConfig(hidden_size=4, intermediate_size=6)).double()
    for linear, array in ((theirs.gate_proj, GATE), (theirs.up_proj, UP), (theirs.down_proj, DOWN)):
        linear.weight.data = torch.tensor(array)
    with torch.no_grad():
        wanted = theirs(torch.tensor(X)).numpy()
    assert run_mlp("geglu_tanh", GATE, UP, DOWN, X) == pytest.approx(wanted, abs=1e-14)
    assert np.abs(run_mlp("geglu", GATE, UP, DOWN, X) - wanted).max() > 1e-5, "the two forms are two kinds"


THEIRS = {
    "gelu": functional.gelu,
    "gelu_tanh": functools.partial(functional.gelu, approximate="tanh"),
    "relu": torch.relu,
    "relu_squared": ACT2FN["relu2"],
    "silu": functional.silu,
    "swiglu": functional.silu,
}


@pytest.mark.parametrize("kind", THEIRS)
def test_the_activation_equals_pytorch_s_over_the_whole_line(kind: str) -> None:
    """The square of ReLU is transformers'."""
    op = find_op(find("mlps", kind).activation)  # type: ignore[attr-defined]
    assert op.name == {"swiglu": "silu"}.get(kind, kind)
    wanted = THEIRS[kind](torch.tensor(LINE)).numpy()
    assert op.forward(LINE) == pytest.approx(wanted, rel=1e-12, abs=1e-15)


def test_relu_squared_derivative_equals_that_of_pytorch_and_is_zero_at_zero() -> None:
    x = torch.tensor([-1.5, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    activations.make("relu_squared")(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 0, 4]
    assert find_op("relu_squared_back").forward(x.detach().numpy(), np.ones(3)).tolist() == [0, 0, 4]


def test_relu_squared_is_two_matrices_worked_by_hand() -> None:
    """x = (1, 2) finds 3 and −1 in the hidden channels; 3² = 9 goes back through (1, −1), −1 is cut off."""
    sizes = {"vocab_size": 2, "context_length": 1, "n_layer": 1, "n_head": 1, "d_model": 2, "d_ff": 2}
    config = ModelConfig.from_dict(sizes | {"mlp": "relu_squared"})
    tape = Tape()
    for name, value in {"up_proj": [[1, 1], [1, -1]], "down_proj": [[1, 5], [-1, 5]]}.items():
        tape.parameter(f"blocks.0.mlp.{name}.weight", value)
    out = apply_mlp(tape.scope("blocks.0"), tape.constant("x", [[[1.0, 2.0]]]), config.mlp, None)
    assert tape[out][0, 0].tolist() == [9, -9]


def test_silu_has_its_lowest_point_where_the_paper_says() -> None:
    """Elfwing et al. 2017: a global minimum of about −0.28 at x ≈ −1.28."""
    x = np.linspace(-3, 0, 30001)
    y = find_op("silu").forward(x)
    assert y.min() == pytest.approx(-0.28, abs=0.005)
    assert x[y.argmin()] == pytest.approx(-1.28, abs=0.005)


def test_swiglu_is_three_matrices_worked_by_hand() -> None:
    """(SiLU(x W_G) ⊙ x W_1) W_2 for x = (1, 2): SiLU(1) · 2 · 3 = 4.38635 and back through (1, −1)."""
    config = ModelConfig.from_dict(
        {"vocab_size": 2, "context_length": 1, "n_layer": 1, "n_head": 1, "d_model": 2, "d_ff": 1}
    )
    tape = Tape()
    for name, value in {"gate_proj": [[1, 0]], "up_proj": [[0, 3]], "down_proj": [[1], [-1]]}.items():
        tape.parameter(f"blocks.0.mlp.{name}.weight", value)
    out = apply_mlp(tape.scope("blocks.0"), tape.constant("x", [[[1.0, 2.0]]]), config.mlp, None)
    assert tape[out][0, 0] == pytest.approx([4.386351, -4.386351], abs=1e-6)
