"""The symbol of a cell as a sheet prints it: P[1,0], with the layer where the sheet shows several."""

import re
from collections import defaultdict
from collections.abc import Mapping

from pellucid.explanation.rule import Rule, format_rule, is_call
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Index

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
