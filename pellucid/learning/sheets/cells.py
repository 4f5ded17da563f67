"""The cells of a trace as keys and rules: what a cell copies, and the arithmetic of a group of cells."""

import fnmatch
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pellucid.base.names import IGNORE_INDEX
from pellucid.explanation.cell_arrays import TermChoice
from pellucid.explanation.derive import record_arithmetic
from pellucid.explanation.expression import Apply, Branch, Cell, Expression, Number, Sum
from pellucid.explanation.formula import build_formula
from pellucid.explanation.rule import FUNCTIONS, Rule, RuleCall, simplify
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Index
from pellucid.reference.tape import Step

CellId = tuple[str, Index]
WHOLE = 8
"""The largest number of terms of a sum that is shown without folding."""
LARGEST_POWER = 6.0
"""Powers of e above e^6 are computed with the maximum subtracted, as the operation itself does."""
LOOK_UPS = ("take", "concat", "narrow")
"""Operations whose cells are always copies."""
FOLLOWED = 64
"""The largest number of operands of a cell that is 0 or 1 whose structure is looked through."""


class Cells:
    """Keys and rules of a trace's cells. `read` maps each key to its cell; `rests` holds the remainders.

    A value that fits a pattern of `stop` is printed under its own name, also where it copies another."""

    def __init__(self, trace: Trace, top: int, stop: Sequence[str] = ()) -> None:
        self.trace, self.top, self.stop = trace, top, stop
        self.read: dict[str, CellId] = {}
        self.rests: dict[str, tuple[float, int]] = {}
        self._resolved: dict[CellId, Rule] = {}
        self._rest_keys: dict[tuple[str, float, int], str] = {}

    # ---- a cell as a key

    def resolve(self, name: str, index: Index) -> Rule:
        """Returns the key of a cell, or of the one that it copies; or a number where it is one by structure:
        a mask, −∞ where masked, the gradient 0 at a position that the loss omits."""
        name = self.trace.tape.resolve(name)
        cell = name, index
        if cell not in self._resolved:
            self._resolved[cell] = self._resolve(name, index)
        return self._resolved[cell]

    def _resolve(self, name: str, index: Index) -> Rule:
        trace, step = self.trace, self.trace.tape.steps.get(name)
        value = float(trace.value(name)[index])
        if step is None:
            is_start = name.startswith("d.") and value == 1.0 and not trace.value(name).ndim
            return value if is_start or _is_mask(name) else self._key(name, index)
        if (before := self._find_unchanged(step)) is not None:
            return self.resolve(before, index)
        if self.fits_stop(name):
            return self._key(name, index)
        if find_textbook_form(trace, step, index):
            return self._key(name, index)
        if is_omitted(trace, step, index):
            return 0.0
        size = self._count_read(step, index)
        if step.op.name not in LOOK_UPS and size > (FOLLOWED if value in (0.0, 1.0) else 2):
            if value == 0.0 and step.phase == "bwd" and not trace.value(name)[index[:-1]].any():
                return 0.0  # a whole row of zeros: the position is not counted
            return self._key(name, index)
        found = self.find_form(step, index, self._record(step, [index])[index])[0]
        rule = self.translate(found, name)
        if isinstance(rule, str) or (isinstance(rule, float) and (rule in (0.0, 1.0) or math.isinf(rule))):
            return rule
        return self._key(name, index)

    def fits_stop(self, name: str) -> bool:
        """Tests whether a value is printed and not asked."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.stop)

    def _find_unchanged(self, step: Step) -> str | None:
        """Returns the same value before the update, where the update did not change it; None elsewhere."""
        base, at, k = step.name.rpartition("@")
        if not at or step.phase == "upd":
            return None
        before = self.trace.tape.resolve(f"{base}@{int(k) - 1}" if k != "1" else base)
        earlier = self.trace.tape.steps.get(before)
        if earlier is None or earlier.op is not step.op or earlier.attrs != step.attrs:
            return None
        return before if np.array_equal(self.trace.value(before), self.trace.value(step.name)) else None

    def _key(self, name: str, index: Index) -> str:
        key = self.trace.address(name, index)
        self.read[key] = name, index
        return key

    def _count_read(self, step: Step, index: Index) -> int:
        """Returns how many numbers a cell reads, without those that only select."""
        values = [self.trace.value(name) for name in step.inputs]
        boxes = step.op.reads(index, [x.shape for x in values], step.attrs).boxes
        pairs = zip(values, boxes, strict=True)
        return sum(math.prod(len(axis) for axis in box) for x, box in pairs if x.dtype.kind == "f")

    # ---- arithmetic

    def _record(
        self, step: Step, indices: Sequence[Index], is_own_form: bool = False
    ) -> dict[Index, Expression]:
        """Returns the arithmetic of cells of one step, with the same terms of long sums shown in all."""
        choice = TermChoice(self.top, WHOLE)
        for is_counting in (True, False):
            choice.is_counting = is_counting
            found = {i: record_arithmetic(self.trace, step, i, choice, is_own_form) for i in indices}
        return found

    def record(self, step: Step, indices: Sequence[Index]) -> dict[Index, tuple[Expression, str]]:
        """Returns the arithmetic and the formula of cells of one step, in the form that people use."""
        found = self._record(step, indices)
        if step.op.shown and any(_has_large_power(expression) for expression in found.values()):
            found = self._record(step, indices, is_own_form=True)
        return {i: self.find_form(step, i, expression) for i, expression in found.items()}

    def find_form(self, step: Step, index: Index, recorded: Expression) -> tuple[Expression, str]:
        """Returns the textbook form of a cell, or the recorded one, with its formula."""
        if form := find_textbook_form(self.trace, step, index):
            return form
        return recorded, str(build_formula(self.trace, step, index))

    def translate(self, expression: Expression, name: str) -> Rule | None:
        """Returns the rule of an expression in a cell of the value `name`; None where there is none."""
        rule = self._translate(expression, name)
        return None if rule is None else simplify(rule)

    def _translate(self, expression: Expression, name: str) -> Rule | None:
        match expression:
            case Number(value):
                return _write_constant(float(value))
            case Cell(of, index):
                return self.resolve(of, index)
            case Branch(what, condition, _, other):
                if not _is_condition(condition, what, other):
                    return self._translate(what, name)
                holds = bool(condition.value) if isinstance(condition, Apply) else True
                yes, no = (what, other) if holds else (other, what)
                return self._call("choose", (condition, yes, no), name)
            case Sum(terms, rest, folded):
                call = self._call("+", terms, name)
                if call is None or not folded or rest == 0.0:
                    return call
                key = self._rest_keys.setdefault((name, rest, folded), f"{name}~rest{len(self._rest_keys)}")
                self.rests[key] = rest, folded
                return RuleCall("+", (*call.args, RuleCall("rest", (key,))))
            case Apply(function, args):
                return self._call(function, args, name) if function in FUNCTIONS else None

    def _call(self, function: str, args: Sequence[Expression], name: str) -> RuleCall | None:
        rules = [self._translate(arg, name) for arg in args]
        found = tuple(rule for rule in rules if rule is not None)
        return RuleCall(function, found) if len(found) == len(rules) else None


def _write_constant(value: float) -> Rule:
    """Returns a constant as people write it: 1 / 3, not 0.33333."""
    whole = round(1 / value) if value and abs(value) < 1 else 0
    if 2 < whole < 1000 and value == 1 / whole and value != round(value, 2):
        return RuleCall("divide", (1.0, float(whole)))
    return value


MASKS = ("mask", "position_mask", "same_segment", "counted")


def _is_mask(name: str) -> bool:
    """Tests whether a value only says which numbers count: its cells are 0 or 1 and are not printed."""
    return name.partition("@")[0] in MASKS


def _is_condition(condition: Expression, what: Expression, other: Expression) -> bool:
    """Tests whether a choice depends on a number that is computed: U > 0. A given mask is not one, nor is a
    guard, which asks whether the number that it divides by is above 0."""
    match condition:
        case Apply("greater", (Cell() as cell, Number())):
            return not any(cell == found for part in (what, other) for found in _find_cells(part))
    return False


def _find_cells(expression: Expression) -> Iterator[Cell]:
    match expression:
        case Cell():
            yield expression
        case Apply(_, args) | Sum(args):
            for arg in args:
                yield from _find_cells(arg)
        case Branch(what, condition, _, other):
            for part in (what, condition, other):
                yield from _find_cells(part)


def _has_large_power(expression: Expression) -> bool:
    match expression:
        case Apply("exp", (arg,)):
            return arg.value > LARGEST_POWER or _has_large_power(arg)
        case Apply(_, args) | Sum(args):
            return any(map(_has_large_power, args))
        case Branch(what):
            return _has_large_power(what)
    return False


# ---- the forms that textbooks use, where the tape computes the same number by way of the log-sum-exp:
# nll = −ln p[target], and d.logits = (p − 1) · dnll at the target, else p · dnll


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
