"""The textbook forms of the loss and of its gradient give the tape's numbers on every cell."""

import numpy as np
import pytest

import pellucid
from pellucid.explanation.expression import compute
from pellucid.explanation.trace import Trace
from pellucid.learning.sheets.cells import find_textbook_form
from pellucid.reference.training import forward
from tests.reference.models import CONFIGS, IDS, TARGETS, backpropagated, weights


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("value", ["nll", "d.logits"])
def test_both_forms_are_equal_on_every_cell(name: str, value: str) -> None:
    trace = Trace(backpropagated(CONFIGS[name]))
    step, found = trace.tape.steps[value], 0
    for index in np.ndindex(trace.value(value).shape):
        form = find_textbook_form(trace, step, index)
        is_counted = TARGETS[index[0]][index[1]] >= 0
        assert (form is not None) == is_counted
        if form:
            assert compute(form.expression) == pytest.approx(trace.value(value)[index], rel=1e-12)
            found += 1
    assert found


def test_a_z_loss_has_no_textbook_form() -> None:
    """Its gradient has a further part through the log-sum-exp, which p − 1 lacks."""
    config = CONFIGS["relu"]
    tape = forward(config, weights(config), IDS, TARGETS, objective={"z": 0.1})
    tape.backward(tape.ref("loss"))
    assert find_textbook_form(Trace(tape), tape.steps["d.logits"], (0, 0, 0)) is None


def test_a_formula_has_the_prompt_among_its_indices_where_there_are_several() -> None:
    for ids, at in ((["A B", "A A"], "b,t"), ("A B", "t")):
        target = "C" if isinstance(ids, str) else ["C", "D"]
        trace = pellucid.trace("example-3", ids, target=target, update="sgd", lr=0.5)
        for value, start in (("nll", f"nll[{at}]"), ("nll@1", f"nll@1[{at}]"), ("d.logits", f"dℓ[{at},v]")):
            index = (0, 1, 2)[: trace.value(value).ndim]
            form = find_textbook_form(trace, trace.tape.steps[value], index)
            assert form and form.formula.startswith(f"{start} = ")
