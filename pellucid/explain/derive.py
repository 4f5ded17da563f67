"""Where a number came from: its formula, the formula with its numbers, and so on for each operand."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pellucid.errors import AddressError
from pellucid.explain import address as addresses
from pellucid.explain.expression import Cell, Expression, figure, operands, written
from pellucid.explain.formula import formula
from pellucid.explain.remembering import Remembering, remember
from pellucid.explain.trace import Trace
from pellucid.reference.op import Index
from pellucid.reference.tape import Step

LEAVES = {"param": "a parameter", "leaf": "given"}


@dataclass
class Derivation:
    """One number and how it was made; `operands` are the numbers it was made from, one per name,
    `others` the further cells under that name that the arithmetic shows."""

    trace: Trace
    name: str
    index: Index
    others: list[Cell] = field(default_factory=list)
    top: int = 6
    step: Step | None = None
    expression: Expression | None = None
    operands: list["Derivation"] = field(default_factory=list)

    @property
    def value(self) -> float:
        return float(self.trace.value(self.name)[self.index])

    @property
    def address(self) -> str:
        return self.trace.address(self.name, self.index)

    def __str__(self) -> str:
        return "\n".join(lines(self))

    def expand(self) -> None:
        """Run the step's own forward on arrays that remember, and read off this cell's arithmetic."""
        self.step = self.trace.tape.steps.get(self.name)
        if self.step is None:
            return
        self.expression = arithmetic(self.trace, self.step, self.index, self.top)
        found: dict[str, list[tuple[Cell, float]]] = {}
        for cell, weight in operands(self.expression):
            cells = found.setdefault(cell.name, [])
            if all(cell.index != other.index for other, _ in cells):
                cells.append((cell, weight))
        for name, cells in found.items():
            followed = max(cells, key=lambda entry: entry[1])[0]
            others = [cell for cell, _ in cells if cell is not followed]
            self.operands.append(Derivation(self.trace, name, followed.index, others, self.top))


def arithmetic(trace: Trace, step: Step, index: Index, top: int) -> Expression:
    """One cell's arithmetic: the friendlier form where the operation has one and it gives the number."""
    inputs = [trace.value(name) for name in step.inputs]
    need = step.op.reads(index, [x.shape for x in inputs], step.attrs)
    parts = [remember(*entry) for entry in zip(step.inputs, inputs, need.boxes, strict=True)]
    actual = float(trace.value(step.name)[index])
    if step.op.shown:
        try:
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                friendly: Remembering = step.op.shown(*parts, **need.attrs)
            if _same(float(friendly.value[need.pick]), actual):
                return friendly.story(need.pick, top)
        except FloatingPointError:  # e^1000: only the form with the maximum can be computed
            pass
    with np.errstate(all="ignore"):
        made: Remembering = step.op.forward(*parts, **need.attrs)
    return made.story(need.pick, top)


def _same(a: float, b: float) -> bool:
    return a == b or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-300)


def derive(trace: Trace, at: str, depth: int = 3, top: int = 6) -> Derivation:
    """The derivation of one cell, down to `depth` steps below it."""
    name, index = addresses.parse(trace, at)
    if index is None:
        raise AddressError(f"{at!r} is a whole value; name a cell of it.")
    root = Derivation(trace, name, index, top=top)
    level = [root]
    for _ in range(depth + 1):
        for node in level:
            node.expand()
        level = [operand for node in level for operand in node.operands]
    return root


# ---- as text


def lines(root: Derivation, digits: int = 5, most: int | None = 40) -> Iterator[str]:
    """The derivation as indented text. Where it would be longer than `most`, the deepest levels are
    told as bare numbers: what stands nearest to the number asked for is told first."""
    yield from _lines(root, "", "", _fitting(root, most), digits, scope="")


def _fitting(root: Derivation, most: int | None) -> dict[tuple[str, Index], Derivation]:
    """The nodes that tell their arithmetic, nearest first and each cell once, so that all fits."""
    told: dict[tuple[str, Index], Derivation] = {}
    used, level = 1, [root]
    while level:
        for node in level:
            cost = 2 + len(node.operands)
            fits = most is None or used + cost <= most
            if node.expression and fits and (node.name, node.index) not in told:
                told[node.name, node.index] = node
                used += cost
        level = [
            operand
            for node in level
            if told.get((node.name, node.index)) is node
            for operand in node.operands
        ]
    return told


def _lines(
    node: Derivation,
    first: str,
    after: str,
    told: dict[tuple[str, Index], Derivation],
    digits: int,
    scope: str,
) -> Iterator[str]:
    teller = told.get((node.name, node.index))
    elsewhere = "   (told once, at its other place)" if teller and teller is not node else ""
    yield first + _headline(node, digits, scope) + elsewhere
    if teller is not node or node.expression is None or node.step is None:
        return
    bar = after + ("│  " if node.operands else "   ")
    yield f"{bar}{formula(node.trace, node.step, node.index)}"
    yield f"{bar}= {written(node.expression, digits)}"
    for i, operand in enumerate(node.operands):
        last = i == len(node.operands) - 1
        corner, under = ("└─ ", "   ") if last else ("├─ ", "│  ")
        inner = node.name.removeprefix("d.").rpartition(".")[0]
        yield from _lines(operand, after + corner, after + under, told, digits, inner)


def _headline(node: Derivation, digits: int, scope: str) -> str:
    trace = node.trace
    short = node.name
    for d in ("", "d."):
        if scope.startswith("blocks.") and short.startswith(f"{d}{scope}."):
            short = d + short.removeprefix(f"{d}{scope}.")
    text = f"{short}{node.address.removeprefix(node.name)} = {figure(node.value, digits)}"
    if tokens := _tokens(trace, node.name, node.index):
        text += f"  ({tokens})"
    if node.others:
        text += "   also " + ", ".join(
            f"{_difference(trace, node, cell)} {figure(cell.value, digits)}" for cell in node.others
        )
    return f"{text}   {_remark(node, is_root=not scope)}".rstrip()


def _remark(node: Derivation, is_root: bool) -> str:
    """What the value means, where there is room to say it."""
    role, meaning = node.trace.tape.roles[node.name], node.trace.about(node.name).meaning
    if node.others or (role == "grad" and not is_root):
        return ""
    return f"{LEAVES[role]}: {meaning}" if role in LEAVES and meaning else meaning


def _tokens(trace: Trace, name: str, index: Index) -> str:
    labels = ((axis, trace.label(name, axis, i), i) for axis, i in trace.places(name, index))
    return ", ".join(f"{axis}={i} {text}" for axis, text, i in labels if text is not None)


def _difference(trace: Trace, node: Derivation, cell: Cell) -> str:
    """The places in which another cell of the same value differs."""
    mine = dict(trace.places(node.name, node.index))
    return ",".join(f"{a}={i}" for a, i in trace.places(node.name, cell.index) if mine[a] != i)


# ---- as data


def as_data(node: Derivation) -> dict[str, Any]:
    """The derivation as plain data, numbers in full."""
    about = node.trace.about(node.name)
    data: dict[str, Any] = {
        "at": node.address,
        "value": _json_number(node.value),
        "meaning": about.meaning,
        "role": node.trace.tape.roles[node.name],
        "tokens": {a: node.trace.label(node.name, a, i) for a, i in node.trace.places(node.name, node.index)},
        "also": [
            {"at": node.trace.address(cell.name, cell.index), "value": _json_number(cell.value)}
            for cell in node.others
        ],
    }
    if node.step and node.expression:
        data |= {
            "operation": node.step.op.name,
            "formula": formula(node.trace, node.step, node.index),
            "arithmetic": written(node.expression, 17),
            "operands": [as_data(operand) for operand in node.operands],
        }
    return data


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
