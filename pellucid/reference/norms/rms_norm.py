"""RMSNorm: Y = γ ⊙ X r with r = 1 / √(mean X² + eps)."""

from pellucid.parts.norms.rms_norm import RmsNorm
from pellucid.reference.norms import gain, unit_size
from pellucid.reference.op import Ref
from pellucid.reference.tape import Scope


def apply(t: Scope, x: Ref, norm: RmsNorm) -> Ref:
    return gain(t, unit_size(t, x, norm.eps))
