"""Soft caps on the tape: one function per kind of `parts/caps.py`."""

from pellucid.base import registry
from pellucid.parts.caps import CapConfig, TanhCap
from pellucid.reference.op import Ref
from pellucid.reference.ops.activations import soft_cap
from pellucid.reference.tape import Tape, TapeScope


def apply_cap(t: Tape | TapeScope, name: str, x: Ref, cap: CapConfig) -> Ref:
    """Returns the capped values under `name`; without a cap, x itself."""
    if cap.is_none:
        return x
    ref: Ref = registry.function_of(__name__, cap.kind, "cap")(t, name, x, cap)
    return ref


@registry.kind("tanh")
def _tanh(t: Tape | TapeScope, name: str, x: Ref, cap: TanhCap) -> Ref:
    """limit · tanh(x / limit)."""
    return t(name, soft_cap, x, limit=cap.limit)
