"""The formula of a step: the operation's template, filled with the symbols and axes of its values."""

import re
from collections.abc import Sequence

from pellucid.base.formatting import format_number
from pellucid.explanation.notation import Infix, Literal, Node, Symbol, fill, parse, slots
from pellucid.explanation.trace import Trace
from pellucid.explanation.typeset import MathTree, make_mathml_tree, write_latex, write_mathml, write_text
from pellucid.reference.op import Index, each, rows
from pellucid.reference.ops.einsum import Spec, einsum, format_scale, sizes_of
from pellucid.reference.ops.einsum import parse as parse_spec
from pellucid.reference.tape import Step

MOST_TERMS = 6
"""Terms of a sum that are all named."""
_BLOCK = re.compile(r"blocks\.\d+\.")
_SLOT = re.compile(r"(?P<row>r)?(?P<input>\d+)(?:\[(?P<last>\w*)\])?")


class Formula(str):
    """A formula: a string, with `to_mathml()`, `to_latex()` and the `tree` that they are written from."""

    tree: Node

    def __new__(cls, tree: Node) -> "Formula":
        made = super().__new__(cls, write_text(tree))
        made.tree = tree
        return made

    def to_mathml(self) -> str:
        """Returns the formula as a `<math>` element, for a browser."""
        return write_mathml(self.tree)

    def to_mathml_tree(self) -> MathTree:
        """Returns the same element as nested lists, ["mrow", {attributes}, child, …]."""
        return make_mathml_tree(self.tree)

    def to_latex(self) -> str:
        """Returns the formula for LaTeX's math mode, without the dollar signs."""
        return write_latex(self.tree)


def build_formula(trace: Trace, step: Step, index: Index) -> Formula:
    """Returns for example P[t,s] = e^M[t,s] / Σ_s' e^M[t,s'], without the axes of length 1."""
    if step.op is einsum:
        return Formula(_EinsumFormula(trace, step).fill())
    shapes = [trace.value(name).shape for name in step.inputs]
    template = step.op.formula
    tree = parse(template if isinstance(template, str) else template(index, shapes, **step.attrs))
    aligned = trace.about(step.name).axes if step.op.reads in (each, rows) else ()
    symbols = [_symbol(trace, find_local_name(trace, name, step.name), aligned) for name in step.inputs]
    axes = trace.about(step.inputs[0]).axes
    values: dict[str, Node] = {
        key: Literal(format_number(v, 5) if isinstance(v, int | float) else str(v))
        for key, v in step.attrs.items()
    }
    values |= {"y": _symbol(trace, step.name), "row": Symbol(f"{axes[-1]}'" if axes else "")}
    for key in slots(tree) - set(values):
        if not (found := _SLOT.fullmatch(key)):
            continue
        last = f"{axes[-1]}'" if found["row"] and axes else found["last"]
        values[key] = _replace_last_axis(symbols[int(found["input"])], last)
    return Formula(fill(tree, values))


def build_sum_formula(trace: Trace, name: str, terms: Sequence[str]) -> Formula:
    """Returns the formula of a value that is the sum of these: X = X_E + A + … + F."""
    shown: list[Node] = [_symbol(trace, term, trace.about(name).axes) for term in terms]
    if len(shown) > MOST_TERMS:
        shown[2:-1] = [Symbol("…")]
    return Formula(Infix((_symbol(trace, name), Infix(tuple(shown), ("+",) * (len(shown) - 1))), ("=",)))


def _replace_last_axis(symbol: Symbol, last: str | None) -> Symbol:
    """Returns the symbol with another index on its last axis; without axes where that is empty."""
    if last is None or not symbol.axes:
        return symbol
    axes = (*symbol.axes[:-1], last) if last else ()
    return Symbol(symbol.text, axes, symbol.is_gradient)


def _symbol(trace: Trace, name: str, of: tuple[str, ...] = ()) -> Symbol:
    """Returns a value's symbol with its axes, under the result's letters where those differ."""
    about, shape = trace.about(name), trace.value(name).shape
    letters = list(about.axes)
    for i in range(1, min(len(letters), len(of)) + 1):
        if letters[-i] not in of and of[-i] not in letters and letters[-i] != "pair":
            letters[-i] = of[-i]
    return _index_symbol(trace, name, [a for a, size in zip(letters, shape, strict=True) if size > 1])


def _index_symbol(trace: Trace, name: str, axes: list[str]) -> Symbol:
    about = trace.about(name)
    ordered = axes[::-1] if about.transposed else axes
    return Symbol(about.symbol, tuple(ordered), name.startswith("d."))


def find_local_name(trace: Trace, name: str, reader: str) -> str:
    """Returns the name of a value in its reader's block: resid_pre, not the last block's resid_post."""
    d = "d." if name.startswith("d.") else ""
    theirs, mine = (_BLOCK.match(n.removeprefix("d.")) for n in (name, reader))
    if not theirs or not mine or theirs[0] == mine[0]:
        return name
    target = name.removeprefix("d.")
    own = (alias for alias, of in trace.tape.aliases.items() if of == target and alias.startswith(mine[0]))
    return d + next(own, target)


class _EinsumFormula:
    """The formula of an einsum: its letters, renamed to the axes of the values."""

    def __init__(self, trace: Trace, step: Step) -> None:
        self.trace, self.step = trace, step
        self.spec: Spec = parse_spec(step.attrs["spec"])
        given = {key: size for key, size in step.attrs.items() if key not in ("spec", "scale")}
        self.sizes = sizes_of(self.spec.operands, [trace.value(name).shape for name in step.inputs], given)
        self.values = [(step.name, self.spec.result), *zip(step.inputs, self.spec.operands, strict=True)]
        self.groups = self._name_groups()

    def _name_groups(self) -> dict[str, str]:
        """Returns the axis name of each letter, or of a whole group of letters."""
        groups: dict[str, str] = {}
        for name, axes in self.values:
            for group, axis in zip(axes, self.trace.about(name).axes, strict=True):
                letters = self._long(group)
                if letters and axis not in ("out", "in") and axis not in groups.values():
                    groups.setdefault(letters, axis)
        for name, axes in self.values:  # letters that no other axis names
            for group, axis in zip(axes, self.trace.about(name).axes, strict=True):
                is_free = axis in ("out", "in") and axis not in groups.values()
                if is_free and len(group) == 1 and self.sizes[group] > 1:
                    groups.setdefault(group, axis)
        return groups

    def _long(self, group: str) -> str:
        """Returns the letters of a group whose size is above 1."""
        return "".join(letter for letter in group if self.sizes[letter] > 1)

    def _axis(self, group: str) -> str:
        letters = self._long(group)
        return self.groups.get(letters) or "".join(self.groups.get(letter, letter) for letter in letters)

    def _symbol(self, name: str, axes: tuple[str, ...]) -> Symbol:
        local = find_local_name(self.trace, name, self.step.name)
        return _index_symbol(self.trace, local, [axis for group in axes if (axis := self._axis(group))])

    def fill(self) -> Node:
        spec, keys = self.spec, ["y", *map(str, range(len(self.step.inputs)))]
        values: dict[str, Node] = {
            key: self._symbol(*value) for key, value in zip(keys, self.values, strict=True)
        }
        letters = dict.fromkeys(letter for axes in spec.inputs for group in axes for letter in group)
        summed = [a for a in letters if a not in "".join(spec.result) and self.sizes[a] > 1]
        values["over"] = Symbol("".join(map(self._axis, summed)))
        total = "Σ_{over} " if summed else ""
        product = " ".join(f"{{{i}}}" for i in range(len(spec.inputs)))
        product += format_scale(self.step.attrs.get("scale", 1.0))
        bias = f" + {{{len(spec.inputs)}}}" if spec.bias is not None else ""
        explained = [g for g in self.groups if len(g) > 1 and self._is_split(g, summed)]
        values |= {f"axis {g}": Symbol(self.groups[g]) for g in explained}
        values |= {f"group {g}": Symbol(g) for g in explained}
        definitions = ", ".join(f"{{axis {g}}} = {{group {g}}}" for g in explained)
        return fill(
            parse(f"{{y}} = {total}{product}{bias}" + f",  {definitions}" * bool(definitions)), values
        )

    def _is_split(self, group: str, summed: list[str]) -> bool:
        """Returns whether letters of a group also appear alone, so that the formula must define the group."""
        alone = [a for axes in self.spec.inputs for axis in axes for a in axis if axis != group]
        return any(letter in group for letter in (*summed, *alone))
