"""One update of one parameter on its own tape, from the numbers that a run had before it.

The names count updates as the log of a run does: X@k is the parameter after update k, X@k−1 before it, and
d.X@k, d.X.clipped@k, grad_norm@k and clip@k are the gradient that update k used.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pellucid.base.names import Name, describe
from pellucid.reference.op import Array, Ref
from pellucid.reference.ops import updates
from pellucid.reference.ops.arithmetic import LETTERS
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.optimizers import RULES
from pellucid.reference.tape import Step, Tape

LENGTHS = "lengths"
"""The gradient norm of each parameter: all that clipping reads of the others."""


@dataclass(frozen=True)
class UpdateInputs:
    """What update k of a parameter reads: its weight, gradient, moments and mean before the update."""

    name: str
    k: int
    weight: Array
    gradient: Array | None = None
    """None where the parameter is frozen."""
    lengths: Array = field(default_factory=lambda: np.zeros(0))
    moments: Mapping[str, Array] = field(default_factory=dict)
    """By "m" and "v"; a moment that is not there is 0."""
    mean: Array | None = None
    """The running mean of the weight, where there is one."""


@dataclass(frozen=True)
class UpdateRule:
    """The name of a rule with its settings at this step, the clipping norm (0: none), and the β of the
    running mean of the weight."""

    name: str
    settings: Mapping[str, Any]
    clip: float = 0.0
    ema: float = 0.0


def record_update(inputs: UpdateInputs, rule: UpdateRule) -> Tape:
    """Returns a tape with the gradient, its clipping, the moments and the new value as steps."""
    tape, name, k = Tape(), inputs.name, inputs.k
    tape.phase = "upd"
    w, g = tape.parameter(name, inputs.weight), tape.constant(f"d.{name}", inputs.gradient)
    norm = tape("grad_norm", updates.global_norm, tape.constant(LENGTHS, inputs.lengths))
    if rule.clip:
        factor, letters = tape("clip", updates.clip_factor, norm, limit=rule.clip), LETTERS[: len(g.shape)]
        g = tape(f"d.{name}.clipped", einsum, g, factor, spec=f"{letters},->{letters}")
    state = {f"{name}.{which}@{k - 1}": value for which, value in inputs.moments.items()}
    new = RULES[rule.name](tape, w, g, k, state, **rule.settings)
    if inputs.mean is not None:
        old = tape.constant(f"{name}.ema@{k - 1}", inputs.mean)
        tape(f"{name}.ema@{k}", updates.ema, old, new, beta=rule.ema)
    return _number_names(tape, inputs)


def record_skipped_update(inputs: UpdateInputs) -> Tape:
    """Returns the tape of a parameter that was not updated: it is frozen, or its gradient was not finite."""
    tape, name, k = Tape(), inputs.name, inputs.k
    w = tape.parameter(name, inputs.weight)
    kept = {which: tape.constant(f"{name}.{which}@{k - 1}", m) for which, m in inputs.moments.items()}
    if inputs.mean is not None:
        kept["ema"] = tape.constant(f"{name}.ema@{k - 1}", inputs.mean)
    if inputs.gradient is not None:
        tape.phase = "upd"
        tape.constant(f"d.{name}", inputs.gradient)
        tape("grad_norm", updates.global_norm, tape.constant(LENGTHS, inputs.lengths))
    for ending, ref in {"": w, **{f".{which}": ref for which, ref in kept.items()}}.items():
        tape.alias(f"{name}{ending}@{k}", ref)
    return _number_names(tape, inputs)


def record_initial(name: str, weight: Array) -> Tape:
    """Returns the tape of a parameter before the first update."""
    tape = Tape()
    _describe_like(tape, tape.parameter(f"{name}@0", weight), name, "{}@0", "{} before the first update")
    return tape


def _number_names(tape: Tape, inputs: UpdateInputs) -> Tape:
    """Returns the same steps under names with the number of their update."""
    k = inputs.k
    new = {name: name if "@" in name else f"{name}@{k}" for name in tape.values}
    new[inputs.name] = f"{inputs.name}@{k - 1}"
    numbered = Tape()
    numbered.values = {new[name]: value for name, value in tape.values.items()}
    numbered.roles = {new[name]: role for name, role in tape.roles.items()}
    numbered.aliases = {name: new[target] for name, target in tape.aliases.items()}
    numbered.about = {new[name]: replace(about, name=new[name]) for name, about in tape.about.items()}
    for name, step in tape.steps.items():
        reads = tuple(new[read] for read in step.inputs)
        numbered.steps[new[name]] = Step(new[name], step.op, reads, step.attrs, step.phase)
    _describe(numbered, inputs.name, k)
    return numbered


def _describe(tape: Tape, name: str, k: int) -> None:
    """Adds the glossary entries of the values that only an update of a run has."""
    words = {
        f"d.{name}": ("d{}", f"gradient of {{}} in update {k}"),
        f"d.{name}.clipped": ("d{}ᶜ", f"gradient of {{}} in update {k}, clipped"),
        f"{name}.ema": (f"{{}}̄@{k}", f"EMA of {{}} after update {k}"),
    }
    for called, (symbol, meaning) in words.items():
        if (full := f"{called}@{k}") in tape.values:
            _describe_like(tape, tape.ref(full), name, symbol, meaning)
    if (old := f"{name}.ema@{k - 1}") in tape.values:
        _describe_like(tape, tape.ref(old), name, f"{{}}̄@{k - 1}", f"EMA of {{}} after update {k - 1}")
    if k == 1:
        _describe_like(tape, tape.ref(f"{name}@0"), name, "{}@0", "{} before the first update")
    plain = {
        "grad_norm": ("", "‖g‖", f"gradient norm in update {k}: of all gradients as one vector"),
        "clip": ("", "clip", f"clipping factor in update {k}: limit / max(gradient norm, limit)"),
        LENGTHS: ("parameter", "‖dW‖", f"gradient norm of each parameter in update {k}"),
    }
    for called, (axes, symbol, meaning) in plain.items():
        if (full := f"{called}@{k}") in tape.values:
            tape.about[full] = Name(full, tuple(axes.split()), symbol, meaning, engines="reference")


def _describe_like(tape: Tape, ref: Ref, of: str, symbol: str, meaning: str) -> None:
    """Gives a value the glossary entry of another, with its own symbol and meaning."""
    if about := describe(of):
        entry = replace(about, symbol=symbol.format(about.symbol), meaning=meaning.format(about.term))
        tape.about[ref.name] = replace(entry, name=ref.name, engines="reference", invariant="")
