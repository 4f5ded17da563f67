"""The derivation of a number: its formula, its arithmetic, and the same for each operand."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pellucid.base import notebook
from pellucid.base.arguments import check_int, check_text
from pellucid.base.errors import TapeError
from pellucid.base.formatting import escape_controls, format_number
from pellucid.explanation import address as addresses
from pellucid.explanation.cell_arrays import (
    RecordingArray,
    Top,
    can_flatten,
    find_terms,
    fold_terms,
    record_part,
)
from pellucid.explanation.expression import Cell, Expression, find_operands
from pellucid.explanation.formula import Formula, build_formula, build_sum_formula
from pellucid.explanation.pieces import format_expression
from pellucid.explanation.trace import IN_PYTHON, More, Trace
from pellucid.reference.op import Index
from pellucid.reference.tape import Step

if TYPE_CHECKING:
    from pellucid.explanation.table import Slice

LEAVES = {"param": "parameter", "leaf": "input"}


@dataclass(repr=False)
class Derivation:
    """One number and how it was computed: print it to read it.

    `operands` are the numbers it was computed from, one per name; `others` are the further cells of the same
    value in the parent's arithmetic."""

    trace: Trace
    name: str
    index: Index
    others: list[Cell] = field(default_factory=list)
    expression: Expression | None = None
    operands: list["Derivation"] = field(default_factory=list)
    terms: tuple[Cell, ...] = ()
    """Of a flattened chain of additions, everything that is added; else empty."""
    shown_at: "Derivation | None" = None
    """The derivation of the same cell elsewhere in this tree, where that is expanded."""
    cut_by: tuple[str, ...] = ()
    """The limits that cut the tree short: "depth", "lines", both or neither; of the root alone."""

    @property
    def step(self) -> Step | None:
        return self.trace.tape.steps.get(self.name)

    @property
    def value(self) -> float:
        return float(self.trace.value(self.name)[self.index])

    @property
    def address(self) -> str:
        return self.trace.address(self.name, self.index)

    @property
    def formula(self) -> Formula | None:
        """The formula in symbols, as text with `to_mathml()` and `to_latex()`; None for an input."""
        if self.step is None:
            return None
        if self.is_flattened:
            return build_sum_formula(self.trace, self.name, [term.name for term in self.terms])
        return build_formula(self.trace, self.step, self.index)

    @property
    def is_flattened(self) -> bool:
        """Returns whether operands that are additions were replaced by their own operands."""
        return bool(self.terms)

    @property
    def note(self) -> str:
        """The difference of the printed arithmetic from that of the run; empty where there is none."""
        if not self.is_flattened:
            return ""
        count = f"{len(self.terms):,}"
        return f"the run adds these {count} terms in another order, so the last digits may differ"

    def __str__(self) -> str:
        return escape_controls("\n".join(self.to_lines()))

    def __repr__(self) -> str:
        operands = f", computed from {', '.join(node.name for node in self.operands[:3])}" * bool(
            self.operands
        )
        operands += ", …" * (len(self.operands) > 3)
        return escape_controls(
            f"<Derivation {_format_headline(self, 5, '', is_root=True)}{operands}>", keep=""
        )

    def _repr_html_(self) -> str:
        places = {id(node): i for i, node in enumerate(_walk(self))}
        cut = notebook.line(_format_cut(self, IN_PYTHON))
        return f"{_format_html(self, '', places)}{cut}"

    def to_lines(self, digits: int = 5, more: More = IN_PYTHON) -> Iterator[str]:
        """Yields the derivation as indented text; `…` marks a number that could be expanded further."""
        places = {id(node): i for i, node in enumerate(_walk(self))}
        yield from _format_tree(self, "", "", digits, "", places)
        if cut := _format_cut(self, more):
            yield cut

    def to_data(self) -> dict[str, Any]:
        """Returns the derivation as plain data, numbers in full; a cell shown elsewhere in it says so."""
        about = self.trace.about(self.name)
        data: dict[str, Any] = {
            "at": self.address,
            "value": _json_number(self.value),
            "meaning": about.meaning,
            "role": self.trace.tape.roles[self.name],
            "tokens": {
                axis: self.trace.label(self.name, axis, i, self.index)
                for axis, i in self.trace.places(self.name, self.index)
            },
            "also": [
                {"at": self.trace.address(cell.name, cell.index), "value": _json_number(cell.value)}
                for cell in self.others
            ],
        }
        if self.shown_at:
            data["shown_elsewhere"] = True
        if self.step and self.expression:
            data |= {
                "operation": self.step.op.name,
                "formula": self.formula,
                "latex": self.formula.to_latex() if self.formula else None,
                "mathml": self.formula.to_mathml() if self.formula else None,
                "arithmetic": format_expression(self.expression, 17),
                "operands": [operand.to_data() for operand in self.operands],
            }
            if self.note:
                data["note"] = self.note
        return data

    def expand(self, step: Step, top: int, flatten: bool = False) -> None:
        """Records this cell's arithmetic, and follows of each name the cell in the largest term; with
        `flatten`, a chain of additions is one sum."""
        if flatten and can_flatten(self.trace.tape, step):
            self.terms = find_terms(self.trace, step, self.index)
            self.expression = fold_terms(self.terms, self.value, top)
        else:
            self.expression = record_arithmetic(self.trace, step, self.index, top)
        found: dict[str, list[tuple[Cell, float]]] = {}
        for cell, weight in (*find_operands(self.expression), *_find_selectors(self.trace, step, self.index)):
            cells = found.setdefault(cell.name, [])
            if all(cell.index != other.index for other, _ in cells):
                cells.append((cell, weight))
        for name, cells in found.items():
            followed = max(cells, key=lambda entry: entry[1])[0]
            others = [cell for cell, _ in cells if cell is not followed]
            self.operands.append(Derivation(self.trace, name, followed.index, others))


def record_arithmetic(
    trace: Trace, step: Step, index: Index, top: Top, is_own_form: bool = False
) -> Expression:
    """Returns one cell's arithmetic: the step's own forward on recording arrays, or its `shown` form where
    that gives the same number and the own form is not asked for."""
    inputs = [trace.value(name) for name in step.inputs]
    need = step.op.reads(index, [x.shape for x in inputs], step.attrs)
    parts = [record_part(*entry, step.op) for entry in zip(step.inputs, inputs, need.boxes, strict=True)]
    actual = float(trace.value(step.name)[index])
    if step.op.shown and not is_own_form:
        try:
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                simple: RecordingArray = step.op.shown(*parts, **need.attrs)
            if _is_same(float(simple.value[need.pick]), actual):
                return simple.derive(need.pick, top)
        except FloatingPointError:  # e^1000: only the form with the maximum can be computed
            pass
    with np.errstate(all="ignore"):
        made: RecordingArray = step.op.forward(*parts, **need.attrs)
    return made.derive(need.pick, top)


def _is_same(a: float, b: float) -> bool:
    return a == b or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-300)


def _find_selectors(trace: Trace, step: Step, index: Index) -> Iterator[tuple[Cell, float]]:
    """Yields the integer of each input that selects what the cell reads: its token, its target."""
    inputs = [trace.value(name) for name in step.inputs]
    need = step.op.reads(index, [x.shape for x in inputs], step.attrs)
    for name, value, box in zip(step.inputs, inputs, need.boxes, strict=True):
        if value.dtype.kind in "iu" and all(len(axis) == 1 for axis in box):
            cell = tuple(int(axis[0]) for axis in box)
            yield Cell(name, cell, float(value[cell])), 0.0


def explain(
    trace: Trace, at: str, depth: int = 3, top: int = 6, most: int | None = 40, flatten: bool = False
) -> "Derivation | Slice":
    """Returns the derivation of one number, or a table where the address names several.

    The text has at most `most` lines; 0 and None mean no limit. With `flatten`, an operand of an addition
    that is itself an addition is replaced by its operands.
    """
    check_limits(at, depth, top, most)
    part = addresses.parse(trace, at)
    if part.cell is None:
        from pellucid.explanation.table import Slice

        return Slice(trace, part, top, most or None)
    return derive(trace, at, depth, top, most or None, flatten)


def check_limits(at: Any, depth: Any, top: Any, lines: Any) -> None:
    """Raises a UsageError that names the argument of a wrong type or size."""
    check_text("at", at)
    check_int("depth", depth, least=0, most=1000)
    check_int("top", top, least=1, most=100_000)
    if lines is not None:
        check_int("lines", lines, least=0)


def derive(
    trace: Trace, at: str, depth: int = 3, top: int = 6, most: int | None = 40, flatten: bool = False
) -> Derivation:
    """Returns the derivation of one cell, down to `depth` steps below it, each cell expanded once.

    As text it has at most `most` lines: what is nearest to the number is expanded first. With `flatten`,
    chains of additions are sums.
    """
    check_limits(at, depth, top, most)
    root = Derivation(trace, *addresses.parse_cell(trace, at))
    shown: dict[tuple[str, Index], Derivation] = {}
    used, level = 2, [root]
    for _ in range(depth + 1):
        for node in level:
            node.shown_at = shown.get((node.name, node.index))
            if node.step is None or node.shown_at:
                continue
            try:
                node.expand(node.step, top, flatten)
            except Exception as error:  # a trace file may hold a step that cannot run
                raise TapeError(
                    f"{node.name!r} cannot be computed again from this trace: {error}."
                ) from error
            used += 2 + node.is_flattened + len(node.operands)
            if most is not None and used > most:
                node.expression, node.terms, node.operands, root.cut_by = None, (), [], ("lines",)
                return root
            shown[node.name, node.index] = node
        level = [operand for node in level for operand in node.operands]
    for node in level:
        node.shown_at = shown.get((node.name, node.index))
        if node.step and not node.shown_at and not root.cut_by:
            needed = used + 2 + len(set(node.step.inputs))
            root.cut_by = ("depth", "lines") if most is not None and needed > most else ("depth",)
    return root


# ---- as text


def _format_cut(root: Derivation, more: More) -> str:
    """Returns how to see what was cut; empty where nothing was."""
    ways = {"depth": f"a larger {more.depth}", "lines": more.lines}
    by = " with ".join(ways[limit] for limit in root.cut_by)
    return f"… could be expanded further: {by}" if by else ""


def _walk(node: Derivation) -> Iterator[Derivation]:
    yield node
    for operand in node.operands:
        yield from _walk(operand)


def _format_tree(
    node: Derivation, first: str, after: str, digits: int, scope: str, places: dict[int, int]
) -> Iterator[str]:
    yield first + _format_headline(node, digits, scope, is_root=not first) + _format_pointer(node, places)
    if node.expression is None or node.step is None:
        return
    bar = after + ("│  " if node.operands else "   ")
    yield f"{bar}{node.formula}"
    yield f"{bar}= {format_expression(node.expression, digits)}"
    if node.note:
        yield f"{bar}({node.note})"
    inner = node.name.removeprefix("d.").rpartition(".")[0]
    for i, operand in enumerate(node.operands):
        corner, under = ("└─ ", "   ") if i == len(node.operands) - 1 else ("├─ ", "│  ")
        yield from _format_tree(operand, after + corner, after + under, digits, inner, places)


def _format_pointer(node: Derivation, places: dict[int, int]) -> str:
    if node.shown_at:
        return f"   (shown {'above' if places[id(node.shown_at)] < places[id(node)] else 'below'})"
    return " …" if node.step and not node.expression else ""


def _format_headline(node: Derivation, digits: int, scope: str, is_root: bool) -> str:
    trace = node.trace
    short = node.name
    for d in ("", "d."):
        if scope.startswith("blocks.") and short.startswith(f"{d}{scope}."):
            short = d + short.removeprefix(f"{d}{scope}.")
    text = f"{short}{node.address.removeprefix(node.name)} = {format_number(node.value, digits)}"
    if tokens := _format_tokens(trace, node):
        text += f"  ({tokens})"
    if node.others:
        others = (
            f"{_format_difference(trace, node, cell)}: {format_number(cell.value, digits)}"
            for cell in node.others
        )
        return f"{text}   also {'; '.join(others)}"
    role, meaning = trace.tape.roles[node.name], trace.about(node.name).meaning
    if role == "grad" and not is_root:
        return text
    return f"{text}   {f'{LEAVES[role]}, ' if role in LEAVES else ''}{meaning}".rstrip(", ")


def _format_tokens(trace: Trace, node: Derivation) -> str:
    places = trace.places(node.name, node.index)
    labels = [(axis, trace.label(node.name, axis, i, node.index), i) for axis, i in places]
    shown = [f"{axis}={i} {text}" for axis, text, i in labels if text is not None]
    vocabulary = trace.labels.get("v", [])
    if node.name.partition("@")[0] in ("ids", "targets") and 0 <= node.value < len(vocabulary):
        shown.append(f"the token {vocabulary[int(node.value)]}")
    return ", ".join(shown)


def _format_difference(trace: Trace, node: Derivation, cell: Cell) -> str:
    """Returns the indices in which another cell of the same value differs."""
    mine = dict(trace.places(node.name, node.index))
    return ",".join(f"{a}={i}" for a, i in trace.places(node.name, cell.index) if mine[a] != i)


# ---- as HTML


def _format_html(node: Derivation, scope: str, places: dict[int, int]) -> str:
    """Returns a tree that folds: each number, and below it its formula, its arithmetic and its operands."""
    head = _format_headline(node, 5, scope, is_root=not scope) + _format_pointer(node, places)
    if node.expression is None or node.step is None:
        return notebook.branch(head, ())
    inner = node.name.removeprefix("d.").rpartition(".")[0] or node.name
    arithmetic_lines = f"{node.formula}\n= {format_expression(node.expression, 5)}"
    arithmetic_lines += f"\n({node.note})" * bool(node.note)
    operands = (_format_html(operand, inner, places) for operand in node.operands)
    return notebook.branch(head, (notebook.line(arithmetic_lines), *operands))


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
