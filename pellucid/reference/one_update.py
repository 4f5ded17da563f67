"""One update of one parameter on a tape of its own, from the numbers that a run had before it.

Its names count as the log of a run does: X@k is the parameter after update k, X@k−1 before it, and d.X@k,
d.X.clipped@k, grad_norm@k and clip@k are the gradient that update k used, on its way into X@k.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pellucid.names import Name, describe
from pellucid.reference.op import Array, Ref
from pellucid.reference.ops import updates
from pellucid.reference.ops.arithmetic import LETTERS
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.optimizers import RULES
from pellucid.reference.tape import Step, Tape

LENGTHS = "lengths"
"""The length of every parameter's gradient: all that clipping reads of the others."""


@dataclass(frozen=True)
class Before:
    """What update k reads of a parameter: all of it before the update, but for its gradient."""

    name: str
    k: int
    weight: Array
    gradient: Array | None = None
    """None where the parameter did not learn."""
    lengths: Array = field(default_factory=lambda: np.zeros(0))
    moments: Mapping[str, Array] = field(default_factory=dict)
    """By "m" and "v"; what is not there was nothing."""
    mean: Array | None = None
    """The running mean of the weight, where there is one."""


@dataclass(frozen=True)
class Rule:
    """How: the name of a rule with its settings at this step, the limit of clipping (0: none), and the β of
    the running mean."""

    name: str
    settings: Mapping[str, Any]
    clip: float = 0.0
    ema: float = 0.0


def one_update(before: Before, rule: Rule) -> Tape:
    """Gradient, clipping, moments and new value as steps."""
    tape, name, k = Tape(), before.name, before.k
    tape.phase = "upd"
    w, g = tape.parameter(name, before.weight), tape.constant(f"d.{name}", before.gradient)
    norm = tape("grad_norm", updates.global_norm, tape.constant(LENGTHS, before.lengths))
    if rule.clip:
        factor, letters = tape("clip", updates.clip_factor, norm, limit=rule.clip), LETTERS[: len(g.shape)]
        g = tape(f"d.{name}.clipped", einsum, g, factor, spec=f"{letters},->{letters}")
    state = {f"{name}.{which}@{k - 1}": value for which, value in before.moments.items()}
    new = RULES[rule.name](tape, w, g, k, state, **rule.settings)
    if before.mean is not None:
        old = tape.constant(f"{name}.ema@{k - 1}", before.mean)
        tape(f"{name}.ema@{k}", updates.ema, old, new, beta=rule.ema)
    return _numbered(tape, before)


def no_update(before: Before) -> Tape:
    """A parameter that stayed as it was: it did not learn, or its gradient was no number to learn from."""
    tape, name, k = Tape(), before.name, before.k
    w = tape.parameter(name, before.weight)
    kept = {which: tape.constant(f"{name}.{which}@{k - 1}", m) for which, m in before.moments.items()}
    if before.mean is not None:
        kept["ema"] = tape.constant(f"{name}.ema@{k - 1}", before.mean)
    if before.gradient is not None:
        tape.phase = "upd"
        tape.constant(f"d.{name}", before.gradient)
        tape("grad_norm", updates.global_norm, tape.constant(LENGTHS, before.lengths))
    for ending, ref in {"": w, **{f".{which}": ref for which, ref in kept.items()}}.items():
        tape.alias(f"{name}{ending}@{k}", ref)
    return _numbered(tape, before)


def beginning(name: str, weight: Array) -> Tape:
    """A parameter before the first update."""
    tape = Tape()
    _tell(tape, tape.parameter(f"{name}@0", weight), name, "{}@0", "{} before the first update")
    return tape


def _numbered(tape: Tape, before: Before) -> Tape:
    """The same steps under names that say of which update they are."""
    k = before.k
    new = {name: name if "@" in name else f"{name}@{k}" for name in tape.values}
    new[before.name] = f"{before.name}@{k - 1}"
    made = Tape()
    made.values = {new[name]: value for name, value in tape.values.items()}
    made.roles = {new[name]: role for name, role in tape.roles.items()}
    made.aliases = {name: new[target] for name, target in tape.aliases.items()}
    made.about = {new[name]: replace(about, name=new[name]) for name, about in tape.about.items()}
    for name, step in tape.steps.items():
        inputs = tuple(new[read] for read in step.inputs)
        made.steps[new[name]] = Step(new[name], step.op, inputs, step.attrs, step.phase)
    _describe(made, before.name, k)
    return made


def _describe(tape: Tape, name: str, k: int) -> None:
    """The words of what only an update of a run has."""
    words = {
        f"d.{name}": ("d{}", f"gradient of {{}} in update {k}"),
        f"d.{name}.clipped": ("d{}ᶜ", f"gradient of {{}} in update {k}, clipped"),
        f"{name}.ema": (f"{{}}̄@{k}", f"EMA of {{}} after update {k}"),
    }
    for called, (symbol, meaning) in words.items():
        if (full := f"{called}@{k}") in tape.values:
            _tell(tape, tape.ref(full), name, symbol, meaning)
    if (old := f"{name}.ema@{k - 1}") in tape.values:
        _tell(tape, tape.ref(old), name, f"{{}}̄@{k - 1}", f"EMA of {{}} after update {k - 1}")
    if k == 1:
        _tell(tape, tape.ref(f"{name}@0"), name, "{}@0", "{} before the first update")
    plain = {
        "grad_norm": ("", "‖g‖", f"gradient norm in update {k}: of all gradients as one vector"),
        "clip": ("", "clip", f"clipping factor in update {k}: limit / max(gradient norm, limit)"),
        LENGTHS: ("parameter", "‖dW‖", f"gradient norm of each parameter in update {k}"),
    }
    for called, (axes, symbol, meaning) in plain.items():
        if (full := f"{called}@{k}") in tape.values:
            tape.about[full] = Name(full, tuple(axes.split()), symbol, meaning, engines="reference")


def _tell(tape: Tape, ref: Ref, of: str, symbol: str, meaning: str) -> None:
    if about := describe(of):
        told = replace(about, symbol=symbol.format(about.symbol), meaning=meaning.format(about.term))
        tape.about[ref.name] = replace(told, name=ref.name, engines="reference", invariant="")
