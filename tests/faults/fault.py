"""A planted fault: a small patch of the package, and the check and the name that must catch it.

    @fault("kernel", subject="llama", check="native decoded", at="blocks.0.attn.k")
    @replacing(NativeDecoder, "_describe_layer")
    def bias_of_the_keys_is_that_of_the_values(right: Any, self: Any, block: Any) -> Any:
        '''The key projection adds the bias of the value projection.'''
        layer = right(self, block)
        layer.k.bias = layer.v.bias
        return layer

The name of the function is the name of the fault. A fault that is more than one function in place of another
is a function of `patch`. It is planted before the subject is opened, as a defect of
the package would be. `at` is the place that the finding names, or how that begins, where it ends in one of
`PREFIX`.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from pellucid.verification.verdict import Finding, Verdict

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]
KINDS = (
    "kernel", "state", "length", "generation", "precision", "loading", "quantization", "training", "compare",
)  # fmt: skip
"""The kinds of fault: in a kernel that people run, in the cache's state, beyond a short text, in generation,
in the precision of a step, in reading a file, in quantized weights, in a training step, in another program's
arrays."""
PREFIX = ("…", " ", "=", "[", ".")
"""How a place ends where it is only the beginning of one."""
FOUND = (Verdict.BUG, Verdict.LOW_PRECISION)


@dataclass(frozen=True)
class Fault:
    name: str
    about: str
    kind: str
    subject: str
    """A key of `subjects.SUBJECTS`: what is verified."""
    check: str
    """The name of the check that must find it."""
    at: str
    plant: Plant

    def is_named_by(self, finding: Finding) -> bool:
        """Whether the finding is by the right check and names the right place."""
        is_prefix = self.at.endswith(PREFIX)
        is_at = finding.at.startswith(self.at.rstrip("… ")) if is_prefix else finding.at == self.at
        return finding.verdict in FOUND and finding.name == self.check and is_at


FAULTS: list[Fault] = []
"""Every fault, in the order of the files that plant them."""


def fault(kind: str, *, subject: str, check: str, at: str) -> Callable[[Plant], Plant]:
    """Registers the decorated function, which plants a fault, under its own name."""
    assert kind in KINDS, kind

    def register(plant: Plant) -> Plant:
        about = (plant.__doc__ or "").strip().split("\n")[0]
        assert about, f"{plant.__name__} needs a docstring that says what is wrong"
        assert plant.__name__ not in {known.name for known in FAULTS}, plant.__name__
        FAULTS.append(Fault(plant.__name__, about, kind, subject, check, at, plant))
        return plant

    return register


def around(patch: Patch, owner: Any, name: str, wrong: Callable[..., Any]) -> None:
    """Replaces a function by one that is given the right one first."""
    right = getattr(owner, name)
    patch.setattr(owner, name, lambda *given, **more: wrong(right, *given, **more))


def replacing(owner: Any, name: str) -> Callable[[Callable[..., Any]], Plant]:
    """Makes a fault of the decorated function: it stands in place of another one, which it is given first."""

    def make(wrong: Callable[..., Any]) -> Plant:
        return functools.wraps(wrong)(lambda patch: around(patch, owner, name, wrong))

    return make
