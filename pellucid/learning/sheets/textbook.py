"""The forms that textbooks use, where the tape computes the same number by way of the log-sum-exp.

nll      = −ln p[target]
d.logits = (p − 1) · dnll at the target, else p · dnll
"""

from typing import NamedTuple

from pellucid.base.names import IGNORE_INDEX
from pellucid.explanation.expression import Apply, Cell, Expression, Number
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Index
from pellucid.reference.tape import Step


class TextbookForm(NamedTuple):
    """The expression of a cell, and its formula in words and symbols."""

    expression: Expression
    formula: str


def find_textbook_form(trace: Trace, step: Step, index: Index) -> TextbookForm | None:
    """Returns the textbook form of a cell; None where the tape's own form is the one that people use."""
    if step.op.name == "cross_entropy":
        logits, _, targets = step.inputs
        return _write_nll(trace, step.name, logits, targets, index)
    if step.op.name == "add" and len(step.inputs) == 2:
        parts = [trace.tape.steps.get(name) for name in step.inputs]
        by_op = {part.op.name: part for part in parts if part}
        picked, normalizer = by_op.get("cross_entropy_logits_back"), by_op.get("logsumexp_back")
        if picked and normalizer:
            return _write_logits_gradient(trace, step.name, picked, normalizer, index)
    return None


def is_omitted(trace: Trace, step: Step, index: Index) -> bool:
    """Tests whether a cell is the nll of a position without a target, which is 0 whatever the logits are."""
    return step.op.name == "cross_entropy" and int(trace.value(step.inputs[2])[index]) == IGNORE_INDEX


def _find_probs(trace: Trace, logits: str) -> str | None:
    readers = trace.tape.steps.values()
    return next((s.name for s in readers if s.op.name == "softmax" and s.inputs == (logits,)), None)


def _write_nll(trace: Trace, name: str, logits: str, targets: str, index: Index) -> TextbookForm | None:
    probs, target = _find_probs(trace, logits), int(trace.value(targets)[index])
    if probs is None or target == IGNORE_INDEX:
        return None
    p = _cell(trace, probs, (*index, target))
    nll, q, at = trace.about(name).symbol, trace.about(probs).symbol, _list_axes(trace, probs)
    return TextbookForm(_apply("negative", _apply("log", p)), f"{nll}[{at}] = −ln {q}[{at}, target]")


def _write_logits_gradient(
    trace: Trace, name: str, picked: Step, normalizer: Step, index: Index
) -> TextbookForm | None:
    dnll, targets = picked.inputs
    logits, _, dlse = normalizer.inputs
    probs, source = _find_probs(trace, logits), trace.tape.steps.get(dlse)
    # with a z-loss the gradient of lse has a further part
    if probs is None or source is None or source.op.name != "cross_entropy_lse_back":
        return None
    *place, v = index
    target = int(trace.value(targets)[tuple(place)])
    if target == IGNORE_INDEX:
        return None
    p: Expression = _cell(trace, probs, index)
    if v == target:
        p = _apply("subtract", p, Number(1.0))
    weight = _cell(trace, dnll, tuple(place))
    symbols, at = [trace.about(of).symbol for of in (name, probs, dnll)], _list_axes(trace, probs)
    d, q, dn = symbols[0], f"{symbols[1]}[{at},v]", f"{symbols[2]}[{at}]"
    formula = f"{d}[{at},v] = ({q} − 1) · {dn} at the target, {q} · {dn} elsewhere"
    return TextbookForm(_apply("multiply", p, weight), formula)


def _list_axes(trace: Trace, probs: str) -> str:
    """Returns the axes of a position: t, or b,t where there are several prompts."""
    return "b,t" if "b" in trace.about(probs).axes and trace.size(probs, "b") > 1 else "t"


def _cell(trace: Trace, name: str, index: Index) -> Cell:
    return Cell(name, index, float(trace.value(name)[index]))


def _apply(function: str, *args: Expression) -> Apply:
    return Apply(function, args, float("nan"))
