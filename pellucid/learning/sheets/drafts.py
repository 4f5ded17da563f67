"""Cells that a sheet asks: from those in focus downwards, level by level, what each of them reads."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pellucid.base.errors import AddressError, UsageError
from pellucid.explanation import address as addresses
from pellucid.explanation.expression import Expression
from pellucid.explanation.rule import Rule, RuleCall, find_keys, transform, walk
from pellucid.explanation.trace import Trace
from pellucid.learning.sheets.cells import WHOLE, CellId, Cells
from pellucid.learning.sheets.sheet import MOST_BOXES
from pellucid.reference.op import Array, Index


@dataclass(frozen=True)
class BoxDraft:
    """A box before its digits are known; a shared part has no index."""

    key: str
    name: str
    index: Index | None
    rule: Rule
    formula: str
    is_focus: bool


def find_focus(cells: Cells, at: str) -> list[str]:
    """Returns the keys of the cells that an address means, copies seen through; of an axis that is left out
    and long, those of the largest numbers."""
    trace = cells.trace
    part = addresses.parse(trace, at)
    value = trace.value(part.name)
    if value.dtype.kind != "f":
        raise AddressError(f"{at} holds ids, which are given: choose a value that is computed from them.")
    axes: list[Sequence[int]] = [
        (i,)
        if i is not None
        else range(size)
        if size <= WHOLE
        else _find_largest(value, part.index, axis, cells.top)
        for axis, (i, size) in enumerate(zip(part.index, value.shape, strict=True))
    ]
    found = dict.fromkeys(cells.resolve(part.name, index) for index in itertools.product(*axes))
    return [key for key in found if isinstance(key, str) and cells.read[key][0] in trace.tape.steps]


def _find_largest(value: Array, index: Sequence[int | None], axis: int, top: int) -> Sequence[int]:
    """Returns the places on an axis with the largest numbers in the part that an index means."""
    part = np.abs(value[tuple(slice(None) if i is None else slice(i, i + 1) for i in index)])
    largest = part.max(axis=tuple(a for a in range(value.ndim) if a != axis))
    return sorted(int(i) for i in np.argsort(-largest, kind="stable")[:top])


def draft_boxes(cells: Cells, targets: Sequence[str], limit: int) -> list[BoxDraft]:
    """Returns the boxes in the tape's order, the shared parts of a step before its cells.

    A level is what the boxes of the level above read. The boxes end at a parameter, at a value that the
    cells stop at, and before a level that would exceed `limit`.
    """
    steps = cells.trace.tape.steps
    rules: dict[CellId, Rule] = {}
    formulas: dict[CellId, str] = {}
    level = list(dict.fromkeys(targets))
    while level:
        found, read = dict[CellId, Rule](), dict[str, None]()
        for name, keys in _group_by_name(cells, level).items():
            recorded = cells.record(steps[name], [cells.read[key][1] for key in keys])
            for key in keys:
                cell = cells.read[key]
                expression, formulas[cell] = recorded[cell[1]]
                found[cell] = _require_rule(cells, expression, cell)
                read |= dict.fromkeys(find_keys(found[cell]))
        count = len(_share(cells, rules | found))
        if rules and count > min(limit, MOST_BOXES):
            break
        rules |= found
        level = [
            key
            for key in read
            if key in cells.read
            and cells.read[key] not in rules
            and cells.read[key][0] in steps
            and not cells.fits_stop(cells.read[key][0])
        ]
    shared = _share(cells, rules)
    place = {name: i for i, name in enumerate(steps)}
    wanted = set(targets)
    return sorted(
        (
            BoxDraft(
                key, name, index, rule, formulas[name, index] if index is not None else "", key in wanted
            )
            for key, (name, index, rule) in shared.items()
        ),
        key=lambda draft: place[draft.name],
    )


def _group_by_name(cells: Cells, keys: Iterable[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for key in keys:
        groups.setdefault(cells.read[key][0], []).append(key)
    return groups


def _require_rule(cells: Cells, expression: Expression, cell: CellId) -> Rule:
    rule = cells.translate(expression, cell[0])
    if rule is None:
        at = cells.trace.address(*cell)
        raise UsageError(
            f"{at} uses a function that a worksheet cannot ask; name it in --stop to have it printed."
        )
    return rule


def _share(cells: Cells, rules: dict[CellId, Rule]) -> dict[str, tuple[str, Index | None, Rule]]:
    """Returns the boxes by key (value, index, rule), with the shared parts of each step before its cells."""
    by_name: dict[str, dict[str, Rule]] = {}
    for name, index in sorted(rules, key=lambda cell: _find_place(cells, cell)):
        by_name.setdefault(name, {})[cells.trace.address(name, index)] = rules[name, index]
    return {
        key: (name, cells.read[key][1] if key in cells.read else None, rule)
        for name, of in by_name.items()
        for key, rule in share_parts(name, of).items()
    }


def _find_place(cells: Cells, cell: CellId) -> tuple[str, Index]:
    """Returns the place of a cell among those of its step: row by row, as the formula has the matrix."""
    name, index = cell
    return name, index[::-1] if cells.trace.about(name).transposed else index


def propose_focus(trace: Trace, most: int = 5) -> list[str]:
    """Returns rows of attention patterns that are worth doing: the largest share between 0.35 and 0.7, none
    below 0.02, at most eight keys; without any, the probabilities at the last position."""
    found = []
    for name, step in trace.tape.steps.items():
        if step.op.name != "softmax" or not name.endswith("attn.pattern"):
            continue
        for index in np.ndindex(trace.value(name).shape[:-1]):
            row = trace.value(name)[index]
            seen = row[row > 0]
            if 2 < seen.size <= WHOLE and 0.35 < seen.max() < 0.7 and seen.min() > 0.02:
                places = trace.places(name, (*index, 0))
                fixed = ",".join(f"{axis}={i}" for axis, i in places if axis != trace.about(name).axes[-1])
                found.append(f"{name}[{fixed}]" if fixed else name)
    if found:
        return found[:: max(len(found) // most, 1)][:most]
    last = tuple(size - 1 for size in trace.value("probs").shape[:-1])
    fixed = ",".join(f"{axis}={i}" for axis, i in trace.places("probs", (*last, 0)) if axis != "v")
    return [f"probs[{fixed}]" if fixed else "probs"]


WORTH_A_BOX = ("exp", "+", "max", "log", "sqrt", "power", "tanh", "erf", "divide", "cos", "sin")
"""The functions whose result is written down once where it is used twice; a product is not."""


def share_parts(step: str, rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Returns the rules by key with each shared part replaced by its key `STEP~n`; the parts come first."""
    parts: dict[str, Rule] = {}
    made = dict(rules)
    while (part := _find_shared(list(made.values()))) is not None:
        key = f"{step}~{len(parts)}"
        made = {of: _replace(rule, part, key) for of, rule in made.items()}
        parts[key] = part
    return parts | made


def _replace(rule: Rule, part: Rule, key: str) -> Rule:
    return transform(rule, lambda found: key if found == part else found)


def _find_shared(rules: list[Rule]) -> Rule | None:
    """Returns the smallest part that stands in two of the rules; None where there is none."""
    counts: Counter[Rule] = Counter()
    for rule in rules:
        counts.update([*dict.fromkeys(part for part in walk(rule) if _is_worth_a_box(part))])
    shared = [part for part, count in counts.items() if count > 1]
    return min(shared, key=lambda part: sum(1 for _ in walk(part)), default=None)


def _is_worth_a_box(part: Rule) -> bool:
    return isinstance(part, RuleCall) and part.function in WORTH_A_BOX and any(find_keys(part))
