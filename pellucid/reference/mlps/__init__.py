"""The feed-forward, one file per form of `parts/mlps/`; each has `apply(t, x, mlp)`."""

import importlib

from pellucid.parts.mlps import Mlp
from pellucid.reference.op import Ref
from pellucid.reference.tape import Scope


def feed_forward(t: Scope, x: Ref, mlp: Mlp) -> Ref:
    """The hidden channels [B T F] of each position by itself."""
    ref: Ref = importlib.import_module(f"{__name__}.{mlp.form}").apply(t, x, mlp)
    return ref
