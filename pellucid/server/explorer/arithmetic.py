"""The arithmetic of a cell as plain data: a line of pieces, and the terms of its longest sum."""

from collections.abc import Sequence
from typing import Any

from pellucid.base.formatting import escape_controls
from pellucid.explanation.derive import Derivation
from pellucid.explanation.expression import Cell, Expression, find_operands
from pellucid.explanation.pieces import LineNumber, Piece, make_pieces, split_sum
from pellucid.explanation.trace import Trace
from pellucid.reference.ops.arithmetic import add


def show_label(trace: Trace, name: str, axis: str, i: int, index: Sequence[int | None] = ()) -> str | None:
    """Returns the token at index i of an axis, with escapes for characters that would show nothing or reorder
    the text around them; None where there is none. Where `index` fixes b, it is that prompt's token."""
    text = trace.label(name, axis, i, index)
    return text if text is None else escape_controls(text, keep="")


_STORAGE = ("in", "out")
"""Axes of a stored weight, which stand for channels that another factor names better."""


def list_pieces(trace: Trace, pieces: Sequence[Piece]) -> list[Any]:
    """Returns a line: texts, and numbers with their address or their kind."""
    return [piece if isinstance(piece, str) else _describe_number(trace, piece) for piece in pieces]


def _describe_number(trace: Trace, number: LineNumber) -> dict[str, Any]:
    if number.cell:
        return {"at": trace.address(number.cell.name, number.cell.index), "value": number.value}
    return {"value": number.value} | ({} if number.kind == "constant" else {"kind": number.kind})


def describe_arithmetic(node: Derivation) -> dict[str, Any]:
    """Returns the line of a derivation with its longest sum as a total, and the terms of that sum."""
    if node.expression is None:
        return {"line": None, "terms": [], "rest": None, "folded": 0, "total": None}
    shown, trace = split_sum(node.expression), node.trace
    data: dict[str, Any] = {"line": list_pieces(trace, shown.line)}
    if shown.sum is None:
        return data | {"terms": [], "rest": None, "folded": 0, "total": None}
    places = _find_places(node, shown.sum.terms)
    terms = [
        {"where": where, "line": list_pieces(trace, make_pieces(term)), "value": term.value}
        for where, term in zip(places, shown.sum.terms, strict=True)
    ]
    rest = shown.sum.rest if shown.sum.folded else None
    return data | {"terms": terms, "rest": rest, "folded": shown.sum.folded, "total": shown.sum.value}


def _find_places(node: Derivation, terms: Sequence[Expression]) -> list[list[list[Any]]]:
    """Returns for each term [axis, index, token] of the axes along which the sum runs; its name where the
    terms are of different values."""
    cells = [[cell for cell, _ in find_operands(term)] for term in terms]
    names = {tuple(cell.name for cell in each) for each in cells}
    if len(names) > 1 or (node.step and node.step.op is add):
        return [[["name", each[0].name, None]] if each else [] for each in cells]
    summed = _find_summed_axes(node, cells)
    return [_place(node.trace, each, summed) for each in cells]


def _find_summed_axes(node: Derivation, cells: list[list[Cell]]) -> set[tuple[int, str]]:
    """Returns (factor, axis) where the terms differ; of a single term, where more than one index is read."""
    axes = {
        (i, axis): {each[i].index[number] for each in cells}
        for i, cell in enumerate(cells[0])
        for number, axis in enumerate(node.trace.about(cell.name).axes)
    }
    if len(cells) > 1 or node.step is None:
        return {key for key, indices in axes.items() if len(indices) > 1}
    shapes = [node.trace.value(name).shape for name in node.step.inputs]
    boxes = node.step.op.reads(node.index, shapes, node.step.attrs).boxes
    read = {
        (name, axis)
        for name, box in zip(node.step.inputs, boxes, strict=True)
        for axis, positions in zip(node.trace.about(name).axes, box, strict=True)
        if len(positions) > 1
    }
    return {(i, axis) for i, axis in axes if (cells[0][i].name, axis) in read}


def _place(trace: Trace, cells: list[Cell], summed: set[tuple[int, str]]) -> list[list[Any]]:
    found: dict[str, list[Any]] = {}
    for i, cell in enumerate(cells):
        for axis, index in trace.places(cell.name, cell.index):
            if (i, axis) in summed and axis not in found:
                found[axis] = [axis, index, show_label(trace, cell.name, axis, index, cell.index)]
    plain = [place for axis, place in found.items() if axis not in _STORAGE]
    return plain or list(found.values())
