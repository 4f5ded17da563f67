"""Dropout on the tape: a value times what is kept of it. Nothing is random here; the mask is given."""

from collections.abc import Mapping

from pellucid.reference.op import Array, Ref
from pellucid.reference.ops.arithmetic import LETTERS
from pellucid.reference.ops.einsum import einsum
from pellucid.reference.tape import Scope, Tape

Dropped = Mapping[str, Array]


def dropped(t: Tape | Scope, name: str, x: Ref, masks: Dropped | None) -> Ref:
    """X.dropped = X ⊙ X.keep where the masks have one for X, else X."""
    full = f"{t.prefix}.{name}.keep" if isinstance(t, Scope) else f"{name}.keep"
    if masks is None or full not in masks:
        return x
    keep = t.constant(f"{name}.keep", masks[full])
    every = LETTERS[: len(x.shape)]
    return t(f"{name}.dropped", einsum, x, keep, spec=f"{every},{every}->{every}")
