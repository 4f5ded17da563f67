"""A step's formula in symbols: the operation's template, filled with its values' symbols and axes."""

from pellucid.explain.expression import figure
from pellucid.explain.trace import Trace
from pellucid.reference.op import Index
from pellucid.reference.ops.einsum import einsum, parse, scaled_by, sizes_of
from pellucid.reference.tape import Step


def formula(trace: Trace, step: Step, index: Index) -> str:
    """For example P[t,s] = e^M[t,s] / Σ_s e^M[t,s]; axes with one place are left out."""
    if step.op is einsum:
        return _einsum(trace, step)
    symbols = [_symbol(trace, name) for name in step.inputs]
    y = _symbol(trace, step.name)
    template = step.op.formula
    if not isinstance(template, str):
        return template(y, *symbols, **step.attrs)
    axes = trace.about(step.inputs[0]).axes
    attrs = {
        key: figure(value, 5) if isinstance(value, int | float) else value
        for key, value in step.attrs.items()
    }
    return template.format(*symbols, y=y, row=axes[-1] if axes else "", **attrs)


def _symbol(trace: Trace, name: str) -> str:
    about = trace.about(name)
    axes = [a for a, size in zip(about.axes, trace.value(name).shape, strict=True) if size > 1]
    return subscripted(about.symbol, axes[::-1] if about.transposed else axes)


def subscripted(symbol: str, axes: list[str]) -> str:
    return f"{symbol}[{','.join(axes)}]" if axes else symbol


def _einsum(trace: Trace, step: Step) -> str:
    """An einsum's formula follows its letters; letters with one place are left out."""
    spec = parse(step.attrs["spec"])
    given = {key: size for key, size in step.attrs.items() if key not in ("spec", "scale")}
    sizes = sizes_of(spec.operands, [trace.value(name).shape for name in step.inputs], given)
    # Letters of a general spec (abcd->abcd) give way to the value's own axes.
    own = dict(zip(spec.result, trace.about(step.name).axes, strict=True))
    rename = {old: new for old, new in own.items() if len(old) == len(new) == 1}
    if len(set(rename.values())) < len(rename) or not all(len(axis) == 1 for axis in spec.result):
        rename = {}

    def symbol(name: str, axes: tuple[str, ...]) -> str:
        about = trace.about(name)
        kept = ["".join(rename.get(i, i) for i in axis if sizes[i] > 1) for axis in axes]
        kept = [axis for axis in kept if axis]
        return subscripted(about.symbol, kept[::-1] if about.transposed else kept)

    inputs = [symbol(name, axes) for name, axes in zip(step.inputs, spec.operands, strict=True)]
    letters = {letter for axes in spec.inputs for axis in axes for letter in axis}
    summed = sorted(i for i in letters - set("".join(spec.result)) if sizes[i] > 1)
    total = f"Σ_{''.join(summed)} " if summed else ""
    product = " ".join(inputs[: len(spec.inputs)]) + scaled_by(step.attrs.get("scale", 1.0))
    bias = f" + {inputs[-1]}" if spec.bias is not None else ""
    return f"{symbol(step.name, spec.result)} = {total}{product}{bias}"
