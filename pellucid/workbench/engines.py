"""One run in both engines: the fast engine's own numbers, laid on the specification's program.

The program (which step reads which) is the specification's. The leaves are what the fast engine holds: its
weights in its type, widened. So each of its values can be judged from its own inputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pellucid.errors import UsageError, unknown
from pellucid.model import taps
from pellucid.model.compiler import NO_COMPILER, lacks_compiler
from pellucid.model.loss import loss
from pellucid.model.transformer import Transformer
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward

PATHS = ("eager", "fused", "compiled")


@dataclass(frozen=True)
class Run:
    """`values` are the fast engine's under its names, in float64; `types` says in which type it held each.
    `tape` is the specification's own run on the same weights."""

    tape: Tape
    values: Mapping[str, Array]
    types: Mapping[str, str]
    path: str

    def laid(self) -> Tape:
        """The program with the fast engine's numbers where it has shown them."""
        return with_values(self.tape, self.values)


def run(
    module: Transformer,
    ids: Any,
    targets: Any = None,
    *,
    path: str = "eager",
    backward: bool = False,
    program: Tape | None = None,
    positions: Any = None,
) -> Run:
    """Both engines on ids [B T]: every name of both, with gradients where asked for.

    `program` is a run of the specification on the same ids that may be used again: its parameters are
    replaced by those of the module, its own values stay what they were. `positions` [T] are the fast
    engine's; the program is told of them by whoever gives it.
    """
    if path not in PATHS:
        raise UsageError(unknown("path", path, PATHS))
    tape = forward(module.config, module.weights(), ids, targets) if program is None else program
    if program is not None:
        tape = with_values(program, module.weights())
    elif backward:
        tape.backward(tape.ref("loss"))
    found = _watched(module, ids, targets, positions, path, backward)
    types = {name: str(value.dtype).removeprefix("torch.") for name, value in found.items()}
    values = {name: value.detach().double().cpu().numpy() for name, value in found.items()}
    return Run(tape, values, types, path)


def with_values(program: Tape, values: Mapping[str, Array]) -> Tape:
    """The same program, holding these numbers where they are given."""
    tape = Tape(program.dtype)
    tape.steps, tape.aliases, tape.roles = program.steps, program.aliases, program.roles
    tape.about = program.about
    tape.values = {name: values.get(name, value) for name, value in program.values.items()}
    return tape


def _watched(
    module: Transformer, ids: Any, targets: Any, positions: Any, path: str, backward: bool
) -> dict[str, torch.Tensor]:
    ids, targets, positions = (
        None if given is None else torch.as_tensor(given, device=module.device)
        for given in (ids, targets, positions)
    )

    def forward() -> torch.Tensor:
        logits: torch.Tensor = module(ids, positions=positions)
        return logits if targets is None else loss(logits, targets)

    trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
    if backward and not trained:
        raise UsageError("every parameter of the module is frozen, so there is no gradient to show.")
    with torch.set_grad_enabled(backward):
        if path == "compiled":
            if lacks_compiler(module.device):
                raise UsageError(f"{NO_COMPILER}: use path eager or fused.")
            return taps.compiled_values(forward)
        with taps.record(gradients=backward, fused=path == "fused") as seen:
            made = forward()
            # the gradients are given to us, so that the parameters' own .grad stays the user's
            found = torch.autograd.grad(made, list(trained.values()), allow_unused=True) if backward else ()
    slopes = zip(trained, found, strict=backward)
    return dict(seen) | {f"d.{name}": slope for name, slope in slopes if slope is not None}
