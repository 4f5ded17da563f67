"""One run in both engines: the fast engine's own numbers on the specification's program.

The program (which step reads which) is the specification's. The leaves are the fast engine's: its weights in
its type, widened; of a quantized weight its integers, scales and minimums, and the numbers that the engine
multiplies with. So each of its values can be judged from its own inputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pellucid.base.errors import UsageError, unknown
from pellucid.base.names import HEAD_OUT, asks_for_heads
from pellucid.engine import taps
from pellucid.engine.compiler import NO_COMPILER, lacks_compiler
from pellucid.engine.loss import loss
from pellucid.engine.transformer import Transformer
from pellucid.reference.op import Array
from pellucid.reference.ops.quantization import dequantize
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward, hold_weights

PATHS = ("eager", "fused", "compiled")


@dataclass(frozen=True)
class EnginesRun:
    """`values` are the fast engine's by name, in float64; `types` names the type in which it held each.
    `tape` is the specification's own run on the same weights."""

    tape: Tape
    values: Mapping[str, Array]
    types: Mapping[str, str]
    path: str

    def to_tape(self) -> Tape:
        """Returns the program with the fast engine's numbers where it has shown them."""
        return with_values(self.tape, self.values)

    def hold_weights(self) -> Tape:
        """Returns the specification's program with the weights that the engine multiplies with: a quantized
        one is a parameter."""
        names = (name for name, step in self.tape.steps.items() if step.op is dequantize)
        return hold_weights(with_values(self.tape, {name: self.values[name] for name in names}))


def run(
    module: Transformer,
    ids: Any,
    targets: Any = None,
    *,
    path: str = "eager",
    backward: bool = False,
    program: Tape | None = None,
    positions: Any = None,
    padding: Any = None,
    smoothing: float = 0.0,
    by_head: bool = False,
) -> EnginesRun:
    """Runs both engines on ids [B T] and returns every value of both, with gradients for `backward`.

    `program` is an earlier run of the specification on the same ids: its parameters are replaced by those of
    the module, its other values stay as they were. `positions` [T] are those of the fast engine; a program
    that is given must have been run with them. `padding` [B T] is 1 for a token and 0 for padding. `by_head`
    names what each head adds to the residual stream, as does a program that has these values.
    """
    if path not in PATHS:
        raise UsageError(unknown("path", path, PATHS))
    applied = applied_weights(module)
    if program is not None:
        leaves = {name: value for name, value in applied.items() if name not in program.steps}
        tape = with_values(program, leaves | quantized_parts(module))
        by_head = any(map(asks_for_heads, program.values))
    else:
        more = {"objective": {"smoothing": smoothing}, "padding": padding, "by_head": by_head}
        tape = forward(module.config, held_weights(module), ids, targets, **more)
        if backward:
            tape.backward(tape.ref("loss"))
    patterns = ("*", f"*.{HEAD_OUT}") if by_head else ("*",)
    found = _record(module, (ids, targets, positions, padding), smoothing, path, backward, patterns)
    types = {name: str(value.dtype).removeprefix("torch.") for name, value in found.items()}
    values = {name: value.detach().double().cpu().numpy() for name, value in found.items()}
    dequantized = {name: value for name, value in applied.items() if name in tape.steps}
    types |= dict.fromkeys(dequantized, str(module.dtype).removeprefix("torch."))
    values |= dequantized
    if "mask" in values and "mask" in tape.values:  # the fast engine holds one mask for all rows
        values["mask"] = np.broadcast_to(values["mask"], tape["mask"].shape)
    return EnginesRun(tape, values, types, path)


def held_weights(module: Transformer) -> dict[str, Any]:
    """Returns the weights by name: parameters widened to float64, quantized ones as they are."""
    quantized = {name: held.to_weight() for name, held in module.quantized_weights().items()}
    return {**module.weights(), **quantized}


def applied_weights(module: Transformer) -> dict[str, Array]:
    """Returns the numbers that the module multiplies with, by name, in float64: those of a quantized weight
    are dequantized to the module's type."""
    quantized = {
        name: held.dequantize(module.dtype).double().cpu().numpy()
        for name, held in module.quantized_weights().items()
    }
    return {**module.weights(), **quantized}


def quantized_parts(module: Transformer) -> dict[str, Array]:
    """Returns integers, scales and minimums of every quantized weight, by the specification's names."""
    parts: dict[str, Array] = {}
    for name, held in module.quantized_weights().items():
        weight = held.to_weight()
        parts |= {f"{name}.integers": weight.integers, f"{name}.scales": weight.scales.astype(np.float64)}
        if weight.minimums is not None:
            parts[f"{name}.minimums"] = weight.minimums.astype(np.float64)
    return parts


def with_values(program: Tape, values: Mapping[str, Array]) -> Tape:
    """Returns the same program with these numbers in place of its own."""
    tape = Tape(program.dtype)
    tape.steps, tape.aliases, tape.roles = program.steps, program.aliases, program.roles
    tape.about = program.about
    tape.values = {name: values.get(name, value) for name, value in program.values.items()}
    return tape


def _record(
    module: Transformer,
    inputs: tuple[Any, ...],
    smoothing: float,
    path: str,
    backward: bool,
    patterns: tuple[str, ...],
) -> dict[str, torch.Tensor]:
    """Returns the values that the module computes from ids, targets, positions and padding, by name."""
    ids, targets, positions, padding = (
        None if given is None else torch.as_tensor(given, device=module.device) for given in inputs
    )

    def forward() -> torch.Tensor:
        logits: torch.Tensor = module(ids, positions=positions, padding=padding)
        return logits if targets is None else loss(logits, targets, smoothing=smoothing)

    trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
    if backward and not trained:
        raise UsageError(
            "every parameter of the module is frozen or quantized, so there is no gradient to show."
        )
    with torch.set_grad_enabled(backward):
        if path == "compiled":
            if lacks_compiler(module.device):
                raise UsageError(f"{NO_COMPILER}: use path eager or fused.")
            assert ids is not None
            module.cover(ids.shape[-1] if positions is None else int(positions.max()) + 1)
            return taps.compiled_values(forward, patterns)
        with taps.record(*patterns, gradients=backward, fused=path == "fused") as seen:
            result = forward()
            # autograd.grad returns the gradients, so that the parameters' own .grad stays the user's
            found = torch.autograd.grad(result, list(trained.values()), allow_unused=True) if backward else ()
    grads = zip(trained, found, strict=backward)
    return dict(seen) | {f"d.{name}": grad for name, grad in grads if grad is not None}
