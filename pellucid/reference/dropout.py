"""Dropout on the tape: X.dropped = X ⊙ X.keep. Nothing is random here: the mask is given."""

from collections.abc import Mapping

from pellucid.reference.op import Array, Ref
from pellucid.reference.ops.arithmetic import LETTERS
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.tape import Scope, Tape

KeepMasks = Mapping[str, Array]
"""By name X.keep: 0 where dropout zeroes, 1 / (1 − rate) elsewhere."""


def apply_dropout(t: Tape | Scope, name: str, x: Ref, masks: KeepMasks | None) -> Ref:
    """Returns X ⊙ X.keep under the name X.dropped where the masks have one for X, else X."""
    full = f"{t.prefix}.{name}.keep" if isinstance(t, Scope) else f"{name}.keep"
    if masks is None or full not in masks:
        return x
    keep = t.constant(f"{name}.keep", masks[full])
    every = LETTERS[: len(x.shape)]
    return t(f"{name}.dropped", einsum, x, keep, spec=f"{every},{every}->{every}")
