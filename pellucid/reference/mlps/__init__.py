"""The feed-forward, one file per form of `parts/mlps/`; each has `apply(block, x, mlp, dropout)`."""

import importlib

from pellucid.parts.mlps import Mlp
from pellucid.reference.dropout import Dropped
from pellucid.reference.op import Ref
from pellucid.reference.tape import Scope


def feed_forward(block: Scope, x: Ref, mlp: Mlp, dropout: Dropped | None) -> Ref:
    """What the feed-forward writes to the stream [B T C], each position by itself."""
    ref: Ref = importlib.import_module(f"{__name__}.{mlp.form}").apply(block, x, mlp, dropout)
    return ref
