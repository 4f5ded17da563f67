"""The wrong rules of one box: each mistake of the catalogue in the step of one cell, as a rule.

A wrong step runs on recording arrays like a right one (`explanation/cell_arrays.py`), so that the same
forward is planted in tests and printed on a worksheet. The wrong programs of a tape are made once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from pellucid.base.errors import PellucidError
from pellucid.explanation.cell_arrays import RecordingArray, record_part
from pellucid.explanation.expression import Cell, Expression
from pellucid.explanation.rule import Rule, RuleCall, find_keys, is_call, simplify, walk
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array, Index, everything
from pellucid.reference.tape import Step, Tape
from pellucid.verification.mistakes.slips import replace_part
from pellucid.verification.mistakes.variant import Program, Variant, base_name, describe
from pellucid.verification.mistakes.worksheet import SHEET_MISTAKES

Translate = Callable[[Expression], Rule | None]
"""Returns the rule of an expression over the keys of a sheet; None where it reads what the sheet lacks."""

MAX_TERMS = 4096
"""A cell of a wrong step that reads more numbers than this does not fit on a sheet."""
FAULTS = (PellucidError, ValueError, IndexError, TypeError, KeyError, AttributeError, FloatingPointError)
"""What a mistake raises where it does not apply to these shapes."""


@dataclass
class _WrongStep:
    """A wrong step under the name of its mistake, with the wrong tables that it reads; its whole result is
    recorded once where every cell reads everything."""

    name: str
    step: Step
    tables: dict[str, Array] = field(default_factory=dict)
    recorded: Any = None


_WRONG_STEPS: WeakKeyDictionary[Tape, tuple[int, dict[str, list[_WrongStep]]]] = WeakKeyDictionary()


def find_wrong_rules(
    trace: Trace, step: Step, index: Index, rule: Rule, translate: Translate
) -> dict[str, Rule]:
    """Returns the wrong rules of one cell of a step by the name of the mistake, the likeliest first: those
    that read only what is on the sheet and differ from the right rule."""
    right = simplify(rule)
    is_folded = any(is_call(part, "rest") for part in walk(right))
    found: dict[str, Rule] = {}
    for wrong in _find_wrong_steps(trace.tape).get(step.name, ()):
        other = _replace_constant(right, step, wrong.step)
        if other is None and not is_folded:
            expression = _record(trace, wrong, index)
            other = translate(expression) if expression is not None else None
        if other is not None:
            found.setdefault(wrong.name, simplify(other))
    for name, other in _rewrite(trace, step, rule, translate):
        found.setdefault(name, simplify(other))
    return {name: other for name, other in found.items() if other != right}


def _find_wrong_steps(tape: Tape) -> dict[str, list[_WrongStep]]:
    """Returns the wrong versions of every step of a tape, by its name."""
    count, known = _WRONG_STEPS.get(tape, (0, {}))
    if count == len(tape.steps):
        return known
    found: dict[str, list[_WrongStep]] = {}
    program = Program(tape)
    for name, entry in SHEET_MISTAKES.items():
        for variant in _variants(program, name) if entry.wrong else ():
            for step_name, step in variant.steps.items():
                wrong = _WrongStep(describe(name, variant), step, dict(variant.tables))
                found.setdefault(step_name, []).append(wrong)
    _WRONG_STEPS[tape] = len(tape.steps), found
    return found


def _variants(program: Program, name: str) -> Iterator[Variant]:
    mistake = SHEET_MISTAKES[name].wrong
    assert mistake is not None
    try:
        yield from mistake(program)
    except FAULTS:  # a trace of another's may use our names for other things
        return


def _replace_constant(rule: Rule, right: Step, wrong: Step) -> Rule | None:
    """Returns the rule with another constant, where that is all in which the wrong step differs and it stands
    in the rule once: so a folded sum keeps its remainder."""
    if wrong.op is not right.op or wrong.inputs != right.inputs:
        return None
    changed = [key for key in right.attrs | wrong.attrs if right.attrs.get(key) != wrong.attrs.get(key)]
    if len(changed) != 1:
        return None
    old, new = right.attrs.get(changed[0]), wrong.attrs.get(changed[0])
    constants = [part for part in walk(rule) if _read_constant(part) == old]
    return replace_part(rule, constants[0], new) if len(constants) == 1 and isinstance(new, float) else None


def _read_constant(rule: Rule) -> float | None:
    """Returns the number of a constant, which may be written 1 / N; None for any other rule."""
    match rule:
        case float(value):
            return value
        case RuleCall("divide", (float(a), float(b))):
            return a / b
    return None


def _record(trace: Trace, wrong: _WrongStep, index: Index) -> Expression | None:
    """Returns the arithmetic of one cell of a wrong step, None where it does not apply."""
    step = wrong.step
    try:
        inputs = [wrong.tables[name] if name in wrong.tables else trace.value(name) for name in step.inputs]
        need = step.op.reads(index, [x.shape for x in inputs], step.attrs)
        if sum(int(np.prod([len(axis) for axis in box])) for box in need.boxes) > MAX_TERMS:
            return None
        made = wrong.recorded
        if made is None:
            parts = [
                value[np.ix_(*box)] if name in wrong.tables else record_part(name, value, box, step.op)
                for name, value, box in zip(step.inputs, inputs, need.boxes, strict=True)
            ]
            with np.errstate(all="ignore"):
                made = (step.op.shown or step.op.forward)(*parts, **need.attrs)
            if step.op.reads is everything:
                wrong.recorded = made
        if not isinstance(made, RecordingArray) or not np.isfinite(made.value[need.pick]):
            return None
        return made.derive(need.pick, MAX_TERMS)
    except FAULTS:
        return None


# ---- rules rewritten by what their step is


def _rewrite(trace: Trace, step: Step, rule: Rule, translate: Translate) -> Iterator[tuple[str, Rule]]:
    base = base_name(step.name)
    if base == "nll":
        yield from _read_other_tokens(trace, rule, translate)
    if base == "d.logits":
        yield from _change_target(rule)


def _read_other_tokens(trace: Trace, rule: Rule, translate: Translate) -> Iterator[tuple[str, Rule]]:
    """Yields −ln p of the other tokens of the row."""
    by_key = {}
    for name in dict.fromkeys(key.partition("[")[0] for key in find_keys(rule)):
        if base_name(name) == "probs" and name in trace.tape and trace.value(name).size <= MAX_TERMS:
            for index, value in np.ndenumerate(trace.value(name)):
                by_key[translate(Cell(name, index, float(value)))] = name, index
    for key in find_keys(rule):
        if key not in by_key:
            continue
        name, (*row, token) = by_key[key]
        for other in range(trace.value(name).shape[-1]):
            value = float(trace.value(name)[(*row, other)])
            read = translate(Cell(name, (*row, other), value)) if other != token else None
            if read is not None:
                label = trace.label(name, "v", other) or str(other)
                yield f"another token's probability: {label}", replace_part(rule, key, read)


def _change_target(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """Yields p for p − 1 at the target, and p − 1 for p elsewhere."""
    for part in walk(rule):
        if is_call(part, "subtract") and part.args[1] == 1.0:
            yield "1 at the target omitted", replace_part(rule, part, part.args[0])
            return
    for key in find_keys(rule):
        if base_name(key).startswith("probs"):
            yield "1 subtracted at every token", replace_part(rule, key, RuleCall("subtract", (key, 1.0)))
            return
