"""The caps of scores and logits, one file per kind of `parts/caps/`; each has `apply(t, name, x, cap)`."""

import importlib

from pellucid.parts.caps import Cap
from pellucid.reference.op import Ref
from pellucid.reference.tape import Scope, Tape


def capped(t: Tape | Scope, name: str, x: Ref, cap: Cap) -> Ref:
    """The scores, none beyond the cap."""
    ref: Ref = importlib.import_module(f"{__name__}.{cap.kind}").apply(t, name, x, cap)
    return ref
