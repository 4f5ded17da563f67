"""Chains of additions as one sum: the residual stream is what was written to it, forward and backward."""

import itertools
import math
import os
from functools import cache

import pytest

from pellucid.config import ModelConfig
from pellucid.explanation.cell_arrays import MOST_TERMS, can_flatten, find_terms
from pellucid.explanation.derive import derive, explain
from pellucid.explanation.expression import Sum, compute
from pellucid.explanation.trace import Trace
from pellucid.parts import kinds
from pellucid.reference.op import Index
from pellucid.reference.ops.arithmetic import add
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from tests.reference.models import weights
from tests.small_choices import small

MODEL = os.environ.get("PELLUCID_SMOLLM2", "")
BASE = {"vocab_size": 5, "context_length": 6, "n_layer": 3, "n_head": 2, "d_model": 4, "d_ff": 6}


@cache
def make_trace(residual: str = "plain", placement: str = "pre") -> Trace:
    choices = {"residual": small("residuals", residual), "placement": small("placements", placement)}
    config = ModelConfig.from_dict(BASE | choices)
    tape = forward(config, weights(config), [[1, 3, 1]], [[3, -100, 2]])
    tape.backward(tape.ref("loss"))
    return Trace(tape)


def test_the_last_residual_stream_is_the_sum_of_all_that_was_written_to_it() -> None:
    trace = make_trace()
    found = derive(trace, "blocks.2.resid_post[t=1,c=2]", depth=0, top=100, flatten=True)
    assert found.is_flattened and isinstance(found.expression, Sum)
    parts = [f"blocks.{layer}.{part}" for layer in range(3) for part in ("attn_out", "mlp_out")]
    assert [node.name for node in found.operands] == ["embedded", *parts]
    assert compute(found.expression) == pytest.approx(found.value, rel=1e-13)
    assert found.expression.value == found.value
    assert found.formula == "X_post[t,c] = X_E[t,c] + O[t,c] + … + O_F[t,c]"
    assert "7 terms" in found.note and found.note in str(found)
    assert r"\dots" in found.formula.to_latex()


def test_without_flattening_nothing_changes() -> None:
    trace, at = make_trace(), "blocks.2.resid_post[t=1,c=2]"
    plain = explain(trace, at)
    assert str(plain) == str(explain(trace, at, flatten=False)) and "order" not in str(plain)
    assert [node.name for node in plain.operands] == ["blocks.2.resid_mid", "blocks.2.mlp_out"]  # type: ignore[union-attr]


def test_a_gradient_of_the_stream_is_the_sum_of_what_every_reader_sends_back() -> None:
    found = derive(make_trace(), "d.blocks.0.resid_mid[t=1,c=2]", depth=0, top=100, flatten=True)
    names = [node.name for node in found.operands]
    assert found.is_flattened and len(names) == len(set(names)) > 5
    assert not [name for name in names if make_trace().tape.steps[name].op is add]
    assert compute(found.expression) == pytest.approx(found.value, rel=1e-12)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("residual", "placement"), list(itertools.product(kinds("residuals"), kinds("placements")))
)
def test_in_every_variant_an_addition_is_the_sum_of_its_terms(residual: str, placement: str) -> None:
    trace = make_trace(residual, placement)
    steps = [step for step in trace.tape.steps.values() if step.op is add]
    for step in steps:
        index: Index = tuple(size - 1 for size in trace.value(step.name).shape)
        terms = find_terms(trace, step, index)
        assert all(trace.tape.steps[t.name].op is not add for t in terms if t.name in trace.tape.steps)
        total = math.fsum(term.value for term in terms)
        scale = max(abs(term.value) for term in terms)
        assert abs(total - trace.value(step.name)[index]) <= 1e-13 * scale * len(terms)
        assert can_flatten(trace.tape, step) == (len(terms) > len(step.inputs))


def test_an_operand_that_broadcasts_is_read_at_its_own_cell() -> None:
    config = ModelConfig.from_dict(BASE | {"positions": "learned", "n_layer": 1})
    trace = Trace(forward(config, weights(config), [[1, 3]] * 2))
    found = derive(trace, "blocks.0.resid_post[b=1,t=1,c=2]", depth=0, top=100, flatten=True)
    first = [node.address for node in found.operands][:2]
    assert first == ["embedded[b=1,t=1,c=2]", "position_rows[t=1,c=2]"]


@pytest.mark.skipif(not MODEL, reason="PELLUCID_SMOLLM2 names no file")
def test_a_channel_of_smollm2_has_61_writers() -> None:
    from pellucid.model import load

    trace = load(MODEL).trace("The cat sat on")
    step = trace.tape.steps["blocks.29.resid_post"]
    terms = find_terms(trace, step, (0, 3, 7))
    assert len(terms) == 61
    assert math.fsum(term.value for term in terms) == pytest.approx(
        trace.value(step.name)[0, 3, 7], abs=1e-12
    )


def test_a_chain_that_doubles_at_each_step_stays_bounded() -> None:
    tape = Tape()
    x = tape.parameter("x", 1.0)
    for i in range(60):
        x = tape(f"y{i}", add, x, x)
    terms = find_terms(Trace(tape), tape.steps[x.name], ())
    assert MOST_TERMS <= len(terms) < 2 * MOST_TERMS and sum(term.value for term in terms) == 2.0**60
