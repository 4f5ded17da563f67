"""A step's formula in symbols: the operation's template, filled with its values' symbols and axes."""

import re

from pellucid.explain.expression import figure
from pellucid.explain.trace import Trace
from pellucid.reference.op import Index, each, rows
from pellucid.reference.ops.einsum import einsum, parse, scaled_by, sizes_of
from pellucid.reference.tape import Step

_BLOCK = re.compile(r"blocks\.\d+\.")


def formula(trace: Trace, step: Step, index: Index) -> str:
    """For example P[t,s] = e^M[t,s] / Σ_s' e^M[t,s']; axes with one place are left out."""
    if step.op is einsum:
        return _einsum(trace, step)
    aligned = trace.about(step.name).axes if step.op.reads in (each, rows) else ()
    symbols = [_symbol(trace, _called(trace, name, step.name), aligned) for name in step.inputs]
    template = step.op.formula
    if not isinstance(template, str):
        shapes = [trace.value(name).shape for name in step.inputs]
        return template(index, shapes, _symbol(trace, step.name), *symbols, **step.attrs)
    axes = trace.about(step.inputs[0]).axes
    row = f"{axes[-1]}'" if axes else ""
    inside = {f"r{i}": re.sub(r"\w+\]$", f"{row}]", symbol) for i, symbol in enumerate(symbols)}
    attrs = {key: figure(v, 5) if isinstance(v, int | float) else v for key, v in step.attrs.items()}
    return template.format(*symbols, y=_symbol(trace, step.name), row=row, **inside, **attrs)


def _symbol(trace: Trace, name: str, of: tuple[str, ...] = ()) -> str:
    """A value's symbol with its axes; an axis that the result calls otherwise goes by the result's letter."""
    about, shape = trace.about(name), trace.value(name).shape
    letters = list(about.axes)
    for i in range(1, min(len(letters), len(of)) + 1):
        if letters[-i] not in of and of[-i] not in letters and letters[-i] != "pair":
            letters[-i] = of[-i]
    kept = [letter for letter, size in zip(letters, shape, strict=True) if size > 1]
    return subscripted(about.symbol, kept[::-1] if about.transposed else kept)


def _called(trace: Trace, name: str, reader: str) -> str:
    """A value of another block goes by its name in the reader's own: resid_pre, not their resid_post."""
    d = "d." if name.startswith("d.") else ""
    theirs, mine = (_BLOCK.match(n.removeprefix("d.")) for n in (name, reader))
    if not theirs or not mine or theirs[0] == mine[0]:
        return name
    target = name.removeprefix("d.")
    own = (alias for alias, of in trace.tape.aliases.items() if of == target and alias.startswith(mine[0]))
    return d + next(own, target)


def subscripted(symbol: str, axes: list[str]) -> str:
    return f"{symbol}[{','.join(axes)}]" if axes else symbol


def _einsum(trace: Trace, step: Step) -> str:
    """An einsum's formula follows its letters, under the names that the values' own axes give them."""
    spec = parse(step.attrs["spec"])
    given = {key: size for key, size in step.attrs.items() if key not in ("spec", "scale")}
    sizes = sizes_of(spec.operands, [trace.value(name).shape for name in step.inputs], given)
    values = [(step.name, spec.result), *zip(step.inputs, spec.operands, strict=True)]
    groups: dict[str, str] = {}  # letters (or a whole group of them) → the axis they are called by
    for name, axes in values:
        for group, axis in zip(axes, trace.about(name).axes, strict=True):
            letters = "".join(letter for letter in group if sizes[letter] > 1)
            if letters and axis not in ("out", "in") and axis not in groups.values():
                groups.setdefault(letters, axis)
    for name, axes in values:  # what no other axis names
        for group, axis in zip(axes, trace.about(name).axes, strict=True):
            if axis in ("out", "in") and len(group) == 1 and sizes[group] > 1 and axis not in groups.values():
                groups.setdefault(group, axis)

    def called(group: str) -> str:
        letters = "".join(letter for letter in group if sizes[letter] > 1)
        return groups.get(letters) or "".join(groups.get(letter, letter) for letter in letters)

    def symbol(name: str, axes: tuple[str, ...]) -> str:
        about = trace.about(_called(trace, name, step.name))
        kept = [shown for group in axes if (shown := called(group))]
        return subscripted(about.symbol, kept[::-1] if about.transposed else kept)

    y, *inputs = (symbol(name, axes) for name, axes in values)
    free = [letter for axes in spec.inputs for group in axes for letter in group]
    summed = [
        letter for letter in dict.fromkeys(free) if letter not in "".join(spec.result) and sizes[letter] > 1
    ]
    total = f"Σ_{''.join(called(letter) for letter in summed)} " if summed else ""
    product = " ".join(inputs[: len(spec.inputs)]) + scaled_by(step.attrs.get("scale", 1.0))
    bias = f" + {inputs[-1]}" if spec.bias is not None else ""
    shared = [
        f"{groups[g]} = {g}"
        for g in groups
        if len(g) > 1 and any(set(g) & set(s) for s in summed + _alone(spec.inputs, g))
    ]
    return f"{y} = {total}{product}{bias}" + (f",  {', '.join(shared)}" if shared else "")


def _alone(inputs: tuple[tuple[str, ...], ...], group: str) -> list[str]:
    """The letters of a group that also stand by themselves, so that the reader must be told what it holds."""
    return [
        letter for axes in inputs for axis in axes for letter in axis if letter in group and axis != group
    ]
