"""The soft cap: limit · tanh(s / limit)."""

from pellucid.parts.caps.tanh import TanhCap
from pellucid.reference.op import Ref
from pellucid.reference.ops.soft_cap import soft_cap
from pellucid.reference.tape import Scope, Tape


def apply(t: Tape | Scope, name: str, x: Ref, cap: TanhCap) -> Ref:
    return t(name, soft_cap, x, limit=cap.limit)
