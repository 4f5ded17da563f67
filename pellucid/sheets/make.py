"""Makes a worksheet from a trace: which cells are asked, which are printed, and with how many digits.

From the cells in focus downwards, level by level: the rule of each cell is a box, and the cells that it reads
are the next level, until a parameter, a name that fits `stop`, or a level that would exceed `boxes`. What is
read below that is printed.
"""

import fnmatch
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pellucid.errors import AddressError, UsageError
from pellucid.explain import address as addresses
from pellucid.explain.expression import Expression
from pellucid.explain.rule import Rule, compute, find_keys
from pellucid.explain.trace import Trace
from pellucid.judge.mistakes.wrong_rules import find_wrong_rules
from pellucid.reference.op import Array, Index
from pellucid.sheets.cells import WHOLE, CellId, Cells
from pellucid.sheets.checks import find_checks
from pellucid.sheets.digits import count_decimals, is_exact, print_given
from pellucid.sheets.parts import share_parts
from pellucid.sheets.sheet import Box, Sheet
from pellucid.sheets.symbols import find_symbols, name_part

BOXES, TOP, DIGITS = 20, 4, 4
"""The boxes, the terms of a folded sum, and the digits of a sheet, by default."""
MOST_BOXES = 5000
VISIBLE = 2.5
"""Units of the last asked place by which a mistake must move its box to be seen."""
LABELLED = 64
"""The longest axis whose labels a sheet carries."""


@dataclass
class _Draft:
    """A box before its digits are known."""

    key: str
    name: str
    index: Index | None
    rule: Rule
    formula: str
    is_focus: bool


def make_sheet(
    trace: Trace,
    focus: Sequence[str],
    stop: Sequence[str] = (),
    boxes: int = BOXES,
    top: int = TOP,
    digits: int = DIGITS,
    title: str = "",
    source: dict[str, Any] | None = None,
) -> Sheet:
    """Returns a worksheet on the cells that `focus` addresses; an axis left out means all of it, of a long
    one the largest numbers."""
    cells = Cells(trace, top)
    targets = [cell for at in focus for cell in _find_focus(trace, cells, at)]
    if not targets:
        raise UsageError(
            f"{', '.join(focus)} is given, not computed: there is nothing to ask; choose a later value."
        )
    drafts = _draft_boxes(cells, targets, stop, boxes)
    rules = {draft.key: draft.rule for draft in drafts}
    exact = {key: float(trace.value(name)[index]) for key, (name, index) in cells.read.items()}
    exact |= {key: rest for key, (rest, _) in cells.rests.items()}
    right = dict(exact)
    for key, rule in rules.items():
        right[key] = compute(rule, right)
    read = {key for rule in rules.values() for key in find_keys(rule)} - set(rules)
    symbols = find_symbols(trace, {key: cells.read[key] for key in (*rules, *read) if key in cells.read})
    symbols |= {key: _name_rest(count) for key, (_, count) in cells.rests.items()}
    for draft in drafts:
        if draft.index is None:
            symbols[draft.key] = name_part(draft.rule, symbols)
    decimals = _find_decimals(drafts, right, digits)
    order = _order_given(trace, cells, read)
    asked = [draft.key for draft in drafts if draft.is_focus]
    given, decimals = print_given(
        {key: (exact[key], symbols[key]) for key in order}, rules, decimals, asked, right, digits
    )
    is_known = {key: number.exact for key, number in given.items()}
    made = list[Box]()
    for draft in drafts:
        is_known[draft.key] = is_exact(right[draft.key]) and all(
            is_known[key] for key in find_keys(draft.rule)
        )
        step = trace.tape.steps[draft.name]
        made.append(
            Box(
                key=draft.key,
                symbol=symbols[draft.key],
                meaning=trace.about(draft.name).meaning if draft.index is not None else "",
                step=draft.name,
                op=step.op.name,
                phase=step.phase,
                formula=draft.formula if draft.index is not None else symbols[draft.key],
                rule=draft.rule,
                decimals=decimals[draft.key],
                exact=is_known[draft.key],
                focus=draft.is_focus,
            )
        )
    sheet = Sheet(
        title=title or f"{trace.run.get('model', 'A tape')}: {', '.join(focus)}",
        boxes=tuple(made),
        given=given,
        checks=find_checks(trace, made, cells),
        source={"focus": list(focus), "stop": list(stop)} | _describe_source(trace) | (source or {}),
        labels={axis: list(texts) for axis, texts in trace.labels.items() if len(texts) <= LABELLED},
    )
    return _attach_mistakes(sheet, trace, cells, drafts)


# ---- which cells


def _find_focus(trace: Trace, cells: Cells, at: str) -> list[str]:
    """Returns the keys of the cells that an address means, copies seen through; of an axis that is left out
    and long, those of the largest numbers."""
    part = addresses.parse(trace, at)
    value = trace.value(part.name)
    if value.dtype.kind != "f":
        raise AddressError(f"{at} holds ids, which are given: choose a value that is computed from them.")
    axes: list[Sequence[int]] = [
        (i,) if i is not None else range(size) if size <= WHOLE else _find_largest(value, part.index, axis)
        for axis, (i, size) in enumerate(zip(part.index, value.shape, strict=True))
    ]
    found = dict.fromkeys(cells.resolve(part.name, index) for index in itertools.product(*axes))
    return [key for key in found if isinstance(key, str) and cells.read[key][0] in trace.tape.steps]


def _find_largest(value: Array, index: Sequence[int | None], axis: int) -> Sequence[int]:
    """Returns the places on an axis with the largest numbers in the part that an index means."""
    part = np.abs(value[tuple(slice(None) if i is None else slice(i, i + 1) for i in index)])
    largest = part.max(axis=tuple(a for a in range(value.ndim) if a != axis))
    return sorted(int(i) for i in np.argsort(-largest, kind="stable")[:TOP])


def _draft_boxes(cells: Cells, targets: Sequence[str], stop: Sequence[str], limit: int) -> list[_Draft]:
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
            and _can_ask(cells.read[key][0], steps, stop)
        ]
    shared = _share(cells, rules)
    place = {name: i for i, name in enumerate(steps)}
    wanted = set(targets)
    return sorted(
        (
            _Draft(key, name, index, rule, formulas[name, index] if index is not None else "", key in wanted)
            for key, (name, index, rule) in shared.items()
        ),
        key=lambda draft: place[draft.name],
    )


def _can_ask(name: str, steps: Any, stop: Sequence[str]) -> bool:
    return name in steps and not any(fnmatch.fnmatchcase(name, pattern) for pattern in stop)


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
    for (name, index), rule in sorted(rules.items()):
        by_name.setdefault(name, {})[cells.trace.address(name, index)] = rule
    return {
        key: (name, cells.read[key][1] if key in cells.read else None, rule)
        for name, of in by_name.items()
        for key, rule in share_parts(name, of).items()
    }


# ---- digits and names


def _find_decimals(drafts: Sequence[_Draft], values: dict[str, float], digits: int) -> dict[str, int]:
    """Returns the decimals of each box: one number for the cells of a step, one for its shared parts."""
    groups: dict[tuple[str, bool], list[str]] = {}
    for draft in drafts:
        groups.setdefault((draft.name, draft.index is None), []).append(draft.key)
    found = dict[str, int]()
    for keys in groups.values():
        decimals = count_decimals((values[key] for key in keys), digits)
        found |= dict.fromkeys(keys, decimals)
    return found


def _name_rest(count: int) -> str:
    return f"the other {count:,} terms" if count > 1 else "the other term"


def _order_given(trace: Trace, cells: Cells, read: set[str]) -> list[str]:
    """Returns the keys of the printed numbers in the tape's order, remainders last."""
    place = {name: i for i, name in enumerate(trace.tape.values)}
    named = sorted(
        (key for key in read if key in cells.read),
        key=lambda key: (place[cells.read[key][0]], cells.read[key][1]),
    )
    return named + sorted(key for key in read if key not in cells.read)


def _describe_source(trace: Trace) -> dict[str, Any]:
    """Returns what the sheet says of its run: the model, the prompts, the targets as text."""
    vocabulary, targets = trace.labels.get("v", []), trace.run.get("targets")
    texts = [vocabulary[id] for row in targets or [] for id in row if 0 <= id < len(vocabulary)]
    found = {
        "model": trace.run.get("model"),
        "prompts": trace.labels.get("b") or ([" ".join(trace.labels["t"])] if "t" in trace.labels else None),
        "targets": texts or None,
    }
    return {key: value for key, value in found.items() if value is not None}


# ---- mistakes


def _attach_mistakes(sheet: Sheet, trace: Trace, cells: Cells, drafts: Sequence[_Draft]) -> Sheet:
    """Returns the sheet with the wrong rules of each box that move it visibly; the names of those that no box
    shows are in `source["unseen"]`."""
    values, on_sheet = sheet.key, set(sheet.given)
    seen, unseen = set[str](), set[str]()
    boxes = []
    for box, draft in zip(sheet.boxes, drafts, strict=True):
        wrong = {}
        if draft.index is not None:
            for name, rule in _find_wrong(trace, cells, draft, on_sheet):
                moved = abs(compute(rule, values) - values[box.key])
                if moved > VISIBLE * 10.0**-box.decimals or np.isnan(moved):
                    wrong[name] = rule
                else:
                    unseen.add(name)
        seen |= set(wrong)
        boxes.append(replace(box, mistakes=wrong))
        on_sheet.add(box.key)
    source = dict(sheet.source) | ({"unseen": sorted(unseen - seen)} if unseen - seen else {})
    return replace(sheet, boxes=tuple(boxes), source=source)


def _find_wrong(trace: Trace, cells: Cells, draft: _Draft, on_sheet: set[str]) -> Iterator[tuple[str, Rule]]:
    assert draft.index is not None

    def translate(expression: Expression) -> Rule | None:
        rule = cells.translate(expression, draft.name)
        return rule if rule is not None and on_sheet.issuperset(find_keys(rule)) else None

    step = trace.tape.steps[draft.name]
    found = find_wrong_rules(trace, step, draft.index, draft.rule, translate)
    return ((name, rule) for name, rule in found.items() if rule != draft.rule)


# ---- rows worth doing


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
