"""Training steps on tapes, and their tapes joined into one, so that any number of any step has a name."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pellucid.base.errors import TapeError
from pellucid.base.quantized import QuantizedWeight
from pellucid.config import ModelConfig
from pellucid.parts.optimizers import OptimizerConfig
from pellucid.reference.loss import loss
from pellucid.reference.op import Array, Ref
from pellucid.reference.ops.quantization import dequantize
from pellucid.reference.optimizers import update
from pellucid.reference.tape import Step, Tape
from pellucid.reference.transformer import transformer

Weights = Mapping[str, Array]
"""By name; a `QuantizedWeight` stands where an array would."""


def forward(
    config: ModelConfig,
    weights: Weights,
    ids: Any,
    targets: Any = None,
    *,
    objective: Mapping[str, Any] | None = None,
    make_tape: Callable[[], Tape] = Tape,
    updates: int = 0,
    **more: Any,
) -> Tape:
    """Returns the tape of one forward pass, with the loss where there are targets; `objective` holds the
    settings of the loss, `more` those of `transformer`. `make_tape` returns an
    empty tape, of a subclass where steps are counted or taken from another run; `updates` is the number of
    updates before this pass."""
    tape = make_tape()
    tape.updates = updates
    shapes = config.parameters()
    for name, shape in shapes.items():
        value = weights.get(name)  # once: it may be read from a file
        if value is None or np.shape(value) != shape:
            has = "is missing" if value is None else f"has the shape {np.shape(value)}"
            raise TapeError(f"the weight {name!r} {has}; this config needs {shape}.")
        add_weight(tape, name, value)
    if unused := [name for name in weights if name not in shapes]:
        raise TapeError(f"this config has no weight {unused[0]!r}.")
    logits = transformer(tape, config, ids, **more)
    if targets is not None:
        loss(tape, logits, targets, **(objective or {}))
    return tape


def add_weight(tape: Tape, name: str, value: Any) -> Ref:
    """Adds a parameter; a quantized weight as integers, scales and minimums, and the step that dequantizes
    them."""
    if not isinstance(value, QuantizedWeight):
        return tape.parameter(name, value)
    parts = [tape.integer_parameter(f"{name}.integers", value.integers)]
    parts.append(tape.parameter(f"{name}.scales", value.scales))
    if value.minimums is not None:
        parts.append(tape.parameter(f"{name}.minimums", value.minimums))
    return tape(name, dequantize, *parts, group=value.group)


def train(
    config: ModelConfig,
    weights: Weights,
    ids: Any,
    targets: Any,
    rule: str | OptimizerConfig,
    steps: int,
    *,
    objective: Mapping[str, Any] | None = None,
    padding: Any = None,
    by_head: bool = False,
    make_tape: Callable[[], Tape] = Tape,
    **settings: Any,
) -> list[Tape]:
    """Returns one tape per update, and a last one with the forward pass of the trained weights; `settings`
    are those of `update`."""
    tapes: list[Tape] = []
    run: dict[str, Any] = {"objective": objective, "padding": padding, "by_head": by_head}
    run["make_tape"] = make_tape
    weights, state = dict(weights), dict[str, Array]()
    if quantized := [name for name, value in weights.items() if isinstance(value, QuantizedWeight)]:
        raise TapeError(
            f"the weight {quantized[0]!r} is quantized, and integers have no gradient: it cannot be updated."
        )
    for k in range(1, steps + 1):
        tape = forward(config, weights, ids, targets, updates=k - 1, **run)
        tape.backward(tape.ref("loss"))
        updated = update(tape, rule, k, state=state, **settings)
        weights |= {ref.name: tape[ref] for ref in tape.parameters()}  # those that were edited, too
        weights |= {ref.name.removesuffix(f"@{k}"): tape[ref] for ref in updated}
        state = {name: value for name, value in tape.values.items() if name.endswith(f"@{k}")}
        tapes.append(tape)
    return [*tapes, forward(config, weights, ids, targets, updates=steps, **run)]


def join(tapes: list[Tape]) -> Tape:
    """Returns the tapes of consecutive updates as one: NAME@k is that value after k updates.

    A parameter of tape k is the update that computed it, X@k, so that a number can be followed back through
    the updates; inputs, and parameters that were not updated, keep their one name.
    """
    joined = Tape()
    for k, tape in enumerate(tapes):
        new = {name: _numbered_name(joined, tape, name, k) for name in (*tape.values, *tape.aliases)}
        for name, value in tape.values.items():
            if new[name] in joined.values:
                continue
            joined.values[new[name]], joined.roles[new[name]] = value, tape.roles[name]
            if name in tape.about:
                joined.about[new[name]] = tape.about[name]
            if step := tape.steps.get(name):
                inputs = tuple(new[read] for read in step.inputs)
                joined.steps[new[name]] = Step(new[name], step.op, inputs, step.attrs, step.phase)
        for name, target in tape.aliases.items():
            joined.aliases[new[name]] = new[target]
        for name in tape.values:
            if k and new[name] == name and "@" not in name:
                joined.aliases[f"{name}@{k}"] = name
    return joined


def _numbered_name(joined: Tape, tape: Tape, name: str, k: int) -> str:
    """Returns NAME@k, or NAME where the value is an input or a parameter that is still the one of NAME."""
    if k == 0 or "@" in name:
        return name
    given = tape.roles.get(name) in ("leaf", "param")
    if (
        given
        and f"{name}@{k}" not in joined.values
        and np.array_equal(joined.values.get(name, []), tape[name])
    ):
        return name
    return f"{name}@{k}"
