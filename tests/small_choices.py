"""Every kind with settings small enough to show on five tokens."""

import dataclasses
from typing import Any

from pellucid.parts import find

SMALL = {
    "masks/window": {"size": 3},
    "masks/block_local": {"size": 3},
    "masks/sinks": {"tokens": 1, "size": 2},
    "masks/window_global": {"size": 2, "tokens": 1},
}


def small(family: str, kind: str) -> str | dict[str, Any]:
    """Returns what a config writes for a kind; a setting that has no default is 2, unless SMALL has
    others."""
    required = [
        field.name
        for field in dataclasses.fields(find(family, kind))
        if field.default is field.default_factory is dataclasses.MISSING
    ]
    settings = SMALL.get(f"{family}/{kind}", dict.fromkeys(required, 2))
    return {"kind": kind} | settings if settings else kind
