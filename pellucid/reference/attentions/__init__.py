"""What each position takes from the others, one file per form of `parts/attentions/`; each has
`apply(t, config, q, k, v, inputs, dropout)`."""

import importlib
from typing import Any

from pellucid.config import ModelConfig
from pellucid.reference.dropout import KeepMasks
from pellucid.reference.op import Ref
from pellucid.reference.tape import Scope


def mixed(
    t: Scope, config: ModelConfig, q: Ref, k: Ref, v: Ref, inputs: Any, dropout: KeepMasks | None
) -> Ref:
    """Each head's mixture of values z [B H T D]."""
    form = importlib.import_module(f"{__name__}.{config.attention.form}")
    ref: Ref = form.apply(t, config, q, k, v, inputs, dropout)
    return ref
