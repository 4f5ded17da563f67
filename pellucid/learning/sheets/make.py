"""Makes a worksheet from a trace: the boxes and their rules, the numbers that are printed, and the mistakes
that would show.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pellucid.base.errors import UsageError
from pellucid.base.names import IGNORE_INDEX, describe
from pellucid.explanation.expression import Expression
from pellucid.explanation.formula import find_local_name
from pellucid.explanation.rule import Rule, compute, find_keys, format_rule, is_call
from pellucid.explanation.trace import Trace
from pellucid.learning.sheets.cells import Cells, find_textbook_form
from pellucid.learning.sheets.digits import count_decimals, is_exact, print_given
from pellucid.learning.sheets.drafts import BoxDraft, draft_boxes, find_focus
from pellucid.learning.sheets.sheet import Box, Sheet, SumCheck
from pellucid.reference.op import Index
from pellucid.verification.mistakes.variant import base_name
from pellucid.verification.mistakes.wrong_rules import find_wrong_rules

BOXES, TOP, DIGITS = 20, 4, 4
"""The boxes, the terms of a folded sum, and the digits of a sheet, by default."""
VISIBLE = 2.5
"""Units of the last asked place by which a mistake must move its box to be seen."""
NOISE = 1e-13
"""The share of its terms below which a sum is rounding noise."""
LABELLED = 64
"""The longest axis whose labels a sheet carries."""


def make_sheet(
    trace: Trace,
    focus: Sequence[str],
    stop: Sequence[str] = (),
    boxes: int = BOXES,
    top: int = TOP,
    digits: int = DIGITS,
    title: str = "",
    source: Mapping[str, Any] | None = None,
) -> Sheet:
    """Returns a worksheet on the cells that `focus` addresses; an axis left out means all of it, of a long
    one the largest numbers.

    It asks at most `boxes` numbers, or what is in focus; values that fit the patterns of `stop` are printed.
    A long sum shows `top` terms and its exact remainder. About `digits` digits are asked of each number.
    """
    cells = Cells(trace, top, stop)
    targets = [key for at in focus for key in find_focus(cells, at)]
    if not targets:
        raise UsageError(
            f"{', '.join(focus)} is given, not computed: there is nothing to ask; choose a later value."
        )
    drafts = draft_boxes(cells, targets, boxes)
    printed = _print(cells, drafts, digits)
    numbers = [*printed["given"].items(), *((box.key, box) for box in printed["boxes"] if "~" not in box.key)]
    equal = find_equal_symbols(
        trace, {key: number.symbol for key, number in numbers}, [draft.name for draft in drafts]
    )
    return _attach_mistakes(
        Sheet(
            title=title or f"{trace.run.get('model', 'A tape')}: {', '.join(focus)}",
            source={"focus": list(focus), "stop": list(stop)}
            | _describe_source(trace)
            | _describe_values(trace)
            | ({"equal": equal} if equal else {})
            | dict(source or {}),
            labels={axis: list(texts) for axis, texts in trace.labels.items() if len(texts) <= LABELLED},
            **printed,
        ),
        cells,
        drafts,
    )


def _print(cells: Cells, drafts: Sequence[BoxDraft], digits: int) -> dict[str, Any]:
    """Returns the given numbers, the boxes and the checks of a sheet, with their digits."""
    trace, rules = cells.trace, {draft.key: draft.rule for draft in drafts}
    values = {key: float(trace.value(name)[index]) for key, (name, index) in cells.read.items()}
    values |= {key: rest for key, (rest, _) in cells.rests.items()}
    read = _order_given(cells, {key for rule in rules.values() for key in find_keys(rule)} - set(rules))
    symbols = _find_symbols(cells, drafts, read)
    numbers = {key: (values[key], symbols[key]) for key in read}
    for key, rule in rules.items():
        values[key] = compute(rule, values)
    decimals = _find_decimals(drafts, values, digits)
    focus = [draft.key for draft in drafts if draft.is_focus]
    given, decimals = print_given(numbers, rules, decimals, focus, values, digits)
    exact = {key for key, number in given.items() if number.exact}
    boxes = list[Box]()
    for draft in drafts:
        if is_exact(values[draft.key]) and exact.issuperset(find_keys(draft.rule)):
            exact.add(draft.key)
        step, symbol = trace.tape.steps[draft.name], symbols[draft.key]
        boxes.append(
            Box(
                key=draft.key,
                symbol=symbol,
                meaning=trace.about(draft.name).meaning if draft.index is not None else "",
                step=draft.name,
                op=step.op.name,
                phase=step.phase,
                formula=draft.formula or symbol,
                rule=draft.rule,
                decimals=decimals[draft.key],
                exact=draft.key in exact,
                focus=draft.is_focus,
            )
        )
    return {"given": given, "boxes": tuple(boxes), "checks": find_checks(trace, boxes, cells)}


def _order_given(cells: Cells, read: set[str]) -> list[str]:
    """Returns the keys of the printed numbers in the tape's order, remainders last."""
    place = {name: i for i, name in enumerate(cells.trace.tape.values)}
    named = {key: cells.read[key] for key in read if key in cells.read}
    ordered = sorted(named, key=lambda key: (place[named[key][0]], named[key][1]))
    return ordered + sorted(read - set(named))


def _find_symbols(cells: Cells, drafts: Sequence[BoxDraft], read: Sequence[str]) -> dict[str, str]:
    keys = [*(draft.key for draft in drafts), *read]
    symbols = find_symbols(cells.trace, {key: cells.read[key] for key in keys if key in cells.read})
    symbols |= {key: name_rest(count) for key, (_, count) in cells.rests.items()}
    for draft in drafts:
        if draft.index is None:
            symbols[draft.key] = name_part(draft.rule, symbols)
    return symbols


def _find_decimals(drafts: Sequence[BoxDraft], values: Mapping[str, float], digits: int) -> dict[str, int]:
    """Returns the decimals of each box: one number for the cells of a step, one for its shared parts."""
    groups: dict[tuple[str, bool], list[BoxDraft]] = {}
    for draft in drafts:
        groups.setdefault((draft.name, draft.index is None), []).append(draft)
    found = dict[str, int]()
    for group in groups.values():
        numbers = [0.0 if _is_noise(draft, values) else values[draft.key] for draft in group]
        found |= dict.fromkeys((draft.key for draft in group), count_decimals(numbers, digits))
    return found


def _is_noise(draft: BoxDraft, values: Mapping[str, float]) -> bool:
    """Tests whether a number is only what rounding left of terms that cancel, as in the gradient of a key's
    bias, which is 0."""
    largest = max((abs(values[key]) for key in find_keys(draft.rule)), default=0.0)
    return abs(values[draft.key]) < NOISE * largest


def _describe_source(trace: Trace) -> dict[str, Any]:
    """Returns what the sheet says of its run: the model, the prompts, the targets as text."""
    vocabulary, targets = trace.labels.get("v", []), trace.run.get("targets") or []
    texts = [" ".join(vocabulary[id] for id in row if 0 <= id < len(vocabulary)) for row in targets]
    prompts = trace.labels.get("b")
    if prompts is None and "t" in trace.labels:  # one prompt, which the tokens of its target follow
        counted = [t for t, id in enumerate(targets[0]) if id != IGNORE_INDEX] if targets else []
        tokens = trace.labels["t"]
        prompts = [" ".join(tokens[: counted[0] + 1] if counted else tokens)]
    found = {"model": trace.run.get("model"), "prompts": prompts, "targets": texts if any(texts) else None}
    return {key: value for key, value in found.items() if value is not None}


def _describe_values(trace: Trace) -> dict[str, Any]:
    """Returns what the values of a tape are that the glossary does not know: those of a lesson's program."""
    own = (name for name in trace.tape.values if name not in trace.tape.steps and not describe(name))
    meanings = {name: meaning for name in own if (meaning := trace.about(name).meaning)}
    return {"meanings": meanings} if meanings else {}


# ---- mistakes


def _attach_mistakes(sheet: Sheet, cells: Cells, drafts: Sequence[BoxDraft]) -> Sheet:
    """Returns the sheet with the wrong rules of each box that move it visibly; the names of those that no box
    shows are in `source["unseen"]`."""
    values, on_sheet = sheet.key, set(sheet.given)
    seen, unseen = set[str](), set[str]()
    boxes = list[Box]()
    for box, draft in zip(sheet.boxes, drafts, strict=True):
        wrong = {}
        for name, rule in _find_wrong(cells, draft, on_sheet):
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


def _find_wrong(cells: Cells, draft: BoxDraft, on_sheet: set[str]) -> Iterator[tuple[str, Rule]]:
    """Yields the wrong rules of a box that read only what stands on the sheet before it."""
    if draft.index is None:
        return

    def translate(expression: Expression) -> Rule | None:
        rule = cells.translate(expression, draft.name)
        return rule if rule is not None and on_sheet.issuperset(find_keys(rule)) else None

    step = cells.trace.tape.steps[draft.name]
    found = find_wrong_rules(cells.trace, step, draft.index, draft.rule, translate)
    yield from ((name, rule) for name, rule in found.items() if rule != draft.rule)


def find_checks(trace: Trace, boxes: Sequence[Box], cells: Cells) -> tuple[SumCheck, ...]:
    """Returns the rows that stand whole on a sheet and have a known sum."""
    rows: dict[tuple[str, Index], list[Box]] = {}
    for box in boxes:
        if box.key in cells.read:
            name, index = cells.read[box.key]
            rows.setdefault((name, index[:-1]), []).append(box)
    checks = []
    for (name, row), found in rows.items():
        total = _find_sum(trace, name, (*row, 0)) if trace.value(name).ndim else None
        if total is None:
            continue
        asked = {cells.read[box.key][1][-1] for box in found}
        others = [v for i, v in enumerate(trace.value(name)[row]) if i not in asked]
        if len(found) > 1 and not any(others):  # what is not asked is masked
            checks.append(SumCheck(tuple(box.key for box in found), total))
    return tuple(checks)


def _find_sum(trace: Trace, name: str, index: Index) -> float | None:
    step = trace.tape.steps[name]
    if step.op.name == "softmax":
        return 1.0
    if step.op.name == "softmax_back" or (step.op.name == "add" and find_textbook_form(trace, step, index)):
        return 0.0
    return None


_LAYER = re.compile(r"blocks\.(\d+)\.")
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def find_symbols(trace: Trace, cells: Mapping[str, tuple[str, Index]]) -> dict[str, str]:
    """Returns a symbol for each key, no two alike: the glossary's, with the layer raised where the sheet has
    several, and the module where one layer has the symbol twice."""
    names = sorted({name for name, _ in cells.values()})
    bases = {name: trace.about(name).symbol for name in names}
    for qualify in (_add_layer, _add_module):
        alike = defaultdict[str, list[str]](list)
        for name, base in bases.items():
            alike[base].append(name)
        bases = {name: qualify(base, name) if len(alike[base]) > 1 else base for name, base in bases.items()}
    return {key: bases[name] + _format_places(trace, name, index) for key, (name, index) in cells.items()}


def name_part(rule: Rule, symbols: Mapping[str, str]) -> str:
    """Returns the symbol of a shared part: its arithmetic, or Σ e^ℓ[1,·] for a sum (or maximum) of like
    terms."""
    text = format_rule(rule, symbols.__getitem__)
    if not is_call(rule, "+", "max"):
        return text
    terms = [
        re.split(r"([\[\],])", format_rule(term, symbols.__getitem__))
        for term in rule.args
        if not is_call(term, "rest")
    ]
    if len({len(term) for term in terms}) > 1:
        return f"({text})"
    columns = [set(column) for column in zip(*terms, strict=True)]
    sign = "Σ" if rule.function == "+" else "max"
    return f"{sign} " + "".join(column.pop() if len(column) == 1 else "·" for column in columns)


def name_rest(count: int) -> str:
    """Returns the symbol of a folded remainder."""
    return f"the other {count:,} terms" if count > 1 else "the other term"


def _add_layer(symbol: str, name: str) -> str:
    layer = _LAYER.search(name)
    head, at, update = symbol.partition("@")
    return f"{head}{layer[1].translate(_RAISED)}{at}{update}" if layer else symbol


def _add_module(symbol: str, name: str) -> str:
    module = _LAYER.sub("", name.removeprefix("d.")).rpartition(".")[0].replace("_", " ")
    head, at, update = symbol.partition("@")
    return f"{head}({module}){at}{update}" if module else symbol


def _format_places(trace: Trace, name: str, index: Index) -> str:
    """Returns the indices in the formula's order, tokens of the vocabulary by their text."""
    about, places = trace.about(name), trace.places(name, index)
    texts = [(trace.label(name, axis, i, index) if axis == "v" else None) or str(i) for axis, i in places]
    ordered = texts[::-1] if about.transposed else texts
    return f"[{','.join(ordered)}]" if ordered else ""


# ---- symbols in the formulas without numbers of their own on the sheet, and equal to others in this run: as
# the masked scores M equal the scores S in a row that no mask changes, and O equals Z with one head


def find_equal_symbols(trace: Trace, symbols: Mapping[str, str], steps: Iterable[str]) -> list[str]:
    """Returns "M = S" for each symbol that a formula of `steps` reads and that no number of the sheet has;
    `symbols` are those of the sheet's numbers by key."""
    printed = {key.partition("[")[0]: symbol.partition("[")[0] for key, symbol in symbols.items()}
    found: dict[str, str] = {}
    for name in dict.fromkeys(steps):
        for read in trace.tape.steps[name].inputs:
            symbol = trace.about(find_local_name(trace, read, name)).symbol
            source = _find_source(trace, read, printed)
            if source and symbol not in (*printed.values(), trace.about(source).symbol):
                is_masked = not np.isfinite(trace.value(read)).all()
                found.setdefault(symbol, f"{printed[source]}{' where it is not −∞' if is_masked else ''}")
    return [f"{symbol} = {other}" for symbol, other in found.items()]


def _find_source(trace: Trace, name: str, printed: Mapping[str, str]) -> str | None:
    """Returns the printed value whose numbers a value has: it is passed on, or not changed by an update."""
    if name in printed:
        return name
    if base_name(name) in printed and _are_equal(trace, name, base_name(name)):
        return base_name(name)
    step = trace.tape.steps.get(name)
    same = (read for read in step.inputs if _are_equal(trace, name, read)) if step else iter(())
    return next((source for read in same if (source := _find_source(trace, read, printed))), None)


def _are_equal(trace: Trace, name: str, other: str) -> bool:
    """Tests whether all finite numbers of a value are those of another, axes of length 1 apart."""
    values, others = (np.squeeze(trace.value(of)) for of in (name, other))
    is_finite = np.isfinite(values)
    return (
        values.shape == others.shape
        and is_finite.any()
        and np.array_equal(values[is_finite], others[is_finite])
    )
